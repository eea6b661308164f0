//! From payloads to frames: what stands in front of a payload, written to a sink or in place.

use std::io::{ErrorKind, IoSlice, Write};

use super::checksum::{CHECKSUM_BYTES_MAX, Checksum};
use super::copy::copy;
use super::error::{Error, Result};

/// Bytes of the payload's length.
pub const LENGTH_BYTES: usize = 4;
/// Bytes in front of a payload under the widest checksum.
pub const HEADER_BYTES_MAX: usize = LENGTH_BYTES + CHECKSUM_BYTES_MAX;
/// Longest payload that the wire's length can express.
pub const MAX_WIRE_FRAME_LEN: usize = u32::MAX as usize;

/// How a payload becomes bytes of a stream.
///
/// A format of your own implements this one method; [`SliceFramer`] is for formats that can also frame in memory.
pub trait Framer {
    /// Writes one frame.
    ///
    /// # Errors
    /// `InvalidFrame` if the format cannot express the payload, before anything is written; `Io`.
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()>;
}

/// A framer whose frames are a header and then the payload, so that a payload can be framed where it stands.
pub trait SliceFramer: Framer {
    /// Bytes in front of each payload, at most [`HEADER_BYTES_MAX`].
    fn header_bytes(&self) -> usize;

    /// The header of `payload`.
    ///
    /// # Errors
    /// `InvalidFrame` if the format cannot express the payload.
    fn header(&self, payload: &[u8]) -> Result<FrameHeader>;

    /// Completes a frame in place: `frame` is room for the header, and behind it the finished payload.
    ///
    /// # Errors
    /// `InvalidFrame` if the format cannot express the payload, or `frame` is shorter than a header.
    #[inline]
    fn seal(&self, frame: &mut [u8]) -> Result<()> {
        let Some((room, payload)) = frame.split_at_mut_checked(self.header_bytes()) else {
            return Err(no_room(self.header_bytes(), frame.len()));
        };
        room.copy_from_slice(self.header(payload)?.as_bytes());
        Ok(())
    }

    /// Frames `payload` into the front of `room` and says how many bytes the frame has.
    ///
    /// # Errors
    /// `InvalidFrame` if the format cannot express the payload, or `room` is too short; `room` is then as it was.
    #[inline]
    fn frame_into(&self, room: &mut [u8], payload: &[u8]) -> Result<usize> {
        let needed = self.header_bytes() + payload.len();
        let header = self.header(payload)?;
        let Some(frame) = room.get_mut(..needed) else { return Err(no_room(needed, room.len())) };
        let (front, body) = frame.split_at_mut(self.header_bytes());
        front.copy_from_slice(header.as_bytes());
        copy(body, payload);
        Ok(needed)
    }
}

/// Length alone: `[u32 LE: length][payload]`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DefaultFramer;

/// Length and checksum: `[u32 LE: length][C::SIZE bytes LE: checksum of the payload][payload]`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumFramer<C: Checksum> {
    checksum: C,
}

impl<C: Checksum> ChecksumFramer<C> {
    /// A framer that protects payloads with `checksum_alg`. Does not compile for a checksum wider than 8 bytes.
    pub fn new(checksum_alg: C) -> Self {
        const { assert!(C::SIZE <= CHECKSUM_BYTES_MAX, "a checksum has at most 8 bytes") };
        Self { checksum: checksum_alg }
    }
}

impl<C: Checksum> ChecksumFramer<C> {
    /// As [`ChecksumKind::seal_with_copy`](super::ChecksumKind::seal_with_copy).
    #[inline]
    pub(super) fn seal_with_copy(&self, frame: &mut [u8], head: &mut [u8]) -> Result<()> {
        let available = frame.len().min(head.len());
        let Some((front, payload)) = frame.split_at_mut_checked(self.header_bytes()) else {
            return Err(no_room(self.header_bytes(), available));
        };
        if head.len() < self.header_bytes() {
            return Err(no_room(self.header_bytes(), available));
        }
        let (length, value) = (wire_length(payload)?, self.checksum.calculate(payload));
        write_header(&self.checksum, front, length, value);
        write_header(&self.checksum, head, length, value);
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
    fn seal(&self, frame: &mut [u8]) -> Result<()> {
        let available = frame.len();
        let Some((front, payload)) = frame.split_first_chunk_mut() else {
            return Err(no_room(LENGTH_BYTES, available));
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
    fn seal(&self, frame: &mut [u8]) -> Result<()> {
        let available = frame.len();
        let Some((front, payload)) = frame.split_at_mut_checked(self.header_bytes()) else {
            return Err(no_room(self.header_bytes(), available));
        };
        write_header(&self.checksum, front, wire_length(payload)?, self.checksum.calculate(payload));
        Ok(())
    }

    #[inline]
    fn frame_into(&self, room: &mut [u8], payload: &[u8]) -> Result<usize> {
        let needed = self.header_bytes() + payload.len();
        let length = wire_length(payload)?;
        let available = room.len();
        let Some(frame) = room.get_mut(..needed) else { return Err(no_room(needed, available)) };
        let (front, body) = frame.split_at_mut(self.header_bytes());
        let value = self.checksum.copy_and_calculate(payload, body);
        write_header(&self.checksum, front, length, value);
        Ok(needed)
    }
}

/// Length and checksum as they stand in front of a payload.
#[derive(Debug, Clone, Copy)]
pub struct FrameHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    size: usize, // <= HEADER_BYTES_MAX
}

impl FrameHeader {
    /// The header of `payload` under `checksum`.
    ///
    /// # Errors
    /// `InvalidFrame` for a payload of 4 GiB or more, which the length cannot express.
    #[inline]
    pub fn new<C: Checksum>(checksum: &C, payload: &[u8]) -> Result<Self> {
        let length = wire_length(payload)?;
        let mut bytes = [0; HEADER_BYTES_MAX];
        // Not by `write_header`: with arrays of known lengths this is two stores; by way of slices, writing small frames to a
        // vector takes 14 % more instructions.
        if let Some((front, back)) = bytes.split_first_chunk_mut::<LENGTH_BYTES>() {
            *front = length.to_le_bytes();
            if let Some(back) = back.first_chunk_mut::<CHECKSUM_BYTES_MAX>() {
                checksum.write_bytes(checksum.calculate(payload), back);
            }
        }
        Ok(Self { bytes, size: LENGTH_BYTES + C::SIZE })
    }

    /// A header of your own format: at most [`HEADER_BYTES_MAX`] bytes.
    pub fn from_bytes(header: &[u8]) -> Option<Self> {
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes.get_mut(..header.len())?.copy_from_slice(header);
        Some(Self { bytes, size: header.len() })
    }

    /// The bytes, as many as the checksum has beside the length.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.size).unwrap_or_default()
    }
}

/// Header and payload go out in one call where the sink takes several slices at once: one system call, and no copy.
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

/// Goes on where a first call took only a part.
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

/// Writes all bytes of all slices, going on after a short write or an interruption. The slices are used up.
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

/// The length of a payload as the wire has it.
#[inline]
fn wire_length(payload: &[u8]) -> Result<u32> {
    u32::try_from(payload.len()).map_err(|_| too_long_for_the_wire(payload.len()))
}

/// Writes length and checksum to the front of `room`, which has at least so many bytes.
#[inline]
fn write_header<C: Checksum>(checksum: &C, room: &mut [u8], length: u32, value: u64) {
    let (length_room, rest) = room.split_at_mut(LENGTH_BYTES);
    length_room.copy_from_slice(&length.to_le_bytes());
    let mut bytes = [0; CHECKSUM_BYTES_MAX];
    rest.split_at_mut(C::SIZE).0.copy_from_slice(checksum.write_bytes(value, &mut bytes));
}

#[cold]
#[inline(never)]
fn too_long_for_the_wire(length: usize) -> Error {
    Error::invalid_frame_with(
        "payload length exceeds 32-bit header limit",
        Some(length),
        None,
        Some(MAX_WIRE_FRAME_LEN),
    )
}

#[cold]
#[inline(never)]
pub(super) fn no_room(needed: usize, available: usize) -> Error {
    Error::invalid_frame_with("no room for the frame", Some(needed), Some(available), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: framing in place gives the bytes of header and payload in a row. Method: sealing, framing into a slice
    // and writing to a sink, with payloads on both sides of the joined limit.
    #[test]
    fn every_way_of_framing_gives_the_same_bytes() {
        fn check<F: SliceFramer>(framer: &F) {
            for length in [0, 1, 16, 64, 65, 240, 241, 1000] {
                let payload = vec![0x5A; length];
                let expected = [framer.header(&payload).unwrap().as_bytes(), &payload].concat();
                let mut frame = vec![0xAA; framer.header_bytes()];
                frame.extend_from_slice(&payload);
                framer.seal(&mut frame).unwrap();
                assert_eq!(frame, expected);
                let mut room = vec![0xAA; expected.len() + 3];
                assert_eq!(framer.frame_into(&mut room, &payload).unwrap(), expected.len());
                assert_eq!(room[..expected.len()], expected);
                assert_eq!(room[expected.len()..], [0xAA; 3]);
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

    // Goal: too little room is an error that says how much is missing. Method: one byte short, in both ways.
    #[test]
    fn too_little_room_is_refused() {
        let error = DefaultFramer.frame_into(&mut [0; 6], b"abc").unwrap_err();
        assert_eq!(error.to_string(), "invalid frame: no room for the frame: declared 7, available 6");
        assert!(DefaultFramer.seal(&mut [0; 3]).unwrap_err().is_invalid_frame());
    }
}
