//! The frame that contains a block of a compressed segment, the limits on the block, and the
//! checksum kind of the frame. This module also builds the entry of a block in the table of blocks,
//! from the fields of the block.

use flatcap_stream::{ChecksumKind, KindDeframer};

use super::footer::BlockEntry;
use super::header::COMPRESSED_CHECKSUM;
use crate::block::{RAW_BYTES_MAX, checksum_from_wire};
use crate::schema::segment as wire;

/// Maximum length of a block's frame, in bytes. The limit allows incompressible frames, which are
/// stored together with their lengths.
pub(in crate::segment) const BLOCK_FRAME_BYTES_MAX: u64 = 2 * RAW_BYTES_MAX;
/// Identifier in the frame of a block.
pub(in crate::segment) const IDENTIFIER: &[u8; 4] = b"FCBK";

/// Returns a deframer for the frames of a compressed file. The frames inside the blocks need
/// another deframer.
pub(in crate::segment) fn deframer() -> KindDeframer {
    let limit = usize::try_from(BLOCK_FRAME_BYTES_MAX).unwrap_or(usize::MAX);
    KindDeframer::new(COMPRESSED_CHECKSUM).with_max_frame_len(limit)
}

/// Makes the table entry of a block from the block's payload. Returns `None` if the payload is not
/// a valid block.
pub(in crate::segment) fn parse_block_entry(payload: &[u8], offset: u64, bytes: usize) -> Option<BlockEntry> {
    if payload.get(4..8) != Some(IDENTIFIER) {
        return None;
    }
    let block = flatbuffers::root::<wire::Block<'_>>(payload).ok()?;
    let entry = BlockEntry {
        raw_offset: block.raw_offset(),
        offset,
        raw_bytes: u32::try_from(block.raw_bytes()).ok()?,
        bytes: u32::try_from(bytes).ok()?,
    };
    (has_valid_lengths(&entry) && block.raw_offset().checked_add(block.raw_bytes()).is_some())
        .then_some(entry)
}

/// Returns whether a block's lengths are within the limits.
pub(in crate::segment) fn has_valid_lengths(entry: &BlockEntry) -> bool {
    entry.raw_bytes > 0
        && u64::from(entry.raw_bytes) <= RAW_BYTES_MAX
        && entry.bytes > 0
        && u64::from(entry.bytes) <= BLOCK_FRAME_BYTES_MAX
}

/// Returns the checksum kind of the frames in a block with this payload.
pub(in crate::segment) fn block_checksum(payload: &[u8]) -> Option<ChecksumKind> {
    let block = flatbuffers::root::<wire::Block<'_>>(payload).ok()?;
    checksum_from_wire(block.checksum())
}
