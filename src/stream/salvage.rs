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
/// every byte claims to begin a long frame; beyond them only short frames are believed, which cost little.
const HASHED_IN_VAIN_PER_BYTE: u64 = 8;
/// Longest frame that is always hashed, where one is searched.
const SHORT_BYTES_SEARCHED: usize = 256;
/// Longest frame that is always hashed, where one is expected: behind another.
const SHORT_BYTES_EXPECTED: usize = 4 << 10;
/// Without landmarks, a longer candidate that does not end where another frame could begin takes from half of what may be
/// hashed in vain at most: payloads are full of small numbers that could be lengths.
const LONE_BYTES_MAX: usize = 4 << 10;
/// At so many ends of frames behind a damaged one the bytes up to there are tried as its payload.
const REPAIRS_MAX: usize = 16;

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
/// Without landmarks a single intact frame between two damaged ones is found under XXH3 and CRC-32 if it has 64 KiB or
/// less; under CRC-16 it takes two in a row, and without a checksum four. With landmarks one is found under any
/// checksum and of any length.
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
        if landmarks.is_empty() {
            return self;
        }
        self.with_payload_bytes_min(IDENTIFIER_AT + IDENTIFIER_BYTES)
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

    /// The frame at `offset`, if it is one. It is always hashed if it is no longer than `short`.
    fn frame_at(&mut self, offset: usize, short: usize) -> Option<Frame<'a>> {
        let rest = self.bytes.get(offset..)?;
        let Extent::Bytes(length) = self.deframer.measure(rest) else { return None };
        if length > rest.len() || (length > short && !self.may_hash(length)) {
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

    /// Whether so many bytes may still be hashed on suspicion.
    fn may_hash(&self, length: usize) -> bool {
        self.hashed_in_vain.saturating_add(length as u64) <= self.allowed_in_vain()
    }

    /// Whether so many bytes may be hashed although nothing could follow them: half of what may be hashed at all.
    fn may_hash_lone(&self, length: usize) -> bool {
        self.hashed_in_vain.saturating_add(length as u64) <= self.allowed_in_vain() / 2
    }

    fn allowed_in_vain(&self) -> u64 {
        HASHED_IN_VAIN_MIN + (self.offset as u64).saturating_mul(HASHED_IN_VAIN_PER_BYTE)
    }

    /// Where the frame ends that could begin at `offset`, as far as its header and its landmark tell.
    fn candidate_end(&self, offset: usize) -> Option<usize> {
        let rest = self.bytes.get(offset..)?;
        let payload = rest.get(self.deframer.header_bytes()..)?;
        if !self.has_landmark(payload) {
            return None;
        }
        let Extent::Bytes(length) = self.deframer.measure(rest) else { return None };
        // Under most checksums an empty frame is a row of zeros, which is no evidence of anything.
        let header = rest.get(..self.deframer.header_bytes())?;
        let is_something = header.iter().any(|&byte| byte != 0);
        let least = header.len() + self.payload_bytes_min;
        (is_something && length >= least && length <= rest.len()).then_some(offset + length)
    }

    /// The frame at `offset`, if the evidence for it is strong enough.
    fn believed_at(&mut self, offset: usize) -> Option<Frame<'a>> {
        let checksum_bits = 8 * self.deframer.checksum_bytes();
        let landmark_bits = if self.landmarks.is_empty() { 0 } else { LANDMARK_BITS };
        let frame_bits = (checksum_bits + landmark_bits).max(LENGTH_BITS);
        // The headers first: they cost next to nothing.
        let mut end = self.candidate_end(offset)?;
        let is_lone = end != self.bytes.len() && self.candidate_end(end).is_none();
        let length = end - offset;
        if is_lone && length > LONE_BYTES_MAX && self.landmarks.is_empty() && !self.may_hash_lone(length) {
            return None;
        }
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
        let first = self.frame_at(offset, SHORT_BYTES_SEARCHED)?;
        let mut next = offset + first.bytes().len();
        for _ in 0..followers {
            next += self.frame_at(next, SHORT_BYTES_SEARCHED)?.bytes().len();
        }
        // Whatever the search looks at is paid for: a candidate may be true and yet not be taken.
        self.hashed_in_vain += (next - offset) as u64;
        Some(first)
    }

    /// What begins at `offset`, where no intact frame does.
    fn damaged(&mut self, offset: usize) -> Piece<'a> {
        let declared_end = self.declared_end(offset);
        let whole = self.bytes.len();
        let (limit, next) = declared_end.unwrap_or((whole, whole));
        for at in offset + 1..limit {
            if self.believed_at(at).is_none() {
                continue;
            }
            let mut repaired = self.repaired_up_to(offset, at);
            if repaired.is_none() && declared_end.is_none() {
                repaired = self.repaired_beyond(offset, at);
            }
            if let Some(payload) = repaired {
                return self.piece_of(offset, payload);
            }
            // With an intact frame where the damaged one ends by its own length, frames in between are its payload.
            if declared_end.is_none() {
                return Piece { offset, length: at - offset, content: Content::Hole };
            }
        }
        match self.repaired_up_to(offset, next) {
            Some(payload) => self.piece_of(offset, payload),
            None => Piece { offset, length: limit - offset, content: Content::Hole },
        }
    }

    fn piece_of(&self, offset: usize, repaired: &'a [u8]) -> Piece<'a> {
        let length = self.deframer.header_bytes() + repaired.len();
        Piece { offset, length, content: Content::Repaired(repaired) }
    }

    /// The payload of the damaged frame at `offset`, if it ends at `end`, or in front of empty frames that end there.
    fn repaired_up_to(&mut self, offset: usize, mut end: usize) -> Option<&'a [u8]> {
        let header_bytes = self.deframer.header_bytes();
        for _ in 0..REPAIRS_MAX {
            if let Some(payload) = self.repaired(offset, end) {
                return Some(payload);
            }
            let empty = end.checked_sub(header_bytes).filter(|&empty| empty > offset)?;
            if self.bytes.get(empty..end)?.iter().any(|&byte| byte != 0) {
                return None;
            }
            end = empty;
        }
        None
    }

    /// The payload of the damaged frame at `offset`, if it ends behind one of the frames from `end` on: those then were a
    /// part of it.
    fn repaired_beyond(&mut self, offset: usize, mut end: usize) -> Option<&'a [u8]> {
        for _ in 0..REPAIRS_MAX {
            end += self.frame_at(end, SHORT_BYTES_SEARCHED)?.bytes().len();
            if let Some(payload) = self.repaired(offset, end) {
                return Some(payload);
            }
        }
        None
    }

    /// The end of the damaged frame at `offset` by its own length, if an intact frame or the end of the stream is there, or
    /// behind empty frames that stand there; and where that frame, or that end, is.
    fn declared_end(&mut self, offset: usize) -> Option<(usize, usize)> {
        let Extent::Bytes(length) = self.deframer.measure(self.bytes.get(offset..)?) else { return None };
        let declared = offset.checked_add(length)?;
        let mut end = declared;
        for _ in 0..REPAIRS_MAX {
            if end == self.bytes.len() || self.believed_at(end).is_some() {
                return Some((declared, end));
            }
            let empty = self.bytes.get(end..end.checked_add(self.deframer.header_bytes())?)?;
            if empty.iter().any(|&byte| byte != 0) {
                return None;
            }
            end += empty.len();
        }
        None
    }

    /// The payload between the header at `offset` and `end`, if the checksum of that header proves it.
    fn repaired(&mut self, offset: usize, end: usize) -> Option<&'a [u8]> {
        let damaged = self.bytes.get(offset..end)?;
        let (header, payload) = damaged.split_at_checked(self.deframer.header_bytes())?;
        let is_short = payload.len() <= SHORT_BYTES_SEARCHED;
        if !(is_short || self.may_hash(payload.len())) || !self.may_be(payload) {
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
            None => match self.frame_at(offset, SHORT_BYTES_EXPECTED) {
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

#[cfg(all(test, feature = "xxhash", feature = "crc32", feature = "crc16"))]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::stream::checksum::{Checksum, XxHash64};
    use crate::stream::deframer::ChecksumDeframer;
    use crate::stream::framer::Framer;
    use crate::stream::kind::{ChecksumKind, KindDeframer};

    const LIMIT: usize = 1 << 20;

    struct Stream {
        kind: ChecksumKind,
        bytes: Vec<u8>,
        /// Offset and payload of each frame.
        frames: Vec<(usize, Vec<u8>)>,
    }

    fn stream(kind: ChecksumKind, payloads: impl IntoIterator<Item = Vec<u8>>) -> Stream {
        let mut bytes = Vec::new();
        let mut frames = Vec::new();
        for payload in payloads {
            frames.push((bytes.len(), payload.clone()));
            kind.frame_and_write(&mut bytes, &payload).expect("a vector takes everything");
        }
        Stream { kind, bytes, frames }
    }

    /// Bytes that look like nothing.
    fn noise(seed: usize, length: usize) -> Vec<u8> {
        let mut state = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..length).map(|_| next()).collect()
    }

    fn deframer(kind: ChecksumKind) -> KindDeframer {
        KindDeframer::new(kind).with_max_frame_len(LIMIT)
    }

    /// The pieces, after a check that they tile the stream.
    fn pieces<'a, D: SliceDeframer>(salvage: Salvage<'a, D>) -> Vec<Piece<'a>> {
        let (mut end, whole) = (salvage.offset, salvage.bytes.len());
        let pieces: Vec<Piece<'a>> = salvage.collect();
        for piece in &pieces {
            assert_eq!(piece.offset, end, "a gap or an overlap");
            assert!(piece.length > 0);
            end += piece.length;
        }
        assert_eq!(end, whole);
        pieces
    }

    fn payloads<'a>(pieces: &[Piece<'a>]) -> Vec<&'a [u8]> {
        pieces.iter().filter_map(|piece| piece.content.payload()).collect()
    }

    impl Stream {
        /// Payloads of all frames but those that overlap with `damage`.
        fn untouched(&self, damage: impl Fn(usize) -> bool) -> Vec<&[u8]> {
            let header = self.kind.frame_bytes(0);
            let touched = |at: usize, length: usize| (at..at + header + length).any(&damage);
            let frames = self.frames.iter().filter(|(at, payload)| !touched(*at, payload.len()));
            frames.map(|(_, payload)| &payload[..]).collect()
        }
    }

    // Goal: a flipped bit costs at most the frame it hits, and a flipped length nothing. Method: every bit of streams of
    // mixed sizes and of equal frames of 64 bytes, whose flipped lengths point at later frames.
    #[test]
    fn every_flip_costs_at_most_its_frame() {
        for kind in [ChecksumKind::Xxh3, ChecksumKind::Crc32] {
            let mixed = [5, 60, 0, 1, 200, 33, 8, 0, 64].into_iter().enumerate();
            let equal = 64 - kind.frame_bytes(0);
            for stream in [
                stream(kind, mixed.map(|(seed, length)| noise(seed, length))),
                stream(kind, (0..12).map(|seed| noise(seed, equal))),
            ] {
                for bit in 0..stream.bytes.len() * 8 {
                    let mut damaged = stream.bytes.clone();
                    damaged[bit / 8] ^= 1 << (bit % 8);
                    let pieces = pieces(salvage(&damaged, deframer(kind)));
                    let hit = stream.frames.iter().rposition(|(at, _)| *at <= bit / 8).unwrap();
                    let is_length = bit / 8 < stream.frames[hit].0 + LENGTH_BYTES;
                    let found = payloads(&pieces);
                    // Under CRC-32 an empty frame is eight zeros: neither is it proven, nor what ends in front of it.
                    let is_empty =
                        |frame: usize| stream.frames.get(frame).is_some_and(|frame| frame.1.is_empty());
                    let is_proven = kind == ChecksumKind::Xxh3 || !is_empty(hit) && !is_empty(hit + 1);
                    if is_length && is_proven {
                        assert_eq!(found, stream.untouched(|_| false), "{kind}, bit {bit}");
                        assert!(pieces.iter().any(|piece| matches!(piece.content, Content::Repaired(_))));
                    } else {
                        let expected = stream.untouched(|at| at == bit / 8);
                        let at_least = expected.iter().all(|payload| found.contains(payload));
                        assert!(at_least && found.len() <= stream.frames.len(), "{kind}, bit {bit}");
                    }
                }
            }
        }
    }

    // Goal: a cut gives the whole frames in front of it, a removed or repeated stretch the frames that are whole. Method:
    // every cut; stretches at every place.
    #[test]
    fn cuts_and_removed_stretches() {
        let kind = ChecksumKind::Xxh3;
        let stream = stream(kind, (0..8).map(|seed| noise(seed, 20 + 7 * seed)));
        for cut in 0..stream.bytes.len() {
            let found = pieces(salvage(&stream.bytes[..cut], deframer(kind)));
            assert_eq!(payloads(&found), stream.untouched(|at| at >= cut), "cut at {cut}");
        }
        for from in 0..stream.bytes.len() - 50 {
            let removed = from..from + 50;
            let rest = [&stream.bytes[..removed.start], &stream.bytes[removed.end..]].concat();
            let found = pieces(salvage(&rest, deframer(kind)));
            assert_eq!(payloads(&found), stream.untouched(|at| removed.contains(&at)), "removed at {from}");
            let repeated = [&stream.bytes[..removed.end], &stream.bytes[removed.start..]].concat();
            let found = pieces(salvage(&repeated, deframer(kind)));
            assert!(payloads(&found).len() >= stream.untouched(|at| at == removed.end).len());
        }
    }

    // Goal: zeros are told from damage, and a frame behind them is found although its length begins with zeros. Method:
    // a zeroed stretch at every place; zeros in front of a frame of 256 bytes.
    #[test]
    fn zeros_are_no_damage() {
        for &kind in ChecksumKind::ALL {
            let stream = stream(kind, (0..10).map(|seed| noise(seed, 256)));
            let with_zeros = |at: usize| [&stream.bytes[..at], &[0; 200], &stream.bytes[at..]].concat();
            for (at, _) in &stream.frames {
                let bytes = with_zeros(*at);
                let found = pieces(salvage(&bytes, deframer(kind)));
                assert_eq!(found.iter().filter(|piece| piece.content == Content::Zeros).count(), 1, "{kind}");
                // Without enough followers the last frames lack evidence behind a hole, but not behind zeros alone.
                let lost = stream.frames.len() - payloads(&found).len();
                assert!(lost <= usize::from(kind != ChecksumKind::Xxh3) * 3, "{kind}: {lost} lost at {at}");
            }
        }
        let kind = ChecksumKind::Xxh3;
        let stream = stream(kind, (0..10).map(|seed| noise(seed, 256)));
        for from in 0..stream.bytes.len() - 512 {
            let mut damaged = stream.bytes.clone();
            damaged[from..from + 512].fill(0);
            let found = pieces(salvage(&damaged, deframer(kind)));
            let expected = stream.untouched(|at| damaged[at] != stream.bytes[at]);
            assert_eq!(payloads(&found), expected, "zeros at {from}");
        }
    }

    // Goal: frames within a payload are that payload, not frames. Method: a payload made of frames, damaged in its own
    // header, its content, and its length.
    #[test]
    fn frames_within_a_payload_stay_there() {
        let kind = ChecksumKind::Xxh3;
        let inner = stream(kind, (0..3).map(|seed| noise(seed, 30))).bytes;
        let stream = stream(kind, [noise(9, 40), inner.clone(), noise(11, 50)]);
        let at = stream.frames[1].0;
        for byte in at..at + kind.frame_bytes(inner.len()) {
            let mut damaged = stream.bytes.clone();
            damaged[byte] ^= 0x10;
            let found = pieces(salvage(&damaged, deframer(kind)));
            let expected = stream.untouched(|at| at == byte);
            let is_length = byte < at + LENGTH_BYTES;
            if is_length {
                // The first candidate stands within the payload, and no checksum proves the bytes up to it: what is in
                // there cannot be told from what should be.
                assert!(expected.iter().all(|payload| payloads(&found).contains(payload)), "byte {byte}");
            } else {
                assert_eq!(payloads(&found), expected, "byte {byte}");
            }
        }
    }

    // Goal: landmarks make one frame enough, under every checksum. Method: payloads with identifiers, every second frame
    // damaged.
    #[test]
    fn landmarks_are_evidence() {
        for &kind in ChecksumKind::ALL {
            let payload = |seed| {
                let mut payload = noise(seed, 40);
                payload[4..8].copy_from_slice(if seed % 2 == 0 { b"EVEN" } else { b"ODD " });
                payload
            };
            let stream = stream(kind, (0..20).map(payload));
            let mut damaged = stream.bytes.clone();
            for (at, _) in stream.frames.iter().step_by(2) {
                damaged[at + 3] = 0xFF;
                damaged[at + kind.frame_bytes(20)] ^= 0xFF;
            }
            let landmarks = [*b"EVEN", *b"ODD "];
            let found = pieces(salvage(&damaged, deframer(kind)).with_landmarks(&landmarks));
            let odd: Vec<&[u8]> =
                stream.frames.iter().skip(1).step_by(2).map(|(_, payload)| &payload[..]).collect();
            assert_eq!(payloads(&found), odd, "{kind}");
            let other = [*b"ELSE"];
            let none = pieces(salvage(&stream.bytes, deframer(kind)).with_landmarks(&other));
            assert!(payloads(&none).is_empty());
        }
    }

    // Goal: what a caller knows of payloads is asked of every frame. Method: a rule that half of the frames break.
    #[test]
    fn implausible_payloads_are_damage() {
        let stream =
            stream(ChecksumKind::Xxh3, (0..10).map(|seed| vec![u8::try_from(seed % 2).unwrap(); 30]));
        let found =
            pieces(salvage(&stream.bytes, deframer(stream.kind)).with_plausible(|payload| payload[0] == 1));
        assert_eq!(payloads(&found), [&[1_u8; 30][..]; 5]);
        let found = pieces(salvage(&stream.bytes, deframer(stream.kind)).with_payload_bytes_min(31));
        assert!(payloads(&found).is_empty());
        let found = pieces(salvage(&stream.bytes, deframer(stream.kind)).starting_at(stream.frames[4].0));
        assert_eq!(payloads(&found).len(), 6);
    }

    // Goal: damage here and there costs the frames it touches and no others. Method: 1,000 flips in 50,000 frames of
    // several sizes.
    #[test]
    fn a_thousand_flips() {
        let kind = ChecksumKind::Xxh3;
        let stream = stream(kind, (0..50_000).map(|seed| noise(seed, 16 + 4 * (seed % 9))));
        let mut damaged = stream.bytes.clone();
        let bits: Vec<usize> =
            (0..1000).map(|flip| (flip * 2_654_435_761_usize) % (damaged.len() * 8)).collect();
        for bit in &bits {
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
        let mut bytes: Vec<usize> = bits.iter().map(|bit| bit / 8).collect();
        bytes.sort_unstable();
        let found = pieces(salvage(&damaged, deframer(kind)));
        let untouched = stream.untouched(|at| bytes.binary_search(&at).is_ok());
        let mut found = payloads(&found).into_iter();
        let missing =
            untouched.iter().filter(|payload| !found.by_ref().any(|found| found == **payload)).count();
        assert_eq!(missing, 0, "of {}", untouched.len());
    }

    /// Counts what it hashes.
    struct Counting<'c>(&'c Cell<usize>);

    impl Checksum for Counting<'_> {
        const SIZE: usize = 8;

        fn calculate(&self, payload: &[u8]) -> u64 {
            self.0.set(self.0.get() + payload.len());
            XxHash64.calculate(payload)
        }
    }

    // Goal: no input makes the work more than linear. Method: what is hashed on input that claims a long frame at every
    // byte, on intact small frames between headers that declare long ones, and on landmarks everywhere.
    #[test]
    fn hostile_input_costs_linear_work() {
        const BYTES: usize = 2 << 20;
        let claims: Vec<u8> = [0x00, 0x00, 0x0F, 0x00].into_iter().cycle().take(BYTES).collect();
        let mut alternating = Vec::new();
        while alternating.len() < BYTES {
            ChecksumKind::Xxh3.frame_and_write(&mut alternating, b"small").unwrap();
            alternating.extend_from_slice(&0x000F_0000_u32.to_le_bytes());
            alternating.extend_from_slice(&[7; 8]);
        }
        let landmarks: Vec<u8> = b"MARK".iter().copied().cycle().take(BYTES).collect();
        for (bytes, marks) in [(claims, &[][..]), (alternating, &[]), (landmarks, &[*b"MARK", *b"ARKM"])] {
            let hashed = Cell::new(0);
            let deframer = ChecksumDeframer::new(Counting(&hashed)).with_max_frame_len(LIMIT);
            pieces(salvage(&bytes, deframer).with_landmarks(marks));
            let allowed =
                HASHED_IN_VAIN_MIN + (HASHED_IN_VAIN_PER_BYTE + 2) * BYTES as u64 + 4 * LIMIT as u64;
            assert!((hashed.get() as u64) < allowed, "{} bytes hashed, {allowed} allowed", hashed.get());
        }
    }

    proptest! {
        // Goal: whatever the bytes, the pieces tile them, and what is called a frame is one. Method: random bytes with
        // small numbers among them, with and without landmarks.
        #[test]
        fn any_bytes_are_tiled(bytes in proptest::collection::vec(prop_oneof![Just(0_u8), 0..9_u8, any::<u8>()], 0..400)) {
            for &kind in ChecksumKind::ALL {
                let deframer = deframer(kind);
                for landmarks in [&[][..], &[[0; 4]]] {
                    for piece in pieces(salvage(&bytes, deframer).with_landmarks(landmarks)) {
                        if let Content::Frame(payload) = piece.content {
                            let frame = &bytes[piece.offset..piece.offset + piece.length];
                            match deframer.deframe(frame).unwrap() {
                                Step::Frame(found) => prop_assert_eq!(found.payload(), payload),
                                Step::Incomplete { .. } => prop_assert!(false, "a part of a frame"),
                            }
                        }
                    }
                }
            }
        }

        // Goal: an intact stream is its frames and nothing else. Method: random payloads, all checksums.
        #[test]
        fn an_intact_stream_is_its_frames(
            lengths in proptest::collection::vec(1..80_usize, 0..30),
        ) {
            for &kind in ChecksumKind::ALL {
                let stream = stream(kind, lengths.iter().enumerate().map(|(seed, length)| noise(seed, *length)));
                let found = pieces(salvage(&stream.bytes, deframer(kind)));
                prop_assert!(found.iter().all(|piece| matches!(piece.content, Content::Frame(_))));
                prop_assert_eq!(payloads(&found), stream.untouched(|_| false));
            }
        }
    }
}
