//! From bytes to payloads: from any `Read` into a buffer, or from a slice without copying a byte.

use std::io::{ErrorKind, Read};

use super::checksum::{CHECKSUM_BYTES_MAX, Checksum, NoChecksum};
use super::error::{Error, Result};
use super::framer::LENGTH_BYTES;

/// Longest payload that a deframer believes unless told otherwise: the longest FlatBuffer, 2 GiB.
pub const DEFAULT_MAX_FRAME_LEN: usize = flatbuffers::FLATBUFFERS_MAX_BUFFER_SIZE;
/// How much memory a declared length takes ahead of the bytes that prove it, at most: a damaged length then costs
/// this, not what it says.
const GROWTH_BYTES_MAX: usize = 1 << 20;

/// How frames are read from a source.
///
/// A deframer takes exactly the bytes of one frame and never reads past it. Its buffer only grows: the payload is
/// its front.
pub trait Deframer {
    /// Reads one frame: the length of its payload, which then is the front of `buffer`; none at a clean end.
    ///
    /// # Errors
    /// `UnexpectedEof` for an end within the frame; `InvalidFrame`, `ChecksumMismatch`, `Io`.
    #[inline]
    fn read_and_deframe<R: Read>(&self, reader: &mut R, buffer: &mut Vec<u8>) -> Result<Option<usize>> {
        match read_length(reader)? {
            Some(length) => self.read_after_length(reader, buffer, length as usize),
            None => Ok(None),
        }
    }

    /// Reads the rest of a frame whose length of 4 bytes has been read. Whoever implements this checks the length
    /// before taking memory for it.
    ///
    /// # Errors
    /// As [`read_and_deframe`](Self::read_and_deframe).
    fn read_after_length<R: Read>(
        &self,
        reader: &mut R,
        buffer: &mut Vec<u8>,
        payload_len: usize,
    ) -> Result<Option<usize>>;
}

/// How frames are found in bytes that are in memory already.
pub trait SliceDeframer {
    /// Looks at the front of `bytes`. Takes no memory, whatever the length there says.
    ///
    /// # Errors
    /// `InvalidFrame`, `ChecksumMismatch`.
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<Step<'a>>;

    /// How long the frame at the front of `bytes` is by its header alone: neither checked nor complete. Takes no memory,
    /// so that a search may ask at every byte.
    fn measure(&self, bytes: &[u8]) -> Extent;

    /// Whether the checksum in a frame's `header` is that of `payload`, whatever the length there says: proof of a frame
    /// whose length was damaged. Never without a checksum.
    fn is_proven(&self, _header: &[u8], _payload: &[u8]) -> bool {
        false
    }

    /// Bytes in front of each payload.
    fn header_bytes(&self) -> usize;

    /// How many of them are a checksum of the payload.
    fn checksum_bytes(&self) -> usize {
        0
    }
}

/// What stands at the front of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A whole frame, its checksum right.
    Frame(Frame<'a>),
    /// The bytes end within a frame.
    Incomplete {
        /// Bytes that the frame needs in all, as far as can be told: its header, or header and payload.
        needed: usize,
    },
}

/// How long a frame is by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes with its header.
    Bytes(usize),
    /// There are too few bytes to tell.
    Unknown,
    /// Its payload is above the limit.
    TooLong {
        /// The payload's length, in bytes.
        declared: usize,
        /// The limit, in bytes.
        limit: usize,
    },
}

impl Extent {
    /// The length if it can be told; none if not.
    ///
    /// # Errors
    /// `InvalidFrame` for a payload above the limit.
    #[inline]
    pub fn checked(self) -> Result<Option<usize>> {
        match self {
            Self::Bytes(length) => Ok(Some(length)),
            Self::Unknown => Ok(None),
            Self::TooLong { declared, limit } => Err(Error::frame_too_long(declared, limit)),
        }
    }
}

/// A whole frame; borrows the bytes it was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// A frame whose first `header_bytes` bytes are its header, for a format of your own; none if it is shorter.
    #[inline]
    pub fn new(bytes: &'a [u8], header_bytes: usize) -> Option<Self> {
        Some(Self { bytes, payload: bytes.get(header_bytes..)? })
    }

    /// The frame as it stands in the stream: header and payload.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Reads the frames of [`DefaultFramer`](super::DefaultFramer): length alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultDeframer {
    max_frame_len: usize,
}

/// Reads and verifies the frames of [`ChecksumFramer`](super::ChecksumFramer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumDeframer<C: Checksum> {
    checksum: C,
    max_frame_len: usize,
}

impl DefaultDeframer {
    /// A deframer that believes lengths up to [`DEFAULT_MAX_FRAME_LEN`].
    pub const fn new() -> Self {
        Self { max_frame_len: DEFAULT_MAX_FRAME_LEN }
    }

    /// The same, refusing payloads above `max` bytes before memory is taken for them.
    #[must_use]
    pub const fn with_max_frame_len(self, max: usize) -> Self {
        Self { max_frame_len: max }
    }
}

impl Default for DefaultDeframer {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Checksum> ChecksumDeframer<C> {
    /// A deframer that believes lengths up to [`DEFAULT_MAX_FRAME_LEN`]. Does not compile for a checksum wider than
    /// 8 bytes.
    pub fn new(checksum_alg: C) -> Self {
        const { assert!(C::SIZE <= CHECKSUM_BYTES_MAX, "a checksum has at most 8 bytes") };
        Self { checksum: checksum_alg, max_frame_len: DEFAULT_MAX_FRAME_LEN }
    }

    /// The same, refusing payloads above `max` bytes before memory is taken for them.
    #[must_use]
    pub fn with_max_frame_len(self, max: usize) -> Self {
        Self { max_frame_len: max, ..self }
    }
}

impl Deframer for DefaultDeframer {
    #[inline]
    fn read_after_length<R: Read>(
        &self,
        reader: &mut R,
        buffer: &mut Vec<u8>,
        payload_len: usize,
    ) -> Result<Option<usize>> {
        read_rest(&NoChecksum, self.max_frame_len, reader, buffer, payload_len)
    }
}

impl SliceDeframer for DefaultDeframer {
    #[inline]
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<Step<'a>> {
        step(&NoChecksum, self.max_frame_len, bytes)
    }

    #[inline]
    fn measure(&self, bytes: &[u8]) -> Extent {
        measure(LENGTH_BYTES, self.max_frame_len, bytes)
    }

    fn is_proven(&self, header: &[u8], payload: &[u8]) -> bool {
        is_proven(&NoChecksum, header, payload)
    }

    #[inline]
    fn header_bytes(&self) -> usize {
        LENGTH_BYTES
    }

    #[inline]
    fn checksum_bytes(&self) -> usize {
        NoChecksum::SIZE
    }
}

impl<C: Checksum> Deframer for ChecksumDeframer<C> {
    #[inline]
    fn read_after_length<R: Read>(
        &self,
        reader: &mut R,
        buffer: &mut Vec<u8>,
        payload_len: usize,
    ) -> Result<Option<usize>> {
        read_rest(&self.checksum, self.max_frame_len, reader, buffer, payload_len)
    }
}

impl<C: Checksum> SliceDeframer for ChecksumDeframer<C> {
    #[inline]
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<Step<'a>> {
        step(&self.checksum, self.max_frame_len, bytes)
    }

    #[inline]
    fn measure(&self, bytes: &[u8]) -> Extent {
        measure(LENGTH_BYTES + C::SIZE, self.max_frame_len, bytes)
    }

    fn is_proven(&self, header: &[u8], payload: &[u8]) -> bool {
        is_proven(&self.checksum, header, payload)
    }

    #[inline]
    fn header_bytes(&self) -> usize {
        LENGTH_BYTES + C::SIZE
    }

    #[inline]
    fn checksum_bytes(&self) -> usize {
        C::SIZE
    }
}

/// What stands at the front of `bytes`, under one checksum and one limit.
#[inline]
pub(super) fn step<'a, C: Checksum>(checksum: &C, max_frame_len: usize, bytes: &'a [u8]) -> Result<Step<'a>> {
    let header_bytes = LENGTH_BYTES + C::SIZE;
    let Some(needed) = measure(header_bytes, max_frame_len, bytes).checked()? else {
        return Ok(Step::Incomplete { needed: header_bytes });
    };
    let Some(frame) = bytes.get(..needed).and_then(|bytes| Frame::new(bytes, header_bytes)) else {
        return Ok(Step::Incomplete { needed });
    };
    let stored = frame.bytes.get(LENGTH_BYTES..header_bytes).unwrap_or_default();
    checksum.verify(checksum.read_bytes(stored), frame.payload)?;
    Ok(Step::Frame(frame))
}

/// How long the frame at the front of `bytes` is.
#[inline]
pub(super) fn measure(header_bytes: usize, limit: usize, bytes: &[u8]) -> Extent {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Extent::Unknown };
    let declared = u32::from_le_bytes(*length) as usize;
    if declared > limit {
        Extent::TooLong { declared, limit }
    } else {
        Extent::Bytes(header_bytes + declared)
    }
}

/// Whether the checksum behind the length in `header` is that of `payload`.
pub(super) fn is_proven<C: Checksum>(checksum: &C, header: &[u8], payload: &[u8]) -> bool {
    let stored = header.get(LENGTH_BYTES..LENGTH_BYTES + C::SIZE).filter(|stored| !stored.is_empty());
    stored.is_some_and(|stored| checksum.verify(checksum.read_bytes(stored), payload).is_ok())
}

/// Reads the length of a payload; none if the source ends before its first byte.
///
/// The first byte is asked for alone: a request for one byte cannot be answered in part, so its failing tells the end
/// between frames from one within. Lengths of requests that the compiler knows become plain moves from a buffered source;
/// and the bytes are put together from the very pieces they were moved in (one, two and one), because loads that span
/// pieces wait until the pieces have left the processor, longer than all the rest of a small frame takes.
#[inline]
fn read_length<R: Read>(reader: &mut R) -> Result<Option<u32>> {
    let (mut first, mut rest) = ([0; 1], [0; LENGTH_BYTES - 1]);
    if let Err(error) = reader.read_exact(&mut first) {
        return between_frames(error);
    }
    reader.read_exact(&mut rest).map_err(within_a_frame)?;
    let ([a], [b, c, d]) = (first, rest);
    let middle = u16::from_le_bytes([b, c]);
    Ok(Some(u32::from(a) | u32::from(middle) << 8 | u32::from(d) << 24))
}

/// Reads checksum and payload of a frame whose length is known.
#[inline]
pub(super) fn read_rest<C: Checksum, R: Read>(
    checksum: &C,
    max_frame_len: usize,
    reader: &mut R,
    buffer: &mut Vec<u8>,
    payload_len: usize,
) -> Result<Option<usize>> {
    if payload_len > max_frame_len {
        return Err(Error::frame_too_long(payload_len, max_frame_len));
    }
    let mut stored = [0; CHECKSUM_BYTES_MAX];
    let (stored, _) = stored.split_at_mut(C::SIZE);
    if C::SIZE > 0 {
        reader.read_exact(stored).map_err(within_a_frame)?;
    }
    if payload_len > buffer.len() {
        read_growing(reader, buffer, payload_len)?;
    } else {
        let (payload, _) = buffer.split_at_mut(payload_len);
        reader.read_exact(payload).map_err(within_a_frame)?;
    }
    checksum.verify(checksum.read_bytes(stored), buffer.get(..payload_len).unwrap_or_default())?;
    Ok(Some(payload_len))
}

/// Reads a payload that is longer than any before: memory is taken as its bytes arrive.
#[cold]
#[inline(never)]
fn read_growing<R: Read>(reader: &mut R, buffer: &mut Vec<u8>, payload_len: usize) -> Result<()> {
    let mut filled = 0;
    while filled < payload_len {
        let end = payload_len.min(buffer.len().max(filled + GROWTH_BYTES_MAX.max(filled)));
        if end > buffer.len() {
            buffer.reserve_exact(end - buffer.len());
            buffer.resize(end, 0);
        }
        let part = buffer.get_mut(filled..end).unwrap_or_default();
        reader.read_exact(part).map_err(within_a_frame)?;
        filled = end;
    }
    Ok(())
}

/// The end of the source in front of a frame's first byte is a clean one.
#[cold]
#[inline(never)]
fn between_frames(error: std::io::Error) -> Result<Option<u32>> {
    match error.kind() {
        ErrorKind::UnexpectedEof => Ok(None),
        _ => Err(error.into()),
    }
}

#[cold]
#[inline(never)]
fn within_a_frame(error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::unexpected_eof(),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::kind::{ChecksumKind, KindDeframer};

    fn framed(kind: ChecksumKind, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        crate::stream::Framer::frame_and_write(&kind, &mut frame, payload).unwrap();
        frame
    }

    proptest! {
        // Goal: what is framed is read back, and any cut is told from a frame. Method: random payloads, every cut,
        // from slice and source alike.
        #[test]
        fn round_trip_and_every_cut(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            for &kind in ChecksumKind::ALL {
                let bytes = framed(kind, &payload);
                let deframer = KindDeframer::new(kind);
                match deframer.deframe(&bytes).unwrap() {
                    Step::Frame(frame) => prop_assert_eq!(frame.payload(), &payload),
                    Step::Incomplete { .. } => prop_assert!(false, "a whole frame called incomplete"),
                }
                prop_assert_eq!(deframer.measure(&bytes), Extent::Bytes(bytes.len()));
                let mut buffer = Vec::new();
                let read = deframer.read_and_deframe(&mut &bytes[..], &mut buffer).unwrap();
                prop_assert_eq!(&buffer[..read.unwrap()], &payload);
                for cut in 0..bytes.len() {
                    match deframer.deframe(&bytes[..cut]).unwrap() {
                        Step::Incomplete { needed } => prop_assert!(needed > cut && needed <= bytes.len()),
                        Step::Frame(_) => prop_assert!(false, "a cut frame called whole"),
                    }
                    match deframer.read_and_deframe(&mut &bytes[..cut], &mut buffer) {
                        Ok(end) => prop_assert!(end.is_none() && cut == 0),
                        Err(error) => prop_assert!(error.is_unexpected_eof() && cut > 0),
                    }
                }
            }
        }

        // Goal: any bytes at all give a frame, an end or an error. Method: random bytes, a low limit.
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for &kind in ChecksumKind::ALL {
                let deframer = KindDeframer::new(kind).with_max_frame_len(32);
                let sliced = match deframer.deframe(&bytes) {
                    Ok(Step::Frame(frame)) => Some(frame.payload().to_vec()),
                    _ => None,
                };
                let mut buffer = Vec::new();
                let read = match deframer.read_and_deframe(&mut &bytes[..], &mut buffer) {
                    Ok(Some(length)) => Some(buffer[..length].to_vec()),
                    _ => None,
                };
                prop_assert!(buffer.len() <= 32);
                prop_assert_eq!(sliced, read);
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
            let deframer = KindDeframer::new(ChecksumKind::Xxh3);
            assert!(deframer.deframe(&damaged).unwrap_err().is_checksum_mismatch());
        }
    }

    // Goal: a damaged length takes little memory. Method: a length of 2 GiB in front of 5 MiB.
    #[test]
    fn memory_follows_the_bytes_not_the_length() {
        let mut bytes = u32::try_from(DEFAULT_MAX_FRAME_LEN).unwrap().to_le_bytes().to_vec();
        bytes.resize(5 << 20, 7);
        let mut buffer = Vec::new();
        let error = DefaultDeframer::new().read_and_deframe(&mut &bytes[..], &mut buffer).unwrap_err();
        assert!(error.is_unexpected_eof());
        assert!(buffer.capacity() <= 16 << 20, "{} bytes", buffer.capacity());
    }
}
