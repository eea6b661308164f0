//! The bytes in front of a payload.

use super::checksum::ChecksumKind;
use super::error::{ErrorKind, Result};

/// Bytes of the payload's length.
pub const LENGTH_BYTES: usize = 4;
/// Bytes in front of a payload under the longest checksum.
pub const HEADER_BYTES_MAX: usize = LENGTH_BYTES + 8;

/// Length and checksum as they stand in front of a payload.
#[derive(Debug, Clone, Copy)]
pub struct FrameHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    size: u8,
}

impl FrameHeader {
    /// The header of `payload`.
    ///
    /// # Errors
    /// `FrameTooLarge` for a payload of 4 GiB or more, which the length cannot express.
    #[inline]
    pub fn new(kind: ChecksumKind, payload: &[u8]) -> Result<Self> {
        let Ok(length) = u32::try_from(payload.len()) else {
            return Err(ErrorKind::FrameTooLarge { declared: payload.len() as u64, limit: u32::MAX }.into());
        };
        let mut bytes = [0; HEADER_BYTES_MAX];
        let (front, back) = bytes.split_at_mut(LENGTH_BYTES);
        front.copy_from_slice(&length.to_le_bytes());
        back.copy_from_slice(&kind.calculate(payload).to_le_bytes());
        #[allow(clippy::cast_possible_truncation, reason = "at most HEADER_BYTES_MAX, which is 12")]
        let size = (LENGTH_BYTES + kind.size()) as u8;
        Ok(Self { bytes, size })
    }

    /// The bytes, as many as the checksum kind has.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.size)).unwrap_or_default()
    }
}

/// Length of a whole frame with a payload of `payload_bytes`.
#[inline]
pub const fn frame_bytes(kind: ChecksumKind, payload_bytes: usize) -> usize {
    LENGTH_BYTES + kind.size() + payload_bytes
}

/// Completes a frame in place: `frame` holds room for the header, and behind it the finished payload.
///
/// # Errors
/// `FrameTooLarge` for a payload of 4 GiB or more.
///
/// # Panics
/// `frame` is shorter than a header: a mistake of the caller.
#[inline]
pub fn seal(kind: ChecksumKind, frame: &mut [u8]) -> Result<()> {
    let (header, payload) = frame.split_at_mut(LENGTH_BYTES + kind.size());
    header.copy_from_slice(FrameHeader::new(kind, payload)?.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: framing in place gives the bytes of header and payload in a row. Method: all kinds, small payloads.
    #[test]
    fn sealing_in_place_equals_header_then_payload() {
        for &kind in ChecksumKind::ALL {
            for payload in [&b""[..], b"a", b"0123456789abcdef"] {
                let mut frame = vec![0xAA; frame_bytes(kind, 0)];
                frame.extend_from_slice(payload);
                seal(kind, &mut frame).unwrap();
                let mut expected = FrameHeader::new(kind, payload).unwrap().as_bytes().to_vec();
                expected.extend_from_slice(payload);
                assert_eq!(frame, expected);
            }
        }
    }

    // Goal: the wire format of flatstream 0.2.7, byte for byte. Method: its published frame of "abc".
    #[cfg(all(feature = "crc16", feature = "crc32", feature = "xxhash"))]
    #[test]
    fn golden_bytes() {
        let golden: [(ChecksumKind, &[u8]); 4] = [
            (ChecksumKind::None, &[]),
            (ChecksumKind::Crc16, &[0xd6, 0x9d]),
            (ChecksumKind::Crc32, &[0xc2, 0x41, 0x24, 0x35]),
            (ChecksumKind::Xxh3, &[0x50, 0x39, 0x2f, 0x89, 0x94, 0x5f, 0xaf, 0x78]),
        ];
        for (kind, checksum) in golden {
            let expected = [&[3, 0, 0, 0], checksum].concat();
            assert_eq!(FrameHeader::new(kind, b"abc").unwrap().as_bytes(), expected);
        }
    }
}
