//! The table of blocks, which a writer builds while it writes a compressed file. The table
//! determines the offset of the next block, and contains the entries for the footer of the
//! compressed file.

use std::io;

use super::footer::{BlockEntry, Footer};
use super::footer_totals::FooterTotals;
use super::header::SegmentHeader;
use crate::block::{BlockFeatures, SourceSize};

/// Offsets and lengths of the blocks of a compressed file, and the sizes of its sources.
#[derive(Debug, Clone, Default)]
pub(in crate::segment) struct BlockTable {
    blocks: Vec<BlockEntry>,
    features: BlockFeatures,
    sizes: Vec<SourceSize>,
    bytes: u64,        // length of the file
    lacks_sizes: bool, // the sizes of some blocks are not known
    // Whether each block contains only the frames of one write, because the segment is compressed
    // while it is recorded.
    is_recording: bool,
}

impl BlockTable {
    /// Creates the table for a file that is compressed while it is recorded.
    pub(in crate::segment) fn while_recording() -> Self {
        Self { is_recording: true, ..Self::default() }
    }

    /// Creates the table for a file that already contains these consecutive blocks. `features` are
    /// the features that the blocks may have. `sizes` are the sizes of the file's sources, or
    /// `None` if the sizes are unknown.
    pub(in crate::segment) fn resume(
        blocks: Vec<BlockEntry>,
        features: BlockFeatures,
        sizes: Option<Vec<SourceSize>>,
    ) -> Self {
        let bytes = blocks.last().map_or(0, BlockEntry::end);
        let lacks_sizes = sizes.is_none();
        let sizes = sizes.unwrap_or_default();
        Self { blocks, features, bytes, lacks_sizes, is_recording: true, sizes }
    }

    /// Returns the features that the blocks may have.
    pub(in crate::segment) fn features(&self) -> BlockFeatures {
        self.features
    }

    /// Returns the length of the file so far, in bytes.
    pub(in crate::segment) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of blocks.
    pub(in crate::segment) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the raw offset at which the next block begins.
    pub(in crate::segment) fn raw_end(&self) -> u64 {
        self.blocks.last().map_or(0, BlockEntry::raw_end)
    }

    /// Counts bytes of the file that belong to frames other than blocks.
    pub(in crate::segment) fn add_other_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Adds the next block. The arguments are the block's uncompressed length, the length of its
    /// frame, and the features and source sizes that the encoder reports.
    ///
    /// # Errors
    /// Returns `InvalidInput` if either length does not fit into 32 bits.
    pub(in crate::segment) fn add(
        &mut self,
        raw_bytes: u64,
        bytes: u64,
        features: BlockFeatures,
        sizes: &[SourceSize],
    ) -> io::Result<()> {
        let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, "a block that is too long");
        let entry = BlockEntry {
            raw_offset: self.raw_end(),
            offset: self.bytes,
            raw_bytes: u32::try_from(raw_bytes).map_err(invalid)?,
            bytes: u32::try_from(bytes).map_err(invalid)?,
        };
        self.blocks.push(entry);
        self.features = self.features.and(features);
        self.bytes += bytes;
        if !self.lacks_sizes {
            add_sizes(&mut self.sizes, sizes);
        }
        Ok(())
    }

    /// Returns the footer of the compressed file, which follows the last block. The footer has no
    /// latency histograms, because they are in the raw footer, in the last block.
    pub(in crate::segment) fn footer(&mut self, header: SegmentHeader, raw: &Footer) -> Footer {
        let mut totals = raw.totals.clone();
        totals.iter_mut().for_each(FooterTotals::clear_latencies);
        Footer {
            header,
            index: Vec::new(),
            bytes: self.bytes,
            blocks: std::mem::take(&mut self.blocks),
            sizes: std::mem::take(&mut self.sizes),
            small_blocks: self.is_recording,
            totals,
            features: self.features,
            frames: raw.frames,
            reorder_window_ns: raw.reorder_window_ns,
            recovered: raw.recovered,
        }
    }
}

/// Adds the sizes of sources in another block to the sums.
pub(in crate::segment) fn add_sizes(sums: &mut Vec<SourceSize>, sizes: &[SourceSize]) {
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
