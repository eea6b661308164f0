//! Compresses one segment and replaces it with the compressed segment. Other modules decide which
//! segments are compressed.

use std::io;
use std::sync::Arc;

use flatcap_format::block::{BlockEncoder, RAW_BYTES_MAX};
use flatcap_format::segment::{
    Advance, CompressedWriter, FrameLocation, SegmentError, SegmentName, SegmentReader,
};
use flatcap_format::storage::{ReadAt, StorageFile};
use flatcap_stream::ChecksumKind;

use super::block_boundaries::{ends_after, ends_before, next_limit};
use super::compare::compare_compressed;
use super::named_options::NamedSourceCompression;
use super::outcome::{CompressError, CompressOutcome, CompressSkipReason};
use super::replacement::{
    Halt, READING, ReplaceJob, StorageOutput, WRITING, WorkSlice, conclude, create_aside, failed,
    open_segment,
};

/// Maximum ratio of stored to raw bytes at which compression is worthwhile (nine tenths).
const STORED_RATIO_MAX: (u64, u64) = (9, 10);
/// Number of raw bytes after which the ratio so far decides whether compression continues.
const TRIAL_BYTES: u64 = 16 << 20;

/// The parameters for compressing segments.
#[allow(missing_debug_implementations, reason = "a closure: nothing to show")]
pub struct CompressJob<'a> {
    /// The parameters for replacing the raw file.
    pub replace: ReplaceJob<'a>,
    /// Codecs and layouts of the sources.
    pub compression: &'a NamedSourceCompression,
    /// Limit on the raw bytes per block. A frame that is longer than this limit gets a separate
    /// block.
    pub block_bytes: usize,
}

/// Compresses a sealed segment and replaces it with the compressed segment.
///
/// # Errors
/// The error contains the step that failed, and the error of the storage. The segment is either
/// unchanged, or compressed and complete. If a temporary file stays,
/// [`remove_leftovers`](super::remove_leftovers) removes it.
pub fn compress_segment(
    job: &mut CompressJob<'_>,
    name: SegmentName,
) -> Result<CompressOutcome, CompressError> {
    let result = try_compress(job, name);
    conclude(job.replace.storage, name, result)
}

fn try_compress(job: &mut CompressJob<'_>, name: SegmentName) -> Result<CompressOutcome, Halt> {
    let (present, reader) = open_segment(job.replace.storage, name)?;
    let present_bytes = present.length().map_err(failed(READING))?;
    if let Some(compressed) = reader.compressed().filter(|compressed| !compressed.has_small_blocks()) {
        let raw_bytes = compressed.raw_bytes();
        return Ok(CompressOutcome::Skipped(CompressSkipReason::AlreadyCompressed {
            raw_bytes,
            stored_bytes: present_bytes,
        }));
    }
    // A segment that was compressed during the recording is compressed again, in larger blocks.
    let raw = reader.decompressed().unwrap_or_else(|| Arc::clone(&present) as Arc<dyn ReadAt>);
    let raw_bytes = raw.length().map_err(failed(READING))?;
    let file = create_aside(job.replace.storage, name)?;
    let stored_bytes = write(job, reader, &file)?;
    if !saves_enough(present_bytes, stored_bytes) {
        return Err(Halt::Skipped(CompressSkipReason::SavesTooLittle {
            raw_bytes: present_bytes,
            stored_bytes,
        }));
    }
    let mut each = |bytes| (job.replace.after_slice)(WorkSlice { raw_bytes: bytes, io_bytes: bytes });
    let compared = compare_compressed(&*raw, Arc::clone(&file), &mut each);
    if !compared.map_err(failed("comparing the new file"))? {
        return Err(Halt::Stopped);
    }
    job.replace.replace(name, (&*present, present_bytes), &*file)?;
    Ok(CompressOutcome::Compressed { raw_bytes, stored_bytes })
}

/// Writes the compressed file. Returns its length.
fn write(
    job: &mut CompressJob<'_>,
    mut reader: SegmentReader,
    file: &Arc<dyn StorageFile>,
) -> Result<u64, Halt> {
    let Some(footer) = reader.footer() else { return Err(Halt::Skipped(CompressSkipReason::Unsealed)) };
    let compression = job.compression.for_segment(&footer.header);
    let writer = CompressedWriter::begin(StorageOutput(Arc::clone(file)), footer, compression.features());
    let writer = writer.map_err(failed(WRITING))?;
    let mut encoder = BlockEncoder::new(compression);
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
        first_block: Vec::new(),
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

/// Returns the next frame, or `None` at the end of the segment. If the frame is damaged or too
/// long, returns the reason why the segment is left unchanged.
fn next(reader: &mut SegmentReader) -> Result<Option<FrameLocation>, Halt> {
    let advance = reader.advance().map_err(|error| match error {
        SegmentError::Io { error, .. } => Halt::Failed(READING, error),
        error => Halt::Failed(READING, io::Error::other(error)),
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
    frames: Vec<u8>,      // of the next block
    limit: usize,         // of `frames`, in bytes
    offset: u64,          // of `frames` in the raw segment
    first_block: Vec<u8>, // its frames, to which the last block refers
    block: Vec<u8>,       // the encoded block
}

impl SegmentRewriter {
    /// Writes the collected frames as a block, if there are any.
    fn end_block(&mut self, job: &mut CompressJob<'_>) -> Result<(), Halt> {
        if self.frames.is_empty() {
            return Ok(());
        }
        self.block.clear();
        // The block of the footer is the last block, and only this block refers to the first block.
        let compressed = self.encoder.append_last(
            &self.frames,
            self.offset,
            self.checksum,
            &self.first_block,
            &mut self.block,
        );
        compressed.map_err(failed("encoding a block"))?;
        if self.offset == 0 {
            self.first_block.extend_from_slice(&self.frames);
        }
        job.replace.check_space(self.block.len() as u64)?;
        let (features, sizes) = (self.encoder.features(), self.encoder.sizes());
        let stored_bytes = self.writer.append_block(&self.block, features, sizes).map_err(failed(WRITING))?;
        let raw_bytes = self.frames.len() as u64;
        // The ratio of a short block predicts little about the next blocks. The header's block
        // predicts the least.
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
        job.replace.end_slice(WorkSlice { raw_bytes, io_bytes: raw_bytes + stored_bytes })
    }
}

fn saves_enough(raw_bytes: u64, stored_bytes: u64) -> bool {
    stored_bytes.saturating_mul(STORED_RATIO_MAX.1) <= raw_bytes.saturating_mul(STORED_RATIO_MAX.0)
}
