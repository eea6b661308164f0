//! The completeness check. For each source and run, it checks that recorded + lost + thinned =
//! sampled, and reports every missing sequence number.
//!
//! The check accepts headers, samples and gaps in file order, from any number of segments, run by
//! run. It keeps one entry per source and run, but only for the latest runs. It also keeps each gap
//! until a later sample follows.

use std::collections::HashMap;

use super::removed::RemovedSegments;
use crate::segment::format::control_frames::Gap;
use crate::segment::format::header::{SegmentHeader, SourceInfo};

/// Maximum number of gaps per source that may wait for the next sample. The recorder writes one gap
/// for each jump in the sequence numbers, so usually only one gap waits.
const GAPS_WAITING_MAX: usize = 1024;

/// Maximum number of entries that are kept when a header arrives. If there are more entries, the
/// entries of the earliest runs are replaced by their sum. The limit is needed because a hostile
/// file may have a header of another run every few hundred bytes.
const SOURCES_KEPT_MAX: usize = 1 << 16;

/// Counts of one source in one run. Each sequence number counts exactly once, even if it is in the
/// files several times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceCompleteness {
    /// The source's name.
    pub name: String,
    /// Number of samples in the files.
    pub recorded: u64,
    /// Number of samples that Gap frames count as lost. Thinned samples are not included.
    pub lost: u64,
    /// Number of samples that Gap frames count as left out on purpose, without any other cause.
    pub thinned: u64,
    /// Causes of the lost samples, as a set of bits (`GapCause` in schemas/segment.fbs).
    pub causes: u32,
    /// Number of samples in removed segments. Retention removed these segments, although earlier
    /// and later segments of the run remain.
    pub removed: u64,
    /// Number of samples that are neither recorded nor counted by a Gap frame.
    pub unexplained: u64,
    segment: u64, // number of the last segment that describes the source
    next_seq: u64,
    waiting: Vec<WaitingGap>, // disjoint, at or above `next_seq`
}

/// Sequence numbers of a gap that no later sample has followed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WaitingGap {
    first: u64,
    end: u64, // exclusive
    is_thinned: bool,
}

/// A finding about the sequence numbers of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceFinding {
    /// A sequence number is below the next one of its source, is both recorded and in a gap, or is
    /// in two gaps.
    Repeated,
    /// This many samples are neither recorded nor counted as lost.
    Unexplained(u64),
}

/// The completeness check over all runs and sources.
#[derive(Debug, Default)]
pub struct CompletenessCheck {
    // The entries, in order of first appearance.
    sources: Vec<((u64, u16), SourceCompleteness)>,
    by_key: HashMap<(u64, u16), usize>, // indexes into `sources`
    earlier: SourceCompleteness,        // sum of the entries that were dropped
    removed_segments: RemovedSegments,
    run_id: u64,         // of the last header
    segment: u64,        // number of that header's segment
    indexes: Vec<usize>, // indexes into `sources` by source id, for that run
}

const MISSING: usize = usize::MAX;

impl CompletenessCheck {
    /// Adds segments that retention has removed. The samples of these segments are not counted as
    /// missing.
    pub(crate) fn add_removed(&mut self, removed: &RemovedSegments) {
        self.removed_segments.extend(removed);
    }

    /// Begins a segment. Returns the samples that are missing before the segment, by source.
    pub fn begin_segment(&mut self, header: &SegmentHeader) -> Vec<(u16, SequenceFinding)> {
        (self.run_id, self.segment) = (header.run_id, header.segment);
        if self.sources.len() > SOURCES_KEPT_MAX {
            self.sum_up_earlier();
        }
        self.indexes.clear();
        let sources = header.sources.iter();
        sources.filter_map(|source| Some((source.id, self.add_source(header.run_id, source)?))).collect()
    }

    /// Adds a source from its descriptor. Returns the samples that are missing before the
    /// descriptor.
    pub(crate) fn add_source(&mut self, run_id: u64, source: &SourceInfo) -> Option<SequenceFinding> {
        let is_known = self.by_key.contains_key(&(run_id, source.id));
        let sources = &mut self.sources;
        let index = *self.by_key.entry((run_id, source.id)).or_insert_with_key(|key| {
            let entry = SourceCompleteness {
                name: source.name.clone(),
                next_seq: source.next_seq,
                ..SourceCompleteness::default()
            };
            sources.push((*key, entry));
            sources.len() - 1
        });
        let id = usize::from(source.id);
        if self.indexes.len() <= id {
            self.indexes.resize(id + 1, MISSING);
        }
        if let Some(at) = self.indexes.get_mut(id) {
            *at = index;
        }
        let number = self.segment;
        let entry = &mut self.sources.get_mut(index)?.1;
        let before = std::mem::replace(&mut entry.segment, number);
        if is_known && self.removed_segments.covers(run_id, before, number) {
            return entry.skip_to(source.next_seq);
        }
        // If the number in the header is lower, the segment was given up and removed, and exists
        // again after a power failure. This is not an error, because only samples and gaps repeat
        // numbers, not a header.
        entry.advance_to(source.next_seq.max(entry.next_seq))
    }

    /// Replaces the earlier half of the entries by their sum, except the entries of the current
    /// run.
    fn sum_up_earlier(&mut self) {
        let half = self.sources.len() / 2;
        let (run_id, mut index) = (self.run_id, 0);
        let earlier = &mut self.earlier;
        self.sources.retain_mut(|((run, _), source)| {
            index += 1;
            let is_kept = index > half || *run == run_id;
            if !is_kept {
                source.finish();
                earlier.add(source);
            }
            is_kept
        });
        self.by_key = self.sources.iter().enumerate().map(|(index, (key, _))| (*key, index)).collect();
    }

    /// Returns the entry of a source of the current run.
    #[inline]
    fn entry_mut(&mut self, run_id: u64, source: u16) -> Option<&mut SourceCompleteness> {
        let index = *self.indexes.get(usize::from(source)).filter(|_| run_id == self.run_id)?;
        self.sources.get_mut(index).map(|(_, entry)| entry)
    }

    /// Counts a sample. The caller must already have added the sample's source.
    pub fn add_sample(&mut self, run_id: u64, source: u16, seq: u64) -> Option<SequenceFinding> {
        let entry = self.entry_mut(run_id, source)?;
        if seq == entry.next_seq && entry.waiting.is_empty() {
            entry.recorded += 1;
            entry.next_seq = entry.next_seq.saturating_add(1);
            return None;
        }
        entry.add_sample(seq)
    }

    /// Returns whether a sample with this sequence number is expected. If so, neither this sample
    /// nor consecutive samples after it cause a finding.
    pub(crate) fn expects(&self, run_id: u64, source: u16, seq: u64) -> bool {
        let index = self.indexes.get(usize::from(source)).filter(|_| run_id == self.run_id);
        let entry = index.and_then(|index| self.sources.get(*index));
        entry.is_some_and(|(_, entry)| entry.expects(seq))
    }

    /// Counts a sample and the `more` samples that follow it with consecutive sequence numbers. The
    /// first sample must be expected (see [`expects`](Self::expects)), and the caller must already
    /// have added its source.
    pub(crate) fn add_samples(
        &mut self,
        run_id: u64,
        source: u16,
        first_seq: u64,
        more: u64,
    ) -> Option<SequenceFinding> {
        let finding = self.add_sample(run_id, source, first_seq);
        let entry = self.entry_mut(run_id, source)?;
        entry.recorded = entry.recorded.saturating_add(more);
        entry.next_seq = entry.next_seq.saturating_add(more);
        finding
    }

    /// Counts a gap. The caller must already have added the gap's source.
    pub fn add_gap(&mut self, run_id: u64, gap: &Gap) -> Option<SequenceFinding> {
        self.entry_mut(run_id, gap.source)?.add_gap(gap)
    }

    /// Returns the sum of the entries of earlier runs, which were too many to keep.
    pub(crate) fn earlier(&self) -> &SourceCompleteness {
        &self.earlier
    }

    /// Ends the check, and counts the samples that are missing before gaps at the end of a source.
    /// Returns the counts of the sources, sorted by run and source id.
    pub fn finish(mut self) -> Vec<((u64, u16), SourceCompleteness)> {
        self.sources.iter_mut().for_each(|(_, source)| source.finish());
        self.sources.sort_by_key(|(key, _)| *key);
        self.sources
    }
}

impl SourceCompleteness {
    /// Advances to the end of the gaps after which no sample was added.
    fn finish(&mut self) {
        if let Some(end) = self.waiting.iter().map(|gap| gap.end).max() {
            // The result is not needed, because the call itself counts the missing numbers.
            let _counted = self.advance_to(end);
        }
    }

    /// Counts a sample that does not have the next sequence number of its source, or that follows a
    /// waiting gap.
    fn add_sample(&mut self, seq: u64) -> Option<SequenceFinding> {
        if seq < self.next_seq {
            return Some(SequenceFinding::Repeated);
        }
        self.recorded += 1;
        let in_gap = self.waiting.iter().find(|gap| (gap.first..gap.end).contains(&seq)).copied();
        let finding = self.advance_to(seq);
        self.next_seq = seq.saturating_add(1);
        let Some(gap) = in_gap else { return finding };
        // The files contain the sample, so it is not counted as lost or thinned.
        let counted = if gap.is_thinned { &mut self.thinned } else { &mut self.lost };
        *counted = counted.saturating_sub(1);
        let next_seq = self.next_seq;
        self.waiting.retain_mut(|gap| {
            gap.first = gap.first.max(next_seq);
            gap.first < gap.end
        });
        Some(SequenceFinding::Repeated)
    }

    /// Counts those sequence numbers of a gap that were not counted before.
    fn add_gap(&mut self, gap: &Gap) -> Option<SequenceFinding> {
        let is_thinned = gap.is_thinned();
        let mut from = gap.first.max(self.next_seq);
        let end = gap.first.saturating_add(gap.count);
        let mut counted: u64 = 0;
        self.waiting.sort_unstable_by_key(|gap| gap.first);
        let waiting = self.waiting.len();
        for at in 0..=waiting {
            let next = self.waiting.get(at).copied().filter(|_| at < waiting);
            let to = next.map_or(end, |next| next.first.min(end));
            if from < to {
                counted += to - from;
                self.waiting.push(WaitingGap { first: from, end: to, is_thinned });
            }
            from = from.max(next.map_or(end, |next| next.end));
        }
        let sum = if is_thinned { &mut self.thinned } else { &mut self.lost };
        *sum = sum.saturating_add(counted);
        if !is_thinned && counted > 0 {
            self.causes |= gap.causes;
        }
        let mut finding = (counted < gap.count).then_some(SequenceFinding::Repeated);
        if self.waiting.len() > GAPS_WAITING_MAX {
            // There are very many gaps without samples. To limit the memory, advance to the end of
            // these gaps.
            let passed = self.waiting.iter().map(|gap| gap.end).max().unwrap_or(0);
            finding = finding.or(self.advance_to(passed));
        }
        finding
    }

    fn add(&mut self, other: &Self) {
        self.recorded = self.recorded.saturating_add(other.recorded);
        self.lost = self.lost.saturating_add(other.lost);
        self.thinned = self.thinned.saturating_add(other.thinned);
        self.removed = self.removed.saturating_add(other.removed);
        self.unexplained = self.unexplained.saturating_add(other.unexplained);
        self.causes |= other.causes;
    }

    /// Returns whether all sequence numbers below `seq`, and only these numbers, are recorded or
    /// explained.
    fn expects(&self, seq: u64) -> bool {
        seq >= self.next_seq && self.missing(seq) == 0 && self.waiting.iter().all(|gap| gap.end <= seq)
    }

    /// Counts the sequence numbers below `seq` that are neither recorded nor explained. `seq` must
    /// not be below `next_seq`.
    fn missing(&self, seq: u64) -> u64 {
        let mut missing = seq - self.next_seq;
        for gap in &self.waiting {
            let (from, to) = (gap.first.max(self.next_seq), gap.end.min(seq));
            missing = missing.saturating_sub(to.saturating_sub(from));
        }
        missing
    }

    /// Advances to `seq` over removed segments. Missing sequence numbers below `seq` are counted as
    /// removed.
    fn skip_to(&mut self, seq: u64) -> Option<SequenceFinding> {
        let missing = self.missing(seq.max(self.next_seq));
        self.removed = self.removed.saturating_add(missing);
        // This also counts the missing numbers as unexplained, which the next line corrects.
        let _counted = self.advance_to(seq.max(self.next_seq));
        self.unexplained = self.unexplained.saturating_sub(missing);
        None
    }

    /// Advances to `seq`. Sequence numbers below `seq` that are neither recorded nor explained are
    /// counted as unexplained, and their count is returned.
    fn advance_to(&mut self, seq: u64) -> Option<SequenceFinding> {
        if seq < self.next_seq {
            return Some(SequenceFinding::Repeated);
        }
        let missing = self.missing(seq);
        self.waiting.retain(|gap| gap.end > seq);
        self.next_seq = seq;
        self.unexplained = self.unexplained.saturating_add(missing);
        (missing > 0).then_some(SequenceFinding::Unexplained(missing))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::effort;
    use crate::testing::example;

    const RUN: u64 = 0x1234_5678_9abc_def0;

    fn gap(first: u64, count: u64) -> Gap {
        Gap { source: 0, first, count, causes: 1, after_mono_ns: 0, before_mono_ns: 0 }
    }

    fn started() -> CompletenessCheck {
        let mut check = CompletenessCheck::default();
        assert_eq!(check.begin_segment(&example()), []);
        check
    }

    fn ended(check: CompletenessCheck) -> SourceCompleteness {
        check.finish().into_iter().find(|((_, id), _)| *id == 0).unwrap().1
    }

    // Proves that no number is unexplained if samples and gaps cover all numbers.
    #[test]
    fn a_covered_run_is_complete() {
        let mut check = started();
        assert_eq!(check.add_sample(RUN, 0, 9), None);
        assert_eq!(check.add_gap(RUN, &gap(10, 5)), None);
        assert_eq!(check.add_sample(RUN, 0, 15), None);
        assert_eq!(check.add_gap(RUN, &gap(16, 2)), None);
        let source = ended(check);
        assert_eq!((source.recorded, source.lost, source.unexplained), (2, 7, 0));
    }

    // Proves that thinned samples are not counted as lost. Also proves that the samples of a gap
    // with an additional cause are counted as lost.
    #[test]
    fn thinned_samples_are_not_lost() {
        let thinned = crate::schema::segment::GapCause::Thinned.bits();
        let mut check = started();
        assert_eq!(check.add_gap(RUN, &Gap { causes: thinned, ..gap(9, 5) }), None);
        assert_eq!(check.add_gap(RUN, &gap(14, 2)), None);
        assert_eq!(check.add_gap(RUN, &Gap { causes: thinned | 1, ..gap(16, 3) }), None);
        assert_eq!(check.add_sample(RUN, 0, 19), None);
        let source = ended(check);
        let counts = (source.recorded, source.lost, source.thinned, source.unexplained, source.causes);
        assert_eq!(counts, (1, 5, 5, 0, thinned | 1));
    }

    // Proves that expected samples result in the same counts whether they are added together or one
    // by one. Cases: gaps before them that explain all missing numbers, some missing numbers, or
    // later numbers.
    #[test]
    fn expected_runs_count_as_their_samples() {
        let gaps = [vec![], vec![gap(9, 2)], vec![gap(9, 1), gap(10, 1)], vec![gap(10, 1)], vec![gap(12, 1)]];
        let mut expected = 0;
        for gaps in gaps {
            for first in [8, 9, 11, u64::MAX - 2] {
                let (mut by_run, mut by_sample) = (started(), started());
                for gap in &gaps {
                    assert_eq!((by_run.add_gap(RUN, gap), by_sample.add_gap(RUN, gap)), (None, None));
                }
                let finding = by_sample.add_sample(RUN, 0, first);
                let rest = [first + 1, first + 2].map(|seq| by_sample.add_sample(RUN, 0, seq));
                let is_clean = finding.is_none() && rest == [None, None];
                assert!(!by_run.expects(RUN, 0, first) || is_clean, "{gaps:?} {first}");
                if by_run.expects(RUN, 0, first) {
                    expected += 1;
                    assert_eq!(by_run.add_samples(RUN, 0, first, 2), None);
                    assert_eq!(ended(by_run), ended(by_sample), "{gaps:?} {first}");
                }
            }
        }
        assert_eq!(expected, 3, "9 alone, 11 after the gaps that end there");
    }

    // Proves that missing numbers, repeated numbers, and numbers in the wrong order are found.
    #[test]
    fn contradictions_are_found() {
        let mut check = started();
        assert_eq!(check.add_sample(RUN, 0, 11), Some(SequenceFinding::Unexplained(2)));
        assert_eq!(check.add_sample(RUN, 0, 11), Some(SequenceFinding::Repeated));
        assert_eq!(check.add_sample(RUN, 0, 10), Some(SequenceFinding::Repeated));
        assert_eq!(check.add_gap(RUN, &gap(3, 1)), Some(SequenceFinding::Repeated));
        assert_eq!(check.add_gap(RUN, &gap(12, 2)), None);
        assert_eq!(check.add_sample(RUN, 0, 16), Some(SequenceFinding::Unexplained(2)), "a gap too short");
        let mut next = example();
        next.sources[0].next_seq = 20;
        assert_eq!(
            check.begin_segment(&next),
            [(0, SequenceFinding::Unexplained(3))],
            "a segment is missing"
        );
        assert_eq!(ended(check).unexplained, 7);
    }

    // Proves that a header with lower sequence numbers than the previous segment is not treated as
    // a repetition of these numbers. Only a sample or a gap with these numbers is a repetition.
    // After a power failure, a removed segment may exist again with only its header.
    #[test]
    fn only_samples_and_gaps_repeat() {
        let mut check = started();
        for seq in 9..20 {
            assert_eq!(check.add_sample(RUN, 0, seq), None);
        }
        let mut returned = example();
        returned.sources[0].next_seq = 12;
        assert_eq!(check.begin_segment(&returned), []);
        let mut next = example();
        next.sources[0].next_seq = 20;
        assert_eq!(check.begin_segment(&next), []);
        assert_eq!(check.add_sample(RUN, 0, 20), None);
        assert_eq!(check.begin_segment(&returned), []);
        assert_eq!(check.add_sample(RUN, 0, 12), Some(SequenceFinding::Repeated));
        assert_eq!(check.add_gap(RUN, &gap(13, 1)), Some(SequenceFinding::Repeated));
        let source = ended(check);
        assert_eq!((source.recorded, source.lost, source.unexplained), (12, 0, 0), "each number once");
    }

    // Proves that missing numbers are a finding, except if retention has removed all segments with
    // these numbers.
    #[test]
    fn removed_segments_are_no_finding() {
        for (removed, unexplained) in [((8, 9), 0), ((8, 8), 11), ((6, 20), 0)] {
            let mut check = started();
            let number = example().segment;
            let mut list = RemovedSegments::default();
            list.add(RUN, number + removed.0 - 7, number + removed.1 - 7);
            check.add_removed(&list);
            assert_eq!(check.add_sample(RUN, 0, 9), None);
            let mut later = example();
            later.segment = number + 3;
            later.sources[0].next_seq = 21;
            assert_eq!(check.begin_segment(&later).is_empty(), unexplained == 0);
            assert_eq!(check.add_sample(RUN, 0, 22), Some(SequenceFinding::Unexplained(1)));
            let source = ended(check);
            let counts = (source.recorded, source.removed, source.unexplained);
            assert_eq!(counts, (2, 11 - unexplained, unexplained + 1));
        }
    }

    // Proves that a number counts exactly once if it is in two gaps, or if it is recorded and in a
    // gap. Cases: overlapping gaps of two segments, and a sample within a gap of another segment.
    #[test]
    fn overlapping_gaps_count_once() {
        let mut check = started();
        assert_eq!(check.add_gap(RUN, &gap(9, 5)), None);
        assert_eq!(check.begin_segment(&example()), []);
        assert_eq!(check.add_gap(RUN, &gap(9, 8)), Some(SequenceFinding::Repeated));
        assert_eq!(check.add_gap(RUN, &gap(20, 2)), None);
        assert_eq!(check.add_gap(RUN, &gap(15, 10)), Some(SequenceFinding::Repeated));
        assert_eq!(check.add_sample(RUN, 0, 12), Some(SequenceFinding::Repeated));
        assert_eq!(check.add_sample(RUN, 0, 25), None);
        let source = ended(check);
        assert_eq!((source.recorded, source.lost, source.unexplained), (2, 15, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::cases(300, 10_000)))]
        // Proves that each number counts exactly once, as recorded, lost or thinned. Method: all
        // numbers of a run are in random samples and gaps, and some gaps come before samples with
        // lower numbers. If a number occurs twice, the check reports the number and still counts it
        // once.
        #[test]
        fn each_number_counts_once(
            parts in prop::collection::vec((1..6_u64, 0..4_u8), 1..30),
            early in prop::collection::vec(any::<bool>(), 30),
            repeated in prop::option::of((any::<prop::sample::Index>(), 1..9_u64, any::<bool>())),
        ) {
            const FIRST: u64 = 9;
            let thinned = crate::schema::segment::GapCause::Thinned.bits();
            let mut frames: Vec<(u64, u64, u8)> = Vec::new(); // first, count, kind
            let mut next = FIRST;
            for ((count, kind), early) in parts.iter().zip(&early) {
                // A gap may come before the samples of its batch.
                let at = if *kind > 1 && *early && !frames.is_empty() { frames.len() - 1 } else { frames.len() };
                frames.insert(at, (next, *count, *kind));
                next += count;
            }
            let counts = |wanted: fn(u8) -> bool| {
                parts.iter().filter(|(_, kind)| wanted(*kind)).map(|(count, _)| count).sum::<u64>()
            };
            let again = repeated.map(|(at, count, is_gap)| {
                let (first, length, _) = *at.get(&frames);
                (at.index(frames.len()), (first, count.min(length), if is_gap { 2 } else { 0 }))
            });
            if let Some((at, frame)) = again {
                frames.insert(at + 1, frame);
            }
            let mut check = started();
            let mut findings = 0;
            for (first, count, kind) in frames {
                if kind < 2 {
                    let numbers = first..first + count;
                    findings += numbers.filter_map(|seq| check.add_sample(RUN, 0, seq)).count();
                } else {
                    let causes = if kind == 2 { 1 } else { thinned };
                    let gap = Gap { causes, ..gap(first, count) };
                    findings += usize::from(check.add_gap(RUN, &gap).is_some());
                }
            }
            let source = ended(check);
            let sum = source.recorded + source.lost + source.thinned + source.unexplained;
            prop_assert_eq!(sum, next - FIRST);
            prop_assert_eq!(findings > 0, repeated.is_some());
            if repeated.is_none() {
                let expected = (counts(|kind| kind < 2), counts(|kind| kind == 2), counts(|kind| kind == 3));
                prop_assert_eq!((source.recorded, source.lost, source.thinned), expected);
            }
        }
    }

    // Proves that the check keeps few entries and correct sums for very many runs, and that the
    // current run keeps its numbers.
    #[test]
    fn a_flood_of_runs_is_added_up() {
        let mut check = started();
        let runs = 3 * SOURCES_KEPT_MAX as u64;
        let mut header = example();
        header.sources.truncate(1);
        header.sources[0].next_seq = 9;
        let mut most = 0;
        for run in 0..runs {
            header.run_id = run + 1;
            assert_eq!(check.begin_segment(&header), []);
            assert_eq!(check.add_sample(header.run_id, 0, 9), None);
            assert_eq!(check.add_gap(header.run_id, &gap(12, 3)), None);
            most = most.max(check.sources.len());
        }
        assert!(most <= SOURCES_KEPT_MAX + header.sources.len(), "{most}");
        let (earlier, sources) = (check.earlier().clone(), check.finish());
        let sum = |count: fn(&SourceCompleteness) -> u64| {
            count(&earlier) + sources.iter().map(|(_, source)| count(source)).sum::<u64>()
        };
        assert_eq!(sum(|source| source.recorded), runs);
        assert_eq!(sum(|source| source.lost), 3 * runs);
        assert_eq!(sum(|source| source.unexplained), 2 * runs, "10 and 11 of each");
    }
}
