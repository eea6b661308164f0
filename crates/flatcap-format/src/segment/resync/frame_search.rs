//! Finds the frames of a segment. After a damaged frame, the search resynchronizes, that is, it
//! finds the next intact frame, or repairs the damaged frame if only its length is damaged
//! (docs/FORMAT.md, "Damage").
//!
//! The procedure is the same as in the stream library. In addition, it uses the identifiers of
//! frames as landmarks, and it uses rules about the order of frames in a segment.
//!
//! The first matching rule decides. The rules are sorted by the strength of their evidence,
//! strongest first:
//!
//! 1. 64 or more zero bytes are empty space. Reading continues after these bytes. If an intact
//!    frame that can follow begins at one of the last three zero bytes, reading continues at this
//!    frame.
//! 2. If the footer describes sources that the reader does not know yet, the reader adds these
//!    sources, and checks the frame again.
//! 3. If the checksum is correct after one bit of the length is flipped back, the frame is
//!    repaired. The lowest bit is tried first. Its payload must have at least 8 bytes. The repaired
//!    frame must end at the end of the file, or before a frame with a known identifier. If the
//!    length of the next frame is possible, its identifier may also be unknown. A frame with a
//!    payload of at most 64 KiB and a checksum of at least 4 bytes may end anywhere.
//! 4. If the damaged frame, according to its declared length, ends at the end of the file or
//!    directly before another intact frame, the length is treated as correct. The plausibility
//!    rules must allow the other frame at this position, or its kind must be unknown (but not with
//!    the checksum kind none). The damaged frame is treated as a damaged range, and bytes in it
//!    that look like frames are treated as part of its payload.
//! 5. A search finds the next intact frame of a known kind that the plausibility rules allow. The
//!    bytes before this frame are a damaged range.
//! 6. If the search finds no frame, the rest of a sealed segment is damage, and the rest of an
//!    unsealed segment is its torn tail.
//!
//! Rules 4 and 5 find an intact frame after the damaged frame. The damaged frame is repaired if its
//! checksum is correct for the bytes up to the found frame, or up to the end of one of the next 16
//! intact frames. The repaired frame ends at this offset.
//!
//! A budget limits the bytes that are hashed without finding a frame: 64 MiB, plus 8 bytes for each
//! byte of the file before the current offset. If the budget is exhausted, only frames of up to 256
//! bytes are hashed. At an offset where a frame should begin, frames of up to 4 KiB are hashed.

use std::io;

use flatcap_stream::resync::{
    DamagedStream, HashBudget, ResyncRange, SHORT_BYTES_EXPECTED, SHORT_BYTES_SEARCHED, resync, zeros_end,
};
use flatcap_stream::{KindDeframer, LENGTH_BYTES, SliceDeframer};

use super::frame_probe::{BEYOND_FILE_END, FrameProbe, declared_end, payload_kind, probe_frame};
use super::plausibility::ReadState;
use crate::segment::format::damage::Damage;
use crate::segment::format::frame_kind::{FrameKind, FrameLocation, IDENTIFIER_AT, PAYLOAD_BYTES_MIN};
use crate::segment::open::file_window::FileWindow;

/// Maximum length in bytes that is tried with one bit flipped back if no frame with an identifier
/// follows. The attempt is made only with checksum kinds that can prove such a length.
const UNCONFIRMED_LENGTH_MAX: usize = 64 << 10;

/// Number of zeros after which a search checks whether the file is sparse at this offset. The
/// minimum limits the number of checks, because a check is a system call.
const HOLE_BYTES_MIN: usize = 64 << 10;

/// Finds the frames of a segment. The finder checks the offset at which a frame should begin. After
/// damage, it finds the next frame.
#[derive(Debug)]
pub(in crate::segment) struct FrameFinder {
    pub(in crate::segment) window: FileWindow,
    pub(in crate::segment) probe_window: FileWindow, // for other offsets, so that `window` stays
    pub(in crate::segment) deframer: KindDeframer,
    pub(in crate::segment) state: ReadState,
    // Whether the reader is in resync after a damaged frame. It may then be inside a payload that
    // contains frames.
    pub(in crate::segment) is_resyncing: bool,
    pub(in crate::segment) hash_budget: HashBudget, // spent since the file was opened
}

/// The result of a resync at an offset where no intact frame begins.
pub(in crate::segment) enum Resync {
    /// A frame that was damaged only in its length and has been repaired.
    Frame(FrameLocation),
    /// A damaged range. Reading continues after the damage.
    Damaged(Damage),
    /// A damaged range up to the end of the file. No intact frame follows.
    DamagedToEnd(Damage),
}

impl FrameFinder {
    /// Creates a finder that reads through a window, and checks frames by the header and footer of
    /// the segment.
    pub(in crate::segment) fn new(window: FileWindow, deframer: KindDeframer, state: ReadState) -> Self {
        let probe_window = window.probe_window();
        let hash_budget = HashBudget::default();
        Self { window, probe_window, deframer, state, is_resyncing: false, hash_budget }
    }

    /// Drops the bytes in memory, so that later calls read the file again.
    pub(in crate::segment) fn forget_windows(&mut self) {
        self.window.forget();
        self.probe_window.forget();
    }

    /// Checks whether a frame begins at `offset`, which may be any offset.
    #[inline]
    pub(in crate::segment) fn probe(&mut self, offset: u64) -> io::Result<FrameProbe> {
        probe_frame(&mut self.window, &self.deframer, &self.state.header, offset)
    }

    /// Checks whether a frame begins at `offset`, where the caller expects a frame.
    #[inline]
    pub(in crate::segment) fn probe_next(&mut self, offset: u64) -> io::Result<FrameProbe> {
        if self.is_expensive(offset)? {
            return Ok(FrameProbe::Damaged("a long frame amid damage"));
        }
        let found = self.probe(offset)?;
        match found {
            FrameProbe::Frame(at) if self.is_resyncing && !self.can_follow_directly(at) => {
                Ok(FrameProbe::Damaged("a frame that cannot follow those before it"))
            }
            FrameProbe::Damaged(what) if what != BEYOND_FILE_END => {
                let head = self.window.at(offset, self.deframer.header_bytes())?;
                let end = declared_end(offset, self.deframer.header_bytes(), head).unwrap_or(offset);
                if end <= self.window.file_bytes()? {
                    self.hash_budget.spend(end - offset);
                }
                Ok(FrameProbe::Damaged(what))
            }
            found => Ok(found),
        }
    }

    /// Returns whether a frame is plausible directly after an intact frame. This check is needed
    /// because both frames may be bytes inside the payload of a damaged frame.
    fn can_follow_directly(&self, at: FrameLocation) -> bool {
        match at.kind {
            // The offsets in an Index frame are not checked, because a valid frame would be
            // rejected in a file from which frames were removed.
            FrameKind::Index | FrameKind::Unknown(_) => true,
            _ => {
                let frame = self.window.cached(at.offset);
                let payload = frame.get(self.deframer.header_bytes()..at.bytes).unwrap_or_default();
                self.state.can_follow(at.offset, payload)
            }
        }
    }

    /// Resynchronizes at `offset`, where no intact frame begins.
    pub(in crate::segment) fn resync(&mut self, offset: u64, what: &'static str) -> io::Result<Resync> {
        let file_bytes = self.window.file_bytes()?.max(offset);
        let damaged = |end: u64, what| {
            let damage = Damage { offset, length: end - offset, what };
            if end < file_bytes { Resync::Damaged(damage) } else { Resync::DamagedToEnd(damage) }
        };
        if let Some(end) = zeros_end(self, offset)? {
            return Ok(damaged(end, "empty: zeros, space that was never written"));
        }
        if let Some(footer) = &self.state.footer
            && self.state.header.merge(&footer.header)
            && let FrameProbe::Frame(at) = self.probe(offset)?
        {
            // This is the sample of a source whose descriptor is damaged. The footer has a copy of
            // the descriptor.
            return Ok(Resync::Frame(at));
        }
        let range = match self.end_if_bit_flipped(offset, file_bytes)? {
            Some(end) => ResyncRange::Repaired(end),
            None => resync(self, offset)?,
        };
        Ok(match range {
            ResyncRange::Repaired(end) => self.repaired_frame(offset, end),
            ResyncRange::Damaged(end) | ResyncRange::DamagedTo { end, .. } => damaged(end, what),
        })
    }

    /// Returns the end of the frame at `offset` if its checksum proves that one bit of its length
    /// was flipped. The payload may contain frames, so this function is called before any search.
    fn end_if_bit_flipped(&mut self, offset: u64, file_bytes: u64) -> io::Result<Option<u64>> {
        let header_bytes = self.deframer.header_bytes();
        let head = self.window.at(offset, header_bytes)?.get(..header_bytes).unwrap_or_default();
        let Some(stored) = head.first_chunk::<LENGTH_BYTES>().copied() else { return Ok(None) };
        if self.deframer.checksum_bytes() == 0 {
            return Ok(None);
        }
        for bit in 0..u32::BITS {
            let length = (u32::from_le_bytes(stored) ^ 1 << bit) as usize;
            let end = offset.saturating_add((header_bytes + length) as u64);
            if length < PAYLOAD_BYTES_MIN || end > file_bytes {
                continue;
            }
            // The next frame may be damaged too, so a short frame does not need the next frame as
            // proof.
            let is_end = end == file_bytes
                || (length <= UNCONFIRMED_LENGTH_MAX && self.deframer.checksum_bytes() >= 4)
                || self.is_landmark(end)?
                || self.identify(end)?.is_some();
            if is_end && self.is_proven(offset, end)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn repaired_frame(&self, offset: u64, end: u64) -> Resync {
        // The frame's bytes were just hashed, so they are in memory and their length fits a usize.
        let bytes = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let payload = self.window.cached(offset).get(self.deframer.header_bytes()..bytes).unwrap_or_default();
        match payload_kind(&self.state.header, payload) {
            Ok(kind) => Resync::Frame(FrameLocation { offset, bytes, kind, is_repaired: true }),
            Err(what) => Resync::Damaged(Damage { offset, length: end - offset, what }),
        }
    }

    /// Returns the header of a frame at `offset` and the start of the frame's payload, up to the
    /// end of the identifier.
    fn frame_start(&mut self, offset: u64) -> io::Result<&[u8]> {
        let wanted = self.deframer.header_bytes() + PAYLOAD_BYTES_MIN;
        Ok(match self.window.cached(offset).get(..wanted) {
            Some(start) => start,
            None => self.probe_window.at(offset, wanted)?.get(..wanted).unwrap_or_default(),
        })
    }

    /// Returns whether a frame that begins at `offset` would have an identifier of a known kind.
    fn is_landmark(&mut self, offset: u64) -> io::Result<bool> {
        let header_bytes = self.deframer.header_bytes();
        let kind = self.frame_start(offset)?.get(header_bytes..).and_then(FrameKind::of);
        Ok(kind.is_some_and(|kind| !matches!(kind, FrameKind::Unknown(_))))
    }

    /// Returns the kind and the end of the frame that seems to begin at `offset`, if the frame ends
    /// within the file. Does not check the checksum.
    fn identify(&mut self, offset: u64) -> io::Result<Option<(FrameKind, u64)>> {
        let header_bytes = self.deframer.header_bytes();
        let wanted = header_bytes + PAYLOAD_BYTES_MIN;
        let start = self.frame_start(offset)?;
        let kind = start.get(header_bytes..).and_then(FrameKind::of);
        let kind = kind.filter(
            |kind| !matches!(kind, FrameKind::Unknown(other) if !other.iter().all(u8::is_ascii_graphic)),
        );
        let Some((kind, end)) = kind.zip(declared_end(offset, header_bytes, start)) else { return Ok(None) };
        let is_possible = end - offset >= wanted as u64 && end <= self.window.file_bytes()?;
        Ok(is_possible.then_some((kind, end)))
    }

    /// Returns whether an intact frame begins at `offset`. The frame must be able to follow the
    /// frames read before, or must be of an unknown kind.
    fn is_frame_boundary(&mut self, offset: u64) -> io::Result<bool> {
        match self.identify(offset)? {
            Some((FrameKind::Unknown(_), _)) if self.deframer.checksum_bytes() == 0 => Ok(false),
            Some((kind, end)) => self.hash(offset, end, kind, offset),
            None => Ok(false),
        }
    }

    /// Checks the checksum of the frame from `offset` to `end`. Returns whether the frame is intact
    /// and the plausibility rules allow it after the frames read before. A frame of an unknown kind
    /// is always allowed.
    fn hash(&mut self, offset: u64, end: u64, kind: FrameKind, passed: u64) -> io::Result<bool> {
        let bytes = end - offset;
        if !self.may_hash(bytes, passed) {
            return Ok(false);
        }
        self.hash_budget.spend(bytes);
        let is_near = self.window.cached(offset).len() as u64 >= bytes;
        let window = if is_near { &mut self.window } else { &mut self.probe_window };
        let FrameProbe::Frame(at) = probe_frame(window, &self.deframer, &self.state.header, offset)? else {
            return Ok(false);
        };
        let window = if is_near { &self.window } else { &self.probe_window };
        let payload = window.cached(offset).get(self.deframer.header_bytes()..at.bytes).unwrap_or_default();
        Ok(matches!(kind, FrameKind::Unknown(_)) || self.state.can_follow(offset, payload))
    }

    /// Returns whether hashing the frame that should begin at `offset` would exceed the hash
    /// budget.
    #[inline]
    fn is_expensive(&mut self, offset: u64) -> io::Result<bool> {
        if self.hash_budget.spent <= HashBudget::limit(0) {
            return Ok(false);
        }
        let header_bytes = self.deframer.header_bytes();
        let end = declared_end(offset, header_bytes, self.window.at(offset, header_bytes)?);
        let bytes = end.map_or(0, |end| end - offset);
        Ok(bytes > SHORT_BYTES_EXPECTED && !self.may_hash(bytes, offset))
    }

    fn may_hash(&self, bytes: u64, passed: u64) -> bool {
        bytes <= SHORT_BYTES_SEARCHED || self.hash_budget.allows(bytes, HashBudget::limit(passed))
    }
}

impl DamagedStream for FrameFinder {
    type Error = io::Error;

    fn end(&mut self) -> io::Result<u64> {
        self.window.file_bytes()
    }

    fn zeros(&mut self, offset: u64) -> io::Result<u64> {
        let mut end = offset;
        loop {
            let chunk = self.window.at(end, 1)?;
            let zeros = chunk.iter().take_while(|byte| **byte == 0).count();
            let is_over = zeros == 0 || zeros < chunk.len();
            end += zeros as u64;
            if is_over {
                return Ok(end - offset);
            }
            end = self.window.next_stored(end)?;
        }
    }

    /// Returns whether an intact frame of a known kind begins at `offset` and can follow the frames
    /// read before.
    fn is_intact(&mut self, offset: u64, passed: u64) -> io::Result<bool> {
        match self.identify(offset)? {
            Some((FrameKind::Unknown(_), _)) | None => Ok(false),
            Some((kind, end)) => self.hash(offset, end, kind, passed),
        }
    }

    fn next_intact(&mut self, mut from: u64, limit: u64) -> io::Result<Option<u64>> {
        let header_bytes = self.deframer.header_bytes();
        while from < limit {
            // Requests no more bytes than needed. If the window moved on, it would have to move
            // back to prove the damaged frame.
            let chunk = self.window.at(from, header_bytes + PAYLOAD_BYTES_MIN)?;
            if chunk.len() < header_bytes + PAYLOAD_BYTES_MIN {
                return Ok(None);
            }
            let Some(at) = find_landmark(chunk, header_bytes) else {
                let overlap = (header_bytes + PAYLOAD_BYTES_MIN - 1) as u64;
                let is_empty = chunk.len() >= HOLE_BYTES_MIN && chunk.iter().all(|byte| *byte == 0);
                from += chunk.len() as u64 - overlap;
                if is_empty {
                    let stored = self.window.next_stored(from + overlap)?;
                    from = from.max(stored.saturating_sub(overlap));
                }
                continue;
            };
            let candidate = from + at as u64;
            if candidate >= limit {
                return Ok(None);
            }
            if self.is_intact(candidate, candidate)? {
                return Ok(Some(candidate));
            }
            from = candidate + 1;
        }
        Ok(None)
    }

    fn declared_end(&mut self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let header_bytes = self.deframer.header_bytes();
        let head = self.window.at(offset, header_bytes)?;
        let Some(end) = declared_end(offset, header_bytes, head) else { return Ok(None) };
        let file_bytes = self.window.file_bytes()?;
        let is_confirmed = end == file_bytes || (end < file_bytes && self.is_frame_boundary(end)?);
        Ok(is_confirmed.then_some((end, end)))
    }

    fn frame_end(&mut self, offset: u64, at: u64) -> io::Result<Option<u64>> {
        let Some((_, end)) = self.identify(at)? else { return Ok(None) };
        if !self.may_hash(end - at, offset) {
            return Ok(None);
        }
        self.hash_budget.spend(end - at);
        Ok(matches!(self.probe(at)?, FrameProbe::Frame(_)).then_some(end))
    }

    fn is_proven(&mut self, offset: u64, end: u64) -> io::Result<bool> {
        let bytes = end - offset;
        let header_bytes = self.deframer.header_bytes();
        let limit = (self.deframer.max_frame_len() + header_bytes) as u64;
        if bytes > limit || self.deframer.checksum_bytes() == 0 || !self.may_hash(bytes, offset) {
            return Ok(false);
        }
        self.hash_budget.spend(bytes);
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
        let whole = self.window.at(offset, wanted)?.get(..wanted).unwrap_or_default();
        let Some((head, payload)) = whole.split_at_checked(header_bytes) else { return Ok(false) };
        Ok(self.deframer.checksum_matches(head, payload))
    }
}

/// Returns the first position in `chunk` at which a frame with an identifier of a known kind may
/// begin.
fn find_landmark(chunk: &[u8], header_bytes: usize) -> Option<usize> {
    let identifier_at = header_bytes + IDENTIFIER_AT;
    let mut from = 0;
    loop {
        let rest = chunk.get(from + identifier_at..)?;
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

    use flatcap_stream::{ChecksumKind, Framer};

    use super::*;
    use crate::segment::format::control_frames::{Marker, MarkerOrigin};
    use crate::segment::read::reader::{Advance, SegmentReader};
    use crate::testing::example;

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
        let (mut frames, mut damaged) = (0, 0);
        while let Some(advance) = reader.advance().unwrap() {
            match advance {
                Advance::Frame(_) => frames += 1,
                Advance::Damage(_) => damaged += 1,
            }
        }
        (reader, frames, damaged)
    }

    fn note() -> Vec<u8> {
        let text = String::new();
        framed(&Marker { mono_ns: 1, wall_ns: 1, origin: MarkerOrigin::Person, text }.encode())
    }

    // Proves that the number of bytes that are hashed in vain does not exceed the limits of the
    // format. This applies to searches, to offsets at which a frame should begin, and to possible
    // ends of a damaged frame. Method: frame headers with identifiers that declare a length of 100
    // KB, alone and after small intact frames, and small damaged frames before long intact frames.
    #[test]
    fn wasted_hashing_is_bounded() {
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
            let allowed = HashBudget::limit(hostile.len() as u64) + hostile.len() as u64 * 8;
            let wasted = reader.frames.hash_budget.spent;
            assert!(wasted <= allowed, "{wasted} of {allowed}");
        }
    }

    // Proves that 64 or more zeros are empty space, even if the length of the next frame begins
    // with zero.
    #[test]
    fn zeros_are_empty_space() {
        let round = {
            let text = "x".repeat(512 - note().len() + 12 - 4);
            framed(&Marker { mono_ns: 1, wall_ns: 1, origin: MarkerOrigin::Person, text }.encode())
        };
        assert_eq!(round[0], 0, "{:?}", &round[..4]);
        for next in [note(), round] {
            for zeros in [1, 63, 64, 65, 100_000, 300_000] {
                let bytes =
                    [&framed(&example().encode())[..], &note(), &vec![0; zeros], &next, &note()].concat();
                let (_, frames, damaged) = read(&bytes);
                assert_eq!((frames, damaged), (4, 1), "{zeros} zeros");
            }
        }
    }
}
