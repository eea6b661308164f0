//! The drain loop takes queued slabs and writes them in one call. After the write, the loop rotates
//! segments, syncs, collects latencies and sleeps. The loop also measures the maximum fill level
//! (high watermark) of the queues.

use std::io::{self, IoSlice};
use std::sync::Arc;

use flatcap_format::segment::{Frames, Gap, SampleSpan, SegmentWriter};
use flatcap_metrics::Metrics;
use flatcap_os::clock::{monotonic_ns, thread_cpu_ns};
use flatcap_os::wake_event::WakeEvent;
use flatcap_slab::{Causes, Inbox, Loss, SampleRange, Slab, SlabPool, TryRecvError};

use super::command_execution;
use super::commands::CommandQueue;
use super::gap_tracker::{GapBuffers, GapTracker};
use super::latencies::LatencyAggregator;
use super::maintenance::Maintenance;
use super::policy::SyncPolicy;
use super::rule_watch::RuleWatch;
use super::segment_slot::{OpenSegment, SegmentSlot, call_storage};
use super::settings::RecorderSettings;
use super::syncer::SyncerResult;
use super::thinner::{SourceThinning, Thinner};
use super::{RecorderReport, SourceReport};

/// Maximum number of slabs in one write. With the smallest slabs (16 KiB), such a write has 256
/// KiB.
const BATCH_SLABS_MAX: usize = 16;

/// The recorder. The recorder opens its first segment before the first sample is taken.
#[derive(Debug)]
pub struct Recorder {
    pub(super) slot: SegmentSlot,
    pub(super) maintenance: Maintenance,
    commands: CommandQueue,
    rules: RuleWatch,
    inbox: Inbox,
    taken_until_ns: u64, // all slabs queued before this were taken
    pool: Arc<SlabPool>,
    wake: Arc<WakeEvent>,
    buffers: GapBuffers,
    thinner: Option<Thinner>, // of a ring: passes on samples to the recorder of the data directory
    sampled: Option<Arc<Metrics>>, // of a ring: the run's, which the samplers count in
    has_pushed: bool,         // applications have pushed sources
}

/// The state of the queues after a batch was taken from them.
#[derive(Debug, PartialEq, Eq)]
enum PollResult {
    More,
    Empty,
    Ended,
}

#[allow(clippy::vec_box, reason = "slabs travel boxed through the queue and back to the pool")]
impl Recorder {
    /// Opens the first segment, with a higher number than any segment that the directory ever had,
    /// and starts the syncer.
    ///
    /// # Errors
    /// Errors of the storage. If there is an error, the run does not start.
    pub fn start(settings: RecorderSettings) -> io::Result<Self> {
        let RecorderSettings {
            plan,
            storage,
            inbox,
            pool,
            ledger,
            wake,
            metrics,
            latencies,
            clock_watch,
            wall_offset,
            commands: orders,
            rules,
            ring,
        } = settings;
        let (thinner, sampled) = ring.map(|ring| (ring.thinner, ring.sampled)).unzip();
        // The counters of the run are used, even if this recorder writes the ring.
        let counters = Arc::clone(sampled.as_ref().unwrap_or(&metrics));
        let rules = RuleWatch::new(rules, counters, plan.header.sources.len());
        let buffers = GapBuffers::new(plan.batch_slabs.clamp(1, BATCH_SLABS_MAX), metrics.sources.len());
        let latencies = LatencyAggregator::new(latencies, Arc::clone(&metrics));
        let gaps = GapTracker::new(ledger, Arc::clone(&metrics));
        Ok(Self {
            slot: SegmentSlot::start((plan, thinner.is_some()), storage, latencies, gaps, metrics)?,
            maintenance: Maintenance::new(Arc::clone(&pool), clock_watch, wall_offset),
            commands: orders,
            rules,
            inbox,
            taken_until_ns: 0,
            pool,
            wake,
            buffers,
            thinner,
            sampled,
            has_pushed: false,
        })
    }

    /// Records until every sampler has dropped its sender and the queues are empty. Then seals the
    /// segment and returns the report.
    pub fn run(mut self) -> RecorderReport {
        let mut batch = Vec::with_capacity(BATCH_SLABS_MAX);
        loop {
            // Shows the watchdog that the loop is running.
            self.slot.metrics.recorder.iterations.add(1);
            let queued = self.take_batch(&mut batch);
            self.take_sources();
            if !batch.is_empty() {
                let pushed = self.pushed_part(&batch);
                let began_ns = if pushed.is_some() { thread_cpu_ns() } else { 0 };
                self.record(&mut batch);
                if let Some((bytes, all)) = pushed {
                    self.count_pushed(began_ns, (bytes, all));
                }
            }
            let now = monotonic_ns();
            self.copy_sampled_counts();
            self.maintain(now);
            self.run_commands(self.taken_until_ns);
            if let Some(thinner) = &mut self.thinner {
                thinner.flush(now, false);
            }
            match queued {
                PollResult::More => {}
                PollResult::Ended => return self.finish(),
                PollResult::Empty => {
                    self.let_time_pass();
                    self.wake.wait_until(now + self.slot.plan.poll_interval_ns);
                    self.wake.clear();
                }
            }
        }
    }

    /// Does the maintenance work that is due and does not depend on queued slabs.
    pub(super) fn maintain(&mut self, now: u64) {
        self.maintenance.run(&mut self.slot, now);
    }

    /// Executes the waiting commands. The caller must have taken and written all slabs that were
    /// queued before `taken_ns`.
    pub(super) fn run_commands(&mut self, taken_ns: u64) {
        command_execution::run(
            &mut self.commands,
            &mut self.slot,
            &mut self.rules,
            taken_ns,
            self.thinner.as_mut(),
        );
        self.rules.report(&mut self.slot);
    }

    /// Copies the counts of the samplers to the metrics of a ring, because the footers of the
    /// ring's segments contain these metrics.
    fn copy_sampled_counts(&self) {
        let Some(sampled) = &self.sampled else { return };
        for (to, from) in self.slot.metrics.sources.iter().zip(sampled.sources.iter()) {
            to.begun.set(from.begun.get());
            to.missed.set(from.missed.get());
            to.incomplete.set(from.incomplete.get());
            to.removed.set(from.removed.get());
        }
    }

    fn take_batch(&mut self, batch: &mut Vec<Box<Slab>>) -> PollResult {
        let now = monotonic_ns();
        self.maintenance.queued_max = self.maintenance.queued_max.max(self.inbox.len());
        while batch.len() < self.slot.plan.batch_slabs.clamp(1, BATCH_SLABS_MAX) {
            match self.inbox.try_recv() {
                Ok(slab) => {
                    self.slot.latencies.queue_wait.record(now.saturating_sub(slab.queued_ns));
                    // Slabs are taken in the order in which they were queued, so all slabs up to
                    // this time were taken.
                    self.taken_until_ns = slab.queued_ns;
                    batch.push(slab);
                }
                Err(error) => {
                    // If the poll skipped a queue for the moment, that queue may still contain
                    // slabs.
                    self.taken_until_ns = if self.inbox.is_empty() { now } else { self.taken_until_ns };
                    return if error == TryRecvError::Empty { PollResult::Empty } else { PollResult::Ended };
                }
            }
        }
        PollResult::More
    }

    /// Returns the number of pushed bytes and the number of all bytes in a batch, or `None` if
    /// there are no pushed bytes.
    fn pushed_part(&self, batch: &[Box<Slab>]) -> Option<(u64, u64)> {
        if !self.has_pushed {
            return None;
        }
        let (mut pushed, mut all) = (0, 0);
        for range in batch.iter().flat_map(|slab| slab.ranges()) {
            let bytes = u64::from(range.bytes);
            all += bytes;
            let source = self.slot.metrics.sources.get(usize::from(range.source));
            pushed += if source.is_some_and(|source| source.is_pushed()) { bytes } else { 0 };
        }
        (pushed > 0).then_some((pushed, all))
    }

    /// Counts a part of the CPU time since `began_ns` as used for pushed frames, in proportion to
    /// their bytes.
    fn count_pushed(&self, began_ns: u64, (bytes, all): (u64, u64)) {
        let used_ns = thread_cpu_ns().saturating_sub(began_ns);
        let part = u128::from(used_ns) * u128::from(bytes) / u128::from(all.max(1));
        self.slot.metrics.push.recorder_ns.add(u64::try_from(part).unwrap_or(u64::MAX));
    }

    /// Takes the new sources, and describes them in the open segment. Must be called after slabs
    /// were taken, because then every source that occurs in these slabs has been sent.
    pub(super) fn take_sources(&mut self) {
        if self.commands.sources.is_empty() {
            return;
        }
        self.has_pushed = true;
        let began_ns = thread_cpu_ns();
        let mut is_new = false;
        while let Ok(source) = self.commands.sources.try_recv() {
            let id = source.id;
            if self.slot.add_source(source) {
                self.rules.observe_source(id, &self.slot.plan.header.sources);
            }
            is_new = true;
        }
        if is_new {
            // The descriptors are written at once. Until then, a reader can decode the samples only
            // with the memory of the run.
            self.slot.describe_sources(monotonic_ns());
        }
        self.count_pushed(began_ns, (1, 1));
    }

    /// Writes a batch with the gaps before its samples, and puts its slabs back into the pool.
    fn record(&mut self, batch: &mut Vec<Box<Slab>>) {
        self.slot.gaps.read_ledger();
        self.slot.metrics.recorder.slabs.add(batch.len() as u64);
        let bytes: u64 = batch.iter().map(|slab| slab.bytes().len() as u64).sum();
        let now = monotonic_ns();
        self.pass_on(batch);
        self.slot.ensure_segment(bytes, now);
        let is_described = self.slot.describe_sources(now);
        if !(is_described && self.write(batch, now)) {
            for run in batch.iter().flat_map(|slab| slab.ranges()) {
                self.slot.gaps.losses.add(Loss {
                    source: run.source,
                    first_seq: run.first_seq,
                    count: run.count(),
                    causes: Causes::Storage,
                });
            }
        }
        // The rules observe the samples after the write, so that the evaluation of rules does not
        // delay the write.
        self.rules.observe(batch);
        batch.drain(..).for_each(|slab| self.pool.give_back(slab));
        self.inbox.notify_not_full();
        self.rules.report(&mut self.slot);
    }

    /// Advances the time of the rules to a time up to which all samples were taken. In a healthy
    /// run, no sample arrives later than the reorder window allows.
    fn let_time_pass(&mut self) {
        self.rules.advance(self.taken_until_ns.saturating_sub(self.slot.plan.header.reorder_window_ns));
        self.rules.report(&mut self.slot);
    }

    /// Passes a batch on to the next recorder before the ring's storage can delay the batch.
    fn pass_on(&mut self, batch: &[Box<Slab>]) {
        let Some(thinner) = &mut self.thinner else { return };
        let plan = &self.slot.plan;
        // The recorder numbers the sources of a run from 0, so the id of a source is its index.
        let period_ns =
            |id: u16| plan.header.sources.get(usize::from(id)).map_or(0, |source| source.period_ns);
        let thinning = |id: u16| {
            let of_batches = plan.batches.iter().find(|(batches, _)| *batches == id);
            of_batches.map_or(SourceThinning::Interval(period_ns(id)), |(_, thinning)| *thinning)
        };
        for slab in batch {
            thinner.take(slab, thinning, self.slot.gaps.reported());
        }
    }

    /// Appends a batch to the open segment. Returns false on failure. After a failure, only the
    /// open segment may have changed.
    fn write(&mut self, batch: &[Box<Slab>], now: u64) -> bool {
        let Some(mut segment) = self.slot.segment.take() else { return false };
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.progress.clone_from(&self.slot.gaps.progress);
        buffers.gaps.clear();
        for run in batch.iter().flat_map(|slab| slab.ranges()) {
            self.slot.gaps.advance_source(run, &mut buffers.gaps);
        }
        buffers.frame(segment.writer.checksum());
        let result = self.append(&mut segment, batch, &buffers);
        if result.is_err() {
            self.slot.gaps.progress.clone_from(&buffers.progress);
        }
        self.buffers = buffers;
        match result {
            Ok(()) => {
                self.slot.segment = Some(segment);
                if self.slot.plan.sync == SyncPolicy::Always {
                    self.slot.sync_inline();
                }
                true
            }
            Err(error) => {
                self.slot.handle_write_error(segment, &error, now);
                false
            }
        }
    }

    fn append(
        &mut self,
        segment: &mut OpenSegment,
        batch: &[Box<Slab>],
        buffers: &GapBuffers,
    ) -> io::Result<()> {
        let runs = || batch.iter().flat_map(|slab| slab.ranges());
        let mut pieces = [IoSlice::new(&[]); BATCH_SLABS_MAX + 1];
        let bodies = std::iter::once(buffers.frames.as_slice()).chain(batch.iter().map(|slab| slab.bytes()));
        pieces.iter_mut().zip(bodies).for_each(|(piece, body)| *piece = IoSlice::new(body));
        let mut heads = [&[][..]; BATCH_SLABS_MAX + 1];
        let parts =
            std::iter::once(buffers.headers.as_slice()).chain(batch.iter().map(|slab| slab.headers()));
        heads.iter_mut().zip(parts).for_each(|(head, part)| *head = part);
        let frames = batch.iter().map(|slab| slab.frames() as u64).sum::<u64>() + buffers.gaps.len() as u64;
        let begin = monotonic_ns();
        let bytes_before = segment.writer.stored_bytes();
        self.slot.metrics.recorder.enter_storage(begin);
        let result = segment.writer.append(Frames {
            pieces: pieces.get_mut(..=batch.len()).unwrap_or_default(),
            headers: heads.get(..=batch.len()).unwrap_or_default(),
            count: frames,
        });
        let end = monotonic_ns();
        self.slot.metrics.recorder.leave_storage(end);
        result?;
        self.slot.latencies.write.record(end - begin);
        self.slot.metrics.recorder.bytes.add(segment.writer.stored_bytes() - bytes_before);
        for run in runs() {
            segment.writer.count_samples(run.source, run.count(), span_of(run));
            if let Some(source) = self.slot.metrics.sources.get(usize::from(run.source)) {
                source.recorded.add(run.count());
                source.bytes.add(u64::from(run.bytes));
            }
            self.slot.gaps.losses.discard_before(run.source, run.first_seq);
        }
        self.count_gaps(&buffers.gaps, &mut segment.writer);
        segment.first_unsynced_ns.get_or_insert(end);
        segment.first_unindexed_ns.get_or_insert(end);
        Ok(())
    }

    fn count_gaps(&self, gaps: &[Gap], writer: &mut SegmentWriter) {
        for gap in gaps {
            writer.count_gap(gap);
            self.slot.gaps.count_gap(gap);
        }
    }

    /// Ends the run after all samples were taken. Writes the last losses, the footer and the
    /// trailer, and then waits for the syncer.
    fn finish(mut self) -> RecorderReport {
        self.take_sources();
        self.slot.gaps.read_ledger();
        let now = monotonic_ns();
        self.copy_sampled_counts();
        if let Some(thinner) = self.thinner.take() {
            let sources = &self.slot.metrics.sources;
            let begun = |id: u16| sources.get(usize::from(id)).map_or(0, |source| source.begun.get());
            thinner.finish(now, begun, self.slot.gaps.reported());
        }
        if self.slot.is_segment_removed() {
            self.slot.replace_removed_segment(now);
        }
        // The space that is reserved for later segments becomes available for the end of this
        // segment.
        self.slot.storage.release_reserve();
        self.slot.end(now);
        self.slot.latencies.collect();
        let Self { slot, commands: orders, .. } = self;
        let SegmentSlot { syncer, metrics, latencies, .. } = slot;
        for done in call_storage(&metrics.recorder, || syncer.finish()) {
            match done {
                SyncerResult::Publish { result: Ok(()), .. } => metrics.recorder.segments_sealed.add(1),
                SyncerResult::Sync { result: Ok(()), .. } | SyncerResult::EnforceLimits { .. } => {}
                SyncerResult::Sync { result: Err(error), .. }
                | SyncerResult::Publish { result: Err(error), .. } => {
                    metrics.recorder.note_storage_error(&error);
                    tracing::error!(%error, "cannot sync or publish the last segment");
                }
            }
        }
        orders.close();
        let (latencies, sources) = latencies.finish();
        let sources = metrics.sources.iter().zip(sources);
        let sources = sources.map(|(source, latencies)| SourceReport {
            metrics: Arc::clone(source),
            lateness: latencies.lateness,
            read_duration: latencies.read_duration,
        });
        RecorderReport { sources: sources.collect(), latencies, metrics }
    }
}

fn span_of(run: &SampleRange) -> SampleSpan {
    let wall_offset_ns = run.wall_offset_ns;
    SampleSpan {
        first_seq: run.first_seq,
        last_seq: run.last_seq,
        first_mono_ns: run.first_mono_ns,
        last_mono_ns: run.last_mono_ns,
        first_wall_ns: wall_offset_ns.wrapping_add_unsigned(run.first_mono_ns),
        last_wall_ns: wall_offset_ns.wrapping_add_unsigned(run.last_mono_ns),
    }
}
