//! `explain`: shows what was different in a window, and which process caused it.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use flatcap_explain::{ExplainError, RecordingChoice, Spikes, explain, find_spikes};
use flatcap_format::replay::{RecordedHosts, ReplayFilter};
use flatcap_text::human;
use flatcap_text::quantity::duration_argument;
use flatcap_text::stack_names::StackNames;
use jiff::tz::TimeZone;

use super::error::CliError;
use super::hosts::find_host;
use super::recordings::{default_recordings, segments_of};
use super::selection::{check_sources, recorded_time, wall_time};
use super::snapshots::{attached_logs, snapshot_time};
use super::spikes::{layout, report_left_out};
use super::symbol_directory::symbol_directory;
use super::zone_option::ZoneOption;
use super::{ExitStatus, print_json, report_notice};
use crate::config;
use flatcap_text::time_printer::TimePrinter;

/// Say what was different in a window, and who did it.
///
/// The first line is the answer. Processes, control groups, disks and interfaces are ranked by how
/// much more they used than in the baseline. Those that ended, used less or waited are listed
/// separately. Fields are ranked by how far they deviate from the baseline. With samples of
/// sched, profile or kmsg, it also says who ran and who slept longer than usual. It says who waited
/// for a CPU and because of whom, which code ran, and what the kernel logged.
///
/// In the output, `used` and `value` are measured in the window, and `usual` in the baseline. `of`
/// names the field, and `from` states the second at which the field began to differ. `score` states
/// how unusual a value is, from 0 to 3. The score of a suspect rises with what it used above its
/// usual level, and is the sum over its kinds of use.
/// `(+5)` says that five further fields moved together with the one that is named. `state R` is the
/// share of time in a state, named by the letters of ps: R runs or waits for a CPU, D waits for a
/// device. The line below a process has its command line, systemd unit, container, pod and user, as
/// far as they were recorded. Secrets in a command line are replaced by ***.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Segment files, or directories of segments [default: ./flatcap-data, else /var/lib/flatcap].
    #[arg(value_name = "PATH", default_values_os_t = default_recordings(), hide_default_value = true)]
    paths: Vec<PathBuf>,
    /// The time in the middle of the window, as printed by spikes and dump [default: the largest
    /// spike].
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    at: Option<String>,
    /// Length of the window.
    #[arg(long, value_name = "DURATION", default_value = "300ms", value_parser = duration_argument)]
    window: Duration,
    /// Length of the baseline: the time before the window, with which the window is compared. At
    /// least twice the window.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_argument)]
    before: Duration,
    /// Look only at these sources; can be repeated.
    #[arg(long = "source", value_name = "NAME,...", value_delimiter = ',')]
    sources: Vec<String>,
    /// The host, if the segments are from several hosts: its name or its machine id.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    zone: ZoneOption,
    /// Look for executables and debug files in this directory first, to name functions. Can be
    /// repeated.
    #[arg(long = "symbols", value_name = "DIR", value_parser = symbol_directory)]
    symbol_directories: Vec<PathBuf>,
    /// Maximum number of suspects, and of fields, to list.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = config::count_argument::<usize>)]
    limit: usize,
    /// Print one JSON object instead of text; null if there is no spike to explain.
    #[arg(long)]
    json: bool,
}

/// Reports that there is nothing to explain if no time is given and the recording has no spikes.
/// This is not an error.
fn print_no_spikes(
    is_json: bool,
    found: &Spikes,
    zone: &TimeZone,
    out: &mut dyn Write,
) -> Result<ExitStatus, CliError> {
    if is_json {
        writeln!(out, "null")?;
    } else {
        for (number, line) in layout(zone).spikes(found).iter().enumerate() {
            let advice = if number == 0 { "; name a time to explain with --at" } else { "" };
            writeln!(out, "{line}{advice}")?;
        }
    }
    Ok(if found.has_findings { ExitStatus::DataLoss } else { ExitStatus::Done })
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.zone.zone()?;
    let listings = segments_of(&args.paths)?;
    let host = args.host.as_deref().map(|name| find_host(&RecordedHosts::of(&listings), name)).transpose()?;
    let sources: BTreeSet<String> = args.sources.iter().cloned().collect();
    check_sources(&args.paths, &sources)?;
    let choice = RecordingChoice { paths: args.paths.clone(), sources, host: host.clone() };
    let mut outcome = Ok(ExitStatus::Done);
    let mut report = |notice: &_| outcome = report_notice(notice);
    let stated_ns = match &args.at {
        Some(text) => Some(wall_time(&args.paths, ("--at", text), host.as_ref(), &zone)?),
        None => snapshot_time(&args.paths),
    };
    let wall_ns = match stated_ns {
        Some(wall_ns) => wall_ns,
        None => match find_spikes(&choice, ReplayFilter::default(), 1, &mut |_| {}) {
            Err(ExplainError::NoSamples) => return Err(no_samples(&choice, "to explain", zone)?),
            found => {
                let found = found?;
                match found.departures.first() {
                    Some(spike) => spike.wall_ns,
                    None => return print_no_spikes(args.json, &found, &zone, out),
                }
            }
        },
    };
    let ns = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let window_ns = ns(args.window);
    let before_ns = ns(args.before);
    let mut found = match explain(&choice, wall_ns, window_ns, before_ns, &mut report) {
        Err(ExplainError::NoSamples) => {
            let at = TimePrinter::new(zone.clone()).microseconds(wall_ns);
            let wanted = format!("in {} around {at}", human::latency(window_ns));
            return Err(no_samples(&choice, &wanted, zone)?);
        }
        found => found?,
    };
    let mut remark = None;
    found.add_causes(&choice, |stacks, boot_id| {
        let names = StackNames::of(stacks, boot_id, &args.symbol_directories);
        remark = names.remark().map(str::to_owned);
        move |object, offset| names.function(object, offset)
    })?;
    if let Some(remark) = remark {
        // If standard error is closed, the answer is still printed.
        let _gone =
            writeln!(io::stderr(), "flatcap: stacks have no names of functions: {}", human::escaped(&remark));
    }
    found.truncate(args.limit);
    if args.json {
        print_json(&found, out)?;
    } else {
        for line in layout(&zone).explanation(&found) {
            writeln!(out, "{line}")?;
        }
        for name in attached_logs(&args.paths).iter().map(|name| human::escaped(name)) {
            writeln!(out, "attached: {name}; flatcap info --attachment {name} PATH prints it")?;
        }
    }
    if found.left_out > 0 {
        report_left_out(found.left_out)?;
    }
    let outcome = outcome?;
    Ok(if found.has_findings { ExitStatus::DataLoss } else { outcome })
}

/// Returns the error for a time without samples. The message states the time range of the
/// recording.
fn no_samples(choice: &RecordingChoice, wanted: &str, zone: TimeZone) -> Result<CliError, CliError> {
    let span = recorded_time(&choice.paths, choice.host.as_ref(), zone)?;
    Ok(CliError::NoSamples(format!("no samples {wanted}; {span}")))
}
