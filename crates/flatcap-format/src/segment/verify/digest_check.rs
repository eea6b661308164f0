//! The digest check. It determines whether a segment contains exactly the frames that were written,
//! interval by interval (docs/FORMAT.md, "Index and digest").
//!
//! The caller adds every frame of one segment in file order. After a finding, the check continues
//! from the next Index frame, so that one removed frame causes only one finding.

use crate::segment::format::digest::Digest;
use crate::segment::format::footer::Footer;
use crate::segment::format::index::{IndexEntry, IndexFrame};

/// Total length of frame headers that are collected before they are hashed together, in bytes.
const HEADERS_BYTES: usize = 8 << 10;

/// The digest check of one segment.
#[derive(Debug)]
pub struct DigestCheck {
    digest: Digest,
    headers: Vec<u8>, // headers that are not hashed yet
    bytes: u64,       // length of the open interval so far
    frames: u64,
    is_damaged: bool,
    start: u64,  // expected offset of the open interval
    number: u64, // expected number of the next Index frame
}

impl Default for DigestCheck {
    fn default() -> Self {
        Self::after(&IndexEntry::default(), 0)
    }
}

impl DigestCheck {
    /// Starts the check of the next interval, which follows the interval of this entry.
    fn after(entry: &IndexEntry, number: u64) -> Self {
        Self {
            digest: Digest::after(entry.digest),
            headers: Vec::with_capacity(HEADERS_BYTES),
            bytes: 0,
            frames: 0,
            is_damaged: false,
            start: entry.end(),
            number,
        }
    }

    /// Adds a frame, given its header and its length in bytes, header included. The caller must
    /// pass an Index frame to `check_index` before it adds the frame, because the Index frame
    /// belongs to the next interval.
    #[inline]
    pub(crate) fn add_frame(&mut self, head: &[u8], bytes: usize) {
        if self.headers.len() + head.len() > HEADERS_BYTES {
            self.digest.add(&self.headers);
            self.headers.clear();
        }
        match head.first_chunk::<12>() {
            // A fixed length compiles to two stores instead of a call.
            Some(head) => self.headers.extend_from_slice(head),
            None => self.headers.extend_from_slice(head),
        }
        self.bytes += bytes as u64;
        self.frames += 1;
    }

    /// Adds frames, given their concatenated headers and their total length. The frames must not
    /// include an Index frame.
    pub(crate) fn add_frames(&mut self, heads: &[u8], frames: u64, bytes: u64) {
        self.digest.add(&self.headers);
        self.headers.clear();
        self.digest.add(heads);
        self.bytes += bytes;
        self.frames += frames;
    }

    /// Marks the interval as damaged. The digest of a damaged interval cannot be checked. The
    /// caller reports the damage.
    pub(crate) fn add_damage(&mut self) {
        self.is_damaged = true;
    }

    /// Checks the interval that ends at an Index frame. If the interval does not match the Index
    /// frame, returns a description of the mismatch.
    pub(crate) fn check_index(&mut self, index: &IndexFrame) -> Option<&'static str> {
        let finding = if self.is_damaged {
            None
        } else if index.number != self.number {
            Some("an Index frame out of order: some were added, removed or exchanged")
        } else {
            self.compare(&index.entry)
        };
        *self = Self::after(&index.entry, index.number.saturating_add(1));
        finding
    }

    /// Checks the last interval, which ends at the footer. If the interval does not match the
    /// footer, returns a description of the mismatch.
    pub(crate) fn check_footer(&mut self, footer: &Footer) -> Option<&'static str> {
        let entry = footer.index.last().filter(|_| !self.is_damaged)?;
        self.compare(entry)
    }

    fn compare(&mut self, entry: &IndexEntry) -> Option<&'static str> {
        self.digest.add(&self.headers);
        self.headers.clear();
        if entry.offset != self.start {
            Some("an Index frame is missing before this interval")
        } else if entry.bytes != self.bytes || entry.frames != self.frames {
            Some("frames were added to this interval or removed from it")
        } else if entry.digest != self.digest.value() {
            Some("frames of this interval were exchanged: its digest differs")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::format::index::IndexBuilder;
    use crate::testing::example;

    fn head(of: u8) -> [u8; 12] {
        [of; 12]
    }

    /// Builds three intervals of three frames each, with Index frames between them.
    fn written() -> (Vec<IndexFrame>, Vec<IndexEntry>) {
        let mut builder = IndexBuilder::new();
        let mut indexes = Vec::new();
        for interval in 0..3 {
            for frame in 0..3 {
                builder.add_frames(&[10 * interval + frame; 12], 1, 100);
            }
            if interval < 2 {
                indexes.push(builder.close(0));
                builder.add_frames(&[200 + interval; 12], 1, 50);
            }
        }
        (indexes, builder.finish())
    }

    /// Checks these frames and returns the findings. Each number below 200 stands for a frame, and
    /// its tens digit is the number of the interval that contains the frame. Numbers from 200 on
    /// stand for Index frames, and 255 stands for damage.
    fn found(frames: &[u8]) -> Vec<(u8, &'static str)> {
        let (indexes, entries) = written();
        let mut check = DigestCheck::default();
        let mut findings = Vec::new();
        for frame in frames {
            match frame {
                255 => check.add_damage(),
                200.. => {
                    let what = check.check_index(&indexes[usize::from(frame - 200)]);
                    findings.extend(what.map(|what| (*frame, what)));
                    check.add_frame(&head(*frame), 50);
                }
                _ => check.add_frame(&head(*frame), 100),
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
            features: crate::block::BlockFeatures::NONE,
            small_blocks: false,
        };
        findings.extend(check.check_footer(&footer).map(|what| (0, what)));
        findings
    }

    // Proves that each removed, repeated or exchanged frame causes one finding at the end of its
    // interval, and that an interval with a damaged range causes no finding.
    #[test]
    fn each_deviation_is_one_finding() {
        const WHOLE: [u8; 11] = [0, 1, 2, 200, 10, 11, 12, 201, 20, 21, 22];
        const ADDED: &str = "frames were added to this interval or removed from it";
        const OTHER: &str = "frames of this interval were exchanged: its digest differs";
        const ORDER: &str = "an Index frame out of order: some were added, removed or exchanged";
        const NONE: &str = "an Index frame is missing before this interval";
        assert_eq!(found(&WHOLE), []);
        assert_eq!(found(&[0, 2, 200, 10, 11, 12, 201, 20, 21, 22]), [(200, ADDED)]);
        assert_eq!(found(&[0, 1, 2, 200, 10, 11, 11, 12, 201, 20, 21, 22]), [(201, ADDED)]);
        assert_eq!(found(&[0, 1, 2, 200, 10, 12, 11, 201, 20, 21, 22]), [(201, OTHER)]);
        assert_eq!(found(&[0, 1, 2, 200, 10, 11, 12, 201, 20, 21]), [(0, ADDED)]);
        assert_eq!(found(&[0, 1, 2, 10, 11, 12, 201, 20, 21, 22]), [(201, ORDER)]);
        assert_eq!(found(&[0, 1, 2, 200, 10, 11, 12, 20, 21, 22]), [(0, NONE)]);
        assert_eq!(found(&[0, 255, 2, 200, 10, 11, 12, 201, 20, 21, 22]), []);
        assert_eq!(found(&[0, 255, 2, 200, 10, 12, 201, 20, 21, 22]), [(201, ADDED)]);
        // Two frames of different intervals were exchanged.
        assert_eq!(found(&[0, 1, 11, 200, 10, 2, 12, 201, 20, 21, 22]), [(200, OTHER), (201, OTHER)]);
    }

    // Proves that more headers than the buffer holds are hashed correctly.
    #[test]
    fn a_long_interval_is_hashed_whole() {
        let mut builder = IndexBuilder::new();
        let mut check = DigestCheck::default();
        for frame in (0..=u8::MAX).cycle().take(3_000) {
            builder.add_frames(&[frame; 12], 1, 100);
            check.add_frame(&head(frame), 100);
        }
        assert_eq!(check.check_index(&builder.close(0)), None);
    }

    // Proves that frames that are added together have the same digest as frames that are added one
    // by one.
    #[test]
    fn frames_together_are_hashed_like_single_ones() {
        let mut builder = IndexBuilder::new();
        let mut check = DigestCheck::default();
        builder.add_frames(&[[1; 12], [2; 12], [3; 12], [4; 12]].concat(), 4, 400);
        check.add_frame(&head(1), 100);
        check.add_frames(&[head(2), head(3)].concat(), 2, 200);
        check.add_frame(&head(4), 100);
        assert_eq!(check.check_index(&builder.close(0)), None);
    }
}
