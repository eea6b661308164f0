//! The command line of an export. It has the arguments of `flatcap export`, with times and names
//! resolved.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatcap_format::replay::{HostIdentity, ReplayFilter, first_sample, recording_span};
use flatcap_format::schema::{to_visible_json, visible_text};
use flatcap_format::segment::Elapsed;
use flatcap_query::FieldPath;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::arrow::to_arrow;
use crate::error::ColumnarError;
use crate::flame::put_flame;
use crate::mcap::to_mcap;
use crate::openmetrics::to_openmetrics;
use crate::parquet::to_parquet;
use crate::parquet_properties::ParquetOptions;
use crate::perfetto::to_perfetto;
use crate::pprof::put_pprof;
use crate::request::{ColumnarFile, ColumnarReport, ColumnarRequest};
use crate::stack_lines::{StackLines, StackOptions, write_stacks};
use crate::watch::{ColumnarEvent, ExportWatch};

/// Exit status if a second signal ends the program.
const FAILED: i32 = 1;

/// The outcome of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportEnd {
    /// The files contain all data that they should contain.
    Complete,
    /// The files lack data that they should contain. Remarks state which.
    Incomplete,
}

/// Export recordings to formats of other programs. Called by `flatcap export`, which resolves times
/// and names, and whose help describes the options.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub struct ExportArguments {
    /// Segments, and directories of them.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// Directory for the files of parquet, and of arrow with several sources; for others a file, or
    /// - for standard output.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Only this source; can be repeated.
    #[arg(long = "source", value_name = "NAME")]
    sources: Vec<String>,
    /// Only these fields.
    #[arg(long, value_name = "A,B.C")]
    fields: Option<String>,
    /// Only the recordings of this host.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The machine id of that host.
    #[arg(long, value_name = "ID", requires = "host")]
    machine_id: Option<String>,
    /// Start time, in nanoseconds since 1970.
    #[arg(long, value_name = "NS", allow_hyphen_values = true)]
    since_ns: Option<i64>,
    /// End time, exclusive, in nanoseconds since 1970.
    #[arg(long, value_name = "NS", allow_hyphen_values = true)]
    until_ns: Option<i64>,
    /// Start time, in nanoseconds after the first sample.
    #[arg(long, value_name = "NS")]
    after_ns: Option<u64>,
    /// End time, exclusive, in nanoseconds after the first sample.
    #[arg(long, value_name = "NS")]
    before_ns: Option<u64>,
    /// Only the first sample of each source in each step of this length, in nanoseconds.
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u64).range(1..))]
    step_ns: Option<u64>,
    #[command(flatten)]
    parquet: ParquetOptions,
    #[command(flatten)]
    stacks: StackOptions,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Parquet,
    Arrow,
    Mcap,
    Perfetto,
    Openmetrics,
    Folded,
    Flame,
    Pprof,
}

/// Runs an export and prints the files that were written. Remarks go to standard error.
///
/// # Errors
/// Any [`ColumnarError`].
pub fn run(arguments: &ExportArguments) -> Result<ExportEnd, ColumnarError> {
    arguments.check()?;
    let request = arguments.request()?;
    let stop = stop_flag()?;
    raise_descriptor_limit();
    let bar = progress_bar(&request);
    let first_ns = recording_span(&request.paths, None)?.map_or(0, |span| *span.start());
    let span_ns = bar.length().unwrap_or_default();
    // The position of the progress bar at the start of a reading.
    let mut begin_ns = 0;
    let mut end = ExportEnd::Complete;
    let mut report_event = |event: ColumnarEvent| {
        match event {
            ColumnarEvent::Notice(notice) => {
                end = ExportEnd::Incomplete;
                // If standard error is closed, the problem is still reported by the exit status.
                let _gone = bar.suspend(|| remark(&notice.to_string()));
            }
            ColumnarEvent::Reading { number, count } => {
                // The span may be very long, because a host without a battery for its clock may
                // have recorded since 1970.
                begin_ns = span_ns.saturating_mul(number as u64);
                bar.set_length(span_ns.saturating_mul(count as u64));
            }
            ColumnarEvent::Progress(wall_ns) => {
                let read_ns = u64::try_from(wall_ns.saturating_sub(first_ns)).unwrap_or_default();
                bar.set_position(begin_ns.saturating_add(read_ns));
            }
        }
        !stop.load(Ordering::Relaxed)
    };
    let watch = &mut ExportWatch::new(&mut report_event);
    let stacks = &arguments.stacks;
    // The path is `None` for standard output.
    let path = Some(arguments.output.as_path()).filter(|_| !arguments.is_for_output());
    let report = match arguments.to {
        Format::Parquet => to_parquet(&request, &arguments.output, arguments.parquet, watch)?,
        Format::Arrow => to_arrow(&request, path, watch)?,
        Format::Mcap => to_mcap(&request, &arguments.output, watch)?,
        Format::Perfetto => to_perfetto(&request, path, stacks, watch)?,
        Format::Openmetrics => to_openmetrics(&request, path, watch)?,
        Format::Folded => write_stacks(&request, path, stacks, watch, StackLines::put_folded)?,
        Format::Flame => write_stacks(&request, path, stacks, watch, put_flame)?,
        Format::Pprof => write_stacks(&request, path, stacks, watch, put_pprof)?,
    };
    bar.finish_and_clear();
    if report.has_remarks()? {
        end = ExportEnd::Incomplete;
    }
    if !arguments.is_for_output() {
        match print(&report.files, arguments.json) {
            // A reader that closes the output does not change the outcome.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            printed => printed?,
        }
    }
    Ok(end)
}

impl ExportArguments {
    fn is_for_output(&self) -> bool {
        self.output.as_os_str() == "-"
    }

    /// Checks that the options fit the format.
    fn check(&self) -> Result<(), ColumnarError> {
        let usage = |text: &str| Err(ColumnarError::Usage(text.to_owned()));
        let is_of_stacks = matches!(self.to, Format::Folded | Format::Flame | Format::Pprof);
        if self.stacks.process.is_some() && !is_of_stacks {
            return usage("--process: only stacks are of a process; --to folded, flame and pprof have them");
        }
        if !self.stacks.symbol_directories.is_empty() && !is_of_stacks && self.to != Format::Perfetto {
            return usage("--symbols: only folded, flame, pprof and perfetto have names of functions");
        }
        if is_of_stacks && (self.fields.is_some() || self.step_ns.is_some()) {
            return usage(
                "--fields and --every are for formats with columns; folded, flame and pprof have stacks",
            );
        }
        match self.to {
            Format::Parquet if self.is_for_output() => {
                usage("--output -: parquet is a directory of files; --to arrow writes to standard output")
            }
            Format::Mcap if self.is_for_output() => {
                usage("--output -: the index of mcap is written at its end; name a file")
            }
            Format::Mcap if self.fields.is_some() => {
                usage("--fields: mcap has whole payloads; choose sources with --source")
            }
            Format::Parquet => Ok(()),
            _ if self.parquet != ParquetOptions::default() => {
                usage("--explode, --unsigned and --local are for parquet")
            }
            _ => Ok(()),
        }
    }

    fn request(&self) -> Result<ColumnarRequest, ColumnarError> {
        let fields = match &self.fields {
            Some(list) => FieldPath::parse_list(list).map_err(|error| ColumnarError::Fields(error.into()))?,
            None => Vec::new(),
        };
        let host = self.host.clone().map(|name| HostIdentity { name, machine_id: self.machine_id.clone() });
        let mut filter = ReplayFilter {
            sources: self.sources.iter().cloned().collect(),
            since_ns: self.since_ns,
            until_ns: self.until_ns,
            host,
            ..ReplayFilter::default()
        };
        if self.after_ns.is_some() || self.before_ns.is_some() {
            let ns = self.after_ns.unwrap_or(0)..self.before_ns.unwrap_or(u64::MAX);
            filter.elapsed = first_sample(&self.paths, filter.clone())?.map(|start| Elapsed { start, ns });
        }
        Ok(ColumnarRequest {
            paths: self.paths.clone(),
            filter,
            fields,
            step_ns: self.step_ns,
            should_replace: self.force,
        })
    }
}

impl ColumnarReport {
    /// Reports missing data. Returns whether the export lacks data that it should contain.
    fn has_remarks(&self) -> io::Result<bool> {
        if self.undecodable > 0 {
            remark(&format!(
                "{} samples or schemas are malformed: not exported; flatcap verify says more",
                self.undecodable
            ))?;
        }
        self.remarks.iter().try_for_each(|text| remark(text))?;
        for line in &self.large_values {
            remark(&format!("{line}; --unsigned keeps such values"))?;
        }
        if self.has_unnamed_elements {
            remark(
                "too many elements of lists inside lists: the later ones have the name \"?\"; choose a shorter time",
            )?;
        }
        Ok(self.undecodable > 0 || self.has_unnamed_elements || !self.large_values.is_empty())
    }
}

/// Raises the limit of open files. An export of many sources, or of many programs with functions,
/// has many open files at the same time.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, only an export of more than some thousand sources fails, with
    // an error.
    let _unchanged = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Returns a flag that SIGINT and SIGTERM set.
fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order of the two registrations matters. At the first signal, the flag is checked
        // before it is set. A second signal ends the process, which leaves temporary files, but no
        // file under a final name.
        signal_hook::flag::register_conditional_shutdown(signal, FAILED, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Returns the progress bar over the time of the recording. It is hidden if standard error is not a
/// terminal.
fn progress_bar(request: &ColumnarRequest) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let span = recording_span(&request.paths, request.filter.host.as_ref()).ok().flatten();
    let length = span.and_then(|span| u64::try_from(span.end().saturating_sub(*span.start())).ok());
    let bar = ProgressBar::new(length.unwrap_or_default());
    match ProgressStyle::with_template("{percent:>3}% {wide_bar} {elapsed} of about {duration}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Prints the files that were written.
fn print(files: &[ColumnarFile], is_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if is_json {
        return writeln!(out, "{}", to_visible_json(&serde_json::json!({ "files": files }))?);
    }
    for ColumnarFile { source, path, rows, bytes } in files {
        let of = source.as_ref().map(|source| format!(" of {source}")).unwrap_or_default();
        let rows_word = if *rows == 1 { "row" } else { "rows" };
        let line = format!("{}: {rows} {rows_word}{of}, {}", path.display(), HumanBytes(*bytes));
        writeln!(out, "{}", visible_text(&line))?;
    }
    Ok(())
}

/// Prints a line on standard error.
///
/// # Errors
/// Fails if standard error cannot be written.
pub fn remark(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "flatcap: {}", visible_text(text))
}
