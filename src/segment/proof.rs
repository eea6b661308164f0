//! Whether exactly the frames that were written stand in a segment, interval by interval (docs/FORMAT.md, "Index and
//! digest").
//!
//! Fed with every frame of one segment in order. After a finding it goes on by what the next Index frame says, so that
//! one removed frame is one finding.

use super::digest::Digest;
use super::footer::Footer;
use super::index::{Index, IndexEntry};
use super::reader::Head;

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
    pub fn frame(&mut self, head: &Head, bytes: usize) {
        if self.heads.len() + head.as_bytes().len() > HEADS_BYTES {
            self.digest.add(&self.heads);
            self.heads.clear();
        }
        self.heads.extend_from_slice(head.as_bytes());
        self.bytes += bytes as u64;
        self.frames += 1;
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
