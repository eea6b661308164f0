//! What can still be read of a damaged stream: reading on behind every hole.
//!
//! A frame's checksum covers its payload, not its length, so one bad frame says nothing about where the next begins.
//! The search takes every place where a frame could begin, cheap tests first, and believes a candidate when the
//! evidence for it is strong enough ([`EVIDENCE_BITS`]): its checksum, its landmark, and frames that follow it without a
//! gap. docs/ARCHITECTURE.md, "Salvage", has the rules and why they are so.

use super::deframer::{Extent, Frame, SliceDeframer, Step};
use super::framer::LENGTH_BYTES;

/// How unlikely a frame must be by chance before the search believes it: once in 2^32 places.
const EVIDENCE_BITS: usize = 32;
/// Bits of evidence in four bytes that stand where a FlatBuffer's identifier stands.
const LANDMARK_BITS: usize = 32;
/// Bits of evidence in a length that is possible: with limits of 16 MiB one random number in 256 is.
const LENGTH_BITS: usize = 8;
/// Bits of evidence in a frame that ends exactly where the stream ends.
const END_BITS: usize = 16;
/// Where a FlatBuffer's identifier stands in its payload.
const IDENTIFIER_AT: usize = 4;
/// Bytes of a FlatBuffer's identifier.
const IDENTIFIER_BYTES: usize = 4;
/// From this many zero bytes on, a place where a frame should begin is empty space. Under CRC-16, CRC-32 and without a
/// checksum zeros read as empty frames: so many in a row are believed to be none.
const ZEROS_MIN: usize = 64;
/// Bytes that may be hashed in vain before the first byte was searched...
const HASHED_IN_VAIN_MIN: u64 = 64 << 20;
/// ...and for every byte of the stream that was passed. Together they keep the work linear on hostile input, where
/// every byte claims to begin a long frame; beyond them a long candidate is not believed.
const HASHED_IN_VAIN_PER_BYTE: u64 = 8;

/// A piece of a damaged stream. The pieces of a stream follow one another without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Where it begins.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
    /// What it is.
    pub content: Content<'a>,
}

/// What a piece of a damaged stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// An intact frame: its payload.
    Frame(&'a [u8]),
    /// A frame whose length alone was damaged, as its checksum proves: its payload.
    Repaired(&'a [u8]),
    /// Bytes that are no intact frame. If it reaches the end of a stream that was being written, it may be a torn tail.
    Hole,
    /// Zeros: space that was never written.
    Zeros,
}

impl<'a> Content<'a> {
    /// The payload of a frame, intact or repaired.
    pub fn payload(&self) -> Option<&'a [u8]> {
        match self {
            Self::Frame(payload) | Self::Repaired(payload) => Some(payload),
            Self::Hole | Self::Zeros => None,
        }
    }
}

/// Reads a stream to its end, whatever is in it: see [`Salvage`].
///
/// ```
/// use flatcap::stream::{Content, DefaultDeframer, Framer, DefaultFramer, salvage};
///
/// let mut bytes = Vec::new();
/// for text in ["one frame", "another one", "the third one", "the last one"] {
///     DefaultFramer.frame_and_write(&mut bytes, text.as_bytes())?;
/// }
/// bytes[3] = 0x7F; // the first length is damaged
/// let pieces: Vec<_> = salvage(&bytes, DefaultDeframer::new()).map(|piece| piece.content).collect();
/// assert_eq!(pieces[0], Content::Hole);
/// assert_eq!(pieces[1].payload(), Some(&b"another one"[..]));
/// assert_eq!(pieces.len(), 4);
/// # Ok::<(), flatcap::stream::Error>(())
/// ```
pub fn salvage<D: SliceDeframer>(bytes: &[u8], deframer: D) -> Salvage<'_, D> {
    Salvage::new(bytes, deframer)
}

/// Iterates over the pieces of a damaged stream. Reads only; time is linear in the stream's length, memory constant.
///
/// Without landmarks a single intact frame between two damaged ones is found under XXH3 and CRC-32; under CRC-16 it
/// takes two in a row, and without a checksum four.
#[derive(Debug, Clone)]
pub struct Salvage<'a, D> {
    bytes: &'a [u8],
    deframer: D,
    landmarks: &'a [[u8; IDENTIFIER_BYTES]],
    plausible: fn(&[u8]) -> bool,
    payload_bytes_min: usize,
    offset: usize,
    hashed_in_vain: u64,
}

impl<'a, D: SliceDeframer> Salvage<'a, D> {
    /// From the start of `bytes`.
    pub fn new(bytes: &'a [u8], deframer: D) -> Self {
        Self {
            bytes,
            deframer,
            landmarks: &[],
            plausible: |_| true,
            payload_bytes_min: 0,
            offset: 0,
            hashed_in_vain: 0,
        }
    }

    /// For streams whose every payload has one of these FlatBuffers identifiers. Others are damage.
    #[must_use]
    pub fn with_landmarks(mut self, landmarks: &'a [[u8; IDENTIFIER_BYTES]]) -> Self {
        self.landmarks = landmarks;
        self.payload_bytes_min = self.payload_bytes_min.max(IDENTIFIER_AT + IDENTIFIER_BYTES);
        self
    }

    /// For streams whose every payload satisfies `plausible`, for instance a verifier. Others are damage.
    #[must_use]
    pub fn with_plausible(mut self, plausible: fn(&[u8]) -> bool) -> Self {
        self.plausible = plausible;
        self
    }

    /// For streams whose every payload has at least so many bytes. Others are damage.
    #[must_use]
    pub fn with_payload_bytes_min(mut self, bytes: usize) -> Self {
        self.payload_bytes_min = self.payload_bytes_min.max(bytes);
        self
    }

    /// Begins at `offset` instead of the start.
    #[must_use]
    pub fn starting_at(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// The frame at `offset`, if it is one.
    fn frame_at(&mut self, offset: usize) -> Option<Frame<'a>> {
        let rest = self.bytes.get(offset..)?;
        let Extent::Bytes(length) = self.deframer.measure(rest) else { return None };
        if length > rest.len() || !self.may_hash() {
            return None;
        }
        match self.deframer.deframe(rest) {
            Ok(Step::Frame(frame)) if self.may_be(frame.payload()) => Some(frame),
            _ => {
                self.hashed_in_vain += length as u64;
                None
            }
        }
    }

    fn may_be(&self, payload: &[u8]) -> bool {
        payload.len() >= self.payload_bytes_min && self.has_landmark(payload) && (self.plausible)(payload)
    }

    fn has_landmark(&self, payload: &[u8]) -> bool {
        self.landmarks.is_empty()
            || payload
                .get(IDENTIFIER_AT..)
                .and_then(<[u8]>::first_chunk)
                .is_some_and(|found| self.landmarks.contains(found))
    }

    /// Whether anything may still be hashed on suspicion.
    fn may_hash(&self) -> bool {
        let passed = self.offset as u64;
        self.hashed_in_vain <= HASHED_IN_VAIN_MIN + passed.saturating_mul(HASHED_IN_VAIN_PER_BYTE)
    }

    /// Where the frame ends that could begin at `offset`, as far as its header and its landmark tell.
    fn candidate_end(&self, offset: usize) -> Option<usize> {
        let rest = self.bytes.get(offset..)?;
        let payload = rest.get(self.deframer.header_bytes()..)?;
        if !self.has_landmark(payload) {
            return None;
        }
        let Extent::Bytes(length) = self.deframer.measure(rest) else { return None };
        // An empty frame has no evidence of its own.
        let least = self.deframer.header_bytes() + self.payload_bytes_min.max(1);
        (length >= least && length <= rest.len()).then_some(offset + length)
    }

    /// The frame at `offset`, if the evidence for it is strong enough.
    fn believed_at(&mut self, offset: usize) -> Option<Frame<'a>> {
        let checksum_bits = 8 * self.deframer.checksum_bytes();
        let landmark_bits = if self.landmarks.is_empty() { 0 } else { LANDMARK_BITS };
        let frame_bits = (checksum_bits + landmark_bits).max(LENGTH_BITS);
        // The headers first: they cost next to nothing.
        let mut end = self.candidate_end(offset)?;
        let mut followers = 0;
        let mut bits = frame_bits;
        while bits < EVIDENCE_BITS {
            if end == self.bytes.len() {
                bits += END_BITS;
                break;
            }
            end = self.candidate_end(end)?;
            followers += 1;
            bits += frame_bits;
        }
        if bits < EVIDENCE_BITS {
            return None;
        }
        let first = self.frame_at(offset)?;
        let mut next = offset + first.bytes().len();
        for _ in 0..followers {
            next += self.frame_at(next)?.bytes().len();
        }
        // Whatever the search looks at is paid for: a candidate may be true and yet not be taken.
        self.hashed_in_vain += (next - offset) as u64;
        Some(first)
    }

    /// What begins at `offset`, where no intact frame does.
    fn damaged(&mut self, offset: usize) -> Piece<'a> {
        let declared_end = self.declared_end(offset);
        let limit = declared_end.unwrap_or(self.bytes.len());
        for at in offset + 1..limit {
            if self.believed_at(at).is_none() {
                continue;
            }
            if let Some(payload) = self.repaired(offset, at) {
                return Piece { offset, length: at - offset, content: Content::Repaired(payload) };
            }
            // With an intact frame where the damaged one ends by its own length, frames in between are its payload.
            if declared_end.is_none() {
                return Piece { offset, length: at - offset, content: Content::Hole };
            }
        }
        let repaired = self.repaired(offset, limit).filter(|_| limit == self.bytes.len());
        let content = repaired.map_or(Content::Hole, Content::Repaired);
        Piece { offset, length: limit - offset, content }
    }

    /// The end of the damaged frame at `offset` by its own length, if an intact frame or the end of the stream is there.
    fn declared_end(&mut self, offset: usize) -> Option<usize> {
        let Extent::Bytes(length) = self.deframer.measure(self.bytes.get(offset..)?) else { return None };
        let end = offset.checked_add(length)?;
        (end == self.bytes.len() || self.believed_at(end).is_some()).then_some(end)
    }

    /// The payload between the header at `offset` and `end`, if the checksum of that header proves it.
    fn repaired(&mut self, offset: usize, end: usize) -> Option<&'a [u8]> {
        let damaged = self.bytes.get(offset..end)?;
        let (header, payload) = damaged.split_at_checked(self.deframer.header_bytes())?;
        if !self.may_hash() || !self.may_be(payload) {
            return None;
        }
        self.hashed_in_vain += payload.len() as u64;
        self.deframer.is_proven(header, payload).then_some(payload)
    }

    /// The empty space at `offset`, if there is some.
    fn zeros(&mut self, offset: usize) -> Option<Piece<'a>> {
        let rest = self.bytes.get(offset..)?;
        let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
        if zeros < ZEROS_MIN {
            return None;
        }
        // The length of the frame behind may itself begin with zeros.
        let mut end = offset + zeros;
        for at in end - LENGTH_BYTES + 1..end {
            if self.believed_at(at).is_some() {
                end = at;
                break;
            }
        }
        Some(Piece { offset, length: end - offset, content: Content::Zeros })
    }
}

impl<'a, D: SliceDeframer> Iterator for Salvage<'a, D> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let offset = self.offset;
        if offset >= self.bytes.len() {
            return None;
        }
        let piece = match self.zeros(offset) {
            Some(zeros) => zeros,
            None => match self.frame_at(offset) {
                Some(frame) => {
                    let content = Content::Frame(frame.payload());
                    Piece { offset, length: frame.bytes().len(), content }
                }
                None => self.damaged(offset),
            },
        };
        self.offset += piece.length;
        Some(piece)
    }
}

impl<D: SliceDeframer> std::iter::FusedIterator for Salvage<'_, D> {}
