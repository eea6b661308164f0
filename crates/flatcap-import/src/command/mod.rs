//! The command line of the importers: arguments, progress, and the report. Each input format has
//! its own source file.
//!
//! The program `flatcap-convert` runs this command line. The manual pages and completions of
//! flatcap are generated from the same arguments.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use flatcap_format::schema::to_visible_json;
use flatcap_os::signal::SignalWatch;
use flatcap_os::storage::{DataDirectory, DataDirectoryError};
use flatcap_os::wake_event::WakeEvent;
use flatcap_text::human;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::iex::{self, Feed};
use crate::{ImportError, ImportJob, ImportLimits, ImportProgress, ImportReport, ProgressUpdate};

mod csv;
mod csv_check;
mod lobster;
mod sar;
mod stream;

/// Size at which a segment is sealed, in bytes. The recorder has the same default.
const SEGMENT_BYTES: u64 = 256 << 20;
/// Size of the largest frame, in bytes. The recorder has the same default.
const FRAME_BYTES_MAX: u32 = 16 << 20;
/// Maximum number of findings that are printed as lines. The same limit applies to flaws. The JSON
/// output contains the whole report.
const FLAWS_PRINTED_MAX: usize = 20;

/// Import recordings from other formats.
///
/// Damaged records are skipped and reported with their offset. Assumptions about ambiguous input
/// are reported with their line. In both cases the exit status is 3.
///
/// SIGINT and SIGTERM stop an import, even while it waits for a pipe. flatcap seals the samples
/// read so far, and exits with 1. A second signal stops the import at once. In that case, run
/// flatcap recover to seal the rest.
#[derive(Debug, clap::Args)]
pub struct ImportArguments {
    #[command(subcommand)]
    format: ImportFormat,
}

/// The outcome of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportEnd {
    /// All input was imported.
    Complete,
    /// Samples were imported, but input was skipped or an assumption was made.
    Incomplete,
    /// A signal stopped the import, or nothing could be imported.
    Failed,
}

/// The reason why an import failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportCommandError {
    /// Arguments that conflict.
    #[error("{0}")]
    Usage(String),
    /// The input cannot be imported.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    /// The kernel refuses to install a signal handler.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    /// Standard output or standard error cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl ImportCommandError {
    /// Returns whether the arguments are wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Import(ImportError::Options(_)))
    }
}

#[derive(Debug, Subcommand)]
enum ImportFormat {
    Stream(stream::StreamArguments),
    Csv(csv::CsvArguments),
    Sar(sar::SarArguments),
    Lobster(lobster::LobsterArguments),
    /// Import IEX DEEP 1.0 from captures: pcap or pcapng, optionally gzipped.
    IexDeep(CommonArguments),
    /// Import IEX TOPS 1.6 from captures: pcap or pcapng, optionally gzipped.
    IexTops(CommonArguments),
}

/// Arguments of all imports.
#[derive(Debug, clap::Args)]
struct CommonArguments {
    /// Files to import, in this order. Gzip files are decompressed; - is standard input (not for
    /// sar, which reads each file twice).
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Directory for the segments; created if missing. The directory must not be in use by a
    /// recorder.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// Runs an import and writes its report to `out`. Remarks go to standard error.
///
/// # Errors
/// Any [`ImportCommandError`]. Segments that were sealed before the error remain.
pub fn run(args: &ImportArguments, out: &mut dyn Write) -> Result<ImportEnd, ImportCommandError> {
    match &args.format {
        ImportFormat::Stream(args) => stream::run(args, out),
        ImportFormat::Csv(args) => csv::run(args, out),
        ImportFormat::Sar(args) => sar::run(args, out),
        ImportFormat::Lobster(args) => lobster::run(args, out),
        ImportFormat::IexDeep(args) => import(args, |files, job| iex::import(files, Feed::Deep, job), out),
        ImportFormat::IexTops(args) => import(args, |files, job| iex::import(files, Feed::Tops, job), out),
    }
}

/// Runs `importer` until the end or a signal, with progress on a terminal, and prints the report.
fn import(
    common: &CommonArguments,
    importer: impl FnOnce(&[PathBuf], ImportJob<'_, '_>) -> Result<ImportReport, ImportError>,
    out: &mut dyn Write,
) -> Result<ImportEnd, ImportCommandError> {
    check_files(&common.files)?;
    let storage = DataDirectory::open(&common.data_dir)?;
    let limits = ImportLimits { segment_bytes: SEGMENT_BYTES, frame_max: FRAME_BYTES_MAX };
    let report = with_progress(&common.files, |progress| {
        importer(&common.files, ImportJob { storage: &storage, limits, progress })
    })?;
    if common.json {
        print_json(&report, out)?;
    } else {
        print(&report, out)?;
    }
    print_flaws(&report)?;
    if report.stopped {
        writeln!(io::stderr(), "flatcap: stopped by a signal: the rest of the input is not imported")?;
        return Ok(ImportEnd::Failed);
    }
    let is_nothing_imported = report.totals.sources.iter().all(|source| source.recorded == 0);
    Ok(match (report.is_complete(), is_nothing_imported) {
        (true, _) => ImportEnd::Complete,
        (false, true) => ImportEnd::Failed,
        (false, false) => ImportEnd::Incomplete,
    })
}

/// Checks that the files exist, so that no data directory is created because of a misspelt name.
fn check_files(files: &[PathBuf]) -> Result<(), ImportError> {
    for path in files.iter().filter(|path| path.as_os_str() != "-") {
        std::fs::metadata(path).map_err(|error| ImportError::Read { path: path.clone(), error })?;
    }
    Ok(())
}

/// Runs `work` until it ends or a signal stops it, and shows its progress on a terminal.
fn with_progress<T>(
    files: &[PathBuf],
    work: impl FnOnce(ImportProgress<'_>) -> Result<T, ImportError>,
) -> Result<T, ImportCommandError> {
    let stop = Arc::new(WakeEvent::new());
    let _signals = SignalWatch::stop_only(Arc::clone(&stop)).map_err(ImportCommandError::Signals)?;
    let bar = progress_bar(files);
    let mut watch = |progress: ProgressUpdate| {
        bar.set_position(progress.bytes);
        bar.set_message(format!("{} frames", progress.frames));
        !stop.is_set()
    };
    let result = work(ImportProgress::new(&mut watch).with_stop(Arc::clone(&stop)));
    bar.finish_and_clear();
    Ok(result?)
}

/// Returns the progress bar, which the library hides if standard error is not a terminal.
fn progress_bar(files: &[PathBuf]) -> ProgressBar {
    let lengths = files.iter().map(|path| std::fs::metadata(path).map_or(0, |metadata| metadata.len()));
    let bar = ProgressBar::new(lengths.sum());
    let style = "{wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {msg} {eta}";
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Prints a value as one line of JSON.
fn print_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", to_visible_json(value)?)
}

fn print(report: &ImportReport, out: &mut dyn Write) -> io::Result<()> {
    for source in &report.totals.sources {
        let lost =
            if source.lost > 0 { format!(", {} not in the input", source.lost) } else { String::new() };
        writeln!(out, "{}: {} frames{lost}", source.name, source.recorded)?;
    }
    for line in &report.recognized {
        writeln!(out, "{}", human::escaped(line))?;
    }
    for (what, count) in &report.skipped {
        writeln!(out, "skipped: {count} {what}")?;
    }
    let (segments, size) = (report.totals.segments, human::bytes(report.totals.bytes));
    writeln!(out, "{} read, {segments} segment(s) written, {size}", human::bytes(report.bytes))
}

fn print_flaws(report: &ImportReport) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for finding in report.findings.iter().take(FLAWS_PRINTED_MAX) {
        let (path, line, what) = (finding.path.display(), finding.line, human::escaped(&finding.assumed));
        let times = if finding.count > 1 { format!(" ({} times)", finding.count) } else { String::new() };
        let option = finding.option.as_ref().map(|option| format!("; state {option}")).unwrap_or_default();
        writeln!(err, "flatcap: {path} line {line}: {what}{times}{}", human::escaped(&option))?;
    }
    let more = report.findings.len().saturating_sub(FLAWS_PRINTED_MAX);
    if more > 0 {
        writeln!(err, "flatcap: and {more} more findings")?;
    }
    for flaw in report.flaws.iter().take(FLAWS_PRINTED_MAX) {
        let count = flaw.count.map(|count| format!(" ({count} missing)")).unwrap_or_default();
        let (path, what) = (flaw.path.display(), human::escaped(&flaw.what));
        writeln!(err, "flatcap: {path} at offset {}: {what}{count}", flaw.offset)?;
    }
    let more = report.flaws.len().saturating_sub(FLAWS_PRINTED_MAX) as u64 + report.more_flaws;
    if more > 0 {
        writeln!(err, "flatcap: and {more} more")?;
    }
    Ok(())
}
