//! `seal`: closed segments become small, by hand.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::error::CliError;
use super::{Outcome, text};
use crate::block::{Codec, Layout, Way};
use crate::config::{SEAL_BLOCK_SIZE_RANGE, Seal, SealSource, format_size, parse_size};
use crate::daemon::DaemonError;
use crate::os::event::Event;
use crate::os::signal::SignalWatch;
use crate::os::storage::{self, DataDirectory, DataDirectoryError, ReadAt, Storage};
use crate::seal::{self, Job, Left, NamedWays, Placing, SealError, Slice, clear, pack};
use crate::segment::{SegmentError, SegmentName, SegmentReader, State};

/// Make closed segments small: rewrite them as compressed blocks, which read as before, byte for byte. `record` does the same by
/// itself, beside the recording.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Closed segments, or directories of segments. No recorder may be at work there.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// What makes them smaller: none, lz4, snappy, zstd:1 to zstd:19, brotli:0 to brotli:11.
    #[arg(long, value_name = "CODEC", default_value_t = Seal::default().codec)]
    codec: Codec,
    /// How samples lie in a block: row, or columnar, which puts the same value of successive samples together.
    #[arg(long, value_name = "LAYOUT", default_value_t = Seal::default().layout)]
    layout: Layout,
    /// A source that is packed in another way; may be given several times.
    #[arg(long = "source", value_name = "NAME=CODEC/LAYOUT")]
    sources: Vec<SealSource>,
    /// Samples in a block, in bytes, from 64KiB to 16MiB.
    #[arg(long, value_name = "SIZE", default_value_t = BlockSize(Seal::default().block_size))]
    block_size: BlockSize,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// Bytes of frames in a block, as in `[seal]`.
#[derive(Debug, Clone, Copy)]
struct BlockSize(usize);

impl FromStr for BlockSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = parse_size(text).map_err(|error| error.to_string())?;
        let fitting = usize::try_from(bytes).ok().filter(|_| SEAL_BLOCK_SIZE_RANGE.contains(&bytes));
        let (least, most) = (SEAL_BLOCK_SIZE_RANGE.start(), SEAL_BLOCK_SIZE_RANGE.end());
        let refused = || format!("a block has from {} to {}", format_size(*least), format_size(*most));
        fitting.map(Self).ok_or_else(refused)
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_size(self.0 as u64))
    }
}

/// Segments of one directory.
struct Folder {
    path: PathBuf,
    names: Option<Vec<SegmentName>>, // none: all that are closed
}

#[derive(Debug, Default, Serialize)]
struct Report {
    segments: Vec<Row>,
    raw_bytes: u64,
    stored_bytes: u64,
    stopped: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    path: PathBuf,
    outcome: &'static str,
    raw_bytes: Option<u64>,
    stored_bytes: Option<u64>,
    reason: Option<String>,
    #[serde(skip)]
    is_damage: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let folders = folders(&args.paths)?;
    let mut directories = Vec::new();
    for folder in &folders {
        let directory = locked(&folder.path)?;
        let io = |error| SegmentError::Io { path: folder.path.clone(), error };
        clear(&directory).map_err(io)?;
        let names = match &folder.names {
            Some(names) => names.clone(),
            None => seal::sealed(&directory).map_err(io)?,
        };
        directories.push((directory, names));
    }
    check_sources(&args.sources, &directories)?;
    let stop = Arc::new(Event::new());
    let _signals = SignalWatch::stop(Arc::clone(&stop))?;
    let bar = bar(&directories);
    let report = seal_all(args, &directories, &bar, &stop);
    bar.finish_and_clear();
    if args.json {
        serde_json::to_writer(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    let failed: Vec<&Row> = report.segments.iter().filter(|row| row.outcome == "failed").collect();
    for row in &failed {
        writeln!(io::stderr(), "flatcap: {}", row.reason.as_deref().unwrap_or_default())?;
    }
    if report.stopped {
        writeln!(io::stderr(), "flatcap: stopped by a signal: the other segments are as they were")?;
    }
    Ok(if report.stopped || !failed.is_empty() {
        Outcome::Failed
    } else if report.segments.iter().any(|row| row.is_damage) {
        Outcome::DataLoss
    } else {
        Outcome::Done
    })
}

/// What was asked for, each directory once, in the order of the arguments.
fn folders(paths: &[PathBuf]) -> Result<Vec<Folder>, CliError> {
    let mut folders: Vec<Folder> = Vec::new();
    for path in paths {
        let metadata = std::fs::metadata(path);
        let metadata = metadata.map_err(|error| SegmentError::Io { path: path.clone(), error })?;
        let (folder, name) = if metadata.is_dir() {
            (path.clone(), None)
        } else {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            (parent.unwrap_or(Path::new(".")).to_owned(), Some(closed(path)?))
        };
        // However it is spelt: each directory is locked once.
        let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let known = folders.iter_mut().find(|known| canonical(&known.path) == canonical(&folder));
        match (known, name) {
            (None, name) => folders.push(Folder { path: folder, names: name.map(|name| vec![name]) }),
            (Some(known), None) => known.names = None,
            (Some(Folder { names: Some(names), .. }), Some(name)) if !names.contains(&name) => {
                names.push(name);
            }
            (Some(_), Some(_)) => {}
        }
    }
    for folder in folders.iter().filter(|folder| folder.names.is_none()) {
        let names = storage::names(&folder.path);
        let names = names.map_err(|error| SegmentError::Io { path: folder.path.clone(), error })?;
        if !names.iter().any(|name| SegmentName::parse(name).is_some()) {
            // Not even a lock file is left in a directory that is none of ours.
            return Err(CliError::NoSegments(vec![folder.path.clone()]));
        }
    }
    Ok(folders)
}

/// The name of a file that may be rewritten.
fn closed(path: &Path) -> Result<SegmentName, CliError> {
    let shown = path.display();
    match path.file_name().and_then(|name| SegmentName::parse(name.to_str()?)) {
        Some(name) if name.state == State::Sealed => Ok(name),
        Some(_) => Err(CliError::Usage(format!(
            "{shown}: this segment is still open: its recorder closes it, or flatcap recover if that was killed; closed ones alone are sealed"
        ))),
        None => Err(CliError::Usage(format!(
            "{shown}: not the name of a closed segment (NNNNNNNNNN-YYYYMMDDTHHMMSSZ-RUN.bin): seal changes files, and only those \
             that a recorder has named"
        ))),
    }
}

fn locked(path: &Path) -> Result<DataDirectory, CliError> {
    DataDirectory::open_existing(path).map_err(|error| match error {
        DataDirectoryError::InUse { path } => CliError::SealsItself(path),
        error @ DataDirectoryError::Unusable { .. } => DaemonError::from(error).into(),
    })
}

/// A misspelt name would leave its source as all others, unsaid.
fn check_sources(
    sources: &[SealSource],
    directories: &[(DataDirectory, Vec<SegmentName>)],
) -> Result<(), CliError> {
    if sources.is_empty() {
        return Ok(());
    }
    let mut known = BTreeSet::new();
    for (directory, names) in directories {
        for name in names {
            let name = name.to_string();
            let reader = directory
                .open(&name)
                .map(|file| SegmentReader::over(Path::new(&name), file as Arc<dyn ReadAt>));
            // One that cannot be read is told of when its turn comes.
            let Ok(Ok(reader)) = reader else { continue };
            let header = reader.footer().map_or(reader.header(), |footer| &footer.header);
            known.extend(header.sources.iter().map(|source| source.name.clone()));
        }
    }
    for source in sources {
        if !known.contains(&source.name) {
            let known = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let name = &source.name;
            return Err(CliError::Usage(format!(
                "--source {source}: no segment has a source {name}; they have {known}"
            )));
        }
    }
    Ok(())
}

fn seal_all(
    args: &Args,
    directories: &[(DataDirectory, Vec<SegmentName>)],
    bar: &ProgressBar,
    stop: &Event,
) -> Report {
    let way = |source: &SealSource| Way { layout: source.layout.unwrap_or(args.layout), codec: source.codec };
    let ways = NamedWays {
        general: Way { layout: args.layout, codec: args.codec },
        sources: args.sources.iter().map(|source| (source.name.clone(), way(source))).collect(),
    };
    let mut report = Report::default();
    let mut passed = 0; // of the bar
    for (directory, names) in directories {
        for name in names {
            let path = directory.path().join(name.to_string());
            let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
            bar.set_message(name.to_string());
            let mut pace = |slice: Slice| {
                bar.inc(slice.raw_bytes);
                !stop.is_set()
            };
            let result = pack(
                &mut Job {
                    storage: directory,
                    ways: &ways,
                    block_bytes: args.block_size.0,
                    keep_free: 0,
                    placing: Placing::ExchangeOrReplace,
                    pace: &mut pace,
                },
                *name,
            );
            report.add(path, result);
            if report.stopped || stop.is_set() {
                report.stopped = true;
                return report;
            }
            // What was not worked on, or twice as long as it looked, counts as what it was.
            passed += 2 * bytes;
            bar.set_position(passed);
        }
    }
    report
}

impl Report {
    fn add(&mut self, path: PathBuf, result: Result<seal::Outcome, SealError>) {
        let mut row = Row {
            path,
            outcome: "left",
            raw_bytes: None,
            stored_bytes: None,
            reason: None,
            is_damage: false,
        };
        match result {
            Ok(seal::Outcome::Packed { raw_bytes, stored_bytes }) => {
                row.outcome = "packed";
                (row.raw_bytes, row.stored_bytes) = (Some(raw_bytes), Some(stored_bytes));
                self.raw_bytes += raw_bytes;
                self.stored_bytes += stored_bytes;
            }
            Ok(seal::Outcome::Left(left)) => {
                if let Left::Packed { raw_bytes, stored_bytes } = left {
                    (row.raw_bytes, row.stored_bytes) = (Some(raw_bytes), Some(stored_bytes));
                }
                row.is_damage = left.is_damage();
                row.reason = Some(left.to_string());
            }
            Ok(seal::Outcome::Stopped) => {
                self.stopped = true;
                return;
            }
            Err(error) => {
                row.outcome = "failed";
                row.reason = Some(error.to_string());
            }
        }
        self.segments.push(row);
    }
}

/// Nothing is drawn where nobody looks.
fn bar(directories: &[(DataDirectory, Vec<SegmentName>)]) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let length = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let lengths = directories.iter().flat_map(|(directory, names)| {
        names.iter().map(move |name| length(directory.path().join(name.to_string())))
    });
    // Each byte is packed, and compared.
    let bar = ProgressBar::new(lengths.sum::<u64>() * 2);
    match ProgressStyle::with_template("{wide_bar} {percent}% {binary_bytes_per_sec} {msg} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for row in &report.segments {
        let path = row.path.display();
        match (row.outcome, row.raw_bytes, row.stored_bytes, &row.reason) {
            ("packed", Some(raw), Some(stored), _) => {
                let share = text::percent(stored, raw);
                writeln!(
                    out,
                    "sealed: {path}: {} became {} ({share})",
                    text::bytes(raw),
                    text::bytes(stored)
                )?;
            }
            ("left", _, _, Some(reason)) => writeln!(out, "left as it is: {path}: {reason}")?,
            _ => {}
        }
    }
    let packed = report.segments.iter().filter(|row| row.outcome == "packed").count();
    let (raw, stored) = (report.raw_bytes, report.stored_bytes);
    if packed == 0 {
        return writeln!(out, "nothing sealed");
    }
    writeln!(
        out,
        "{packed} segment(s) sealed: {} became {} ({})",
        text::bytes(raw),
        text::bytes(stored),
        text::percent(stored, raw)
    )
}
