//! `export`: writes recordings as files of other formats.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatcap_format::replay::Notice;
use flatcap_stream::ChecksumKind;
use serde::Serialize;

use super::checksum::checksum;
use super::error::CliError;
use super::selection::RecordingSelection;
use super::{ExitStatus, human, report_notice};
use crate::export::{ExportEvent, ExportOptions, ExportedFile, to_streams};
use crate::os::signal::SignalWatch;
use crate::os::wake_event::WakeEvent as Stop;

/// Export recordings to files of another format. All files appear at the end, complete. Existing
/// files are replaced only with --force.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: RecordingSelection,
    /// stream: the payloads alone, framed as flatstream reads them, one file SOURCE.bin per source.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: ExportFormat,
    /// Directory for the files; created if missing.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Checksum before each payload.
    #[arg(long, value_parser = checksum(), default_value_t = ChecksumKind::Xxh3)]
    checksum: ChecksumKind,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    Stream,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.selection.zone.zone()?;
    let filter = args.selection.filter(&zone)?;
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
    let report = match args.to {
        ExportFormat::Stream => to_streams(&args.selection.paths, filter, &options, &mut watch)?,
    };
    if report.stopped {
        writeln!(io::stderr(), "flatcap: stopped by a signal: nothing was exported")?;
        return Ok(ExitStatus::Failed);
    }
    if report.files.is_empty() && is_unreadable {
        // None of the requested files could be read.
        return Ok(ExitStatus::Failed);
    }
    if args.json {
        let files: Vec<_> = report.files.iter().map(FileObject::from).collect();
        serde_json::to_writer(&mut *out, &ExportObject { files }).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report.files, out)?;
    }
    if report.files.iter().all(|file| file.frames == 0) && args.selection.has_times() {
        return Err(args.selection.no_samples(zone)?);
    }
    Ok(outcome)
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

/// The report as JSON.
#[derive(Serialize)]
struct ExportObject<'a> {
    files: Vec<FileObject<'a>>,
}

#[derive(Serialize)]
struct FileObject<'a> {
    source: &'a str,
    path: &'a Path,
    frames: u64,
    bytes: u64,
}

impl<'a> From<&'a ExportedFile> for FileObject<'a> {
    fn from(file: &'a ExportedFile) -> Self {
        Self { source: &file.source, path: &file.path, frames: file.frames, bytes: file.bytes }
    }
}
