//! Whether exactly the frames that were written stand in a segment, interval by interval (docs/FORMAT.md, "Index and
//! digest").
//!
//! Fed with every frame of one segment in order. After a finding it goes on by what the next Index frame says, so that
//! one removed frame is one finding.

use super::digest::Digest;
use super::footer::Footer;
use super::index::{Index, IndexEntry};

/// Headers of frames that are hashed at once.
const HEADS_BYTES: usize = 8 << 10;

/// The proof of one segment in the making.
#[derive(Debug)]
pub struct Proof {
    digest: Digest,
    heads: Vec<u8>, // not hashed yet
    bytes: u64,     // of the open interval, as found
    frames: u64,
    is_damaged: bool,
    start: u64,  // of the open interval, as its entry should say
    number: u64, // of the next Index frame
}

impl Default for Proof {
    fn default() -> Self {
        Self::behind(&IndexEntry::default(), 0)
    }
}

impl Proof {
    /// Starts an interval behind another one, as its entry says.
    fn behind(entry: &IndexEntry, number: u64) -> Self {
        Self {
            digest: Digest::behind(entry.digest),
            heads: Vec::with_capacity(HEADS_BYTES),
            bytes: 0,
            frames: 0,
            is_damaged: false,
            start: entry.end(),
            number,
        }
    }

    /// A frame, by its header and its length with header. An Index frame is given after it was checked: it belongs to the
    /// interval behind it.
    #[inline]
    pub fn frame(&mut self, head: &[u8], bytes: usize) {
        if self.heads.len() + head.len() > HEADS_BYTES {
            self.digest.add(&self.heads);
            self.heads.clear();
        }
        match head.first_chunk::<12>() {
            // Of a known length: two stores instead of a call.
            Some(head) => self.heads.extend_from_slice(head),
            None => self.heads.extend_from_slice(head),
        }
        self.bytes += bytes as u64;
        self.frames += 1;
    }

    /// Frames by their headers, one behind the other, and their length with headers. None of them is an Index frame.
    pub fn frames(&mut self, heads: &[u8], frames: u64, bytes: u64) {
        self.digest.add(&self.heads);
        self.heads.clear();
        self.digest.add(heads);
        self.bytes += bytes;
        self.frames += frames;
    }

    /// A hole: the interval cannot be proven, and its damage is known.
    pub fn damage(&mut self) {
        self.is_damaged = true;
    }

    /// An Index frame. Says what is wrong with the interval that it ends.
    pub fn index(&mut self, index: &Index) -> Option<&'static str> {
        let finding = if self.is_damaged {
            None
        } else if index.number != self.number {
            Some("an Index frame out of its order: some were added, removed or exchanged")
        } else {
            self.compare(&index.entry)
        };
        *self = Self::behind(&index.entry, index.number.saturating_add(1));
        finding
    }

    /// The footer. Says what is wrong with the interval in front of it.
    pub fn footer(&mut self, footer: &Footer) -> Option<&'static str> {
        let entry = footer.index.last().filter(|_| !self.is_damaged)?;
        self.compare(entry)
    }

    fn compare(&mut self, entry: &IndexEntry) -> Option<&'static str> {
        self.digest.add(&self.heads);
        self.heads.clear();
        if entry.offset != self.start {
            Some("an Index frame is missing in front of this interval")
        } else if entry.bytes != self.bytes || entry.frames != self.frames {
            Some("frames were added to this interval or removed from it")
        } else if entry.digest != self.digest.value() {
            Some("frames of this interval were exchanged: its digest is another one")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::header::tests::example;
    use crate::segment::index::IndexBook;

    fn head(of: u8) -> [u8; 12] {
        [of; 12]
    }

    /// Three intervals of three frames each; in front of each but the first its Index frame, as a writer counts.
    fn written() -> (Vec<Index>, Vec<IndexEntry>) {
        let mut book = IndexBook::new();
        let mut indexes = Vec::new();
        for interval in 0..3 {
            for frame in 0..3 {
                book.frames(&[10 * interval + frame; 12], 1, 100);
            }
            if interval < 2 {
                indexes.push(book.close(0));
                book.frames(&[200 + interval; 12], 1, 50);
            }
        }
        (indexes, book.finish())
    }

    /// What is found where these frames stand: tens are intervals, from 200 on Index frames, 255 a hole.
    fn found(frames: &[u8]) -> Vec<(u8, &'static str)> {
        let (indexes, entries) = written();
        let mut proof = Proof::default();
        let mut findings = Vec::new();
        for frame in frames {
            match frame {
                255 => proof.damage(),
                200.. => {
                    let what = proof.index(&indexes[usize::from(frame - 200)]);
                    findings.extend(what.map(|what| (*frame, what)));
                    proof.frame(&head(*frame), 50);
                }
                _ => proof.frame(&head(*frame), 100),
            }
        }
        let footer = Footer {
            header: example(),
            totals: Vec::new(),
            frames: 0,
            bytes: 0,
            reorder_window_ns: 0,
            recovered: false,
            index: entries,
            blocks: Vec::new(),
            sizes: Vec::new(),
            small_blocks: false,
        };
        findings.extend(proof.footer(&footer).map(|what| (0, what)));
        findings
    }

    // Goal: each deviation is one finding, at the end of its interval, and none of the intervals behind it. Method: by
    // hand: frames removed, repeated, exchanged; Index frames too; a hole excuses its own interval.
    #[test]
    fn each_deviation_is_one_finding() {
        const WHOLE: [u8; 11] = [0, 1, 2, 200, 10, 11, 12, 201, 20, 21, 22];
        const ADDED: &str = "frames were added to this interval or removed from it";
        const OTHER: &str = "frames of this interval were exchanged: its digest is another one";
        const ORDER: &str = "an Index frame out of its order: some were added, removed or exchanged";
        const NONE: &str = "an Index frame is missing in front of this interval";
        assert_eq!(found(&WHOLE), []);
        assert_eq!(found(&[0, 2, 200, 10, 11, 12, 201, 20, 21, 22]), [(200, ADDED)]);
        assert_eq!(found(&[0, 1, 2, 200, 10, 11, 11, 12, 201, 20, 21, 22]), [(201, ADDED)]);
        assert_eq!(found(&[0, 1, 2, 200, 10, 12, 11, 201, 20, 21, 22]), [(201, OTHER)]);
        assert_eq!(found(&[0, 1, 2, 200, 10, 11, 12, 201, 20, 21]), [(0, ADDED)]);
        assert_eq!(found(&[0, 1, 2, 10, 11, 12, 201, 20, 21, 22]), [(201, ORDER)]);
        assert_eq!(found(&[0, 1, 2, 200, 10, 11, 12, 20, 21, 22]), [(0, NONE)]);
        assert_eq!(found(&[0, 255, 2, 200, 10, 11, 12, 201, 20, 21, 22]), []);
        assert_eq!(found(&[0, 255, 2, 200, 10, 12, 201, 20, 21, 22]), [(201, ADDED)]);
        // A frame changed across intervals, with the header of another one.
        assert_eq!(found(&[0, 1, 11, 200, 10, 2, 12, 201, 20, 21, 22]), [(200, OTHER), (201, OTHER)]);
    }

    // Goal: many headers are hashed like few. Method: more than the room for them holds.
    #[test]
    fn a_long_interval_is_hashed_whole() {
        let mut book = IndexBook::new();
        let mut proof = Proof::default();
        for frame in (0..=u8::MAX).cycle().take(3_000) {
            book.frames(&[frame; 12], 1, 100);
            proof.frame(&head(frame), 100);
        }
        assert_eq!(proof.index(&book.close(0)), None);
    }

    // Goal: frames given together count as one by one. Method: some of each.
    #[test]
    fn frames_together_are_hashed_like_single_ones() {
        let mut book = IndexBook::new();
        let mut proof = Proof::default();
        book.frames(&[[1; 12], [2; 12], [3; 12], [4; 12]].concat(), 4, 400);
        proof.frame(&head(1), 100);
        proof.frames(&[head(2), head(3)].concat(), 2, 200);
        proof.frame(&head(4), 100);
        assert_eq!(proof.index(&book.close(0)), None);
    }
}
