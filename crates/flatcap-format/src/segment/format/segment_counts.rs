//! Counts the content of a segment, for the totals and the index in the segment's footer. The
//! writer of a segment uses these counts, and so does the full scan of a recovery.

use super::control_frames::Gap;
use super::footer_totals::{FooterTotals, SampleSpan};
use super::header::SegmentHeader;
use super::index::{Bounds, IndexBuilder, IndexEntry, IndexFrame, IndexedSource};

/// Counts of one segment.
#[derive(Debug)]
pub(in crate::segment) struct SegmentCounts {
    bytes: u64,
    frames: u64,
    totals: Vec<FooterTotals>, // in the order of the header's sources
    latest_mono_ns: u64,
    reorder_window_ns: u64,
    index: IndexBuilder,
    // Number of frames up to and including the last Index frame. Before the first Index frame, the
    // number of frames in the header and its attachments.
    indexed_frames: u64,
    content_frames: u64, // number of frames in the header and its attachments
    intervals: u64,
}

impl SegmentCounts {
    /// Starts the counts of a segment that has this header and no frames yet.
    pub(in crate::segment) fn new(header: &SegmentHeader) -> Self {
        Self {
            bytes: 0,
            frames: 0,
            totals: header.sources.iter().map(|source| FooterTotals::new(source.id)).collect(),
            latest_mono_ns: 0,
            reorder_window_ns: 0,
            index: IndexBuilder::new(),
            indexed_frames: 0,
            content_frames: 0,
            intervals: 1,
        }
    }

    /// Returns the number of bytes.
    pub(in crate::segment) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of frames.
    pub(in crate::segment) fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the largest step back in time between frames of different sources, in nanoseconds.
    pub(in crate::segment) fn reorder_window_ns(&self) -> u64 {
        self.reorder_window_ns
    }

    /// Returns the index entry of the open interval.
    pub(in crate::segment) fn interval(&self) -> &IndexEntry {
        self.index.open()
    }

    /// Returns whether any frame after the header and its attachments is not yet covered by an
    /// Index frame.
    pub(in crate::segment) fn has_unindexed(&self) -> bool {
        self.frames > self.indexed_frames
    }

    /// Treats all later frames as content. The caller has added only the header and its attachments
    /// so far.
    pub(in crate::segment) fn begin_content(&mut self) {
        self.indexed_frames = self.frames;
        self.content_frames = self.frames;
    }

    /// Returns whether any frame follows the header and its attachments.
    pub(in crate::segment) fn has_content(&self) -> bool {
        self.frames > self.content_frames
    }

    /// Returns the number of intervals, including the open interval.
    pub(in crate::segment) fn intervals(&self) -> u64 {
        self.intervals
    }

    /// Counts frames, given the concatenated headers of the frames.
    pub(in crate::segment) fn add_frames(&mut self, heads: &[u8], frames: u64, bytes: u64) {
        self.bytes += bytes;
        self.frames += frames;
        self.index.add_frames(heads, frames, bytes);
    }

    /// Adds samples of one source. Their frames were already counted. The sequence numbers of these
    /// samples must be consecutive.
    pub(in crate::segment) fn add_samples(&mut self, source: u16, count: u64, span: SampleSpan) {
        if span.first_mono_ns < self.latest_mono_ns {
            self.reorder_window_ns = self.reorder_window_ns.max(self.latest_mono_ns - span.first_mono_ns);
        }
        self.latest_mono_ns = self.latest_mono_ns.max(span.last_mono_ns);
        if let Some(totals) = self.totals_mut(source) {
            totals.add_samples(count, span);
        }
        let bounds = Bounds {
            first_mono_ns: span.first_mono_ns,
            last_mono_ns: span.last_mono_ns,
            first_wall_ns: span.first_wall_ns,
            last_wall_ns: span.last_wall_ns,
        };
        self.index.add_samples(IndexedSource { source, first_seq: span.first_seq, count }, bounds);
    }

    /// Counts a gap whose frame was already counted.
    pub(in crate::segment) fn add_gap(&mut self, gap: &Gap) {
        if let Some(totals) = self.totals_mut(gap.source) {
            totals.add_gap(gap);
        }
    }

    /// Adds a source that is not in the header.
    pub(in crate::segment) fn add_source(&mut self, id: u16) {
        if self.totals_mut(id).is_none() {
            self.totals.push(FooterTotals::new(id));
        }
    }

    /// Returns the totals of one source.
    pub(in crate::segment) fn totals_mut(&mut self, source: u16) -> Option<&mut FooterTotals> {
        // This project's recorder numbers sources from 0, so the id of a source is usually its
        // index.
        let at = usize::from(source);
        match self.totals.get(at) {
            Some(totals) if totals.source == source => self.totals.get_mut(at),
            _ => self.totals.iter_mut().find(|totals| totals.source == source),
        }
    }

    /// Returns the totals of all sources.
    pub(in crate::segment) fn totals(&self) -> &[FooterTotals] {
        &self.totals
    }

    /// Ends the open interval and returns its Index frame. The bytes of the returned Index frame
    /// are counted in the next interval.
    pub(in crate::segment) fn close_interval(&mut self, synced_offset: u64) -> IndexFrame {
        // The next frame that is written is the Index frame, which is not content.
        self.indexed_frames = self.frames + 1;
        self.intervals += 1;
        self.index.close(synced_offset)
    }

    /// Returns the totals and the index for the footer.
    pub(in crate::segment) fn finish(&mut self) -> (Vec<FooterTotals>, Vec<IndexEntry>) {
        (std::mem::take(&mut self.totals), self.index.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::example;

    fn span(seq: u64, first_mono_ns: u64, last_mono_ns: u64) -> SampleSpan {
        SampleSpan {
            first_seq: seq,
            last_seq: seq,
            first_mono_ns,
            last_mono_ns,
            first_wall_ns: 0,
            last_wall_ns: 0,
        }
    }

    // Proves that the counts are correct, even for sources that are added after the header.
    #[test]
    fn counts_are_what_came() {
        let mut counts = SegmentCounts::new(&example());
        counts.add_frames(&[1; 12], 1, 100);
        counts.begin_content();
        assert!(!counts.has_content() && !counts.has_unindexed());
        counts.add_frames(&[2; 24], 2, 300);
        counts.add_samples(1, 2, span(9, 50, 80));
        counts.add_source(7);
        counts.add_source(7);
        counts.add_samples(7, 1, span(0, 60, 60));
        counts.add_samples(8, 1, span(0, 90, 90));
        let lost =
            |source, count| Gap { source, first: 0, count, causes: 1, after_mono_ns: 0, before_mono_ns: 0 };
        counts.add_gap(&lost(7, u64::MAX));
        counts.add_gap(&lost(7, 5));
        assert!(counts.has_content() && counts.has_unindexed());
        assert_eq!((counts.bytes(), counts.frames(), counts.reorder_window_ns()), (400, 3, 20));
        let index = counts.close_interval(40);
        assert_eq!((index.number, index.entry.bytes, index.entry.frames), (0, 400, 3));
        counts.add_frames(&[3; 12], 1, 60);
        assert!(!counts.has_unindexed(), "the Index frame itself is not content");
        let (totals, entries) = counts.finish();
        let counted: Vec<_> =
            totals.iter().map(|totals| (totals.source, totals.recorded, totals.lost)).collect();
        assert_eq!(counted, [(0, 0, 0), (1, 2, 0), (7, 1, u64::MAX)]);
        assert_eq!(entries.iter().map(IndexEntry::end).collect::<Vec<_>>(), [400, 460]);
    }
}
