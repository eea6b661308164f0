//! One thread: sleeps until a source is due, reads it, builds its frame in the open slab, and hands slabs over.
//!
//! Two clock reads a sample, before and after the reading; everything else that needs a time uses one of them.

use std::io;
use std::sync::Arc;

use super::budget::{Budget, Change, Cost, Overhead, ProcessorTime, Verdict};
use super::change::{Pending, ReadySource};
use super::errand::{Errand, Made, News};
use super::mailbox::Mailbox;
use super::privileges;
use super::sampler::{Opened, ReadError};
use super::schedule::{Due, Schedule};
use super::wait::Waiter;
use crate::config::{self, GroupName};
use crate::frame::{Builders, ENVELOPE_BYTES, Envelope, Shortfall, Stamp};
use crate::metrics::{GroupLatencies, Metrics, Producer, SourceMetrics};
use crate::os::clock::{NS_PER_S, WallOffset, monotonic_ns, thread_cpu_ns};
use crate::os::event::{Event, Woken};
use crate::slab::{Causes, HandOver, Reading};

/// One build of a source in this many is timed: two clock reads cost more than a small build.
const BUILD_TIMED_EVERY: u64 = 64;
/// How often a group looks whether an errand is back. The reading has its own times; only its hand-over waits.
const ERRAND_LOOK_NS: u64 = 10_000_000;
/// How long the end of a run, or of a source, waits for what is still being read: most of it is back by then and is recorded.
pub(super) const ERRANDS_END_NS: u64 = NS_PER_S;
/// How long it waits after that for programs that it has killed.
const ERRANDS_KILLED_NS: u64 = NS_PER_S / 10;
/// How often it looks meanwhile.
const ERRANDS_END_LOOK_NS: u64 = 1_000_000;
/// How often latencies are handed to the recorder.
const PUBLISH_INTERVAL_NS: u64 = NS_PER_S;
/// A group without sources waits for a word, and looks around this often.
const IDLE_NS: u64 = 3600 * NS_PER_S;

/// A source of a group, opened.
#[derive(Debug)]
pub struct GroupSource {
    /// Its id.
    pub id: u16,
    /// Its period, in nanoseconds.
    pub period_ns: u64,
    /// Most of a core that it may take, in hundredths of a percent.
    pub budget: u32,
    /// Its way from the kernel to a payload.
    pub sampler: Opened,
    /// For a source that may be held up: how long a reading may take, in nanoseconds. It then has a thread of its own, which
    /// bears this name.
    pub errand: Option<(String, u64)>,
    /// Its counters.
    pub metrics: Arc<SourceMetrics>,
}

/// What a group works with. Shared things are shared with the recorder and the daemon.
#[derive(Debug)]
pub struct GroupSettings {
    /// What it samples.
    pub sources: Vec<GroupSource>,
    /// Its name.
    pub name: GroupName,
    /// How punctually it is woken, before whom it runs, and where.
    pub config: config::Group,
    /// When the first ticks are due, in monotonic nanoseconds.
    pub start_ns: u64,
    /// What is added to monotonic time to get wall time.
    pub wall_offset: Arc<WallOffset>,
    /// Where frames go.
    pub hand_over: HandOver,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Latencies, on their way to the recorder.
    pub latencies: Producer<GroupLatencies>,
    /// Says what else it is to do, and when to end.
    pub mailbox: Mailbox,
}

/// A sampler group at work.
#[derive(Debug)]
pub struct Group {
    pub(super) name: GroupName,
    pub(super) config: config::Group,
    pub(super) sources: Vec<ActiveSource>,
    pub(super) schedule: Schedule,
    pub(super) start_ns: u64, // of the grid that all ticks lie on
    pub(super) mailbox: Mailbox,
    pub(super) waiter: Waiter,
    builders: Builders,
    wall_offset: Arc<WallOffset>,
    pub(super) hand_over: HandOver,
    metrics: Arc<Metrics>,
    pub(super) latencies: Producer<GroupLatencies>,
    publish_ns: u64,
    processor_time: ProcessorTime,
    overhead: Overhead,
    pub(super) pending: Option<Pending>, // said, and not made yet
    pub(super) has_errands: bool,        // whether any source is read by a thread of its own
    pub(super) is_held_back: bool,       // whether the agent's budget keeps any source from being read
}

#[derive(Debug)]
pub(super) struct ActiveSource {
    pub(super) way: Way,
    pub(super) envelope: Envelope,
    pub(super) metrics: Arc<SourceMetrics>,
    pub(super) model: Box<[u8]>, // a whole frame's payload, where those have one shape; else empty
    pub(super) next_seq: u64,
    pub(super) payload_bytes: usize, // of its last payload: tells the size class of the next
    pub(super) builds: u64,
    pub(super) build_ns: u64, // as last timed
    pub(super) budget: Budget,
}

impl ActiveSource {
    pub(super) fn id(&self) -> u16 {
        self.envelope.source()
    }
}

/// How a source is read.
#[derive(Debug)]
pub(super) enum Way {
    /// By the group's own thread.
    Here(Opened),
    /// By a thread of its own, since it may be held up.
    Errand(Errand),
}

impl Group {
    /// A group that is ready to run.
    ///
    /// # Errors
    /// The kernel refuses a thread for a source that needs one.
    pub fn new(settings: GroupSettings) -> io::Result<Self> {
        let GroupSettings {
            name,
            config,
            sources,
            start_ns,
            wall_offset,
            hand_over,
            metrics,
            latencies,
            mailbox,
        } = settings;
        let schedule = Schedule::new(sources.iter().map(|source| source.period_ns), start_ns);
        let active =
            |source: GroupSource| ReadySource::new(source, &config.cpus, start_ns).map(|ready| ready.source);
        let has_errands = sources.iter().any(|source| source.errand.is_some());
        Ok(Self {
            name,
            has_errands,
            pending: None,
            is_held_back: false,
            schedule,
            sources: sources.into_iter().map(active).collect::<io::Result<_>>()?,
            waiter: Waiter::new(config.timing, Arc::clone(&mailbox.bell)),
            mailbox,
            start_ns,
            config,
            builders: Builders::default(),
            wall_offset,
            hand_over,
            metrics,
            latencies,
            publish_ns: start_ns + PUBLISH_INTERVAL_NS,
            processor_time: ProcessorTime::default(),
            overhead: Overhead::default(),
        })
    }

    /// Samples until it is told to end; then hands over what it has and drops its sender.
    pub fn run(mut self) {
        privileges::ask(self.name, &self.config);
        let mut now = 0;
        loop {
            let next = self.schedule.next_ns().unwrap_or(now + IDLE_NS);
            let next = if self.has_errand_out() { next.min(now + ERRAND_LOOK_NS) } else { next };
            let next = if self.is_held_back { next.min(now + PUBLISH_INTERVAL_NS) } else { next };
            if self.waiter.until(next, now) == Woken::Set {
                if !self.listen() {
                    break;
                }
                // What has become due meanwhile is served at once.
                now = monotonic_ns();
                continue;
            }
            now = self.tick();
        }
        let end = monotonic_ns();
        self.await_errands(end + ERRANDS_END_NS);
        for source in &self.sources {
            if let Way::Errand(errand) = &source.way {
                errand.cut_short();
            }
        }
        self.await_errands(monotonic_ns() + ERRANDS_KILLED_NS);
        self.abandon_errands();
        for (source, unserved) in self.sources.iter().zip(self.schedule.unserved(end)) {
            source.metrics.missed.add(unserved);
        }
        // Before the sender goes: the recorder collects for the last time when it is gone.
        self.latencies.finish();
        self.hand_over.finish(monotonic_ns());
    }

    /// Makes the reading that is due, if there is one, and takes what errands have brought. Returns the time.
    pub fn tick(&mut self) -> u64 {
        let begin = monotonic_ns();
        let mut end = begin;
        if self.has_errand_out() {
            // One that is back can go again.
            self.look_at_errands();
        }
        if let Some(due) = self.schedule.take_due(begin) {
            end = self.sample(due, begin);
        }
        if self.has_errand_out() {
            end = self.look_at_errands();
        }
        let next = self.schedule.next_ns().unwrap_or(u64::MAX);
        if self.hand_over.is_due(end, next) {
            let begin = monotonic_ns();
            self.hand_over.hand_over(begin);
            self.latencies.current().hand_over.record(monotonic_ns() - begin);
        }
        if end >= self.publish_ns {
            self.publish_ns = end + PUBLISH_INTERVAL_NS;
            self.latencies.publish();
            self.overhead.settle(thread_cpu_ns());
            if self.is_held_back {
                self.look_at_cap(end);
            }
        }
        end
    }

    /// Makes a reading and its frame, or sends for one. Returns the time.
    #[inline]
    fn sample(&mut self, due: Due, begin: u64) -> u64 {
        let Some(source) = self.sources.get_mut(due.index) else { return begin };
        let Way::Here(sampler) = &mut source.way else {
            self.send(due, begin);
            return begin;
        };
        let reading = Reading {
            source: source.envelope.source(),
            seq: source.next_seq,
            mono_ns: begin,
            wall_offset_ns: self.wall_offset.get(),
        };
        source.next_seq += 1;
        self.hand_over.begin(reading.source, reading.seq);
        source.metrics.begun.set(source.next_seq);
        if due.missed > 0 {
            source.metrics.missed.add(due.missed);
        }
        let result = sampler.read();
        let end = monotonic_ns();
        if let Some(latencies) = self.latencies.current().sources.get_mut(due.index) {
            latencies.lateness.record(due.lateness_ns);
            latencies.read_duration.record(end - begin);
        }
        let cost_ns = self.processor_time.cost(begin, end, thread_cpu_ns);
        self.charge(due.index, end, (cost_ns, true));
        match result {
            Ok(()) => self.frame(due.index, &reading, end),
            Err(failure) => self.fail(due.index, &reading, &failure),
        }
        end
    }

    /// Sends for a reading, unless the one before it is still being made, or was the last one: then this tick is not begun.
    #[cold]
    fn send(&mut self, due: Due, begin: u64) {
        let Some(source) = self.sources.get_mut(due.index) else { return };
        let Way::Errand(errand) = &mut source.way else { return };
        let metrics = &source.metrics;
        if !errand.is_ready() {
            metrics.missed.add(due.missed + 1);
            return;
        }
        let reading = Reading {
            source: source.envelope.source(),
            seq: source.next_seq,
            mono_ns: begin,
            wall_offset_ns: self.wall_offset.get(),
        };
        source.next_seq += 1;
        self.hand_over.begin(reading.source, reading.seq);
        metrics.begun.set(source.next_seq);
        metrics.missed.add(due.missed);
        if let Some(latencies) = self.latencies.current().sources.get_mut(due.index) {
            latencies.lateness.record(due.lateness_ns);
        }
        if !errand.send(reading) {
            // Its thread has ended, which only a mistake of ours can bring about.
            self.hand_over.lose(reading, Causes::READ_FAILED);
        }
    }

    /// What a reading has cost of a core, in nanoseconds, and whether on this thread, goes to its budget.
    #[inline]
    fn charge(&mut self, index: usize, now_ns: u64, (cost_ns, is_here): (u64, bool)) {
        let Some(source) = self.sources.get_mut(index) else { return };
        let own_ns = cost_ns + source.build_ns;
        let around_ns = self.overhead.share(if is_here { own_ns } else { source.build_ns });
        let cost = Cost { own_ns, all_ns: own_ns + around_ns };
        source.metrics.spent.add(cost.all_ns);
        if let Some(verdict) = source.budget.spend(now_ns, cost, cap(&self.metrics)) {
            self.obey(index, now_ns, verdict);
        }
    }

    /// Reads a source as often as its budget says from now on.
    #[cold]
    fn obey(&mut self, index: usize, now_ns: u64, Verdict { change, demand }: Verdict) {
        let Some(source) = self.sources.get(index) else { return };
        let metrics = &source.metrics;
        metrics.demand.set(demand);
        if let Some(Change { stride, limit }) = change {
            self.schedule.set_stride(index, stride, now_ns);
            metrics.set_pace(stride, limit);
            self.is_held_back = self.sources.iter().any(|source| source.budget.is_held_back());
        }
    }

    /// What the agent's budget took comes back when there is room again, and not only when the source is read next: that may be hours
    /// away.
    #[cold]
    fn look_at_cap(&mut self, now_ns: u64) {
        let cap = cap(&self.metrics);
        for index in 0..self.sources.len() {
            let verdict = self.sources.get_mut(index).and_then(|source| source.budget.allow(now_ns, cap));
            if let Some(verdict) = verdict {
                self.obey(index, now_ns, verdict);
            }
        }
    }

    /// Writes down a reading that failed.
    #[cold]
    fn fail(&mut self, index: usize, reading: &Reading, failure: &ReadError) {
        if let Some(source) = self.sources.get(index) {
            source.metrics.note_failure(&failure.error);
        }
        self.hand_over.lose(*reading, Causes::READ_FAILED);
    }

    /// Makes the frame of a reading that ended at `end_ns`.
    #[allow(clippy::inline_always, reason = "a call that passes a reading costs a tenth of a small sample")]
    #[inline(always)]
    fn frame(&mut self, index: usize, reading: &Reading, end_ns: u64) {
        let Some(source) = self.sources.get_mut(index) else { return };
        let sampler = match &mut source.way {
            Way::Here(sampler) => Some(sampler),
            Way::Errand(errand) => errand.sampler(),
        };
        let is_timed = source.builds.is_multiple_of(BUILD_TIMED_EVERY);
        source.builds = source.builds.wrapping_add(1);
        let now_if_timed = || if is_timed { monotonic_ns() } else { 0 };
        let build_begin = now_if_timed();
        let mut build_end = 0;
        let mut stamp = Stamp {
            mono_ns: reading.mono_ns,
            wall_ns: reading.wall_offset_ns.wrapping_add_unsigned(reading.mono_ns),
            seq: reading.seq,
            shortfall: Shortfall::NONE,
            duration_ns: u32::try_from(end_ns - reading.mono_ns).unwrap_or(u32::MAX),
        };
        match sampler {
            Some(Opened::Fixed(sampler)) => {
                self.hand_over.append(reading, source.model.len(), |frame| {
                    let (envelope, payload) = Envelope::copy(frame, &source.model);
                    stamp.shortfall = sampler.patch(reading.seq, payload);
                    build_end = now_if_timed();
                    source.envelope.stamp(envelope, &stamp);
                });
            }
            Some(Opened::Built(sampler)) => {
                let builder = self.builders.for_size(source.payload_bytes);
                stamp.shortfall = sampler.build(reading.seq, builder);
                build_end = now_if_timed();
                let payload = builder.finished_data();
                source.payload_bytes = payload.len();
                self.hand_over.append(reading, ENVELOPE_BYTES + payload.len(), |frame| {
                    source.envelope.write(frame, &stamp, payload);
                });
            }
            // It is back whenever there is a reading to make a frame of.
            None => self.hand_over.lose(*reading, Causes::READ_FAILED),
        }
        // Where it is 0 it was not timed, or found no room and was not built.
        if build_end > 0 {
            source.build_ns = self.processor_time.cost(build_begin, build_end, thread_cpu_ns);
            self.latencies.current().build.record(build_end - build_begin);
        }
        if !stamp.shortfall.is_none() {
            let metrics = &source.metrics;
            metrics.lacked.set(metrics.lacked.get() | u64::from(stamp.shortfall.flags()));
            metrics.partial.add(1);
        }
    }

    fn has_errand_out(&self) -> bool {
        self.has_errands
            && self.sources.iter().any(|source| matches!(&source.way, Way::Errand(errand) if errand.is_out()))
    }

    /// Takes what errands have brought, and makes the change that has waited for it. Returns the time.
    #[cold]
    fn look_at_errands(&mut self) -> u64 {
        let now = self.collect_errands();
        self.change_if_ready(now);
        now
    }

    /// Takes what errands have brought, and gives up those that take too long. Returns the time.
    #[cold]
    pub(super) fn collect_errands(&mut self) -> u64 {
        let now = monotonic_ns();
        for index in 0..self.sources.len() {
            let Some(source) = self.sources.get_mut(index) else { continue };
            let Way::Errand(errand) = &mut source.way else { continue };
            match errand.news(now) {
                News::None => {}
                News::Made(reading, Made { begin_ns, end_ns, cpu_ns, result }) => {
                    let reading = Reading { mono_ns: begin_ns, ..reading };
                    if let Some(latencies) = self.latencies.current().sources.get_mut(index) {
                        latencies.read_duration.record(end_ns - begin_ns);
                    }
                    self.charge(index, end_ns, (cpu_ns, false));
                    match result {
                        Ok(()) => self.frame(index, &reading, end_ns),
                        Err(failure) => self.fail(index, &reading, &failure),
                    }
                }
                News::TimedOut(reading) => {
                    source.metrics.timed_out.add(1);
                    self.hand_over.lose(reading, Causes::TIMED_OUT);
                }
            }
        }
        now
    }

    /// Takes what is still on its way when the run ends, as far as it is back before the deadline.
    fn await_errands(&mut self, deadline_ns: u64) {
        let never = Event::new();
        let mut now = 0;
        while now < deadline_ns
            && self
                .sources
                .iter()
                .any(|source| matches!(&source.way, Way::Errand(errand) if errand.is_awaited()))
        {
            now = self.collect_errands();
            never.wait_until(now + ERRANDS_END_LOOK_NS);
        }
    }

    /// What does not come back was begun, and is lost.
    fn abandon_errands(&mut self) {
        for source in &mut self.sources {
            if let Way::Errand(errand) = &mut source.way
                && let Some(reading) = errand.abandon()
            {
                source.metrics.timed_out.add(1);
                self.hand_over.lose(reading, Causes::TIMED_OUT);
            }
        }
    }
}

/// What the agent leaves each source, in nanoseconds of a core a second.
#[inline]
fn cap(metrics: &Metrics) -> u64 {
    match metrics.source_cap.get() {
        0 => u64::MAX,
        cap => cap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::metrics::{SourceMetrics, exchange};
    use crate::os::thread;
    use crate::sampling::sources::synthetic::Synthetic;
    use crate::slab::{Arena, Geometry, HandOverSettings, LossLedger, OnFull, SlabPool, slab_queue};
    use crate::stream::ChecksumKind;

    const PERIOD_NS: u64 = 10_000_000;

    /// A group of one source, and the counters and the event that it shares.
    fn group() -> (Group, Arc<Metrics>, Arc<Event>) {
        let metrics = [SourceMetrics::new("synthetic".to_owned(), PERIOD_NS)];
        let metrics = Arc::new(Metrics::new(metrics, 1, Box::default()));
        let geometry =
            Geometry { sources: 1, slabs: 8, slab_bytes: 4096, large_slabs: 1, large_slab_bytes: 8192 };
        let arena = Arena::anonymous(geometry).unwrap();
        let stop = Arc::new(Event::new());
        let hand_over = HandOver::new(HandOverSettings {
            begun: arena.begun(),
            pool: Arc::new(SlabPool::new(arena)),
            queue: slab_queue(4, OnFull::DropOldest).0,
            ledger: Arc::new(LossLedger::new(1)),
            wake: Arc::default(),
            checksum: ChecksumKind::None,
            frame_max: 4000,
            interval_ns: NS_PER_S,
            sources: 1,
            metrics: Arc::default(),
            stop: Arc::clone(&stop),
        });
        let source = GroupSource {
            id: 0,
            period_ns: PERIOD_NS,
            budget: 10_000,
            sampler: Opened::fixed(Synthetic::point(1)),
            errand: None,
            metrics: Arc::clone(metrics.sources.get(0).unwrap()),
        };
        let group = Group::new(GroupSettings {
            sources: vec![source],
            name: GroupName::Fast,
            config: Config::default().groups.fast,
            start_ns: monotonic_ns(),
            wall_offset: Arc::default(),
            hand_over,
            metrics: Arc::clone(&metrics),
            latencies: exchange(|| GroupLatencies::new([0])).0,
            mailbox: Mailbox::silent(Arc::clone(&stop)),
        });
        (group.unwrap(), metrics, stop)
    }

    fn eventually(what: &str, is_so: impl Fn() -> bool) {
        let (never, deadline_ns) = (Event::new(), monotonic_ns() + 60 * NS_PER_S);
        while !is_so() {
            assert!(monotonic_ns() < deadline_ns, "{what}: not within a minute");
            never.wait_until(monotonic_ns() + 1_000_000);
        }
    }

    // Goal: a source from which the agent's budget took everything is read again as soon as that comes back, not after the 100 s
    // that its longest stride takes. Method: a group at work; the least cap, and none again.
    #[test]
    fn what_the_agent_gives_back_is_taken_at_once() {
        let (group, metrics, stop) = group();
        let sampler = thread::spawn("sampler", move || group.run()).unwrap();
        let source = metrics.sources.get(0).unwrap();
        eventually("a cost that is known", || source.demand.get() > 0);
        metrics.source_cap.set(1);
        eventually("the longest stride", || source.stride() > 1000);
        // The tick that was planned before it goes by, and the group sleeps.
        Event::new().wait_until(monotonic_ns() + 20 * PERIOD_NS);
        let begun = source.begun.get();
        metrics.source_cap.set(0);
        eventually("readings", || source.begun.get() > begun + 10);
        assert_eq!(source.stride(), 1);
        stop.set();
        sampler.join().unwrap();
    }
}
