//! The option `--utc`, which chooses the time zone of the times that a verb prints and reads.

use std::io;

use flatcap_text::time_printer::zone_of;
use jiff::tz::TimeZone;

/// The time zone of the times that a verb prints and reads.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ZoneOption {
    /// Print times in UTC instead of the local time zone (TZ), and read times without an offset as
    /// UTC.
    #[arg(long)]
    utc: bool,
}

impl ZoneOption {
    /// Returns the zone: UTC if requested, or else the local zone. Terminals and pipes are treated
    /// alike. Warns on standard error if TZ names no zone.
    pub(super) fn zone(&self) -> io::Result<TimeZone> {
        zone_of(self.utc)
    }
}
