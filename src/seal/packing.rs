//! One segment, packed and put in its own place. The loop that acts; what it decides by is elsewhere.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::path::Path;
use std::sync::Arc;

use super::compare::compare;
use super::cuts::{ends_behind, ends_in_front, next_limit};
use super::outcome::{Left, Outcome, SealError};
use super::ways::NamedWays;
use crate::block::{Encoder, RAW_BYTES_MAX};
use crate::os::storage::{ReadAt, Storage, StorageFile};
use crate::segment::{Advance, Aside, FrameAt, PackedWriter, SegmentError, SegmentName, SegmentReader};
use crate::stream::ChecksumKind;

/// Packing pays from here on: nine tenths of the raw bytes.
const PAYS: (u64, u64) = (9, 10);
/// After so many raw bytes it is clear whether it does.
const TRIAL_BYTES: u64 = 16 << 20;

/// How a segment is packed.
#[allow(missing_debug_implementations, reason = "a closure: nothing to show")]
pub struct Job<'a> {
    /// Where.
    pub storage: &'a dyn Storage,
    /// By which codecs and layouts.
    pub ways: &'a NamedWays,
    /// Bytes of frames in a block; a longer frame has one to itself.
    pub block_bytes: usize,
    /// Bytes of the file system that stay free.
    pub keep_free: u64,
    /// How the packed file comes to its place.
    pub placing: Placing,
    /// Told of each slice of work; false stops.
    pub pace: &'a mut dyn FnMut(Slice) -> bool,
}

/// How the packed file comes to the place of the raw one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placing {
    /// The two exchange names: right whoever removes segments meanwhile.
    Exchange,
    /// The same, and where the file system cannot the packed one replaces the raw one: only where nobody removes segments meanwhile.
    ExchangeOrReplace,
}

/// A slice of work that was done. Each byte of a segment is worked on twice: packed, and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Bytes of the segment.
    pub raw_bytes: u64,
    /// Bytes read and written.
    pub io_bytes: u64,
}

/// What ends the work before its end.
#[derive(Debug)]
enum Halt {
    Left(Left),
    Stopped,
    Failed(&'static str, io::Error),
    /// The same, when the two had exchanged names: both files stay, since the medium may have the names as they were.
    Unsure(&'static str, io::Error),
}

/// Packs a closed segment.
///
/// # Errors
/// What the storage says, at which step. The segment is then as it was, or packed and whole; what may lie beside it is removed by
/// [`clear`](super::clear).
pub fn pack(job: &mut Job<'_>, name: SegmentName) -> Result<Outcome, SealError> {
    let aside = name.aside(Aside::Packing);
    let halt = match attempt(job, name, &aside) {
        Ok(outcome) => return Ok(outcome),
        Err(halt) => halt,
    };
    if !matches!(halt, Halt::Unsure(..)) {
        // Where even this fails, the next start removes it.
        let _removed = job.storage.remove(&aside);
    }
    match halt {
        Halt::Left(left) => Ok(Outcome::Left(left)),
        Halt::Stopped => Ok(Outcome::Stopped),
        Halt::Failed(step, error) | Halt::Unsure(step, error) => Err(SealError { name, step, error }),
    }
}

fn attempt(job: &mut Job<'_>, name: SegmentName, aside: &str) -> Result<Outcome, Halt> {
    let path = name.to_string();
    let present = match job.storage.open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Halt::Left(Left::Gone)),
        // No regular file, or somebody else's: it would be the same next time.
        Err(error) if is_no_file_of_ours(&error) => {
            return Err(Halt::Left(Left::Unreadable(error.to_string())));
        }
        opened => opened.map_err(failed("opening it"))?,
    };
    let raw = Arc::clone(&present) as Arc<dyn ReadAt>;
    let reader = SegmentReader::over(Path::new(&path), Arc::clone(&raw));
    let reader = reader.map_err(|error| match error {
        SegmentError::Io { error, .. } => Halt::Failed("reading it", error),
        // Its name is known to whoever asked.
        error => Halt::Left(Left::Unreadable(error.to_string().replace(&format!("{path}: "), ""))),
    })?;
    let present_bytes = raw.length().map_err(failed("reading it"))?;
    if let Some(packed) = reader.packed().filter(|packed| !packed.has_small_blocks()) {
        let raw_bytes = packed.raw_bytes();
        return Ok(Outcome::Left(Left::Packed { raw_bytes, stored_bytes: present_bytes }));
    }
    // One that was packed while it was recorded is packed again, in larger blocks.
    let raw = reader.unpacked().unwrap_or(raw);
    let raw_bytes = raw.length().map_err(failed("reading it"))?;
    match job.storage.remove(aside) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        removed => removed.map_err(failed("removing what an earlier attempt has left"))?,
    }
    let file = job.storage.create(aside).map_err(failed("creating the packed file"))?;
    let stored_bytes = write(job, reader, &file)?;
    if !pays(present_bytes, stored_bytes) {
        return Err(Halt::Left(Left::DoesNotPay { raw_bytes: present_bytes, stored_bytes }));
    }
    let mut each = |bytes| (job.pace)(Slice { raw_bytes: bytes, io_bytes: bytes });
    if !compare(&*raw, Arc::clone(&file), &mut each).map_err(failed("comparing the packed file with it"))? {
        return Err(Halt::Stopped);
    }
    let attributes = present.attributes().and_then(|attributes| file.set_attributes(&attributes));
    attributes.map_err(failed("giving the packed file its owner, mode and times"))?;
    place(job, (&path, aside), &*file)?;
    Ok(Outcome::Packed { raw_bytes, stored_bytes })
}

fn is_no_file_of_ours(error: &io::Error) -> bool {
    use ErrorKind::{InvalidInput, IsADirectory, PermissionDenied};
    matches!(error.kind(), InvalidInput | IsADirectory | PermissionDenied)
}

/// Brings the packed file to the medium, and then to its place.
fn place(job: &Job<'_>, (path, aside): (&str, &str), file: &dyn StorageFile) -> Result<(), Halt> {
    let storage = job.storage;
    let gone = |error: io::Error, step| match error.kind() {
        ErrorKind::NotFound => Halt::Left(Left::Gone),
        _ => Halt::Failed(step, error),
    };
    file.sync().map_err(failed("bringing the packed file to the medium"))?;
    let step = "putting the packed file in its place";
    let is_exchanged = match storage.exchange(path, aside) {
        Err(error) if error.kind() == ErrorKind::Unsupported => match job.placing {
            Placing::Exchange => return Err(Halt::Left(Left::NoExchange)),
            Placing::ExchangeOrReplace => {
                storage.replace(aside, path).map_err(|error| gone(error, step))?;
                false
            }
        },
        exchanged => exchanged.map(|()| true).map_err(|error| gone(error, step))?,
    };
    // Before the raw one goes: until then the medium may still have the names as they were.
    let synced = storage.sync_directory();
    synced.map_err(|error| Halt::Unsure("bringing its new name to the medium", error))?;
    if is_exchanged && let Err(error) = storage.remove(aside) {
        // Retention takes what lies beside a segment with it.
        if error.kind() != ErrorKind::NotFound {
            return Err(Halt::Unsure("removing the raw file", error));
        }
    }
    Ok(())
}

/// Writes the packed file. Returns its length.
fn write(job: &mut Job<'_>, mut reader: SegmentReader, file: &Arc<dyn StorageFile>) -> Result<u64, Halt> {
    let Some(footer) = reader.footer() else { return Err(Halt::Left(Left::Unsealed)) };
    let writer = PackedWriter::begin(Output(Arc::clone(file)), footer).map_err(failed(WRITING))?;
    let mut encoder = Encoder::new(job.ways.of(&footer.header));
    for source in footer.header.sources.iter().filter(|source| !source.is_opaque()) {
        encoder.describe(source.id, &source.root, &source.schema);
    }
    let mut packer = Packer {
        checksum: reader.header().checksum,
        writer,
        encoder,
        frames: Vec::with_capacity(job.block_bytes),
        limit: job.block_bytes,
        offset: 0,
        block: Vec::new(),
    };
    while let Some(at) = next(&mut reader)? {
        if ends_in_front(at.kind, at.bytes, packer.frames.len(), packer.limit) {
            packer.end_block(job)?;
        }
        packer.frames.extend_from_slice(reader.bytes(at));
        if ends_behind(at.kind, packer.frames.len(), packer.limit) {
            packer.end_block(job)?;
        }
    }
    packer.end_block(job)?;
    let (_, stored_bytes) = packer.writer.finish().map_err(failed(WRITING))?;
    Ok(stored_bytes)
}

/// The next frame; none at the end. What is no frame as it was written leaves the segment as it is.
fn next(reader: &mut SegmentReader) -> Result<Option<FrameAt>, Halt> {
    let advance = reader.advance().map_err(|error| match error {
        SegmentError::Io { error, .. } => Halt::Failed("reading it", error),
        error => Halt::Failed("reading it", io::Error::other(error)),
    })?;
    match advance {
        Some(Advance::Frame(at)) if at.is_repaired => {
            Err(Halt::Left(Left::Damaged { offset: at.offset, what: "a frame whose length is wrong" }))
        }
        Some(Advance::Frame(at)) if at.bytes as u64 > RAW_BYTES_MAX => {
            Err(Halt::Left(Left::FrameTooLong { offset: at.offset, bytes: at.bytes as u64 }))
        }
        Some(Advance::Frame(at)) => Ok(Some(at)),
        Some(Advance::Damage(damage)) => {
            Err(Halt::Left(Left::Damaged { offset: damage.offset, what: damage.what }))
        }
        None => Ok(None),
    }
}

/// The packed file in the making.
struct Packer {
    writer: PackedWriter<Output>,
    encoder: Encoder,
    checksum: ChecksumKind,
    frames: Vec<u8>, // of the block in the making
    limit: usize,    // of their bytes
    offset: u64,     // of those in the raw segment
    block: Vec<u8>,  // what they become
}

const WRITING: &str = "writing the packed file";

impl Packer {
    /// Packs the frames that have come together, if any.
    fn end_block(&mut self, job: &mut Job<'_>) -> Result<(), Halt> {
        if self.frames.is_empty() {
            return Ok(());
        }
        self.block.clear();
        let packed = self.encoder.append(&self.frames, self.offset, self.checksum, &mut self.block);
        packed.map_err(failed("packing a block"))?;
        let available = job.storage.space().map_err(failed("asking for room"))?.available;
        if available < job.keep_free.saturating_add(self.block.len() as u64) {
            return Err(Halt::Left(Left::NoRoom { available, keep_free: job.keep_free }));
        }
        let stored_bytes = self.writer.block(&self.block, self.encoder.sizes()).map_err(failed(WRITING))?;
        let raw_bytes = self.frames.len() as u64;
        // A short one says little of what follows: the header's, above all.
        if self.frames.len() >= self.limit / 2 {
            self.limit = next_limit(job.block_bytes, raw_bytes, stored_bytes);
        }
        self.offset += raw_bytes;
        self.frames.clear();
        if self.offset >= TRIAL_BYTES && !pays(self.offset, self.writer.stored_bytes()) {
            let stored_bytes = self.writer.stored_bytes();
            return Err(Halt::Left(Left::DoesNotPay { raw_bytes: self.offset, stored_bytes }));
        }
        let slice = Slice { raw_bytes, io_bytes: raw_bytes + stored_bytes };
        if (job.pace)(slice) { Ok(()) } else { Err(Halt::Stopped) }
    }
}

fn pays(raw_bytes: u64, stored_bytes: u64) -> bool {
    stored_bytes.saturating_mul(PAYS.1) <= raw_bytes.saturating_mul(PAYS.0)
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> Halt {
    move |error| match error.kind() {
        // A medium that others have filled meanwhile.
        ErrorKind::StorageFull => Halt::Left(Left::MediumFull),
        _ => Halt::Failed(step, error),
    }
}

/// A file as a writer's output.
#[derive(Debug)]
struct Output(Arc<dyn StorageFile>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(&[IoSlice::new(bytes)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
