//! What a user states about documents of sadf.

use jiff::tz::TimeZone;

/// Options of an import.
#[derive(Debug, Clone)]
pub struct SarOptions {
    /// The zone of times that sadf printed in the local time of a host (`sadf -t`); that which the
    /// document names, or `host_zone`, without it.
    pub zone: Option<TimeZone>,
    /// The zone of this host.
    pub host_zone: TimeZone,
}
