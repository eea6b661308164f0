//! The settings whose values are keywords.

use flatcap_os::host_log::HostLog;
use flatcap_os::keyword::Keyword;
use flatcap_sampling::{BatchMode, GroupName, PerfEvent, ProcessRank, Timing};

/// A type of settings whose values are keywords. A trait of this module, because rustc would reject
/// settings of any type with the trait of another crate: that crate could later give it to `bool`.
pub(super) trait KeywordSetting: Keyword {}

impl KeywordSetting for BatchMode {}
impl KeywordSetting for GroupName {}
impl KeywordSetting for HostLog {}
impl KeywordSetting for PerfEvent {}
impl KeywordSetting for ProcessRank {}
impl KeywordSetting for Timing {}
