//! The drain loop: take what is queued, write it in one call, then rotate, sync, collect, sleep.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::capped::Capped;
use super::latencies::LatencyBook;
use super::losses::LossBook;
use super::orders::OrderBook;
use super::policy::{self, SyncPolicy};
use super::settings::{RecorderSettings, RunPlan};
use super::syncer::{Done, Syncer};
use super::upkeep::{Untidy, in_storage};
use super::{GroupReport, RecorderReport, SourceReport};
use crate::metrics::Metrics;
use crate::os::clock::{ClockWatch, NS_PER_S, WallOffset, monotonic_ns};
use crate::os::event::Event;
use crate::os::storage::Storage;
use crate::segment::{Frames, Gap, SegmentName, SegmentWriter, Span};
use crate::slab::{Causes, Inbox, Loss, LossLedger, RUNS_MAX, Run, Slab, SlabPool, TryRecvError};
use crate::stream::{ChecksumKind, HEADER_BYTES_MAX, SliceFramer};

/// Most slabs in one write: 256 KiB of the smallest slabs there are (16 KiB).
const BATCH_SLABS_MAX: usize = 16;
/// Longest frame of a gap.
const GAP_FRAME_BYTES_MAX: usize = HEADER_BYTES_MAX + 100;
/// How often latencies are collected.
pub(super) const COLLECT_INTERVAL_NS: u64 = NS_PER_S;

/// The recorder. Its first segment is open before a sample is taken.
#[derive(Debug)]
pub struct Recorder {
    pub(super) plan: RunPlan,
    pub(super) storage: Arc<Capped>,
    inbox: Inbox,
    pub(super) most_queued: usize, // since the latencies were collected last
    taken_ns: u64,                 // up to here all that was handed over was taken
    pub(super) pool: Arc<SlabPool>,
    ledger: Arc<LossLedger>,
    wake: Arc<Event>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) syncer: Syncer,
    pub(super) losses: LossBook,
    pub(super) orders: OrderBook,
    pub(super) latencies: LatencyBook,
    pub(super) progress: Vec<Progress>, // one a source, by id
    pub(super) segment: Option<OpenSegment>,
    pub(super) next_number: u64,
    pub(super) failures: u32, // in a row
    pub(super) untidy: Untidy,
    pub(super) retry_ns: u64,
    pub(super) back_off_ns: fn(u32) -> u64, // how long to wait after so many failures
    pub(super) collect_ns: u64,
    pub(super) clock_watch: Box<dyn ClockWatch>,
    pub(super) wall_offset: Arc<WallOffset>,
    buffers: GapBuffers,
}

/// How far a source has got in the files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) next_seq: u64,
    pub(super) last_mono_ns: u64,
    pub(super) missed_before: u64,  // in the segments before the open one
    pub(super) partial_before: u64, // in the segments before the open one
    pub(super) stride: u64,         // as last noted in the file
    pub(super) timed_out: u64,      // as last said
    pub(super) failed: u64,         // as last looked at
    pub(super) error: u64,          // as last said
    pub(super) others_begun: u64,   // that did not fail, when last said
}

#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) writer: SegmentWriter,
    pub(super) created_ns: u64,
    /// Header and attachments.
    pub(super) begin_bytes: u64,
    pub(super) first_unsynced_ns: Option<u64>,
    pub(super) first_unindexed_ns: Option<u64>,
    pub(super) synced_offset: u64,
}

/// What is left in the queues.
#[derive(Debug, PartialEq, Eq)]
enum Queued {
    More,
    Nothing,
    Ended,
}

#[allow(clippy::vec_box, reason = "slabs travel boxed through the queue and back to the pool")]
impl Recorder {
    /// Opens the first segment, numbered behind all that the directory has ever shown, and starts the syncer.
    ///
    /// # Errors
    /// What the storage says: a run that cannot begin does not.
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
            orders,
        } = settings;
        let entries = storage.entries()?;
        let next_number = SegmentName::number_behind(entries.iter().map(|entry| entry.name.as_str()))
            .ok_or(io::ErrorKind::StorageFull)?;
        let sources = metrics.sources.len();
        let mut recorder = Self {
            syncer: Syncer::start(Arc::clone(&storage))?,
            losses: LossBook::default(),
            latencies: LatencyBook::new(latencies, Arc::clone(&metrics)),
            progress: Vec::new(),
            segment: None,
            most_queued: 0,
            taken_ns: 0,
            orders,
            next_number,
            failures: 0,
            untidy: Untidy::default(),
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
        recorder.take_sources(sources);
        recorder.segment = Some(recorder.create_segment()?);
        Ok(recorder)
    }

    /// Records until every sampler has dropped its sender and the queues are empty; then seals and reports.
    pub fn run(mut self) -> RecorderReport {
        let mut batch = Vec::with_capacity(BATCH_SLABS_MAX);
        loop {
            // Whoever watches sees by this that the loop is not stuck.
            self.metrics.recorder.turns.add(1);
            let queued = self.take(&mut batch);
            if !batch.is_empty() {
                self.record(&mut batch);
            }
            let now = monotonic_ns();
            self.keep_up(now);
            self.obey(self.taken_ns);
            match queued {
                Queued::More => {}
                Queued::Ended => return self.finish(),
                Queued::Nothing => {
                    self.wake.wait_until(now + self.plan.drain_ns);
                    self.wake.clear();
                }
            }
        }
    }

    fn take(&mut self, batch: &mut Vec<Box<Slab>>) -> Queued {
        let now = monotonic_ns();
        self.most_queued = self.most_queued.max(self.inbox.len());
        while batch.len() < self.plan.batch_slabs.clamp(1, BATCH_SLABS_MAX) {
            match self.inbox.try_recv() {
                Ok(slab) => {
                    self.latencies.queue_wait.record(now.saturating_sub(slab.handed_over_ns));
                    // What was handed over first comes first.
                    self.taken_ns = slab.handed_over_ns;
                    batch.push(slab);
                }
                Err(error) => {
                    // A queue may be passed over for a moment; then there is more.
                    self.taken_ns = if self.inbox.is_empty() { now } else { self.taken_ns };
                    return if error == TryRecvError::Empty { Queued::Nothing } else { Queued::Ended };
                }
            }
        }
        Queued::More
    }

    /// Makes room for the books of so many sources, those included that it has.
    pub(super) fn take_sources(&mut self, sources: usize) {
        self.progress.resize(sources.max(self.progress.len()), Progress { stride: 1, ..Progress::default() });
        self.losses.take_sources(sources);
    }

    /// A source whose last reading is in the files needs no list of losses.
    pub(super) fn forget_losses(&mut self, source: u16) {
        let place = usize::from(source);
        if let (Some(progress), Some(metrics)) = (self.progress.get(place), self.metrics.sources.get(place))
            && metrics.removed.get() == 1
            && progress.next_seq >= metrics.begun.get()
        {
            self.losses.forget(source);
        }
    }

    /// Writes a batch, with the gaps that it shows in front, and gives its slabs back.
    fn record(&mut self, batch: &mut Vec<Box<Slab>>) {
        self.losses.read(&self.ledger);
        self.metrics.recorder.slabs.add(batch.len() as u64);
        let bytes: u64 = batch.iter().map(|slab| slab.bytes().len() as u64).sum();
        let now = monotonic_ns();
        self.prepare(bytes, now);
        if !self.write(batch, now) {
            for run in batch.iter().flat_map(|slab| slab.runs()) {
                self.losses.add(Loss {
                    source: run.source,
                    first_seq: run.first_seq,
                    count: run.count(),
                    causes: Causes::STORAGE,
                });
            }
        }
        batch.drain(..).for_each(|slab| self.pool.give_back(slab));
        self.inbox.tell_room();
    }

    /// Appends a batch to the open segment. If it cannot, nothing has changed but the segment.
    fn write(&mut self, batch: &[Box<Slab>], now: u64) -> bool {
        let Some(mut segment) = self.segment.take() else { return false };
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.progress.clone_from(&self.progress);
        buffers.gaps.clear();
        for run in batch.iter().flat_map(|slab| slab.runs()) {
            buffers.gaps.extend(self.pass(run));
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
                self.fail_write(segment, &error, now);
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
        let runs = || batch.iter().flat_map(|slab| slab.runs());
        let mut pieces = [IoSlice::new(&[]); BATCH_SLABS_MAX + 1];
        let bodies = std::iter::once(buffers.frames.as_slice()).chain(batch.iter().map(|slab| slab.bytes()));
        pieces.iter_mut().zip(bodies).for_each(|(piece, body)| *piece = IoSlice::new(body));
        let mut heads = [&[][..]; BATCH_SLABS_MAX + 1];
        let parts = std::iter::once(buffers.heads.as_slice()).chain(batch.iter().map(|slab| slab.heads()));
        heads.iter_mut().zip(parts).for_each(|(head, part)| *head = part);
        let frames = batch.iter().map(|slab| slab.frames() as u64).sum::<u64>() + buffers.gaps.len() as u64;
        let begin = monotonic_ns();
        let bytes_before = segment.writer.stored_bytes();
        self.metrics.recorder.enter_storage(begin);
        let result = segment.writer.append(Frames {
            pieces: pieces.get_mut(..=batch.len()).unwrap_or_default(),
            heads: heads.get(..=batch.len()).unwrap_or_default(),
            count: frames,
        });
        let end = monotonic_ns();
        self.metrics.recorder.leave_storage(end);
        result?;
        self.latencies.write.record(end - begin);
        self.metrics.recorder.bytes.add(segment.writer.stored_bytes() - bytes_before);
        for run in runs() {
            segment.writer.tally(run.source, run.count(), span_of(run));
            if let Some(source) = self.metrics.sources.get(usize::from(run.source)) {
                source.recorded.add(run.count());
                source.bytes.add(u64::from(run.bytes));
            }
            self.losses.settle(run.source, run.first_seq);
        }
        self.count_gaps(&buffers.gaps, &mut segment.writer);
        segment.first_unsynced_ns.get_or_insert(end);
        segment.first_unindexed_ns.get_or_insert(end);
        Ok(())
    }

    /// Moves a source's progress behind a run. The gap in front of it, if there is one.
    fn pass(&mut self, run: &Run) -> Option<Gap> {
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
            writer.tally_gap(gap);
            self.count_gap(gap);
        }
    }

    fn count_gap(&self, gap: &Gap) {
        if let Some(source) = self.metrics.sources.get(usize::from(gap.source)) {
            source.lost.add(gap.count);
            source.causes.set(source.causes.get() | u64::from(gap.causes));
        }
    }

    /// Everything is sampled and taken: the losses at the very end, then footer, trailer, medium.
    fn finish(mut self) -> RecorderReport {
        self.losses.read(&self.ledger);
        let now = monotonic_ns();
        if self.is_open_removed() {
            self.leave_removed(now);
        }
        if self.segment.is_none() {
            self.reopen(now);
        }
        // What was reserved for later segments helps this one to end.
        self.storage.release_reserve();
        self.write_last_gaps(now);
        self.seal();
        self.latencies.collect();
        let Self { syncer, metrics, latencies, orders, .. } = self;
        for done in in_storage(&metrics.recorder, || syncer.finish()) {
            match done {
                Done::Publish { result: Ok(()), .. } => metrics.recorder.segments_sealed.add(1),
                Done::Sync { result: Ok(()), .. } | Done::Tidy { .. } => {}
                Done::Sync { result: Err(error), .. } | Done::Publish { result: Err(error), .. } => {
                    metrics.recorder.note_storage_error(&error);
                    tracing::error!(%error, "cannot bring the last segment to the medium");
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
                    partial: source.partial.get(),
                    lacked: source.lacked.get(),
                    failed: source.failed.get(),
                    failure: (source.failed.get() > 0).then(|| source.failure().to_string()),
                    timed_out: source.timed_out.get(),
                    stride: source.stride(),
                    limit: source.pace().1,
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

    /// Gaps for readings that were begun and that no slab brought.
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
        match in_storage(&self.metrics.recorder, || segment.writer.append_gaps(&gaps)) {
            Ok(()) => {
                self.metrics.recorder.bytes.add(segment.writer.stored_bytes() - before);
                for gap in &gaps {
                    self.count_gap(gap);
                }
                self.segment = Some(segment);
            }
            Err(error) => self.fail_write(segment, &error, now),
        }
    }
}

/// What the gaps of a batch are made in. A run shows one gap at most, so a batch shows no more than it has runs: nothing here
/// ever grows.
#[derive(Debug, Default)]
struct GapBuffers {
    gaps: Vec<Gap>,
    frames: Vec<u8>,
    heads: Vec<u8>,          // the frames' headers once more
    progress: Vec<Progress>, // as it was before the batch
}

impl GapBuffers {
    fn new(batch_slabs: usize, sources: usize) -> Self {
        let gaps = batch_slabs * RUNS_MAX;
        Self {
            gaps: Vec::with_capacity(gaps),
            frames: Vec::with_capacity(gaps * GAP_FRAME_BYTES_MAX),
            heads: Vec::with_capacity(gaps * HEADER_BYTES_MAX),
            progress: Vec::with_capacity(sources),
        }
    }

    /// Frames the gaps.
    fn frame(&mut self, checksum: ChecksumKind) {
        self.frames.clear();
        self.heads.clear();
        for gap in &self.gaps {
            let payload = gap.encode();
            let header = checksum.header(&payload).expect("a gap is 100 bytes");
            self.heads.extend_from_slice(header.as_bytes());
            self.frames.extend_from_slice(header.as_bytes());
            self.frames.extend_from_slice(&payload);
        }
    }
}

/// What a recorder takes at its start for losses and gaps, beside what it shares: for each source, and for each slab that it
/// writes at once.
pub const LOSS_BYTES: (usize, usize) =
    (LossBook::SOURCE_BYTES, RUNS_MAX * (size_of::<Gap>() + GAP_FRAME_BYTES_MAX + HEADER_BYTES_MAX));

fn span_of(run: &Run) -> Span {
    let wall_offset_ns = run.wall_offset_ns;
    Span {
        first_seq: run.first_seq,
        last_seq: run.last_seq,
        first_mono_ns: run.first_mono_ns,
        last_mono_ns: run.last_mono_ns,
        first_wall_ns: wall_offset_ns.wrapping_add_unsigned(run.first_mono_ns),
        last_wall_ns: wall_offset_ns.wrapping_add_unsigned(run.last_mono_ns),
    }
}
