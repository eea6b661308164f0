//! The pushed sources of a run. A new lane continues an unused source that has the same
//! description. So threads and processes that repeatedly start and end do not exhaust the ids of
//! the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flatcap_metrics::SourceMetrics;

use super::limits::{DescribedSources, PushLimits};
use super::source_setup::{RegisteredSource, SourceIdentity, SourceSetup};

/// Maximum number of processes of a source that are distinguished by a label. All further processes
/// of the run share sources without the label, because a program that restarts all the time must
/// not exhaust the ids.
const PROCESSES_MAX: usize = 32;
/// Minimum time before a lane continues the source of another lane. The time ensures that no sample
/// of the lane is earlier than the source's last sample. The value equals the maximum time by which
/// the stamp of a sample may be in the future.
const PAUSE_MIN_NS: u64 = 1_000_000;

/// A pushed source of the recording.
#[derive(Debug)]
pub(super) struct PushedSource {
    pub(super) id: u16,
    pub(super) counters: Arc<SourceMetrics>,
    /// The process that the source belongs to, or `None` if processes share the source.
    pub(super) process: Option<i32>,
    /// Sequence number of the next sample.
    pub(super) next_seq: u64,
    /// Start of the source's last sample, in monotonic nanoseconds.
    pub(super) last_mono_ns: u64,
}

/// The sources that no lane uses, and the resources that all sources of the run use.
#[derive(Debug, Default)]
pub(super) struct SourcePool {
    known: BTreeMap<Arc<SourceSetup>, SourceHistory>,
    described: DescribedSources,
    described_of: BTreeMap<u32, DescribedSources>, // by user
}

/// The source chosen for a lane.
#[derive(Debug)]
pub(super) enum ChosenSource {
    /// A source that no lane uses.
    Known(Arc<SourceSetup>, PushedSource),
    /// A new source with this setup. The source has a label with this process id, if any.
    New(Arc<SourceSetup>, Option<i32>),
}

#[derive(Debug, Default)]
struct SourceHistory {
    processes: BTreeSet<i32>,
    free: Vec<PushedSource>,
}

impl SourcePool {
    /// Chooses the source for a lane of a user. Tries the descriptions of the source from the most
    /// labels to the fewest. Chooses the first description for which there is an unused source, or
    /// for which the user's share allows a new source.
    ///
    /// # Errors
    /// The message states the limit that was reached, and how to raise the limit or use less.
    pub(super) fn choose(
        &mut self,
        registered: &RegisteredSource,
        (uid, process): (u32, Option<i32>),
        now_ns: u64,
        limits: &PushLimits,
    ) -> Result<ChosenSource, String> {
        let (of_all, of_user) = self.with_another(uid, registered.described);
        let checked = of_all.check(of_user, limits);
        let process = self.process_label(&registered.setup, process);
        for SourceIdentity { setup, process, parts } in registered.identities(process) {
            if let Some(taken) = self.take(&setup, process, now_ns) {
                return Ok(ChosenSource::Known(setup, taken));
            }
            if of_user.is_within_share(limits, parts) && checked.is_ok() {
                return Ok(ChosenSource::New(setup, process));
            }
        }
        Err(checked.err().unwrap_or_default())
    }

    /// Returns the resources of the sources of all users, and the resources of the sources of this
    /// user. Both values include one additional source of this user.
    fn with_another(&self, uid: u32, described: DescribedSources) -> (DescribedSources, DescribedSources) {
        let (mut of_all, mut of_user) = (self.described, self.described_of(uid));
        of_all.add(described);
        of_user.add(described);
        (of_all, of_user)
    }

    /// Returns the resources that the sources of a user occupy.
    pub(super) fn described_of(&self, uid: u32) -> DescribedSources {
        self.described_of.get(&uid).copied().unwrap_or_default()
    }

    /// Returns the resources that all sources occupy.
    pub(super) fn described(&self) -> DescribedSources {
        self.described
    }

    /// Returns the process to put into the label of a source, or `None` if the source gets no such
    /// label.
    fn process_label(&self, setup: &SourceSetup, process: Option<i32>) -> Option<i32> {
        let processes = self.known.get(setup).map(|known| &known.processes);
        let has_place =
            |process: &i32| processes.is_none_or(|all| all.contains(process) || all.len() < PROCESSES_MAX);
        process.filter(has_place)
    }

    /// Takes an unused source. `process` is the process in the label of the source.
    fn take(&mut self, setup: &SourceSetup, process: Option<i32>, now_ns: u64) -> Option<PushedSource> {
        let free = &mut self.known.get_mut(setup)?.free;
        let is_fit = |source: &PushedSource| {
            source.process == process && source.last_mono_ns.saturating_add(PAUSE_MIN_NS) < now_ns
        };
        free.iter().position(is_fit).map(|index| free.swap_remove(index))
    }

    /// Records that a new source of a user was added to the run.
    pub(super) fn note_added(
        &mut self,
        (uid, described): (u32, DescribedSources),
        setup: &Arc<SourceSetup>,
        process: Option<i32>,
    ) {
        let (of_all, of_user) = self.with_another(uid, described);
        self.described = of_all;
        self.described_of.insert(uid, of_user);
        self.known.entry(Arc::clone(setup)).or_default().processes.extend(process);
    }

    /// After a lane has ended, returns its source to the pool.
    pub(super) fn give_back(&mut self, setup: Arc<SourceSetup>, source: PushedSource) {
        self.known.entry(setup).or_default().free.push(source);
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::SourceSender;
    use flatcap_format::testing::effort;

    use super::super::limits::tests::LIMITS;
    use super::super::source_setup::tests::{registered, setup};
    use super::*;

    fn source(id: u16, process: Option<i32>) -> PushedSource {
        let counters = Arc::new(SourceMetrics::pushed("orders".to_owned(), 0, SourceSender::default()));
        PushedSource { id, counters, process, next_seq: 5, last_mono_ns: 1000 }
    }

    // Proves that a source is continued only by the same process, with the same user, name and
    // labels, and only after the end of its last sample.
    #[test]
    fn a_source_is_continued() {
        let mut pool = SourcePool::default();
        let orders = Arc::new(setup(7, "orders", &[]));
        pool.note_added((7, DescribedSources::default()), &orders, Some(1));
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

    // Proves that a program that restarts repeatedly uses a bounded number of sources.
    #[test]
    fn processes_share_sources_in_the_end() {
        let mut pool = SourcePool::default();
        let orders = Arc::new(setup(7, "orders", &[]));
        let mut ids = 0;
        for process in 1..1000 {
            let label = pool.process_label(&orders, Some(process));
            let source = pool.take(&orders, label, u64::MAX).unwrap_or_else(|| {
                ids += 1;
                pool.note_added((7, DescribedSources::default()), &orders, label);
                source(ids, label)
            });
            pool.give_back(Arc::clone(&orders), source);
        }
        assert_eq!(usize::from(ids), PROCESSES_MAX + 1);
        assert_eq!(pool.process_label(&orders, Some(1)), Some(1), "a known one keeps its label");
    }

    /// A simulated application that is restarted repeatedly. It has this number of threads, and a
    /// schema of this size.
    struct RestartedApplication {
        uid: u32,
        threads: usize,
        schema_bytes: usize,
        /// Whether the application has another control group and other labels at each start.
        is_changing: bool,
    }

    impl RestartedApplication {
        fn registered(&self, start: usize) -> RegisteredSource {
            let own = if self.is_changing { start } else { 0 };
            let instance = own.to_string();
            let labels = [("instance", instance.as_str())];
            let described = DescribedSources {
                bytes: 2 * (self.schema_bytes as u64 + 1200) + 512,
                memory_bytes: (8 << 10) + 6 * (self.schema_bytes as u64 + 176),
                count: 1,
            };
            registered(setup(self.uid, "orders", &labels), described)
        }

        /// Starts the application once, and ends it. Returns the first refusal.
        fn start(
            &self,
            start: usize,
            (pool, next_id): (&mut SourcePool, &mut u16),
            limits: &PushLimits,
        ) -> Result<(), String> {
            let registered = self.registered(start);
            let process = i32::try_from(start).ok();
            let mut taken = Vec::new();
            for _ in 0..self.threads {
                let chosen = pool.choose(&registered, (self.uid, process), u64::MAX, limits)?;
                taken.push(match chosen {
                    ChosenSource::Known(setup, source) => (setup, source),
                    ChosenSource::New(setup, process) => {
                        pool.note_added((self.uid, registered.described), &setup, process);
                        *next_id += 1;
                        (setup, source(*next_id, process))
                    }
                });
            }
            for (setup, source) in taken {
                pool.give_back(setup, source);
            }
            Ok(())
        }
    }

    // Proves that applications can be started any number of times with and without a ring, with
    // small and large schemas, and with labels that change at each start. The ids and the
    // descriptions of the run stay within their limits. If a hostile user describes a new source
    // each time, the user is refused, and another user is not affected.
    #[test]
    fn applications_are_started_any_number_of_times() {
        let starts = effort::by_hand(3_000, 10_000);
        let ring_segment = (4 << 20, "[blackbox] memory_max");
        for (description_bytes, description_key) in [(64 << 20, "[storage] segment_size"), ring_segment] {
            let limits = PushLimits { description_bytes, description_key, ..LIMITS };
            let application = |uid, schema_bytes, is_changing| RestartedApplication {
                uid,
                threads: 16,
                schema_bytes,
                is_changing,
            };
            let mut applications = [application(1, 0, false), application(1, 14 << 10, true)];
            let (mut pool, mut next_id) = (SourcePool::default(), 0);
            for start in 0..starts {
                // The hostile user starts another program, with a new name each time.
                let described = applications[0].registered(0).described;
                let hostile = registered(setup(9, &format!("name{start}"), &[]), described);
                if let Ok(ChosenSource::New(setup, process)) = pool.choose(&hostile, (9, Some(1)), 1, &limits)
                {
                    pool.note_added((9, described), &setup, process);
                    next_id += 1;
                }
                for application in &mut applications {
                    let started = application.start(start, (&mut pool, &mut next_id), &limits);
                    assert_eq!(started, Ok(()), "start {start} of {}", application.schema_bytes);
                }
            }
            let taken = pool.described();
            assert!(taken.bytes <= description_bytes && taken.count <= limits.run_sources, "{taken:?}");
            assert_eq!(u64::from(next_id), taken.count);
            let hostile = registered(setup(9, "another", &[]), applications[0].registered(0).described);
            let refusal = pool.choose(&hostile, (9, Some(1)), 1, &limits).unwrap_err();
            assert!(refusal.contains("this user"), "{refusal}");
        }
    }
}
