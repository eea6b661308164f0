//! `import sar`.

use std::io::Write;

use super::{ImportArgs, import};
use crate::cli::ExitStatus;
use crate::cli::error::CliError;
use crate::cli::time_printer::zone_of;
use crate::import::sar::{self, SarOptions};

/// Import archives of sar, as sadf prints them: sadf -j FILE -- -A > FILE.json.
///
/// Each group of statistics becomes a source, such as sar-cpu-load, sar-memory and sar-disk, and
/// each host a run. Elements of lists, such as disks, are identified by their name.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: ImportArgs,
    /// Read times of a host's own zone (sadf -t, sadf -T) as UTC instead of in the local time zone
    /// (TZ). Times of sadf without these are UTC anyway.
    #[arg(long)]
    utc: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = zone_of(args.utc)?;
    import(&args.common, |files, job| sar::import(files, &SarOptions { zone }, job), out)
}
