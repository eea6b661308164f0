//! What a segment holds so far: counted by the writer as it appends, by a recovery as it walks.

use super::control::Gap;
use super::header::Header;
use super::index::{Bounds, Index, IndexBook, IndexEntry, IndexedSource};
use super::totals::{Span, Totals};

/// Counts of one segment.
#[derive(Debug)]
pub(super) struct Tally {
    bytes: u64,
    frames: u64,
    totals: Vec<Totals>, // in the order of the header's sources
    latest_mono_ns: u64,
    reorder_window_ns: u64,
    index: IndexBook,
    indexed_frames: u64, // up to the last Index frame, itself included; at first the header and what belongs to it
    content_frames: u64, // the header and what belongs to it: content is what follows
    intervals: u64,
}

impl Tally {
    /// Of a segment with this header and nothing in it.
    pub(super) fn new(header: &Header) -> Self {
        Self {
            bytes: 0,
            frames: 0,
            totals: header.sources.iter().map(|source| Totals::new(source.id)).collect(),
            latest_mono_ns: 0,
            reorder_window_ns: 0,
            index: IndexBook::new(),
            indexed_frames: 0,
            content_frames: 0,
            intervals: 1,
        }
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All frames.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// The largest step back in time so far, in nanoseconds.
    pub(super) fn reorder_window_ns(&self) -> u64 {
        self.reorder_window_ns
    }

    /// The open interval.
    pub(super) fn interval(&self) -> &IndexEntry {
        self.index.open()
    }

    /// Whether there are frames that no Index frame covers.
    pub(super) fn has_unindexed(&self) -> bool {
        self.frames > self.indexed_frames
    }

    /// From here on frames count as content.
    pub(super) fn begin_content(&mut self) {
        self.indexed_frames = self.frames;
        self.content_frames = self.frames;
    }

    /// Whether there is anything behind the header and what belongs to it.
    pub(super) fn has_content(&self) -> bool {
        self.frames > self.content_frames
    }

    /// How many intervals there are, the open one included.
    pub(super) fn intervals(&self) -> u64 {
        self.intervals
    }

    /// Counts frames by their headers, one behind the other.
    pub(super) fn add(&mut self, heads: &[u8], frames: u64, bytes: u64) {
        self.bytes += bytes;
        self.frames += frames;
        self.index.frames(heads, frames, bytes);
    }

    /// Counts samples of one source with consecutive numbers among the frames.
    pub(super) fn samples(&mut self, source: u16, count: u64, span: Span) {
        if span.first_mono_ns < self.latest_mono_ns {
            self.reorder_window_ns = self.reorder_window_ns.max(self.latest_mono_ns - span.first_mono_ns);
        }
        self.latest_mono_ns = self.latest_mono_ns.max(span.last_mono_ns);
        if let Some(totals) = self.totals_mut(source) {
            totals.record(count, span);
        }
        let bounds = Bounds {
            first_mono_ns: span.first_mono_ns,
            last_mono_ns: span.last_mono_ns,
            first_wall_ns: span.first_wall_ns,
            last_wall_ns: span.last_wall_ns,
        };
        self.index.samples(IndexedSource { source, first_seq: span.first_seq, count }, bounds);
    }

    /// Counts a gap among the frames.
    pub(super) fn gap(&mut self, gap: &Gap) {
        if let Some(totals) = self.totals_mut(gap.source) {
            totals.lose(gap);
        }
    }

    /// A source that was not in the header.
    pub(super) fn add_source(&mut self, id: u16) {
        if self.totals_mut(id).is_none() {
            self.totals.push(Totals::new(id));
        }
    }

    /// The counts of one source.
    pub(super) fn totals_mut(&mut self, source: u16) -> Option<&mut Totals> {
        // Ids are given in order from 0 by our recorder: the first look finds it.
        let at = usize::from(source);
        match self.totals.get(at) {
            Some(totals) if totals.source == source => self.totals.get_mut(at),
            _ => self.totals.iter_mut().find(|totals| totals.source == source),
        }
    }

    /// The counts of all sources.
    pub(super) fn totals(&self) -> &[Totals] {
        &self.totals
    }

    /// Ends the open interval: what its Index frame says. That frame belongs to the next interval.
    pub(super) fn close_interval(&mut self, synced_offset: u64) -> Index {
        // The Index frame itself, which is to come, is no content.
        self.indexed_frames = self.frames + 1;
        self.intervals += 1;
        self.index.close(synced_offset)
    }

    /// What a footer says of it: totals and index.
    pub(super) fn finish(&mut self) -> (Vec<Totals>, Vec<IndexEntry>) {
        (std::mem::take(&mut self.totals), self.index.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::header::tests::example;

    fn span(seq: u64, first_mono_ns: u64, last_mono_ns: u64) -> Span {
        Span { first_seq: seq, last_seq: seq, first_mono_ns, last_mono_ns, first_wall_ns: 0, last_wall_ns: 0 }
    }

    // Goal: what is counted is what came, for sources that came later too. Method: some frames by hand.
    #[test]
    fn counts_are_what_came() {
        let mut tally = Tally::new(&example());
        tally.add(&[1; 12], 1, 100);
        tally.begin_content();
        assert!(!tally.has_content() && !tally.has_unindexed());
        tally.add(&[2; 24], 2, 300);
        tally.samples(1, 2, span(9, 50, 80));
        tally.add_source(7);
        tally.add_source(7);
        tally.samples(7, 1, span(0, 60, 60));
        tally.samples(8, 1, span(0, 90, 90));
        let lost =
            |source, count| Gap { source, first: 0, count, causes: 1, after_mono_ns: 0, before_mono_ns: 0 };
        tally.gap(&lost(7, u64::MAX));
        tally.gap(&lost(7, 5));
        assert!(tally.has_content() && tally.has_unindexed());
        assert_eq!((tally.bytes(), tally.frames(), tally.reorder_window_ns()), (400, 3, 20));
        let index = tally.close_interval(40);
        assert_eq!((index.number, index.entry.bytes, index.entry.frames), (0, 400, 3));
        tally.add(&[3; 12], 1, 60);
        assert!(!tally.has_unindexed(), "the Index frame itself is no content");
        let (totals, entries) = tally.finish();
        let counted: Vec<_> =
            totals.iter().map(|totals| (totals.source, totals.recorded, totals.lost)).collect();
        assert_eq!(counted, [(0, 0, 0), (1, 2, 0), (7, 1, u64::MAX)]);
        assert_eq!(entries.iter().map(IndexEntry::end).collect::<Vec<_>>(), [400, 460]);
    }
}
