//! Decodes a block into frames.

use flatcap_stream::{ChecksumKind, SliceFramer};

use super::decoded_matrix::DecodedMatrix;
use crate::block::checked_block::{CheckedBlock, PartReader};
use crate::block::codec::PartDecompressor;
use crate::block::copies::decode_copies;
use crate::block::error::BlockError;
use crate::block::features::BlockFeatures;
use crate::block::layout::grouping::source_of;
use crate::block::selection::{ColumnSelection, FieldRef};
use crate::schema::segment as wire;

/// An opened block. Frames are rebuilt when they are copied out.
#[derive(Debug)]
pub struct Block {
    raw_offset: u64,
    pub(in crate::block) raw_bytes: usize,
    pub(in crate::block) checksum: ChecksumKind,
    pub(in crate::block) frames: Vec<BlockFrame>,
    pub(in crate::block) groups: Vec<DecodedGroup>,
}

/// The location of a frame. It consists of the frame's offset in the block's raw bytes and the
/// location of the frame's payload in a group.
#[derive(Debug, Clone, Copy)]
pub(in crate::block) struct BlockFrame {
    pub(in crate::block) offset: u32,
    /// The row number in a matrix, or the offset in the bytes of any other group.
    pub(in crate::block) position: u32,
    pub(in crate::block) group: u16,
}

#[derive(Debug)]
pub(in crate::block) enum DecodedGroup {
    Payloads(Vec<u8>),
    Matrix(DecodedMatrix),
}

/// Reads blocks. A decoder reuses its memory and the memory of blocks that the caller returns with
/// [`reuse`](Self::reuse).
#[derive(Debug)]
pub struct BlockDecoder {
    decompressor: PartDecompressor,
    reused: ReusedBuffers,
    first_block: Vec<u8>,     // raw bytes of the segment's first block, if known
    announced: BlockFeatures, // by the file
}

/// Buffers that are reused.
#[derive(Debug, Default)]
struct ReusedBuffers {
    bytes: Vec<u8>, // of frames or payloads: the largest returned so far
    frames: Vec<BlockFrame>,
}

impl Default for BlockDecoder {
    /// Creates a decoder that accepts blocks with any features.
    fn default() -> Self {
        let (decompressor, reused) = (PartDecompressor::default(), ReusedBuffers::default());
        Self { decompressor, reused, first_block: Vec::new(), announced: BlockFeatures::EVERY }
    }
}

impl BlockDecoder {
    /// Decompresses the selected columns of a Block frame's payload. Frames are rebuilt on demand.
    ///
    /// # Errors
    /// Fails if the block is malformed. Lengths are checked against limits before memory is
    /// allocated.
    pub fn open(&mut self, payload: &[u8], selection: &ColumnSelection<'_>) -> Result<Block, BlockError> {
        let block = CheckedBlock::open(payload)?;
        let mut parts = PartReader::new(&mut self.decompressor, self.announced, &block)?;
        let order = block.group_order(&mut parts)?;
        // The lengths and directories of all groups are read first, so that wrong sums are found
        // before any payload or column is decompressed.
        let groups =
            block.groups.iter().map(|group| open_group(group, &mut parts)).collect::<Result<Vec<_>, _>>()?;
        let mut frames = std::mem::take(&mut self.reused.frames);
        locate_frames(&block, &order, &groups, &mut frames)?;
        let buffer = &mut self.reused.bytes;
        let groups = groups
            .into_iter()
            .map(|group| group.decode(&mut parts, selection, &self.first_block, buffer))
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
    /// Takes over the memory of a block, and uses it for the next block. Without this call, the
    /// next block needs new memory, which the kernel has to fill with zeros.
    pub fn reuse(&mut self, block: Block) {
        if block.frames.capacity() > self.reused.frames.capacity() {
            self.reused.frames = block.frames;
        }
        for group in block.groups {
            if let DecodedGroup::Payloads(bytes) = group
                && bytes.capacity() > self.reused.bytes.capacity()
            {
                self.reused.bytes = bytes;
            }
        }
    }

    /// Sets the features that the file announces. From now on, the decoder refuses blocks that need
    /// other features.
    pub fn set_announced(&mut self, features: BlockFeatures) {
        self.announced = features;
    }

    /// Returns whether a Block frame's payload refers to the first block of its segment. If it
    /// does, the caller must call [`set_first_block`](Self::set_first_block) before
    /// [`open`](Self::open).
    pub(crate) fn needs_first_block(payload: &[u8]) -> bool {
        let is_copied = |group: &wire::BlockGroup| group.layout() == wire::BlockLayout::Copies;
        CheckedBlock::open(payload).is_ok_and(|block| block.groups.iter().any(is_copied))
    }

    /// Sets the raw bytes of the segment's first block. The last block of the segment refers to
    /// these bytes.
    pub fn set_first_block(&mut self, raw: Vec<u8>) {
        self.first_block = raw;
    }

    /// Returns whether the first block is set.
    pub(crate) fn has_first_block(&self) -> bool {
        !self.first_block.is_empty()
    }

    /// Returns the parts of a block.
    pub(in crate::block) fn parts<'a>(
        &'a mut self,
        block: &CheckedBlock<'a>,
    ) -> Result<PartReader<'a>, BlockError> {
        PartReader::new(&mut self.decompressor, self.announced, block)
    }
}

impl Block {
    /// Returns the offset that the first frame had in the segment before compression.
    pub fn raw_offset(&self) -> u64 {
        self.raw_offset
    }

    /// Returns the length of the frames before compression, in bytes.
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// Returns the checksum kind of the frames in the block. The Block frame itself may have
    /// another checksum kind.
    #[cfg(any(test, feature = "testing"))]
    pub fn checksum(&self) -> ChecksumKind {
        self.checksum
    }

    /// Returns the number of frames.
    #[cfg(test)]
    pub(crate) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Returns a column whose stated bounds differ from the bounds of its values. Also returns the
    /// source of the column. All columns must be selected.
    pub(crate) fn wrong_bounds(&self) -> Option<(u16, FieldRef)> {
        self.groups.iter().find_map(|group| match group {
            DecodedGroup::Matrix(decoded) => {
                let field = decoded.wrong_bounds()?;
                Some((source_of(decoded.first()).unwrap_or_default(), field))
            }
            DecodedGroup::Payloads(_) => None,
        })
    }

    /// Copies frame bytes from the offset `from` within the block, and returns the number of bytes
    /// copied. This number is lower than the length of `out` only if the block ends. Only frames in
    /// this range are rebuilt.
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
                // A checksum covers the whole frame, so the whole frame must be rebuilt even if
                // only a part of it is copied.
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

    /// Rebuilds a frame into `to`, which must have the length of the frame. The limits on a block
    /// also limit the length of a frame.
    fn rebuild(&self, frame: &BlockFrame, to: &mut [u8]) {
        let (at, header_bytes) = (frame.position as usize, self.checksum.frame_bytes(0));
        match self.groups.get(usize::from(frame.group)) {
            Some(DecodedGroup::Payloads(bytes)) => {
                let payload = bytes.get(at..at + to.len().saturating_sub(header_bytes)).unwrap_or_default();
                // The payload always fits, because `locate_frames` has computed the offsets from
                // these lengths.
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

/// A group whose lengths or directory are decoded and whose data is not decompressed yet.
enum PendingGroup<'a> {
    Matrix { group: &'a wire::BlockGroup, decoded: DecodedMatrix },
    Sequence { group: &'a wire::BlockGroup, lengths: Vec<u32> },
}

fn open_group<'a>(
    group: &'a wire::BlockGroup,
    parts: &mut PartReader<'_>,
) -> Result<PendingGroup<'a>, BlockError> {
    match group.layout() {
        wire::BlockLayout::Matrix => Ok(PendingGroup::Matrix { group, decoded: parts.matrix(group)? }),
        wire::BlockLayout::Payloads | wire::BlockLayout::Copies => {
            Ok(PendingGroup::Sequence { group, lengths: parts.lengths(group)? })
        }
        _ => Err(BlockError::Group("has an unknown layout")),
    }
}

impl PendingGroup<'_> {
    /// Decompresses the group. `buffer` receives the bytes of a group that is not a matrix.
    fn decode(
        self,
        parts: &mut PartReader<'_>,
        selection: &ColumnSelection<'_>,
        first_block: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<DecodedGroup, BlockError> {
        Ok(match self {
            Self::Matrix { group, mut decoded } => {
                let first_bucket = group.first_part() as usize + 1;
                decoded.select(group.source(), selection);
                decoded.fill(|bucket| parts.decompressed(first_bucket + bucket))?;
                DecodedGroup::Matrix(decoded)
            }
            Self::Sequence { group, lengths } => {
                let part = group.first_part() as usize + 1;
                let has_copies = group.layout() == wire::BlockLayout::Copies;
                let mut bytes = std::mem::take(buffer);
                if has_copies {
                    if first_block.is_empty() {
                        return Err(BlockError::Group("refers to the first block, which cannot be read"));
                    }
                    let (list, rest) = (parts.decompressed(part)?, parts.decompressed(part + 1)?);
                    // The sum is not higher than the block's raw bytes, because `locate_frames` has
                    // added up the lengths.
                    let sum = lengths.iter().map(|length| *length as usize).sum();
                    bytes.clear();
                    decode_copies(&list, &rest, first_block, sum, &mut bytes)?;
                } else {
                    parts.decompress_into(part, &mut bytes)?;
                }
                let mut rest = bytes.as_slice();
                for length in lengths {
                    let (payload, after) = rest
                        .split_at_checked(length as usize)
                        .ok_or(BlockError::Group("does not have the length that its frames need"))?;
                    CheckedBlock::check_payload(group, payload)?;
                    // Scans and filters skip this layout, so it must not contain samples.
                    if has_copies && source_of(payload).is_some() {
                        return Err(BlockError::Group("has samples that refer to the first block"));
                    }
                    rest = after;
                }
                if !rest.is_empty() {
                    return Err(BlockError::Group("does not have the length that its frames need"));
                }
                DecodedGroup::Payloads(bytes)
            }
        })
    }
}

/// Computes the location of each frame.
fn locate_frames(
    block: &CheckedBlock<'_>,
    order: &[u16],
    groups: &[PendingGroup<'_>],
    frames: &mut Vec<BlockFrame>,
) -> Result<(), BlockError> {
    const LENGTH: BlockError = BlockError::Block("has frames that do not add up to its raw bytes");
    let header_bytes = block.checksum.frame_bytes(0);
    // For each group, the number of the next frame and the offset of the next byte.
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
            PendingGroup::Sequence { lengths, .. } => {
                let (at, length) = (cursor.1, lengths.get(cursor.0).copied().ok_or(LENGTH)? as usize);
                cursor.1 += length;
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
