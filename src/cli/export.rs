//! `export`: writes recordings as files of other formats.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use flatcap_format::replay::{Notice, ReplayFilter};
use flatcap_format::storage::linux::{OutputDirectory, PendingFile};
use flatcap_os::signal::SignalWatch;
use flatcap_os::wake_event::WakeEvent as Stop;
use flatcap_query::{FieldPath, Steps};
use flatcap_stream::ChecksumKind;
use flatcap_text::quantity::duration_argument;
use serde::Serialize;

use super::checksum::checksum;
use super::convert_program;
use super::dump;
use super::error::CliError;
use super::rows::row_cell::TextRule;
use super::rows::row_request::{FieldList, RowArgs, RowOutput, parse_fields};
use super::selection::RecordingSelection;
use super::symbol_directory::symbol_directory;
use super::{ExitStatus, human, print_json, report_notice};
use crate::export::{ExportError, ExportEvent, ExportOptions, ExportedFile, to_streams};

/// Export recordings to files of another format.
///
/// All files appear only at the end, when they are complete. Existing files are replaced only with
/// --force.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) selection: RecordingSelection,
    /// The format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(super) to: ExportFormat,
    /// Directory for the formats stream and parquet, and for arrow with several sources. It is
    /// created if missing. For other formats, a file, or - for standard output (not for mcap).
    #[arg(short, long, value_name = "DIR|FILE")]
    pub(super) output: PathBuf,
    /// Export only these fields: paths of flatcap fields, separated by commas. Not for stream and
    /// mcap, which contain whole payloads.
    #[arg(long, value_name = "A,B.C", value_parser = parse_fields)]
    pub(super) fields: Option<FieldList>,
    /// Export only the first sample of each source in each step of this length. For csv and jsonl,
    /// it works like dump --every. For openmetrics, the default is 1s. Not for stream.
    #[arg(long, value_name = "STEP", value_parser = duration_argument)]
    pub(super) every: Option<Duration>,
    /// Parquet: write the elements of each list as rows of a separate file, SOURCE.LIST.parquet.
    #[arg(long)]
    pub(super) explode: bool,
    /// Parquet: write unsigned 64-bit integers as UINT64. Without this option they are INT64, which
    /// every reader supports, and the cell of a larger value is empty. Fields in which all 64 bits
    /// are significant are always UINT64.
    #[arg(long)]
    pub(super) unsigned: bool,
    /// Parquet: write row groups of 4,096 rows instead of 131,072. The files are larger, but a
    /// query from a local disk can skip more of their rows.
    #[arg(long)]
    pub(super) local: bool,
    /// Folded, flame and pprof: export only the stacks of this process, given by its name or its
    /// id.
    #[arg(long, value_name = "NAME|PID")]
    pub(super) process: Option<String>,
    /// Folded, flame, pprof and perfetto: look for executables and debug files in this directory
    /// first, by build ids (DIR/.build-id), paths and names. Can be repeated.
    #[arg(long = "symbols", value_name = "DIR", value_parser = symbol_directory)]
    pub(super) symbol_directories: Vec<PathBuf>,
    /// Checksum before each payload of a stream.
    #[arg(long, value_parser = checksum(), default_value_t = ChecksumKind::Xxh3)]
    pub(super) checksum: ChecksumKind,
    /// Replace existing files.
    #[arg(long)]
    pub(super) force: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExportFormat {
    /// The payloads alone, framed as flatstream reads them, one file SOURCE.bin per source.
    Stream,
    /// One file SOURCE.parquet per source, and `flatcap_gaps`, `flatcap_marks` and
    /// `flatcap_sources`. Needs the program flatcap-convert.
    Parquet,
    /// Arrow with the exact types of the schemas: one source as a file or to standard output,
    /// several as files SOURCE.arrow. Needs the program flatcap-convert.
    Arrow,
    /// An MCAP file: a channel per source with the payloads unchanged and their schema. Needs the
    /// program flatcap-convert.
    Mcap,
    /// A trace for Perfetto: a counter track per field and element, marks, lost samples, the
    /// scheduler, stacks, the kernel log. Needs the program flatcap-convert.
    Perfetto,
    /// `OpenMetrics` text with times, for `promtool tsdb create-blocks-from openmetrics`. Needs the
    /// program flatcap-convert.
    Openmetrics,
    /// Stacks as lines `process;outer;...;inner count`, for tools that draw flame graphs. Needs the
    /// program flatcap-convert.
    Folded,
    /// A flame graph, as the verb flame writes it. Needs the program flatcap-convert.
    Flame,
    /// A profile of pprof, for `go tool pprof`, Speedscope and others. Needs the program
    /// flatcap-convert.
    Pprof,
    /// The rows of `dump --format csv`.
    Csv,
    /// The objects of `dump --format jsonl`.
    Jsonl,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    match args.to {
        ExportFormat::Stream => {}
        ExportFormat::Csv => return rows(args, RowOutput::Csv, out),
        ExportFormat::Jsonl => return rows(args, RowOutput::Jsonl, out),
        _ => return run_program(args),
    }
    let zone = args.selection.zone.zone()?;
    let filter = args.selection.filter(&zone)?;
    if let Some(option) = args.column_option() {
        return Err(CliError::Usage(format!(
            "{option} is for formats with columns, such as parquet; a stream has whole payloads"
        )));
    }
    args.check_stack_options()?;
    let options =
        ExportOptions { directory: args.output.clone(), checksum: args.checksum, should_replace: args.force };
    let stop = Arc::new(Stop::new());
    let _signals = SignalWatch::stop_only(Arc::clone(&stop))?;
    let (mut outcome, mut is_unreadable) = (ExitStatus::Done, false);
    let mut watch = |event: ExportEvent| {
        if let ExportEvent::Notice(what) = event {
            is_unreadable |= matches!(what, Notice::Unreadable(_));
            // If standard error is closed, the exit status still reports the problem.
            outcome = report_notice(&what).unwrap_or(ExitStatus::DataLoss);
        }
        !stop.is_set()
    };
    let report = to_streams(&args.selection.paths, filter, &options, &mut watch)?;
    if report.stopped {
        writeln!(io::stderr(), "flatcap: stopped by a signal: nothing was exported")?;
        return Ok(ExitStatus::Failed);
    }
    if report.files.is_empty() && is_unreadable {
        // None of the requested files could be read.
        return Ok(ExitStatus::Failed);
    }
    if args.json {
        print_json(&report, out)?;
    } else {
        print(&report.files, out)?;
    }
    if report.files.iter().all(|file| file.frames == 0) && args.selection.has_times() {
        return Err(args.selection.no_samples(zone)?);
    }
    Ok(outcome)
}

/// Exports with the program `flatcap-convert`, which replaces this process.
pub(super) fn run_program(args: &Args) -> Result<ExitStatus, CliError> {
    let filter = args.selection.filter(&args.selection.zone.zone()?)?;
    convert_program::run("export", &program_arguments(args, &filter))
}

/// Writes the output of `dump` to standard output, or to a file that appears when it is complete.
fn rows(args: &Args, format: RowOutput, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    args.check_stack_options()?;
    if args.explode || args.unsigned || args.local {
        let why = "--explode, --unsigned and --local are for parquet";
        return Err(CliError::Usage(why.to_owned()));
    }
    let steps = |step: Duration| Steps {
        step_ns: u64::try_from(step.as_nanos()).unwrap_or(u64::MAX),
        aggregate: None,
    };
    let rows = RowArgs {
        fields: args.fields.clone(),
        every: args.every.map(steps),
        stated_text_rule: (args.output.as_os_str() != "-").then_some(TextRule::Unchanged),
        ..RowArgs::default()
    };
    let dump_args = dump::Args::of_selection(args.selection.clone(), rows, format);
    if args.output.as_os_str() == "-" {
        return dump::run(&dump_args, out);
    }
    let path = &args.output;
    let failed = |error| CliError::Export(ExportError::Write { path: path.clone(), error });
    let exists = || CliError::Export(ExportError::Exists { path: path.clone() });
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned).ok_or_else(|| {
        CliError::Usage(format!("--output {}: name a file, or - for standard output", path.display()))
    })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = OutputDirectory::create(parent.unwrap_or(Path::new("."))).map_err(failed)?;
    if !args.force && directory.contains(&name) {
        return Err(exists());
    }
    let file = directory.begin(name).map_err(failed)?;
    let stop = Arc::new(Stop::new());
    let _signals = SignalWatch::stop_only(Arc::clone(&stop))?;
    let mut writer = StoppableFile { file: &file, stop: &stop, buffer: Vec::new() };
    let printed = dump::run(&dump_args, &mut writer).and_then(|status| Ok((status, writer.flush()?)));
    if stop.is_set() {
        writeln!(io::stderr(), "flatcap: stopped by a signal: nothing was exported")?;
        return Ok(ExitStatus::Failed);
    }
    let (status, ()) = printed.map_err(|error| match error {
        CliError::Output(error) => failed(error),
        other => other,
    })?;
    if status == ExitStatus::Failed {
        return Ok(status);
    }
    file.publish(args.force).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(),
        _ => failed(error),
    })?;
    directory.sync().map_err(failed)?;
    let bytes = path.metadata().map_err(failed)?.len();
    if args.json {
        let files = [RowsFile { path, bytes }];
        print_json(&RowsObject { files: &files }, out)?;
    } else {
        writeln!(out, "{}: {}", human::escaped(&path.display().to_string()), human::bytes(bytes))?;
    }
    Ok(status)
}

/// A file that rejects all further writes after a signal.
struct StoppableFile<'f> {
    file: &'f PendingFile,
    stop: &'f Stop,
    buffer: Vec<u8>,
}

/// Maximum number of bytes in the buffer before they are written.
const BUFFER_BYTES: usize = 256 << 10;

impl Write for StoppableFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.stop.is_set() {
            return Err(io::Error::other("stopped by a signal"));
        }
        self.file.append(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// The report on an exported file that contains rows, as JSON.
#[derive(Serialize)]
struct RowsObject<'a> {
    files: &'a [RowsFile<'a>],
}

#[derive(Serialize)]
struct RowsFile<'a> {
    path: &'a Path,
    bytes: u64,
}

impl Args {
    /// Checks that none of the options for formats with stacks is given.
    fn check_stack_options(&self) -> Result<(), CliError> {
        if self.process.is_none() && self.symbol_directories.is_empty() {
            return Ok(());
        }
        let why = "--process and --symbols are for formats with stacks: folded, flame, pprof, and perfetto --symbols";
        Err(CliError::Usage(why.to_owned()))
    }

    /// Returns the first given option that is only for formats with columns.
    fn column_option(&self) -> Option<&'static str> {
        let given = [
            ("--fields", self.fields.is_some()),
            ("--every", self.every.is_some()),
            ("--explode", self.explode),
            ("--unsigned", self.unsigned),
            ("--local", self.local),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}

/// Returns the arguments for `flatcap-convert`. They are the arguments of this program with
/// resolved times and names, so that both programs use the same values.
fn program_arguments(args: &Args, filter: &ReplayFilter) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    // Name and value are joined by an equals sign, so that no value is mistaken for an option.
    let mut option = |name: &str, value: &str| all.push(format!("--{name}={value}").into());
    option("to", args.to.to_possible_value().as_ref().map_or("", PossibleValue::get_name));
    filter.sources.iter().for_each(|source| option("source", source));
    if let Some(fields) = &args.fields {
        let paths: Vec<&str> = fields.0.iter().map(FieldPath::as_str).collect();
        option("fields", &paths.join(","));
    }
    if let Some(process) = &args.process {
        option("process", process);
    }
    if let Some(host) = &filter.host {
        option("host", &host.name);
        host.machine_id.iter().for_each(|id| option("machine-id", id));
    }
    let elapsed = filter.elapsed.as_ref().map(|elapsed| elapsed.ns.clone());
    let step_ns = args.every.map(|step| u64::try_from(step.as_nanos()).unwrap_or(u64::MAX));
    for (name, value) in [
        ("since-ns", filter.since_ns.map(|ns| ns.to_string())),
        ("until-ns", filter.until_ns.map(|ns| ns.to_string())),
        ("after-ns", elapsed.as_ref().map(|ns| ns.start.to_string())),
        ("before-ns", elapsed.as_ref().map(|ns| ns.end.to_string())),
        ("step-ns", step_ns.map(|ns| ns.to_string())),
    ] {
        if let Some(value) = value {
            option(name, &value);
        }
    }
    for (name, is_given) in [
        ("--explode", args.explode),
        ("--unsigned", args.unsigned),
        ("--local", args.local),
        ("--force", args.force),
        ("--json", args.json),
    ] {
        all.extend(is_given.then(|| name.into()));
    }
    // A path is not always valid UTF-8, so its bytes are appended unchanged.
    let mut path_option = |name: &str, path: &Path| {
        let mut argument = OsString::from(name);
        argument.push(path);
        all.push(argument);
    };
    args.symbol_directories.iter().for_each(|directory| path_option("--symbols=", directory));
    path_option("--output=", &args.output);
    all.push("--".into());
    all.extend(args.selection.paths.iter().map(OsString::from));
    all
}

fn print(files: &[ExportedFile], out: &mut dyn Write) -> io::Result<()> {
    for ExportedFile { source, path, frames, bytes } in files {
        let (path, source) = (path.display().to_string(), human::escaped(source));
        writeln!(out, "{}: {frames} frames of {source}, {}", human::escaped(&path), human::bytes(*bytes))?;
    }
    if files.is_empty() {
        writeln!(out, "no samples: no file was written")?;
    }
    Ok(())
}
