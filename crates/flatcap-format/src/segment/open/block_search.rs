//! Finds the blocks of a compressed segment without the table of blocks, by reading the fields of
//! the blocks.

use std::io;

use flatcap_stream::resync::HashBudget;
use flatcap_stream::{DeframeStatus, LENGTH_BYTES, SliceDeframer};

use super::file_window::FileWindow;
use crate::block::RAW_BYTES_MAX;
use crate::segment::format::block_frame::{BLOCK_FRAME_BYTES_MAX, IDENTIFIER, deframer, parse_block_entry};
use crate::segment::format::footer::BlockEntry;
use crate::storage::ReadAt;

/// Offset of the identifier in a frame. The frame's header and the FlatBuffer's root offset precede
/// the identifier.
const IDENTIFIER_AT: u64 = 12 + 4;
/// Highest accepted ratio of a raw offset to the length of the file, for a file without a table.
/// The limit is the ratio of the longest raw block to the shortest frame of a block. A lower limit
/// could reject valid files, because equal payloads become more than 8,000 times smaller.
const RAW_BYTES_PER_BYTE: u64 = RAW_BYTES_MAX / BLOCK_FRAME_BYTES_MIN;
/// Length of the shortest frame of a block, in bytes. Such a frame consists of a frame header and a
/// FlatBuffers table with an identifier.
const BLOCK_FRAME_BYTES_MIN: u64 = 64;

/// Finds every intact block of a file, in file order.
pub(in crate::segment) fn find_blocks(window: &mut FileWindow) -> io::Result<Vec<BlockEntry>> {
    find_blocks_in(window, u64::MAX, usize::MAX)
}

/// Returns whether an intact block begins before `up_to`.
pub(in crate::segment) fn has_block(window: &mut FileWindow, up_to: u64) -> io::Result<bool> {
    Ok(!find_blocks_in(window, up_to, 1)?.is_empty())
}

/// Finds at most `most` intact blocks that begin before `up_to`.
fn find_blocks_in(window: &mut FileWindow, up_to: u64, most: usize) -> io::Result<Vec<BlockEntry>> {
    let file_bytes = window.file_bytes()?;
    let raw_max = raw_bytes_max(&**window.file())?;
    let limit = HashBudget::limit(file_bytes);
    let (mut blocks, mut offset, mut budget) = (Vec::new(), 0, HashBudget::default());
    while offset < file_bytes.min(up_to) && blocks.len() < most && budget.spent < limit {
        let Some(declared) = declared_bytes(window.at(offset, LENGTH_BYTES)?, offset, file_bytes) else {
            offset = next_identifier(window, offset + 1, file_bytes)?;
            continue;
        };
        let Ok(DeframeStatus::Frame(frame)) = deframer().deframe(window.at(offset, declared)?) else {
            budget.spend(declared as u64);
            offset = next_identifier(window, offset + 1, file_bytes)?;
            continue;
        };
        let bytes = frame.bytes().len();
        if let Some(entry) = parse_block_entry(frame.payload(), offset, bytes)
            && entry.raw_end() <= raw_max
        {
            blocks.push(entry);
        }
        offset += bytes as u64;
    }
    Ok(blocks)
}

/// Returns the maximum raw offset that is accepted in a file without a table of blocks.
pub(in crate::segment) fn raw_bytes_max(file: &dyn ReadAt) -> io::Result<u64> {
    Ok(file.length()?.saturating_mul(RAW_BYTES_PER_BYTE))
}

/// The content of a file after the last known block.
pub(in crate::segment) enum NextBlock {
    /// A block.
    Block(BlockEntry),
    /// Another frame.
    Other,
    /// The file ends here, or the frame is not complete.
    Nothing,
}

/// Reads the frame at `offset`, at which the next block may begin.
pub(in crate::segment) fn next_block(
    file: &dyn ReadAt,
    offset: u64,
    frame: &mut Vec<u8>,
) -> io::Result<NextBlock> {
    let mut head = [0; LENGTH_BYTES];
    if file.read_all_at(&mut head, offset)? < head.len() {
        return Ok(NextBlock::Nothing);
    }
    let Some(declared) = declared_bytes(&head, offset, file.length()?) else {
        return Ok(NextBlock::Nothing);
    };
    frame.clear();
    frame.resize(declared, 0);
    if file.read_all_at(frame, offset)? < frame.len() {
        return Ok(NextBlock::Nothing);
    }
    Ok(match deframer().deframe(frame) {
        Ok(DeframeStatus::Frame(found)) => {
            match parse_block_entry(found.payload(), offset, found.bytes().len()) {
                Some(entry) => NextBlock::Block(entry),
                None => NextBlock::Other,
            }
        }
        _ => NextBlock::Nothing,
    })
}

/// Returns the length of the frame at `offset`, header included, according to the frame's length
/// field. Returns `None` if this length is impossible.
fn declared_bytes(head: &[u8], offset: u64, file_bytes: u64) -> Option<usize> {
    let length = u64::from(u32::from_le_bytes(*head.first_chunk::<LENGTH_BYTES>()?));
    let declared = deframer().header_bytes() as u64 + length;
    let fits = declared <= BLOCK_FRAME_BYTES_MAX && offset.saturating_add(declared) <= file_bytes;
    usize::try_from(declared).ok().filter(|_| fits && length > 0)
}

/// Returns the offset of the next frame at or after `from` that may be a block. Returns the end of
/// the file if there is none.
fn next_identifier(window: &mut FileWindow, from: u64, file_bytes: u64) -> io::Result<u64> {
    let found = window.find(IDENTIFIER, from + IDENTIFIER_AT, file_bytes)?;
    Ok(found.map_or(file_bytes, |at| at - IDENTIFIER_AT))
}

/// Fills the gaps between the found blocks with entries for missing blocks. If two blocks overlap,
/// keeps the block with the lower raw offset.
pub(in crate::segment) fn with_missing_blocks(mut found: Vec<BlockEntry>) -> Vec<BlockEntry> {
    found.sort_unstable();
    let mut blocks: Vec<BlockEntry> = Vec::with_capacity(found.len());
    for entry in found {
        let mut raw_end = blocks.last().map_or(0, BlockEntry::raw_end);
        if entry.raw_offset < raw_end {
            continue;
        }
        // A missing range that is too long for one entry is split. The block after such a range is
        // probably forged.
        while raw_end < entry.raw_offset {
            let missing = u32::try_from(entry.raw_offset - raw_end).unwrap_or(u32::MAX);
            let offset = blocks.last().map_or(0, BlockEntry::end);
            blocks.push(BlockEntry { raw_offset: raw_end, offset, raw_bytes: missing, bytes: 0 });
            raw_end += u64::from(missing);
        }
        blocks.push(entry);
    }
    blocks
}
