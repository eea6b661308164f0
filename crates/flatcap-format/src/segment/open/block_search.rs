//! Finds the blocks of a compressed segment without its table, by their own fields.

use std::io;

use flatcap_stream::{DeframeStatus, LENGTH_BYTES, SliceDeframer};
use memchr::memmem;

use super::file_window::FileWindow;
use super::hash_budget::hash_budget;
use crate::block::RAW_BYTES_MAX;
use crate::segment::format::block_frame::{BLOCK_FRAME_BYTES_MAX, IDENTIFIER, deframer, parse_block_entry};
use crate::segment::format::footer::BlockEntry;
use crate::storage::ReadAt;

/// Bytes searched at once for the next block.
const SEARCH_BYTES: usize = 256 << 10;
/// Offset of the identifier in a frame: after the frame's header and the FlatBuffer's root offset.
const IDENTIFIER_AT: usize = 12 + 4;
/// Highest raw offset accepted without a table, for each byte of the file: that of the longest
/// blocks in the shortest frames. A lower limit would be a guess about compression; equal payloads
/// become more than 8,000 times smaller.
const RAW_BYTES_PER_BYTE: u64 = RAW_BYTES_MAX / BLOCK_FRAME_BYTES_MIN;
/// Shortest frame of a block: a header, and a table with an identifier.
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
    let budget = hash_budget(file_bytes);
    let (mut blocks, mut offset, mut wasted) = (Vec::new(), 0, 0_u64);
    while offset < file_bytes.min(up_to) && blocks.len() < most && wasted < budget {
        let Some(declared) = declared_bytes(window, offset, file_bytes)? else {
            offset = next_identifier(window, offset + 1, file_bytes)?;
            continue;
        };
        let Ok(DeframeStatus::Frame(frame)) = deframer().deframe(window.at(offset, declared)?) else {
            wasted = wasted.saturating_add(declared as u64);
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

/// Highest raw offset accepted in a file without a table.
pub(in crate::segment) fn raw_bytes_max(file: &dyn ReadAt) -> io::Result<u64> {
    Ok(file.length()?.saturating_mul(RAW_BYTES_PER_BYTE))
}

/// The frame after the last known block of a file.
pub(in crate::segment) enum NextBlock {
    /// A block.
    Block(BlockEntry),
    /// Another frame.
    Other,
    /// No complete frame.
    Nothing,
}

/// Reads the frame at `offset`, where a block may begin.
pub(in crate::segment) fn next_block(
    file: &dyn ReadAt,
    offset: u64,
    frame: &mut Vec<u8>,
) -> io::Result<NextBlock> {
    let mut head = [0; LENGTH_BYTES];
    if file.read_all_at(&mut head, offset)? < head.len() {
        return Ok(NextBlock::Nothing);
    }
    let length = u64::from(u32::from_le_bytes(head));
    let declared = deframer().header_bytes() as u64 + length;
    if length == 0 || declared > BLOCK_FRAME_BYTES_MAX || offset.saturating_add(declared) > file.length()? {
        return Ok(NextBlock::Nothing);
    }
    frame.clear();
    frame.resize(usize::try_from(declared).map_err(io::Error::other)?, 0);
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

/// Returns the length of the frame at `offset`, header included, by its length field; none if it is
/// impossible.
fn declared_bytes(window: &mut FileWindow, offset: u64, file_bytes: u64) -> io::Result<Option<usize>> {
    let header_bytes = deframer().header_bytes();
    let head = window.at(offset, header_bytes)?;
    let Some(length) = head.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length)) else {
        return Ok(None);
    };
    let declared = header_bytes as u64 + u64::from(length);
    let fits = declared <= BLOCK_FRAME_BYTES_MAX && offset.saturating_add(declared) <= file_bytes;
    Ok(usize::try_from(declared).ok().filter(|_| fits && length > 0))
}

/// Returns the offset at or after `from` of the next frame that may be a block; the file's end if
/// there is none.
fn next_identifier(window: &mut FileWindow, from: u64, file_bytes: u64) -> io::Result<u64> {
    let mut at = from + IDENTIFIER_AT as u64;
    while at < file_bytes {
        let wanted = usize::try_from(file_bytes - at).unwrap_or(usize::MAX).min(SEARCH_BYTES);
        let chunk = window.at(at, wanted)?;
        let chunk = chunk.get(..wanted).unwrap_or(chunk);
        if let Some(found) = memmem::find(chunk, IDENTIFIER) {
            return Ok(at + found as u64 - IDENTIFIER_AT as u64);
        }
        // An identifier may span two chunks.
        at += chunk.len().saturating_sub(IDENTIFIER.len() - 1).max(1) as u64;
    }
    Ok(file_bytes)
}
