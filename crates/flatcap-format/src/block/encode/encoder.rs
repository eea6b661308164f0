//! Encodes frames into a block.

use std::collections::HashMap;
use std::fmt;
use std::io;

use flatcap_stream::ChecksumKind;

use super::block_builder::{BlockBuilder, BlockNumbers};
use super::matrix::{EncodedMatrix, KnownFields, MatrixEncoder};
use crate::block::checked_block::{FRAMES_MAX, RAW_BYTES_MAX};
use crate::block::checksum::checksum_to_wire;
use crate::block::codec::{Codec, PartCompressor, features_of_codec};
use crate::block::copies::{encode_copies, find_copies};
use crate::block::decode::sizes::{SourceSize, distribute_common};
use crate::block::features::BlockFeatures;
use crate::block::layout::grouping::{FrameGroup, FrameGrouper, GroupKey};
use crate::block::layout::lengths;
use crate::block::options::SourceCompression;
use crate::schema::CompiledSchema;
use crate::schema::envelope::ENVELOPE_BYTES;
use crate::schema::segment as wire;

/// Default length of a block before compression. Data in blocks of 16 MiB is 1.19 times smaller,
/// but a seek decompresses a whole block.
pub const RAW_BYTES_DEFAULT: usize = 4 << 20;

/// The identifier in the payload of a footer.
const FOOTER: &[u8] = b"FCFT";

/// Compresses frames into blocks. An encoder reuses the memory of earlier blocks. Encoding is
/// deterministic, so the same frames always become the same block.
#[derive(Default)]
pub struct BlockEncoder {
    compression: SourceCompression,
    schemas: HashMap<u16, CompiledSchema>,
    grouper: FrameGrouper,
    matrix: MatrixEncoder,
    encoded: EncodedMatrix,
    parts: PartWriter,
    groups: Vec<wire::BlockGroup>,
    out: Vec<u8>,
    sizes: Vec<SourceSize>,
}

/// Frames to encode as one block.
#[derive(Clone, Copy)]
struct EncoderInput<'r> {
    /// Whole frames.
    frames: &'r [u8],
    raw_offset: u64,
    checksum: ChecksumKind,
    /// Raw bytes of the segment's first block. This is empty if payloads cannot refer to the first
    /// block.
    first_block: &'r [u8],
}

/// The parts of the block that is being encoded.
#[derive(Debug, Default)]
struct PartWriter {
    features: BlockFeatures,
    compressors: HashMap<Codec, PartCompressor>,
    list: Vec<wire::BlockPart>,
    lengths: Vec<u8>,
}

impl fmt::Debug for BlockEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("ways", &self.compression).finish_non_exhaustive()
    }
}

impl BlockEncoder {
    /// Creates an encoder with these compression options.
    pub fn new(compression: SourceCompression) -> Self {
        Self { compression, ..Self::default() }
    }

    /// Sets the binary schema and root table of a source's payloads. Fields of four and eight bytes
    /// then become columns. The number types of these fields determine the order of the columns'
    /// bounds. Without a schema, the encoder derives columns and number types from the values.
    /// Decoding needs no schema. The encoder ignores a schema that is invalid or does not fit the
    /// payloads.
    pub fn set_schema(&mut self, source: u16, root: &str, schema: &[u8]) {
        if let Ok(plan) = CompiledSchema::compile(schema, root) {
            self.schemas.insert(source, plan);
        }
    }

    /// Returns the fields of a source's payload that are known from the schema.
    fn fields(&self, source: u16, payload: &[u8]) -> KnownFields {
        let plan = self.schemas.get(&source);
        let body = payload.get(ENVELOPE_BYTES..).unwrap_or_default();
        KnownFields::new(&plan.and_then(|plan| plan.numeric_fields(body)).unwrap_or_default())
    }

    /// Returns the payload of a Block frame that contains these frames. `raw_offset` is the offset
    /// of the frames in the segment. `checksum` is the checksum kind of the frames.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append).
    pub fn encode(&mut self, frames: &[u8], raw_offset: u64, checksum: ChecksumKind) -> io::Result<&[u8]> {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let appended = self.append(frames, raw_offset, checksum, &mut out);
        self.out = out;
        appended.map(|()| self.out.as_slice())
    }

    /// Appends the payload of a Block frame to a vector. [`encode`](Self::encode) returns the same
    /// payload. The vector may already contain other bytes, for instance the space for a frame
    /// header.
    ///
    /// # Errors
    /// Returns `InvalidData` if the bytes are not whole frames, a checksum is wrong, or a frame is
    /// a Block. Returns `InvalidInput` if the bytes are empty or longer than [`RAW_BYTES_MAX`]. The
    /// codec may return other errors. If there is an error, nothing is appended.
    pub fn append(
        &mut self,
        frames: &[u8],
        raw_offset: u64,
        checksum: ChecksumKind,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.append_last(frames, raw_offset, checksum, &[], out)
    }

    /// Like [`append`](Self::append), but appends the block with the frames that end a segment.
    /// These frames are the footer and the trailer. `first_block` contains the frames of the
    /// segment's first block, which contains only the header. Parts of the footer that repeat the
    /// header, such as schemas, are stored as references to the first block. So a reader needs the
    /// first block to read this block.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append).
    #[allow(clippy::too_many_arguments, reason = "those of `append`, and the first block")]
    pub fn append_last(
        &mut self,
        frames: &[u8],
        raw_offset: u64,
        checksum: ChecksumKind,
        first_block: &[u8],
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        check_raw_bytes(frames.len() as u64)?;
        self.grouper.group(frames, checksum, &self.compression)?;
        self.write(EncoderInput { frames, raw_offset, checksum, first_block }, out)
    }

    /// Writes the grouped frames. If there is an error, `out` is unchanged.
    fn write(&mut self, run: EncoderInput<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        let written = self.try_write(run, out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn try_write(&mut self, run: EncoderInput<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        let frames = u32::try_from(self.grouper.order.len()).unwrap_or(u32::MAX);
        if frames > FRAMES_MAX {
            let message = format!("{frames} frames are too many for a block: at most {FRAMES_MAX} fit");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.parts.list.clear();
        self.parts.features = BlockFeatures::ROWS;
        self.groups.clear();
        self.sizes.clear();
        let sources = self.grouper.sources.iter();
        self.sizes.extend(sources.map(|&(source, raw_bytes)| SourceSize {
            source,
            raw_bytes,
            stored_bytes: 0,
        }));
        let mut table = BlockBuilder::begin(out);
        self.write_group_order(&mut table)?;
        for number in 0..self.grouper.groups.len() {
            let group = self.encode_group(number, &run, &mut table)?;
            self.groups.push(group);
        }
        let EncoderInput { raw_offset, checksum, .. } = run;
        let raw_bytes = run.frames.len() as u64;
        let numbers = BlockNumbers { raw_offset, raw_bytes, frames, checksum: checksum_to_wire(checksum) };
        let stored_bytes = table.finish(&numbers, &self.groups, &self.parts.list)?;
        distribute_common(&mut self.sizes, raw_bytes, stored_bytes as u64);
        Ok(())
    }

    /// Returns the raw and stored bytes of each source in the block that was encoded last.
    pub fn sizes(&self) -> &[SourceSize] {
        &self.sizes
    }

    /// Returns the features that a reader needs for the block that was encoded last.
    pub fn features(&self) -> BlockFeatures {
        self.parts.features
    }

    /// Writes the first part, which contains the group number of each frame.
    fn write_group_order(&mut self, table: &mut BlockBuilder<'_>) -> io::Result<()> {
        let (lists, order) = (self.grouper.groups.len(), &self.grouper.order);
        let bytes: Vec<u8> = match lists {
            0 | 1 => Vec::new(),
            2..=256 => order.iter().map(|group| (group & 0xFF) as u8).collect(),
            _ => order.iter().flat_map(|group| group.to_le_bytes()).collect(),
        };
        self.parts.add(self.compression.general.codec, &bytes, table)
    }

    fn encode_group(
        &mut self,
        number: usize,
        run: &EncoderInput<'_>,
        table: &mut BlockBuilder<'_>,
    ) -> io::Result<wire::BlockGroup> {
        let (first_part, start) = (self.parts.list.len(), table.data_bytes());
        let Some(list) = self.grouper.groups.get(number) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let codec = list.options.codec;
        let (layout, source, row_bytes) = match list.key {
            GroupKey::Rows { source, row_bytes } => {
                let payload = |number: usize| {
                    let (at, length) = list.rows.get(number).copied().unwrap_or_default();
                    run.frames.get(at as usize..(at + length) as usize).unwrap_or_default()
                };
                // Uses the field offsets of the first row. If other rows have fields at other
                // offsets, these rows take more space. The rows stay exact, because a column is
                // only a range of bytes at an offset.
                let fields = self.fields(source, payload(0));
                let rows = list.rows.len();
                self.encoded.codec = Some(codec);
                self.matrix.encode(rows, payload, &fields, &mut self.encoded);
                self.parts.add(codec, &self.encoded.directory, table)?;
                for bucket in self.encoded.buckets() {
                    self.parts.add(codec, bucket, table)?;
                }
                for raw_range in self.matrix.raw_ranges() {
                    // The first row is in the directory.
                    self.parts.add_gathered(
                        codec,
                        (1..rows).map(|number| raw_range.of(payload(number))),
                        table,
                    )?;
                }
                self.parts.add_features(BlockFeatures::COLUMNS);
                if self.encoded.is_numeric {
                    self.parts.add_features(BlockFeatures::ALL);
                }
                (wire::BlockLayout::Matrix, Some(source), row_bytes)
            }
            GroupKey::Mixed { source: None, .. } if repeats_header(list, run) => {
                self.parts.add_lengths(list, table)?;
                self.parts.add_copies(list, run, table)?;
                (wire::BlockLayout::Copies, None, 0)
            }
            GroupKey::Mixed { source, .. } => {
                self.parts.add_lengths(list, table)?;
                self.parts.add_gathered(codec, payloads(list, run.frames), table)?;
                (wire::BlockLayout::Payloads, source, 0)
            }
        };
        // `distribute_common` distributes the bytes of groups with several sources.
        if let Some(source) = source
            && let Some(size) = self.sizes.iter_mut().find(|size| size.source == source)
        {
            size.stored_bytes += (table.data_bytes() - start) as u64;
        }
        let number = |count: usize| u32::try_from(count).map_err(io::Error::other);
        let parts = number(self.parts.list.len() - first_part)?;
        Ok(wire::BlockGroup::new(
            number(first_part)?,
            parts,
            number(list.rows.len())?,
            row_bytes,
            source.unwrap_or_default(),
            layout,
            layout == wire::BlockLayout::Payloads && source.is_some(),
        ))
    }
}

/// Returns the payloads of a group.
fn payloads<'r>(list: &FrameGroup, bytes: &'r [u8]) -> impl Iterator<Item = &'r [u8]> + Clone {
    list.rows.iter().map(|(at, length)| bytes.get(*at as usize..(at + length) as usize).unwrap_or_default())
}

/// Returns whether a group begins with a footer and the first block is known. The footer repeats
/// the header, which is in the first block.
fn repeats_header(list: &FrameGroup, run: &EncoderInput<'_>) -> bool {
    let first = payloads(list, run.frames).next().unwrap_or_default();
    !run.first_block.is_empty() && first.get(4..8) == Some(FOOTER)
}

fn check_raw_bytes(raw_bytes: u64) -> io::Result<()> {
    if (1..=RAW_BYTES_MAX).contains(&raw_bytes) {
        return Ok(());
    }
    let message =
        format!("cannot encode {raw_bytes} bytes of frames as a block: must be from 1 to {RAW_BYTES_MAX}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

impl PartWriter {
    fn add(&mut self, codec: Codec, bytes: &[u8], table: &mut BlockBuilder<'_>) -> io::Result<()> {
        let start = table.data_bytes();
        let codec = self.compressor(codec).compress(bytes, table.data())?;
        self.push_part(codec, bytes.len(), table.data_bytes() - start)
    }

    /// Returns the compressor of a codec.
    fn compressor(&mut self, codec: Codec) -> &mut PartCompressor {
        self.compressors.entry(codec).or_insert_with(|| PartCompressor::new(codec))
    }

    fn push_part(&mut self, codec: u8, bytes: usize, stored_bytes: usize) -> io::Result<()> {
        let number = |count: usize| u32::try_from(count).map_err(io::Error::other);
        self.list.push(wire::BlockPart::new(number(stored_bytes)?, number(bytes)?, codec));
        self.add_features(features_of_codec(codec));
        Ok(())
    }

    fn add_features(&mut self, features: BlockFeatures) {
        self.features = self.features.and(features);
    }

    fn add_lengths(&mut self, list: &FrameGroup, table: &mut BlockBuilder<'_>) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.lengths);
        lengths::encode(list.rows.iter().map(|(_, length)| *length), &mut bytes);
        let added = self.add(list.options.codec, &bytes, table);
        self.lengths = bytes;
        added
    }

    /// Adds payloads as two parts. The first part is a list of the ranges that the first block also
    /// contains. The second part contains the remaining bytes.
    fn add_copies(
        &mut self,
        list: &FrameGroup,
        run: &EncoderInput<'_>,
        table: &mut BlockBuilder<'_>,
    ) -> io::Result<()> {
        let bytes = payloads(list, run.frames).collect::<Vec<_>>().concat();
        let copies = find_copies(&bytes, run.first_block, run.checksum.frame_bytes(0));
        let (copies, rest) = encode_copies(&bytes, &copies);
        self.add(list.options.codec, &copies, table)?;
        self.add(list.options.codec, &rest, table)
    }

    /// Adds a part whose bytes are not contiguous.
    fn add_gathered<'r>(
        &mut self,
        codec: Codec,
        rows: impl Iterator<Item = &'r [u8]> + Clone,
        table: &mut BlockBuilder<'_>,
    ) -> io::Result<()> {
        let start = table.data_bytes();
        let (codec, bytes) = self.compressor(codec).compress_rows(rows, table.data())?;
        self.push_part(codec, bytes, table.data_bytes() - start)
    }
}
