//! Processes that ended. For each process, the time between the two samples around its end is
//! known. The kernel also reports the time and the reason of the end.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::baseline::Baseline;
use super::measure::{Measure, ValueClass};
use super::score::use_score;
use super::table_shape::EXITS_MAX;

/// Signals that end a process in an orderly way: SIGHUP, SIGINT, SIGPIPE and SIGTERM. Any other
/// signal is evidence of an incident, whatever the process had used.
const ORDERLY_SIGNALS: [u64; 4] = [1, 2, 13, 15];
/// Signals by which the kernel or the process itself reports an error in the program: SIGILL,
/// SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV and SIGSYS.
const CRASH_SIGNALS: [u64; 7] = [4, 5, 6, 7, 8, 11, 31];
/// The score of a crash, and of the forced end of a process that had run for some time, in addition
/// to the score of the CPU time that is missing.
// Such an end is an event on its own, so this is the minimum score of an event.
const FORCED_SCORE: f64 = 1.5;
/// The score of the forced end of a process whose usual CPU time is not known.
// Programs force short-lived helpers to end, so this is less than the score of a clear cause.
const FORCED_UNKNOWN_SCORE: f64 = 0.5;
/// Minimum usual CPU time of a process that ended by itself, as a share of a core. The end of a
/// process that used less is no evidence.
const ENDED_CPU_MIN: f64 = 0.01;

/// The end of a process, as the kernel reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessEnd {
    pub(super) pid: u64,
    /// Start time of the process; `None` if no sample contains the process.
    pub(super) start: Option<u64>,
    /// Monotonic time of the end.
    pub(super) mono_ns: u64,
    pub(super) exit_code: Option<u64>,
    /// The signal that ended the process.
    pub(super) signal: Option<u64>,
}

impl ProcessEnd {
    /// Returns whether the process ended by itself, or by a signal that asks it to end.
    pub(super) fn is_orderly(&self) -> bool {
        self.signal.is_none_or(|signal| ORDERLY_SIGNALS.contains(&signal))
    }

    /// Returns the score of the end. `usual` is the usual CPU time of the process before the end,
    /// as a share of a core, if it is known. Returns `None` if the end is no evidence.
    pub(super) fn score(&self, usual: Option<f64>) -> Option<f64> {
        let time = Measure { class: ValueClass::TimeShare, ..Measure::STATE };
        let worked = use_score(usual.unwrap_or_default(), &Baseline::NOTHING, time);
        match self.signal {
            Some(signal) if CRASH_SIGNALS.contains(&signal) => Some(worked + FORCED_SCORE),
            // A limit of time may force short-lived processes to end.
            _ if !self.is_orderly() => {
                Some(worked + if usual.is_some() { FORCED_SCORE } else { FORCED_UNKNOWN_SCORE })
            }
            _ => Some(worked).filter(|_| usual.is_some_and(|usual| usual >= ENDED_CPU_MIN)),
        }
    }
}

/// The processes that ended in a run.
#[derive(Debug, Default)]
pub(super) struct ProcessExits {
    /// For each list of ended processes: the parent of each process, and the time between two
    /// samples in which the process ended. The samples of a list are in time order, so the times
    /// are also in order.
    lists: BTreeMap<usize, VecDeque<(Range<u64>, u64)>>,
    /// The ends that the kernel reported, in time order.
    ends: VecDeque<ProcessEnd>,
}

impl ProcessExits {
    /// Adds the parents of the processes that ended between two samples of a list.
    pub(super) fn add(&mut self, table: usize, span: &Range<u64>, parents: impl Iterator<Item = u64>) {
        self.lists.entry(table).or_default().extend(parents.map(|parent| (span.clone(), parent)));
    }

    /// Adds an end that the kernel reported.
    pub(super) fn add_end(&mut self, end: ProcessEnd) {
        if self.ends.len() == EXITS_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back(end);
    }

    /// Returns the reported ends in a range of time.
    pub(super) fn ends(&self, span: &Range<u64>) -> impl Iterator<Item = &ProcessEnd> {
        self.ends.iter().filter(|end| span.contains(&end.mono_ns))
    }

    /// Removes the earliest exits of a list until the number of exits is within the limit.
    pub(super) fn limit(&mut self, table: usize) {
        if let Some(own) = self.lists.get_mut(&table) {
            own.drain(..own.len().saturating_sub(EXITS_MAX));
        }
    }

    /// Returns the parents of the processes that may have ended in a range of time.
    pub(super) fn within(&self, span: &Range<u64>) -> impl Iterator<Item = u64> {
        self.lists.values().flat_map(|own| {
            // The starts and the ends of the ranges both rise, so two binary searches find all
            // ranges that overlap `span`.
            let first = own.partition_point(|(exit, _)| exit.end <= span.start);
            let end = own.partition_point(|(exit, _)| exit.start < span.end);
            own.range(first.min(end)..end).map(|(_, parent)| *parent)
        })
    }

    /// Removes all exits, because another run begins.
    pub(super) fn clear(&mut self) {
        self.lists.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIGKILL: Option<u64> = Some(9);
    const SIGSEGV: Option<u64> = Some(11);
    const SIGTERM: Option<u64> = Some(15);

    // Proves that a crash is an event on its own, and that the end of an idle process is none. A
    // killed process scores by its usual CPU time.
    #[test]
    fn the_score_of_an_end_depends_on_its_signal() {
        let score = |signal, usual| {
            ProcessEnd { pid: 7, start: None, mono_ns: 0, exit_code: None, signal }.score(usual)
        };
        assert_eq!(
            (score(SIGSEGV, None), score(SIGKILL, Some(0.0))),
            (Some(FORCED_SCORE), Some(FORCED_SCORE))
        );
        assert_eq!(score(SIGKILL, None), Some(FORCED_UNKNOWN_SCORE));
        assert!(score(SIGKILL, Some(0.4)) > score(SIGKILL, Some(0.1)));
        assert_eq!((score(None, None), score(SIGTERM, Some(0.001))), (None, None));
        assert!(score(None, Some(0.5)) > Some(0.0) && score(None, Some(0.5)) == score(SIGTERM, Some(0.5)));
    }

    proptest! {
        // Proves that exactly the exits whose time overlaps the given time are found, in all lists.
        // The result is compared with a linear search over all exits.
        #[test]
        fn exits_are_found_by_their_time(
            lists in prop::collection::vec(prop::collection::vec((1..9_u64, 0..3_u64), 0..20), 1..4),
            (start, length) in (0..80_u64, 0..30_u64),
        ) {
            let span = start..start + length;
            let (mut exits, mut expected) = (ProcessExits::default(), Vec::new());
            for (table, samples) in lists.iter().enumerate() {
                let mut before = 0;
                for (number, (distance, count)) in samples.iter().enumerate() {
                    let own = before..before + distance;
                    let parents = (0..*count).map(|one| 100 * table as u64 + 10 * number as u64 + one);
                    exits.add(table, &own, parents.clone());
                    if own.start < span.end && own.end > span.start {
                        expected.extend(parents);
                    }
                    before = own.end;
                }
                exits.limit(table);
            }
            prop_assert_eq!(exits.within(&span).collect::<Vec<_>>(), expected);
        }
    }
}
