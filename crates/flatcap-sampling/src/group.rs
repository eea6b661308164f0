//! The thread of one group. The thread sleeps until a source is due, reads the source, builds the
//! frame of the sample in the open slab, and queues slabs for the recorder.
//!
//! The thread reads the clock twice per sample, before and after it reads the source. All other
//! code that needs a time uses the result of one of these two clock reads.

use std::io;
use std::sync::Arc;

use crossbeam_channel::Sender;
use flatcap_format::frame::{Builders, ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_metrics::{GroupLatencies, LimitingBudget, Metrics, Producer};
use flatcap_os::clock::{NS_PER_S, WallOffset, monotonic_ns, thread_cpu_ns};
use flatcap_os::wake_event::{WakeEvent, WakeReason};
use flatcap_slab::{Causes, SampleMeta, SlabProducer};

use super::budget::{BudgetDecision, CpuMeter, Overhead, SampleCost, StrideChange};
use super::group_command::{CommandReceiver, GroupCommand, ReceivedCommand};
use super::group_source::{ActiveSource, GroupSource, ReadMode, ReadySource};
use super::group_update::{GroupUpdate, PendingUpdate, RetiredSources, UpdatedSources};
use super::offloaded_read::{OffloadedRead, ReadOutcome, ReadPoll};
use super::privileges;
use super::realtime_guard::RealtimeGuard;
use super::sampler::{OpenedSampler, ReadError};
use super::schedule::{Due, Schedule};
use super::thread_settings::{GroupName, ThreadSettings};
use super::wait::Waiter;

/// The group times one of this many payload builds per source, because two clock reads take longer
/// than a small build.
const BUILD_TIMED_EVERY: u64 = 64;
/// Poll interval for offloaded reads. Polling delays only the frame of a sample. The times in the
/// sample are the times of the read.
const OFFLOADED_POLL_NS: u64 = 10_000_000;
/// Maximum time that the group waits for reads in flight when a run ends or a source is removed.
/// Most reads return within this time, so their samples are recorded.
pub(super) const OFFLOADED_END_NS: u64 = NS_PER_S;
/// Maximum additional wait for commands that the group has killed after `OFFLOADED_END_NS`.
const OFFLOADED_KILL_NS: u64 = NS_PER_S / 10;
/// Poll interval while the group waits for reads in flight or for killed commands.
const OFFLOADED_END_POLL_NS: u64 = 1_000_000;
/// Interval at which latencies are made visible to the recorder.
const PUBLISH_INTERVAL_NS: u64 = NS_PER_S;
/// Poll interval of a group that has no sources and therefore waits only for commands.
const IDLE_NS: u64 = 3600 * NS_PER_S;

/// The parts from which a group is created. The `Arc`s are shared with the recorder and the daemon.
#[derive(Debug)]
pub struct GroupSettings {
    /// The sources that the group samples.
    pub sources: Vec<GroupSource>,
    /// The name of the group.
    pub name: GroupName,
    /// The timing, priority and CPUs of the group's thread.
    pub thread: ThreadSettings,
    /// Time of the first tick of each source, in monotonic nanoseconds.
    pub start_ns: u64,
    /// The offset from monotonic to wall time.
    pub wall_offset: Arc<WallOffset>,
    /// The producer's side of the slab queue.
    pub producer: SlabProducer,
    /// The counters that the group updates.
    pub metrics: Arc<Metrics>,
    /// Makes latencies visible to the recorder.
    pub latencies: Producer<GroupLatencies>,
    /// Receives commands and the request to stop.
    pub commands: CommandReceiver,
}

/// A sampler group.
#[derive(Debug)]
pub struct SamplerGroup {
    name: GroupName,
    pub(super) thread: ThreadSettings,
    sources: Vec<ActiveSource>,
    pub(super) schedule: Schedule,
    start_ns: u64, // the origin of the grid on which all ticks lie
    pub(super) commands: CommandReceiver,
    pub(super) waiter: Waiter,
    builders: Builders,
    wall_offset: Arc<WallOffset>,
    pub(super) producer: SlabProducer,
    metrics: Arc<Metrics>,
    latencies: Producer<GroupLatencies>,
    publish_ns: u64,
    cpu_meter: CpuMeter,
    overhead: Overhead,
    pub(super) pending: Option<PendingUpdate>, // received, and not yet applied
    has_offloaded: bool,                       // whether any source is read by a thread of its own
    is_limited: bool,                          // whether a budget limits any source
    realtime: Option<RealtimeGuard>,           // `None` without real-time priority
}

impl SamplerGroup {
    /// Creates a group that is ready to run.
    ///
    /// # Errors
    /// Fails if a source needs a separate thread and the kernel refuses to start it.
    pub fn new(settings: GroupSettings) -> io::Result<Self> {
        let GroupSettings {
            name,
            thread,
            sources,
            start_ns,
            wall_offset,
            producer: hand_over,
            metrics,
            latencies,
            commands,
        } = settings;
        let schedule = Schedule::new(sources.iter().map(|source| source.period_ns), start_ns);
        let active =
            |source: GroupSource| ReadySource::new(source, &thread.cpus, start_ns).map(|ready| ready.source);
        let has_offloaded = sources.iter().any(|source| source.offloaded.is_some());
        Ok(Self {
            name,
            has_offloaded,
            pending: None,
            is_limited: false,
            schedule,
            sources: sources.into_iter().map(active).collect::<io::Result<_>>()?,
            waiter: Waiter::new(thread.timing, Arc::clone(&commands.wake)),
            commands,
            start_ns,
            thread,
            builders: Builders::default(),
            wall_offset,
            producer: hand_over,
            metrics,
            latencies,
            publish_ns: start_ns + PUBLISH_INTERVAL_NS,
            cpu_meter: CpuMeter::default(),
            overhead: Overhead::default(),
            realtime: None,
        })
    }

    /// Samples until the group is stopped. Then queues the open slab and drops the sender of the
    /// queue.
    pub fn run(mut self) {
        let has_priority = privileges::apply(self.name, &self.thread);
        self.realtime = RealtimeGuard::begin(has_priority, &self.thread, self.producer.metrics());
        let mut now = 0;
        loop {
            let next = self.schedule.next_ns().unwrap_or(now + IDLE_NS);
            let next = if self.has_read_in_flight() { next.min(now + OFFLOADED_POLL_NS) } else { next };
            let next = if self.is_limited { next.min(now + PUBLISH_INTERVAL_NS) } else { next };
            if self.waiter.until(next, now) == WakeReason::Set {
                if !self.handle_command() {
                    break;
                }
                // A source that has become due during the last sample is served at once.
                now = monotonic_ns();
                continue;
            }
            now = self.tick();
        }
        let end = monotonic_ns();
        self.await_offloaded(end + OFFLOADED_END_NS);
        self.sources.iter().filter_map(ActiveSource::offloaded).for_each(OffloadedRead::interrupt);
        self.await_offloaded(monotonic_ns() + OFFLOADED_KILL_NS);
        self.abandon_offloaded();
        for (source, unserved) in self.sources.iter().zip(self.schedule.unserved(end)) {
            source.metrics.missed.add(unserved);
        }
        // The sender is dropped only after this call, because the recorder collects latencies one
        // last time after the sender was dropped.
        self.latencies.finish();
        self.producer.finish(monotonic_ns());
    }

    /// Takes the sample that is due, if there is one, and collects offloaded reads. Returns the
    /// time.
    // The function is inlined, because a call per sample in the loop of `run` takes 8 % of the
    // instructions of a small sample.
    #[inline]
    pub fn tick(&mut self) -> u64 {
        let begin = monotonic_ns();
        let mut end = begin;
        if self.has_read_in_flight() {
            // A source whose read has returned can be read again.
            self.poll_and_update();
        }
        if let Some(due) = self.schedule.take_due(begin) {
            end = self.take_sample(due, begin);
        }
        if self.has_read_in_flight() {
            end = self.poll_and_update();
        }
        let next = self.schedule.next_ns().unwrap_or(u64::MAX);
        if self.producer.is_due(end, next) {
            let begin = monotonic_ns();
            self.producer.queue_open_slab(begin);
            self.latencies.current().enqueue.record(monotonic_ns() - begin);
        }
        RealtimeGuard::check(self.realtime.as_mut(), end, self.thread.priority, self.producer.metrics());
        if end >= self.publish_ns {
            self.publish_ns = end + PUBLISH_INTERVAL_NS;
            self.latencies.publish();
            self.overhead.end_interval(thread_cpu_ns());
            for (source, passed) in self.sources.iter().zip(self.schedule.take_passed(end)) {
                source.metrics.missed.add(passed);
            }
            if self.is_limited {
                self.apply_cap(end);
            }
        }
        end
    }

    /// Takes a sample and builds its frame, or begins an offloaded read. Returns the time.
    #[inline]
    fn take_sample(&mut self, due: Due, begin: u64) -> u64 {
        let Some(source) = self.sources.get_mut(due.index) else { return begin };
        let ReadMode::Inline(sampler) = &mut source.read_mode else {
            self.begin_offloaded(due, begin);
            return begin;
        };
        let sample = SampleMeta {
            source: source.envelope.source(),
            seq: source.next_seq,
            mono_ns: begin,
            wall_offset_ns: self.wall_offset.get(),
        };
        source.next_seq += 1;
        self.producer.begin_sample(sample.source, sample.seq);
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
        let cost_ns = self.cpu_meter.cost(begin, end, thread_cpu_ns);
        self.charge(due.index, end, (cost_ns, true));
        match result {
            Ok(()) => self.build_frame(due.index, &sample, end),
            Err(failure) => self.record_failure(due.index, &sample, &failure),
        }
        end
    }

    /// Begins an offloaded read. The tick counts as missed if the previous read is still in flight
    /// or the source is retired.
    #[cold]
    fn begin_offloaded(&mut self, due: Due, begin: u64) {
        let Some(source) = self.sources.get_mut(due.index) else { return };
        let ReadMode::Offloaded(offloaded) = &mut source.read_mode else { return };
        let metrics = &source.metrics;
        if !offloaded.is_ready() {
            metrics.missed.add(due.missed + 1);
            return;
        }
        let sample = SampleMeta {
            source: source.envelope.source(),
            seq: source.next_seq,
            mono_ns: begin,
            wall_offset_ns: self.wall_offset.get(),
        };
        source.next_seq += 1;
        self.producer.begin_sample(sample.source, sample.seq);
        metrics.begun.set(source.next_seq);
        metrics.missed.add(due.missed);
        if let Some(latencies) = self.latencies.current().sources.get_mut(due.index) {
            latencies.lateness.record(due.lateness_ns);
        }
        if !offloaded.begin(sample) {
            // Only a bug in flatcap can end the thread.
            self.producer.lose(sample, Causes::ReadFailed);
        }
    }

    /// Charges the CPU time of a read, in nanoseconds, to the budget of its source. `is_inline` is
    /// true if the source was read on this thread.
    #[inline]
    fn charge(&mut self, index: usize, now_ns: u64, (cost_ns, is_inline): (u64, bool)) {
        let Some(source) = self.sources.get_mut(index) else { return };
        let own_ns = cost_ns + source.build_ns;
        let overhead_ns = self.overhead.share(if is_inline { own_ns } else { source.build_ns });
        let cost = SampleCost { own_ns, all_ns: own_ns + overhead_ns };
        source.metrics.spent.add(cost.all_ns);
        if let Some(verdict) = source.budget.spend(now_ns, cost, cap(&self.metrics)) {
            self.apply_decision(index, now_ns, verdict);
        }
    }

    /// Applies a budget decision. From now on, the source is read at the new stride.
    #[cold]
    fn apply_decision(
        &mut self,
        index: usize,
        now_ns: u64,
        BudgetDecision { change, demand }: BudgetDecision,
    ) {
        let Some(source) = self.sources.get(index) else { return };
        let metrics = &source.metrics;
        metrics.demand.set(demand);
        if let Some(StrideChange { stride, limit }) = change {
            self.schedule.set_stride(index, stride, now_ns);
            metrics.set_stride(stride, limit);
            self.is_limited = self.sources.iter().any(|source| source.metrics.stride() > 1);
        }
    }

    /// Applies a changed cap to all sources at once. The next read of a source, which would also
    /// apply the cap, may be hours away.
    #[cold]
    fn apply_cap(&mut self, now_ns: u64) {
        let cap = cap(&self.metrics);
        for index in 0..self.sources.len() {
            let decision = self.sources.get_mut(index).and_then(|source| source.budget.set_cap(now_ns, cap));
            if let Some(verdict) = decision {
                self.apply_decision(index, now_ns, verdict);
            }
        }
    }

    /// Records a failed read.
    #[cold]
    fn record_failure(&mut self, index: usize, sample: &SampleMeta, failure: &ReadError) {
        if let Some(source) = self.sources.get(index) {
            source.metrics.note_failure(&failure.error);
        }
        self.producer.lose(*sample, Causes::ReadFailed);
    }

    /// Builds the frame of a sample whose read ended at `end_ns`.
    #[allow(clippy::inline_always, reason = "a call that passes a sample costs a tenth of a small sample")]
    #[inline(always)]
    fn build_frame(&mut self, index: usize, sample: &SampleMeta, end_ns: u64) {
        let Some(source) = self.sources.get_mut(index) else { return };
        let sampler = match &mut source.read_mode {
            ReadMode::Inline(sampler) => Some(sampler),
            ReadMode::Offloaded(offloaded) => offloaded.sampler(),
        };
        let is_timed = source.builds.is_multiple_of(BUILD_TIMED_EVERY);
        source.builds = source.builds.wrapping_add(1);
        let now_if_timed = || if is_timed { monotonic_ns() } else { 0 };
        let build_begin = now_if_timed();
        let mut build_end = 0;
        let mut stamp = Stamp {
            mono_ns: sample.mono_ns,
            wall_ns: sample.wall_offset_ns.wrapping_add_unsigned(sample.mono_ns),
            seq: sample.seq,
            incomplete: Incomplete::NONE,
            duration_ns: u32::try_from(end_ns - sample.mono_ns).unwrap_or(u32::MAX),
        };
        match sampler {
            Some(OpenedSampler::Fixed(sampler)) => {
                self.producer.append(sample, source.template.len(), |frame| {
                    let (envelope, payload) = Envelope::copy(frame, &source.template);
                    stamp.incomplete = sampler.patch(sample.seq, payload);
                    build_end = now_if_timed();
                    source.envelope.stamp(envelope, &stamp);
                });
            }
            Some(OpenedSampler::Built(sampler)) => {
                let builder = self.builders.for_size(source.payload_bytes);
                stamp.incomplete = sampler.build(sample.seq, builder);
                build_end = now_if_timed();
                let payload = builder.finished_data();
                source.payload_bytes = payload.len();
                self.producer.append(sample, ENVELOPE_BYTES + payload.len(), |frame| {
                    source.envelope.write(frame, &stamp, payload);
                });
            }
            // This case cannot occur, because the sampler has been returned when its sample is
            // built.
            None => self.producer.lose(*sample, Causes::ReadFailed),
        }
        // The value 0 means that the build was not timed, or that no slab had space for the frame.
        if build_end > 0 {
            source.build_ns = self.cpu_meter.cost(build_begin, build_end, thread_cpu_ns);
            self.latencies.current().build.record(build_end - build_begin);
        }
        if !stamp.incomplete.is_none() {
            source.note_incomplete(stamp.incomplete);
        }
    }

    fn has_read_in_flight(&self) -> bool {
        self.has_offloaded && self.has_offloaded_read(OffloadedRead::is_in_flight)
    }

    fn has_offloaded_read(&self, is_so: fn(&OffloadedRead) -> bool) -> bool {
        self.sources.iter().filter_map(ActiveSource::offloaded).any(is_so)
    }

    /// Collects offloaded reads, and applies the pending update if it no longer has to wait for
    /// these reads. Returns the time.
    #[cold]
    fn poll_and_update(&mut self) -> u64 {
        let now = self.poll_offloaded();
        self.update_if_ready(now);
        now
    }

    /// Collects finished offloaded reads and gives up reads that have timed out. Returns the time.
    #[cold]
    fn poll_offloaded(&mut self) -> u64 {
        let now = monotonic_ns();
        for index in 0..self.sources.len() {
            let Some(source) = self.sources.get_mut(index) else { continue };
            let ReadMode::Offloaded(offloaded) = &mut source.read_mode else { continue };
            match offloaded.poll(now) {
                ReadPoll::Nothing => {}
                ReadPoll::Finished(reading, ReadOutcome { begin_ns, end_ns, cpu_ns, result }) => {
                    let sample = SampleMeta { mono_ns: begin_ns, ..reading };
                    if let Some(latencies) = self.latencies.current().sources.get_mut(index) {
                        latencies.read_duration.record(end_ns - begin_ns);
                    }
                    self.charge(index, end_ns, (cpu_ns, false));
                    match result {
                        Ok(()) => self.build_frame(index, &sample, end_ns),
                        Err(failure) => self.record_failure(index, &sample, &failure),
                    }
                }
                ReadPoll::TimedOut(reading) => {
                    source.metrics.timed_out.add(1);
                    self.producer.lose(reading, Causes::TimedOut);
                }
            }
        }
        now
    }

    /// At the end of the run, collects reads in flight until the deadline.
    fn await_offloaded(&mut self, deadline_ns: u64) {
        let never = WakeEvent::new();
        let mut now = 0;
        while now < deadline_ns && self.has_offloaded_read(OffloadedRead::is_awaited) {
            now = self.poll_offloaded();
            never.wait_until(now + OFFLOADED_END_POLL_NS);
        }
    }

    /// Counts reads that have not returned as lost.
    fn abandon_offloaded(&mut self) {
        for source in &mut self.sources {
            if let Some(reading) = source.abandon_read() {
                self.producer.lose(reading, Causes::TimedOut);
            }
        }
    }
}

impl SamplerGroup {
    /// Handles the command that woke the group. Returns false if the group must end.
    #[cold]
    fn handle_command(&mut self) -> bool {
        match self.commands.receive() {
            ReceivedCommand::Stop => return false,
            ReceivedCommand::Nothing => {}
            // The receiver of the reply may be gone, because the run ends.
            ReceivedCommand::Command(GroupCommand::Flush(reply)) => {
                self.producer.queue_open_slab(monotonic_ns());
                let _receiver_gone = reply.send(());
            }
            ReceivedCommand::Command(GroupCommand::Update(change, reply)) => self.begin_update(change, reply),
        }
        true
    }

    /// Stops reading sources that are removed or replaced, then applies the update once their
    /// pending reads have returned. There is at most one update at a time, because the caller waits
    /// for the reply.
    pub(super) fn begin_update(&mut self, update: Box<GroupUpdate>, reply: Sender<RetiredSources>) {
        for source in &mut self.sources {
            let stays = update.keeps(source.id());
            if let ReadMode::Offloaded(offloaded) = &mut source.read_mode
                && !stays
            {
                offloaded.retire();
            }
        }
        let now = self.poll_offloaded();
        self.pending = Some(PendingUpdate { update, reply, deadline_ns: now + OFFLOADED_END_NS });
        self.update_if_ready(now);
    }

    /// Applies the pending update, if there is one, as soon as no retired source is being read or
    /// the deadline has passed.
    fn update_if_ready(&mut self, now_ns: u64) {
        let is_waiting = self.has_offloaded_read(OffloadedRead::is_retiring);
        if let Some(ready) = self.pending.take_if(|pending| !is_waiting || now_ns >= pending.deadline_ns) {
            // The receiver of the reply may be gone, because the run ends.
            let _receiver_gone = ready.reply.send(self.apply_update(*ready.update));
        }
    }

    /// Applies the update. If a source is removed or its period changes, a tick of this source that
    /// is due but not served yet counts as missed. Such a tick of any other source is served next.
    pub(super) fn apply_update(&mut self, update: GroupUpdate) -> RetiredSources {
        let now = self.poll_offloaded();
        let GroupUpdate { sources, thread, on_full, latencies } = update;
        let before = std::mem::take(&mut self.sources);
        let UpdatedSources { active, ticks, reset_budgets, mut retired } =
            UpdatedSources::new(before, sources, &self.schedule, (now, self.start_ns));
        self.sources = active;
        self.retire(&mut retired, now);
        self.schedule.set_ticks(ticks);
        for place in reset_budgets {
            self.schedule.set_stride(place, 1, now);
            if let Some(source) = self.sources.get(place) {
                source.metrics.demand.set(0);
                source.metrics.set_stride(1, LimitingBudget::Source);
            }
        }
        self.has_offloaded = self.sources.iter().any(|source| source.offloaded().is_some());
        self.is_limited = self.sources.iter().any(|source| source.metrics.stride() > 1);
        std::mem::replace(&mut self.latencies, latencies).finish();
        self.producer.set_on_full(on_full);
        let before = std::mem::replace(&mut self.thread, thread);
        if before != self.thread {
            self.waiter.set_timing(self.thread.timing);
            let has_priority = privileges::change(self.name, &before, &self.thread);
            self.realtime = RealtimeGuard::begin(has_priority, &self.thread, self.producer.metrics());
        }
        RetiredSources(retired)
    }

    /// Retires sources while the group continues. If a read is still in flight, its sample is lost,
    /// because the time for waiting has passed. A command that this read waits for is killed.
    fn retire(&mut self, sources: &mut [ActiveSource], now_ns: u64) {
        for source in &mut *sources {
            source.offloaded().inspect(|offloaded| offloaded.interrupt());
            if let Some(reading) = source.abandon_read() {
                self.producer.lose(reading, Causes::TimedOut);
            }
            self.producer.flush_loss(source.id());
        }
        if !sources.is_empty() {
            self.producer.queue_open_slab(now_ns);
        }
    }
}

/// Returns the current cap per source, which follows from the recorder's budget, in nanoseconds of
/// a core per second.
#[inline]
fn cap(metrics: &Metrics) -> u64 {
    match metrics.source_cap.get() {
        0 => u64::MAX,
        cap => cap,
    }
}

#[cfg(test)]
mod tests {
    use flatcap_metrics::{SourceMetrics, exchange};
    use flatcap_os::thread;
    use flatcap_slab::{Arena, Geometry, LossLedger, OnFull, SlabPool, SlabProducerSettings, slab_queue};
    use flatcap_stream::ChecksumKind;

    use super::*;
    use crate::sources::synthetic::SyntheticSampler;
    use crate::test_settings::fast_thread;

    const PERIOD_NS: u64 = 10_000_000;

    /// Creates a group of one source, and the counters and the stop event that the group shares.
    fn group() -> (SamplerGroup, Arc<Metrics>, Arc<WakeEvent>) {
        let metrics = [SourceMetrics::new("synthetic".to_owned(), PERIOD_NS)];
        let metrics = Arc::new(Metrics::new(metrics, 1, Box::default()));
        let geometry =
            Geometry { sources: 1, slabs: 8, slab_bytes: 4096, large_slabs: 1, large_slab_bytes: 8192 };
        let arena = Arena::anonymous(geometry).unwrap();
        let stop = Arc::new(WakeEvent::new());
        let producer = SlabProducer::new(SlabProducerSettings {
            sequence_counters: arena.sequence_counters(),
            pool: Arc::new(SlabPool::new(arena)),
            queue: slab_queue(4, OnFull::DropOldest).0,
            ledger: Arc::new(LossLedger::new(1)),
            wake: Arc::default(),
            checksum: ChecksumKind::None,
            frame_max: 4000,
            flush_interval_ns: NS_PER_S,
            sources: 1,
            metrics: Arc::default(),
            stop: Arc::clone(&stop),
        });
        let source = GroupSource {
            id: 0,
            period_ns: PERIOD_NS,
            budget: 10_000,
            sampler: OpenedSampler::fixed(SyntheticSampler::point(1)),
            offloaded: None,
            metrics: Arc::clone(metrics.sources.get(0).unwrap()),
        };
        let group = SamplerGroup::new(GroupSettings {
            sources: vec![source],
            name: GroupName::Fast,
            thread: fast_thread(),
            start_ns: monotonic_ns(),
            wall_offset: Arc::default(),
            producer,
            metrics: Arc::clone(&metrics),
            latencies: exchange(|| GroupLatencies::new([0])).0,
            commands: CommandReceiver::stop_only(Arc::clone(&stop)),
        });
        (group.unwrap(), metrics, stop)
    }

    fn eventually(what: &str, is_so: impl Fn() -> bool) {
        let (never, deadline_ns) = (WakeEvent::new(), monotonic_ns() + 60 * NS_PER_S);
        while !is_so() {
            assert!(monotonic_ns() < deadline_ns, "{what}: not within a minute");
            never.wait_until(monotonic_ns() + 1_000_000);
        }
    }

    // Proves that a source that was stopped by the recorder's budget is read again as soon as the
    // cap is lifted. The source does not wait for the 100 s of its longest stride.
    #[test]
    fn a_lifted_cap_applies_at_once() {
        let (group, metrics, stop) = group();
        let sampler = thread::spawn("sampler", move || group.run()).unwrap();
        let source = metrics.sources.get(0).unwrap();
        eventually("a known cost", || source.demand.get() > 0);
        metrics.source_cap.set(1);
        eventually("the longest stride", || source.stride() > 1000);
        // Waits until the previously planned tick has passed, so that the group sleeps.
        WakeEvent::new().wait_until(monotonic_ns() + 20 * PERIOD_NS);
        let begun = source.begun.get();
        metrics.source_cap.set(0);
        eventually("samples", || source.begun.get() > begun + 10);
        assert_eq!(source.stride(), 1);
        stop.set();
        sampler.join().unwrap();
    }
}
