//! `import sar`.

use std::io::Write;

use crate::sar::{self, SarOptions};
use crate::zone_name::stated_zone;
use jiff::tz::TimeZone;

use super::{CommonArguments, ImportCommandError, ImportEnd, import};
use flatcap_text::time_printer::zone_of;

/// Import sar archives that sadf has converted to JSON: sadf -j FILE -- -A > FILE.json.
///
/// Each host becomes a run, and each group of statistics a source, such as sar-cpu-load, sar-memory
/// and sar-disk. Elements of lists, such as disks, are identified by their name.
#[derive(Debug, clap::Args)]
pub(super) struct SarArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Interpret local times of a host (sadf -t, sadf -T) as UTC. Without -t and -T, sadf prints
    /// UTC.
    #[arg(long)]
    utc: bool,
    /// Time zone of the local times of a host, such as Europe/Berlin, CET or +01:00 [default: the
    /// zone that the file names, else the local time zone (TZ)].
    #[arg(long, value_name = "ZONE", value_parser = stated_zone, conflicts_with = "utc")]
    zone: Option<TimeZone>,
}

pub(super) fn run(args: &SarArguments, out: &mut dyn Write) -> Result<ImportEnd, ImportCommandError> {
    let zone = if args.utc { Some(TimeZone::UTC) } else { args.zone.clone() };
    let options = SarOptions { zone, host_zone: zone_of(args.utc)? };
    import(&args.common, |files, job| sar::import(files, &options, job), out)
}
