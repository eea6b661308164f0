//! The drain loop: take what is queued, write it in one call, then rotate, sync, collect, sleep.

use std::io::{self, IoSlice};
use std::sync::Arc;

use crossbeam_channel::{Receiver, TryRecvError};

use super::latencies::LatencyBook;
use super::losses::LossBook;
use super::policy::{self, RotationLimits, SegmentState, SyncPolicy};
use super::settings::{RecorderSettings, RunPlan};
use super::syncer::{Done, Syncer};
use super::{RecorderReport, SourceReport};
use crate::metrics::Metrics;
use crate::os::clock::{ClockReading, NS_PER_S, monotonic_ns};
use crate::os::event::Event;
use crate::os::storage::Storage;
use crate::segment::{Gap, Header, SegmentName, SegmentWriter, Span, State};
use crate::slab::{Causes, Loss, LossLedger, Run, Slab, SlabPool};
use crate::stream::SliceFramer;

/// Most slabs in one write: 256 KiB of the smallest slabs there are (16 KiB).
const BATCH_SLABS_MAX: usize = 16;
/// How often latencies are collected.
const COLLECT_INTERVAL_NS: u64 = NS_PER_S;

/// The recorder. Its first segment is open before a sample is taken.
#[derive(Debug)]
pub struct Recorder {
    plan: RunPlan,
    storage: Arc<dyn Storage>,
    queue: Receiver<Box<Slab>>,
    pool: Arc<SlabPool>,
    ledger: Arc<LossLedger>,
    wake: Arc<Event>,
    metrics: Arc<Metrics>,
    syncer: Syncer,
    losses: LossBook,
    latencies: LatencyBook,
    progress: Vec<Progress>, // one a source, by id
    segment: Option<OpenSegment>,
    next_number: u64,
    failures: u32, // in a row
    retry_ns: u64,
    pub(super) back_off_ns: fn(u32) -> u64, // how long to wait after so many failures
    collect_ns: u64,
    control: Vec<u8>, // reused: frames of the recorder's own in front of a batch
}

/// How far a source has got in the files.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    next_seq: u64,
    last_mono_ns: u64,
    missed_before: u64, // in the segments before the open one
}

#[derive(Debug)]
struct OpenSegment {
    writer: SegmentWriter,
    created_ns: u64,
    first_unsynced_ns: Option<u64>,
}

/// What is left in the queue.
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
        let RecorderSettings { plan, storage, queue, pool, ledger, wake, metrics, latencies } = settings;
        let entries = storage.entries()?;
        let last = entries.iter().filter_map(|entry| Some(SegmentName::parse(&entry.name)?.number)).max();
        let next_number = match last {
            None => 0,
            Some(last) => SegmentName::next_number(last).ok_or(io::ErrorKind::StorageFull)?,
        };
        let sources = metrics.sources.len();
        let mut recorder = Self {
            syncer: Syncer::start(Arc::clone(&storage))?,
            losses: LossBook::new(sources),
            latencies: LatencyBook::new(latencies, Arc::clone(&metrics)),
            progress: vec![Progress::default(); sources],
            segment: None,
            next_number,
            failures: 0,
            retry_ns: 0,
            back_off_ns: policy::back_off_ns,
            collect_ns: monotonic_ns() + COLLECT_INTERVAL_NS,
            control: Vec::new(),
            plan,
            storage,
            queue,
            pool,
            ledger,
            wake,
            metrics,
        };
        recorder.segment = Some(recorder.create_segment()?);
        Ok(recorder)
    }

    /// Records until every sampler has dropped its sender and the queue is empty; then seals and reports.
    pub fn run(mut self) -> RecorderReport {
        let mut batch = Vec::with_capacity(BATCH_SLABS_MAX);
        loop {
            let queued = self.take(&mut batch);
            if !batch.is_empty() {
                self.record(&mut batch);
            }
            let now = monotonic_ns();
            self.housekeep(now);
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
        while batch.len() < self.plan.batch_slabs.clamp(1, BATCH_SLABS_MAX) {
            match self.queue.try_recv() {
                Ok(slab) => {
                    self.latencies.queue_wait.record(now.saturating_sub(slab.handed_over_ns));
                    batch.push(slab);
                }
                Err(TryRecvError::Empty) => return Queued::Nothing,
                Err(TryRecvError::Disconnected) => return Queued::Ended,
            }
        }
        Queued::More
    }

    /// Writes a batch, with the gaps that it shows in front, and gives its slabs back.
    fn record(&mut self, batch: &mut Vec<Box<Slab>>) {
        self.losses.read(&self.ledger);
        self.metrics.recorder.slabs.add(batch.len() as u64);
        let bytes: u64 = batch.iter().map(|slab| slab.bytes().len() as u64).sum();
        let now = monotonic_ns();
        self.rotate_if_due(bytes, now);
        if self.segment.is_none() && now >= self.retry_ns {
            self.reopen(now);
        }
        if let Err(error) = self.write(batch) {
            if let Some(error) = error {
                self.fail_segment("write to", &error, now);
            }
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
    }

    /// Appends a batch to the open segment. Nothing has changed after an error; without one, no segment is open.
    fn write(&mut self, batch: &[Box<Slab>]) -> Result<(), Option<io::Error>> {
        let Some(mut segment) = self.segment.take() else { return Err(None) };
        let runs = || batch.iter().flat_map(|slab| slab.runs());
        let before = self.progress.clone();
        self.control.clear();
        let mut gaps = Vec::new();
        for run in runs() {
            gaps.extend(self.pass(run));
        }
        frame_gaps(&mut self.control, &gaps, &segment.writer);

        let mut pieces = [IoSlice::new(&[]); BATCH_SLABS_MAX + 1];
        let bodies = std::iter::once(self.control.as_slice()).chain(batch.iter().map(|slab| slab.bytes()));
        pieces.iter_mut().zip(bodies).for_each(|(piece, body)| *piece = IoSlice::new(body));
        let frames = runs().map(Run::count).sum::<u64>() + gaps.len() as u64;
        let begin = monotonic_ns();
        let pieces = pieces.get_mut(..=batch.len()).unwrap_or_default();
        let bytes_before = segment.writer.bytes();
        if let Err(error) = segment.writer.append(pieces, frames) {
            self.progress = before;
            return Err(Some(error));
        }
        let end = monotonic_ns();
        self.latencies.write.record(end - begin);
        self.metrics.recorder.bytes.add(segment.writer.bytes() - bytes_before);
        let offset_ns = self.plan.header.clocks.wall_offset_ns();
        for run in runs() {
            segment.writer.tally(run.source, run.count(), span_of(run, offset_ns));
            if let Some(source) = self.metrics.sources.get(usize::from(run.source)) {
                source.recorded.add(run.count());
            }
            self.losses.settle(run.source, run.first_seq);
        }
        self.count_gaps(&gaps, &mut segment.writer);
        segment.first_unsynced_ns.get_or_insert(end);
        self.segment = Some(segment);
        if self.plan.sync == SyncPolicy::Always {
            self.sync_inline();
        }
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
            if let Some(source) = self.metrics.sources.get(usize::from(gap.source)) {
                source.lost.add(gap.count);
            }
        }
    }

    fn housekeep(&mut self, now: u64) {
        for done in self.syncer.poll() {
            self.note(done, now);
        }
        if now >= self.collect_ns {
            self.collect_ns = now + COLLECT_INTERVAL_NS;
            self.latencies.collect();
        }
        if let Some(segment) = &mut self.segment
            && policy::should_sync(self.plan.sync, segment.first_unsynced_ns, now)
            && self.syncer.sync(segment.writer.file())
        {
            segment.first_unsynced_ns = None;
        }
        self.rotate_if_due(0, now);
    }

    fn note(&mut self, done: Done, now: u64) {
        match done {
            Done::Sync { file, duration_ns, result } => {
                self.latencies.sync.record(duration_ns);
                if let Err(error) = result {
                    // A segment that was opened since has nothing to do with it.
                    self.segment.take_if(|segment| Arc::ptr_eq(&segment.writer.file(), &file));
                    self.fail_segment("sync", &error, now);
                }
            }
            Done::Publish { result: Ok(()), .. } => self.metrics.recorder.segments_sealed.add(1),
            Done::Publish { name, result: Err(error) } => {
                self.metrics.recorder.storage_errors.add(1);
                tracing::error!(segment = %name, %error, "cannot publish the sealed segment; it keeps the name .active");
            }
        }
    }

    fn sync_inline(&mut self) {
        let Some(segment) = &mut self.segment else { return };
        segment.first_unsynced_ns = None;
        let done = self.syncer.sync_inline(segment.writer.file());
        self.note(done, monotonic_ns());
    }

    fn rotate_if_due(&mut self, next_bytes: u64, now: u64) {
        let limits = RotationLimits { bytes: self.plan.segment_bytes, age_ns: self.plan.segment_age_ns };
        let due = self.segment.as_ref().is_some_and(|segment| {
            let state = SegmentState {
                // As large as it would be, were it sealed now.
                bytes: segment.writer.bytes() + segment.writer.seal_bytes(),
                created_ns: segment.created_ns,
                has_content: segment.writer.has_content(),
            };
            policy::should_rotate(state, limits, next_bytes, now)
        });
        if due {
            self.seal();
            self.reopen(now);
        }
    }

    fn seal(&mut self) {
        let Some(mut segment) = self.segment.take() else { return };
        self.latencies.collect();
        self.latencies.settle(&mut segment.writer);
        for (id, (source, progress)) in (0..).zip(self.metrics.sources.iter().zip(&mut self.progress)) {
            let missed = source.missed.get();
            if let Some(totals) = segment.writer.totals_mut(id) {
                totals.missed = missed - progress.missed_before;
            }
            progress.missed_before = missed;
        }
        let before = segment.writer.bytes();
        match segment.writer.seal() {
            Ok(sealed) => {
                self.metrics.recorder.bytes.add(sealed.bytes() - before);
                self.syncer.publish(sealed);
            }
            Err(error) => {
                self.metrics.recorder.storage_errors.add(1);
                tracing::error!(%error, "cannot seal the segment; it stays unsealed, its frames are whole");
            }
        }
    }

    /// Opens the next segment, or waits before the next attempt.
    fn reopen(&mut self, now: u64) {
        match self.create_segment() {
            Ok(segment) => {
                self.failures = 0;
                self.segment = Some(segment);
            }
            Err(error) => self.fail_segment("create", &error, now),
        }
    }

    #[cold]
    fn fail_segment(&mut self, action: &str, error: &io::Error, now: u64) {
        self.failures = self.failures.saturating_add(1);
        let wait_ns = (self.back_off_ns)(self.failures);
        self.retry_ns = now + wait_ns;
        self.metrics.recorder.storage_errors.add(1);
        tracing::error!(
            %error,
            retry_in_ms = wait_ns / 1_000_000,
            "cannot {action} a segment; sampling goes on in a new one, what cannot be written is counted as lost"
        );
    }

    fn create_segment(&mut self) -> io::Result<OpenSegment> {
        let number = self.next_number;
        self.next_number = SegmentName::next_number(number).ok_or(io::ErrorKind::StorageFull)?;
        let mono_ns = monotonic_ns();
        let offset_ns = self.plan.header.clocks.wall_offset_ns();
        let clocks = ClockReading {
            mono_ns,
            // Wall and boot time of this run follow from its first reading, as the frames' stamps do.
            boot_ns: self.plan.header.clocks.boot_ns + (mono_ns - self.plan.header.clocks.mono_ns),
            wall_ns: offset_ns.wrapping_add_unsigned(mono_ns),
        };
        let mut header = Header { segment: number, clocks, ..self.plan.header.clone() };
        for (source, progress) in header.sources.iter_mut().zip(&self.progress) {
            source.next_seq = progress.next_seq;
        }
        let name = SegmentName {
            number,
            created_s: clocks.wall_ns.div_euclid(1_000_000_000),
            run_id: header.run_id,
            state: State::Active,
        };
        let writer = SegmentWriter::create(&*self.storage, name, header, self.plan.preallocate)?;
        self.metrics.recorder.bytes.add(writer.bytes());
        Ok(OpenSegment { writer, created_ns: mono_ns, first_unsynced_ns: Some(mono_ns) })
    }

    /// Everything is sampled and taken: the losses at the very end, then footer, trailer, medium.
    fn finish(mut self) -> RecorderReport {
        self.losses.read(&self.ledger);
        let now = monotonic_ns();
        if self.segment.is_none() {
            self.reopen(now);
        }
        if let Err(error) = self.write_last_gaps(now) {
            self.fail_segment("write to", &error, now);
        }
        self.seal();
        self.latencies.collect();
        let Self { syncer, metrics, latencies, .. } = self;
        for done in syncer.finish() {
            match done {
                Done::Publish { result: Ok(()), .. } => metrics.recorder.segments_sealed.add(1),
                Done::Sync { result: Ok(()), .. } => {}
                Done::Sync { result: Err(error), .. } | Done::Publish { result: Err(error), .. } => {
                    metrics.recorder.storage_errors.add(1);
                    tracing::error!(%error, "cannot bring the last segment to the medium");
                }
            }
        }
        let (run, sources) = latencies.finish();
        let sources = metrics.sources.iter().zip(sources);
        RecorderReport {
            sources: sources
                .map(|(source, latencies)| SourceReport {
                    name: source.name.clone(),
                    period_ns: source.period_ns,
                    begun: source.begun.get(),
                    recorded: source.recorded.get(),
                    lost: source.begun.get() - source.recorded.get(),
                    missed: source.missed.get(),
                    lateness: latencies.lateness,
                    read_duration: latencies.read_duration,
                })
                .collect(),
            latencies: run,
            bytes: metrics.recorder.bytes.get(),
            segments_sealed: metrics.recorder.segments_sealed.get(),
            storage_errors: metrics.recorder.storage_errors.get(),
        }
    }

    /// Gaps for readings that were begun and that no slab brought.
    fn write_last_gaps(&mut self, now: u64) -> io::Result<()> {
        let Some(mut segment) = self.segment.take() else { return Ok(()) };
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
        if !gaps.is_empty() {
            self.control.clear();
            frame_gaps(&mut self.control, &gaps, &segment.writer);
            segment.writer.append(&mut [IoSlice::new(&self.control)], gaps.len() as u64)?;
            self.count_gaps(&gaps, &mut segment.writer);
        }
        self.segment = Some(segment);
        Ok(())
    }
}

fn frame_gaps(control: &mut Vec<u8>, gaps: &[Gap], writer: &SegmentWriter) {
    for gap in gaps {
        let payload = gap.encode();
        let header = writer.checksum().header(&payload).expect("a gap is 100 bytes");
        control.extend_from_slice(header.as_bytes());
        control.extend_from_slice(&payload);
    }
}

fn span_of(run: &Run, wall_offset_ns: i64) -> Span {
    Span {
        first_seq: run.first_seq,
        last_seq: run.last_seq,
        first_mono_ns: run.first_mono_ns,
        last_mono_ns: run.last_mono_ns,
        first_wall_ns: wall_offset_ns.wrapping_add_unsigned(run.first_mono_ns),
        last_wall_ns: wall_offset_ns.wrapping_add_unsigned(run.last_mono_ns),
    }
}
