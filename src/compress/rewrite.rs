//! Compresses one segment and puts the result in its place. The decisions are in other files.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::path::Path;
use std::sync::Arc;

use flatcap_format::block::{BlockEncoder, RAW_BYTES_MAX};
use flatcap_format::segment::{
    Advance, CompressedWriter, FrameLocation, SegmentError, SegmentName, SegmentReader, SideFile,
};
use flatcap_format::storage::{ReadAt, Storage, StorageFile};
use flatcap_stream::ChecksumKind;

use super::block_boundaries::{ends_after, ends_before, next_limit};
use super::compare::compare;
use super::named_options::NamedSourceCompression;
use super::outcome::{CompressError, CompressOutcome, CompressSkipReason};

/// Compression is worthwhile up to this ratio of stored to raw bytes: nine tenths.
const STORED_RATIO_MAX: (u64, u64) = (9, 10);
/// Raw bytes after which the ratio decides whether to go on.
const TRIAL_BYTES: u64 = 16 << 20;

/// The parameters of compressing segments.
#[allow(missing_debug_implementations, reason = "a closure: nothing to show")]
pub struct CompressJob<'a> {
    /// The directory of the segment.
    pub storage: &'a dyn Storage,
    /// Codecs and layouts.
    pub compression: &'a NamedSourceCompression,
    /// Raw bytes of a block. A longer frame gets a block of its own.
    pub block_bytes: usize,
    /// Bytes that have to stay free in the file system.
    pub min_free: u64,
    /// How the compressed file replaces the raw one.
    pub replace_mode: ReplaceMode,
    /// Called after each slice of work. Returns false to stop.
    pub after_slice: &'a mut dyn FnMut(WorkSlice) -> bool,
}

/// How the compressed file replaces the raw one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceMode {
    /// Exchange the two names. Safe even if others remove segments meanwhile.
    Exchange,
    /// Like `Exchange`, but rename over the raw file if the file system cannot exchange names. Only
    /// safe if no one removes segments meanwhile.
    ExchangeOrReplace,
}

/// A finished slice of work. Each byte of a segment is processed twice: compressed, then compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkSlice {
    /// Bytes of the segment.
    pub raw_bytes: u64,
    /// Bytes read and written.
    pub io_bytes: u64,
}

/// Why compression ends early.
#[derive(Debug)]
enum Halt {
    Skipped(CompressSkipReason),
    Stopped,
    Failed(&'static str, io::Error),
    /// Failed after the names changed. All files stay, as the disk may still have the old names.
    FailedAfterRename(&'static str, io::Error),
}

/// Compresses a sealed segment.
///
/// # Errors
/// The step that failed and the error of the storage. The segment is as it was, or compressed and
/// complete. [`remove_leftovers`](super::remove_leftovers) removes a temporary file that stays.
pub fn compress_segment(
    job: &mut CompressJob<'_>,
    name: SegmentName,
) -> Result<CompressOutcome, CompressError> {
    let aside = name.side_file(SideFile::Compressing);
    let halt = match try_compress(job, name, &aside) {
        Ok(outcome) => return Ok(outcome),
        Err(halt) => halt,
    };
    if !matches!(halt, Halt::FailedAfterRename(..)) {
        // If even this fails, the next start removes it.
        let _removed = job.storage.remove(&aside);
    }
    match halt {
        Halt::Skipped(left) => Ok(CompressOutcome::Skipped(left)),
        Halt::Stopped => Ok(CompressOutcome::Stopped),
        Halt::Failed(step, error) | Halt::FailedAfterRename(step, error) => {
            Err(CompressError { name, step, error })
        }
    }
}

fn try_compress(job: &mut CompressJob<'_>, name: SegmentName, aside: &str) -> Result<CompressOutcome, Halt> {
    let path = name.to_string();
    let present = match job.storage.open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Halt::Skipped(CompressSkipReason::Removed));
        }
        // Not a regular file, or another user's: the next attempt would end the same way.
        Err(error) if is_foreign_file(&error) => {
            return Err(Halt::Skipped(CompressSkipReason::Unreadable(error.to_string())));
        }
        opened => opened.map_err(failed("opening it"))?,
    };
    let raw = Arc::clone(&present) as Arc<dyn ReadAt>;
    let reader = SegmentReader::over(Path::new(&path), Arc::clone(&raw));
    let reader = reader.map_err(|error| match error {
        SegmentError::Io { error, .. } => Halt::Failed("reading it", error),
        // The caller knows the name.
        error => {
            Halt::Skipped(CompressSkipReason::Unreadable(error.to_string().replace(&format!("{path}: "), "")))
        }
    })?;
    let present_bytes = raw.length().map_err(failed("reading it"))?;
    if let Some(compressed) = reader.compressed().filter(|compressed| !compressed.has_small_blocks()) {
        let raw_bytes = compressed.raw_bytes();
        return Ok(CompressOutcome::Skipped(CompressSkipReason::AlreadyCompressed {
            raw_bytes,
            stored_bytes: present_bytes,
        }));
    }
    // A segment compressed while recording is compressed again, in larger blocks.
    let raw = reader.decompressed().unwrap_or(raw);
    let raw_bytes = raw.length().map_err(failed("reading it"))?;
    match job.storage.remove(aside) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        removed => removed.map_err(failed("removing an earlier temporary file"))?,
    }
    let file = job.storage.create(aside).map_err(failed("creating the compressed file"))?;
    let stored_bytes = write(job, reader, &file)?;
    if !saves_enough(present_bytes, stored_bytes) {
        return Err(Halt::Skipped(CompressSkipReason::SavesTooLittle {
            raw_bytes: present_bytes,
            stored_bytes,
        }));
    }
    let mut each = |bytes| (job.after_slice)(WorkSlice { raw_bytes: bytes, io_bytes: bytes });
    if !compare(&*raw, Arc::clone(&file), &mut each).map_err(failed("comparing the compressed file"))? {
        return Err(Halt::Stopped);
    }
    let attributes = present.attributes().and_then(|attributes| file.set_attributes(&attributes));
    attributes.map_err(failed("setting owner, mode and times of the compressed file"))?;
    replace_raw(job, (&path, aside), &*file)?;
    Ok(CompressOutcome::Compressed { raw_bytes, stored_bytes })
}

fn is_foreign_file(error: &io::Error) -> bool {
    use ErrorKind::{InvalidInput, IsADirectory, PermissionDenied};
    matches!(error.kind(), InvalidInput | IsADirectory | PermissionDenied)
}

/// Syncs the compressed file, then puts it in the place of the raw one.
fn replace_raw(
    job: &CompressJob<'_>,
    (path, aside): (&str, &str),
    file: &dyn StorageFile,
) -> Result<(), Halt> {
    let storage = job.storage;
    let gone = |error: io::Error, step| match error.kind() {
        ErrorKind::NotFound => Halt::Skipped(CompressSkipReason::Removed),
        _ => Halt::Failed(step, error),
    };
    file.sync().map_err(failed("syncing the compressed file"))?;
    let step = "replacing the raw file";
    let is_exchanged = match storage.exchange(path, aside) {
        Err(error) if error.kind() == ErrorKind::Unsupported => match job.replace_mode {
            ReplaceMode::Exchange => return Err(Halt::Skipped(CompressSkipReason::NoExchange)),
            ReplaceMode::ExchangeOrReplace => {
                storage.replace(aside, path).map_err(|error| gone(error, step))?;
                false
            }
        },
        exchanged => exchanged.map(|()| true).map_err(|error| gone(error, step))?,
    };
    // Sync before the raw file is removed: until then the disk may have the old names.
    let synced = storage.sync_directory();
    synced.map_err(|error| Halt::FailedAfterRename("syncing the directory", error))?;
    if is_exchanged && let Err(error) = storage.remove(aside) {
        // Retention removes temporary files together with their segment.
        if error.kind() != ErrorKind::NotFound {
            return Err(Halt::FailedAfterRename("removing the raw file", error));
        }
    }
    Ok(())
}

/// Writes the compressed file. Returns its length.
fn write(
    job: &mut CompressJob<'_>,
    mut reader: SegmentReader,
    file: &Arc<dyn StorageFile>,
) -> Result<u64, Halt> {
    let Some(footer) = reader.footer() else { return Err(Halt::Skipped(CompressSkipReason::Unsealed)) };
    let writer = CompressedWriter::begin(StorageOutput(Arc::clone(file)), footer).map_err(failed(WRITING))?;
    let mut encoder = BlockEncoder::new(job.compression.for_segment(&footer.header));
    for source in footer.header.sources.iter().filter(|source| !source.is_opaque()) {
        encoder.set_schema(source.id, &source.root, &source.schema);
    }
    let mut compressor = SegmentRewriter {
        checksum: reader.header().checksum,
        writer,
        encoder,
        frames: Vec::with_capacity(job.block_bytes),
        limit: job.block_bytes,
        offset: 0,
        block: Vec::new(),
    };
    while let Some(at) = next(&mut reader)? {
        if ends_before(at.kind, at.bytes, compressor.frames.len(), compressor.limit) {
            compressor.end_block(job)?;
        }
        compressor.frames.extend_from_slice(reader.bytes(at));
        if ends_after(at.kind, compressor.frames.len(), compressor.limit) {
            compressor.end_block(job)?;
        }
    }
    compressor.end_block(job)?;
    let (_, stored_bytes) = compressor.writer.finish().map_err(failed(WRITING))?;
    Ok(stored_bytes)
}

/// Returns the next frame; `None` at the end. Anything but an intact frame leaves the segment as it
/// is.
fn next(reader: &mut SegmentReader) -> Result<Option<FrameLocation>, Halt> {
    let advance = reader.advance().map_err(|error| match error {
        SegmentError::Io { error, .. } => Halt::Failed("reading it", error),
        error => Halt::Failed("reading it", io::Error::other(error)),
    })?;
    match advance {
        Some(Advance::Frame(at)) if at.is_repaired => Err(Halt::Skipped(CompressSkipReason::Damaged {
            offset: at.offset,
            what: "a frame with a wrong length",
        })),
        Some(Advance::Frame(at)) if at.bytes as u64 > RAW_BYTES_MAX => {
            Err(Halt::Skipped(CompressSkipReason::FrameTooLong { offset: at.offset, bytes: at.bytes as u64 }))
        }
        Some(Advance::Frame(at)) => Ok(Some(at)),
        Some(Advance::Damage(damage)) => {
            Err(Halt::Skipped(CompressSkipReason::Damaged { offset: damage.offset, what: damage.what }))
        }
        None => Ok(None),
    }
}

/// The compressed file being written.
struct SegmentRewriter {
    writer: CompressedWriter<StorageOutput>,
    encoder: BlockEncoder,
    checksum: ChecksumKind,
    frames: Vec<u8>, // of the next block
    limit: usize,    // of `frames`, in bytes
    offset: u64,     // of `frames` in the raw segment
    block: Vec<u8>,  // the encoded block
}

const WRITING: &str = "writing the compressed file";

impl SegmentRewriter {
    /// Writes the collected frames as a block, if there are any.
    fn end_block(&mut self, job: &mut CompressJob<'_>) -> Result<(), Halt> {
        if self.frames.is_empty() {
            return Ok(());
        }
        self.block.clear();
        let compressed = self.encoder.append(&self.frames, self.offset, self.checksum, &mut self.block);
        compressed.map_err(failed("encoding a block"))?;
        let available = job.storage.space().map_err(failed("reading the free space"))?.available;
        if available < job.min_free.saturating_add(self.block.len() as u64) {
            return Err(Halt::Skipped(CompressSkipReason::TooLittleSpace {
                available,
                min_free: job.min_free,
            }));
        }
        let stored_bytes =
            self.writer.append_block(&self.block, self.encoder.sizes()).map_err(failed(WRITING))?;
        let raw_bytes = self.frames.len() as u64;
        // Short blocks say little about the next ones. The header's says least.
        if self.frames.len() >= self.limit / 2 {
            self.limit = next_limit(job.block_bytes, raw_bytes, stored_bytes);
        }
        self.offset += raw_bytes;
        self.frames.clear();
        if self.offset >= TRIAL_BYTES && !saves_enough(self.offset, self.writer.stored_bytes()) {
            let stored_bytes = self.writer.stored_bytes();
            return Err(Halt::Skipped(CompressSkipReason::SavesTooLittle {
                raw_bytes: self.offset,
                stored_bytes,
            }));
        }
        let slice = WorkSlice { raw_bytes, io_bytes: raw_bytes + stored_bytes };
        if (job.after_slice)(slice) { Ok(()) } else { Err(Halt::Stopped) }
    }
}

fn saves_enough(raw_bytes: u64, stored_bytes: u64) -> bool {
    stored_bytes.saturating_mul(STORED_RATIO_MAX.1) <= raw_bytes.saturating_mul(STORED_RATIO_MAX.0)
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> Halt {
    move |error| match error.kind() {
        // Others have filled the disk meanwhile.
        ErrorKind::StorageFull => Halt::Skipped(CompressSkipReason::DiskFull),
        _ => Halt::Failed(step, error),
    }
}

/// A storage file as the output of a writer.
#[derive(Debug)]
struct StorageOutput(Arc<dyn StorageFile>);

impl Write for StorageOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(&[IoSlice::new(bytes)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
