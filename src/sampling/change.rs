//! What becomes of a group while it is at work: sources that come, go or are replaced, and how its thread runs.
//!
//! Everything is made by the daemon before; the group exchanges and sends back what it no longer needs, so that nothing is opened,
//! started or closed on its thread. Sources that stay keep their deadlines, numbers, budgets and files.

use std::io;

use crossbeam_channel::Sender;

use super::budget::Budget;
use super::errand::Errand;
use super::group::{ActiveSource, ERRANDS_END_NS, Group, GroupSource, Way};
use super::mailbox::{Heard, Word};
use super::privileges;
use super::sampler::Opened;
use super::schedule::Tick;
use crate::config;
use crate::frame::Envelope;
use crate::metrics::{GroupLatencies, Limit, Producer};
use crate::os::clock::monotonic_ns;
use crate::slab::{Causes, OnFull};

/// How a group goes on.
#[derive(Debug)]
pub struct Change {
    /// Its sources from now on, in this order. What it has and is not among them ends.
    pub sources: Vec<Then>,
    /// How its thread runs.
    pub config: config::Group,
    /// What becomes of a slab that finds its queue full.
    pub on_full: OnFull,
    /// Latencies of these sources, in this order.
    pub latencies: Producer<GroupLatencies>,
}

/// A source of a group that goes on.
#[derive(Debug)]
pub enum Then {
    /// One that the group has, as it is.
    Kept {
        /// Its id.
        id: u16,
        /// If it gets another budget: most of a core that it may take, in hundredths of a percent.
        budget: Option<u32>,
    },
    /// A new one; or one that the group has under this id, opened anew: it goes on with that one's numbers.
    Ready(Box<ReadySource>),
}

/// A source that only waits to be read.
#[derive(Debug)]
pub struct ReadySource {
    pub(super) source: ActiveSource,
    pub(super) period_ns: u64,
}

/// What a group no longer needs. To drop it closes files, and ends threads once their readings have come back.
#[derive(Debug)]
#[allow(dead_code, reason = "kept to be dropped elsewhere")]
pub struct Left(Vec<ActiveSource>);

/// A change that waits for readings under way, the last ones of their sources.
#[derive(Debug)]
pub(super) struct Pending {
    change: Box<Change>,
    reply: Sender<Left>,
    deadline_ns: u64,
}

impl ReadySource {
    /// Makes a source ready, from `now_ns` on, to be read on these processors, or on all, if it has a thread of its own.
    ///
    /// # Errors
    /// The kernel refuses the thread for a source that needs one.
    pub fn new(source: GroupSource, cpus: &[u32], now_ns: u64) -> io::Result<Self> {
        let GroupSource { id, period_ns, budget, sampler, errand, metrics } = source;
        let envelope = Envelope::new(id);
        let source = ActiveSource {
            model: match &sampler {
                Opened::Built(_) => Box::default(),
                Opened::Fixed(sampler) => envelope.around(sampler.model().payload()),
            },
            envelope,
            metrics,
            next_seq: 0,
            payload_bytes: 0,
            builds: 0,
            build_ns: 0,
            budget: Budget::new(budget, period_ns, now_ns),
            way: match errand {
                None => Way::Here(sampler),
                Some((name, timeout_ns)) => {
                    Way::Errand(Errand::start(&name, sampler, timeout_ns, cpus.to_vec())?)
                }
            },
        };
        Ok(Self { source, period_ns })
    }
}

impl Group {
    /// The bell has rung. Does what was said; false if the group is to end.
    #[cold]
    pub(super) fn listen(&mut self) -> bool {
        match self.mailbox.listen() {
            Heard::Stop => return false,
            Heard::Nothing => {}
            // Nobody may be left to hear the answer: the run ends.
            Heard::Word(Word::HandOver(reply)) => {
                self.hand_over.hand_over(monotonic_ns());
                let _nobody_waits = reply.send(());
            }
            Heard::Word(Word::Change(change, reply)) => self.prepare(change, reply),
        }
        true
    }

    /// Has the sources that do not stay read no more, and changes when what is being read for them is back: at once, if nothing is.
    /// Who said so waits for the answer, so there is no other change meanwhile.
    fn prepare(&mut self, change: Box<Change>, reply: Sender<Left>) {
        for source in &mut self.sources {
            let id = source.id();
            let stays =
                change.sources.iter().any(|then| matches!(then, Then::Kept { id: kept, .. } if *kept == id));
            if let Way::Errand(errand) = &mut source.way
                && !stays
            {
                errand.retire();
            }
        }
        let now = self.collect_errands();
        self.pending = Some(Pending { change, reply, deadline_ns: now + ERRANDS_END_NS });
        self.change_if_ready(now);
    }

    /// Makes the change that was prepared, if there is one, and nothing is being read any more for those that end, or for too long.
    pub(super) fn change_if_ready(&mut self, now_ns: u64) {
        let is_retiring =
            |source: &ActiveSource| matches!(&source.way, Way::Errand(errand) if errand.is_retiring());
        let waits = self.sources.iter().any(is_retiring);
        if let Some(ready) = self.pending.take_if(|pending| !waits || now_ns >= pending.deadline_ns) {
            // Nobody may be left to hear the answer: the run ends.
            let _nobody_waits = ready.reply.send(self.change(*ready.change));
        }
    }

    /// Goes on like this. A tick that has come and was not served counts as missed for a source that ends, or whose period is another
    /// one from now on; all others serve it next.
    fn change(&mut self, change: Change) -> Left {
        let now = self.collect_errands();
        let mut had: Vec<_> = std::mem::take(&mut self.sources).into_iter().map(Some).collect();
        let gone_by: Vec<u64> = self.schedule.gone_by(now).collect();
        let mut left = Vec::with_capacity(had.len());
        let mut ticks = Vec::with_capacity(change.sources.len());
        let mut unhurried = Vec::with_capacity(change.sources.len()); // places of those whose budget begins anew
        for then in change.sources {
            let id = then.id();
            let at = had.iter().position(|source| source.as_ref().is_some_and(|source| source.id() == id));
            let before = at.and_then(|at| {
                let gone_by = gone_by.get(at).copied().unwrap_or(0);
                Some((had.get_mut(at)?.take()?, self.schedule.tick(at)?, gone_by))
            });
            let place = self.sources.len();
            match (then, before) {
                (Then::Kept { budget, .. }, Some((mut source, tick, _))) => {
                    if let Some(basis_points) = budget {
                        source.budget = Budget::new(basis_points, tick.period_ns(), now);
                        unhurried.push(place);
                    }
                    ticks.push(tick);
                    self.sources.push(source);
                }
                (Then::Kept { .. }, None) => {}
                (Then::Ready(ready), before) => {
                    let ReadySource { mut source, period_ns } = *ready;
                    let mut tick = Tick::behind(now, period_ns, self.start_ns);
                    if let Some((before, old_tick, gone_by)) = before {
                        source.next_seq = before.next_seq;
                        if old_tick.period_ns() == period_ns {
                            tick = old_tick;
                        } else {
                            before.metrics.missed.add(gone_by);
                        }
                        left.push(before);
                    }
                    unhurried.push(place);
                    ticks.push(tick);
                    self.sources.push(source);
                }
            }
        }
        for (source, gone_by) in had.into_iter().zip(gone_by) {
            let Some(source) = source else { continue };
            source.metrics.missed.add(gone_by);
            source.metrics.demand.set(0);
            left.push(source);
        }
        self.dismiss(&mut left, now);
        self.schedule.set(ticks);
        for place in unhurried {
            self.schedule.set_stride(place, 1, now);
            if let Some(source) = self.sources.get(place) {
                source.metrics.demand.set(0);
                source.metrics.set_pace(1, Limit::Source);
            }
        }
        self.has_errands = self.sources.iter().any(|source| matches!(source.way, Way::Errand(_)));
        self.is_held_back = self.sources.iter().any(|source| source.budget.is_held_back());
        std::mem::replace(&mut self.latencies, change.latencies).finish();
        self.hand_over.set_on_full(change.on_full);
        let before = std::mem::replace(&mut self.config, change.config);
        if before != self.config {
            self.waiter.set_timing(self.config.timing);
            privileges::change(self.name, &before, &self.config);
        }
        Left(left)
    }

    /// The end of sources while the group goes on. What is still being read for them has had its time and is lost. A program that is
    /// waited for is killed.
    fn dismiss(&mut self, sources: &mut [ActiveSource], now_ns: u64) {
        for source in &mut *sources {
            if let Way::Errand(errand) = &mut source.way {
                errand.cut_short();
                if let Some(reading) = errand.abandon() {
                    source.metrics.timed_out.add(1);
                    self.hand_over.lose(reading, Causes::TIMED_OUT);
                }
            }
            self.hand_over.settle(source.id());
        }
        if !sources.is_empty() {
            self.hand_over.hand_over(now_ns);
        }
    }
}

impl Then {
    fn id(&self) -> u16 {
        match self {
            Self::Kept { id, .. } => *id,
            Self::Ready(ready) => ready.source.id(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use crossbeam_channel::{Receiver, bounded};
    use flatbuffers::FlatBufferBuilder;

    use super::super::mailbox::{Mailbox, mailbox};
    use super::super::wait::Waiter;
    use super::*;
    use crate::config::{Config, GroupName};
    use crate::frame::Shortfall;
    use crate::metrics::{Consumer, Metrics, SourceMetrics, exchange};
    use crate::os::event::Event;
    use crate::sampling::sources::synthetic::Synthetic;
    use crate::sampling::{GroupSettings, ReadError, Sampler};
    use crate::slab::{
        Arena, Geometry, HandOver, HandOverSettings, LossLedger, QueueReceiver, Slab, SlabPool, slab_queue,
    };
    use crate::stream::ChecksumKind;

    const MS: u64 = 1_000_000;

    /// Waits for a word before it has read.
    #[derive(Debug)]
    struct HeldUp(Arc<Mutex<()>>);

    impl Sampler for HeldUp {
        fn read(&mut self) -> Result<(), ReadError> {
            drop(self.0.lock());
            Ok(())
        }

        fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
            let table = builder.start_table();
            let root = builder.end_table(table);
            builder.finish_minimal(root);
            Shortfall::NONE
        }
    }

    struct Rig {
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
            sampler: Opened::fixed(Synthetic::point(1)),
            errand: None,
            metrics: Arc::clone(metrics.sources.get(id.into()).unwrap()),
        }
    }

    fn group(sources: impl FnOnce(&Metrics) -> Vec<GroupSource>) -> (Group, Rig) {
        let counters = ["a", "b", "c"].map(|name| SourceMetrics::new(name.to_owned(), MS));
        let metrics = Arc::new(Metrics::new(counters, 3, Box::default()));
        let geometry =
            Geometry { sources: 3, slabs: 8, slab_bytes: 1 << 16, large_slabs: 1, large_slab_bytes: 1 << 16 };
        let arena = Arena::anonymous(geometry).unwrap();
        let (ledger, stop) = (Arc::new(LossLedger::new(3)), Arc::new(Event::new()));
        let (sender, queue) = slab_queue(4, OnFull::DropNewest);
        let hand_over = HandOver::new(HandOverSettings {
            begun: arena.begun(),
            pool: Arc::new(SlabPool::new(arena)),
            queue: sender,
            ledger: Arc::clone(&ledger),
            wake: Arc::default(),
            checksum: ChecksumKind::None,
            frame_max: 4000,
            interval_ns: u64::MAX,
            sources: 3,
            metrics: Arc::default(),
            stop: Arc::clone(&stop),
        });
        let sources = sources(&metrics);
        let (producer, latencies) = exchange(|| GroupLatencies::new([0, 1]));
        let group = Group::new(GroupSettings {
            sources,
            name: GroupName::Fast,
            config: Config::default().groups.fast,
            start_ns: monotonic_ns(),
            wall_offset: Arc::default(),
            hand_over,
            metrics: Arc::clone(&metrics),
            latencies: producer,
            mailbox: Mailbox::silent(stop),
        });
        (group.unwrap(), Rig { metrics, ledger, queue, latencies })
    }

    fn change(sources: Vec<Then>) -> (Change, Consumer<GroupLatencies>) {
        let ids: Vec<u16> = sources.iter().map(Then::id).collect();
        let (latencies, consumer) = exchange(|| GroupLatencies::new(ids.iter().copied()));
        let config = Config::default().groups.fast;
        (Change { sources, config, on_full: OnFull::Block, latencies }, consumer)
    }

    fn ready(source: GroupSource) -> Then {
        Then::Ready(Box::new(ReadySource::new(source, &[], monotonic_ns()).unwrap()))
    }

    /// Ticks until each of these has so many readings begun.
    fn until(group: &mut Group, rig: &Rig, wanted: [u64; 3]) {
        let begun = |rig: &Rig| [0, 1, 2].map(|id| rig.metrics.sources.get(id).unwrap().begun.get());
        while begun(rig).iter().zip(wanted).any(|(begun, wanted)| *begun < wanted) {
            group.tick();
        }
    }

    // Goal: one that stays keeps numbers and deadlines, one that is opened anew goes on with its numbers, also by another period, a new
    // one begins at 0, and one that is gone is read no more; the recorder finds no number twice and none out of order, and hears of the
    // last latencies. Method: a group at its ticks, changed twice; the runs in its slabs.
    #[test]
    fn numbers_go_on() {
        let (mut group, mut rig) = group(|metrics| vec![source(metrics, 0, MS), source(metrics, 1, MS)]);
        until(&mut group, &rig, [3, 3, 0]);
        let next_ns = group.schedule.tick(0);
        let (first, latencies) = change(vec![
            ready(source(&rig.metrics, 2, MS)),
            ready(source(&rig.metrics, 1, 2 * MS)),
            Then::Kept { id: 0, budget: None },
        ]);
        assert_eq!(group.change(first).0.len(), 1, "the one that was opened anew comes back");
        assert!(rig.latencies.is_last() && group.hand_over.on_full() == OnFull::Block);
        let same = |tick: Option<Tick>| tick.map(|tick| format!("{tick:?}"));
        assert_eq!(same(group.schedule.tick(2)), same(next_ns), "not a deadline is another one");
        until(&mut group, &rig, [9, 5, 5]);
        let begun = rig.metrics.sources.get(1).unwrap().begun.get();
        let (second, _latencies) =
            change(vec![Then::Kept { id: 2, budget: None }, Then::Kept { id: 0, budget: Some(50) }]);
        assert_eq!(group.change(second).0.len(), 1);
        until(&mut group, &rig, [15, 0, 15]);
        assert_eq!(rig.metrics.sources.get(1).unwrap().begun.get(), begun, "it is gone");
        group.hand_over.hand_over(monotonic_ns());
        let mut next = [0; 3];
        while let Ok(slab) = rig.queue.try_recv() {
            for run in slab.runs() {
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

    /// A group of a source that is held up by this lock and one that is not.
    fn group_held_up(lock: &Arc<Mutex<()>>) -> (Group, Rig) {
        group(|metrics| vec![held_up(metrics, 0, lock), source(metrics, 1, MS)])
    }

    fn held_up(metrics: &Metrics, id: u16, lock: &Arc<Mutex<()>>) -> GroupSource {
        let sampler = Opened::built(HeldUp(Arc::clone(lock)));
        let errand = Some(("held-up".to_owned(), 3_600_000 * MS));
        GroupSource { sampler, errand, ..source(metrics, id, MS) }
    }

    /// Ticks until the change is made.
    fn left(group: &mut Group, answer: &Receiver<Left>) -> Left {
        loop {
            if let Ok(left) = answer.try_recv() {
                return left;
            }
            group.tick();
        }
    }

    // Goal: a reading under way is awaited when its source is opened anew and when it is removed, and is recorded; meanwhile no other is
    // begun for what leaves, also where nothing is under way, the others are read, and each tick is in the books. Method: a lock that is
    // held while the group ticks on, two changes; the ledger and the runs in the slabs.
    #[test]
    fn a_reading_under_way_is_awaited() {
        let locks: [_; 2] = std::array::from_fn(|_| Arc::new(Mutex::new(())));
        let [first, second] = locks.each_ref().map(|lock| lock.lock().unwrap());
        let (mut group, mut rig) = group(|metrics| {
            vec![held_up(metrics, 0, &locks[0]), source(metrics, 1, MS), held_up(metrics, 2, &Arc::default())]
        });
        let [slow, others, quick] = [0, 1, 2].map(|id| Arc::clone(rig.metrics.sources.get(id).unwrap()));
        let anew = ready(held_up(&rig.metrics, 0, &locks[1]));
        for (begun, then, held) in [(1, Some(anew), first), (2, None, second)] {
            until(&mut group, &rig, [begun, 0, 3]);
            let leaving = if then.is_some() { 2 } else { 1 };
            let stays = Then::Kept { id: 1, budget: None };
            let (change, _latencies) = change([stays].into_iter().chain(then).collect());
            let (reply, answer) = bounded(1);
            group.prepare(Box::new(change), reply);
            group.pending.as_mut().unwrap().deadline_ns = u64::MAX;
            let before = [slow.missed.get(), quick.begun.get()];
            until(&mut group, &rig, [0, others.begun.get() + 20, 0]);
            assert!(answer.is_empty() && slow.missed.get() > before[0]);
            assert_eq!([slow.begun.get(), quick.begun.get()], [begun, before[1]]);
            drop(held);
            assert_eq!(left(&mut group, &answer).0.len(), leaving);
        }
        assert!(rig.ledger.take().is_none() && slow.timed_out.get() + quick.timed_out.get() == 0);
        group.hand_over.hand_over(monotonic_ns());
        let mut next = [0; 3];
        while let Ok(slab) = rig.queue.try_recv() {
            for run in slab.runs() {
                let next = &mut next[usize::from(run.source)];
                assert_eq!(run.first_seq, *next, "{run:?}");
                *next = run.last_seq + 1;
            }
        }
        assert_eq!(next, [2, others.begun.get(), quick.begun.get()]);
    }

    // Goal: a source whose reading is held up leaves when that has had its second; the reading is lost with its cause, and all goes on.
    // Method: a lock that is held, a change, the ledger.
    #[test]
    fn a_reading_that_is_held_up_is_given_up() {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let (mut group, rig) = group_held_up(&lock);
        until(&mut group, &rig, [1, 2, 0]);
        let (change, _latencies) = change(vec![Then::Kept { id: 1, budget: None }]);
        let (reply, answer) = bounded(1);
        let begin_ns = monotonic_ns();
        group.prepare(Box::new(change), reply);
        let left = left(&mut group, &answer);
        assert!(left.0.len() == 1 && monotonic_ns() >= begin_ns + ERRANDS_END_NS);
        drop(left);
        let loss = rig.ledger.take().unwrap();
        assert_eq!((loss.source, loss.first_seq, loss.count, loss.causes), (0, 0, 1, Causes::TIMED_OUT));
        until(&mut group, &rig, [1, rig.metrics.sources.get(1).unwrap().begun.get() + 4, 0]);
        drop(held);
    }

    // Goal: a group without sources takes some, and ends when it is told to. Method: an empty group on a thread, by its mailbox.
    #[test]
    fn an_empty_group_wakes_up() {
        let (mut group, rig) = group(|_| Vec::new());
        let stop = Arc::new(Event::new());
        let (link, mailbox) = mailbox(Arc::clone(&stop));
        group.waiter = Waiter::new(group.config.timing, Arc::clone(&mailbox.bell));
        group.mailbox = mailbox;
        let thread = crate::os::thread::spawn("sampler", move || group.run()).unwrap();
        assert_eq!(link.hand_over(), Some(()));
        let (change, _latencies) = change(vec![ready(source(&rig.metrics, 0, MS))]);
        assert!(link.change(Box::new(change)).is_some());
        while rig.metrics.sources.get(0).unwrap().begun.get() < 5 {
            std::thread::yield_now();
        }
        stop.set();
        link.ring();
        thread.join().unwrap();
        assert_eq!(link.hand_over(), None, "nobody is there any more");
    }
}
