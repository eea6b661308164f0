//! Payloads without frames, gathered for a block.

use flatcap_stream::ChecksumKind;
use flatcap_stream::short_bytes::append;

/// The payloads of consecutive frames, for
/// [`BlockEncoder::append_payloads`](crate::block::BlockEncoder::append_payloads). Frames decoded
/// from the block have correct checksums. Clearing keeps the memory.
///
/// ```
/// use flatcap_format::block::{BlockDecoder, BlockEncoder, Payloads, SourceCompression};
/// use flatcap_stream::ChecksumKind;
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

    /// Appends a payload. The encoder refuses payloads that do not fit a block.
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
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Returns whether there are no payloads.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns the length of the frames of these payloads with a checksum kind, in bytes.
    pub fn frames_bytes(&self, checksum: ChecksumKind) -> u64 {
        (self.bytes.len() + self.lengths.len() * checksum.frame_bytes(0)) as u64
    }

    /// Returns the payloads, concatenated.
    pub(in crate::block) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(in crate::block) fn lengths(&self) -> &[u32] {
        &self.lengths
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
