//! Decodes frames from bytes that arrive in chunks, for example from non-blocking sockets, pipes or
//! packets.

use super::deframer::{DeframeStatus, FrameLength, SliceDeframer};
use super::error::Result;

/// Maximum number of bytes that are allocated for a declared length before the payload arrives.
const GROWTH_BYTES_MAX: usize = 64 << 10;

/// Decodes frames without I/O. The decoder accepts bytes as they arrive and returns each payload
/// when it is whole. The input may be split at any byte.
///
/// If a chunk contains a complete frame, the decoder returns the frame's payload without a copy.
/// Only a frame that is split between chunks is assembled in a buffer. The memory is bounded by the
/// deframer's limit and by the number of bytes that have arrived.
///
/// ```
/// use flatcap_stream::{DefaultDeframer, FrameDecoder};
///
/// let mut decoder = FrameDecoder::new(DefaultDeframer::new().with_max_frame_len(1024));
/// let mut payloads = Vec::new();
/// for mut chunk in [&b"\x03\0"[..], b"\0\0ab", b"c\x01\0\0\0d"] {
///     while !chunk.is_empty() {
///         let (consumed, payload) = decoder.decode(chunk)?;
///         payloads.extend(payload.map(<[u8]>::to_vec));
///         chunk = &chunk[consumed..];
///     }
/// }
/// assert_eq!(payloads, [&b"abc"[..], b"d"]);
/// assert!(decoder.is_between_frames());
/// # Ok::<(), flatcap_stream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FrameDecoder<D> {
    deframer: D,
    /// The bytes of an incomplete frame that have arrived so far.
    partial: Vec<u8>,
    /// Whether `partial` holds a complete frame whose payload the previous call returned.
    is_complete: bool,
    consumed: usize,
}

impl<D: SliceDeframer> FrameDecoder<D> {
    /// Creates a decoder that expects the first byte of a frame next.
    pub const fn new(deframer: D) -> Self {
        Self { deframer, partial: Vec::new(), is_complete: false, consumed: 0 }
    }

    /// Consumes bytes from the start of `input`. Returns the number of consumed bytes and, if these
    /// bytes complete a frame, its payload. The caller passes the rest of the input to the next
    /// call. If no payload is returned, all input was consumed.
    ///
    /// # Errors
    /// After `ChecksumMismatch` and after errors of validators, decoding may continue after the
    /// [`consumed`](Self::consumed) bytes, because the frame was complete. After `InvalidFrame` the
    /// rest of the stream cannot be decoded. After every error, the decoder expects the first byte
    /// of a frame next.
    pub fn decode<'a>(&'a mut self, input: &'a [u8]) -> Result<(usize, Option<&'a [u8]>)> {
        if std::mem::take(&mut self.is_complete) {
            self.partial.clear();
        }
        if self.partial.is_empty() {
            self.consumed = whole_bytes(&self.deframer, input);
            return match self.deframer.deframe(input)? {
                DeframeStatus::Frame(frame) => Ok((frame.bytes().len(), Some(frame.payload()))),
                DeframeStatus::Incomplete { needed } => {
                    self.consumed = input.len();
                    self.buffer_chunk(input, needed);
                    Ok((input.len(), None))
                }
            };
        }
        self.consumed = 0;
        loop {
            let needed = self.needed_bytes()?;
            let missing = needed.saturating_sub(self.partial.len());
            if missing == 0 {
                return self.complete();
            }
            let rest = input.get(self.consumed..).unwrap_or_default();
            let (chunk, _) = rest.split_at(rest.len().min(missing));
            if chunk.is_empty() {
                return Ok((self.consumed, None));
            }
            self.consumed += chunk.len();
            self.buffer_chunk(chunk, needed);
        }
    }

    /// Returns the number of bytes that the last call consumed, even if the call returned an error.
    pub fn consumed(&self) -> usize {
        self.consumed
    }

    /// Returns whether the decoder is between two frames. The stream may end only between two
    /// frames.
    pub fn is_between_frames(&self) -> bool {
        self.partial.is_empty() || self.is_complete
    }

    /// Returns the number of buffered bytes of an incomplete frame.
    pub fn pending_bytes(&self) -> usize {
        if self.is_complete { 0 } else { self.partial.len() }
    }

    /// Discards an incomplete frame.
    pub fn reset(&mut self) {
        self.partial.clear();
        self.is_complete = false;
    }

    /// Returns how many bytes of the current frame must be in the buffer next. First returns the
    /// length of the header, so that the frame's length is checked before more bytes are buffered.
    /// Then returns the length of the frame.
    fn needed_bytes(&mut self) -> Result<usize> {
        match self.deframer.frame_length(&self.partial).checked() {
            Ok(whole) => Ok(whole.unwrap_or(self.deframer.header_bytes())),
            Err(error) => {
                self.reset();
                Err(error)
            }
        }
    }

    /// Verifies the assembled frame.
    fn complete(&mut self) -> Result<(usize, Option<&[u8]>)> {
        let payload_bytes = match self.deframer.deframe(&self.partial) {
            Ok(DeframeStatus::Frame(frame)) => frame.payload().len(),
            Ok(DeframeStatus::Incomplete { .. }) => return Ok((self.consumed, None)),
            Err(error) => {
                self.reset();
                return Err(error);
            }
        };
        self.is_complete = true;
        Ok((self.consumed, self.partial.get(self.partial.len() - payload_bytes..)))
    }

    /// Buffers a chunk of a frame of `needed` bytes. The buffer grows as bytes arrive, and exceeds
    /// the arrived bytes by at most one growth step.
    fn buffer_chunk(&mut self, chunk: &[u8], needed: usize) {
        let buffered = self.partial.len() + chunk.len();
        let ahead = needed.min(buffered.saturating_mul(2).max(GROWTH_BYTES_MAX));
        if self.partial.capacity() < ahead {
            self.partial.reserve_exact(ahead - self.partial.len());
        }
        self.partial.extend_from_slice(chunk);
    }
}

/// Returns the length of the frame at the start of `input` if the frame is whole, else 0.
#[inline]
fn whole_bytes<D: SliceDeframer>(deframer: &D, input: &[u8]) -> usize {
    match deframer.frame_length(input) {
        FrameLength::Bytes(length) if length <= input.len() => length,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum_kind::{ChecksumKind, KindDeframer};
    use crate::framer::Framer;

    fn decode_all<D: SliceDeframer>(decoder: &mut FrameDecoder<D>, pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let mut payloads = Vec::new();
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                let (consumed, payload) = decoder.decode(piece)?;
                payloads.extend(payload.map(<[u8]>::to_vec));
                piece = &piece[consumed..];
            }
        }
        Ok(payloads)
    }

    proptest! {
        // Proves that the payloads do not depend on how the input is split, under all checksums.
        #[test]
        fn any_division_gives_the_same_payloads(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..20),
            sizes in proptest::collection::vec(1..70_usize, 1..30),
        ) {
            for &kind in ChecksumKind::ALL {
                let mut bytes = Vec::new();
                for payload in &payloads {
                    kind.frame_and_write(&mut bytes, payload).unwrap();
                }
                let mut pieces = Vec::new();
                let mut rest = &bytes[..];
                for size in sizes.iter().cycle() {
                    if rest.is_empty() { break; }
                    let (piece, after) = rest.split_at(rest.len().min(*size));
                    pieces.push(piece);
                    rest = after;
                }
                let mut decoder = FrameDecoder::new(KindDeframer::new(kind));
                prop_assert_eq!(&decode_all(&mut decoder, &pieces).unwrap(), &payloads);
                prop_assert!(decoder.is_between_frames());
                prop_assert_eq!(decoder.pending_bytes(), 0);
            }
        }
    }

    // Proves that a length above the limit is rejected before any byte of the payload is buffered,
    // and that the decoder works afterwards. Method: the input is passed in one piece, and byte by
    // byte.
    #[test]
    fn a_length_meets_its_limit_first() {
        let deframer = KindDeframer::new(ChecksumKind::None).with_max_frame_len(16);
        let mut decoder = FrameDecoder::new(deframer);
        let declared = (1_u32 << 31).to_le_bytes();
        assert!(decoder.decode(&declared).unwrap_err().is_frame_too_large());
        for byte in &declared[..3] {
            assert_eq!(decoder.decode(&[*byte]).unwrap(), (1, None));
        }
        assert_eq!(decoder.pending_bytes(), 3);
        assert!(decoder.decode(&declared[3..]).unwrap_err().is_frame_too_large());
        assert!(decoder.is_between_frames());
        assert_eq!(decoder.decode(b"\x01\0\0\0x").unwrap(), (5, Some(&b"x"[..])));
    }

    // Proves that memory grows with the bytes that arrived. Method: a length of 1 GiB is declared
    // and 100 bytes are pushed.
    #[test]
    fn memory_follows_the_bytes_not_the_length() {
        let mut decoder = FrameDecoder::new(KindDeframer::new(ChecksumKind::None));
        assert_eq!(decoder.decode(&(1_u32 << 30).to_le_bytes()).unwrap(), (4, None));
        assert_eq!(decoder.decode(&[0; 100]).unwrap(), (100, None));
        assert!(decoder.partial.capacity() <= 2 * GROWTH_BYTES_MAX);
    }

    // Proves that a damaged frame is detected and that decoding continues after it. Method: the
    // input is passed in one piece, and byte by byte.
    #[cfg(feature = "crc32")]
    #[test]
    fn damage_is_found() {
        let mut bytes = Vec::new();
        ChecksumKind::Crc32.frame_and_write(&mut bytes, b"payload").unwrap();
        bytes[12] ^= 4;
        ChecksumKind::Crc32.frame_and_write(&mut bytes, b"behind").unwrap();
        let mut decoder = FrameDecoder::new(KindDeframer::new(ChecksumKind::Crc32));
        assert!(decoder.decode(&bytes).unwrap_err().is_checksum_mismatch());
        let rest = &bytes[decoder.consumed()..];
        assert_eq!(decoder.decode(rest).unwrap(), (rest.len(), Some(&b"behind"[..])));
        assert!(decoder.decode(&bytes[..9]).unwrap().1.is_none());
        assert!(decoder.decode(&bytes[9..]).unwrap_err().is_checksum_mismatch());
        let rest = &bytes[9 + decoder.consumed()..];
        assert_eq!(decoder.decode(rest).unwrap(), (rest.len(), Some(&b"behind"[..])));
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        assert!(decode_all(&mut decoder, &pieces).unwrap_err().is_checksum_mismatch());
        assert!(decoder.is_between_frames());
    }
}
