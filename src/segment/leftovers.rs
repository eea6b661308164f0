//! What the memory of a killed run adds to its segments.

use std::collections::BTreeMap;

use super::footer::Footer;
use super::header::Header;

/// What the memory of a dead run still held.
#[derive(Debug, Default, Clone)]
pub struct Leftovers {
    /// Whole telemetry frames as they would stand in the file, framed as the run's segments are, in the order of time.
    pub frames: Vec<Vec<u8>>,
    /// Readings begun by each source: its next sequence number.
    pub begun: BTreeMap<u16, u64>,
    /// Those are the numbers that the run's next segment begins with: what stands in this one from them on was given up, and
    /// counts as lost there.
    pub is_followed: bool,
}

impl Leftovers {
    /// Of a segment that another one of its run follows, which has this header.
    pub(super) fn of_next(next: &Header) -> Self {
        let begun = next.sources.iter().map(|source| (source.id, source.next_seq)).collect();
        Self { frames: Vec::new(), begun, is_followed: true }
    }

    /// Whether a recovery can add to a sealed segment with this footer: a source of it had begun more.
    pub(super) fn exceeds(&self, footer: &Footer) -> bool {
        let mut known = self.begun.iter().filter(|(source, _)| footer.header.source(**source).is_some());
        known.any(|(source, begun)| *begun > footer.next_seq(*source))
    }

    /// Whether a footer counts all that was begun, of sources that it does not know too.
    pub(super) fn is_counted(&self, footer: &Footer) -> bool {
        self.begun.iter().all(|(source, begun)| *begun <= footer.next_seq(*source))
    }

    /// Whether a sample with this number was given up.
    pub(super) fn was_given_up(&self, source: u16, seq: u64) -> bool {
        self.is_followed && self.begun.get(&source).is_some_and(|begun| seq >= *begun)
    }
}
