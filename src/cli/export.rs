//! `export`: recordings as foreign files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::error::CliError;
use super::selection::Selection;
use super::{Outcome, notice, text};
use crate::export::{Event, ExportedFile, Options, to_streams};
use crate::os::event::Event as Stop;
use crate::os::signal::SignalWatch;
use crate::replay::Notice;
use crate::stream::ChecksumKind;

/// Write recordings as files of another format: all appear at the end, whole, and replace none unless told to.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// stream: payloads alone, framed plainly as flatstream reads them, one file SOURCE.bin a source.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// Directory for the files; created if missing.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Checksum in front of each payload.
    #[arg(long, value_enum, default_value_t = Checksum::Xxh3)]
    checksum: Checksum,
    /// Replace files of the same names.
    #[arg(long)]
    force: bool,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Checksum {
    None,
    Crc16,
    Crc32,
    Xxh3,
}

impl From<Checksum> for ChecksumKind {
    fn from(checksum: Checksum) -> Self {
        match checksum {
            Checksum::None => Self::None,
            Checksum::Crc16 => Self::Crc16,
            Checksum::Crc32 => Self::Crc32,
            Checksum::Xxh3 => Self::Xxh3,
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let filter = args.selection.filter()?;
    let options =
        Options { directory: args.output.clone(), checksum: args.checksum.into(), replaces: args.force };
    let stop = Arc::new(Stop::new());
    let _signals = SignalWatch::stop(Arc::clone(&stop))?;
    let (mut outcome, mut is_unreadable) = (Outcome::Done, false);
    let mut watch = |event: Event| {
        if let Event::Notice(what) = event {
            is_unreadable |= matches!(what, Notice::Unreadable(_));
            // Whoever does not read what is wrong still gets the status.
            outcome = notice(&what).unwrap_or(Outcome::DataLoss);
        }
        !stop.is_set()
    };
    let report = match args.to {
        Format::Stream => to_streams(&args.selection.paths, filter, &options, &mut watch)?,
    };
    if report.stopped {
        writeln!(io::stderr(), "flatcap: stopped by a signal: nothing was exported")?;
        return Ok(Outcome::Failed);
    }
    if report.files.is_empty() && is_unreadable {
        // What was asked for is not there at all.
        return Ok(Outcome::Failed);
    }
    if args.json {
        let files: Vec<_> = report.files.iter().map(FileObject::from).collect();
        serde_json::to_writer(&mut *out, &Object { files }).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report.files, out)?;
    }
    Ok(outcome)
}

fn print(files: &[ExportedFile], out: &mut dyn Write) -> io::Result<()> {
    for ExportedFile { source, path, frames, bytes } in files {
        let (path, source) = (path.display().to_string(), text::plain(source));
        writeln!(out, "{}: {frames} frames of {source}, {}", text::plain(&path), text::bytes(*bytes))?;
    }
    if files.is_empty() {
        writeln!(out, "nothing is in the chosen time: no file was written")?;
    }
    Ok(())
}

/// The report as scripts read it.
#[derive(Serialize)]
struct Object<'a> {
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
