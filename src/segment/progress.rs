//! How far each source has got in a segment, and what is missing.

use std::collections::BTreeMap;

use super::control::Gap;
use super::header::Header;
use super::kind::Telemetry;
use super::reader::SegmentReader;
use crate::schema::segment::GapCause;

/// Most gaps of a source that may wait for what comes in front of them. A recorder writes those of one batch together.
const GAPS_WAITING_MAX: usize = 4096;

/// How far each source has got.
#[derive(Debug, Default, Clone)]
pub(super) struct Progress {
    sources: BTreeMap<u16, SourceProgress>,
    described: usize, // of the header's sources, so many are among them
    latest_mono_ns: u64,
}

#[derive(Debug, Default, Clone)]
struct SourceProgress {
    next: u64,
    last_mono_ns: u64,
    /// Numbers that are known to be lost, from `next` on: first, behind the last. A gap stands in front of its batch, so it may
    /// come before samples with lower numbers.
    lost: Vec<(u64, u64)>,
}

/// What a sample is to those before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Taken {
    /// Its number was passed before, or counts as lost.
    Known,
    /// It is new. What is missing in front of it.
    New(Vec<Gap>),
}

impl Progress {
    pub(super) fn of(reader: &SegmentReader) -> Self {
        let latest_mono_ns = reader.header().clocks.mono_ns;
        let mut progress = Self { latest_mono_ns, ..Self::default() };
        progress.describe(reader.header());
        progress
    }

    /// Sources that have come since begin where their descriptors say.
    pub(super) fn describe(&mut self, header: &Header) {
        for source in header.sources.iter().skip(self.described) {
            let begun = SourceProgress { next: source.next_seq, ..SourceProgress::default() };
            self.sources.entry(source.id).or_insert(begun);
        }
        self.described = header.sources.len();
    }

    /// Takes a sample in; a gap in front of it has this cause.
    pub(super) fn sample(&mut self, sample: &Telemetry<'_>, cause: GapCause) -> Taken {
        let source = self.sources.entry(sample.source).or_default();
        if sample.seq < source.next || source.counts_as_lost(sample.seq) {
            return Taken::Known;
        }
        let gaps = source.pass(sample.source, sample.seq, cause, sample.mono_ns);
        (source.next, source.last_mono_ns) = (sample.seq.saturating_add(1), sample.mono_ns);
        self.latest_mono_ns = self.latest_mono_ns.max(sample.mono_ns);
        Taken::New(gaps)
    }

    /// Takes a gap in. Says whether it is new.
    pub(super) fn gap(&mut self, gap: &Gap) -> bool {
        let source = self.sources.entry(gap.source).or_default();
        let end = gap.first.saturating_add(gap.count);
        let is_new = gap.first >= source.next
            && source.lost.iter().all(|(first, behind)| end <= *first || gap.first >= *behind);
        if is_new && source.lost.len() < GAPS_WAITING_MAX {
            source.lost.push((gap.first, end));
        } else if is_new {
            // A flood of gaps that nothing follows: what is in front counts as passed.
            source.next = end;
        }
        is_new
    }

    /// Gaps for what was begun and has not come: numbers below `begun`, and those in front of known losses.
    pub(super) fn missing(&mut self, id: u16, begun: u64) -> Vec<Gap> {
        let latest_mono_ns = self.latest_mono_ns;
        let Some(source) = self.sources.get_mut(&id) else { return Vec::new() };
        let end = source.lost.iter().map(|(_, behind)| *behind).max().unwrap_or(0).max(begun);
        if end <= source.next {
            return Vec::new();
        }
        source.pass(id, end, GapCause::Crash, latest_mono_ns)
    }

    /// The sources there are.
    pub(super) fn sources(&self) -> Vec<u16> {
        self.sources.keys().copied().collect()
    }
}

impl SourceProgress {
    fn counts_as_lost(&self, seq: u64) -> bool {
        self.lost.iter().any(|(first, behind)| (*first..*behind).contains(&seq))
    }

    /// Goes on to `end`. Gaps for what is on the way and not known to be lost.
    fn pass(&mut self, source: u16, end: u64, cause: GapCause, before_mono_ns: u64) -> Vec<Gap> {
        let mut gaps = Vec::new();
        if end == self.next {
            return gaps;
        }
        self.lost.sort_unstable();
        let mut from = self.next;
        let on_the_way = self.lost.iter().copied().filter(|(first, _)| *first < end);
        for (first, behind) in on_the_way.chain([(end, end)]) {
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
            from = from.max(behind);
        }
        self.lost.retain(|(_, behind)| *behind > end);
        self.next = end;
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seq: u64) -> Telemetry<'static> {
        let mono_ns = 100 + seq;
        Telemetry { source: 1, seq, mono_ns, wall_ns: 0, flags: 0, duration_ns: 0, payload: &[] }
    }

    fn ranges(gaps: &[Gap]) -> Vec<(u64, u64)> {
        gaps.iter().map(|gap| (gap.first, gap.count)).collect()
    }

    fn taken(progress: &mut Progress, seq: u64) -> Vec<(u64, u64)> {
        match progress.sample(&sample(seq), GapCause::Crash) {
            Taken::New(gaps) => ranges(&gaps),
            Taken::Known => panic!("{seq} is new"),
        }
    }

    // Goal: each number counts once, and what is missing has its size and its bounds. Method: jumps, repeats, a gap.
    #[test]
    fn what_is_missing_is_known() {
        let mut progress = Progress::default();
        assert_eq!(taken(&mut progress, 0), []);
        assert_eq!(progress.sample(&sample(0), GapCause::Crash), Taken::Known);
        let Taken::New(gaps) = progress.sample(&sample(5), GapCause::Crash) else { panic!("a jump") };
        let gap = gaps[0];
        assert_eq!((gap.first, gap.count, gap.causes), (1, 4, GapCause::Crash.bits()));
        assert_eq!((gap.after_mono_ns, gap.before_mono_ns), (100, 105));
        let known = Gap { first: 6, count: 4, ..gap };
        assert!(progress.gap(&known) && !progress.gap(&known));
        assert_eq!(progress.sample(&sample(7), GapCause::Crash), Taken::Known, "it counts as lost");
        assert_eq!(taken(&mut progress, 10), []);
        assert_eq!(progress.missing(1, 11), []);
        assert_eq!(ranges(&progress.missing(1, 13)), [(11, 2)]);
        assert_eq!(progress.missing(1, 13), [], "said once");
        assert_eq!(progress.missing(2, 13), [], "no such source");
    }

    // Goal: gaps that stand in front of samples with lower numbers hide none of these. Method: two gaps, then samples
    // between them, then an end.
    #[test]
    fn gaps_may_come_first() {
        let mut progress = Progress::default();
        let gap =
            |first, count| Gap { source: 1, first, count, causes: 1, after_mono_ns: 0, before_mono_ns: 0 };
        assert!(progress.gap(&gap(2, 3)) && progress.gap(&gap(10, 5)));
        assert_eq!(taken(&mut progress, 0), []);
        assert_eq!(taken(&mut progress, 6), [(1, 1), (5, 1)]);
        assert_eq!(ranges(&progress.missing(1, 0)), [(7, 3)], "what is in front of a known loss was begun");
        assert_eq!(progress.missing(1, 15), []);
    }
}
