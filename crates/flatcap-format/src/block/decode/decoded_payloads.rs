//! Payloads read from a block, without making frames or checksums.

use super::decoder::{Block, BlockDecoder, DecodedGroup};
use crate::block::checked_block::CheckedBlock;
use crate::block::error::BlockError;
use crate::block::selection::ColumnSelection;
use crate::schema::segment as wire;

impl BlockDecoder {
    /// Calls `each` with the payload of every frame in a Block frame's payload, in order. Makes
    /// neither frames nor checksums: a block does not store checksums. Data stored without a codec
    /// and in one group is not copied.
    ///
    /// # Errors
    /// The block is malformed. `each` may already have been called for some payloads.
    pub fn payloads(&mut self, payload: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), BlockError> {
        const LENGTH: BlockError = BlockError::Group("does not have the length that its frames need");
        let block = CheckedBlock::open(payload)?;
        let Some(group) = block.single_group().filter(|group| group.layout() == wire::BlockLayout::Payloads)
        else {
            let block = self.open(payload, &ColumnSelection::ALL)?;
            block.each_payload(each);
            self.reuse(block);
            return Ok(());
        };
        let (mut parts, spare) = self.parts_and_buffers(&block)?;
        parts.lengths_into(group, &mut spare.compressed_lengths, &mut spare.lengths)?;
        let bytes = parts.borrow(group.first_part() as usize + 1, &mut spare.bytes)?;
        // Makes the same checks as `locate_frames`, without a list of frames.
        let sum: u64 = spare.lengths.iter().map(|length| u64::from(*length)).sum();
        if sum != bytes.len() as u64 || sum + block.frame_headers_bytes() != block.raw_bytes as u64 {
            return Err(LENGTH);
        }
        let mut rest = bytes;
        for length in &spare.lengths {
            let (own, after) = rest.split_at_checked(*length as usize).ok_or(LENGTH)?;
            CheckedBlock::check_payload(group, own)?;
            each(own);
            rest = after;
        }
        Ok(())
    }
}

impl Block {
    /// Calls `each` with the payload of every frame, in order, without making frames or checksums.
    /// Fields that were not selected on opening have the values of the first row of the same shape.
    pub(crate) fn each_payload(&self, mut each: impl FnMut(&[u8])) {
        let first = |group: &DecodedGroup| match group {
            DecodedGroup::Matrix(decoded) => decoded.first().to_vec(),
            DecodedGroup::Payloads(_) => Vec::new(),
        };
        // One row for each matrix is patched from frame to frame, so constants are copied once.
        let mut rows: Vec<Vec<u8>> = self.groups.iter().map(first).collect();
        let header_bytes = self.checksum.frame_bytes(0);
        for (number, frame) in self.frames.iter().enumerate() {
            let (at, group) = (frame.position as usize, usize::from(frame.group));
            match (self.groups.get(group), rows.get_mut(group)) {
                (Some(DecodedGroup::Matrix(decoded)), Some(row)) => {
                    decoded.patch_row(at, row);
                    each(row);
                }
                (Some(DecodedGroup::Payloads(bytes)), _) => {
                    let payload_bytes = self.frame_bytes(number).saturating_sub(header_bytes);
                    each(bytes.get(at..at + payload_bytes).unwrap_or_default());
                }
                _ => {}
            }
        }
    }
}
