//! Frames from bytes that arrive in pieces: sockets that would block, pipes, packets.

use super::deframer::{Extent, SliceDeframer, Step};
use super::error::Result;

/// How much memory is taken ahead of the bytes that prove a length, at most.
const GROWTH_BYTES_MAX: usize = 64 << 10;

/// Decodes frames without I/O: bytes go in as they arrive, payloads come out when they are whole. The state is kept
/// across any split.
///
/// A frame that lies whole in the bytes that are pushed is handed on in place; only a frame that is split between pieces
/// is put together in a buffer. Memory is bounded by the deframer's limit and by the bytes that have arrived.
///
/// ```
/// use flatcap::stream::{DefaultDeframer, FrameDecoder};
///
/// let mut decoder = FrameDecoder::new(DefaultDeframer::new().with_max_frame_len(1024));
/// let mut payloads = Vec::new();
/// for mut piece in [&b"\x03\0"[..], b"\0\0ab", b"c\x01\0\0\0d"] {
///     while !piece.is_empty() {
///         let (taken, payload) = decoder.decode(piece)?;
///         payloads.extend(payload.map(<[u8]>::to_vec));
///         piece = &piece[taken..];
///     }
/// }
/// assert_eq!(payloads, [&b"abc"[..], b"d"]);
/// assert!(decoder.is_between_frames());
/// # Ok::<(), flatcap::stream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FrameDecoder<D> {
    deframer: D,
    /// The front of a frame that is not complete.
    partial: Vec<u8>,
    /// Whether `partial` is a frame that has been handed on.
    is_complete: bool,
    taken: usize,
}

impl<D: SliceDeframer> FrameDecoder<D> {
    /// A decoder between frames.
    pub const fn new(deframer: D) -> Self {
        Self { deframer, partial: Vec::new(), is_complete: false, taken: 0 }
    }

    /// Takes bytes from the front of `input`: how many, and the payload that they complete, if they do. The rest of the
    /// input is for the next call. Without a payload all of the input was taken.
    ///
    /// # Errors
    /// `ChecksumMismatch`, and what validators say: the frame was whole, and decoding may go on behind the
    /// [`taken`](Self::taken) bytes of the input. `InvalidFrame`: the stream cannot be followed any further. The decoder
    /// is between frames then.
    pub fn decode<'a>(&'a mut self, input: &'a [u8]) -> Result<(usize, Option<&'a [u8]>)> {
        if std::mem::take(&mut self.is_complete) {
            self.partial.clear();
        }
        if self.partial.is_empty() {
            self.taken = whole_bytes(&self.deframer, input);
            return match self.deframer.deframe(input)? {
                Step::Frame(frame) => Ok((frame.bytes().len(), Some(frame.payload()))),
                Step::Incomplete { needed } => {
                    self.taken = input.len();
                    self.keep(input, needed);
                    Ok((input.len(), None))
                }
            };
        }
        self.taken = 0;
        loop {
            let goal = self.goal()?;
            let missing = goal.saturating_sub(self.partial.len());
            if missing == 0 {
                return self.complete();
            }
            let rest = input.get(self.taken..).unwrap_or_default();
            let (piece, _) = rest.split_at(rest.len().min(missing));
            if piece.is_empty() {
                return Ok((self.taken, None));
            }
            self.taken += piece.len();
            self.keep(piece, goal);
        }
    }

    /// Bytes that the last call took from its input, after an error too.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether no frame has begun: a stream may end here.
    pub fn is_between_frames(&self) -> bool {
        self.partial.is_empty() || self.is_complete
    }

    /// Bytes of a frame that has begun.
    pub fn pending_bytes(&self) -> usize {
        if self.is_complete { 0 } else { self.partial.len() }
    }

    /// Forgets a frame that has begun.
    pub fn reset(&mut self) {
        self.partial.clear();
        self.is_complete = false;
    }

    /// How many bytes the frame that has begun needs next: its header, so that its length meets the limit before more
    /// is kept, then all of it.
    fn goal(&mut self) -> Result<usize> {
        match self.deframer.measure(&self.partial).checked() {
            Ok(whole) => Ok(whole.unwrap_or(self.deframer.header_bytes())),
            Err(error) => {
                self.reset();
                Err(error)
            }
        }
    }

    /// Verifies the frame that has been put together.
    fn complete(&mut self) -> Result<(usize, Option<&[u8]>)> {
        let payload_bytes = match self.deframer.deframe(&self.partial) {
            Ok(Step::Frame(frame)) => frame.payload().len(),
            Ok(Step::Incomplete { .. }) => return Ok((self.taken, None)),
            Err(error) => {
                self.reset();
                return Err(error);
            }
        };
        self.is_complete = true;
        Ok((self.taken, self.partial.get(self.partial.len() - payload_bytes..)))
    }

    /// Keeps a piece of a frame of `needed` bytes. Memory follows the bytes that arrive, a step ahead at most.
    fn keep(&mut self, piece: &[u8], needed: usize) {
        let wanted = self.partial.len() + piece.len();
        let ahead = needed.min(wanted.saturating_mul(2).max(GROWTH_BYTES_MAX));
        if self.partial.capacity() < ahead {
            self.partial.reserve_exact(ahead - self.partial.len());
        }
        self.partial.extend_from_slice(piece);
    }
}

/// Length of the frame at the front of `input` if all of it is there.
#[inline]
fn whole_bytes<D: SliceDeframer>(deframer: &D, input: &[u8]) -> usize {
    match deframer.measure(input) {
        Extent::Bytes(length) if length <= input.len() => length,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::framer::Framer;
    use crate::stream::kind::{ChecksumKind, KindDeframer};

    fn decode_all<D: SliceDeframer>(decoder: &mut FrameDecoder<D>, pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let mut payloads = Vec::new();
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                let (taken, payload) = decoder.decode(piece)?;
                payloads.extend(payload.map(<[u8]>::to_vec));
                piece = &piece[taken..];
            }
        }
        Ok(payloads)
    }

    proptest! {
        // Goal: how bytes are divided changes nothing. Method: random payloads, random division, all kinds.
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
                    let (piece, behind) = rest.split_at(rest.len().min(*size));
                    pieces.push(piece);
                    rest = behind;
                }
                let mut decoder = FrameDecoder::new(KindDeframer::new(kind));
                prop_assert_eq!(&decode_all(&mut decoder, &pieces).unwrap(), &payloads);
                prop_assert!(decoder.is_between_frames());
                prop_assert_eq!(decoder.pending_bytes(), 0);
            }
        }
    }

    // Goal: a length above the limit is refused before anything is kept for it, whole or in pieces, and the decoder is
    // usable again. Method: 2 GiB declared, byte by byte.
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

    // Goal: memory follows the bytes that arrived. Method: 1 GiB declared and allowed, 100 bytes pushed.
    #[test]
    fn memory_follows_the_bytes_not_the_length() {
        let mut decoder = FrameDecoder::new(KindDeframer::new(ChecksumKind::None));
        assert_eq!(decoder.decode(&(1_u32 << 30).to_le_bytes()).unwrap(), (4, None));
        assert_eq!(decoder.decode(&[0; 100]).unwrap(), (100, None));
        assert!(decoder.partial.capacity() <= 2 * GROWTH_BYTES_MAX);
    }

    // Goal: a damaged frame is found however it arrives. Method: a flipped bit, whole and byte by byte.
    #[cfg(feature = "crc32")]
    #[test]
    fn damage_is_found() {
        let mut bytes = Vec::new();
        ChecksumKind::Crc32.frame_and_write(&mut bytes, b"payload").unwrap();
        bytes[12] ^= 4;
        ChecksumKind::Crc32.frame_and_write(&mut bytes, b"behind").unwrap();
        let mut decoder = FrameDecoder::new(KindDeframer::new(ChecksumKind::Crc32));
        assert!(decoder.decode(&bytes).unwrap_err().is_checksum_mismatch());
        let behind = &bytes[decoder.taken()..];
        assert_eq!(decoder.decode(behind).unwrap(), (behind.len(), Some(&b"behind"[..])));
        assert!(decoder.decode(&bytes[..9]).unwrap().1.is_none());
        assert!(decoder.decode(&bytes[9..]).unwrap_err().is_checksum_mismatch());
        let behind = &bytes[9 + decoder.taken()..];
        assert_eq!(decoder.decode(behind).unwrap(), (behind.len(), Some(&b"behind"[..])));
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        assert!(decode_all(&mut decoder, &pieces).unwrap_err().is_checksum_mismatch());
        assert!(decoder.is_between_frames());
    }
}
