//! Salvage, which reads a damaged stream and resynchronizes after every damaged range.
//!
//! A frame's checksum covers its payload, not its length, so after a damaged frame the start of the
//! next frame is unknown. The search tries every offset, with cheap tests first. The search accepts
//! a candidate when the evidence for a frame is strong enough ([`EVIDENCE_BITS`]). The evidence
//! consists of the checksum of the candidate, its FlatBuffers identifier, and the frames that
//! follow it without a gap.

use std::convert::Infallible;

use super::deframer::{DeframeStatus, Frame, FrameLength, SliceDeframer};
use super::resync::{
    DamagedStream, HashBudget, REPAIR_ATTEMPTS_MAX, ResyncRange, SHORT_BYTES_EXPECTED, SHORT_BYTES_SEARCHED,
    resync, zeros_end,
};

/// Minimum number of bits of evidence for a candidate. In random bytes, this much evidence occurs
/// at one of 2^32 offsets on average.
const EVIDENCE_BITS: usize = 32;
/// Bits of evidence from a known FlatBuffers identifier. An identifier has four bytes.
const IDENTIFIER_BITS: usize = 32;
/// Bits of evidence from a length field with a possible value. With a limit of 16 MiB, one of 256
/// random values of a length field is a possible length.
const LENGTH_BITS: usize = 8;
/// Bits of evidence from a frame that ends exactly at the end of the stream.
const END_BITS: usize = 16;
/// Offset of a FlatBuffer's identifier in its payload.
const IDENTIFIER_OFFSET: usize = 4;
/// Length of a FlatBuffer's identifier.
const IDENTIFIER_BYTES: usize = 4;
/// Length in bytes above which the hashing of candidates is limited if there are no identifiers.
/// Longer candidates may use only half of the hashing budget, because payloads are full of small
/// integers that look like lengths. A candidate is exempt if another frame could begin at its end.
const ISOLATED_BYTES_MAX: u64 = 4 << 10;

/// A region of a damaged stream, with its offset. The regions of a stream follow one another
/// without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SalvagedRegion<'a> {
    /// Offset in the stream.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
    /// Content of the region.
    pub content: RegionContent<'a>,
}

/// The content of a region of a damaged stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionContent<'a> {
    /// The payload of an intact frame.
    Frame(&'a [u8]),
    /// The payload of a frame whose checksum proves that only its length was damaged.
    Repaired(&'a [u8]),
    /// Bytes that do not belong to an intact frame. At the end of a stream that was being written,
    /// these bytes may be a torn tail.
    Damaged,
    /// Zeros in space that was never written.
    Zeros,
}

impl<'a> RegionContent<'a> {
    /// Returns the payload of an intact or repaired frame.
    pub fn payload(&self) -> Option<&'a [u8]> {
        match self {
            Self::Frame(payload) | Self::Repaired(payload) => Some(payload),
            Self::Damaged | Self::Zeros => None,
        }
    }
}

/// Reads a stream to its end, whatever it contains. See [`Salvage`].
///
/// ```
/// use flatcap_stream::{DefaultDeframer, DefaultFramer, Framer, RegionContent, salvage};
///
/// let mut bytes = Vec::new();
/// for text in ["one frame", "another one", "the third one", "the last one"] {
///     DefaultFramer.frame_and_write(&mut bytes, text.as_bytes())?;
/// }
/// bytes[3] = 0x7F; // damages the first length
/// let regions = salvage(&bytes, DefaultDeframer::new());
/// let contents: Vec<_> = regions.map(|region| region.content).collect();
/// assert_eq!(contents[0], RegionContent::Damaged);
/// assert_eq!(contents[1].payload(), Some(&b"another one"[..]));
/// assert_eq!(contents.len(), 4);
/// # Ok::<(), flatcap_stream::Error>(())
/// ```
pub fn salvage<D: SliceDeframer>(bytes: &[u8], deframer: D) -> Salvage<'_, D> {
    Salvage::new(bytes, deframer)
}

/// Iterates over the regions of a damaged stream. The iteration never modifies the stream. The time
/// is linear in the length of the stream, and the memory is constant.
///
/// Without identifiers, XXH3 and CRC-32 are enough to find a single intact frame of at most 64 KiB
/// between two damaged frames. CRC-16 needs two successive intact frames, and a stream without
/// checksums needs four. With identifiers, a single frame of any length is found with any checksum.
#[derive(Debug, Clone)]
pub struct Salvage<'a, D> {
    bytes: &'a [u8],
    deframer: D,
    identifiers: &'a [[u8; IDENTIFIER_BYTES]],
    plausible: fn(&[u8]) -> bool,
    payload_bytes_min: usize,
    offset: usize,
    hash_budget: HashBudget,
}

impl<'a, D: SliceDeframer> Salvage<'a, D> {
    /// Creates an iterator that starts at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8], deframer: D) -> Self {
        Self {
            bytes,
            deframer,
            identifiers: &[],
            plausible: |_| true,
            payload_bytes_min: 0,
            offset: 0,
            hash_budget: HashBudget::default(),
        }
    }

    /// Requires one of these FlatBuffers identifiers in every payload. A payload without a listed
    /// identifier is treated as damage.
    #[must_use]
    pub fn with_identifiers(mut self, identifiers: &'a [[u8; IDENTIFIER_BYTES]]) -> Self {
        self.identifiers = identifiers;
        if identifiers.is_empty() {
            return self;
        }
        self.with_payload_bytes_min(IDENTIFIER_OFFSET + IDENTIFIER_BYTES)
    }

    /// Requires that `plausible`, for example a verifier, accepts every payload. Rejected payloads
    /// are treated as damage.
    #[must_use]
    pub fn with_plausibility_check(mut self, plausible: fn(&[u8]) -> bool) -> Self {
        self.plausible = plausible;
        self
    }

    /// Requires that every payload has at least `bytes` bytes. Shorter payloads are treated as
    /// damage.
    #[must_use]
    pub fn with_payload_bytes_min(mut self, bytes: usize) -> Self {
        self.payload_bytes_min = self.payload_bytes_min.max(bytes);
        self
    }

    /// Starts at `offset`.
    #[must_use]
    pub fn starting_at(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// Returns the frame at `offset`, if there is one. Frames of up to `short` bytes are always
    /// hashed. Longer frames are hashed only if the budget allows it.
    fn frame_at(&mut self, offset: u64, short: u64) -> Option<Frame<'a>> {
        let rest = self.rest(offset)?;
        let FrameLength::Bytes(length) = self.deframer.frame_length(rest) else { return None };
        if length > rest.len() || (length as u64 > short && !self.may_hash(length as u64)) {
            return None;
        }
        match self.deframer.deframe(rest) {
            Ok(DeframeStatus::Frame(frame)) if self.is_plausible(frame.payload()) => Some(frame),
            _ => {
                self.hash_budget.spend(length as u64);
                None
            }
        }
    }

    /// Returns the bytes from `offset` up to the end of the stream.
    fn rest(&self, offset: u64) -> Option<&'a [u8]> {
        self.bytes.get(usize::try_from(offset).ok()?..)
    }

    fn is_plausible(&self, payload: &[u8]) -> bool {
        payload.len() >= self.payload_bytes_min && self.has_identifier(payload) && (self.plausible)(payload)
    }

    fn has_identifier(&self, payload: &[u8]) -> bool {
        self.identifiers.is_empty()
            || payload
                .get(IDENTIFIER_OFFSET..)
                .and_then(<[u8]>::first_chunk)
                .is_some_and(|found| self.identifiers.contains(found))
    }

    /// Returns whether the budget allows hashing `bytes` bytes.
    fn may_hash(&self, bytes: u64) -> bool {
        self.hash_budget.allows(bytes, HashBudget::limit(self.offset as u64))
    }

    /// Returns the end of the frame that could begin at `offset`. Checks only its header and
    /// identifier.
    fn candidate_end(&self, offset: u64) -> Option<u64> {
        let rest = self.rest(offset)?;
        let payload = rest.get(self.deframer.header_bytes()..)?;
        if !self.has_identifier(payload) {
            return None;
        }
        let FrameLength::Bytes(length) = self.deframer.frame_length(rest) else { return None };
        // With most checksums an empty frame consists of zeros only, and zeros are no evidence.
        let header = rest.get(..self.deframer.header_bytes())?;
        let is_nonzero = header.iter().any(|&byte| byte != 0);
        let least = header.len() + self.payload_bytes_min;
        (is_nonzero && length >= least && length <= rest.len()).then_some(offset + length as u64)
    }

    /// Returns whether there is strong enough evidence that a frame begins at `offset`.
    fn has_evidence(&mut self, offset: u64) -> bool {
        self.evidence_end(offset).is_some()
    }

    /// Returns the end of the frames that are the evidence for a frame at `offset`, or `None` if
    /// the evidence is not strong enough.
    fn evidence_end(&mut self, offset: u64) -> Option<u64> {
        let checksum_bits = 8 * self.deframer.checksum_bytes();
        let identifier_bits = if self.identifiers.is_empty() { 0 } else { IDENTIFIER_BITS };
        let frame_bits = (checksum_bits + identifier_bits).max(LENGTH_BITS);
        // Checks the headers first, because this takes almost no time.
        let whole = self.bytes.len() as u64;
        let mut end = self.candidate_end(offset)?;
        let is_isolated = end != whole && self.candidate_end(end).is_none();
        let length = end - offset;
        if is_isolated
            && length > ISOLATED_BYTES_MAX
            && self.identifiers.is_empty()
            && !self.hash_budget.allows(length, HashBudget::limit(self.offset as u64) / 2)
        {
            return None;
        }
        let mut followers = 0;
        let mut bits = frame_bits;
        while bits < EVIDENCE_BITS {
            if end == whole {
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
        let mut next = offset;
        for _ in 0..=followers {
            next += self.frame_at(next, SHORT_BYTES_SEARCHED)?.bytes().len() as u64;
        }
        // The hashed bytes of an accepted candidate are also charged to the budget, because the
        // caller may still reject the candidate.
        self.hash_budget.spend(next - offset);
        Some(next)
    }

    /// Returns the region at `offset`, where no intact frame begins.
    fn damaged_region(&mut self, offset: u64) -> (u64, RegionContent<'a>) {
        let Ok(range) = resync(self, offset);
        let (end, repaired) = match range {
            ResyncRange::Repaired(end) => (end, Some(end)),
            ResyncRange::Damaged(end) => (end, None),
            ResyncRange::DamagedTo { end, next } => {
                let Ok(repaired) = self.repaired_up_to(offset, next);
                (repaired.unwrap_or(end), repaired)
            }
        };
        let payload = repaired.and_then(|end| self.payload(offset, end));
        (end, payload.map_or(RegionContent::Damaged, RegionContent::Repaired))
    }

    /// Returns the payload of the frame from `offset` to `end`.
    fn payload(&self, offset: u64, end: u64) -> Option<&'a [u8]> {
        let frame = self.rest(offset)?.get(..usize::try_from(end - offset).ok()?)?;
        frame.get(self.deframer.header_bytes()..)
    }

    /// Returns the end of the empty frame at `offset`, if there is one.
    fn empty_frame_end(&self, offset: u64) -> Option<u64> {
        let header = self.rest(offset)?.get(..self.deframer.header_bytes())?;
        header.iter().all(|&byte| byte == 0).then_some(offset + header.len() as u64)
    }
}

impl<D: SliceDeframer> DamagedStream for Salvage<'_, D> {
    type Error = Infallible;

    fn end(&mut self) -> Result<u64, Infallible> {
        Ok(self.bytes.len() as u64)
    }

    fn zeros(&mut self, offset: u64) -> Result<u64, Infallible> {
        let rest = self.rest(offset).unwrap_or_default();
        Ok(rest.iter().take_while(|&&byte| byte == 0).count() as u64)
    }

    fn is_intact(&mut self, offset: u64, _passed: u64) -> Result<bool, Infallible> {
        Ok(self.has_evidence(offset))
    }

    fn next_intact(&mut self, from: u64, limit: u64) -> Result<Option<u64>, Infallible> {
        Ok((from..limit).find(|&at| self.has_evidence(at)))
    }

    fn declared_end(&mut self, offset: u64) -> Result<Option<(u64, u64)>, Infallible> {
        let rest = self.rest(offset).unwrap_or_default();
        let FrameLength::Bytes(length) = self.deframer.frame_length(rest) else { return Ok(None) };
        let declared = offset.saturating_add(length as u64);
        let mut end = declared;
        for _ in 0..REPAIR_ATTEMPTS_MAX {
            if end == self.bytes.len() as u64 || self.has_evidence(end) {
                return Ok(Some((declared, end)));
            }
            let Some(next) = self.empty_frame_end(end) else { return Ok(None) };
            end = next;
        }
        Ok(None)
    }

    fn frame_end(&mut self, _offset: u64, at: u64) -> Result<Option<u64>, Infallible> {
        Ok(self.frame_at(at, SHORT_BYTES_SEARCHED).map(|frame| at + frame.bytes().len() as u64))
    }

    fn is_proven(&mut self, offset: u64, end: u64) -> Result<bool, Infallible> {
        let Some(payload) = self.payload(offset, end) else { return Ok(false) };
        let bytes = payload.len() as u64;
        if (bytes > SHORT_BYTES_SEARCHED && !self.may_hash(bytes)) || !self.is_plausible(payload) {
            return Ok(false);
        }
        self.hash_budget.spend(bytes);
        let header = self.rest(offset).and_then(|rest| rest.get(..self.deframer.header_bytes()));
        Ok(header.is_some_and(|header| self.deframer.checksum_matches(header, payload)))
    }

    fn repaired_up_to(&mut self, offset: u64, mut end: u64) -> Result<Option<u64>, Infallible> {
        for _ in 0..REPAIR_ATTEMPTS_MAX {
            let Ok(is_proven) = self.is_proven(offset, end);
            if is_proven {
                return Ok(Some(end));
            }
            let empty = end.saturating_sub(self.deframer.header_bytes() as u64);
            if empty <= offset || self.empty_frame_end(empty).is_none() {
                return Ok(None);
            }
            end = empty;
        }
        Ok(None)
    }
}

impl<'a, D: SliceDeframer> Iterator for Salvage<'a, D> {
    type Item = SalvagedRegion<'a>;

    fn next(&mut self) -> Option<SalvagedRegion<'a>> {
        let offset = self.offset;
        if offset >= self.bytes.len() {
            return None;
        }
        let from = offset as u64;
        let Ok(zeros) = zeros_end(self, from);
        let (end, content) = match zeros {
            Some(end) => (end, RegionContent::Zeros),
            None => match self.frame_at(from, SHORT_BYTES_EXPECTED) {
                Some(frame) => (from + frame.bytes().len() as u64, RegionContent::Frame(frame.payload())),
                None => self.damaged_region(from),
            },
        };
        // No region ends after the end of the stream, so its end fits into a usize.
        self.offset = usize::try_from(end).unwrap_or(self.bytes.len());
        Some(SalvagedRegion { offset, length: self.offset - offset, content })
    }
}

impl<D: SliceDeframer> std::iter::FusedIterator for Salvage<'_, D> {}

#[cfg(all(test, feature = "xxhash", feature = "crc32", feature = "crc16"))]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::checksum::{Checksum, XxHash64};
    use crate::checksum_kind::{ChecksumKind, KindDeframer};
    use crate::deframer::ChecksumDeframer;
    use crate::framer::{Framer, LENGTH_BYTES};

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

    /// Returns pseudorandom bytes.
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

    /// Checks that the regions cover the stream without gap or overlap, and returns them.
    fn regions<'a, D: SliceDeframer>(salvage: Salvage<'a, D>) -> Vec<SalvagedRegion<'a>> {
        let (mut end, whole) = (salvage.offset, salvage.bytes.len());
        let pieces: Vec<SalvagedRegion<'a>> = salvage.collect();
        for piece in &pieces {
            assert_eq!(piece.offset, end, "a gap or an overlap");
            assert!(piece.length > 0);
            end += piece.length;
        }
        assert_eq!(end, whole);
        pieces
    }

    fn payloads<'a>(pieces: &[SalvagedRegion<'a>]) -> Vec<&'a [u8]> {
        pieces.iter().filter_map(|piece| piece.content.payload()).collect()
    }

    impl Stream {
        /// Returns the payloads of all frames that do not overlap with `damage`.
        fn untouched(&self, damage: impl Fn(usize) -> bool) -> Vec<&[u8]> {
            let header = self.kind.frame_bytes(0);
            let touched = |at: usize, length: usize| (at..at + header + length).any(&damage);
            let frames = self.frames.iter().filter(|(at, payload)| !touched(*at, payload.len()));
            frames.map(|(_, payload)| &payload[..]).collect()
        }
    }

    // Proves that a flipped bit causes the loss of at most the frame that contains the bit, and
    // that a flipped bit in a length field causes no loss. Method: every bit is flipped, in streams
    // with frames of mixed sizes and with equal frames of 64 bytes. With equal frames, a flipped
    // length field points at a later frame.
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
                    let pieces = regions(salvage(&damaged, deframer(kind)));
                    let hit = stream.frames.iter().rposition(|(at, _)| *at <= bit / 8).unwrap();
                    let is_length = bit / 8 < stream.frames[hit].0 + LENGTH_BYTES;
                    let found = payloads(&pieces);
                    // With CRC-32 an empty frame is eight zeros. There is no proof for this frame,
                    // nor for a frame that ends before it.
                    let is_empty =
                        |frame: usize| stream.frames.get(frame).is_some_and(|frame| frame.1.is_empty());
                    let is_proven = kind == ChecksumKind::Xxh3 || !is_empty(hit) && !is_empty(hit + 1);
                    if is_length && is_proven {
                        assert_eq!(found, stream.untouched(|_| false), "{kind}, bit {bit}");
                        assert!(
                            pieces.iter().any(|piece| matches!(piece.content, RegionContent::Repaired(_)))
                        );
                    } else {
                        let expected = stream.untouched(|at| at == bit / 8);
                        let at_least = expected.iter().all(|payload| found.contains(payload));
                        assert!(at_least && found.len() <= stream.frames.len(), "{kind}, bit {bit}");
                    }
                }
            }
        }
    }

    // Proves that a truncated stream gives all whole frames before the truncation. After a range
    // was removed or repeated, the stream gives the frames that are still whole.
    #[test]
    fn cuts_and_removed_ranges() {
        let kind = ChecksumKind::Xxh3;
        let stream = stream(kind, (0..8).map(|seed| noise(seed, 20 + 7 * seed)));
        for cut in 0..stream.bytes.len() {
            let found = regions(salvage(&stream.bytes[..cut], deframer(kind)));
            assert_eq!(payloads(&found), stream.untouched(|at| at >= cut), "cut at {cut}");
        }
        for from in 0..stream.bytes.len() - 50 {
            let removed = from..from + 50;
            let rest = [&stream.bytes[..removed.start], &stream.bytes[removed.end..]].concat();
            let found = regions(salvage(&rest, deframer(kind)));
            assert_eq!(payloads(&found), stream.untouched(|at| removed.contains(&at)), "removed at {from}");
            let repeated = [&stream.bytes[..removed.end], &stream.bytes[removed.start..]].concat();
            let found = regions(salvage(&repeated, deframer(kind)));
            assert!(payloads(&found).len() >= stream.untouched(|at| at == removed.end).len());
        }
    }

    // Proves that zeros are distinguished from damage, and that the next frame is found although
    // its length field begins with zeros.
    #[test]
    fn zeros_are_no_damage() {
        for &kind in ChecksumKind::ALL {
            let stream = stream(kind, (0..10).map(|seed| noise(seed, 256)));
            let with_zeros = |at: usize| [&stream.bytes[..at], &[0; 200], &stream.bytes[at..]].concat();
            for (at, _) in &stream.frames {
                let bytes = with_zeros(*at);
                let found = regions(salvage(&bytes, deframer(kind)));
                assert_eq!(
                    found.iter().filter(|piece| piece.content == RegionContent::Zeros).count(),
                    1,
                    "{kind}"
                );
                // The last frames after a damaged range lack evidence, because no further frames
                // follow them. After a range of zeros this evidence is not needed.
                let lost = stream.frames.len() - payloads(&found).len();
                assert!(lost <= usize::from(kind != ChecksumKind::Xxh3) * 3, "{kind}: {lost} lost at {at}");
            }
        }
        let kind = ChecksumKind::Xxh3;
        let stream = stream(kind, (0..10).map(|seed| noise(seed, 256)));
        for from in 0..stream.bytes.len() - 512 {
            let mut damaged = stream.bytes.clone();
            damaged[from..from + 512].fill(0);
            let found = regions(salvage(&damaged, deframer(kind)));
            let expected = stream.untouched(|at| damaged[at] != stream.bytes[at]);
            assert_eq!(payloads(&found), expected, "zeros at {from}");
        }
    }

    // Proves that frames within a payload are not reported as frames when the outer frame is
    // damaged in its header, its payload or its length.
    #[test]
    fn frames_within_a_payload_stay_there() {
        let kind = ChecksumKind::Xxh3;
        let inner = stream(kind, (0..3).map(|seed| noise(seed, 30))).bytes;
        let stream = stream(kind, [noise(9, 40), inner.clone(), noise(11, 50)]);
        let at = stream.frames[1].0;
        for byte in at..at + kind.frame_bytes(inner.len()) {
            let mut damaged = stream.bytes.clone();
            damaged[byte] ^= 0x10;
            let found = regions(salvage(&damaged, deframer(kind)));
            let expected = stream.untouched(|at| at == byte);
            let is_length = byte < at + LENGTH_BYTES;
            if is_length {
                // The first candidate is within the payload, and no checksum proves the bytes
                // before it. Inner and outer frames can therefore not be distinguished here.
                assert!(expected.iter().all(|payload| payloads(&found).contains(payload)), "byte {byte}");
            } else {
                assert_eq!(payloads(&found), expected, "byte {byte}");
            }
        }
    }

    // Proves that with identifiers, a single intact frame is found under every checksum.
    #[test]
    fn identifiers_are_evidence() {
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
            let found = regions(salvage(&damaged, deframer(kind)).with_identifiers(&landmarks));
            let odd: Vec<&[u8]> =
                stream.frames.iter().skip(1).step_by(2).map(|(_, payload)| &payload[..]).collect();
            assert_eq!(payloads(&found), odd, "{kind}");
            let other = [*b"ELSE"];
            let none = regions(salvage(&stream.bytes, deframer(kind)).with_identifiers(&other));
            assert!(payloads(&none).is_empty());
        }
    }

    // Proves that the caller's conditions apply to every frame.
    #[test]
    fn implausible_payloads_are_damage() {
        let stream =
            stream(ChecksumKind::Xxh3, (0..10).map(|seed| vec![u8::try_from(seed % 2).unwrap(); 30]));
        let found = regions(
            salvage(&stream.bytes, deframer(stream.kind)).with_plausibility_check(|payload| payload[0] == 1),
        );
        assert_eq!(payloads(&found), [&[1_u8; 30][..]; 5]);
        let found = regions(salvage(&stream.bytes, deframer(stream.kind)).with_payload_bytes_min(31));
        assert!(payloads(&found).is_empty());
        let found = regions(salvage(&stream.bytes, deframer(stream.kind)).starting_at(stream.frames[4].0));
        assert_eq!(payloads(&found).len(), 6);
    }

    // Proves that scattered damage causes the loss of only the frames that it touches. Method:
    // 1,000 flipped bits in 50,000 frames of several sizes.
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
        let found = regions(salvage(&damaged, deframer(kind)));
        let untouched = stream.untouched(|at| bytes.binary_search(&at).is_ok());
        let mut found = payloads(&found).into_iter();
        let missing =
            untouched.iter().filter(|payload| !found.by_ref().any(|found| found == **payload)).count();
        assert_eq!(missing, 0, "of {}", untouched.len());
    }

    /// A checksum that counts the bytes that it hashes.
    struct CountingChecksum<'c>(&'c Cell<usize>);

    impl Checksum for CountingChecksum<'_> {
        const SIZE: usize = 8;

        fn calculate(&self, payload: &[u8]) -> u64 {
            self.0.set(self.0.get() + payload.len());
            XxHash64.calculate(payload)
        }
    }

    // Proves that the work is linear on hostile input. Method: a length of a long frame at every
    // byte, intact small frames between headers that declare long frames, and identifiers
    // everywhere.
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
            let deframer = ChecksumDeframer::new(CountingChecksum(&hashed)).with_max_frame_len(LIMIT);
            regions(salvage(&bytes, deframer).with_identifiers(marks));
            let allowed = HashBudget::limit(BYTES as u64) + 2 * BYTES as u64 + 4 * LIMIT as u64;
            assert!((hashed.get() as u64) < allowed, "{} bytes hashed, {allowed} allowed", hashed.get());
        }
    }

    proptest! {
        // Proves that regions cover arbitrary bytes without gap or overlap, and that every region
        // of a frame contains exactly one frame.
        #[test]
        fn any_bytes_are_tiled(bytes in proptest::collection::vec(prop_oneof![Just(0_u8), 0..9_u8, any::<u8>()], 0..400)) {
            for &kind in ChecksumKind::ALL {
                let deframer = deframer(kind);
                for landmarks in [&[][..], &[[0; 4]]] {
                    for piece in regions(salvage(&bytes, deframer).with_identifiers(landmarks)) {
                        if let RegionContent::Frame(payload) = piece.content {
                            let frame = &bytes[piece.offset..piece.offset + piece.length];
                            match deframer.deframe(frame).unwrap() {
                                DeframeStatus::Frame(found) => prop_assert_eq!(found.payload(), payload),
                                DeframeStatus::Incomplete { .. } => prop_assert!(false, "a part of a frame"),
                            }
                        }
                    }
                }
            }
        }

        // Proves that an intact stream gives its frames and nothing else, with all checksums.
        #[test]
        fn an_intact_stream_is_its_frames(
            lengths in proptest::collection::vec(1..80_usize, 0..30),
        ) {
            for &kind in ChecksumKind::ALL {
                let stream = stream(kind, lengths.iter().enumerate().map(|(seed, length)| noise(seed, *length)));
                let found = regions(salvage(&stream.bytes, deframer(kind)));
                prop_assert!(found.iter().all(|piece| matches!(piece.content, RegionContent::Frame(_))));
                prop_assert_eq!(payloads(&found), stream.untouched(|_| false));
            }
        }
    }
}
