//! Streams of plain frames, one file a source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{Event, ExportError, ExportedFile, Options, Report};
use crate::os::output::{OutputDirectory, PendingFile, numbered, plain_name};
use crate::replay::{Filter, Item, MergedReader};
use crate::segment::{Header, SourceInfo};
use crate::stream::{ChecksumKind, Framer};

/// Most sources in one export: as many as a segment can have (docs/FORMAT.md, section 2).
pub const SOURCES_MAX: usize = 4096;
/// So many bytes of a source's frames are collected before they are written.
const FILE_BUFFER_BYTES: usize = 256 << 10;
/// So many of all sources together.
const BUFFER_BYTES: usize = 32 << 20;
/// A watcher is told after so many frames.
const STEP_FRAMES: u64 = 1024;

/// Writes the payloads of each source into a file of its own: frames of length, checksum and payload, in the order of the recording. All
/// files appear at the end.
///
/// A file is called as its source, with `.bin`; `_` stands for what is no letter, digit, `.`, `_` or `-`. A source that a header names and
/// that has no frame in the chosen time is an empty file. Watchers say whether to go on.
///
/// # Errors
/// Every kind of [`ExportError`].
pub fn to_streams(
    paths: &[PathBuf],
    filter: Filter,
    options: &Options,
    watch: &mut dyn FnMut(Event) -> bool,
) -> Result<Report, ExportError> {
    let wanted = filter.sources.clone();
    let mut reader = MergedReader::open(paths, filter)?;
    let failed = |error| ExportError::Write { path: options.directory.clone(), error };
    let mut files = Files {
        options,
        directory: OutputDirectory::create(&options.directory).map_err(failed)?,
        wanted,
        all: Vec::new(),
        by_name: BTreeMap::new(),
        taken: BTreeSet::new(),
        by_id: BTreeMap::new(),
        buffered: 0,
    };
    let mut frames = 0_u64;
    while let Some(item) = reader.next()? {
        match item {
            Item::Header(header, _) => files.begin(header)?,
            Item::Source(source, _) => files.join(source)?,
            Item::Sample(sample) => {
                files.add(sample.telemetry.source, sample.telemetry.payload)?;
                frames += 1;
                if frames.is_multiple_of(STEP_FRAMES) && !watch(Event::Frames(frames)) {
                    return Ok(Report { stopped: true, ..Report::default() });
                }
            }
            Item::Notice(notice) => {
                if !watch(Event::Notice(notice)) {
                    return Ok(Report { stopped: true, ..Report::default() });
                }
            }
            Item::Gap(..) | Item::Marker(..) | Item::Other(..) => {}
        }
    }
    files.publish()
}

/// The files of an export.
struct Files<'a> {
    options: &'a Options,
    directory: OutputDirectory,
    wanted: BTreeSet<String>, // names of sources; empty for all
    all: Vec<OpenFile>,
    by_name: BTreeMap<String, usize>, // of sources, in `all`
    taken: BTreeSet<String>,          // names of files, without their ending
    by_id: BTreeMap<u16, usize>,      // of the current run
    buffered: usize,
}

struct OpenFile {
    pending: PendingFile,
    buffer: Vec<u8>,
    said: ExportedFile,
}

impl Files<'_> {
    /// A run begins: its ids are its own.
    fn begin(&mut self, header: &Header) -> Result<(), ExportError> {
        self.by_id.clear();
        header.sources.iter().try_for_each(|source| self.join(source))
    }

    fn join(&mut self, source: &SourceInfo) -> Result<(), ExportError> {
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
            Some(plain_name(source)).filter(|name| !name.is_empty()).unwrap_or_else(|| "_".to_owned());
        let name = numbered(&plain, |name| self.taken.insert(name.to_owned()));
        let name = format!("{name}.bin");
        let path = self.directory.path(&name);
        // Said before the work; publishing looks again.
        if !self.options.replaces && self.directory.contains(&name) {
            return Err(ExportError::Exists { path });
        }
        let pending = self.directory.begin(name);
        let pending = pending.map_err(|error| ExportError::Write { path: path.clone(), error })?;
        let said = ExportedFile { source: source.to_owned(), path, frames: 0, bytes: 0 };
        self.all.push(OpenFile { pending, buffer: Vec::new(), said });
        self.by_name.insert(source.to_owned(), self.all.len() - 1);
        Ok(self.all.len() - 1)
    }

    fn add(&mut self, source: u16, payload: &[u8]) -> Result<(), ExportError> {
        let Some(file) = self.by_id.get(&source).and_then(|at| self.all.get_mut(*at)) else { return Ok(()) };
        let bytes = file.add(self.options.checksum, payload)?;
        self.buffered += bytes;
        if file.buffer.len() >= FILE_BUFFER_BYTES {
            self.buffered -= file.buffer.len().min(self.buffered);
            file.flush()?;
        }
        if self.buffered >= BUFFER_BYTES {
            self.buffered = 0;
            self.all.iter_mut().try_for_each(OpenFile::flush)?;
        }
        Ok(())
    }

    /// Gives all files their names.
    fn publish(mut self) -> Result<Report, ExportError> {
        self.all.iter_mut().try_for_each(OpenFile::flush)?;
        let mut report = Report::default();
        for OpenFile { pending, said, .. } in self.all {
            let done = report.files.len();
            pending.publish(self.options.replaces).map_err(|error| {
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

impl OpenFile {
    /// Adds a frame to the buffer; its length.
    fn add(&mut self, kind: ChecksumKind, payload: &[u8]) -> Result<usize, ExportError> {
        let before = self.buffer.len();
        // Memory takes everything, and a payload that was in a frame fits one.
        kind.frame_and_write(&mut self.buffer, payload)
            .map_err(|error| self.failed(std::io::Error::other(error)))?;
        let bytes = self.buffer.len() - before;
        self.said.frames += 1;
        self.said.bytes += bytes as u64;
        Ok(bytes)
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.pending.append(&self.buffer).map_err(|error| self.failed(error))?;
        self.buffer.clear();
        // One long frame does not keep its room.
        self.buffer.shrink_to(2 * FILE_BUFFER_BYTES);
        Ok(())
    }

    fn failed(&self, error: std::io::Error) -> ExportError {
        ExportError::Write { path: self.said.path.clone(), error }
    }
}
