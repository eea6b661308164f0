//! Decoding: a block into frames.

use flatbuffers::VerifierOptions;
use flatcap_stream::{ChecksumKind, SliceFramer};

use super::decoded_matrix::DecodedMatrix;
use crate::block::checksum::checksum_from_wire;
use crate::block::codec::PartDecompressor;
use crate::block::error::BlockError;
use crate::block::layout::grouping::{ROWS_MAX, is_block};
use crate::block::layout::lengths;
use crate::block::selection::ColumnSelection;
use crate::schema::segment as wire;

/// Most raw bytes of a block. Reading a block takes memory for at most some twenty times its raw
/// bytes (docs/FORMAT.md, section 11).
pub const RAW_BYTES_MAX: u64 = 128 << 20;
/// Most frames of a block.
pub(in crate::block) const FRAMES_MAX: u32 = 1 << 22;
/// Most groups and most parts of a block.
const GROUPS_MAX: usize = 1 << 16;

/// An opened block. Frames are rebuilt when they are copied out.
#[derive(Debug)]
pub struct Block {
    raw_offset: u64,
    pub(in crate::block) raw_bytes: usize,
    pub(in crate::block) checksum: ChecksumKind,
    pub(in crate::block) frames: Vec<BlockFrame>,
    pub(in crate::block) groups: Vec<DecodedGroup>,
}

/// The location of a frame: its offset in the block's raw bytes, and its payload in a group.
#[derive(Debug, Clone, Copy)]
pub(in crate::block) struct BlockFrame {
    pub(in crate::block) offset: u32,
    /// The row number, or the offset in the bytes of the group.
    pub(in crate::block) position: u32,
    pub(in crate::block) group: u16,
}

#[derive(Debug)]
pub(in crate::block) enum DecodedGroup {
    Payloads(Vec<u8>),
    Frames(Vec<u8>),
    Matrix(DecodedMatrix),
}

/// Reads blocks. Reuses its memory, including that of blocks returned with [`reuse`](Self::reuse).
#[derive(Debug, Default)]
pub struct BlockDecoder {
    decompressor: PartDecompressor,
    reused: ReusedBuffers,
}

/// Buffers that are reused.
#[derive(Debug, Default)]
pub(in crate::block) struct ReusedBuffers {
    pub(in crate::block) bytes: Vec<u8>, // of frames or payloads: the largest returned so far
    pub(in crate::block) lengths: Vec<u32>,
    pub(in crate::block) compressed_lengths: Vec<u8>, // what lengths are decompressed into
    frames: Vec<BlockFrame>,
}

impl BlockDecoder {
    /// Decompresses the selected columns of a Block frame's payload. Frames are rebuilt on demand.
    ///
    /// # Errors
    /// The block is malformed. Lengths are checked against limits before memory is allocated.
    pub fn open(&mut self, payload: &[u8], selection: &ColumnSelection<'_>) -> Result<Block, BlockError> {
        let block = CheckedBlock::open(payload)?;
        let mut parts = PartReader::new(&mut self.decompressor, &block)?;
        let order = block.group_order(&mut parts)?;
        // Lengths and directories of all groups come first, so that wrong sums are found before any
        // payload or column is decompressed.
        let groups =
            block.groups.iter().map(|group| open_group(group, &mut parts)).collect::<Result<Vec<_>, _>>()?;
        let mut frames = std::mem::take(&mut self.reused.frames);
        locate_frames(&block, &order, &groups, &mut frames)?;
        let buffer = &mut self.reused.bytes;
        let groups = groups
            .into_iter()
            .map(|group| group.decode(&mut parts, selection, buffer))
            .collect::<Result<_, _>>()?;
        Ok(Block {
            raw_offset: block.raw_offset,
            raw_bytes: block.raw_bytes,
            checksum: block.checksum,
            frames,
            groups,
        })
    }
}

impl BlockDecoder {
    /// Takes back the memory of a block for the next one. The kernel would have to zero new memory.
    pub fn reuse(&mut self, block: Block) {
        if block.frames.capacity() > self.reused.frames.capacity() {
            self.reused.frames = block.frames;
        }
        for group in block.groups {
            if let DecodedGroup::Payloads(bytes) | DecodedGroup::Frames(bytes) = group
                && bytes.capacity() > self.reused.bytes.capacity()
            {
                self.reused.bytes = bytes;
            }
        }
    }

    pub(in crate::block) fn decompressor(&mut self) -> &mut PartDecompressor {
        &mut self.decompressor
    }

    pub(in crate::block) fn split(&mut self) -> (&mut PartDecompressor, &mut ReusedBuffers) {
        (&mut self.decompressor, &mut self.reused)
    }
}

impl Block {
    /// Returns the offset of the first frame in the segment as it was recorded.
    pub fn raw_offset(&self) -> u64 {
        self.raw_offset
    }

    /// Returns the length of the frames before compression, in bytes.
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// Returns the checksum kind of the frames inside. The Block frame itself may have another.
    pub fn checksum(&self) -> ChecksumKind {
        self.checksum
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Copies frame bytes from the offset `from` within the block, and returns how many: fewer than
    /// `out` holds only at the end of the block. Only frames in this range are rebuilt.
    pub fn copy(&self, from: usize, out: &mut [u8]) -> usize {
        let end = self.raw_bytes.min(from.saturating_add(out.len()));
        let mut rest = out.get_mut(..end.saturating_sub(from)).unwrap_or_default();
        let length = rest.len();
        let first = self.frames.partition_point(|frame| frame.offset as usize <= from).saturating_sub(1);
        let mut whole = Vec::new(); // a frame that is copied only in part
        let mut at = from;
        for (number, frame) in self.frames.iter().enumerate().skip(first) {
            if rest.is_empty() {
                break;
            }
            let after = self.frames.get(number + 1).map_or(self.raw_bytes, |next| next.offset as usize);
            let (frame_bytes, skipped) = (after - frame.offset as usize, at - frame.offset as usize);
            let (buffer, next) = rest.split_at_mut((frame_bytes - skipped).min(rest.len()));
            if buffer.len() == frame_bytes {
                self.rebuild(frame, buffer);
            } else {
                // A checksum covers the whole frame, so a part of it cannot be made alone.
                whole.clear();
                whole.resize(frame_bytes, 0);
                self.rebuild(frame, &mut whole);
                buffer.copy_from_slice(whole.get(skipped..skipped + buffer.len()).unwrap_or_default());
            }
            (rest, at) = (next, after);
        }
        length
    }

    /// Returns the length of the frame with this number.
    pub(in crate::block) fn frame_bytes(&self, number: usize) -> usize {
        let start = self.frames.get(number).map_or(self.raw_bytes, |frame| frame.offset as usize);
        let end = self.frames.get(number + 1).map_or(self.raw_bytes, |next| next.offset as usize);
        end - start
    }

    /// Rebuilds a frame into `to`, which has its length. The limits of a block keep it short.
    fn rebuild(&self, frame: &BlockFrame, to: &mut [u8]) {
        let (at, header_bytes) = (frame.position as usize, self.checksum.frame_bytes(0));
        match self.groups.get(usize::from(frame.group)) {
            Some(DecodedGroup::Frames(bytes)) => {
                to.copy_from_slice(bytes.get(at..at + to.len()).unwrap_or_default());
            }
            Some(DecodedGroup::Payloads(bytes)) => {
                let payload = bytes.get(at..at + to.len().saturating_sub(header_bytes)).unwrap_or_default();
                // Always fits: `locate_frames` has made the offsets from these lengths.
                let _fits = self.checksum.frame_into(to, payload);
            }
            Some(DecodedGroup::Matrix(decoded)) => {
                decoded.write_row(at, to.get_mut(header_bytes..).unwrap_or_default());
                let _fits = self.checksum.frame_in_place(to);
            }
            None => {}
        }
    }
}

/// A Block table with checked numbers.
pub(in crate::block) struct CheckedBlock<'a> {
    raw_offset: u64,
    pub(in crate::block) raw_bytes: usize,
    frames: usize,
    pub(in crate::block) checksum: ChecksumKind,
    pub(in crate::block) groups: flatbuffers::Vector<'a, wire::BlockGroup>,
    parts: flatbuffers::Vector<'a, wire::BlockPart>,
    data: &'a [u8],
}

impl<'a> CheckedBlock<'a> {
    pub(in crate::block) fn open(payload: &'a [u8]) -> Result<Self, BlockError> {
        // A Block is one table with vectors of structs: low limits suffice.
        let options = VerifierOptions { max_depth: 4, max_tables: 4, ..VerifierOptions::default() };
        let block = flatbuffers::root_with_opts::<wire::Block<'_>>(&options, payload)
            .map_err(|_| BlockError::Block("is not a valid FlatBuffer"))?;
        let (groups, parts) = (block.groups(), block.parts());
        if block.raw_bytes() > RAW_BYTES_MAX || block.frames() > FRAMES_MAX {
            return Err(BlockError::Block("claims more frames or bytes than a block may have"));
        }
        if groups.len() > GROUPS_MAX || parts.len() > GROUPS_MAX {
            return Err(BlockError::Block("claims more groups or parts than a block may have"));
        }
        let frames = groups.iter().map(|group| u64::from(group.frames())).sum::<u64>();
        if frames != u64::from(block.frames()) {
            return Err(BlockError::Block("has groups whose frames do not add up to its own"));
        }
        let checksum = checksum_from_wire(block.checksum())
            .ok_or(BlockError::Block("has frames with an unknown checksum kind"))?;
        let header_bytes = checksum.frame_bytes(0) as u64;
        // No overflow: both factors have about 32 bits, and there are at most 65,536 products.
        let bytes = |group: &wire::BlockGroup| {
            u128::from(group.frames()) * u128::from(header_bytes + u64::from(group.row_bytes()))
        };
        if groups.iter().map(bytes).sum::<u128>() > u128::from(block.raw_bytes()) {
            return Err(BlockError::Block("has groups of more bytes than it states"));
        }
        Ok(Self {
            raw_offset: block.raw_offset(),
            raw_bytes: usize::try_from(block.raw_bytes()).map_err(|_| BlockError::Block("is too long"))?,
            frames: block.frames() as usize,
            checksum,
            groups,
            parts,
            data: block.data().bytes(),
        })
    }

    /// Returns the group if there is exactly one.
    pub(in crate::block) fn single_group(&self) -> Option<&'a wire::BlockGroup> {
        let mut groups = self.groups.iter();
        groups.next().filter(|_| groups.next().is_none())
    }

    /// Returns the total length of the frame headers.
    pub(in crate::block) fn frame_headers_bytes(&self) -> u64 {
        (self.frames * self.checksum.frame_bytes(0)) as u64
    }

    /// Returns the group number of each frame.
    pub(in crate::block) fn group_order(&self, parts: &mut PartReader<'_>) -> Result<Vec<u16>, BlockError> {
        let order: Vec<u16> = match self.groups.len() {
            0 => return Err(BlockError::Block("has no groups")),
            // The sum of the groups' frames was checked on opening.
            1 => return Ok(vec![0; self.frames]),
            2..=256 => parts.of_length(0, self.frames)?.iter().map(|group| u16::from(*group)).collect(),
            _ => {
                let order = parts.of_length(0, 2 * self.frames)?;
                order.as_chunks().0.iter().map(|group| u16::from_le_bytes(*group)).collect()
            }
        };
        let mut counts = vec![0_u32; self.groups.len()];
        for group in &order {
            *counts
                .get_mut(usize::from(*group))
                .ok_or(BlockError::Block("assigns a frame to a group that does not exist"))? += 1;
        }
        // Later loops number rows by counting frames: equal counts keep them within a matrix.
        if counts.iter().zip(self.groups).any(|(count, group)| *count != group.frames()) {
            return Err(BlockError::Block("assigns a wrong number of frames to a group"));
        }
        Ok(order)
    }
}

/// A group with decoded lengths or directory, and no data yet.
enum PendingGroup {
    Matrix { decoded: DecodedMatrix, source: u16, first_part: usize },
    Sequence { lengths: Vec<u32>, part: usize, is_framed: bool },
}

fn open_group(group: &wire::BlockGroup, parts: &mut PartReader<'_>) -> Result<PendingGroup, BlockError> {
    let first_part = group.first_part() as usize;
    let is_framed = match group.layout() {
        wire::BlockLayout::Matrix => {
            let decoded = parts.matrix(group)?;
            return Ok(PendingGroup::Matrix { decoded, source: group.source(), first_part });
        }
        wire::BlockLayout::Payloads => false,
        wire::BlockLayout::Frames => true,
        _ => return Err(BlockError::Group("has an unknown layout")),
    };
    Ok(PendingGroup::Sequence { lengths: parts.lengths(group)?, part: first_part + 1, is_framed })
}

impl PendingGroup {
    /// Decompresses the group. `buffer` is a buffer for one group that is not a matrix.
    fn decode(
        self,
        parts: &mut PartReader<'_>,
        selection: &ColumnSelection<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<DecodedGroup, BlockError> {
        Ok(match self {
            Self::Matrix { mut decoded, source, first_part } => {
                decoded.select(source, selection);
                decoded.fill(|bucket| parts.decompressed(first_part + 1 + bucket))?;
                DecodedGroup::Matrix(decoded)
            }
            Self::Sequence { lengths, part, is_framed } => {
                let mut bytes = std::mem::take(buffer);
                parts.decompress_into(part, &mut bytes)?;
                let header_bytes = if is_framed { parts.header_bytes } else { 0 };
                let mut rest = bytes.as_slice();
                for length in lengths {
                    let frame = rest.split_at_checked(header_bytes + length as usize);
                    let (frame, after) =
                        frame.ok_or(BlockError::Group("does not have the length that its frames need"))?;
                    if is_block(frame.get(header_bytes..).unwrap_or_default()) {
                        return Err(BlockError::Group("contains a block, but blocks cannot be nested"));
                    }
                    rest = after;
                }
                if !rest.is_empty() {
                    return Err(BlockError::Group("does not have the length that its frames need"));
                }
                if is_framed { DecodedGroup::Frames(bytes) } else { DecodedGroup::Payloads(bytes) }
            }
        })
    }
}

/// Computes the location of each frame.
fn locate_frames(
    block: &CheckedBlock<'_>,
    order: &[u16],
    groups: &[PendingGroup],
    frames: &mut Vec<BlockFrame>,
) -> Result<(), BlockError> {
    const LENGTH: BlockError = BlockError::Block("has frames that do not add up to its raw bytes");
    let header_bytes = block.checksum.frame_bytes(0);
    // next frame and next byte of each group
    let mut cursors = vec![(0_usize, 0_usize); groups.len()];
    frames.clear();
    frames.reserve_exact(order.len());
    let mut offset = 0_usize;
    for group in order {
        let number = usize::from(*group);
        let (Some(cursor), Some(opened)) = (cursors.get_mut(number), groups.get(number)) else {
            return Err(LENGTH);
        };
        let (at, payload_bytes) = match opened {
            PendingGroup::Matrix { decoded, .. } => (cursor.0, decoded.row_bytes()),
            PendingGroup::Sequence { lengths, is_framed, .. } => {
                let (at, length) = (cursor.1, lengths.get(cursor.0).copied().ok_or(LENGTH)? as usize);
                cursor.1 += length + if *is_framed { header_bytes } else { 0 };
                (at, length)
            }
        };
        cursor.0 += 1;
        let number = |bytes: usize| u32::try_from(bytes).map_err(|_| LENGTH);
        frames.push(BlockFrame { offset: number(offset)?, position: number(at)?, group: *group });
        offset += header_bytes + payload_bytes;
        if offset > block.raw_bytes {
            return Err(LENGTH);
        }
    }
    if offset == block.raw_bytes { Ok(()) } else { Err(LENGTH) }
}

/// The parts of a block, decompressed on demand.
pub(in crate::block) struct PartReader<'a> {
    decompressor: &'a mut PartDecompressor,
    list: Vec<(wire::BlockPart, usize)>, // with the offset of each
    data: &'a [u8],
    raw_bytes: u64,
    header_bytes: usize,
    bytes_left: u64,   // bytes that may still be decompressed
    columns_left: u64, // columns and raw ranges that matrices may still have
}

impl<'a> PartReader<'a> {
    pub(in crate::block) fn new(
        decompressor: &'a mut PartDecompressor,
        block: &CheckedBlock<'a>,
    ) -> Result<Self, BlockError> {
        let mut end = 0_usize;
        let list = block
            .parts
            .iter()
            .map(|part| {
                let start = end;
                end = end.saturating_add(part.stored_bytes() as usize);
                (*part, start)
            })
            .collect();
        if end != block.data.len() {
            return Err(BlockError::Block("has parts whose bytes do not add up to its data"));
        }
        // Encoded data takes at most four times the raw bytes, plus directories.
        let left = (block.raw_bytes as u64).saturating_mul(4).saturating_add(1 << 20);
        let header_bytes = block.checksum.frame_bytes(0);
        let raw_bytes = block.raw_bytes as u64;
        // A column takes some hundred bytes of memory. A writer's matrix has at least eight rows,
        // and its columns at least two bytes a row: so at most one column for sixteen raw bytes.
        let lanes_left = raw_bytes / 16;
        Ok(Self {
            decompressor,
            list,
            data: block.data,
            raw_bytes,
            header_bytes,
            bytes_left: left,
            columns_left: lanes_left,
        })
    }

    /// Returns a part, decompressed into memory of its own.
    pub(in crate::block) fn decompressed(&mut self, number: usize) -> Result<Vec<u8>, BlockError> {
        let mut out = Vec::new();
        self.decompress_into(number, &mut out)?;
        Ok(out)
    }

    /// Decompresses a part and replaces the contents of `out`.
    fn decompress_into(&mut self, number: usize, out: &mut Vec<u8>) -> Result<(), BlockError> {
        let (part, stored) = self.stored(number)?;
        self.decompressor.decompress(part.codec(), stored, part.bytes() as usize, out)
    }

    /// Returns a part: borrowed from the block if stored without a codec, else in `buffer`.
    pub(in crate::block) fn borrow<'r>(
        &mut self,
        number: usize,
        buffer: &'r mut Vec<u8>,
    ) -> Result<&'r [u8], BlockError>
    where
        'a: 'r,
    {
        let (part, stored) = self.stored(number)?;
        // With other lengths a part without codec is malformed, which `decompress` reports.
        if part.codec() == 0 && part.bytes() == part.stored_bytes() {
            return Ok(stored);
        }
        self.decompressor.decompress(part.codec(), stored, part.bytes() as usize, buffer)?;
        Ok(buffer)
    }

    /// Returns a part as stored, and charges its decompressed length to the block's budget.
    fn stored(&mut self, number: usize) -> Result<(wire::BlockPart, &'a [u8]), BlockError> {
        let (part, start) =
            *self.list.get(number).ok_or(BlockError::Group("refers to a part that does not exist"))?;
        // Groups may name the same part: each use is charged, or a few bytes could be read any
        // number of times.
        self.bytes_left = self
            .bytes_left
            .checked_sub(u64::from(part.bytes()))
            .ok_or(BlockError::Part("claims more bytes than its block can need"))?;
        Ok((part, self.data.get(start..start + part.stored_bytes() as usize).unwrap_or_default()))
    }

    /// Returns the stored length of all parts of a group, in bytes.
    pub(in crate::block) fn stored_bytes(&self, group: &wire::BlockGroup) -> u64 {
        let first = group.first_part() as usize;
        let start = |number: usize| self.list.get(number).map_or(self.data.len(), |(_, start)| *start);
        start(first.saturating_add(group.parts() as usize)).saturating_sub(start(first)) as u64
    }

    /// Decodes the directory of a matrix without reading its columns.
    pub(in crate::block) fn matrix(&mut self, group: &wire::BlockGroup) -> Result<DecodedMatrix, BlockError> {
        let (rows, row_bytes) = (group.frames() as usize, group.row_bytes() as usize);
        if rows == 0 || rows > ROWS_MAX || row_bytes as u64 * rows as u64 > self.raw_bytes {
            return Err(BlockError::Group("has no rows, or more than a matrix or its block may have"));
        }
        let decoded = DecodedMatrix::open(&self.decompressed(group.first_part() as usize)?, rows, row_bytes)?;
        // Charged before `fill` takes eight bytes for each value of a column.
        let columns = (decoded.columns().len() + decoded.raw_ranges().len()) as u64;
        let left = self.columns_left.checked_sub(columns);
        self.columns_left =
            left.ok_or(BlockError::Group("has more columns and raw ranges than its block can need"))?;
        if decoded.buckets() + 1 != group.parts() as usize {
            return Err(BlockError::Group("does not have one part for each bucket"));
        }
        Ok(decoded)
    }

    /// Returns the payload lengths of a group that is not a matrix.
    pub(in crate::block) fn lengths(&mut self, group: &wire::BlockGroup) -> Result<Vec<u32>, BlockError> {
        let mut lengths = Vec::new();
        self.lengths_into(group, &mut Vec::new(), &mut lengths)?;
        Ok(lengths)
    }

    /// Replaces the contents of `lengths` with those of a group. `buffer` is for decompression.
    pub(in crate::block) fn lengths_into(
        &mut self,
        group: &wire::BlockGroup,
        buffer: &mut Vec<u8>,
        lengths: &mut Vec<u32>,
    ) -> Result<(), BlockError> {
        if group.parts() != 2 {
            return Err(BlockError::Group("does not have exactly two parts, lengths and data"));
        }
        let part = self.borrow(group.first_part() as usize, buffer)?;
        // A frame has at least four bytes, so the count is at most the block's raw bytes.
        lengths::decode(part, group.frames() as usize, lengths)
    }

    fn of_length(&mut self, number: usize, bytes: usize) -> Result<Vec<u8>, BlockError> {
        let part = self.decompressed(number)?;
        if part.len() == bytes {
            Ok(part)
        } else {
            Err(BlockError::Part("does not have the length that its frames need"))
        }
    }
}
