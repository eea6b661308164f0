//! The settings whose values are keywords.

use flatcap_os::host_log::HostLog;
use flatcap_os::keyword::Keyword;
use flatcap_sampling::{BatchMode, CommandLines, GroupName, PerfEvent, ProcessRank, Timing};

/// A type of settings whose values are keywords. The trait belongs to this module, because rustc
/// rejects a blanket implementation that is bounded by a trait of another crate. That crate could
/// later implement its trait for `bool`.
pub(super) trait KeywordSetting: Keyword {}

impl KeywordSetting for BatchMode {}
impl KeywordSetting for GroupName {}
impl KeywordSetting for HostLog {}
impl KeywordSetting for PerfEvent {}
impl KeywordSetting for CommandLines {}
impl KeywordSetting for ProcessRank {}
impl KeywordSetting for Timing {}
