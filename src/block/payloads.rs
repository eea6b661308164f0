//! Payloads without their frames: gathered for a block, and given from one. No frame is made on the way, and no checksum of one.

use super::decode::{Block, Decoder, Group, Packed, Parts};
use super::error::Fault;
use super::sort::is_block;
use super::wanted::Wanted;
use crate::schema::segment as wire;
use crate::stream::{ChecksumKind, append};

/// The payloads of consecutive frames, to be packed by [`Encoder::append_payloads`](super::Encoder::append_payloads): the frames that come out of
/// the block have the checksums that belong to them. Keeps its memory when it is cleared.
///
/// ```
/// use flatcap::block::{Decoder, Encoder, Payloads, Ways};
/// use flatcap::stream::ChecksumKind;
///
/// let mut payloads = Payloads::new();
/// payloads.push(b"one");
/// payloads.push(b"another");
/// let mut block = Vec::new();
/// Encoder::new(Ways::default()).append_payloads(&payloads, 0, ChecksumKind::Xxh3, &mut block)?;
/// let mut lengths = Vec::new();
/// Decoder::default().payloads(&block, |payload| lengths.push(payload.len()))?;
/// assert_eq!(lengths, [3, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Payloads {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl Payloads {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one. What is too much for a block, the encoder says.
    #[inline]
    pub fn push(&mut self, payload: &[u8]) {
        append(&mut self.bytes, payload);
        // One of 4 GiB fits into no block, whichever length it says.
        self.lengths.push(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    }

    /// Appends one that lies in two pieces, such as an envelope and what it is of.
    #[inline]
    pub fn push_both(&mut self, front: &[u8], back: &[u8]) {
        append(&mut self.bytes, front);
        append(&mut self.bytes, back);
        self.lengths.push(u32::try_from(front.len() + back.len()).unwrap_or(u32::MAX));
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Length of their frames with checksums of a kind.
    pub fn frames_bytes(&self, checksum: ChecksumKind) -> u64 {
        (self.bytes.len() + self.lengths.len() * checksum.frame_bytes(0)) as u64
    }

    /// One behind the other.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn lengths(&self) -> &[u32] {
        &self.lengths
    }
}

impl Decoder {
    /// Gives the payload of each frame in the payload of a Block frame, in the order of the frames, and makes no frames: no checksum of theirs
    /// is calculated, since a block holds none of frames that were right. Those with wrong checksums are left out; how many,
    /// is returned. What is neither packed nor mixed with other layouts is not even copied.
    ///
    /// # Errors
    /// What is wrong with the block; some payloads may have been given by then.
    pub fn payloads(&mut self, payload: &[u8], mut each: impl FnMut(&[u8])) -> Result<usize, Fault> {
        const LENGTH: Fault = Fault::Group("has another length than its frames need");
        let block = Packed::open(payload)?;
        let Some(group) = block.only_group().filter(|group| group.layout() == wire::BlockLayout::Payloads)
        else {
            let block = self.open(payload, &Wanted::ALL)?;
            let left_out = block.each_payload(each);
            self.reuse(block);
            return Ok(left_out);
        };
        let (decompressor, spare) = self.split();
        let mut parts = Parts::new(decompressor, &block)?;
        parts.lengths_into(group, &mut spare.room, &mut spare.lengths)?;
        let bytes = parts.look(group.first_part() as usize + 1, &mut spare.bytes)?;
        let sum: u64 = spare.lengths.iter().map(|length| u64::from(*length)).sum();
        if sum != bytes.len() as u64 || sum + block.heads_bytes() != block.raw_bytes as u64 {
            return Err(LENGTH);
        }
        let mut rest = bytes;
        for length in &spare.lengths {
            let (own, behind) = rest.split_at_checked(*length as usize).ok_or(LENGTH)?;
            if is_block(own) {
                return Err(Fault::Group("holds a block, and a block holds no blocks"));
            }
            each(own);
            rest = behind;
        }
        Ok(0)
    }
}

impl Block {
    /// Gives the payload of each frame, in the order of the frames, without making frames or checksums. Those with wrong checksums are left out;
    /// how many, is returned. What was not wanted when the block was opened stands in them as in the first one of the same shape.
    pub fn each_payload(&self, mut each: impl FnMut(&[u8])) -> usize {
        let first = |group: &Group| match group {
            Group::Matrix(decoded) => decoded.first().to_vec(),
            _ => Vec::new(),
        };
        let mut rows: Vec<Vec<u8>> = self.groups.iter().map(first).collect();
        let head_bytes = self.checksum.frame_bytes(0);
        let mut left_out = 0;
        for (number, frame) in self.frames.iter().enumerate() {
            let (at, group) = (frame.at as usize, usize::from(frame.group));
            match (self.groups.get(group), rows.get_mut(group)) {
                (Some(Group::Matrix(decoded)), Some(row)) => {
                    decoded.patch(at, row);
                    each(row);
                }
                (Some(Group::Payloads(bytes)), _) => {
                    let payload_bytes = self.frame_bytes(number).saturating_sub(head_bytes);
                    each(bytes.get(at..at + payload_bytes).unwrap_or_default());
                }
                _ => left_out += 1,
            }
        }
        left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pieces_are_one_payload() {
        // Goal: a payload in two pieces is the same as in one. Method: every cut of lengths around those that are moved in a special way.
        let bytes: Vec<u8> = (0..200).collect();
        let (mut whole, mut both) = (Payloads::new(), Payloads::new());
        for (length, cut) in (0..=bytes.len()).flat_map(|length| (0..=length).map(move |cut| (length, cut))) {
            let payload = &bytes[bytes.len() - length..];
            whole.push(payload);
            both.push_both(&payload[..cut], &payload[cut..]);
        }
        assert_eq!((whole.len(), &whole), (201 * 202 / 2, &both));
        assert!(whole.bytes().ends_with(&bytes) && whole.lengths().ends_with(&[200]));
    }
}
