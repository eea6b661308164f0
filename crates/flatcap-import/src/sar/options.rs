//! Options of sar imports.

use jiff::tz::TimeZone;

/// Options of a sar import.
#[derive(Debug, Clone)]
pub struct SarOptions {
    /// The zone of local times (`sadf -t`). If `None`, the zone that the document names applies. If
    /// the document names no zone, `host_zone` applies.
    pub zone: Option<TimeZone>,
    /// The zone of this host.
    pub host_zone: TimeZone,
}
