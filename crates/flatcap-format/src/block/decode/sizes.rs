//! Computes the raw and stored bytes of each source in a block, in the encoder or from the encoded
//! block.

use std::collections::BTreeMap;

use super::decoder::BlockDecoder;
use super::seek::all_payloads;
use crate::block::checked_block::CheckedBlock;
use crate::block::error::BlockError;
use crate::block::layout::grouping::source_of;
use crate::schema::segment as wire;

/// The share of a source in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceSize {
    /// The source's id. Frames without a source, such as the recorder's own frames, are not
    /// counted.
    pub source: u16,
    /// Length of the source's frames with their headers, in bytes.
    pub raw_bytes: u64,
    /// The source's part of the stored block, in bytes. This is the data of groups with only this
    /// source, plus a share of all other bytes in proportion to the source's raw bytes.
    pub stored_bytes: u64,
}

/// Distributes the bytes that belong to no single source among all sources, in proportion to their
/// raw bytes. On entry, `sizes` contains the bytes of the groups that belong to one source.
/// `raw_bytes` and `stored_bytes` are the sizes of the block.
pub(in crate::block) fn distribute_common(sizes: &mut [SourceSize], raw_bytes: u64, stored_bytes: u64) {
    let own: u64 = sizes.iter().map(|size| size.stored_bytes).sum();
    let common = stored_bytes.saturating_sub(own);
    for size in sizes {
        // This cannot overflow in blocks that we write, because both factors are below 2^28. In
        // other blocks, both factors are within the limits. A malformed block may state 0 raw
        // bytes.
        size.stored_bytes += common.saturating_mul(size.raw_bytes) / raw_bytes.max(1);
    }
}

impl BlockDecoder {
    /// Returns the share of each source in a Block frame's payload, ordered by id. The result
    /// equals [`BlockEncoder::sizes`](crate::block::BlockEncoder::sizes) of the encoder that made
    /// the block. Decompresses only the groups that contain payloads of several sources.
    ///
    /// # Errors
    /// Fails if the parts that had to be read are malformed.
    pub(crate) fn sizes(&mut self, payload: &[u8]) -> Result<Vec<SourceSize>, BlockError> {
        let block = CheckedBlock::open(payload)?;
        let mut parts = self.parts(&block)?;
        // For each source, its raw bytes and the stored bytes of the groups with only this source.
        let mut sums: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
        for group in block.groups {
            match group.layout() {
                wire::BlockLayout::Matrix => {
                    let sum = sums.entry(group.source()).or_default();
                    let frame_bytes = block.checksum.frame_bytes(0) as u64 + u64::from(group.row_bytes());
                    // The product is not higher than the block's raw bytes. Opening the block has
                    // checked this.
                    sum.0 += u64::from(group.frames()) * frame_bytes;
                    sum.1 += parts.stored_bytes(group);
                }
                wire::BlockLayout::Payloads if group.one_source() => {
                    let sum = sums.entry(group.source()).or_default();
                    let frame_bytes = |length: &u32| block.checksum.frame_bytes(*length as usize) as u64;
                    sum.0 += parts.lengths(group)?.iter().map(frame_bytes).sum::<u64>();
                    sum.1 += parts.stored_bytes(group);
                }
                wire::BlockLayout::Payloads => {
                    let count = |payload: &[u8]| {
                        if let Some(source) = source_of(payload) {
                            let frame_bytes = block.checksum.frame_bytes(payload.len());
                            sums.entry(source).or_default().0 += frame_bytes as u64;
                        }
                        true
                    };
                    all_payloads(group, &mut parts, count)?;
                }
                // This group contains no samples.
                wire::BlockLayout::Copies => {}
                _ => return Err(BlockError::Group("has an unknown layout")),
            }
        }
        let size = |(source, (raw_bytes, stored_bytes))| SourceSize { source, raw_bytes, stored_bytes };
        let mut sizes: Vec<SourceSize> = sums.into_iter().map(size).collect();
        distribute_common(&mut sizes, block.raw_bytes as u64, payload.len() as u64);
        Ok(sizes)
    }
}
