//! Selection of the parts of a recording to read.

use std::collections::BTreeSet;

use crate::segment::{Elapsed, SegmentHeader};

/// Selects the parts of a recording to read. Everything by default.
#[derive(Debug, Clone, Default)]
pub struct ReplayFilter {
    /// Names of the sources; empty for all.
    pub sources: BTreeSet<String>,
    /// Not before this wall time, in nanoseconds.
    pub since_ns: Option<i64>,
    /// Before this wall time, in nanoseconds.
    pub until_ns: Option<i64>,
    /// Within this time after the first sample.
    pub elapsed: Option<Elapsed>,
    /// The host; `None` for all.
    pub host: Option<HostIdentity>,
    /// Dotted paths of the fields to decode; empty for all. Other fields may have any value.
    pub fields: Vec<String>,
}

/// What identifies a host: names alone may be given twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIdentity {
    /// Its name.
    pub name: String,
    /// Its machine id, if it is known.
    pub machine_id: Option<String>,
}

impl HostIdentity {
    /// Returns whether the run with this header is of the host.
    pub fn is_of(&self, header: &SegmentHeader) -> bool {
        (&self.name, &self.machine_id) == (&header.host.name, &header.host.machine_id)
    }
}

impl ReplayFilter {
    pub(super) fn wants_host(&self, header: &SegmentHeader) -> bool {
        self.host.as_ref().is_none_or(|host| host.is_of(header))
    }

    pub(super) fn wants_source(&self, name: &str) -> bool {
        self.sources.is_empty() || self.sources.contains(name)
    }

    pub(super) fn wants_wall(&self, wall_ns: i64) -> bool {
        self.since_ns.is_none_or(|since| wall_ns >= since)
            && self.until_ns.is_none_or(|until| wall_ns < until)
    }
}
