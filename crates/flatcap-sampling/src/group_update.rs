//! Updates of a running group. An update adds, removes or replaces sources, and changes the
//! thread's settings.
//!
//! The daemon opens the new sources and starts their threads before it sends the update. The group
//! exchanges its parts and sends the old parts back, so that the group's thread opens, starts and
//! closes nothing. Sources that the update does not change keep their deadlines, sequence numbers,
//! budgets and files.

use crossbeam_channel::Sender;
use flatcap_metrics::{GroupLatencies, Producer};
use flatcap_slab::OnFull;

use super::budget::SourceBudget;
use super::group_source::{ActiveSource, ReadySource};
use super::schedule::{Schedule, Tick};
use super::thread_settings::ThreadSettings;

/// The new state of a group.
#[derive(Debug)]
pub struct GroupUpdate {
    /// The sources of the group after the update, in this order. Sources of the group that are not
    /// listed are removed.
    pub sources: Vec<SourceUpdate>,
    /// The settings of the group's thread.
    pub thread: ThreadSettings,
    /// The policy for a slab whose queue is full.
    pub on_full: OnFull,
    /// Receives the latencies of the group's new sources, in the same order.
    pub latencies: Producer<GroupLatencies>,
}

/// A source of a group after the update.
#[derive(Debug)]
pub enum SourceUpdate {
    /// A source that the group already has. The source stays unchanged, except for its budget.
    Keep {
        /// The source's id.
        id: u16,
        /// The new CPU budget in basis points of a core, if it changes.
        budget: Option<u32>,
    },
    /// A newly opened source. If the group has a source with the same id, the new source replaces
    /// that source and continues its sequence numbers.
    Open(Box<ReadySource>),
}

/// Sources that a group no longer needs. Dropping this value closes the files of the sources, and
/// ends their threads after pending reads have returned.
#[derive(Debug)]
#[allow(dead_code, reason = "held only to be dropped on another thread")]
pub struct RetiredSources(pub(super) Vec<ActiveSource>);

/// An update that waits until the last reads of retired sources have returned.
#[derive(Debug)]
pub(super) struct PendingUpdate {
    pub(super) update: Box<GroupUpdate>,
    pub(super) reply: Sender<RetiredSources>,
    pub(super) deadline_ns: u64,
}

/// The sources of a group after an update.
#[derive(Debug)]
pub(super) struct UpdatedSources {
    pub(super) active: Vec<ActiveSource>,
    /// The next ticks of the sources, in the order of `active`.
    pub(super) ticks: Vec<Tick>,
    /// Positions of the sources whose budget is reset.
    pub(super) reset_budgets: Vec<usize>,
    /// Sources that the update has removed or replaced.
    pub(super) retired: Vec<ActiveSource>,
}

impl GroupUpdate {
    /// Returns whether the group keeps the source with this id as it is.
    pub(super) fn keeps(&self, id: u16) -> bool {
        self.sources.iter().any(|source| matches!(source, SourceUpdate::Keep { id: kept, .. } if *kept == id))
    }
}

impl UpdatedSources {
    /// Applies updates to the sources of a group at `now_ns`. `schedule` contains the ticks of the
    /// sources. New sources are due on the grid that begins at `start_ns`. If a source is removed
    /// or its period changes, a tick of this source that is due but not served yet counts as
    /// missed.
    pub(super) fn new(
        old_sources: Vec<ActiveSource>,
        updates: Vec<SourceUpdate>,
        schedule: &Schedule,
        (now_ns, start_ns): (u64, u64),
    ) -> Self {
        let mut old_sources: Vec<_> = old_sources.into_iter().map(Some).collect();
        let missed_ticks: Vec<u64> = schedule.unserved_including_now(now_ns).collect();
        let mut active = Vec::with_capacity(updates.len());
        let mut ticks = Vec::with_capacity(updates.len());
        let mut reset_budgets = Vec::with_capacity(updates.len());
        let mut retired = Vec::with_capacity(old_sources.len());
        for entry in updates {
            let id = entry.id();
            let at =
                old_sources.iter().position(|source| source.as_ref().is_some_and(|source| source.id() == id));
            let before = at.and_then(|at| {
                let gone_by = missed_ticks.get(at).copied().unwrap_or(0);
                Some((old_sources.get_mut(at)?.take()?, schedule.tick(at)?, gone_by))
            });
            let index = active.len();
            match (entry, before) {
                (SourceUpdate::Keep { budget, .. }, Some((mut source, tick, _))) => {
                    if let Some(basis_points) = budget {
                        source.budget = SourceBudget::new(basis_points, tick.period_ns(), now_ns);
                        reset_budgets.push(index);
                    }
                    ticks.push(tick);
                    active.push(source);
                }
                (SourceUpdate::Keep { .. }, None) => {}
                (SourceUpdate::Open(ready), before) => {
                    let ReadySource { mut source, period_ns } = *ready;
                    let mut tick = Tick::after(now_ns, period_ns, start_ns);
                    if let Some((before, old_tick, gone_by)) = before {
                        source.next_seq = before.next_seq;
                        if old_tick.period_ns() == period_ns {
                            tick = old_tick;
                        } else {
                            before.metrics.missed.add(gone_by);
                        }
                        retired.push(before);
                    }
                    reset_budgets.push(index);
                    ticks.push(tick);
                    active.push(source);
                }
            }
        }
        for (source, gone_by) in old_sources.into_iter().zip(missed_ticks) {
            let Some(source) = source else { continue };
            source.metrics.missed.add(gone_by);
            source.metrics.demand.set(0);
            retired.push(source);
        }
        Self { active, ticks, reset_budgets, retired }
    }
}

impl SourceUpdate {
    fn id(&self) -> u16 {
        match self {
            Self::Keep { id, .. } => *id,
            Self::Open(ready) => ready.source.id(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use crossbeam_channel::{Receiver, bounded};
    use flatbuffers::FlatBufferBuilder;
    use flatcap_format::frame::Incomplete;
    use flatcap_metrics::{Consumer, Metrics, SourceMetrics, exchange};
    use flatcap_os::clock::monotonic_ns;
    use flatcap_os::wake_event::WakeEvent;
    use flatcap_slab::{
        Arena, Causes, Geometry, LossLedger, QueueReceiver, Slab, SlabPool, SlabProducer,
        SlabProducerSettings, slab_queue,
    };
    use flatcap_stream::ChecksumKind;

    use super::super::group::{OFFLOADED_END_NS, SamplerGroup};
    use super::super::group_command::{CommandReceiver, command_channel};
    use super::super::group_source::GroupSource;
    use super::super::sampler::OpenedSampler;
    use super::super::wait::Waiter;
    use super::*;
    use crate::Timing;
    use crate::sources::synthetic::SyntheticSampler;
    use crate::test_settings::fast_thread;
    use crate::{GroupName, GroupSettings, ReadError, Sampler};

    const MS: u64 = 1_000_000;

    /// Blocks in `read` until the lock is free.
    #[derive(Debug)]
    struct BlockingSampler(Arc<Mutex<()>>);

    impl Sampler for BlockingSampler {
        fn read(&mut self) -> Result<(), ReadError> {
            drop(self.0.lock());
            Ok(())
        }

        fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
            let table = builder.start_table();
            let root = builder.end_table(table);
            builder.finish_minimal(root);
            Incomplete::NONE
        }
    }

    struct GroupRig {
        metrics: Arc<Metrics>,
        ledger: Arc<LossLedger>,
        queue: QueueReceiver<Box<Slab>>,
        latencies: Consumer<GroupLatencies>,
    }

    fn source(metrics: &Metrics, id: u16, period_ns: u64) -> GroupSource {
        GroupSource {
            id,
            period_ns,
            budget: 10_000,
            sampler: OpenedSampler::fixed(SyntheticSampler::point(1)),
            offloaded: None,
            metrics: Arc::clone(metrics.sources.get(id.into()).unwrap()),
        }
    }

    fn group(sources: impl FnOnce(&Metrics) -> Vec<GroupSource>) -> (SamplerGroup, GroupRig) {
        let counters = ["a", "b", "c"].map(|name| SourceMetrics::new(name.to_owned(), MS));
        let metrics = Arc::new(Metrics::new(counters, 3, Box::default()));
        let geometry =
            Geometry { sources: 3, slabs: 8, slab_bytes: 1 << 16, large_slabs: 1, large_slab_bytes: 1 << 16 };
        let arena = Arena::anonymous(geometry).unwrap();
        let (ledger, stop) = (Arc::new(LossLedger::new(3)), Arc::new(WakeEvent::new()));
        let (sender, queue) = slab_queue(4, OnFull::DropNewest);
        let producer = SlabProducer::new(SlabProducerSettings {
            sequence_counters: arena.sequence_counters(),
            pool: Arc::new(SlabPool::new(arena)),
            queue: sender,
            ledger: Arc::clone(&ledger),
            wake: Arc::default(),
            checksum: ChecksumKind::None,
            frame_max: 4000,
            flush_interval_ns: u64::MAX,
            sources: 3,
            metrics: Arc::default(),
            stop: Arc::clone(&stop),
        });
        let sources = sources(&metrics);
        let (latency_producer, latencies) = exchange(|| GroupLatencies::new([0, 1]));
        let group = SamplerGroup::new(GroupSettings {
            sources,
            name: GroupName::Fast,
            thread: fast_thread(),
            start_ns: monotonic_ns(),
            wall_offset: Arc::default(),
            producer,
            metrics: Arc::clone(&metrics),
            latencies: latency_producer,
            commands: CommandReceiver::stop_only(stop),
        });
        (group.unwrap(), GroupRig { metrics, ledger, queue, latencies })
    }

    fn change(sources: Vec<SourceUpdate>) -> (GroupUpdate, Consumer<GroupLatencies>) {
        let ids: Vec<u16> = sources.iter().map(SourceUpdate::id).collect();
        let (latencies, consumer) = exchange(|| GroupLatencies::new(ids.iter().copied()));
        let thread = fast_thread();
        (GroupUpdate { sources, thread, on_full: OnFull::Block, latencies }, consumer)
    }

    fn ready(source: GroupSource) -> SourceUpdate {
        SourceUpdate::Open(Box::new(ReadySource::new(source, &[], monotonic_ns()).unwrap()))
    }

    /// Runs ticks of the group until each source has begun this many samples.
    fn until(group: &mut SamplerGroup, rig: &GroupRig, wanted: [u64; 3]) {
        let begun = |rig: &GroupRig| [0, 1, 2].map(|id| rig.metrics.sources.get(id).unwrap().begun.get());
        while begun(rig).iter().zip(wanted).any(|(begun, wanted)| *begun < wanted) {
            group.tick();
        }
    }

    // Proves that a kept source keeps its numbers and deadlines, and that a replaced source
    // continues its numbers, even with another period. The numbers of a new source start at 0, and
    // a removed source is not read again. The recorder sees no number twice or out of order, and
    // receives the last latencies.
    #[test]
    fn numbers_go_on() {
        let (mut group, mut rig) = group(|metrics| vec![source(metrics, 0, MS), source(metrics, 1, MS)]);
        until(&mut group, &rig, [3, 3, 0]);
        let next_ns = group.schedule.tick(0);
        let (first, latencies) = change(vec![
            ready(source(&rig.metrics, 2, MS)),
            ready(source(&rig.metrics, 1, 2 * MS)),
            SourceUpdate::Keep { id: 0, budget: None },
        ]);
        assert_eq!(group.apply_update(first).0.len(), 1, "the replaced source is returned");
        assert!(rig.latencies.is_last() && group.producer.on_full() == OnFull::Block);
        let same = |tick: Option<Tick>| tick.map(|tick| format!("{tick:?}"));
        assert_eq!(same(group.schedule.tick(2)), same(next_ns), "its deadline is unchanged");
        until(&mut group, &rig, [9, 5, 5]);
        let begun = rig.metrics.sources.get(1).unwrap().begun.get();
        let (second, _latencies) = change(vec![
            SourceUpdate::Keep { id: 2, budget: None },
            SourceUpdate::Keep { id: 0, budget: Some(50) },
        ]);
        assert_eq!(group.apply_update(second).0.len(), 1);
        until(&mut group, &rig, [15, 0, 15]);
        assert_eq!(rig.metrics.sources.get(1).unwrap().begun.get(), begun, "it was removed");
        group.producer.queue_open_slab(monotonic_ns());
        let mut next = [0; 3];
        while let Ok(slab) = rig.queue.try_recv() {
            for run in slab.ranges() {
                let next = &mut next[usize::from(run.source)];
                assert_eq!(run.first_seq, *next, "{run:?}");
                *next = run.last_seq + 1;
            }
        }
        assert_eq!(next, [0, 1, 2].map(|id| rig.metrics.sources.get(id).unwrap().begun.get()));
        let mut seen = Vec::new();
        latencies.drain(|set| seen.extend(set.sources.iter().map(|source| source.source)));
        assert!(seen.starts_with(&[2, 1, 0]), "in the order of the first change: {seen:?}");
    }

    /// Creates a group with two sources. This lock blocks one source, and the other source is never
    /// blocked.
    fn group_with_blocking_source(lock: &Arc<Mutex<()>>) -> (SamplerGroup, GroupRig) {
        group(|metrics| vec![blocking_source(metrics, 0, lock), source(metrics, 1, MS)])
    }

    fn blocking_source(metrics: &Metrics, id: u16, lock: &Arc<Mutex<()>>) -> GroupSource {
        let sampler = OpenedSampler::built(BlockingSampler(Arc::clone(lock)));
        let offloaded = Some(("held-up".to_owned(), 3_600_000 * MS));
        GroupSource { sampler, offloaded, ..source(metrics, id, MS) }
    }

    /// Runs ticks of the group until the update is applied.
    fn await_update(group: &mut SamplerGroup, answer: &Receiver<RetiredSources>) -> RetiredSources {
        loop {
            if let Ok(left) = answer.try_recv() {
                return left;
            }
            group.tick();
        }
    }

    // Proves that a pending read is awaited and recorded when its source is replaced or removed.
    // Until the read returns, no retired source is read again, the other sources are read, and
    // every tick is counted.
    #[test]
    fn a_pending_read_is_awaited() {
        let locks: [_; 2] = std::array::from_fn(|_| Arc::new(Mutex::new(())));
        let [first, second] = locks.each_ref().map(|lock| lock.lock().unwrap());
        let (mut group, mut rig) = group(|metrics| {
            vec![
                blocking_source(metrics, 0, &locks[0]),
                source(metrics, 1, MS),
                blocking_source(metrics, 2, &Arc::default()),
            ]
        });
        let [slow, others, quick] = [0, 1, 2].map(|id| Arc::clone(rig.metrics.sources.get(id).unwrap()));
        let anew = ready(blocking_source(&rig.metrics, 0, &locks[1]));
        for (begun, then, held) in [(1, Some(anew), first), (2, None, second)] {
            until(&mut group, &rig, [begun, 0, 3]);
            let leaving = if then.is_some() { 2 } else { 1 };
            let stays = SourceUpdate::Keep { id: 1, budget: None };
            let (change, _latencies) = change([stays].into_iter().chain(then).collect());
            let (reply, answer) = bounded(1);
            group.begin_update(Box::new(change), reply);
            group.pending.as_mut().unwrap().deadline_ns = u64::MAX;
            let before = [slow.missed.get(), quick.begun.get()];
            until(&mut group, &rig, [0, others.begun.get() + 20, 0]);
            assert!(answer.is_empty() && slow.missed.get() > before[0]);
            assert_eq!([slow.begun.get(), quick.begun.get()], [begun, before[1]]);
            drop(held);
            assert_eq!(await_update(&mut group, &answer).0.len(), leaving);
        }
        assert!(rig.ledger.take().is_none() && slow.timed_out.get() + quick.timed_out.get() == 0);
        group.producer.queue_open_slab(monotonic_ns());
        let mut next = [0; 3];
        while let Ok(slab) = rig.queue.try_recv() {
            for run in slab.ranges() {
                let next = &mut next[usize::from(run.source)];
                assert_eq!(run.first_seq, *next, "{run:?}");
                *next = run.last_seq + 1;
            }
        }
        assert_eq!(next, [2, others.begun.get(), quick.begun.get()]);
    }

    // Proves that a removed source whose read is blocked is retired after one second. The sample of
    // the read is lost with its cause, and the group continues.
    #[test]
    fn a_blocked_read_is_given_up() {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let (mut group, rig) = group_with_blocking_source(&lock);
        until(&mut group, &rig, [1, 2, 0]);
        let (change, _latencies) = change(vec![SourceUpdate::Keep { id: 1, budget: None }]);
        let (reply, answer) = bounded(1);
        let begin_ns = monotonic_ns();
        group.begin_update(Box::new(change), reply);
        let retired = await_update(&mut group, &answer);
        assert!(retired.0.len() == 1 && monotonic_ns() >= begin_ns + OFFLOADED_END_NS);
        drop(retired);
        let loss = rig.ledger.take().unwrap();
        assert_eq!((loss.source, loss.first_seq, loss.count, loss.causes), (0, 0, 1, Causes::TimedOut));
        until(&mut group, &rig, [1, rig.metrics.sources.get(1).unwrap().begun.get() + 4, 0]);
        drop(held);
    }

    /// Returns the CPUs that this thread may run on, as the kernel lists them.
    #[allow(clippy::disallowed_methods, reason = "a file of the kernel, as the test sees it")]
    fn allowed_cpus() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    }

    // Proves that changed settings of the thread are applied or reset. An update without such a
    // change does not modify the thread, but changes `on_full`. The test observes the CPUs that a
    // thread may run on.
    #[test]
    fn changed_thread_settings_are_applied() {
        let changes = || {
            let (mut group, _rig) = group(|metrics| vec![source(metrics, 0, MS)]);
            let mut apply = |thread: &ThreadSettings, on_full| {
                let (change, _latencies) = change(vec![SourceUpdate::Keep { id: 0, budget: None }]);
                drop(group.apply_update(GroupUpdate { thread: thread.clone(), on_full, ..change }));
                assert!(group.producer.on_full() == on_full && group.thread == *thread);
                allowed_cpus()
            };
            let (before, unpinned) =
                (allowed_cpus(), ThreadSettings { timing: Timing::Relaxed, ..fast_thread() });
            let cpu = before.split(['-', ',']).next().unwrap();
            let pinned = ThreadSettings { cpus: vec![cpu.parse().unwrap()], ..unpinned.clone() };
            assert_eq!(apply(&pinned, OnFull::DropOldest), cpu);
            flatcap_os::thread::reset_affinity().unwrap();
            assert_eq!(apply(&pinned, OnFull::Block), before, "the thread was changed again");
            flatcap_os::thread::pin_to_cpus(&pinned.cpus).unwrap();
            assert_eq!(apply(&unpinned, OnFull::Block), before, "the CPUs were not reset");
        };
        flatcap_os::thread::spawn("sampler", changes).unwrap().join().unwrap();
    }

    // Proves that a group without sources accepts new sources, and ends when it is stopped.
    #[test]
    fn an_empty_group_wakes_up() {
        let (mut group, rig) = group(|_| Vec::new());
        let stop = Arc::new(WakeEvent::new());
        let (handle, commands) = command_channel(Arc::clone(&stop));
        group.waiter = Waiter::new(group.thread.timing, Arc::clone(&commands.wake));
        group.commands = commands;
        let thread = flatcap_os::thread::spawn("sampler", move || group.run()).unwrap();
        assert_eq!(handle.flush(), Some(()));
        let (change, _latencies) = change(vec![ready(source(&rig.metrics, 0, MS))]);
        assert!(handle.update(Box::new(change)).is_some());
        while rig.metrics.sources.get(0).unwrap().begun.get() < 5 {
            std::thread::yield_now();
        }
        stop.set();
        handle.wake();
        thread.join().unwrap();
        assert_eq!(handle.flush(), None, "the group has ended");
    }
}
