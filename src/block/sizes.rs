//! What became of each source's frames in a block: as it is told when the block is made, and found out again from the block alone.

use std::collections::BTreeMap;

use super::decode::{Decoder, Packed, Parts};
use super::error::Fault;
use super::rows::every_payload;
use super::sort::source_of;
use crate::schema::segment as wire;

/// What became of a source's frames in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceSize {
    /// Its id. Frames that are of no source, such as those of the recorder, are not counted.
    pub source: u16,
    /// Length of its whole frames, in bytes.
    pub raw_bytes: u64,
    /// Its share of the block, in bytes: what only it needs, and of all else as much as its frames have of the raw bytes.
    pub stored_bytes: u64,
}

/// Shares out what no source of a block has alone, once `sizes` have what each has alone; `raw_bytes` and `stored_bytes` are the block's.
pub(super) fn share(sizes: &mut [SourceSize], raw_bytes: u64, stored_bytes: u64) {
    let own: u64 = sizes.iter().map(|size| size.stored_bytes).sum();
    let common = stored_bytes.saturating_sub(own);
    for size in sizes {
        // Of a block that was made both are below 2^28; of a stranger's at most what its limits say.
        size.stored_bytes += common.saturating_mul(size.raw_bytes) / raw_bytes.max(1);
    }
}

impl Decoder {
    /// What became of each source's frames in the payload of a Block frame, by their ids: what [`Encoder::sizes`](super::Encoder::sizes) told when it
    /// was made. Only payloads that are not rows of a matrix are unpacked for that.
    ///
    /// # Errors
    /// What is wrong with what had to be read.
    pub fn sizes(&mut self, payload: &[u8]) -> Result<Vec<SourceSize>, Fault> {
        let block = Packed::open(payload)?;
        let mut parts = Parts::new(self.decompressor(), &block)?;
        let mut sums: BTreeMap<u16, (u64, u64)> = BTreeMap::new(); // raw, and what only it needs
        for group in block.groups {
            match group.layout() {
                wire::BlockLayout::Matrix => {
                    let sum = sums.entry(group.source()).or_default();
                    let frame_bytes = block.checksum.frame_bytes(0) as u64 + u64::from(group.row_bytes());
                    // Not more than the block says: that was looked at.
                    sum.0 += u64::from(group.frames()) * frame_bytes;
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
                    every_payload(group, &mut parts, count)?;
                }
                // Nobody knows whose frames with wrong checksums are.
                wire::BlockLayout::Frames => {}
                _ => return Err(Fault::Group("has a layout that this build does not know")),
            }
        }
        let size = |(source, (raw_bytes, stored_bytes))| SourceSize { source, raw_bytes, stored_bytes };
        let mut sizes: Vec<SourceSize> = sums.into_iter().map(size).collect();
        share(&mut sizes, block.raw_bytes as u64, payload.len() as u64);
        Ok(sizes)
    }
}
