//! `spikes`: lists the moments of a recording at which any field deviated most from its baseline.

use std::io::{self, Write};

use flatcap_explain::{ExplainError, RecordingChoice, TextLayout, find_spikes};
use jiff::tz::TimeZone;

use super::error::CliError;
use super::selection::RecordingSelection;
use super::terminal::Output;
use super::{ExitStatus, print_json, report_notice};
use crate::config;

/// List the moments that deviated most from the baseline.
///
/// The largest deviations come first. Each moment is compared with the minute before it. `flatcap
/// explain --at TIME` then says what was different, and who did it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: RecordingSelection,
    /// Maximum number of moments to list.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = config::count_argument::<usize>)]
    limit: usize,
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.selection.zone.zone()?;
    let filter = args.selection.filter(&zone)?;
    let choice = RecordingChoice {
        paths: args.selection.paths.clone(),
        sources: filter.sources.clone(),
        host: filter.host.clone(),
    };
    let mut outcome = Ok(ExitStatus::Done);
    let mut report = |notice: &_| outcome = report_notice(notice);
    let found = match find_spikes(&choice, filter, args.limit, &mut report) {
        Err(ExplainError::NoSamples) => return Err(args.selection.no_samples(zone)?),
        found => found?,
    };
    if args.json {
        print_json(&found, out)?;
    } else {
        for line in layout(&zone).spikes(&found) {
            writeln!(out, "{line}")?;
        }
    }
    if found.left_out > 0 {
        report_left_out(found.left_out)?;
    }
    let outcome = outcome?;
    Ok(if found.has_findings { ExitStatus::DataLoss } else { outcome })
}

/// Returns the layout of answers on standard output.
pub(super) fn layout(zone: &TimeZone) -> TextLayout<'_> {
    TextLayout { zone, width: Output::Stdout.width_to_fit() }
}

/// Reports the number of fields that were not examined.
pub(super) fn report_left_out(left_out: u64) -> io::Result<()> {
    writeln!(
        io::stderr(),
        "flatcap: fields of list elements that were left out to bound memory: at least {left_out}; \
         choose sources with --source"
    )
}
