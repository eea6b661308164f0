//! Maintenance between two batches: clocks, index, sync, rotation, and failed segments.

use std::io;
use std::sync::Arc;

use super::drain::{COLLECT_INTERVAL_NS, OpenSegment, Recorder};
use super::policy::{self, RotationLimits, SegmentState};
use super::syncer::SyncerResult;
use crate::metrics::{LimitingBudget, RecorderMetrics};
use crate::os::clock::{ClockChange, ClockReading, NS_PER_S, monotonic_ns};
use crate::os::storage::Storage;
use crate::segment::{
    ClockCause, ClockSync, Marker, MarkerOrigin, SealState, SegmentHeader, SegmentName, SegmentOptions,
    SegmentWriter,
};

/// ENOENT: the last storage error after the removal of an open segment.
const ENOENT: i32 = 2;

/// Makes a call that the storage may delay. It is marked as such, so the watchdog does not take it
/// for a stuck loop.
pub(super) fn call_storage<T>(metrics: &RecorderMetrics, call: impl FnOnce() -> T) -> T {
    metrics.enter_storage(monotonic_ns());
    let result = call();
    metrics.leave_storage(monotonic_ns());
    result
}

/// Rate limit of the warning that the retention limits cannot be kept.
#[derive(Debug, Default)]
pub(super) struct LimitWarning {
    reason: Option<io::ErrorKind>,
    repeats: u32,
    next_ns: u64,
}

impl LimitWarning {
    /// Interval after the first warning; each further one is twice as long.
    const INTERVAL_NS: u64 = 60 * NS_PER_S;
    /// The interval grows to 2^10 times the first: 17 hours.
    const DOUBLINGS_MAX: u32 = 10;

    /// Whether to warn now. Counts as done if so.
    fn is_due(&mut self, reason: io::ErrorKind, now: u64) -> bool {
        if self.reason == Some(reason) && now < self.next_ns {
            return false;
        }
        self.repeats = if self.reason == Some(reason) { self.repeats + 1 } else { 0 };
        self.reason = Some(reason);
        self.next_ns = now.saturating_add(Self::INTERVAL_NS << self.repeats.min(Self::DOUBLINGS_MAX));
        true
    }
}

impl Recorder {
    /// Does the work that is due and does not depend on queued slabs.
    pub(super) fn maintain(&mut self, now: u64) {
        for done in self.syncer.poll() {
            self.handle_result(done, now);
        }
        if let Some((change, clocks)) = self.clock_watch.poll_change() {
            self.record_clock_sync(change, clocks, now);
        }
        if now >= self.collect_ns {
            self.collect_ns = now + COLLECT_INTERVAL_NS;
            self.latencies.collect();
            self.metrics.recorder.slabs_queued.set(std::mem::take(&mut self.queued_max) as u64);
            self.metrics.recorder.slabs_free.set(self.pool.free() as u64);
            self.metrics.recorder.losses_pending.set(self.losses.pending().0);
            self.mark_stride_changes(now);
            self.warn_unresponsive_sources();
            self.warn_failing_sources();
            let wall_ns = self.plan.header.clocks.wall_offset_ns().wrapping_add_unsigned(now);
            let open = self.segment.as_ref().map(|segment| &segment.writer);
            self.syncer.enforce_limits(wall_ns.div_euclid(NS_PER_S.cast_signed()), open);
        }
        self.index_if_due(now);
        if let Some(segment) = &mut self.segment
            && policy::should_sync(self.plan.sync, segment.first_unsynced_ns, now)
            && self.syncer.sync(&segment.writer)
        {
            segment.first_unsynced_ns = None;
        }
        self.rotate_if_due(0, now);
        self.publish_segment_metrics();
    }

    /// Publishes the state of the open segment.
    fn publish_segment_metrics(&self) {
        let metrics = &self.metrics.recorder;
        metrics.segment_open.set(u64::from(self.segment.is_some()));
        let Some(segment) = &self.segment else { return };
        let name = segment.writer.name();
        metrics.segment_number.set(name.number);
        metrics.segment_created_s.set(u64::try_from(name.created_s).unwrap_or_default());
        metrics.segment_begun_ns.set(segment.created_ns);
        metrics.segment_bytes.set(segment.writer.bytes());
        metrics.segment_frames.set(segment.writer.frames());
    }

    /// Makes sure that a segment with space for `bytes` is open, if possible.
    pub(super) fn ensure_segment(&mut self, bytes: u64, now: u64) {
        self.rotate_if_due(bytes, now);
        if self.segment.is_none() && now >= self.retry_ns {
            self.reopen(now);
        }
        self.index_if_due(now);
    }

    /// Records a clock sync, and stamps by it from now on.
    fn record_clock_sync(&mut self, change: ClockChange, clocks: ClockReading, now: u64) {
        let old_ns = self.plan.header.clocks.wall_offset_ns();
        let cause = match change {
            ClockChange::Stepped => ClockCause::Stepped,
            ClockChange::Resumed => ClockCause::Resumed,
        };
        tracing::info!(
            step_ns = clocks.wall_offset_ns().wrapping_sub(old_ns),
            "the wall clock was set or the host was suspended; recording a new clock sync"
        );
        self.plan.header.clocks = clocks;
        self.plan.header.add_clocks(clocks);
        // If this fails, the next header has the clock sync anyway.
        self.append_control(now, |writer| writer.append_clock_sync(&ClockSync { clocks, cause }));
        self.wall_offset.set(&clocks);
    }

    /// Marks in the file which sources have changed their stride, because they exceed their budget
    /// or no longer do.
    fn mark_stride_changes(&mut self, now: u64) {
        let metrics = Arc::clone(&self.metrics);
        for (id, source) in metrics.sources.iter().enumerate() {
            let (Some(progress), (stride, limit)) = (self.progress.get_mut(id), source.stride_and_budget())
            else {
                continue;
            };
            if progress.stride == stride {
                continue;
            }
            progress.stride = stride;
            let text = match (stride, limit) {
                (1, _) => format!("{}: every period is read again, within all budgets", source.name),
                (_, LimitingBudget::Source) => format!(
                    "{}: one period in {stride} is read, to stay within the source's budget",
                    source.name
                ),
                (_, LimitingBudget::Recorder) => format!(
                    "{}: one period in {stride} is read, to stay within cpu_budget, the budget of all sources together",
                    source.name
                ),
            };
            if stride == 1 {
                tracing::info!(source = source.name.as_str(), stride, "{text}");
            } else {
                tracing::warn!(source = source.name.as_str(), stride, "kept within its budget: {text}");
            }
            let wall_ns = self.plan.header.clocks.wall_offset_ns().wrapping_add_unsigned(now);
            let marker = Marker { mono_ns: now, wall_ns, origin: MarkerOrigin::Recorder, text };
            self.append_control(now, |writer| writer.append_marker(&marker));
        }
    }

    /// Warns of sources that did not answer in time.
    fn warn_unresponsive_sources(&mut self) {
        for (source, progress) in self.metrics.sources.iter().zip(&mut self.progress) {
            let timed_out = source.timed_out.get();
            if timed_out > progress.logged_timed_out {
                progress.logged_timed_out = timed_out;
                tracing::warn!(
                    source = source.name.as_str(),
                    samples = timed_out,
                    "source does not answer in time; these samples are lost"
                );
            }
        }
    }

    /// Warns of sources that cannot be read: once until they can be, or fail for another reason.
    fn warn_failing_sources(&mut self) {
        for (source, progress) in self.metrics.sources.iter().zip(&mut self.progress) {
            let failed = source.failed.get();
            if failed <= progress.seen_failed {
                continue;
            }
            let others = source.begun.get().saturating_sub(failed + source.timed_out.get());
            // One sample may be in flight.
            let has_recovered = others > progress.logged_not_failed + 1;
            let error = source.last_errno.get();
            let is_said = progress.seen_failed > 0 && error == progress.logged_errno && !has_recovered;
            progress.seen_failed = failed;
            if !is_said {
                (progress.logged_errno, progress.logged_not_failed) = (error, others);
                let reason = source.failure();
                tracing::warn!(
                    source = source.name.as_str(),
                    error = %reason,
                    "cannot read this source; its samples are lost until it can be read"
                );
            }
        }
    }

    /// Appends a control frame, if a segment is open.
    pub(super) fn append_control(
        &mut self,
        now: u64,
        append: impl FnOnce(&mut SegmentWriter) -> io::Result<()>,
    ) {
        let Some(mut segment) = self.segment.take() else { return };
        let before = segment.writer.stored_bytes();
        match call_storage(&self.metrics.recorder, || append(&mut segment.writer)) {
            Ok(()) => {
                self.metrics.recorder.bytes.add(segment.writer.stored_bytes() - before);
                segment.first_unsynced_ns.get_or_insert(now);
                segment.first_unindexed_ns.get_or_insert(now);
                self.segment = Some(segment);
            }
            Err(error) => self.handle_write_error(segment, &error, now),
        }
    }

    fn index_if_due(&mut self, now: u64) {
        let due = self.segment.take_if(|segment| {
            policy::should_index(segment.writer.unindexed_bytes(), segment.first_unindexed_ns, now)
        });
        let Some(mut segment) = due else { return };
        let before = segment.writer.stored_bytes();
        let synced_offset = segment.synced_offset;
        match call_storage(&self.metrics.recorder, || segment.writer.append_index(synced_offset)) {
            Ok(()) => {
                self.metrics.recorder.bytes.add(segment.writer.stored_bytes() - before);
                segment.first_unindexed_ns = None;
                segment.first_unsynced_ns.get_or_insert(now);
                self.segment = Some(segment);
            }
            Err(error) => self.handle_write_error(segment, &error, now),
        }
    }

    pub(super) fn handle_result(&mut self, done: SyncerResult, now: u64) {
        match done {
            SyncerResult::Sync { file, offset, duration_ns, result } => {
                self.latencies.sync.record(duration_ns);
                // A segment opened since then is not affected.
                let is_open = |segment: &mut OpenSegment| Arc::ptr_eq(&segment.writer.file(), &file);
                if let Err(error) = result {
                    self.segment.take_if(is_open);
                    self.handle_segment_error("sync", &error, now);
                } else if let Some(segment) = self.segment.as_mut()
                    && is_open(segment)
                {
                    segment.synced_offset = offset;
                }
            }
            SyncerResult::EnforceLimits { result, removed } => {
                self.note_limits_result(result, now);
                // A segment opened since then is not affected.
                let is_open =
                    |file| self.segment.as_ref().is_some_and(|open| Arc::ptr_eq(&open.writer.file(), &file));
                if removed.is_some_and(is_open) {
                    self.replace_removed_segment(now);
                }
            }
            SyncerResult::Publish { result: Ok(()), .. } => self.metrics.recorder.segments_sealed.add(1),
            SyncerResult::Publish { name, result: Err(error) } => {
                self.metrics.recorder.note_storage_error(&error);
                tracing::error!(segment = %name, %error, "cannot publish the sealed segment; it keeps the name .active");
            }
        }
    }

    /// Warns that the limits cannot be kept: at first, when the reason changes, and at growing
    /// intervals.
    fn note_limits_result(&mut self, result: io::Result<()>, now: u64) {
        let Err(error) = result else {
            self.limit_warning = LimitWarning::default();
            return;
        };
        self.metrics.recorder.note_storage_error(&error);
        if self.limit_warning.is_due(error.kind(), now) {
            tracing::warn!(%error, "cannot keep the retention limits of the data directory");
        }
    }

    /// Whether the open segment is known to be missing in the directory.
    pub(super) fn is_segment_removed(&self) -> bool {
        self.segment.as_ref().is_some_and(|segment| {
            let (name, file) = (segment.writer.name().to_string(), segment.writer.file());
            matches!(self.storage.is_name_of(&name, &*file), Ok(false))
        })
    }

    /// Begins the next segment in the current directory, because the open one is no longer there.
    /// If that fails, the old one continues; if it was moved, its new place has the data.
    #[cold]
    pub(super) fn replace_removed_segment(&mut self, now: u64) {
        let Some(removed) = &self.segment else { return };
        let (name, frames) = (removed.writer.name(), removed.writer.frames());
        match self.create_segment() {
            Ok(next) => {
                self.metrics.recorder.segments_removed.add(1);
                self.metrics.recorder.frames_removed.add(frames);
                self.metrics.recorder.note_storage_error(&io::Error::from_raw_os_error(ENOENT));
                tracing::error!(
                    segment = %name,
                    frames,
                    "the open segment was removed from the data directory and its frames are lost; beginning the next one"
                );
                self.failures = 0;
                self.segment = Some(next);
            }
            Err(error) => self.handle_segment_error("create", &error, now),
        }
    }

    pub(super) fn sync_inline(&mut self) {
        let Some(segment) = &mut self.segment else { return };
        segment.first_unsynced_ns = None;
        let done = call_storage(&self.metrics.recorder, || self.syncer.sync_inline(&segment.writer));
        self.handle_result(done, monotonic_ns());
    }

    fn rotate_if_due(&mut self, next_bytes: u64, now: u64) {
        let preamble_bytes = self.segment.as_ref().map_or(0, |segment| segment.preamble_bytes);
        let limits =
            RotationLimits { bytes: self.segment_bytes(preamble_bytes), age_ns: self.plan.segment_age_ns };
        let due = self.segment.as_ref().is_some_and(|segment| {
            let state = SegmentState {
                // As large as it would be if sealed now.
                bytes: segment.writer.bytes() + segment.writer.seal_bytes(),
                created_ns: segment.created_ns,
                has_content: segment.writer.has_content(),
            };
            segment.writer.has_max_blocks() || policy::should_rotate(state, limits, next_bytes, now)
        });
        if !due || now < self.retry_ns {
            return;
        }
        // The new one first: if it cannot be created, the old one continues, longer than it should.
        match self.create_segment() {
            Ok(next) => {
                self.failures = 0;
                self.seal();
                self.segment = Some(next);
            }
            Err(error) => {
                // If no closed segment could be removed, this one holds everything: once sealed it
                // can be.
                let is_all = error.kind() == io::ErrorKind::StorageFull && !self.storage.has_closed_segment();
                self.handle_segment_error("create", &error, now);
                if is_all && self.syncer.is_idle() {
                    self.seal();
                    self.retry_ns = now;
                }
            }
        }
    }

    /// Returns the size at which a segment is sealed now.
    fn segment_bytes(&self, preamble_bytes: u64) -> u64 {
        policy::segment_bytes(self.plan.segment_bytes, self.storage.usable_bytes(), preamble_bytes)
    }

    pub(super) fn seal(&mut self) {
        let Some(mut segment) = self.segment.take() else { return };
        self.latencies.collect();
        let closed = self.latencies.finish_segment(&mut segment.writer);
        for source in closed {
            self.free_losses(source);
        }
        for (id, (source, progress)) in (0..).zip(self.metrics.sources.iter().zip(&mut self.progress)) {
            let (missed, partial) = (source.missed.get(), source.incomplete.get());
            if let Some(totals) = segment.writer.totals_mut(id) {
                totals.missed = missed - progress.missed_before;
                totals.incomplete = partial - progress.incomplete_before;
            }
            (progress.missed_before, progress.incomplete_before) = (missed, partial);
        }
        let before = segment.writer.stored_bytes();
        match call_storage(&self.metrics.recorder, || segment.writer.seal()) {
            Ok(sealed) => {
                self.metrics.recorder.bytes.add(sealed.bytes() - before);
                self.syncer.publish(sealed);
            }
            Err(error) => {
                self.metrics.recorder.note_storage_error(&error);
                tracing::error!(%error, "cannot seal the segment; it stays unsealed, its frames are intact");
            }
        }
    }

    /// Opens the next segment, or backs off before the next attempt.
    pub(super) fn reopen(&mut self, now: u64) {
        match self.create_segment() {
            Ok(segment) => {
                self.failures = 0;
                self.segment = Some(segment);
            }
            Err(error) => self.handle_segment_error("create", &error, now),
        }
    }

    /// Handles a failed write. With a full disk nothing was written, and the segment stays open
    /// until there is space again; after any other error it is never touched again.
    #[cold]
    pub(super) fn handle_write_error(&mut self, segment: OpenSegment, error: &io::Error, now: u64) {
        if error.kind() == io::ErrorKind::StorageFull {
            self.segment = Some(segment);
        }
        self.handle_segment_error("write to", error, now);
    }

    #[cold]
    fn handle_segment_error(&mut self, action: &str, error: &io::Error, now: u64) {
        self.metrics.recorder.note_storage_error(error);
        if self.failures > 0 && now < self.retry_ns {
            // Already logged; retried with each batch, but not logged with each.
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let wait_ns = (self.back_off_ns)(self.failures);
        self.retry_ns = now + wait_ns;
        tracing::error!(
            %error,
            retry_in_ms = wait_ns / 1_000_000,
            "cannot {action} a segment; sampling goes on, samples that cannot be written count as lost"
        );
    }

    pub(super) fn create_segment(&mut self) -> io::Result<OpenSegment> {
        let number = self.next_number;
        self.next_number = SegmentName::next_number(number).ok_or(io::ErrorKind::StorageFull)?;
        let mono_ns = monotonic_ns();
        let last_sync = self.plan.header.clocks;
        let clocks = ClockReading {
            mono_ns,
            // Wall and boot time follow from the last clock sync, like the stamps of the frames.
            boot_ns: last_sync.boot_ns + mono_ns.saturating_sub(last_sync.mono_ns),
            wall_ns: last_sync.wall_offset_ns().wrapping_add_unsigned(mono_ns),
        };
        let mut header = SegmentHeader { segment: number, clocks, ..self.plan.header.clone() };
        for (source, progress) in header.sources.iter_mut().zip(&self.progress) {
            source.next_seq = progress.next_seq;
        }
        let name = SegmentName {
            number,
            created_s: clocks.wall_ns.div_euclid(1_000_000_000),
            run_id: header.run_id,
            state: SealState::Active,
        };
        let form = SegmentOptions {
            preallocate: policy::preallocate_step(self.plan.preallocate, self.segment_bytes(0)),
            compressor: self.plan.compression.clone(),
            copies_header: true,
        };
        let writer = call_storage(&self.metrics.recorder, || {
            SegmentWriter::create_with(&*self.storage, name, header, &self.plan.attachments, form)
        })?;
        self.metrics.recorder.bytes.add(writer.stored_bytes());
        Ok(OpenSegment {
            preamble_bytes: writer.bytes(),
            writer,
            created_ns: mono_ns,
            first_unsynced_ns: Some(mono_ns),
            first_unindexed_ns: None,
            synced_offset: 0,
        })
    }
}
