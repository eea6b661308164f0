//! Deframers, which read payloads from any `Read` into a buffer, or from a slice without copying.

use std::io::{ErrorKind, Read};

use super::checksum::{CHECKSUM_BYTES_MAX, Checksum, NoChecksum};
use super::error::{Error, Result};
use super::framer::LENGTH_BYTES;

/// Default limit on the length of a payload. It is the largest possible length of a FlatBuffer, 2
/// GiB.
pub const DEFAULT_MAX_FRAME_LEN: usize = flatbuffers::FLATBUFFERS_MAX_BUFFER_SIZE;
/// Maximum number of bytes that are allocated for a declared length before the payload is read. So
/// a damaged length field takes at most this much memory.
const GROWTH_BYTES_MAX: usize = 1 << 20;

/// Reads frames from a source.
///
/// A deframer consumes exactly the bytes of one frame and never reads past the frame. The payload
/// is at the start of the caller's buffer. A deframer never shrinks that buffer, so the buffer may
/// be longer than the payload.
pub trait Deframer {
    /// Reads one frame and returns the length of its payload, which is then at the start of
    /// `buffer`. Returns `None` if the source ends between two frames.
    ///
    /// # Errors
    /// `UnexpectedEof` if the source ends within the frame; `InvalidFrame`, `ChecksumMismatch`,
    /// `Io`.
    #[inline]
    fn read_and_deframe<R: Read>(&self, reader: &mut R, buffer: &mut Vec<u8>) -> Result<Option<usize>> {
        match read_length(reader)? {
            Some(length) => self.read_after_length(reader, buffer, length as usize),
            None => Ok(None),
        }
    }

    /// Reads the rest of a frame after its 4-byte length. Implementations must check the length
    /// before they allocate memory for it.
    ///
    /// # Errors
    /// Returns the same errors as [`read_and_deframe`](Self::read_and_deframe).
    fn read_after_length<R: Read>(
        &self,
        reader: &mut R,
        buffer: &mut Vec<u8>,
        payload_len: usize,
    ) -> Result<Option<usize>>;
}

/// Reads frames from bytes in memory.
pub trait SliceDeframer {
    /// Reads the frame at the start of `bytes`. Allocates nothing, whatever the length field of the
    /// frame says.
    ///
    /// # Errors
    /// `InvalidFrame`, `ChecksumMismatch`.
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<DeframeStatus<'a>>;

    /// Returns the length of the frame at the start of `bytes` according to its header alone. The
    /// frame itself may be damaged or incomplete. The method allocates nothing and is cheap enough
    /// to be called at every byte of a search.
    fn frame_length(&self, bytes: &[u8]) -> FrameLength;

    /// Returns whether the checksum in a frame's `header` equals the checksum of `payload`. The
    /// length field is ignored, so that a frame with a damaged length field can be identified.
    /// Always returns false for a format without a checksum.
    fn checksum_matches(&self, _header: &[u8], _payload: &[u8]) -> bool {
        false
    }

    /// Returns the length of the header.
    fn header_bytes(&self) -> usize;

    /// Returns the number of header bytes that contain the checksum.
    fn checksum_bytes(&self) -> usize {
        0
    }
}

/// The result of deframing the start of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeframeStatus<'a> {
    /// A whole frame with the right checksum.
    Frame(Frame<'a>),
    /// The bytes end within a frame.
    Incomplete {
        /// Total number of bytes that the frame needs, as far as it is known. If only the length of
        /// the header is known, this is the header's length. Otherwise it is the length of header
        /// and payload.
        needed: usize,
    },
}

/// The length of a frame according to its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameLength {
    /// Length of the frame in bytes, including the header.
    Bytes(usize),
    /// The slice is too short for a length field.
    Unknown,
    /// The payload exceeds the limit.
    TooLong {
        /// Length of the payload in bytes.
        declared: usize,
        /// The limit on the length of a payload in bytes.
        limit: usize,
    },
}

impl FrameLength {
    /// Returns the length of the frame, or `None` if the length is unknown.
    ///
    /// # Errors
    /// `InvalidFrame` for a payload that is longer than the limit.
    #[inline]
    pub fn checked(self) -> Result<Option<usize>> {
        match self {
            Self::Bytes(length) => Ok(Some(length)),
            Self::Unknown => Ok(None),
            Self::TooLong { declared, limit } => Err(Error::frame_too_long(declared, limit)),
        }
    }
}

/// A whole frame that borrows the bytes from which it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Creates a frame of a custom format whose first `header_bytes` bytes are the header. Returns
    /// `None` if `bytes` is shorter than the header.
    #[inline]
    pub fn new(bytes: &'a [u8], header_bytes: usize) -> Option<Self> {
        Some(Self { bytes, payload: bytes.get(header_bytes..)? })
    }

    /// Returns the bytes of the frame as they are in the stream, that is, header and payload.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Reads the frames of [`DefaultFramer`](super::DefaultFramer), which have no checksum.
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
    /// Creates a deframer that accepts lengths up to [`DEFAULT_MAX_FRAME_LEN`].
    pub const fn new() -> Self {
        Self { max_frame_len: DEFAULT_MAX_FRAME_LEN }
    }

    /// Sets the limit on the length of payloads. Payloads that are longer than `max` bytes are
    /// rejected before memory is allocated for them.
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
    /// Creates a deframer that accepts lengths up to [`DEFAULT_MAX_FRAME_LEN`]. Does not compile
    /// for a checksum wider than 8 bytes.
    pub fn new(checksum_alg: C) -> Self {
        const { assert!(C::SIZE <= CHECKSUM_BYTES_MAX, "a checksum has at most 8 bytes") };
        Self { checksum: checksum_alg, max_frame_len: DEFAULT_MAX_FRAME_LEN }
    }

    /// Sets the limit on the length of payloads. Payloads that are longer than `max` bytes are
    /// rejected before memory is allocated for them.
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
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<DeframeStatus<'a>> {
        deframe_slice(&NoChecksum, self.max_frame_len, bytes)
    }

    #[inline]
    fn frame_length(&self, bytes: &[u8]) -> FrameLength {
        frame_length(LENGTH_BYTES, self.max_frame_len, bytes)
    }

    fn checksum_matches(&self, header: &[u8], payload: &[u8]) -> bool {
        checksum_matches(&NoChecksum, header, payload)
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
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<DeframeStatus<'a>> {
        deframe_slice(&self.checksum, self.max_frame_len, bytes)
    }

    #[inline]
    fn frame_length(&self, bytes: &[u8]) -> FrameLength {
        frame_length(LENGTH_BYTES + C::SIZE, self.max_frame_len, bytes)
    }

    fn checksum_matches(&self, header: &[u8], payload: &[u8]) -> bool {
        checksum_matches(&self.checksum, header, payload)
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

/// Reads the frame at the start of `bytes` with the given checksum and limit.
#[inline]
pub(super) fn deframe_slice<'a, C: Checksum>(
    checksum: &C,
    max_frame_len: usize,
    bytes: &'a [u8],
) -> Result<DeframeStatus<'a>> {
    let header_bytes = LENGTH_BYTES + C::SIZE;
    let Some(needed) = frame_length(header_bytes, max_frame_len, bytes).checked()? else {
        return Ok(DeframeStatus::Incomplete { needed: header_bytes });
    };
    let Some(frame) = bytes.get(..needed).and_then(|bytes| Frame::new(bytes, header_bytes)) else {
        return Ok(DeframeStatus::Incomplete { needed });
    };
    let stored = frame.bytes.get(LENGTH_BYTES..header_bytes).unwrap_or_default();
    checksum.verify(checksum.read_bytes(stored), frame.payload)?;
    Ok(DeframeStatus::Frame(frame))
}

/// Returns the length of the frame at the start of `bytes`.
#[inline]
pub(super) fn frame_length(header_bytes: usize, limit: usize, bytes: &[u8]) -> FrameLength {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return FrameLength::Unknown };
    let declared = u32::from_le_bytes(*length) as usize;
    if declared > limit {
        FrameLength::TooLong { declared, limit }
    } else {
        FrameLength::Bytes(header_bytes + declared)
    }
}

/// Returns whether the checksum after the length in `header` equals the checksum of `payload`.
pub(super) fn checksum_matches<C: Checksum>(checksum: &C, header: &[u8], payload: &[u8]) -> bool {
    let stored = header.get(LENGTH_BYTES..LENGTH_BYTES + C::SIZE).filter(|stored| !stored.is_empty());
    stored.is_some_and(|stored| checksum.verify(checksum.read_bytes(stored), payload).is_ok())
}

/// Reads the length of a payload. Returns `None` if the source ends before the first byte of the
/// length.
///
/// The function first requests a single byte. Such a request either fails or reads the byte, but
/// never reads only a part. So the result of this request distinguishes an end between frames from
/// an end within a frame. If the compiler knows the length of a request, reading from a buffered
/// source becomes a plain move. The length is assembled from the same pieces that were moved (one,
/// two and one bytes). A load that spans several pieces would wait until the stores have left the
/// store buffer, and this wait takes longer than the rest of a small frame.
#[inline]
fn read_length<R: Read>(reader: &mut R) -> Result<Option<u32>> {
    let (mut first, mut rest) = ([0; 1], [0; LENGTH_BYTES - 1]);
    if let Err(error) = reader.read_exact(&mut first) {
        return eof_between_frames(error);
    }
    reader.read_exact(&mut rest).map_err(eof_within_frame)?;
    let ([a], [b, c, d]) = (first, rest);
    let middle = u16::from_le_bytes([b, c]);
    Ok(Some(u32::from(a) | u32::from(middle) << 8 | u32::from(d) << 24))
}

/// Reads the checksum and the payload of a frame whose length has already been read.
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
        reader.read_exact(stored).map_err(eof_within_frame)?;
    }
    if payload_len > buffer.len() {
        read_growing(reader, buffer, payload_len)?;
    } else {
        let (payload, _) = buffer.split_at_mut(payload_len);
        reader.read_exact(payload).map_err(eof_within_frame)?;
    }
    checksum.verify(checksum.read_bytes(stored), buffer.get(..payload_len).unwrap_or_default())?;
    Ok(Some(payload_len))
}

/// Reads a payload that is longer than the buffer, and allocates memory as the bytes arrive.
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
        reader.read_exact(part).map_err(eof_within_frame)?;
        filled = end;
    }
    Ok(())
}

/// Treats an end of the source before the first byte of a frame as a clean end.
#[cold]
#[inline(never)]
fn eof_between_frames(error: std::io::Error) -> Result<Option<u32>> {
    match error.kind() {
        ErrorKind::UnexpectedEof => Ok(None),
        _ => Err(error.into()),
    }
}

#[cold]
#[inline(never)]
fn eof_within_frame(error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::unexpected_eof(),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum_kind::{ChecksumKind, KindDeframer};

    fn framed(kind: ChecksumKind, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        crate::Framer::frame_and_write(&kind, &mut frame, payload).unwrap();
        frame
    }

    proptest! {
        // Proves that a frame is read back from a slice and from a source. Proves that a frame that
        // is truncated at any byte is reported as incomplete.
        #[test]
        fn round_trip_and_every_cut(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            for &kind in ChecksumKind::ALL {
                let bytes = framed(kind, &payload);
                let deframer = KindDeframer::new(kind);
                match deframer.deframe(&bytes).unwrap() {
                    DeframeStatus::Frame(frame) => prop_assert_eq!(frame.payload(), &payload),
                    DeframeStatus::Incomplete { .. } => prop_assert!(false, "a whole frame called incomplete"),
                }
                prop_assert_eq!(deframer.frame_length(&bytes), FrameLength::Bytes(bytes.len()));
                let mut buffer = Vec::new();
                let read = deframer.read_and_deframe(&mut &bytes[..], &mut buffer).unwrap();
                prop_assert_eq!(&buffer[..read.unwrap()], &payload);
                for cut in 0..bytes.len() {
                    match deframer.deframe(&bytes[..cut]).unwrap() {
                        DeframeStatus::Incomplete { needed } => prop_assert!(needed > cut && needed <= bytes.len()),
                        DeframeStatus::Frame(_) => prop_assert!(false, "a cut frame called whole"),
                    }
                    match deframer.read_and_deframe(&mut &bytes[..cut], &mut buffer) {
                        Ok(end) => prop_assert!(end.is_none() && cut == 0),
                        Err(error) => prop_assert!(error.is_unexpected_eof() && cut > 0),
                    }
                }
            }
        }

        // Proves that arbitrary bytes give a frame, an end or an error, with the same result from a
        // slice and from a source. The test also proves that the memory does not exceed the limit.
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for &kind in ChecksumKind::ALL {
                let deframer = KindDeframer::new(kind).with_max_frame_len(32);
                let sliced = match deframer.deframe(&bytes) {
                    Ok(DeframeStatus::Frame(frame)) => Some(frame.payload().to_vec()),
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

    // Proves that every flipped bit after the length is detected.
    #[cfg(feature = "xxhash")]
    #[test]
    fn every_flip_after_the_length_is_found() {
        let bytes = framed(ChecksumKind::Xxh3, b"the quick brown fox");
        for bit in LENGTH_BYTES * 8..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let deframer = KindDeframer::new(ChecksumKind::Xxh3);
            assert!(deframer.deframe(&damaged).unwrap_err().is_checksum_mismatch());
        }
    }

    // Proves that a damaged length field takes little memory. Method: a length of 2 GiB is declared
    // before 5 MiB of data.
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
