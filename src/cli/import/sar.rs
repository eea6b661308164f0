//! `import sar`.

use std::io::Write;

use jiff::tz::TimeZone;

use super::{ImportArgs, import};
use crate::cli::ExitStatus;
use crate::cli::error::CliError;
use crate::cli::time_printer::zone_of;
use crate::import::sar::{self, SarOptions};
use crate::import::stated_zone;

/// Import archives of sar, as sadf prints them: sadf -j FILE -- -A > FILE.json.
///
/// Each group of statistics becomes a source, such as sar-cpu-load, sar-memory and sar-disk, and
/// each host a run. Elements of lists, such as disks, are identified by their name.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: ImportArgs,
    /// Read times of a host's own zone (sadf -t, sadf -T) as UTC. Times of sadf without these are
    /// UTC anyway.
    #[arg(long)]
    utc: bool,
    /// Zone of times of a host's own zone: Europe/Berlin, CET, +01:00 [default: the zone that the
    /// file names, else the local time zone (TZ)].
    #[arg(long, value_name = "ZONE", value_parser = stated_zone, conflicts_with = "utc")]
    zone: Option<TimeZone>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = if args.utc { Some(TimeZone::UTC) } else { args.zone.clone() };
    let options = SarOptions { zone, host_zone: zone_of(args.utc)? };
    import(&args.common, |files, job| sar::import(files, &options, job), out)
}
