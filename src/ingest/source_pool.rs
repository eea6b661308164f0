//! The pushed sources of a run that no lane uses now: the next lane of the same source continues
//! one, so that threads and processes that come and go do not use up the ids of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::source_setup::SourceSetup;
use crate::metrics::SourceMetrics;

/// Processes of the same source that are told apart by a label. All further ones of the run share
/// sources without it: a program that ends and starts again all the time must not use up the ids.
const PROCESSES_MAX: usize = 32;
/// A lane continues the source of another one only if its clock cannot be behind the other's last
/// sample: as far ahead as a sample may be.
const PAUSE_MIN_NS: u64 = 1_000_000;

/// A pushed source of the recording.
#[derive(Debug)]
pub(super) struct PushedSource {
    pub(super) id: u16,
    pub(super) counters: Arc<SourceMetrics>,
    /// The process that it belongs to; none if it belongs to several.
    pub(super) process: Option<i32>,
    /// Number of the next sample.
    pub(super) next_seq: u64,
    /// Begin of the last sample, in monotonic nanoseconds.
    pub(super) last_mono_ns: u64,
}

/// The sources that no lane uses.
#[derive(Debug, Default)]
pub(super) struct SourcePool {
    known: BTreeMap<Arc<SourceSetup>, SourceHistory>,
}

#[derive(Debug, Default)]
struct SourceHistory {
    processes: BTreeSet<i32>,
    free: Vec<PushedSource>,
}

impl SourcePool {
    /// Returns the process that a source of this process is said to belong to.
    pub(super) fn process_label(&self, setup: &SourceSetup, process: Option<i32>) -> Option<i32> {
        let processes = self.known.get(setup).map(|known| &known.processes);
        let has_place =
            |process: &i32| processes.is_none_or(|all| all.contains(process) || all.len() < PROCESSES_MAX);
        process.filter(has_place)
    }

    /// Takes a source that an earlier lane has used; `process` is that of its label.
    pub(super) fn take(
        &mut self,
        setup: &SourceSetup,
        process: Option<i32>,
        now_ns: u64,
    ) -> Option<PushedSource> {
        let free = &mut self.known.get_mut(setup)?.free;
        let is_fit = |source: &PushedSource| {
            source.process == process && source.last_mono_ns.saturating_add(PAUSE_MIN_NS) < now_ns
        };
        free.iter().position(is_fit).map(|index| free.swap_remove(index))
    }

    /// Notes that the run has a new source.
    pub(super) fn note_added(&mut self, setup: &Arc<SourceSetup>, process: Option<i32>) {
        self.known.entry(Arc::clone(setup)).or_default().processes.extend(process);
    }

    /// Takes back the source of a lane that has ended.
    pub(super) fn give_back(&mut self, setup: Arc<SourceSetup>, source: PushedSource) {
        self.known.entry(setup).or_default().free.push(source);
    }
}

#[cfg(test)]
mod tests {
    use super::super::source_setup::tests::setup;
    use super::*;

    fn source(id: u16, process: Option<i32>) -> PushedSource {
        let counters = Arc::new(SourceMetrics::pushed("orders".to_owned(), 0));
        PushedSource { id, counters, process, next_seq: 5, last_mono_ns: 1000 }
    }

    // Proves that a source is continued by the same process alone, with the same user, name and
    // labels, and not before its last sample is over.
    #[test]
    fn a_source_is_continued() {
        let mut pool = SourcePool::default();
        let orders = Arc::new(setup(7, "orders", &[]));
        pool.note_added(&orders, Some(1));
        pool.give_back(Arc::clone(&orders), source(3, Some(1)));
        let later_ns = 1000 + PAUSE_MIN_NS + 1;
        for (other, process, now_ns) in [
            (setup(8, "orders", &[]), Some(1), later_ns),
            (setup(7, "trades", &[]), Some(1), later_ns),
            (setup(7, "orders", &[("team", "a")]), Some(1), later_ns),
            (setup(7, "orders", &[]), Some(2), later_ns),
            (setup(7, "orders", &[]), Some(1), later_ns - 1),
        ] {
            assert!(pool.take(&other, process, now_ns).is_none(), "{other:?} {process:?}");
        }
        let found = pool.take(&setup(7, "orders", &[]), Some(1), later_ns).unwrap();
        assert_eq!((found.id, found.next_seq), (3, 5));
        assert!(pool.take(&orders, Some(1), later_ns).is_none(), "it is in use");
    }

    // Proves that a program that starts again and again uses up a bounded number of sources.
    #[test]
    fn processes_share_sources_in_the_end() {
        let mut pool = SourcePool::default();
        let orders = Arc::new(setup(7, "orders", &[]));
        let mut ids = 0;
        for process in 1..1000 {
            let label = pool.process_label(&orders, Some(process));
            let source = pool.take(&orders, label, u64::MAX).unwrap_or_else(|| {
                ids += 1;
                pool.note_added(&orders, label);
                source(ids, label)
            });
            pool.give_back(Arc::clone(&orders), source);
        }
        assert_eq!(usize::from(ids), PROCESSES_MAX + 1);
        assert_eq!(pool.process_label(&orders, Some(1)), Some(1), "a known one keeps its label");
    }
}
