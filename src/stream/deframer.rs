//! From bytes to frames without I/O: whoever has the bytes asks what stands at their front.

use super::checksum::ChecksumKind;
use super::error::{ErrorKind, Result};
use super::framer::LENGTH_BYTES;

/// How a stream is read: its checksum, and the longest payload that is believed.
#[derive(Debug, Clone, Copy)]
pub struct Deframer {
    kind: ChecksumKind,
    frame_max: u32,
}

/// What stands at the front of some bytes.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// A whole frame, its checksum right.
    Frame(Frame<'a>),
    /// The bytes end within a frame.
    Incomplete {
        /// Bytes that the frame needs in all, as far as can be told: its header, or header and payload.
        needed: usize,
    },
}

/// A whole frame; borrows the bytes it was found in.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    header_bytes: usize,
}

impl<'a> Frame<'a> {
    /// The frame as it stands in the stream: length, checksum, payload.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.header_bytes..).unwrap_or_default()
    }
}

impl Deframer {
    /// A deframer that believes any length the wire can express.
    pub const fn new(kind: ChecksumKind) -> Self {
        Self { kind, frame_max: u32::MAX }
    }

    /// The same, refusing payloads above `frame_max` bytes.
    #[must_use]
    pub const fn with_frame_max(self, frame_max: u32) -> Self {
        Self { frame_max, ..self }
    }

    /// The checksum it verifies.
    pub const fn kind(&self) -> ChecksumKind {
        self.kind
    }

    /// Bytes in front of each payload.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        LENGTH_BYTES + self.kind.size()
    }

    /// Looks at the front of `bytes`. Takes no memory, whatever the length there says.
    ///
    /// # Errors
    /// `FrameTooLarge`, `ChecksumMismatch`.
    #[inline]
    pub fn step<'a>(&self, bytes: &'a [u8]) -> Result<Step<'a>> {
        let header_bytes = self.header_bytes();
        let Some((length, behind)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(Step::Incomplete { needed: header_bytes });
        };
        let length = u32::from_le_bytes(*length);
        if length > self.frame_max {
            return Err(ErrorKind::FrameTooLarge { declared: length.into(), limit: self.frame_max }.into());
        }
        let needed = header_bytes + length as usize;
        let (Some(frame), Some(stored)) = (bytes.get(..needed), behind.get(..self.kind.size())) else {
            return Ok(Step::Incomplete { needed });
        };
        let frame = Frame { bytes: frame, header_bytes };
        let mut expected = [0; 8];
        if let Some(low) = expected.get_mut(..stored.len()) {
            low.copy_from_slice(stored);
        }
        let expected = u64::from_le_bytes(expected);
        let found = self.kind.calculate(frame.payload());
        if expected != found {
            return Err(ErrorKind::ChecksumMismatch { expected, found }.into());
        }
        Ok(Step::Frame(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::framer::FrameHeader;

    fn framed(kind: ChecksumKind, payload: &[u8]) -> Vec<u8> {
        [FrameHeader::new(kind, payload).unwrap().as_bytes(), payload].concat()
    }

    proptest! {
        // Goal: what is framed is read back, and any cut is told from a frame. Method: random payloads, every cut.
        #[test]
        fn round_trip_and_every_cut(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            for &kind in ChecksumKind::ALL {
                let bytes = framed(kind, &payload);
                let deframer = Deframer::new(kind);
                match deframer.step(&bytes).unwrap() {
                    Step::Frame(frame) => prop_assert_eq!(frame.payload(), &payload),
                    Step::Incomplete { .. } => prop_assert!(false, "a whole frame called incomplete"),
                }
                for cut in 0..bytes.len() {
                    match deframer.step(&bytes[..cut]).unwrap() {
                        Step::Incomplete { needed } => prop_assert!(needed > cut && needed <= bytes.len()),
                        Step::Frame(_) => prop_assert!(false, "a cut frame called whole"),
                    }
                }
            }
        }

        // Goal: any bytes at all give a frame, an end or an error. Method: random bytes, a low limit.
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for &kind in ChecksumKind::ALL {
                if let Ok(Step::Frame(frame)) = Deframer::new(kind).with_frame_max(32).step(&bytes) {
                    prop_assert!(frame.payload().len() <= 32);
                }
            }
        }
    }

    // Goal: a flipped bit in checksum or payload is found. Method: every bit of a frame but those of its length.
    #[cfg(feature = "xxhash")]
    #[test]
    fn every_flip_behind_the_length_is_found() {
        let bytes = framed(ChecksumKind::Xxh3, b"the quick brown fox");
        for bit in LENGTH_BYTES * 8..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Deframer::new(ChecksumKind::Xxh3).step(&damaged).unwrap_err().is_checksum_mismatch());
        }
    }
}
