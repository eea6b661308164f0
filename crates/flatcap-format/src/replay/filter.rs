//! Selection of the parts of a recording to read.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::segment::{Elapsed, SegmentHeader};

/// Selects the parts of a recording to read. Everything by default.
#[derive(Debug, Clone, Default)]
pub struct ReplayFilter {
    /// Names of the selected sources. If empty, all sources are selected.
    pub sources: BTreeSet<String>,
    /// Selects frames at or after this wall time, in nanoseconds.
    pub since_ns: Option<i64>,
    /// Selects frames before this wall time, in nanoseconds.
    pub until_ns: Option<i64>,
    /// Selects frames within this range of time, relative to the first sample.
    pub elapsed: Option<Elapsed>,
    /// Selects frames of this host. `None` selects all hosts.
    pub host: Option<HostIdentity>,
}

/// The identity of a host. A name alone is not enough, because several hosts may have the same
/// name.
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
    /// Returns whether the filter selects by time.
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

/// Whether the filter selects the frames of a run.
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

/// The times that a filter selects from one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTimes {
    /// The range of wall time, in nanoseconds.
    pub wall_ns: Range<i64>,
    /// The range of monotonic time, in nanoseconds.
    pub mono_ns: Range<u64>,
}

impl WantedTimes {
    /// Returns the times that a filter selects from the run with this header.
    pub fn of(filter: &ReplayFilter, header: &SegmentHeader) -> Self {
        let wall_ns = filter.since_ns.unwrap_or(i64::MIN)..filter.until_ns.unwrap_or(i64::MAX);
        let mono_ns = filter.elapsed.as_ref().map_or(0..u64::MAX, |elapsed| elapsed.mono_ns(header));
        Self { wall_ns, mono_ns }
    }

    /// Returns whether the two ranges contain this wall time and this monotonic time.
    #[inline]
    pub fn contains(&self, wall_ns: i64, mono_ns: u64) -> bool {
        // A range without an end also contains the highest time that a clock can show.
        let is_after = |is_before: bool, is_open: bool| !is_before && !is_open;
        wall_ns >= self.wall_ns.start
            && mono_ns >= self.mono_ns.start
            && !is_after(wall_ns < self.wall_ns.end, self.wall_ns.end == i64::MAX)
            && !is_after(mono_ns < self.mono_ns.end, self.mono_ns.end == u64::MAX)
    }

    /// Returns whether the ranges contain all times.
    pub fn are_all(&self) -> bool {
        (self.wall_ns.clone(), self.mono_ns.clone()) == (i64::MIN..i64::MAX, 0..u64::MAX)
    }
}
