//! Framers, which write a payload with its header to a sink or into a buffer.

use std::io::{ErrorKind, IoSlice, Write};

use super::checksum::{CHECKSUM_BYTES_MAX, Checksum};
use super::error::{Error, Result};
use super::short_bytes::copy;

/// Size of the length field, in bytes.
pub const LENGTH_BYTES: usize = 4;
/// Maximum size of a header in bytes, which is the length field and the widest checksum.
pub const HEADER_BYTES_MAX: usize = LENGTH_BYTES + CHECKSUM_BYTES_MAX;
/// Maximum length of a payload that the length field can express, in bytes.
pub const MAX_WIRE_FRAME_LEN: usize = u32::MAX as usize;

/// Writes payloads as frames.
///
/// A custom format needs to implement only this method. [`SliceFramer`] is for formats that can
/// also frame in memory.
pub trait Framer {
    /// Writes one frame.
    ///
    /// # Errors
    /// `InvalidFrame` if the format cannot express the payload. In this case nothing is written.
    /// `Io` if the sink fails.
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()>;
}

/// A framer that can frame in memory, because its frames are a header followed by the payload.
pub trait SliceFramer: Framer {
    /// Returns the length of the header, at most [`HEADER_BYTES_MAX`].
    fn header_bytes(&self) -> usize;

    /// Returns the header of `payload`.
    ///
    /// # Errors
    /// `InvalidFrame` if the format cannot express the payload.
    fn header(&self, payload: &[u8]) -> Result<FrameHeader>;

    /// Completes a frame in place. `frame` consists of free space for the header, followed by the
    /// finished payload.
    ///
    /// # Errors
    /// `InvalidFrame` if the format cannot express the payload, or `frame` is shorter than a
    /// header.
    #[inline]
    fn frame_in_place(&self, frame: &mut [u8]) -> Result<()> {
        let Some((header, payload)) = frame.split_at_mut_checked(self.header_bytes()) else {
            return Err(buffer_too_small(self.header_bytes(), frame.len()));
        };
        header.copy_from_slice(self.header(payload)?.as_bytes());
        Ok(())
    }

    /// Writes the frame of `payload` to the start of `output` and returns the length of the frame.
    ///
    /// # Errors
    /// `InvalidFrame` if the format cannot express the payload, or if `output` is too short;
    /// `output` is then unchanged.
    #[inline]
    fn frame_into(&self, output: &mut [u8], payload: &[u8]) -> Result<usize> {
        let needed = self.header_bytes() + payload.len();
        let header = self.header(payload)?;
        let Some(frame) = output.get_mut(..needed) else {
            return Err(buffer_too_small(needed, output.len()));
        };
        let (front, body) = frame.split_at_mut(self.header_bytes());
        front.copy_from_slice(header.as_bytes());
        copy(body, payload);
        Ok(needed)
    }
}

/// A framer that writes only the length before the payload: `[u32 LE: length][payload]`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DefaultFramer;

/// A framer that writes length and checksum before the payload: `[u32 LE: length][C::SIZE bytes LE:
/// checksum of the payload][payload]`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumFramer<C: Checksum> {
    checksum: C,
}

impl<C: Checksum> ChecksumFramer<C> {
    /// Creates a framer that uses `checksum_alg`. Does not compile for a checksum wider than 8
    /// bytes.
    pub fn new(checksum_alg: C) -> Self {
        const { assert!(C::SIZE <= CHECKSUM_BYTES_MAX, "a checksum has at most 8 bytes") };
        Self { checksum: checksum_alg }
    }
}

impl<C: Checksum> ChecksumFramer<C> {
    /// See
    /// [`ChecksumKind::frame_in_place_with_copy`](super::ChecksumKind::frame_in_place_with_copy).
    #[inline]
    pub(super) fn frame_in_place_with_copy(&self, frame: &mut [u8], header_copy: &mut [u8]) -> Result<()> {
        let available = frame.len().min(header_copy.len());
        let Some((front, payload)) = frame.split_at_mut_checked(self.header_bytes()) else {
            return Err(buffer_too_small(self.header_bytes(), available));
        };
        if header_copy.len() < self.header_bytes() {
            return Err(buffer_too_small(self.header_bytes(), available));
        }
        let (length, value) = (wire_length(payload)?, self.checksum.calculate(payload));
        write_header(&self.checksum, front, length, value);
        write_header(&self.checksum, header_copy, length, value);
        Ok(())
    }
}

impl Framer for DefaultFramer {
    #[inline]
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()> {
        write_frame(self, writer, payload)
    }
}

impl SliceFramer for DefaultFramer {
    #[inline]
    fn header_bytes(&self) -> usize {
        LENGTH_BYTES
    }

    #[inline]
    fn header(&self, payload: &[u8]) -> Result<FrameHeader> {
        FrameHeader::new(&super::checksum::NoChecksum, payload)
    }

    #[inline]
    fn frame_in_place(&self, frame: &mut [u8]) -> Result<()> {
        let available = frame.len();
        let Some((front, payload)) = frame.split_first_chunk_mut() else {
            return Err(buffer_too_small(LENGTH_BYTES, available));
        };
        *front = wire_length(payload)?.to_le_bytes();
        Ok(())
    }
}

impl<C: Checksum> Framer for ChecksumFramer<C> {
    #[inline]
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()> {
        write_frame(self, writer, payload)
    }
}

impl<C: Checksum> SliceFramer for ChecksumFramer<C> {
    #[inline]
    fn header_bytes(&self) -> usize {
        LENGTH_BYTES + C::SIZE
    }

    #[inline]
    fn header(&self, payload: &[u8]) -> Result<FrameHeader> {
        FrameHeader::new(&self.checksum, payload)
    }

    #[inline]
    fn frame_in_place(&self, frame: &mut [u8]) -> Result<()> {
        let available = frame.len();
        let Some((front, payload)) = frame.split_at_mut_checked(self.header_bytes()) else {
            return Err(buffer_too_small(self.header_bytes(), available));
        };
        write_header(&self.checksum, front, wire_length(payload)?, self.checksum.calculate(payload));
        Ok(())
    }

    #[inline]
    fn frame_into(&self, output: &mut [u8], payload: &[u8]) -> Result<usize> {
        let needed = self.header_bytes() + payload.len();
        let length = wire_length(payload)?;
        let available = output.len();
        let Some(frame) = output.get_mut(..needed) else { return Err(buffer_too_small(needed, available)) };
        let (front, body) = frame.split_at_mut(self.header_bytes());
        let value = self.checksum.copy_and_calculate(payload, body);
        write_header(&self.checksum, front, length, value);
        Ok(needed)
    }
}

/// The header of a frame, which is the length and the checksum.
#[derive(Debug, Clone, Copy)]
pub struct FrameHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    size: usize, // <= HEADER_BYTES_MAX
}

impl FrameHeader {
    /// Returns the header for `payload` with the checksum algorithm `checksum`.
    ///
    /// # Errors
    /// `InvalidFrame` for a payload of 4 GiB or more, which the length field cannot express.
    #[inline]
    pub fn new<C: Checksum>(checksum: &C, payload: &[u8]) -> Result<Self> {
        let length = wire_length(payload)?;
        let mut bytes = [0; HEADER_BYTES_MAX];
        // Does not call `write_header`, because with arrays of known lengths the header takes only
        // two stores. With slices, writing small frames to a vector takes 14 % more instructions.
        if let Some((front, back)) = bytes.split_first_chunk_mut::<LENGTH_BYTES>() {
            *front = length.to_le_bytes();
            if let Some(back) = back.first_chunk_mut::<CHECKSUM_BYTES_MAX>() {
                checksum.write_bytes(checksum.calculate(payload), back);
            }
        }
        Ok(Self { bytes, size: LENGTH_BYTES + C::SIZE })
    }

    /// Creates a header of a custom format from at most [`HEADER_BYTES_MAX`] bytes.
    pub fn from_bytes(header: &[u8]) -> Option<Self> {
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes.get_mut(..header.len())?.copy_from_slice(header);
        Some(Self { bytes, size: header.len() })
    }

    /// Returns the bytes of the header.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.size).unwrap_or_default()
    }
}

/// Writes header and payload in one vectored call if the sink supports vectored writes. A vectored
/// write takes one system call and no copy.
#[inline]
fn write_frame<F: SliceFramer, W: Write>(framer: &F, writer: &mut W, payload: &[u8]) -> Result<()> {
    let header = framer.header(payload)?;
    let header = header.as_bytes();
    let mut slices = [IoSlice::new(header), IoSlice::new(payload)];
    match writer.write_vectored(&slices) {
        Ok(count) if count == header.len() + payload.len() => Ok(()),
        written => write_rest(writer, &mut slices, written),
    }
}

/// Writes the remaining bytes after a first call that wrote only a part, was interrupted or failed.
#[cold]
fn write_rest<W: Write>(
    writer: &mut W,
    mut slices: &mut [IoSlice<'_>],
    written: std::io::Result<usize>,
) -> Result<()> {
    match written {
        Ok(0) => return Err(std::io::Error::from(ErrorKind::WriteZero).into()),
        Ok(count) => IoSlice::advance_slices(&mut slices, count),
        Err(error) if error.kind() == ErrorKind::Interrupted => {}
        Err(error) => return Err(error.into()),
    }
    write_all_slices(writer, slices)
}

/// Writes all bytes of all slices and continues after short writes and interruptions. Consumes the
/// slices.
pub(super) fn write_all_slices<W: Write>(writer: &mut W, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match writer.write_vectored(slices) {
            Ok(0) => return Err(std::io::Error::from(ErrorKind::WriteZero).into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Converts the length of a payload to the length field.
#[inline]
fn wire_length(payload: &[u8]) -> Result<u32> {
    u32::try_from(payload.len()).map_err(|_| length_overflow(payload.len()))
}

/// Writes the length and the checksum to the start of `output`, which must be long enough for both.
#[inline]
fn write_header<C: Checksum>(checksum: &C, output: &mut [u8], length: u32, value: u64) {
    let mut bytes = [0; CHECKSUM_BYTES_MAX];
    let (length_bytes, rest) = output.split_at_mut(LENGTH_BYTES);
    // The compiler knows both lengths here. With a call of `memcpy` for each, framing a sample
    // takes 13 % more instructions.
    copy(length_bytes, &length.to_le_bytes());
    copy(rest.split_at_mut(C::SIZE).0, checksum.write_bytes(value, &mut bytes));
}

#[cold]
#[inline(never)]
fn length_overflow(length: usize) -> Error {
    Error::invalid_frame_with(
        "payload length exceeds the 32-bit length field",
        Some(length),
        None,
        Some(MAX_WIRE_FRAME_LEN),
    )
}

#[cold]
#[inline(never)]
pub(super) fn buffer_too_small(needed: usize, available: usize) -> Error {
    Error::invalid_frame_with("buffer too small for the frame", Some(needed), Some(available), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that framing in place, into a slice and to a sink gives the header followed by the
    // payload. Method: lengths around the limits of the code paths for copying and hashing.
    #[test]
    fn all_framing_methods_give_the_same_bytes() {
        fn check<F: SliceFramer>(framer: &F) {
            for length in [0, 1, 16, 64, 65, 240, 241, 1000] {
                let payload = vec![0x5A; length];
                let expected = [framer.header(&payload).unwrap().as_bytes(), &payload].concat();
                let mut frame = vec![0xAA; framer.header_bytes()];
                frame.extend_from_slice(&payload);
                framer.frame_in_place(&mut frame).unwrap();
                assert_eq!(frame, expected);
                let mut output = vec![0xAA; expected.len() + 3];
                assert_eq!(framer.frame_into(&mut output, &payload).unwrap(), expected.len());
                assert_eq!(output[..expected.len()], expected);
                assert_eq!(output[expected.len()..], [0xAA; 3]);
                let mut sink = Vec::new();
                framer.frame_and_write(&mut sink, &payload).unwrap();
                assert_eq!(sink, expected);
            }
        }
        check(&DefaultFramer);
        #[cfg(feature = "xxhash")]
        check(&ChecksumFramer::new(super::super::checksum::XxHash64));
        #[cfg(feature = "crc32")]
        check(&ChecksumFramer::new(super::super::checksum::Crc32));
        #[cfg(feature = "crc16")]
        check(&ChecksumFramer::new(super::super::checksum::Crc16));
    }

    // Proves that a buffer that is one byte too short gives an error that names both lengths.
    #[test]
    fn a_short_buffer_is_rejected() {
        let error = DefaultFramer.frame_into(&mut [0; 6], b"abc").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid frame: buffer too small for the frame: declared 7, available 6"
        );
        assert!(DefaultFramer.frame_in_place(&mut [0; 3]).unwrap_err().is_invalid_frame());
    }
}
