//! The drain loop: take queued slabs, write them in one call, then rotate, sync, collect, sleep.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::commands::CommandQueue;
use super::latencies::LatencyAggregator;
use super::losses::LossTracker;
use super::maintenance::{LimitWarning, call_storage};
use super::policy::{self, SyncPolicy};
use super::quota_storage::QuotaStorage;
use super::settings::{RecorderSettings, RunPlan};
use super::syncer::{Syncer, SyncerResult};
use super::{GroupReport, RecorderReport, SourceReport};
use crate::metrics::Metrics;
use crate::os::clock::{ClockChangeDetector, NS_PER_S, WallOffset, monotonic_ns};
use crate::os::storage::Storage;
use crate::os::wake_event::WakeEvent;
use crate::segment::{Frames, Gap, SampleSpan, SegmentName, SegmentWriter};
use crate::slab::{Causes, Inbox, Loss, LossLedger, RANGES_MAX, SampleRange, Slab, SlabPool, TryRecvError};
use crate::stream::{ChecksumKind, HEADER_BYTES_MAX, SliceFramer};

/// Maximum number of slabs in one write: 256 KiB of the smallest slabs (16 KiB).
const BATCH_SLABS_MAX: usize = 16;
/// Longest frame of a gap.
const GAP_FRAME_BYTES_MAX: usize = HEADER_BYTES_MAX + 100;
/// Interval at which latencies are collected.
pub(super) const COLLECT_INTERVAL_NS: u64 = NS_PER_S;

/// The recorder. Its first segment is open before a sample is taken.
#[derive(Debug)]
pub struct Recorder {
    pub(super) plan: RunPlan,
    pub(super) storage: Arc<QuotaStorage>,
    inbox: Inbox,
    pub(super) queued_max: usize, // maximum since the last collection
    taken_until_ns: u64,          // all slabs queued before this were taken
    pub(super) pool: Arc<SlabPool>,
    ledger: Arc<LossLedger>,
    wake: Arc<WakeEvent>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) syncer: Syncer,
    pub(super) losses: LossTracker,
    pub(super) commands: CommandQueue,
    pub(super) latencies: LatencyAggregator,
    pub(super) progress: Vec<RecordedProgress>, // per source, by id
    pub(super) segment: Option<OpenSegment>,
    pub(super) next_number: u64,
    pub(super) failures: u32, // consecutive
    pub(super) limit_warning: LimitWarning,
    pub(super) retry_ns: u64,
    pub(super) back_off_ns: fn(u32) -> u64, // wait after this many failures
    pub(super) collect_ns: u64,
    pub(super) clock_watch: Box<dyn ClockChangeDetector>,
    pub(super) wall_offset: Arc<WallOffset>,
    buffers: GapBuffers,
}

/// The state of a source in the files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecordedProgress {
    pub(super) next_seq: u64,
    pub(super) last_mono_ns: u64,
    pub(super) missed_before: u64,     // in earlier segments
    pub(super) incomplete_before: u64, // in earlier segments
    pub(super) stride: u64,            // as last marked in the file
    pub(super) logged_timed_out: u64,  // as last logged
    pub(super) seen_failed: u64,       // as last seen
    pub(super) logged_errno: u64,      // as last logged
    pub(super) logged_not_failed: u64, // when last logged
}

#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) writer: SegmentWriter,
    pub(super) created_ns: u64,
    /// Bytes of header and attachments.
    pub(super) preamble_bytes: u64,
    pub(super) first_unsynced_ns: Option<u64>,
    pub(super) first_unindexed_ns: Option<u64>,
    pub(super) synced_offset: u64,
}

/// The state of the queues after a batch was taken.
#[derive(Debug, PartialEq, Eq)]
enum PollResult {
    More,
    Empty,
    Ended,
}

#[allow(clippy::vec_box, reason = "slabs travel boxed through the queue and back to the pool")]
impl Recorder {
    /// Opens the first segment, numbered above all that the directory has ever had, and starts the
    /// syncer.
    ///
    /// # Errors
    /// Errors of the storage: then the run does not start.
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
        } = settings;
        let entries = storage.entries()?;
        let next_number = SegmentName::next_free_number(entries.iter().map(|entry| entry.name.as_str()))
            .ok_or(io::ErrorKind::StorageFull)?;
        let sources = metrics.sources.len();
        let mut recorder = Self {
            syncer: Syncer::start(Arc::clone(&storage))?,
            losses: LossTracker::default(),
            latencies: LatencyAggregator::new(latencies, Arc::clone(&metrics)),
            progress: Vec::new(),
            segment: None,
            queued_max: 0,
            taken_until_ns: 0,
            commands: orders,
            next_number,
            failures: 0,
            limit_warning: LimitWarning::default(),
            retry_ns: 0,
            back_off_ns: policy::back_off_ns,
            collect_ns: monotonic_ns() + COLLECT_INTERVAL_NS,
            clock_watch,
            wall_offset,
            buffers: GapBuffers::new(plan.batch_slabs.clamp(1, BATCH_SLABS_MAX), sources),
            plan,
            storage,
            inbox,
            pool,
            ledger,
            wake,
            metrics,
        };
        recorder.resize_sources(sources);
        recorder.segment = Some(recorder.create_segment()?);
        Ok(recorder)
    }

    /// Records until every sampler has dropped its sender and the queues are empty; then seals and
    /// reports.
    pub fn run(mut self) -> RecorderReport {
        let mut batch = Vec::with_capacity(BATCH_SLABS_MAX);
        loop {
            // The watchdog sees by this that the loop is not stuck.
            self.metrics.recorder.iterations.add(1);
            let queued = self.take_batch(&mut batch);
            if !batch.is_empty() {
                self.record(&mut batch);
            }
            let now = monotonic_ns();
            self.maintain(now);
            self.run_commands(self.taken_until_ns);
            match queued {
                PollResult::More => {}
                PollResult::Ended => return self.finish(),
                PollResult::Empty => {
                    self.wake.wait_until(now + self.plan.poll_interval_ns);
                    self.wake.clear();
                }
            }
        }
    }

    fn take_batch(&mut self, batch: &mut Vec<Box<Slab>>) -> PollResult {
        let now = monotonic_ns();
        self.queued_max = self.queued_max.max(self.inbox.len());
        while batch.len() < self.plan.batch_slabs.clamp(1, BATCH_SLABS_MAX) {
            match self.inbox.try_recv() {
                Ok(slab) => {
                    self.latencies.queue_wait.record(now.saturating_sub(slab.queued_ns));
                    // Slabs come in the order of queueing.
                    self.taken_until_ns = slab.queued_ns;
                    batch.push(slab);
                }
                Err(error) => {
                    // If a queue was only skipped for a moment, there is more.
                    self.taken_until_ns = if self.inbox.is_empty() { now } else { self.taken_until_ns };
                    return if error == TryRecvError::Empty { PollResult::Empty } else { PollResult::Ended };
                }
            }
        }
        PollResult::More
    }

    /// Grows the per-source state to `sources` sources.
    pub(super) fn resize_sources(&mut self, sources: usize) {
        self.progress.resize(
            sources.max(self.progress.len()),
            RecordedProgress { stride: 1, ..RecordedProgress::default() },
        );
        self.losses.resize_sources(sources);
    }

    /// Frees the list of losses of a removed source whose last sample is in the files.
    pub(super) fn free_losses(&mut self, source: u16) {
        let place = usize::from(source);
        if let (Some(progress), Some(metrics)) = (self.progress.get(place), self.metrics.sources.get(place))
            && metrics.removed.get() == 1
            && progress.next_seq >= metrics.begun.get()
        {
            self.losses.free(source);
        }
    }

    /// Writes a batch with the gaps before its samples, and puts its slabs back into the pool.
    fn record(&mut self, batch: &mut Vec<Box<Slab>>) {
        self.losses.read(&self.ledger);
        self.metrics.recorder.slabs.add(batch.len() as u64);
        let bytes: u64 = batch.iter().map(|slab| slab.bytes().len() as u64).sum();
        let now = monotonic_ns();
        self.ensure_segment(bytes, now);
        if !self.write(batch, now) {
            for run in batch.iter().flat_map(|slab| slab.ranges()) {
                self.losses.add(Loss {
                    source: run.source,
                    first_seq: run.first_seq,
                    count: run.count(),
                    causes: Causes::STORAGE,
                });
            }
        }
        batch.drain(..).for_each(|slab| self.pool.give_back(slab));
        self.inbox.notify_not_full();
    }

    /// Appends a batch to the open segment. Returns false on failure; then only the segment has
    /// changed.
    fn write(&mut self, batch: &[Box<Slab>], now: u64) -> bool {
        let Some(mut segment) = self.segment.take() else { return false };
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.progress.clone_from(&self.progress);
        buffers.gaps.clear();
        for run in batch.iter().flat_map(|slab| slab.ranges()) {
            buffers.gaps.extend(self.advance_source(run));
        }
        buffers.frame(segment.writer.checksum());
        let result = self.append(&mut segment, batch, &buffers);
        if result.is_err() {
            self.progress.clone_from(&buffers.progress);
        }
        self.buffers = buffers;
        match result {
            Ok(()) => {
                self.segment = Some(segment);
                if self.plan.sync == SyncPolicy::Always {
                    self.sync_inline();
                }
                true
            }
            Err(error) => {
                self.handle_write_error(segment, &error, now);
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
        self.metrics.recorder.enter_storage(begin);
        let result = segment.writer.append(Frames {
            pieces: pieces.get_mut(..=batch.len()).unwrap_or_default(),
            headers: heads.get(..=batch.len()).unwrap_or_default(),
            count: frames,
        });
        let end = monotonic_ns();
        self.metrics.recorder.leave_storage(end);
        result?;
        self.latencies.write.record(end - begin);
        self.metrics.recorder.bytes.add(segment.writer.stored_bytes() - bytes_before);
        for run in runs() {
            segment.writer.count_samples(run.source, run.count(), span_of(run));
            if let Some(source) = self.metrics.sources.get(usize::from(run.source)) {
                source.recorded.add(run.count());
                source.bytes.add(u64::from(run.bytes));
            }
            self.losses.discard_before(run.source, run.first_seq);
        }
        self.count_gaps(&buffers.gaps, &mut segment.writer);
        segment.first_unsynced_ns.get_or_insert(end);
        segment.first_unindexed_ns.get_or_insert(end);
        Ok(())
    }

    /// Advances a source past a range of samples. Returns the gap before it, if there is one.
    fn advance_source(&mut self, run: &SampleRange) -> Option<Gap> {
        let causes = |first| self.losses.causes(run.source, first, run.first_seq, &self.ledger);
        let progress = self.progress.get_mut(usize::from(run.source))?;
        let first = progress.next_seq;
        let gap = (run.first_seq > first).then(|| Gap {
            source: run.source,
            first,
            count: run.first_seq - first,
            causes: causes(first).bits(),
            after_mono_ns: progress.last_mono_ns,
            before_mono_ns: run.first_mono_ns,
        });
        progress.next_seq = run.last_seq + 1;
        progress.last_mono_ns = run.last_mono_ns;
        gap
    }

    fn count_gaps(&self, gaps: &[Gap], writer: &mut SegmentWriter) {
        for gap in gaps {
            writer.count_gap(gap);
            self.count_gap(gap);
        }
    }

    fn count_gap(&self, gap: &Gap) {
        if let Some(source) = self.metrics.sources.get(usize::from(gap.source)) {
            source.lost.add(gap.count);
            source.causes.set(source.causes.get() | u64::from(gap.causes));
        }
    }

    /// All samples are taken: write the last losses, footer and trailer, then wait for the syncer.
    fn finish(mut self) -> RecorderReport {
        self.losses.read(&self.ledger);
        let now = monotonic_ns();
        if self.is_segment_removed() {
            self.replace_removed_segment(now);
        }
        if self.segment.is_none() {
            self.reopen(now);
        }
        // Space reserved for later segments helps this one to end.
        self.storage.release_reserve();
        self.write_last_gaps(now);
        self.seal();
        self.latencies.collect();
        let Self { syncer, metrics, latencies, commands: orders, .. } = self;
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
        let (run, sources) = latencies.finish();
        let sources = metrics.sources.iter().zip(sources);
        RecorderReport {
            sources: sources
                .map(|(source, latencies)| SourceReport {
                    name: source.name.clone(),
                    period_ns: source.period_ns.get(),
                    begun: source.begun.get(),
                    recorded: source.recorded.get(),
                    lost: source.begun.get() - source.recorded.get(),
                    causes: Causes::from_bits(u32::try_from(source.causes.get()).unwrap_or(u32::MAX)),
                    missed: source.missed.get(),
                    incomplete: source.incomplete.get(),
                    incomplete_flags: source.incomplete_flags.get(),
                    failed: source.failed.get(),
                    failure: (source.failed.get() > 0).then(|| source.failure().to_string()),
                    timed_out: source.timed_out.get(),
                    stride: source.stride(),
                    limit: source.stride_and_budget().1,
                    lateness: latencies.lateness,
                    read_duration: latencies.read_duration,
                })
                .collect(),
            groups: metrics
                .groups
                .iter()
                .map(|group| GroupReport {
                    name: group.name,
                    slabs: group.slabs.get(),
                    slabs_dropped: group.slabs_dropped.get(),
                    waited_ns: group.waited_ns.get(),
                })
                .collect(),
            latencies: run,
            bytes: metrics.recorder.bytes.get(),
            segments_sealed: metrics.recorder.segments_sealed.get(),
            frames_removed: metrics.recorder.frames_removed.get(),
            storage_errors: metrics.recorder.storage_errors.get(),
        }
    }

    /// Writes gaps for samples that were begun but are in no slab.
    fn write_last_gaps(&mut self, now: u64) {
        let Some(mut segment) = self.segment.take() else { return };
        let mut gaps = Vec::new();
        for (source, (metrics, progress)) in (0..).zip(self.metrics.sources.iter().zip(&mut self.progress)) {
            let (first, end) = (progress.next_seq, metrics.begun.get());
            if end > first {
                gaps.push(Gap {
                    source,
                    first,
                    count: end - first,
                    causes: self.losses.causes(source, first, end, &self.ledger).bits(),
                    after_mono_ns: progress.last_mono_ns,
                    before_mono_ns: now,
                });
                progress.next_seq = end;
            }
        }
        let before = segment.writer.stored_bytes();
        match call_storage(&self.metrics.recorder, || segment.writer.append_gaps(&gaps)) {
            Ok(()) => {
                self.metrics.recorder.bytes.add(segment.writer.stored_bytes() - before);
                for gap in &gaps {
                    self.count_gap(gap);
                }
                self.segment = Some(segment);
            }
            Err(error) => self.handle_write_error(segment, &error, now),
        }
    }
}

/// Buffers for the gaps of a batch. Each range of samples has at most one gap before it, so these
/// buffers never grow.
#[derive(Debug, Default)]
struct GapBuffers {
    gaps: Vec<Gap>,
    frames: Vec<u8>,
    headers: Vec<u8>,                // copies of the frames' headers
    progress: Vec<RecordedProgress>, // before the batch
}

impl GapBuffers {
    fn new(batch_slabs: usize, sources: usize) -> Self {
        let gaps = batch_slabs * RANGES_MAX;
        Self {
            gaps: Vec::with_capacity(gaps),
            frames: Vec::with_capacity(gaps * GAP_FRAME_BYTES_MAX),
            headers: Vec::with_capacity(gaps * HEADER_BYTES_MAX),
            progress: Vec::with_capacity(sources),
        }
    }

    /// Encodes and frames the gaps.
    fn frame(&mut self, checksum: ChecksumKind) {
        self.frames.clear();
        self.headers.clear();
        for gap in &self.gaps {
            let payload = gap.encode();
            let header = checksum.header(&payload).expect("a gap is 100 bytes");
            self.headers.extend_from_slice(header.as_bytes());
            self.frames.extend_from_slice(header.as_bytes());
            self.frames.extend_from_slice(&payload);
        }
    }
}

/// Bytes that a recorder allocates at its start for losses and gaps: for each source, and for each
/// slab of a batch.
pub const LOSS_BYTES: (usize, usize) =
    (LossTracker::SOURCE_BYTES, RANGES_MAX * (size_of::<Gap>() + GAP_FRAME_BYTES_MAX + HEADER_BYTES_MAX));

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
