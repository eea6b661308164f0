//! `import`: foreign recordings become segments. One file a kind.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::error::CliError;
use super::{Outcome, text};
use crate::daemon::DaemonError;
use crate::import::{Course, ImportError, Job, Plan, Report};
use crate::os::event::Event;
use crate::os::signal::SignalWatch;
use crate::os::storage::DataDirectory;

mod iex;
mod lobster;
mod stream;

/// Size at which a segment is sealed, in bytes: as of a recorder's.
const SEGMENT_BYTES: u64 = 256 << 20;
/// Longest frame, in bytes: as of a recorder's.
const FRAME_BYTES_MAX: u32 = 16 << 20;
/// So many flaws are told in lines; all that the report keeps are in the JSON.
const FLAWS_SAID_MAX: usize = 20;

/// Bring foreign recordings in: what is whole becomes segments, what is not is told with its place.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    Stream(stream::Args),
    Lobster(lobster::Args),
    IexDeep(iex::DeepArgs),
    IexTops(iex::TopsArgs),
}

/// What all kinds are asked.
#[derive(Debug, clap::Args)]
struct Common {
    /// Files to import, in this order; what gzip has packed is unpacked; - is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Where segments go; created if missing. Not the directory of a recorder at work.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    match &args.kind {
        Kind::Stream(args) => stream::run(args, out),
        Kind::Lobster(args) => lobster::run(args, out),
        Kind::IexDeep(args) => iex::run_deep(args, out),
        Kind::IexTops(args) => iex::run_tops(args, out),
    }
}

/// Imports by `importer`, with progress on a terminal, until the end or a signal; prints what it has come to.
fn import(
    common: &Common,
    importer: impl FnOnce(&[PathBuf], Job<'_, '_>) -> Result<Report, ImportError>,
    out: &mut dyn Write,
) -> Result<Outcome, CliError> {
    for path in common.files.iter().filter(|path| path.as_os_str() != "-") {
        // Nothing is created for a misspelt name.
        std::fs::metadata(path).map_err(|error| ImportError::Read { path: path.clone(), error })?;
    }
    let storage = DataDirectory::open(&common.data_dir).map_err(DaemonError::from)?;
    let stop = Arc::new(Event::new());
    let _signals = SignalWatch::stop(Arc::clone(&stop))?;
    let bar = bar(&common.files);
    let mut watch = |progress: crate::import::Progress| {
        bar.set_position(progress.bytes);
        bar.set_message(format!("{} frames", progress.frames));
        !stop.is_set()
    };
    let plan = Plan { segment_bytes: SEGMENT_BYTES, frame_max: FRAME_BYTES_MAX };
    let job = Job { storage: &storage, plan, course: Course::new(&mut watch) };
    let result = importer(&common.files, job);
    bar.finish_and_clear();
    let report = result?;
    if common.json {
        serde_json::to_writer(&mut *out, &Object::from(&report)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    say_flaws(&report)?;
    if report.stopped {
        writeln!(
            io::stderr(),
            "flatcap: stopped by a signal: what comes behind in the input is not imported"
        )?;
        return Ok(Outcome::Failed);
    }
    Ok(if report.is_whole() { Outcome::Done } else { Outcome::DataLoss })
}

/// Nothing is drawn where nobody looks.
fn bar(files: &[PathBuf]) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let lengths = files.iter().map(|path| std::fs::metadata(path).map_or(0, |metadata| metadata.len()));
    let bar = ProgressBar::new(lengths.sum());
    let style = "{wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {msg} {eta}";
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for source in &report.written.sources {
        let lost =
            if source.lost > 0 { format!(", {} not in the input", source.lost) } else { String::new() };
        writeln!(out, "{}: {} frames{lost}", source.name, source.recorded)?;
    }
    for (what, count) in &report.passed_over {
        writeln!(out, "passed over: {count} {what}")?;
    }
    let (segments, size) = (report.written.segments, text::bytes(report.written.bytes));
    writeln!(out, "{} read, {segments} segment(s) written, {size}", text::bytes(report.bytes))
}

fn say_flaws(report: &Report) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for flaw in report.flaws.iter().take(FLAWS_SAID_MAX) {
        let count = flaw.count.map(|count| format!(" ({count} missing)")).unwrap_or_default();
        writeln!(err, "flatcap: {} at offset {}: {}{count}", flaw.path.display(), flaw.offset, flaw.what)?;
    }
    let more = report.flaws.len().saturating_sub(FLAWS_SAID_MAX) as u64 + report.more_flaws;
    if more > 0 {
        writeln!(err, "flatcap: and {more} more such places")?;
    }
    Ok(())
}

/// The report as scripts read it.
#[derive(Serialize)]
struct Object<'a> {
    sources: Vec<SourceObject<'a>>,
    segments: u64,
    bytes: u64,
    input_bytes: u64,
    passed_over: &'a std::collections::BTreeMap<&'static str, u64>,
    flaws: Vec<FlawObject<'a>>,
    more_flaws: u64,
    stopped: bool,
}

#[derive(Serialize)]
struct SourceObject<'a> {
    name: &'a str,
    recorded: u64,
    lost: u64,
}

#[derive(Serialize)]
struct FlawObject<'a> {
    path: &'a std::path::Path,
    offset: u64,
    count: Option<u64>,
    what: &'a str,
}

impl<'a> From<&'a Report> for Object<'a> {
    fn from(report: &'a Report) -> Self {
        let sources = report.written.sources.iter();
        let flaws = report.flaws.iter();
        Self {
            sources: sources
                .map(|source| SourceObject {
                    name: &source.name,
                    recorded: source.recorded,
                    lost: source.lost,
                })
                .collect(),
            segments: report.written.segments,
            bytes: report.written.bytes,
            input_bytes: report.bytes,
            passed_over: &report.passed_over,
            flaws: flaws
                .map(|flaw| FlawObject {
                    path: &flaw.path,
                    offset: flaw.offset,
                    count: flaw.count,
                    what: &flaw.what,
                })
                .collect(),
            more_flaws: report.more_flaws,
            stopped: report.stopped,
        }
    }
}
