//! Payloads without frames: gathered for a block and read from one. Neither frames nor their
//! checksums are made.

use super::decode::{Block, BlockDecoder, CheckedBlock, DecodedGroup, PartReader};
use super::error::BlockError;
use super::grouping::is_block;
use super::selection::ColumnSelection;
use crate::schema::segment as wire;
use crate::stream::{ChecksumKind, append};

/// The payloads of consecutive frames, for
/// [`BlockEncoder::append_payloads`](super::BlockEncoder::append_payloads). Frames decoded from the
/// block have correct checksums. Clearing keeps the memory.
///
/// ```
/// use flatcap::block::{BlockDecoder, BlockEncoder, Payloads, SourceCompression};
/// use flatcap::stream::ChecksumKind;
///
/// let mut payloads = Payloads::new();
/// payloads.push(b"one");
/// payloads.push(b"another");
/// let mut block = Vec::new();
/// let mut encoder = BlockEncoder::new(SourceCompression::default());
/// encoder.append_payloads(&payloads, 0, ChecksumKind::Xxh3, &mut block)?;
/// let mut lengths = Vec::new();
/// BlockDecoder::default().payloads(&block, |payload| lengths.push(payload.len()))?;
/// assert_eq!(lengths, [3, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Payloads {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl Payloads {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a payload. The encoder refuses what does not fit a block.
    #[inline]
    pub fn push(&mut self, payload: &[u8]) {
        append(&mut self.bytes, payload);
        // A payload of 4 GiB fits no block, so the length may be capped.
        self.lengths.push(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    }

    /// Appends a payload given in two pieces, such as an envelope and its content.
    #[inline]
    pub fn push_two(&mut self, front: &[u8], back: &[u8]) {
        append(&mut self.bytes, front);
        append(&mut self.bytes, back);
        self.lengths.push(u32::try_from(front.len() + back.len()).unwrap_or(u32::MAX));
    }

    /// Removes all payloads.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }

    /// Returns the number of payloads.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are no payloads.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns the length of the payloads' frames with checksums of a kind.
    pub fn frames_bytes(&self, checksum: ChecksumKind) -> u64 {
        (self.bytes.len() + self.lengths.len() * checksum.frame_bytes(0)) as u64
    }

    /// Returns the payloads, concatenated.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn lengths(&self) -> &[u32] {
        &self.lengths
    }
}

impl BlockDecoder {
    /// Calls `each` with the payload of every frame in a Block frame's payload, in order. Makes
    /// neither frames nor checksums: a block does not store checksums that were correct. Skips
    /// frames with wrong checksums and returns their number. Data stored without a codec and in one
    /// group is not copied.
    ///
    /// # Errors
    /// The block is malformed. `each` may have been called before.
    pub fn payloads(&mut self, payload: &[u8], mut each: impl FnMut(&[u8])) -> Result<usize, BlockError> {
        const LENGTH: BlockError = BlockError::Group("does not have the length that its frames need");
        let block = CheckedBlock::open(payload)?;
        let Some(group) = block.single_group().filter(|group| group.layout() == wire::BlockLayout::Payloads)
        else {
            let block = self.open(payload, &ColumnSelection::ALL)?;
            let skipped = block.each_payload(each);
            self.reuse(block);
            return Ok(skipped);
        };
        let (decompressor, spare) = self.split();
        let mut parts = PartReader::new(decompressor, &block)?;
        parts.lengths_into(group, &mut spare.compressed_lengths, &mut spare.lengths)?;
        let bytes = parts.borrow(group.first_part() as usize + 1, &mut spare.bytes)?;
        // The same checks as those of `locate_frames`, without a list of frames.
        let sum: u64 = spare.lengths.iter().map(|length| u64::from(*length)).sum();
        if sum != bytes.len() as u64 || sum + block.frame_headers_bytes() != block.raw_bytes as u64 {
            return Err(LENGTH);
        }
        let mut rest = bytes;
        for length in &spare.lengths {
            let (own, after) = rest.split_at_checked(*length as usize).ok_or(LENGTH)?;
            if is_block(own) {
                return Err(BlockError::Group("contains a block, but blocks cannot be nested"));
            }
            each(own);
            rest = after;
        }
        Ok(0)
    }
}

impl Block {
    /// Calls `each` with the payload of every frame, in order, without making frames or checksums.
    /// Skips frames with wrong checksums and returns their number. Fields not selected on opening
    /// have the values of the first row of the same shape.
    pub fn each_payload(&self, mut each: impl FnMut(&[u8])) -> usize {
        let first = |group: &DecodedGroup| match group {
            DecodedGroup::Matrix(decoded) => decoded.first().to_vec(),
            _ => Vec::new(),
        };
        // One row for each matrix is patched from frame to frame, so constants are copied once.
        let mut rows: Vec<Vec<u8>> = self.groups.iter().map(first).collect();
        let header_bytes = self.checksum.frame_bytes(0);
        let mut skipped = 0;
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
                _ => skipped += 1,
            }
        }
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pieces_are_one_payload() {
        // Proves that a payload given in two pieces equals the same payload given whole.
        let bytes: Vec<u8> = (0..200).collect();
        let (mut whole, mut both) = (Payloads::new(), Payloads::new());
        for (length, cut) in (0..=bytes.len()).flat_map(|length| (0..=length).map(move |cut| (length, cut))) {
            let payload = &bytes[bytes.len() - length..];
            whole.push(payload);
            both.push_two(&payload[..cut], &payload[cut..]);
        }
        assert_eq!((whole.len(), &whole), (201 * 202 / 2, &both));
        assert!(whole.bytes().ends_with(&bytes) && whole.lengths().ends_with(&[200]));
    }
}
