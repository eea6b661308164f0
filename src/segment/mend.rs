//! Behind a damaged frame: where the next intact one stands, and whether only a length was damaged (docs/FORMAT.md,
//! "Damage").
//!
//! The library's `salvage` does the same for bytes in memory that may have no landmarks. A segment has them, knows which frames can
//! follow which, and is read through a window: so this search is another one, and a shorter one.

use std::io;

use super::kind::{FrameAt, FrameKind, IDENTIFIER_AT, PAYLOAD_BYTES_MIN};
use super::reader::{Damage, Found, Mended, SegmentReader, claimed_end, kind_of};
use crate::stream::SliceDeframer;

/// How much is searched at once for the next intact frame.
const SEARCH_BYTES: usize = 64 << 10;
/// Bytes that searches may hash in vain before the first byte of the file...
const HASHED_IN_VAIN_MIN: u64 = 64 << 20;
/// ...and for each byte that was passed: bounds the work on hostile input, where landmarks stand everywhere and claim
/// long frames.
const HASHED_IN_VAIN_PER_BYTE: u64 = 8;
/// Longest frame that is hashed on suspicion beyond that.
const SHORT_BYTES: u64 = 256;
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
        let header_bytes = self.deframer.header_bytes();
        let head = self.window.at(offset, header_bytes)?.get(..header_bytes).unwrap_or_default().to_vec();
        let declared = claimed_end(offset, header_bytes, &head).filter(|end| *end < file_bytes);
        let declared = match declared {
            Some(end) if self.is_believed(end, end)? => Some(end),
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
        Ok(if declared.is_some() { Mended::Hole(damage) } else { Mended::Rest(damage) })
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
            let stretch = self.window.at(end, SEARCH_BYTES)?;
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

    /// Whether an intact frame stands at `offset` that can follow what was read. `passed`: how far reading has got.
    fn is_believed(&mut self, offset: u64, passed: u64) -> io::Result<bool> {
        let header_bytes = self.deframer.header_bytes();
        let front = self.window.at(offset, header_bytes + PAYLOAD_BYTES_MIN)?;
        let Some(front) = front.get(..header_bytes + PAYLOAD_BYTES_MIN) else { return Ok(false) };
        let is_landmark = matches!(
            front.get(header_bytes..).and_then(FrameKind::of),
            Some(kind) if !matches!(kind, FrameKind::Unknown(_))
        );
        let Some(end) = claimed_end(offset, header_bytes, front).filter(|_| is_landmark) else {
            return Ok(false);
        };
        if end > self.window.file_bytes()? || !self.may_hash(end - offset, passed) {
            return Ok(false);
        }
        self.hashed_in_vain += end - offset;
        let Found::Frame(at) = self.examine(offset)? else { return Ok(false) };
        Ok(self.can_follow(self.payload(at)))
    }

    fn may_hash(&self, bytes: u64, passed: u64) -> bool {
        let allowed = HASHED_IN_VAIN_MIN.saturating_add(passed.saturating_mul(HASHED_IN_VAIN_PER_BYTE));
        bytes <= SHORT_BYTES || self.hashed_in_vain.saturating_add(bytes) <= allowed
    }

    /// Offset of the next frame from `from` on, below `limit`, that is believed.
    fn search(&mut self, mut from: u64, limit: u64) -> io::Result<Option<u64>> {
        let header_bytes = self.deframer.header_bytes();
        while from < limit {
            let stretch = self.window.at(from, SEARCH_BYTES)?;
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
            let Found::Frame(at) = self.examine(end)? else { return Ok(None) };
            self.hashed_in_vain += at.bytes as u64;
            end += at.bytes as u64;
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
