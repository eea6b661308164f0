//! The proof of completeness: for each source and run, recorded + lost = sampled, every hole named.
//!
//! Fed with headers, samples and gaps in file order, over any number of segments. Keeps one entry a source and the
//! gaps that no sample has passed yet.

use super::control::Gap;
use super::header::{Header, SourceInfo};

/// Most gaps that may wait for the sample behind them. The recorder writes one gap a jump, so one waits.
const GAPS_WAITING_MAX: usize = 1024;

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
    sources: Vec<((u64, u16), SourceAudit)>,
    run_id: u64,        // of the last header
    places: Vec<usize>, // in `sources`, by the ids of that run; MISSING where there is none
}

const MISSING: usize = usize::MAX;

impl Audit {
    /// A segment begins. Returns how many readings of which source are missing before it.
    pub fn header(&mut self, header: &Header) -> Vec<(u16, Finding)> {
        self.run_id = header.run_id;
        self.places.clear();
        let sources = header.sources.iter();
        sources.filter_map(|source| Some((source.id, self.source(header.run_id, source)?))).collect()
    }

    /// A source is described. Returns how many of its readings are missing before that.
    pub fn source(&mut self, run_id: u64, source: &SourceInfo) -> Option<Finding> {
        let key = (run_id, source.id);
        let place = self.sources.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            let audit = SourceAudit {
                name: source.name.clone(),
                next_seq: source.next_seq,
                ..SourceAudit::default()
            };
            self.sources.push((key, audit));
            self.sources.len() - 1
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

    /// All sources by run and id. Gaps at the end of a run count as passed.
    pub fn finish(mut self) -> Vec<((u64, u16), SourceAudit)> {
        for (_, audit) in &mut self.sources {
            let behind = audit.waiting.iter().map(|(_, behind)| *behind).max();
            if let Some(behind) = behind {
                // A hole here is counted by the audit itself.
                let _counted = audit.reach(behind);
            }
        }
        self.sources.sort_by_key(|(key, _)| *key);
        self.sources
    }
}

impl SourceAudit {
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
}
