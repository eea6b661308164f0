//! How far each source has got in a segment, and what is missing.

use std::collections::BTreeMap;

use super::control::Gap;
use super::kind::Telemetry;
use super::reader::SegmentReader;
use crate::schema::segment::GapCause;

/// How far each source has got.
#[derive(Debug, Default, Clone)]
pub(super) struct Progress {
    sources: BTreeMap<u16, (u64, u64)>, // next number, begin of the last reading
    latest_mono_ns: u64,
}

/// What a sample is to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Its number was passed before.
    Known,
    /// It is new. What is missing in front of it.
    New(Option<Gap>),
}

impl Progress {
    pub(super) fn of(reader: &SegmentReader) -> Self {
        let sources = reader.header().sources.iter().map(|source| (source.id, (source.next_seq, 0)));
        Self { sources: sources.collect(), latest_mono_ns: reader.header().clocks.mono_ns }
    }

    /// Takes a sample in; a gap in front of it has these causes.
    pub(super) fn sample(&mut self, sample: &Telemetry<'_>, causes: GapCause) -> Taken {
        let (next, last_mono_ns) = self.sources.entry(sample.source).or_default();
        if sample.seq < *next {
            return Taken::Known;
        }
        let gap = (sample.seq > *next).then(|| Gap {
            source: sample.source,
            first: *next,
            count: sample.seq - *next,
            causes: causes.bits(),
            after_mono_ns: *last_mono_ns,
            before_mono_ns: sample.mono_ns,
        });
        (*next, *last_mono_ns) = (sample.seq.saturating_add(1), sample.mono_ns);
        self.latest_mono_ns = self.latest_mono_ns.max(sample.mono_ns);
        Taken::New(gap)
    }

    /// Takes a gap in. Says whether it is new.
    pub(super) fn gap(&mut self, gap: &Gap) -> bool {
        let (next, _) = self.sources.entry(gap.source).or_default();
        let is_new = gap.first >= *next;
        *next = (*next).max(gap.first.saturating_add(gap.count));
        is_new
    }

    /// A gap for what was begun and has not come.
    pub(super) fn missing(&mut self, source: u16, begun: u64) -> Option<Gap> {
        let latest_mono_ns = self.latest_mono_ns;
        let (next, last_mono_ns) = self.sources.get_mut(&source)?;
        let gap = (begun > *next).then(|| Gap {
            source,
            first: *next,
            count: begun - *next,
            causes: GapCause::Crash.bits(),
            after_mono_ns: *last_mono_ns,
            before_mono_ns: latest_mono_ns,
        });
        *next = (*next).max(begun);
        gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seq: u64) -> Telemetry<'static> {
        let mono_ns = 100 + seq;
        Telemetry { source: 1, seq, mono_ns, wall_ns: 0, flags: 0, duration_ns: 0, payload: &[] }
    }

    // Goal: each number counts once, and what is missing has its size and its bounds. Method: jumps, repeats, a gap.
    #[test]
    fn what_is_missing_is_known() {
        let mut progress = Progress::default();
        assert_eq!(progress.sample(&sample(0), GapCause::Crash), Taken::New(None));
        assert_eq!(progress.sample(&sample(0), GapCause::Crash), Taken::Known);
        let Taken::New(Some(gap)) = progress.sample(&sample(5), GapCause::Crash) else { panic!("a jump") };
        assert_eq!((gap.first, gap.count, gap.causes), (1, 4, GapCause::Crash.bits()));
        assert_eq!((gap.after_mono_ns, gap.before_mono_ns), (100, 105));
        let known = Gap { first: 6, count: 4, ..gap };
        assert!(progress.gap(&known) && !progress.gap(&known));
        assert_eq!(progress.sample(&sample(10), GapCause::Crash), Taken::New(None));
        assert_eq!(progress.missing(1, 11), None);
        let missing = progress.missing(1, 13).unwrap();
        assert_eq!((missing.first, missing.count, missing.before_mono_ns), (11, 2, 110));
        assert_eq!(progress.missing(1, 13), None, "said once");
        assert_eq!(progress.missing(2, 13), None, "no such source");
    }
}
