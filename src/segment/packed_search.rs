//! The blocks of a packed segment whose table is damaged, by their own words.

use std::io;

use memchr::memmem;

use super::footer::BlockEntry;
use super::packed::{BLOCK_FRAME_BYTES_MAX, IDENTIFIER, deframer, is_long_enough};
use super::window::Window;
use crate::block::RAW_BYTES_MAX;
use crate::os::storage::ReadAt;
use crate::schema::segment as wire;
use crate::stream::{LENGTH_BYTES, SliceDeframer, Step};

/// How much is searched at once for the next block.
const SEARCH_BYTES: usize = 256 << 10;
/// Where in a frame its identifier stands: behind the frame's header and the FlatBuffer's root offset.
const IDENTIFIER_AT: usize = 12 + 4;
/// Bytes that may be hashed in vain before the first byte of the file, and for each byte of it: bounds the work on hostile input.
pub(super) const HASHED_IN_VAIN_MIN: u64 = 64 << 20;
pub(super) const HASHED_IN_VAIN_PER_BYTE: u64 = 8;
/// Highest raw offset that is believed without a table, for each byte of the file: that of the longest blocks in the shortest frames. Any less would
/// be a guess at how small data can become, and equal payloads become 8,000 times smaller and more.
const RAW_BYTES_PER_BYTE: u64 = RAW_BYTES_MAX / BLOCK_FRAME_BYTES_MIN;
/// No frame of a block is shorter: a header, and a table with an identifier.
const BLOCK_FRAME_BYTES_MIN: u64 = 64;

/// Every intact block of a file, in its order.
pub(super) fn find_blocks(window: &mut Window) -> io::Result<Vec<BlockEntry>> {
    find_blocks_in(window, u64::MAX, usize::MAX)
}

/// Whether an intact block stands in a file, up to an offset.
pub(super) fn has_block(window: &mut Window, up_to: u64) -> io::Result<bool> {
    Ok(!find_blocks_in(window, up_to, 1)?.is_empty())
}

/// At most so many intact blocks of a file that begin before an offset.
fn find_blocks_in(window: &mut Window, up_to: u64, most: usize) -> io::Result<Vec<BlockEntry>> {
    let file_bytes = window.file_bytes()?;
    let raw_max = raw_bytes_max(&**window.file())?;
    let budget = HASHED_IN_VAIN_MIN.saturating_add(file_bytes.saturating_mul(HASHED_IN_VAIN_PER_BYTE));
    let (mut blocks, mut offset, mut in_vain) = (Vec::new(), 0, 0_u64);
    while offset < file_bytes.min(up_to) && blocks.len() < most && in_vain < budget {
        let Some(claimed) = claimed_bytes(window, offset, file_bytes)? else {
            offset = next_identifier(window, offset + 1, file_bytes)?;
            continue;
        };
        let Ok(Step::Frame(frame)) = deframer().deframe(window.at(offset, claimed)?) else {
            in_vain = in_vain.saturating_add(claimed as u64);
            offset = next_identifier(window, offset + 1, file_bytes)?;
            continue;
        };
        let bytes = frame.bytes().len();
        if let Some(entry) = entry_of(frame.payload(), offset, bytes)
            && entry.raw_end() <= raw_max
        {
            blocks.push(entry);
        }
        offset += bytes as u64;
    }
    Ok(blocks)
}

/// Highest raw offset that is believed of a file without a table.
pub(super) fn raw_bytes_max(file: &dyn ReadAt) -> io::Result<u64> {
    Ok(file.length()?.saturating_mul(RAW_BYTES_PER_BYTE))
}

/// What stands behind the last block of a file.
pub(super) enum Behind {
    /// A block.
    Block(BlockEntry),
    /// Another frame.
    Other,
    /// No whole frame.
    Nothing,
}

/// What stands at a place where a block would begin.
pub(super) fn block_behind(file: &dyn ReadAt, offset: u64, frame: &mut Vec<u8>) -> io::Result<Behind> {
    let mut head = [0; LENGTH_BYTES];
    if file.read_all_at(&mut head, offset)? < head.len() {
        return Ok(Behind::Nothing);
    }
    let length = u64::from(u32::from_le_bytes(head));
    let claimed = deframer().header_bytes() as u64 + length;
    if length == 0 || claimed > BLOCK_FRAME_BYTES_MAX || offset.saturating_add(claimed) > file.length()? {
        return Ok(Behind::Nothing);
    }
    frame.clear();
    frame.resize(usize::try_from(claimed).map_err(io::Error::other)?, 0);
    if file.read_all_at(frame, offset)? < frame.len() {
        return Ok(Behind::Nothing);
    }
    Ok(match deframer().deframe(frame) {
        Ok(Step::Frame(found)) => match entry_of(found.payload(), offset, found.bytes().len()) {
            Some(entry) => Behind::Block(entry),
            None => Behind::Other,
        },
        _ => Behind::Nothing,
    })
}

/// The length of the frame at a place, with its header, by its own word; none if it cannot be one.
fn claimed_bytes(window: &mut Window, offset: u64, file_bytes: u64) -> io::Result<Option<usize>> {
    let header_bytes = deframer().header_bytes();
    let head = window.at(offset, header_bytes)?;
    let Some(length) = head.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length)) else {
        return Ok(None);
    };
    let claimed = header_bytes as u64 + u64::from(length);
    let fits = claimed <= BLOCK_FRAME_BYTES_MAX && offset.saturating_add(claimed) <= file_bytes;
    Ok(usize::try_from(claimed).ok().filter(|_| fits && length > 0))
}

/// What the payload of a frame says of the block that it is; none if it is none.
pub(super) fn entry_of(payload: &[u8], offset: u64, bytes: usize) -> Option<BlockEntry> {
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
    (is_long_enough(&entry) && block.raw_offset().checked_add(block.raw_bytes()).is_some()).then_some(entry)
}

/// Where the next frame that may be a block begins, from `from` on; the file's end if there is none.
fn next_identifier(window: &mut Window, from: u64, file_bytes: u64) -> io::Result<u64> {
    let mut at = from + IDENTIFIER_AT as u64;
    while at < file_bytes {
        let wanted = usize::try_from(file_bytes - at).unwrap_or(usize::MAX).min(SEARCH_BYTES);
        let stretch = window.at(at, wanted)?;
        let stretch = stretch.get(..wanted).unwrap_or(stretch);
        if let Some(found) = memmem::find(stretch, IDENTIFIER) {
            return Ok(at + found as u64 - IDENTIFIER_AT as u64);
        }
        // One may begin at the end of this stretch.
        at += stretch.len().saturating_sub(IDENTIFIER.len() - 1).max(1) as u64;
    }
    Ok(file_bytes)
}
