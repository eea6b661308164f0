//! Selection of the parts of a recording to read.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::segment::{Elapsed, SegmentHeader};

/// Selects the parts of a recording to read. Everything by default.
#[derive(Debug, Clone, Default)]
pub struct ReplayFilter {
    /// Names of the sources; empty for all.
    pub sources: BTreeSet<String>,
    /// Frames not before this wall time, in nanoseconds.
    pub since_ns: Option<i64>,
    /// Frames before this wall time, in nanoseconds.
    pub until_ns: Option<i64>,
    /// Frames within this range of time after the first sample.
    pub elapsed: Option<Elapsed>,
    /// Frames of this host; `None` for all hosts.
    pub host: Option<HostIdentity>,
}

/// The identity of a host. A name alone is not enough, because several hosts may have it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostIdentity {
    /// The host's name.
    pub name: String,
    /// The host's machine id, if it is known.
    pub machine_id: Option<String>,
}

impl HostIdentity {
    /// Returns whether a run with this header was recorded on this host.
    pub fn is_of(&self, header: &SegmentHeader) -> bool {
        (&self.name, &self.machine_id) == (&header.host.name, &header.host.machine_id)
    }
}

impl ReplayFilter {
    /// Returns whether the filter excludes some times.
    pub(super) fn has_times(&self) -> bool {
        self.since_ns.is_some() || self.until_ns.is_some() || self.elapsed.is_some()
    }

    pub(super) fn wants_host(&self, header: &SegmentHeader) -> bool {
        self.host.as_ref().is_none_or(|host| host.is_of(header))
    }

    pub(super) fn wants_source(&self, name: &str) -> bool {
        self.sources.is_empty() || self.sources.contains(name)
    }
}

/// Whether the frames of a run are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RunSelection {
    #[default]
    Wanted,
    OfOtherHost,
}

impl RunSelection {
    pub(super) fn of(header: &SegmentHeader, filter: &ReplayFilter) -> Self {
        if filter.wants_host(header) { Self::Wanted } else { Self::OfOtherHost }
    }
}

/// The wanted times of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTimes {
    /// In wall nanoseconds.
    pub wall_ns: Range<i64>,
    /// In monotonic nanoseconds.
    pub mono_ns: Range<u64>,
}

impl WantedTimes {
    /// Returns the times that a filter wants of the run with this header.
    pub fn of(filter: &ReplayFilter, header: &SegmentHeader) -> Self {
        let wall_ns = filter.since_ns.unwrap_or(i64::MIN)..filter.until_ns.unwrap_or(i64::MAX);
        let mono_ns = filter.elapsed.as_ref().map_or(0..u64::MAX, |elapsed| elapsed.mono_ns(header));
        Self { wall_ns, mono_ns }
    }

    /// Returns whether a time is wanted by both clocks.
    #[inline]
    pub fn contains(&self, wall_ns: i64, mono_ns: u64) -> bool {
        // The highest time that a clock can show belongs to a range without an end.
        let is_after = |is_before: bool, is_open: bool| !is_before && !is_open;
        wall_ns >= self.wall_ns.start
            && mono_ns >= self.mono_ns.start
            && !is_after(wall_ns < self.wall_ns.end, self.wall_ns.end == i64::MAX)
            && !is_after(mono_ns < self.mono_ns.end, self.mono_ns.end == u64::MAX)
    }

    /// Returns whether all times are wanted.
    pub fn are_all(&self) -> bool {
        (self.wall_ns.clone(), self.mono_ns.clone()) == (i64::MIN..i64::MAX, 0..u64::MAX)
    }
}
