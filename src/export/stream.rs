//! Exports streams of plain frames, one file per source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_format::segment::{SegmentHeader, SourceInfo};
use flatcap_format::storage::linux::{OutputDirectory, PendingFile};
use flatcap_os::file_name::{sanitized_name, unique_name};
use flatcap_stream::{ChecksumKind, Framer};

use super::{ExportError, ExportEvent, ExportOptions, ExportReport, ExportedFile};

/// Maximum number of sources in one export, which is the maximum number of sources of a segment
/// (docs/FORMAT.md, section 2).
pub const SOURCES_MAX: usize = 4096;
/// Maximum number of bytes of one source's frames that are collected before a write.
const FILE_BUFFER_BYTES: usize = 256 << 10;
/// Maximum number of bytes of all sources' frames that are collected before a write.
const BUFFER_BYTES: usize = 32 << 20;
/// Number of frames between two progress reports.
const STEP_FRAMES: u64 = 1024;

/// Writes the payloads of each source to a separate file. The file consists of frames, each with
/// length, checksum and payload, in the order of the recording. All files get their final names at
/// the end.
///
/// A file is named after its source, with the suffix `.bin`. In the name of the file, `_` replaces
/// characters other than letters, digits, `.`, `_` and `-`. If a header names a source that has no
/// frame in the selected time, the source gets an empty file. The export stops if `watch` returns
/// false.
///
/// # Errors
/// Any [`ExportError`].
pub fn to_streams(
    paths: &[PathBuf],
    filter: ReplayFilter,
    options: &ExportOptions,
    watch: &mut dyn FnMut(ExportEvent) -> bool,
) -> Result<ExportReport, ExportError> {
    let wanted = filter.sources.clone();
    let mut reader = MergedReader::open(paths, filter)?;
    let failed = |error| ExportError::Write { path: options.directory.clone(), error };
    let mut files = ExportFiles {
        options,
        directory: OutputDirectory::create(&options.directory).map_err(failed)?,
        wanted,
        all: Vec::new(),
        by_name: BTreeMap::new(),
        used_names: BTreeSet::new(),
        by_id: BTreeMap::new(),
        buffered: 0,
    };
    let mut frames = 0_u64;
    while let Some(item) = reader.next()? {
        match item {
            ReplayItem::Header(header, _) => files.begin_run(header)?,
            ReplayItem::Source(source, _) => files.add_source(source)?,
            ReplayItem::Sample(sample) => {
                files.add_frame(sample.telemetry.source, sample.telemetry.payload)?;
                frames += 1;
                if frames.is_multiple_of(STEP_FRAMES) && !watch(ExportEvent::Frames) {
                    return Ok(ExportReport { stopped: true, ..ExportReport::default() });
                }
            }
            ReplayItem::Notice(notice) => {
                if !watch(ExportEvent::Notice(notice)) {
                    return Ok(ExportReport { stopped: true, ..ExportReport::default() });
                }
            }
            ReplayItem::Gap(..) | ReplayItem::Marker(..) | ReplayItem::Other(..) => {}
        }
    }
    files.publish()
}

/// The files of an export.
struct ExportFiles<'a> {
    options: &'a ExportOptions,
    directory: OutputDirectory,
    wanted: BTreeSet<String>, // names of sources; empty for all
    all: Vec<PendingExport>,
    by_name: BTreeMap<String, usize>, // of sources, in `all`
    used_names: BTreeSet<String>,     // names of files, without suffix
    by_id: BTreeMap<u16, usize>,      // of the current run
    buffered: usize,
}

struct PendingExport {
    pending: PendingFile,
    buffer: Vec<u8>,
    summary: ExportedFile,
}

impl ExportFiles<'_> {
    /// Begins a run, which has its own source ids.
    fn begin_run(&mut self, header: &SegmentHeader) -> Result<(), ExportError> {
        self.by_id.clear();
        header.sources.iter().try_for_each(|source| self.add_source(source))
    }

    fn add_source(&mut self, source: &SourceInfo) -> Result<(), ExportError> {
        if !self.wanted.is_empty() && !self.wanted.contains(&source.name) {
            return Ok(());
        }
        let at = match self.by_name.get(&source.name) {
            Some(at) => *at,
            None => self.create(&source.name)?,
        };
        self.by_id.insert(source.id, at);
        Ok(())
    }

    fn create(&mut self, source: &str) -> Result<usize, ExportError> {
        if self.all.len() >= SOURCES_MAX {
            return Err(ExportError::Sources { limit: SOURCES_MAX });
        }
        let plain =
            Some(sanitized_name(source)).filter(|name| !name.is_empty()).unwrap_or_else(|| "_".to_owned());
        let name = unique_name(&plain, |name| self.used_names.insert(name.to_owned()));
        let name = format!("{name}.bin");
        let path = self.directory.path(&name);
        // This check only lets the export fail early. The same check is made again when the files
        // are renamed.
        if !self.options.should_replace && self.directory.contains(&name) {
            return Err(ExportError::Exists { path });
        }
        let pending = self.directory.begin(name);
        let pending = pending.map_err(|error| ExportError::Write { path: path.clone(), error })?;
        let said = ExportedFile { source: source.to_owned(), path, frames: 0, bytes: 0 };
        self.all.push(PendingExport { pending, buffer: Vec::new(), summary: said });
        self.by_name.insert(source.to_owned(), self.all.len() - 1);
        Ok(self.all.len() - 1)
    }

    fn add_frame(&mut self, source: u16, payload: &[u8]) -> Result<(), ExportError> {
        let Some(file) = self.by_id.get(&source).and_then(|at| self.all.get_mut(*at)) else { return Ok(()) };
        let bytes = file.add_frame(self.options.checksum, payload)?;
        self.buffered += bytes;
        if file.buffer.len() >= FILE_BUFFER_BYTES {
            self.buffered -= file.buffer.len().min(self.buffered);
            file.flush()?;
        }
        if self.buffered >= BUFFER_BYTES {
            self.buffered = 0;
            self.all.iter_mut().try_for_each(PendingExport::flush)?;
        }
        Ok(())
    }

    /// Renames all files to their final names.
    fn publish(mut self) -> Result<ExportReport, ExportError> {
        self.all.iter_mut().try_for_each(PendingExport::flush)?;
        let mut report = ExportReport::default();
        for PendingExport { pending, summary: said, .. } in self.all {
            let done = report.files.len();
            pending.publish(self.options.should_replace).map_err(|error| {
                let path = said.path.clone();
                match error.kind() {
                    std::io::ErrorKind::AlreadyExists if done == 0 => ExportError::Exists { path },
                    _ => ExportError::Publish { path, done, error },
                }
            })?;
            report.files.push(said);
        }
        let directory = self.options.directory.clone();
        self.directory.sync().map_err(|error| ExportError::Publish {
            path: directory,
            done: report.files.len(),
            error,
        })?;
        Ok(report)
    }
}

impl PendingExport {
    /// Adds a frame to the buffer. Returns its length.
    fn add_frame(&mut self, kind: ChecksumKind, payload: &[u8]) -> Result<usize, ExportError> {
        let before = self.buffer.len();
        // This cannot fail, because the buffer grows, and a payload that was in a frame fits into a
        // frame.
        kind.frame_and_write(&mut self.buffer, payload)
            .map_err(|error| self.failed(std::io::Error::other(error)))?;
        let bytes = self.buffer.len() - before;
        self.summary.frames += 1;
        self.summary.bytes += bytes as u64;
        Ok(bytes)
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.pending.append(&self.buffer).map_err(|error| self.failed(error))?;
        self.buffer.clear();
        // The memory of one long frame is released.
        self.buffer.shrink_to(2 * FILE_BUFFER_BYTES);
        Ok(())
    }

    fn failed(&self, error: std::io::Error) -> ExportError {
        ExportError::Write { path: self.summary.path.clone(), error }
    }
}
