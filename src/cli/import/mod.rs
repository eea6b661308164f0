//! `import`: converts recordings of other formats to segments. There is one source file per format.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use flatcap_import::iex::{self, Feed};
use flatcap_import::{ImportError, ImportJob, ImportLimits, ImportProgress, ImportReport};
use flatcap_os::signal::SignalWatch;
use flatcap_os::storage::DataDirectory;
use flatcap_os::wake_event::WakeEvent;
use indicatif::{ProgressBar, ProgressStyle};

use super::error::CliError;
use super::{ExitStatus, human, print_json};
use crate::daemon::DaemonError;

mod csv;
mod csv_check;
mod lobster;
mod sar;
mod stream;

/// Size at which a segment is sealed, in bytes. This is the recorder's default.
const SEGMENT_BYTES: u64 = 256 << 20;
/// Size of the largest frame, in bytes. This is the recorder's default.
const FRAME_BYTES_MAX: u32 = 16 << 20;
/// Maximum number of findings, and of flaws, that are printed as lines. The JSON output has the
/// whole report.
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
pub(super) struct Args {
    #[command(subcommand)]
    kind: ImportVerb,
}

#[derive(Debug, Subcommand)]
enum ImportVerb {
    Stream(stream::Args),
    Csv(csv::Args),
    Sar(sar::Args),
    Lobster(lobster::Args),
    /// Import IEX DEEP 1.0 from captures: pcap or pcapng, optionally gzipped.
    IexDeep(ImportArgs),
    /// Import IEX TOPS 1.6 from captures: pcap or pcapng, optionally gzipped.
    IexTops(ImportArgs),
}

/// Arguments of all imports.
#[derive(Debug, clap::Args)]
struct ImportArgs {
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

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    match &args.kind {
        ImportVerb::Stream(args) => stream::run(args, out),
        ImportVerb::Csv(args) => csv::run(args, out),
        ImportVerb::Sar(args) => sar::run(args, out),
        ImportVerb::Lobster(args) => lobster::run(args, out),
        ImportVerb::IexDeep(args) => import(args, |files, job| iex::import(files, Feed::Deep, job), out),
        ImportVerb::IexTops(args) => import(args, |files, job| iex::import(files, Feed::Tops, job), out),
    }
}

/// Runs `importer` until the end or a signal, with progress on a terminal, and prints the report.
fn import(
    common: &ImportArgs,
    importer: impl FnOnce(&[PathBuf], ImportJob<'_, '_>) -> Result<ImportReport, ImportError>,
    out: &mut dyn Write,
) -> Result<ExitStatus, CliError> {
    check_files(&common.files)?;
    let storage = DataDirectory::open(&common.data_dir).map_err(DaemonError::from)?;
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
        return Ok(ExitStatus::Failed);
    }
    let is_nothing_imported = report.totals.sources.iter().all(|source| source.recorded == 0);
    Ok(match (report.is_complete(), is_nothing_imported) {
        (true, _) => ExitStatus::Done,
        (false, true) => ExitStatus::Failed,
        (false, false) => ExitStatus::DataLoss,
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
) -> Result<T, CliError> {
    let stop = Arc::new(WakeEvent::new());
    let _signals = SignalWatch::stop_only(Arc::clone(&stop))?;
    let bar = progress_bar(files);
    let mut watch = |progress: flatcap_import::ProgressUpdate| {
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
