//! `compress`: compresses sealed segments on demand.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use flatcap_format::block::{Codec, CompressionOptions, Layout};
use flatcap_format::segment::{SealState, SegmentError, SegmentName, SegmentReader};
use flatcap_format::storage::{ReadAt, Storage};
use flatcap_os::signal::SignalWatch;
use flatcap_os::storage::{DataDirectory, DataDirectoryError};
use flatcap_os::wake_event::WakeEvent;
use flatcap_recorder::compress::{
    self, CompressError, CompressJob, CompressSkipReason, ReplaceJob, ReplaceMode, WorkSlice,
    compress_segment, remove_leftovers, restore_segment,
};
use flatcap_text::quantity::size_argument;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::error::CliError;
use super::recordings::{no_own_recordings, no_segments, own_recordings};
use super::selection::unknown_source;
use super::{ExitStatus, human, print_json};
use crate::config::{COMPRESS_BLOCK_SIZE_RANGE, CompressConfig, SourceCompressionConfig, format_size};
use crate::daemon::{DaemonError, source_compression};

/// Compress sealed segments, or restore the uncompressed segments.
///
/// Segments are rewritten as compressed blocks. These decompress to exactly the same bytes.
/// `record` compresses in the background.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Sealed segments, or directories of segments. The directory must not be in use by a recorder
    /// [default: ./flatcap-data].
    #[arg(value_name = "PATH", default_values_os_t = own_recordings(), hide_default_value = true)]
    paths: Vec<PathBuf>,
    /// Codec: none, lz4, snappy, zstd:1 to zstd:19, brotli:0 to brotli:11.
    #[arg(long, value_name = "CODEC", default_value_t = CompressConfig::default().codec)]
    codec: Codec,
    /// Layout of samples in a block: row, or columnar, which stores the same value of successive
    /// samples together.
    #[arg(long, value_name = "LAYOUT", default_value_t = CompressConfig::default().layout)]
    layout: Layout,
    /// Compress this source differently; can be repeated.
    #[arg(long = "source", value_name = "NAME=CODEC/LAYOUT")]
    sources: Vec<SourceCompressionConfig>,
    /// Uncompressed size of a block, from 64KiB to 16MiB.
    #[arg(long, value_name = "SIZE", default_value_t = BlockSize(CompressConfig::default().block_size))]
    block_size: BlockSize,
    /// Undo the compression: restore the segments as they were recorded, byte for byte. A recorder
    /// with compression enabled compresses them again.
    #[arg(long, conflicts_with_all = ["codec", "layout", "sources", "block_size"])]
    undo: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// Uncompressed size of the frames in a block, in bytes. It has the same limits as `block_size` in
/// the configuration.
#[derive(Debug, Clone, Copy)]
struct BlockSize(usize);

impl FromStr for BlockSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = size_argument(text, &COMPRESS_BLOCK_SIZE_RANGE)?;
        usize::try_from(bytes).map(Self).map_err(|error| error.to_string())
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_size(self.0 as u64))
    }
}

/// A directory and its segments to compress.
struct TargetDirectory {
    path: PathBuf,
    names: Option<Vec<SegmentName>>, // `None`: all sealed ones
}

#[derive(Debug, Default, Serialize)]
struct CompressReport {
    segments: Vec<CompressRow>,
    raw_bytes: u64,
    stored_bytes: u64,
    stopped: bool,
}

#[derive(Debug, Serialize)]
struct CompressRow {
    path: PathBuf,
    outcome: &'static str,
    raw_bytes: Option<u64>,
    stored_bytes: Option<u64>,
    reason: Option<String>,
    #[serde(skip)]
    is_damage: bool,
    #[serde(skip)]
    is_unreadable: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    if args.paths.is_empty() {
        return Err(no_own_recordings());
    }
    let folders = target_directories(&args.paths)?;
    let mut directories = Vec::new();
    for folder in &folders {
        let directory = lock_directory(&folder.path)?;
        let io = |error| SegmentError::Io { path: folder.path.clone(), error };
        remove_leftovers(&directory).map_err(io)?;
        let names = match &folder.names {
            Some(names) => names.clone(),
            None => compress::sealed_segments(&directory).map_err(io)?,
        };
        directories.push((directory, names));
    }
    check_sources(&args.sources, &directories)?;
    let stop = Arc::new(WakeEvent::new());
    let _signals = SignalWatch::stop_only(Arc::clone(&stop))?;
    let bar = progress_bar(&directories);
    let report = compress_all(args, &directories, &bar, &stop);
    bar.finish_and_clear();
    if args.json {
        print_json(&report, out)?;
    } else {
        print(&report, args.undo, out)?;
    }
    let failed: Vec<&CompressRow> = report.segments.iter().filter(|row| row.outcome == "failed").collect();
    for row in &failed {
        writeln!(io::stderr(), "flatcap: {}", row.reason.as_deref().unwrap_or_default())?;
    }
    if report.stopped {
        writeln!(io::stderr(), "flatcap: stopped by a signal: the remaining segments are unchanged")?;
    }
    let is_unreadable = !report.segments.is_empty() && report.segments.iter().all(|row| row.is_unreadable);
    Ok(if report.stopped || !failed.is_empty() || is_unreadable {
        ExitStatus::Failed
    } else if report.segments.iter().any(|row| row.is_damage) {
        ExitStatus::DataLoss
    } else {
        ExitStatus::Done
    })
}

/// Groups the arguments by directory, in the order of the arguments. Each directory occurs only
/// once in the list.
fn target_directories(paths: &[PathBuf]) -> Result<Vec<TargetDirectory>, CliError> {
    let mut folders: Vec<TargetDirectory> = Vec::new();
    for path in paths {
        let metadata = std::fs::metadata(path);
        let metadata = metadata.map_err(|error| SegmentError::Io { path: path.clone(), error })?;
        let (folder, name) = if metadata.is_dir() {
            (path.clone(), None)
        } else {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            (parent.unwrap_or(Path::new(".")).to_owned(), Some(sealed_name(path)?))
        };
        // Different spellings of a directory are treated as one directory, because a directory can
        // be locked only one time.
        let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let known = folders.iter_mut().find(|known| canonical(&known.path) == canonical(&folder));
        match (known, name) {
            (None, name) => {
                folders.push(TargetDirectory { path: folder, names: name.map(|name| vec![name]) });
            }
            (Some(known), None) => known.names = None,
            (Some(TargetDirectory { names: Some(names), .. }), Some(name)) if !names.contains(&name) => {
                names.push(name);
            }
            (Some(_), Some(_)) => {}
        }
    }
    for folder in folders.iter().filter(|folder| folder.names.is_none()) {
        let names = flatcap_format::storage::file_names(&folder.path);
        let names = names.map_err(|error| SegmentError::Io { path: folder.path.clone(), error })?;
        if !names.iter().any(|name| SegmentName::parse(name).is_some()) {
            // This is checked before the lock, so that no lock file is created in a foreign
            // directory.
            return Err(no_segments(std::slice::from_ref(&folder.path)));
        }
    }
    Ok(folders)
}

/// Parses the name of a sealed segment. Files with other names must not be rewritten.
fn sealed_name(path: &Path) -> Result<SegmentName, CliError> {
    let shown = path.display();
    match path.file_name().and_then(|name| SegmentName::parse(name.to_str()?)) {
        Some(name) if name.state == SealState::Sealed => Ok(name),
        Some(_) => Err(CliError::Usage(format!(
            "{shown}: this segment is still open; wait until its recorder seals it, or run flatcap recover if the \
             recorder was killed"
        ))),
        None => Err(CliError::Usage(format!(
            "{shown}: not the name of a sealed segment (NNNNNNNNNN-YYYYMMDDTHHMMSSZ-RUN.bin); only files that a \
             recorder named are rewritten"
        ))),
    }
}

fn lock_directory(path: &Path) -> Result<DataDirectory, CliError> {
    DataDirectory::open_existing(path).map_err(|error| match error {
        DataDirectoryError::InUse { path } => CliError::InUseByRecorder(path),
        error @ DataDirectoryError::Unusable { .. } => DaemonError::from(error).into(),
    })
}

/// Checks the names of `--source`, because a misspelt name would have no effect and cause no error.
fn check_sources(
    sources: &[SourceCompressionConfig],
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
            // An unreadable segment is reported when it is compressed.
            let Ok(Ok(reader)) = reader else { continue };
            let header = reader.footer().map_or(reader.header(), |footer| &footer.header);
            known.extend(header.sources.iter().map(|source| source.name.clone()));
        }
    }
    for source in sources {
        if !known.contains(&source.name) {
            return Err(unknown_source(&source.to_string(), &source.name, &known));
        }
    }
    Ok(())
}

fn compress_all(
    args: &Args,
    directories: &[(DataDirectory, Vec<SegmentName>)],
    bar: &ProgressBar,
    stop: &WakeEvent,
) -> CompressReport {
    let general = CompressionOptions { layout: args.layout, codec: args.codec };
    let compression = source_compression(general, &args.sources);
    let mut report = CompressReport::default();
    let mut finished_bytes = 0; // bytes of finished segments, for the progress bar
    for (directory, names) in directories {
        for name in names {
            let path = directory.path().join(name.to_string());
            let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
            bar.set_message(name.to_string());
            let mut pace = |slice: WorkSlice| {
                bar.inc(slice.raw_bytes);
                !stop.is_set()
            };
            let mut replace = ReplaceJob {
                storage: directory,
                min_free: 0,
                replace_mode: ReplaceMode::ExchangeOrReplace,
                after_slice: &mut pace,
            };
            let result = if args.undo {
                restore_segment(&mut replace, *name)
            } else {
                let (compression, block_bytes) = (&compression, args.block_size.0);
                compress_segment(&mut CompressJob { replace, compression, block_bytes }, *name)
            };
            report.add(path, result);
            if report.stopped || stop.is_set() {
                report.stopped = true;
                return report;
            }
            // A finished segment counts with its full size, even if it was skipped or took more
            // bytes.
            finished_bytes += 2 * bytes;
            bar.set_position(finished_bytes);
        }
    }
    report
}

impl CompressReport {
    fn add(&mut self, path: PathBuf, result: Result<compress::CompressOutcome, CompressError>) {
        let mut row = CompressRow {
            path,
            outcome: "skipped",
            raw_bytes: None,
            stored_bytes: None,
            reason: None,
            is_damage: false,
            is_unreadable: false,
        };
        match result {
            Ok(compress::CompressOutcome::Compressed { raw_bytes, stored_bytes }) => {
                row.outcome = "compressed";
                (row.raw_bytes, row.stored_bytes) = (Some(raw_bytes), Some(stored_bytes));
                self.raw_bytes += raw_bytes;
                self.stored_bytes += stored_bytes;
            }
            Ok(compress::CompressOutcome::Restored { raw_bytes, stored_bytes }) => {
                row.outcome = "restored";
                (row.raw_bytes, row.stored_bytes) = (Some(raw_bytes), Some(stored_bytes));
                self.raw_bytes += raw_bytes;
                self.stored_bytes += stored_bytes;
            }
            Ok(compress::CompressOutcome::Skipped(left)) => {
                if let CompressSkipReason::AlreadyCompressed { raw_bytes, stored_bytes } = left {
                    (row.raw_bytes, row.stored_bytes) = (Some(raw_bytes), Some(stored_bytes));
                }
                row.is_damage = left.is_damage();
                row.is_unreadable = matches!(left, CompressSkipReason::Unreadable(_));
                row.reason = Some(left.to_string());
            }
            Ok(compress::CompressOutcome::Stopped) => {
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

/// Returns the progress bar, which the library hides if standard error is not a terminal.
fn progress_bar(directories: &[(DataDirectory, Vec<SegmentName>)]) -> ProgressBar {
    let length = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let lengths = directories.iter().flat_map(|(directory, names)| {
        names.iter().map(move |name| length(directory.path().join(name.to_string())))
    });
    // The length is doubled, because each byte is first compressed and then compared.
    let bar = ProgressBar::new(lengths.sum::<u64>() * 2);
    match ProgressStyle::with_template("{wide_bar} {percent}% {binary_bytes_per_sec} {msg} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn print(report: &CompressReport, is_undo: bool, out: &mut dyn Write) -> io::Result<()> {
    for row in &report.segments {
        let path = row.path.display();
        match (row.outcome, row.raw_bytes, row.stored_bytes, &row.reason) {
            ("compressed", Some(raw), Some(stored), _) => {
                let share = human::percent(stored, raw);
                writeln!(
                    out,
                    "compressed: {path}: {} became {} ({share})",
                    human::bytes(raw),
                    human::bytes(stored)
                )?;
            }
            ("restored", Some(raw), Some(stored), _) => {
                writeln!(out, "restored: {path}: {} became {}", human::bytes(stored), human::bytes(raw))?;
            }
            ("skipped", _, _, Some(reason)) => writeln!(out, "skipped: {path}: {reason}")?,
            _ => {}
        }
    }
    let count = |outcome| report.segments.iter().filter(|row| row.outcome == outcome).count();
    let (raw, stored) = (report.raw_bytes, report.stored_bytes);
    let (compressed, restored) = (count("compressed"), count("restored"));
    if restored > 0 {
        let (raw, stored) = (human::bytes(raw), human::bytes(stored));
        return writeln!(out, "{restored} segment(s) restored: {stored} became {raw}");
    }
    if compressed == 0 {
        return writeln!(out, "nothing {}", if is_undo { "restored" } else { "compressed" });
    }
    writeln!(
        out,
        "{compressed} segment(s) compressed: {} became {} ({})",
        human::bytes(raw),
        human::bytes(stored),
        human::percent(stored, raw)
    )
}
