//! The table of a packed file's blocks in the making: where the next one stands, and what the file's own footer says in the end.

use std::io;

use super::footer::{BlockEntry, Footer};
use super::header::Header;
use crate::block::SourceSize;

/// Where the blocks of a packed file stand, and what they hold.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockTable {
    blocks: Vec<BlockEntry>,
    sizes: Vec<SourceSize>,
    bytes: u64,         // of the file
    lacks_sizes: bool,  // of some blocks nobody knows them
    is_recording: bool, // the blocks are as small as what was recorded at once
}

impl BlockTable {
    /// Of a file that is packed while it is recorded.
    pub(super) fn recording() -> Self {
        Self { is_recording: true, ..Self::default() }
    }

    /// Of a file that holds these blocks already, one behind the other, and what became of their sources' frames; none where nobody knows.
    pub(super) fn behind(blocks: Vec<BlockEntry>, sizes: Option<Vec<SourceSize>>) -> Self {
        let bytes = blocks.last().map_or(0, BlockEntry::end);
        let lacks_sizes = sizes.is_none();
        Self { blocks, bytes, lacks_sizes, is_recording: true, sizes: sizes.unwrap_or_default() }
    }

    /// Length of the file so far, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Where the next block begins in the segment as it was recorded.
    pub(super) fn raw_end(&self) -> u64 {
        self.blocks.last().map_or(0, BlockEntry::raw_end)
    }

    /// Counts other frames of the file than blocks.
    pub(super) fn pass(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Counts the next block: its length unpacked and that of its frame.
    ///
    /// # Errors
    /// `InvalidInput`: it is too long.
    pub(super) fn add(&mut self, raw_bytes: u64, bytes: u64, sizes: &[SourceSize]) -> io::Result<()> {
        let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, "a block that is too long");
        let entry = BlockEntry {
            raw_offset: self.raw_end(),
            offset: self.bytes,
            raw_bytes: u32::try_from(raw_bytes).map_err(invalid)?,
            bytes: u32::try_from(bytes).map_err(invalid)?,
        };
        self.blocks.push(entry);
        self.bytes += bytes;
        if !self.lacks_sizes {
            add_sizes(&mut self.sizes, sizes);
        }
        Ok(())
    }

    /// The footer of the packed file, behind the last block.
    pub(super) fn footer(&mut self, header: Header, raw: &Footer) -> Footer {
        Footer {
            header,
            index: Vec::new(),
            bytes: self.bytes,
            blocks: std::mem::take(&mut self.blocks),
            sizes: std::mem::take(&mut self.sizes),
            small_blocks: self.is_recording,
            totals: raw.totals.clone(),
            frames: raw.frames,
            reorder_window_ns: raw.reorder_window_ns,
            recovered: raw.recovered,
        }
    }
}

/// Adds what became of sources' frames in one more block.
pub(super) fn add_sizes(sums: &mut Vec<SourceSize>, sizes: &[SourceSize]) {
    for size in sizes {
        match sums.iter_mut().find(|known| known.source == size.source) {
            Some(known) => {
                known.raw_bytes = known.raw_bytes.saturating_add(size.raw_bytes);
                known.stored_bytes = known.stored_bytes.saturating_add(size.stored_bytes);
            }
            None => sums.push(*size),
        }
    }
}
