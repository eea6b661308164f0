//! Tracks which sequence numbers of each source a segment contains, and finds the missing sequence
//! numbers.

use std::collections::BTreeMap;

use super::reader::SegmentReader;
use crate::schema::segment::GapCause;
use crate::segment::format::control_frames::Gap;
use crate::segment::format::frame_kind::SampleView;
use crate::segment::format::header::SegmentHeader;

/// Maximum number of gaps of one source that may wait for samples with lower sequence numbers.
/// Several gaps may wait because a recorder writes the gaps of one batch together.
const GAPS_WAITING_MAX: usize = 4096;

/// The sequence number that each source has reached.
#[derive(Debug, Default, Clone)]
pub(in crate::segment) struct SequenceProgress {
    sources: BTreeMap<u16, SourceProgress>,
    known_sources: usize, // number of the header's sources that were added
    latest_mono_ns: u64,
}

#[derive(Debug, Default, Clone)]
struct SourceProgress {
    next: u64,
    last_mono_ns: u64,
    /// Ranges of sequence numbers at or above `next` that a gap has reported as lost. The end of a
    /// range is exclusive. A recorder writes a gap before the samples of the same batch, so samples
    /// with lower sequence numbers may follow the gap.
    lost: Vec<(u64, u64)>,
}

/// Whether a sample is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::segment) enum SampleStatus {
    /// The sequence number is below the next one of its source, or was reported as lost.
    Known,
    /// The sample is new. The gaps contain the missing sequence numbers before the sample.
    New(Vec<Gap>),
}

impl SequenceProgress {
    pub(in crate::segment) fn of(reader: &SegmentReader) -> Self {
        Self::after(reader.header())
    }

    /// Starts at the sequence numbers in a segment's header.
    pub(in crate::segment) fn after(header: &SegmentHeader) -> Self {
        let mut progress = Self { latest_mono_ns: header.clocks.mono_ns, ..Self::default() };
        progress.add_sources(header);
        progress
    }

    /// Adds sources of the header that are not known yet. Each added source begins with the
    /// sequence number in its descriptor.
    pub(in crate::segment) fn add_sources(&mut self, header: &SegmentHeader) {
        for source in header.sources.iter().skip(self.known_sources) {
            let begun = SourceProgress { next: source.next_seq, ..SourceProgress::default() };
            self.sources.entry(source.id).or_insert(begun);
        }
        self.known_sources = header.sources.len();
    }

    /// Adds a sample. `cause` is the cause in the gaps that the function returns for missing
    /// sequence numbers.
    pub(in crate::segment) fn add_sample(
        &mut self,
        sample: &SampleView<'_>,
        cause: GapCause,
    ) -> SampleStatus {
        let source = self.sources.entry(sample.source).or_default();
        if sample.seq < source.next || source.is_lost(sample.seq) {
            return SampleStatus::Known;
        }
        let gaps = source.advance_to(sample.source, sample.seq, cause, sample.mono_ns);
        (source.next, source.last_mono_ns) = (sample.seq.saturating_add(1), sample.mono_ns);
        self.latest_mono_ns = self.latest_mono_ns.max(sample.mono_ns);
        SampleStatus::New(gaps)
    }

    /// Adds a gap. Returns whether the gap is new.
    pub(in crate::segment) fn add_gap(&mut self, gap: &Gap) -> bool {
        let source = self.sources.entry(gap.source).or_default();
        let end = gap.first.saturating_add(gap.count);
        let is_new = gap.first >= source.next
            && source.lost.iter().all(|(first, lost_end)| end <= *first || gap.first >= *lost_end);
        if is_new && source.lost.len() < GAPS_WAITING_MAX {
            source.lost.push((gap.first, end));
        } else if is_new {
            // This source has very many gaps without samples between them. To limit the memory, all
            // sequence numbers before the end of this gap are treated as passed.
            source.next = end;
        }
        is_new
    }

    /// Returns gaps with this cause for the sequence numbers that are missing at the end of a
    /// source. These are the missing sequence numbers below `begun`, and those before a loss that a
    /// gap has reported.
    pub(in crate::segment) fn missing(&mut self, id: u16, begun: u64, cause: GapCause) -> Vec<Gap> {
        let latest_mono_ns = self.latest_mono_ns;
        let Some(source) = self.sources.get_mut(&id) else { return Vec::new() };
        let end = source.lost.iter().map(|(_, lost_end)| *lost_end).max().unwrap_or(0).max(begun);
        if end <= source.next {
            return Vec::new();
        }
        source.advance_to(id, end, cause, latest_mono_ns)
    }

    /// Returns the ids of all sources.
    pub(in crate::segment) fn sources(&self) -> Vec<u16> {
        self.sources.keys().copied().collect()
    }
}

impl SourceProgress {
    fn is_lost(&self, seq: u64) -> bool {
        self.lost.iter().any(|(first, lost_end)| (*first..*lost_end).contains(&seq))
    }

    /// Advances to `end`. Returns gaps for the skipped sequence numbers that no other gap has
    /// reported as lost.
    fn advance_to(&mut self, source: u16, end: u64, cause: GapCause, before_mono_ns: u64) -> Vec<Gap> {
        let mut gaps = Vec::new();
        if end == self.next {
            return gaps;
        }
        self.lost.sort_unstable();
        let mut from = self.next;
        let in_between = self.lost.iter().copied().filter(|(first, _)| *first < end);
        for (first, lost_end) in in_between.chain([(end, end)]) {
            if first > from {
                gaps.push(Gap {
                    source,
                    first: from,
                    count: first - from,
                    causes: cause.bits(),
                    after_mono_ns: self.last_mono_ns,
                    before_mono_ns,
                });
            }
            from = from.max(lost_end);
        }
        self.lost.retain(|(_, lost_end)| *lost_end > end);
        self.next = end;
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seq: u64) -> SampleView<'static> {
        let mono_ns = 100 + seq;
        SampleView { source: 1, seq, mono_ns, wall_ns: 0, flags: 0, duration_ns: 0, payload: &[] }
    }

    fn ranges(gaps: &[Gap]) -> Vec<(u64, u64)> {
        gaps.iter().map(|gap| (gap.first, gap.count)).collect()
    }

    fn added(progress: &mut SequenceProgress, seq: u64) -> Vec<(u64, u64)> {
        match progress.add_sample(&sample(seq), GapCause::Crash) {
            SampleStatus::New(gaps) => ranges(&gaps),
            SampleStatus::Known => panic!("{seq} is new"),
        }
    }

    // Proves that each number counts exactly once, and that gaps of missing numbers have the
    // correct counts and bounds.
    #[test]
    fn what_is_missing_is_known() {
        let mut progress = SequenceProgress::default();
        assert_eq!(added(&mut progress, 0), []);
        assert_eq!(progress.add_sample(&sample(0), GapCause::Crash), SampleStatus::Known);
        let SampleStatus::New(gaps) = progress.add_sample(&sample(5), GapCause::Crash) else {
            panic!("a jump")
        };
        let gap = gaps[0];
        assert_eq!((gap.first, gap.count, gap.causes), (1, 4, GapCause::Crash.bits()));
        assert_eq!((gap.after_mono_ns, gap.before_mono_ns), (100, 105));
        let known = Gap { first: 6, count: 4, ..gap };
        assert!(progress.add_gap(&known) && !progress.add_gap(&known));
        assert_eq!(
            progress.add_sample(&sample(7), GapCause::Crash),
            SampleStatus::Known,
            "it counts as lost"
        );
        assert_eq!(added(&mut progress, 10), []);
        assert_eq!(progress.missing(1, 11, GapCause::Crash), []);
        assert_eq!(ranges(&progress.missing(1, 13, GapCause::Crash)), [(11, 2)]);
        assert_eq!(progress.missing(1, 13, GapCause::Crash), [], "reported once");
        assert_eq!(progress.missing(2, 13, GapCause::Crash), [], "no such source");
    }

    // Proves that a gap that is written before samples with lower numbers does not hide any of
    // these samples.
    #[test]
    fn gaps_may_come_first() {
        let mut progress = SequenceProgress::default();
        let gap =
            |first, count| Gap { source: 1, first, count, causes: 1, after_mono_ns: 0, before_mono_ns: 0 };
        assert!(progress.add_gap(&gap(2, 3)) && progress.add_gap(&gap(10, 5)));
        assert_eq!(added(&mut progress, 0), []);
        assert_eq!(added(&mut progress, 6), [(1, 1), (5, 1)]);
        assert_eq!(
            ranges(&progress.missing(1, 0, GapCause::Crash)),
            [(7, 3)],
            "numbers before a known loss were begun"
        );
        assert_eq!(progress.missing(1, 15, GapCause::Crash), []);
    }
}
