//! Behind a damaged frame: where the next intact one stands, and whether only a length was damaged (docs/FORMAT.md,
//! "Damage").
//!
//! The library's `salvage` does the same for bytes in memory that may have no landmarks. A segment has them, knows which frames can
//! follow which, and is read through a window: so this search is another one, and a shorter one.

use std::io;

use super::examine::{Found, claimed_end, examine_in, kind_of};
use super::kind::{FrameAt, FrameKind, IDENTIFIER_AT, PAYLOAD_BYTES_MIN};
use super::reader::{Damage, Mended, SegmentReader};
use crate::stream::{LENGTH_BYTES, SliceDeframer};

/// Bytes that searches may hash in vain before the first byte of the file...
pub(super) const HASHED_IN_VAIN_MIN: u64 = 64 << 20;
/// ...and for each byte that was passed: bounds the work on hostile input, where landmarks stand everywhere and claim
/// long frames.
const HASHED_IN_VAIN_PER_BYTE: u64 = 8;
/// Longest frame that is hashed on suspicion beyond that.
const SHORT_BYTES: u64 = 256;
/// Longest frame that is always hashed where one should begin.
const SHORT_BYTES_EXPECTED: u64 = 4 << 10;
/// Up to here a length with one bit flipped back is tried wherever it leads, under checksums that prove it.
const UNMARKED_BYTES: usize = 64 << 10;
/// At so many ends of frames behind a damaged one the bytes up to there are tried as its payload.
const REPAIRS_MAX: usize = 16;
/// From so many zero bytes on, a place where a frame should begin is empty: space that was never written.
const ZEROS_MIN: u64 = 64;

impl SegmentReader {
    /// What becomes of the place at `offset`, where something else than an intact frame stands.
    pub(super) fn mend(&mut self, offset: u64, what: &'static str) -> io::Result<Mended> {
        let file_bytes = self.window.file_bytes()?.max(offset);
        if let Some(mended) = self.empty(offset, file_bytes)? {
            return Ok(mended);
        }
        if let Some(footer) = &self.footer
            && self.header.learn(&footer.header)
            && let Found::Frame(at) = self.examine(offset)?
        {
            // A sample whose descriptor is damaged: the footer has it too.
            return Ok(Mended::Frame(at));
        }
        let header_bytes = self.deframer.header_bytes();
        let head = self.window.at(offset, header_bytes)?.get(..header_bytes).unwrap_or_default().to_vec();
        if let Some(end) = self.unflipped(offset, &head, file_bytes)? {
            return Ok(self.repaired(offset, end));
        }
        let declared = match claimed_end(offset, header_bytes, &head) {
            Some(end) if end == file_bytes || (end < file_bytes && self.is_expected(end)?) => Some(end),
            _ => None,
        };
        let limit = declared.unwrap_or(file_bytes);
        let mut from = offset + 1;
        while let Some(at) = self.search(from, limit)? {
            if let Some(end) = self.repaired_at(offset, at, &head, declared.is_none())? {
                return Ok(self.repaired(offset, end));
            }
            // With an intact frame where the damaged one ends by its own length, frames in between are its payload.
            if declared.is_none() {
                return Ok(Mended::Hole(Damage { offset, length: at - offset, what }));
            }
            from = at + 1;
        }
        let damage = Damage { offset, length: limit - offset, what };
        Ok(if limit < file_bytes { Mended::Hole(damage) } else { Mended::Rest(damage) })
    }

    /// The end of the frame at `offset`, if its checksum proves that one bit of its length was flipped. What it holds may be
    /// frames too, so this goes before any search.
    fn unflipped(&mut self, offset: u64, head: &[u8], file_bytes: u64) -> io::Result<Option<u64>> {
        let Some(stored) = head.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        if self.deframer.checksum_bytes() == 0 {
            return Ok(None);
        }
        for bit in 0..u32::BITS {
            let length = (u32::from_le_bytes(*stored) ^ 1 << bit) as usize;
            let end = offset.saturating_add((head.len() + length) as u64);
            if length < PAYLOAD_BYTES_MIN || end > file_bytes {
                continue;
            }
            // The frame behind may be damaged too; a short one is proven without it.
            let is_end = end == file_bytes
                || (length <= UNMARKED_BYTES && self.deframer.checksum_bytes() >= 4)
                || self.is_landmark(end)?
                || self.identified(end)?.is_some();
            if is_end && self.is_proven(offset, end, head)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn repaired(&self, offset: u64, end: u64) -> Mended {
        // The frame's bytes were just hashed, so they are in memory and their length fits it.
        let bytes = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let payload = self.window.cached(offset).get(self.deframer.header_bytes()..bytes).unwrap_or_default();
        match kind_of(self.header(), payload) {
            Ok(kind) => Mended::Frame(FrameAt { offset, bytes, kind, is_repaired: true }),
            Err(what) => Mended::Hole(Damage { offset, length: end - offset, what }),
        }
    }

    /// The run of zeros at `offset`, if it is long enough to be empty space.
    fn empty(&mut self, offset: u64, file_bytes: u64) -> io::Result<Option<Mended>> {
        const WHAT: &str = "empty: zeros, space that was never written";
        let mut end = offset;
        loop {
            let stretch = self.window.at(end, 1)?;
            let zeros = stretch.iter().take_while(|byte| **byte == 0).count();
            end += zeros as u64;
            if zeros == 0 || zeros < stretch.len() {
                break;
            }
        }
        if end - offset < ZEROS_MIN {
            return Ok(None);
        }
        if end >= file_bytes {
            return Ok(Some(Mended::Rest(Damage { offset, length: end - offset, what: WHAT })));
        }
        // The length of the frame behind may itself begin with zeros.
        for at in end.saturating_sub(3)..end {
            if self.is_believed(at, offset)? {
                end = at;
                break;
            }
        }
        Ok(Some(Mended::Hole(Damage { offset, length: end - offset, what: WHAT })))
    }

    /// A frame's header and the part of its payload that identifies it, if they stand at `offset`.
    fn front(&mut self, offset: u64) -> io::Result<&[u8]> {
        let wanted = self.deframer.header_bytes() + PAYLOAD_BYTES_MIN;
        Ok(match self.window.cached(offset).get(..wanted) {
            Some(front) => front,
            None => self.aside.at(offset, wanted)?.get(..wanted).unwrap_or_default(),
        })
    }

    /// Whether one of our identifiers stands where that of a frame at `offset` would.
    fn is_landmark(&mut self, offset: u64) -> io::Result<bool> {
        let header_bytes = self.deframer.header_bytes();
        let kind = self.front(offset)?.get(header_bytes..).and_then(FrameKind::of);
        Ok(kind.is_some_and(|kind| !matches!(kind, FrameKind::Unknown(_))))
    }

    /// The frame that seems to begin at `offset`: its kind and where it ends, not beyond the file. Nothing is hashed.
    fn identified(&mut self, offset: u64) -> io::Result<Option<(FrameKind, u64)>> {
        let header_bytes = self.deframer.header_bytes();
        let wanted = header_bytes + PAYLOAD_BYTES_MIN;
        let front = self.front(offset)?;
        let kind = front.get(header_bytes..).and_then(FrameKind::of);
        let kind = kind.filter(
            |kind| !matches!(kind, FrameKind::Unknown(other) if !other.iter().all(u8::is_ascii_graphic)),
        );
        let Some((kind, end)) = kind.zip(claimed_end(offset, header_bytes, front)) else { return Ok(None) };
        let is_possible = end - offset >= wanted as u64 && end <= self.window.file_bytes()?;
        Ok(is_possible.then_some((kind, end)))
    }

    /// Whether an intact frame stands at `offset`, below which reading has passed everything: whichever can follow what was
    /// read, or one of a kind that is not known.
    fn is_expected(&mut self, offset: u64) -> io::Result<bool> {
        match self.identified(offset)? {
            Some((FrameKind::Unknown(_), _)) if self.deframer.checksum_bytes() == 0 => Ok(false),
            Some((kind, end)) => self.is_intact(offset, end, kind, offset),
            None => Ok(false),
        }
    }

    /// Whether an intact frame of a known kind stands at `offset` that can follow what was read. `passed`: how far reading
    /// has got.
    fn is_believed(&mut self, offset: u64, passed: u64) -> io::Result<bool> {
        match self.identified(offset)? {
            Some((FrameKind::Unknown(_), _)) | None => Ok(false),
            Some((kind, end)) => self.is_intact(offset, end, kind, passed),
        }
    }

    fn is_intact(&mut self, offset: u64, end: u64, kind: FrameKind, passed: u64) -> io::Result<bool> {
        let bytes = end - offset;
        if !self.may_hash(bytes, passed) {
            return Ok(false);
        }
        self.hashed_in_vain += bytes;
        let is_near = self.window.cached(offset).len() as u64 >= bytes;
        let window = if is_near { &mut self.window } else { &mut self.aside };
        let Found::Frame(at) = examine_in(window, &self.deframer, &self.header, offset)? else {
            return Ok(false);
        };
        let window = if is_near { &self.window } else { &self.aside };
        let payload = window.cached(offset).get(self.deframer.header_bytes()..at.bytes).unwrap_or_default();
        Ok(matches!(kind, FrameKind::Unknown(_)) || self.can_follow(offset, payload))
    }

    /// Whether the frame that seems to begin at `offset`, where one should, is longer than what may still be hashed.
    #[inline]
    pub(super) fn is_dear(&mut self, offset: u64) -> io::Result<bool> {
        if self.hashed_in_vain <= HASHED_IN_VAIN_MIN {
            return Ok(false);
        }
        let header_bytes = self.deframer.header_bytes();
        let end = claimed_end(offset, header_bytes, self.window.at(offset, header_bytes)?);
        let bytes = end.map_or(0, |end| end - offset);
        Ok(bytes > SHORT_BYTES_EXPECTED && !self.may_hash(bytes, offset))
    }

    fn may_hash(&self, bytes: u64, passed: u64) -> bool {
        let allowed = HASHED_IN_VAIN_MIN.saturating_add(passed.saturating_mul(HASHED_IN_VAIN_PER_BYTE));
        bytes <= SHORT_BYTES || self.hashed_in_vain.saturating_add(bytes) <= allowed
    }

    /// Offset of the next frame from `from` on, below `limit`, that is believed.
    fn search(&mut self, mut from: u64, limit: u64) -> io::Result<Option<u64>> {
        let header_bytes = self.deframer.header_bytes();
        while from < limit {
            // No more than needed: a window that moves on must come back to prove what is damaged.
            let stretch = self.window.at(from, header_bytes + PAYLOAD_BYTES_MIN)?;
            if stretch.len() < header_bytes + PAYLOAD_BYTES_MIN {
                return Ok(None);
            }
            let Some(at) = find_landmark(stretch, header_bytes) else {
                from += (stretch.len() - header_bytes - PAYLOAD_BYTES_MIN + 1) as u64;
                continue;
            };
            let candidate = from + at as u64;
            if candidate >= limit {
                return Ok(None);
            }
            if self.is_believed(candidate, candidate)? {
                return Ok(Some(candidate));
            }
            from = candidate + 1;
        }
        Ok(None)
    }

    /// The end of the frame at `offset`, if its checksum proves that it reaches up to `end`, or up to the end of one of the
    /// frames behind, which then were a part of it.
    fn repaired_at(
        &mut self,
        offset: u64,
        mut end: u64,
        head: &[u8],
        beyond: bool,
    ) -> io::Result<Option<u64>> {
        for _ in 0..=REPAIRS_MAX {
            if self.is_proven(offset, end, head)? {
                return Ok(Some(end));
            }
            if !beyond {
                return Ok(None);
            }
            let Some((_, next)) = self.identified(end)? else { return Ok(None) };
            if !self.may_hash(next - end, offset) {
                return Ok(None);
            }
            self.hashed_in_vain += next - end;
            let Found::Frame(_) = self.examine(end)? else { return Ok(None) };
            end = next;
        }
        Ok(None)
    }

    /// Whether the bytes from the payload of the frame at `offset` up to `end` have the checksum of its header.
    fn is_proven(&mut self, offset: u64, end: u64, head: &[u8]) -> io::Result<bool> {
        let bytes = end - offset;
        let limit = self.deframer.max_frame_len() as u64 + head.len() as u64;
        if bytes > limit || self.deframer.checksum_bytes() == 0 || !self.may_hash(bytes, offset) {
            return Ok(false);
        }
        self.hashed_in_vain += bytes;
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
        let whole = self.window.at(offset, wanted)?.get(..wanted).unwrap_or_default();
        let Some((_, payload)) = whole.split_at_checked(head.len()) else { return Ok(false) };
        Ok(self.deframer.is_proven(head, payload))
    }
}

/// Where in `stretch` a frame may start whose payload has one of our identifiers.
fn find_landmark(stretch: &[u8], header_bytes: usize) -> Option<usize> {
    let identifier_at = header_bytes + IDENTIFIER_AT;
    let mut from = 0;
    loop {
        let rest = stretch.get(from + identifier_at..)?;
        let at = rest.iter().position(|byte| *byte == b'F')?;
        let identifier = rest.get(at..)?.first_chunk::<4>()?;
        if !matches!(FrameKind::of_identifier(*identifier), FrameKind::Unknown(_)) {
            return Some(from + at);
        }
        from += at + 1;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::segment::control::{Marker, MarkerOrigin};
    use crate::segment::header::tests::example;
    use crate::segment::reader::Advance;
    use crate::stream::{ChecksumKind, Framer};

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        ChecksumKind::Xxh3.frame_and_write(&mut frame, payload).unwrap();
        frame
    }

    fn read(bytes: &[u8]) -> (SegmentReader, usize, usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        let file = Arc::new(std::fs::File::open(&path).unwrap());
        let mut reader = SegmentReader::over(Path::new("file"), file).unwrap();
        let (mut frames, mut holes) = (0, 0);
        while let Some(advance) = reader.advance().unwrap() {
            match advance {
                Advance::Frame(_) => frames += 1,
                Advance::Damage(_) => holes += 1,
            }
        }
        (reader, frames, holes)
    }

    fn note() -> Vec<u8> {
        let text = String::new();
        framed(&Marker { mono_ns: 1, wall_ns: 1, origin: MarkerOrigin::Person, text }.encode())
    }

    // Goal: what is hashed in vain stays within what the format allows, wherever it is hashed: where one is searched, where one
    // should begin, and where ends are tried. Method: landmarks that claim 100 KB each, alone, behind small intact frames,
    // and small damaged frames in front of many long intact ones.
    #[test]
    fn hashing_in_vain_is_bounded() {
        let landmark = [&100_000_u32.to_le_bytes()[..], &[0; 8], &[20, 0, 0, 0], b"FCMK"].concat();
        let text = "x".repeat(30_000);
        let long = framed(&Marker { mono_ns: 1, wall_ns: 1, origin: MarkerOrigin::Person, text }.encode());
        let mut broken = note();
        *broken.last_mut().unwrap() ^= 1;
        broken[..4].copy_from_slice(&9_999_u32.to_le_bytes());
        for pattern in [landmark.clone(), [landmark, note()].concat(), [broken, long.repeat(3)].concat()] {
            let hostile = [framed(&example().encode()), pattern.repeat((2 << 20) / pattern.len())].concat();
            let (reader, frames, _) = read(&hostile);
            assert!(frames >= 1);
            let allowed = HASHED_IN_VAIN_MIN + hostile.len() as u64 * (HASHED_IN_VAIN_PER_BYTE + 8);
            assert!(reader.hashed_in_vain <= allowed, "{} of {allowed}", reader.hashed_in_vain);
        }
    }

    // Goal: zeros are empty space from 64 on, whatever length the frame behind begins with. Method: runs of several lengths
    // between intact frames, one of them with a length whose low byte is zero.
    #[test]
    fn zeros_are_empty_space() {
        let round = {
            let text = "x".repeat(512 - note().len() + 12 - 4);
            framed(&Marker { mono_ns: 1, wall_ns: 1, origin: MarkerOrigin::Person, text }.encode())
        };
        assert_eq!(round[0], 0, "{:?}", &round[..4]);
        for behind in [note(), round] {
            for zeros in [1, 63, 64, 65, 100_000, 300_000] {
                let bytes =
                    [&framed(&example().encode())[..], &note(), &vec![0; zeros], &behind, &note()].concat();
                let (_, frames, holes) = read(&bytes);
                assert_eq!((frames, holes), (4, 1), "{zeros} zeros");
            }
        }
    }
}
