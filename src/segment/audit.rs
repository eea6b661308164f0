//! The proof of completeness: for each source and run, recorded + lost = sampled, every hole named.
//!
//! Fed with headers, samples and gaps in file order, over any number of segments, run by run. Keeps one entry a source and
//! run, of the latest runs, and the gaps that no sample has passed yet.

use std::collections::HashMap;

use super::control::Gap;
use super::header::{Header, SourceInfo};

/// Most gaps that may wait for the sample behind them. The recorder writes one gap a jump, so one waits.
const GAPS_WAITING_MAX: usize = 1024;

/// Most entries that are kept when a header comes; of more, those of the earliest runs are added up to one. A hostile file may have a header
/// of another run every few hundred bytes.
const SOURCES_KEPT_MAX: usize = 1 << 16;

/// What was seen of one source in one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceAudit {
    /// The source's name.
    pub name: String,
    /// Telemetry frames.
    pub recorded: u64,
    /// Readings in Gap frames.
    pub lost: u64,
    /// Why, as a set of bits (`GapCause` in schemas/segment.fbs).
    pub causes: u32,
    /// Readings that are neither recorded nor in a Gap frame.
    pub unexplained: u64,
    next_seq: u64,
    waiting: Vec<(u64, u64)>, // first, behind the last; of gaps at or above next_seq
}

/// Something that contradicts the order of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// Numbers that were passed already: repeated or out of order.
    Repeated,
    /// Numbers that are neither recorded nor explained; how many.
    Hole(u64),
}

/// The audit of all runs and sources.
#[derive(Debug, Default)]
pub struct Audit {
    sources: Vec<((u64, u16), SourceAudit)>, // in the order in which they came
    by_key: HashMap<(u64, u16), usize>,      // places in `sources`
    earlier: SourceAudit,                    // the sum of those that are not kept
    run_id: u64,                             // of the last header
    places: Vec<usize>, // in `sources`, by the ids of that run; MISSING where there is none
}

const MISSING: usize = usize::MAX;

impl Audit {
    /// A segment begins. Returns how many readings of which source are missing before it.
    pub fn header(&mut self, header: &Header) -> Vec<(u16, Finding)> {
        self.run_id = header.run_id;
        if self.sources.len() > SOURCES_KEPT_MAX {
            self.add_up_earlier();
        }
        self.places.clear();
        let sources = header.sources.iter();
        sources.filter_map(|source| Some((source.id, self.source(header.run_id, source)?))).collect()
    }

    /// A source is described. Returns how many of its readings are missing before that.
    pub fn source(&mut self, run_id: u64, source: &SourceInfo) -> Option<Finding> {
        let sources = &mut self.sources;
        let place = *self.by_key.entry((run_id, source.id)).or_insert_with_key(|key| {
            let audit = SourceAudit {
                name: source.name.clone(),
                next_seq: source.next_seq,
                ..SourceAudit::default()
            };
            sources.push((*key, audit));
            sources.len() - 1
        });
        let id = usize::from(source.id);
        if self.places.len() <= id {
            self.places.resize(id + 1, MISSING);
        }
        if let Some(at) = self.places.get_mut(id) {
            *at = place;
        }
        self.sources.get_mut(place)?.1.reach(source.next_seq)
    }

    /// Adds up the earlier half of the entries, but for those of the run that goes on.
    fn add_up_earlier(&mut self) {
        let half = self.sources.len() / 2;
        let (run_id, mut place) = (self.run_id, 0);
        let earlier = &mut self.earlier;
        self.sources.retain_mut(|((run, _), source)| {
            place += 1;
            let is_kept = place > half || *run == run_id;
            if !is_kept {
                source.finish();
                earlier.add(source);
            }
            is_kept
        });
        self.by_key = self.sources.iter().enumerate().map(|(place, (key, _))| (*key, place)).collect();
    }

    /// The audit of a source of the run whose header came last.
    #[inline]
    fn audit(&mut self, run_id: u64, source: u16) -> Option<&mut SourceAudit> {
        let place = *self.places.get(usize::from(source)).filter(|_| run_id == self.run_id)?;
        self.sources.get_mut(place).map(|(_, audit)| audit)
    }

    /// A sample. Its source is in a header that was given before.
    pub fn sample(&mut self, run_id: u64, source: u16, seq: u64) -> Option<Finding> {
        let audit = self.audit(run_id, source)?;
        audit.recorded += 1;
        if seq == audit.next_seq && audit.waiting.is_empty() {
            audit.next_seq = audit.next_seq.saturating_add(1);
            return None;
        }
        let finding = audit.reach(seq);
        audit.next_seq = audit.next_seq.max(seq.saturating_add(1));
        finding
    }

    /// Whether a sample with this number has no finding, and none behind it if the numbers go on by one.
    pub fn expects(&self, run_id: u64, source: u16, seq: u64) -> bool {
        let place = self.places.get(usize::from(source)).filter(|_| run_id == self.run_id);
        let audit = place.and_then(|place| self.sources.get(*place));
        audit.is_some_and(|(_, audit)| audit.expects(seq))
    }

    /// Samples whose numbers go on by one, `more` of them behind the first, which is expected. Their source is in a header
    /// that was given before.
    pub fn samples(&mut self, run_id: u64, source: u16, first_seq: u64, more: u64) -> Option<Finding> {
        let finding = self.sample(run_id, source, first_seq);
        let audit = self.audit(run_id, source)?;
        audit.recorded = audit.recorded.saturating_add(more);
        audit.next_seq = audit.next_seq.saturating_add(more);
        finding
    }

    /// A gap. Its source is in a header that was given before.
    pub fn gap(&mut self, run_id: u64, gap: &Gap) -> Option<Finding> {
        let audit = self.audit(run_id, gap.source)?;
        audit.lost = audit.lost.saturating_add(gap.count);
        audit.causes |= gap.causes;
        if gap.first < audit.next_seq {
            return Some(Finding::Repeated);
        }
        if audit.waiting.len() == GAPS_WAITING_MAX {
            // A flood of gaps that nothing follows: the oldest count as passed.
            let behind = audit.waiting.iter().map(|(_, behind)| *behind).max().unwrap_or(0);
            return audit.reach(behind.max(gap.first));
        }
        audit.waiting.push((gap.first, gap.first + gap.count));
        None
    }

    /// The sum of sources of earlier runs that were too many to be kept one by one.
    pub fn earlier(&self) -> &SourceAudit {
        &self.earlier
    }

    /// The sources by run and id. Gaps at the end of a run count as passed.
    pub fn finish(mut self) -> Vec<((u64, u16), SourceAudit)> {
        self.sources.iter_mut().for_each(|(_, source)| source.finish());
        self.sources.sort_by_key(|(key, _)| *key);
        self.sources
    }
}

impl SourceAudit {
    /// Gaps that nothing follows count as passed.
    fn finish(&mut self) {
        if let Some(behind) = self.waiting.iter().map(|(_, behind)| *behind).max() {
            // A hole here is counted by the audit itself.
            let _counted = self.reach(behind);
        }
    }

    fn add(&mut self, other: &Self) {
        self.recorded = self.recorded.saturating_add(other.recorded);
        self.lost = self.lost.saturating_add(other.lost);
        self.unexplained = self.unexplained.saturating_add(other.unexplained);
        self.causes |= other.causes;
    }

    /// Whether everything below `seq` is recorded or explained, and nothing from there on.
    fn expects(&self, seq: u64) -> bool {
        seq >= self.next_seq
            && self.missing(seq) == 0
            && self.waiting.iter().all(|(_, behind)| *behind <= seq)
    }

    /// How many numbers below `seq`, which was not passed yet, are neither recorded nor explained.
    fn missing(&self, seq: u64) -> u64 {
        let mut missing = seq - self.next_seq;
        for (first, behind) in &self.waiting {
            let (from, to) = ((*first).max(self.next_seq), (*behind).min(seq));
            missing = missing.saturating_sub(to.saturating_sub(from));
        }
        missing
    }

    /// Everything below `seq` must be recorded or explained by now.
    fn reach(&mut self, seq: u64) -> Option<Finding> {
        if seq < self.next_seq {
            return Some(Finding::Repeated);
        }
        let missing = self.missing(seq);
        self.waiting.retain(|(_, behind)| *behind > seq);
        self.next_seq = seq;
        self.unexplained = self.unexplained.saturating_add(missing);
        (missing > 0).then_some(Finding::Hole(missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::header::tests::example;

    const RUN: u64 = 0x1234_5678_9abc_def0;

    fn gap(first: u64, count: u64) -> Gap {
        Gap { source: 0, first, count, causes: 1, after_mono_ns: 0, before_mono_ns: 0 }
    }

    fn started() -> Audit {
        let mut audit = Audit::default();
        assert_eq!(audit.header(&example()), []);
        audit
    }

    fn ended(audit: Audit) -> SourceAudit {
        audit.finish().into_iter().find(|((_, id), _)| *id == 0).unwrap().1
    }

    // Goal: samples and gaps that cover the numbers leave nothing unexplained. Method: a run by hand, from 9 on.
    #[test]
    fn a_covered_run_is_complete() {
        let mut audit = started();
        assert_eq!(audit.sample(RUN, 0, 9), None);
        assert_eq!(audit.gap(RUN, &gap(10, 5)), None);
        assert_eq!(audit.sample(RUN, 0, 15), None);
        assert_eq!(audit.gap(RUN, &gap(16, 2)), None);
        let source = ended(audit);
        assert_eq!((source.recorded, source.lost, source.unexplained), (2, 7, 0));
    }

    // Goal: samples that are expected count as one by one. Method: runs from several places on, behind gaps that explain what
    // is missing, too little of it, or what comes later.
    #[test]
    fn expected_runs_count_as_their_samples() {
        let gaps = [vec![], vec![gap(9, 2)], vec![gap(9, 1), gap(10, 1)], vec![gap(10, 1)], vec![gap(12, 1)]];
        let mut expected = 0;
        for gaps in gaps {
            for first in [8, 9, 11, u64::MAX - 2] {
                let (mut by_run, mut by_sample) = (started(), started());
                for gap in &gaps {
                    assert_eq!((by_run.gap(RUN, gap), by_sample.gap(RUN, gap)), (None, None));
                }
                let finding = by_sample.sample(RUN, 0, first);
                let rest = [first + 1, first + 2].map(|seq| by_sample.sample(RUN, 0, seq));
                let is_clean = finding.is_none() && rest == [None, None];
                assert!(!by_run.expects(RUN, 0, first) || is_clean, "{gaps:?} {first}");
                if by_run.expects(RUN, 0, first) {
                    expected += 1;
                    assert_eq!(by_run.samples(RUN, 0, first, 2), None);
                    assert_eq!(ended(by_run), ended(by_sample), "{gaps:?} {first}");
                }
            }
        }
        assert_eq!(expected, 3, "9 alone, 11 behind the gaps that end there");
    }

    // Goal: holes, repeats and disorder are found. Method: one of each.
    #[test]
    fn contradictions_are_found() {
        let mut audit = started();
        assert_eq!(audit.sample(RUN, 0, 11), Some(Finding::Hole(2)));
        assert_eq!(audit.sample(RUN, 0, 11), Some(Finding::Repeated));
        assert_eq!(audit.sample(RUN, 0, 10), Some(Finding::Repeated));
        assert_eq!(audit.gap(RUN, &gap(3, 1)), Some(Finding::Repeated));
        assert_eq!(audit.gap(RUN, &gap(12, 2)), None);
        assert_eq!(audit.sample(RUN, 0, 16), Some(Finding::Hole(2)), "a gap too short");
        let mut next = example();
        next.sources[0].next_seq = 20;
        assert_eq!(audit.header(&next), [(0, Finding::Hole(3))], "a segment is missing");
        assert_eq!(ended(audit).unexplained, 7);
    }

    // Goal: of a flood of runs the sums are right and few entries are kept; the run that goes on keeps its numbers. Method: three times as many runs as
    // are kept, each with a sample, a gap and a hole, and one run whose segments come in between.
    #[test]
    fn a_flood_of_runs_is_added_up() {
        let mut audit = started();
        let runs = 3 * SOURCES_KEPT_MAX as u64;
        let mut header = example();
        header.sources.truncate(1);
        header.sources[0].next_seq = 9;
        let mut most = 0;
        for run in 0..runs {
            header.run_id = run + 1;
            assert_eq!(audit.header(&header), []);
            assert_eq!(audit.sample(header.run_id, 0, 9), None);
            assert_eq!(audit.gap(header.run_id, &gap(12, 3)), None);
            most = most.max(audit.sources.len());
        }
        assert!(most <= SOURCES_KEPT_MAX + header.sources.len(), "{most}");
        let (earlier, sources) = (audit.earlier().clone(), audit.finish());
        let sum = |count: fn(&SourceAudit) -> u64| {
            count(&earlier) + sources.iter().map(|(_, source)| count(source)).sum::<u64>()
        };
        assert_eq!(sum(|source| source.recorded), runs);
        assert_eq!(sum(|source| source.lost), 3 * runs);
        assert_eq!(sum(|source| source.unexplained), 2 * runs, "10 and 11 of each");
    }
}
