//! Between two batches: clocks, index, sync, rotation, and what becomes of a segment that fails.

use std::io;
use std::sync::Arc;

use super::drain::{COLLECT_INTERVAL_NS, OpenSegment, Recorder};
use super::policy::{self, RotationLimits, SegmentState};
use super::syncer::Done;
use crate::metrics::{Limit, RecorderMetrics};
use crate::os::clock::{ClockChange, ClockReading, NS_PER_S, monotonic_ns};
use crate::os::storage::Storage;
use crate::segment::{
    ClockCause, ClockSync, Form, Header, Marker, MarkerOrigin, SegmentName, SegmentWriter, State,
};

/// ENOENT: what is shown as the last error of a segment that was removed.
const NO_ENTRY: i32 = 2;

/// A call that the storage may hold up, and that is seen to be one while it does: nobody takes it for a loop that is stuck.
pub(super) fn in_storage<T>(metrics: &RecorderMetrics, call: impl FnOnce() -> T) -> T {
    metrics.enter_storage(monotonic_ns());
    let result = call();
    metrics.leave_storage(monotonic_ns());
    result
}

/// While the limits cannot be kept: why, and when to say it again.
#[derive(Debug, Default)]
pub(super) struct Untidy {
    reason: Option<io::ErrorKind>,
    said: u32,
    next_ns: u64,
}

impl Untidy {
    /// The first interval between two warnings; each further one is twice as long...
    const INTERVAL_NS: u64 = 60 * NS_PER_S;
    /// ...up to 2^10 times this: 17 hours.
    const DOUBLINGS_MAX: u32 = 10;

    /// Whether it is to be said now, which then counts as done.
    fn is_due(&mut self, reason: io::ErrorKind, now: u64) -> bool {
        if self.reason == Some(reason) && now < self.next_ns {
            return false;
        }
        self.said = if self.reason == Some(reason) { self.said + 1 } else { 0 };
        self.reason = Some(reason);
        self.next_ns = now.saturating_add(Self::INTERVAL_NS << self.said.min(Self::DOUBLINGS_MAX));
        true
    }
}

impl Recorder {
    /// What is due now and has nothing to do with what is queued.
    pub(super) fn keep_up(&mut self, now: u64) {
        for done in self.syncer.poll() {
            self.note(done, now);
        }
        if let Some((change, clocks)) = self.clock_watch.changed() {
            self.pair_clocks(change, clocks, now);
        }
        if now >= self.collect_ns {
            self.collect_ns = now + COLLECT_INTERVAL_NS;
            self.latencies.collect();
            self.metrics.recorder.slabs_queued.set(std::mem::take(&mut self.most_queued) as u64);
            self.metrics.recorder.slabs_free.set(self.pool.free() as u64);
            self.metrics.recorder.losses_pending.set(self.losses.pending().0);
            self.mark_periods(now);
            self.name_silent_sources();
            self.name_failing_sources();
            let wall_ns = self.plan.header.clocks.wall_offset_ns().wrapping_add_unsigned(now);
            let open = self.segment.as_ref().map(|segment| &segment.writer);
            self.syncer.tidy(wall_ns.div_euclid(NS_PER_S.cast_signed()), open);
        }
        self.index_if_due(now);
        if let Some(segment) = &mut self.segment
            && policy::should_sync(self.plan.sync, segment.first_unsynced_ns, now)
            && self.syncer.sync(&segment.writer)
        {
            segment.first_unsynced_ns = None;
        }
        self.rotate_if_due(0, now);
        self.publish_segment();
    }

    /// Says what the open segment is and holds.
    fn publish_segment(&self) {
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

    /// Sees to it that a segment is open in which there is place for `bytes`, if that can be.
    pub(super) fn prepare(&mut self, bytes: u64, now: u64) {
        self.rotate_if_due(bytes, now);
        if self.segment.is_none() && now >= self.retry_ns {
            self.reopen(now);
        }
        self.index_if_due(now);
    }

    /// Records a new pairing of the clocks, and stamps by it from here on.
    fn pair_clocks(&mut self, change: ClockChange, clocks: ClockReading, now: u64) {
        let old_ns = self.plan.header.clocks.wall_offset_ns();
        let cause = match change {
            ClockChange::Stepped => ClockCause::Stepped,
            ClockChange::Resumed => ClockCause::Resumed,
        };
        tracing::info!(
            step_ns = clocks.wall_offset_ns().wrapping_sub(old_ns),
            "the wall clock was set, or the host was suspended: the clocks are paired anew"
        );
        self.plan.header.clocks = clocks;
        self.plan.header.add_clocks(clocks);
        // If this fails, the next header has it all the same.
        self.append_control(now, |writer| writer.append_clock_sync(&ClockSync { clocks, cause }));
        self.wall_offset.set(&clocks);
    }

    /// Notes in the file which sources are read at another period than before, since they exceed their budget or no longer do.
    fn mark_periods(&mut self, now: u64) {
        let metrics = Arc::clone(&self.metrics);
        for (id, source) in metrics.sources.iter().enumerate() {
            let (Some(progress), (stride, limit)) = (self.progress.get_mut(id), source.pace()) else {
                continue;
            };
            if progress.stride == stride {
                continue;
            }
            progress.stride = stride;
            let text = match (stride, limit) {
                (1, _) => format!("{}: every period is read again, within all budgets", source.name),
                (_, Limit::Source) => format!(
                    "{}: one period in {stride} is read, to stay within the source's budget",
                    source.name
                ),
                (_, Limit::Agent) => format!(
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

    /// Says which sources did not answer in time.
    fn name_silent_sources(&mut self) {
        for (source, progress) in self.metrics.sources.iter().zip(&mut self.progress) {
            let timed_out = source.timed_out.get();
            if timed_out > progress.timed_out {
                progress.timed_out = timed_out;
                tracing::warn!(
                    source = source.name.as_str(),
                    readings = timed_out,
                    "does not answer in time: these readings are lost"
                );
            }
        }
    }

    /// Says which sources cannot be read and why: once until they can be, or fail for another reason.
    fn name_failing_sources(&mut self) {
        for (source, progress) in self.metrics.sources.iter().zip(&mut self.progress) {
            let failed = source.failed.get();
            if failed <= progress.failed {
                continue;
            }
            let others = source.begun.get().saturating_sub(failed + source.timed_out.get());
            // One may be under way.
            let has_recovered = others > progress.others_begun + 1;
            let error = source.error.get();
            let is_said = progress.failed > 0 && error == progress.error && !has_recovered;
            progress.failed = failed;
            if !is_said {
                (progress.error, progress.others_begun) = (error, others);
                let reason = source.failure();
                tracing::warn!(
                    source = source.name.as_str(),
                    error = %reason,
                    "cannot be read: readings are lost until it can"
                );
            }
        }
    }

    /// Appends a frame of the recorder's own, if there is a segment to append to.
    pub(super) fn append_control(
        &mut self,
        now: u64,
        append: impl FnOnce(&mut SegmentWriter) -> io::Result<()>,
    ) {
        let Some(mut segment) = self.segment.take() else { return };
        let before = segment.writer.stored_bytes();
        match in_storage(&self.metrics.recorder, || append(&mut segment.writer)) {
            Ok(()) => {
                self.metrics.recorder.bytes.add(segment.writer.stored_bytes() - before);
                segment.first_unsynced_ns.get_or_insert(now);
                segment.first_unindexed_ns.get_or_insert(now);
                self.segment = Some(segment);
            }
            Err(error) => self.fail_write(segment, &error, now),
        }
    }

    fn index_if_due(&mut self, now: u64) {
        let due = self.segment.take_if(|segment| {
            policy::should_index(segment.writer.unindexed_bytes(), segment.first_unindexed_ns, now)
        });
        let Some(mut segment) = due else { return };
        let before = segment.writer.stored_bytes();
        let synced_offset = segment.synced_offset;
        match in_storage(&self.metrics.recorder, || segment.writer.append_index(synced_offset)) {
            Ok(()) => {
                self.metrics.recorder.bytes.add(segment.writer.stored_bytes() - before);
                segment.first_unindexed_ns = None;
                segment.first_unsynced_ns.get_or_insert(now);
                self.segment = Some(segment);
            }
            Err(error) => self.fail_write(segment, &error, now),
        }
    }

    pub(super) fn note(&mut self, done: Done, now: u64) {
        match done {
            Done::Sync { file, offset, duration_ns, result } => {
                self.latencies.sync.record(duration_ns);
                // A segment that was opened since has nothing to do with it.
                let is_open = |segment: &mut OpenSegment| Arc::ptr_eq(&segment.writer.file(), &file);
                if let Err(error) = result {
                    self.segment.take_if(is_open);
                    self.fail_segment("sync", &error, now);
                } else if let Some(segment) = self.segment.as_mut()
                    && is_open(segment)
                {
                    segment.synced_offset = offset;
                }
            }
            Done::Tidy { result, removed } => {
                self.note_tidy(result, now);
                // A segment that was opened since has nothing to do with it.
                let is_open =
                    |file| self.segment.as_ref().is_some_and(|open| Arc::ptr_eq(&open.writer.file(), &file));
                if removed.is_some_and(is_open) {
                    self.leave_removed(now);
                }
            }
            Done::Publish { result: Ok(()), .. } => self.metrics.recorder.segments_sealed.add(1),
            Done::Publish { name, result: Err(error) } => {
                self.metrics.recorder.note_storage_error(&error);
                tracing::error!(segment = %name, %error, "cannot publish the sealed segment; it keeps the name .active");
            }
        }
    }

    /// Says that the limits cannot be kept: when that begins, when the reason changes, and ever more rarely while it lasts.
    fn note_tidy(&mut self, result: io::Result<()>, now: u64) {
        let Err(error) = result else {
            self.untidy = Untidy::default();
            return;
        };
        self.metrics.recorder.note_storage_error(&error);
        if self.untidy.is_due(error.kind(), now) {
            tracing::warn!(%error, "cannot keep the limits of the data directory");
        }
    }

    /// Whether the open segment is known to be in the directory no longer.
    pub(super) fn is_open_removed(&self) -> bool {
        self.segment.as_ref().is_some_and(|segment| {
            let (name, file) = (segment.writer.name().to_string(), segment.writer.file());
            matches!(self.storage.leads_to(&name, &*file), Ok(false))
        })
    }

    /// The open segment is in the directory no longer: the next one is begun in what is the directory now. If it cannot be, the old one goes on; whoever
    /// has moved it away has what is written to it.
    #[cold]
    pub(super) fn leave_removed(&mut self, now: u64) {
        let Some(removed) = &self.segment else { return };
        let (name, frames) = (removed.writer.name(), removed.writer.frames());
        match self.create_segment() {
            Ok(next) => {
                self.metrics.recorder.segments_removed.add(1);
                self.metrics.recorder.frames_removed.add(frames);
                self.metrics.recorder.note_storage_error(&io::Error::from_raw_os_error(NO_ENTRY));
                tracing::error!(
                    segment = %name,
                    frames,
                    "the open segment was removed from the data directory, and its frames with it; the next one is begun"
                );
                self.failures = 0;
                self.segment = Some(next);
            }
            Err(error) => self.fail_segment("create", &error, now),
        }
    }

    pub(super) fn sync_inline(&mut self) {
        let Some(segment) = &mut self.segment else { return };
        segment.first_unsynced_ns = None;
        let done = in_storage(&self.metrics.recorder, || self.syncer.sync_inline(&segment.writer));
        self.note(done, monotonic_ns());
    }

    fn rotate_if_due(&mut self, next_bytes: u64, now: u64) {
        let begin_bytes = self.segment.as_ref().map_or(0, |segment| segment.begin_bytes);
        let limits =
            RotationLimits { bytes: self.segment_bytes(begin_bytes), age_ns: self.plan.segment_age_ns };
        let due = self.segment.as_ref().is_some_and(|segment| {
            let state = SegmentState {
                // As large as it would be, were it sealed now.
                bytes: segment.writer.bytes() + segment.writer.seal_bytes(),
                created_ns: segment.created_ns,
                has_content: segment.writer.has_content(),
            };
            segment.writer.is_crowded() || policy::should_rotate(state, limits, next_bytes, now)
        });
        if !due || now < self.retry_ns {
            return;
        }
        // The new one first: where it cannot be made, the old one goes on, longer than it should.
        match self.create_segment() {
            Ok(next) => {
                self.failures = 0;
                self.seal();
                self.segment = Some(next);
            }
            Err(error) => {
                // Where none is closed that could make room, this one is all that there is, and it may be much: closed, it can.
                let is_all = error.kind() == io::ErrorKind::StorageFull && !self.storage.has_closed();
                self.fail_segment("create", &error, now);
                if is_all && self.syncer.is_idle() {
                    self.seal();
                    self.retry_ns = now;
                }
            }
        }
    }

    /// The size at which a segment is sealed now.
    fn segment_bytes(&self, begin_bytes: u64) -> u64 {
        policy::segment_bytes(self.plan.segment_bytes, self.storage.usable(), begin_bytes)
    }

    pub(super) fn seal(&mut self) {
        let Some(mut segment) = self.segment.take() else { return };
        self.latencies.collect();
        let closed = self.latencies.settle(&mut segment.writer);
        for source in closed {
            self.forget_losses(source);
        }
        for (id, (source, progress)) in (0..).zip(self.metrics.sources.iter().zip(&mut self.progress)) {
            let (missed, partial) = (source.missed.get(), source.partial.get());
            if let Some(totals) = segment.writer.totals_mut(id) {
                totals.missed = missed - progress.missed_before;
                totals.partial = partial - progress.partial_before;
            }
            (progress.missed_before, progress.partial_before) = (missed, partial);
        }
        let before = segment.writer.stored_bytes();
        match in_storage(&self.metrics.recorder, || segment.writer.seal()) {
            Ok(sealed) => {
                self.metrics.recorder.bytes.add(sealed.bytes() - before);
                self.syncer.publish(sealed);
            }
            Err(error) => {
                self.metrics.recorder.note_storage_error(&error);
                tracing::error!(%error, "cannot seal the segment; it stays unsealed, its frames are whole");
            }
        }
    }

    /// Opens the next segment, or waits before the next attempt.
    pub(super) fn reopen(&mut self, now: u64) {
        match self.create_segment() {
            Ok(segment) => {
                self.failures = 0;
                self.segment = Some(segment);
            }
            Err(error) => self.fail_segment("create", &error, now),
        }
    }

    /// A write has failed. Where there is no room nothing was written, and the segment stays open for what comes when there is
    /// some again; after any other error it is never touched again.
    #[cold]
    pub(super) fn fail_write(&mut self, segment: OpenSegment, error: &io::Error, now: u64) {
        if error.kind() == io::ErrorKind::StorageFull {
            self.segment = Some(segment);
        }
        self.fail_segment("write to", error, now);
    }

    #[cold]
    fn fail_segment(&mut self, action: &str, error: &io::Error, now: u64) {
        self.metrics.recorder.note_storage_error(error);
        if self.failures > 0 && now < self.retry_ns {
            // Said already; it is tried again with each batch, but not said with each.
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let wait_ns = (self.back_off_ns)(self.failures);
        self.retry_ns = now + wait_ns;
        tracing::error!(
            %error,
            retry_in_ms = wait_ns / 1_000_000,
            "cannot {action} a segment; sampling goes on, what cannot be written is counted as lost"
        );
    }

    pub(super) fn create_segment(&mut self) -> io::Result<OpenSegment> {
        let number = self.next_number;
        self.next_number = SegmentName::next_number(number).ok_or(io::ErrorKind::StorageFull)?;
        let mono_ns = monotonic_ns();
        let paired = self.plan.header.clocks;
        let clocks = ClockReading {
            mono_ns,
            // Wall and boot time follow from the last pairing, as the frames' stamps do.
            boot_ns: paired.boot_ns + mono_ns.saturating_sub(paired.mono_ns),
            wall_ns: paired.wall_offset_ns().wrapping_add_unsigned(mono_ns),
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
        let form = Form {
            preallocate: policy::preallocate_step(self.plan.preallocate, self.segment_bytes(0)),
            packing: self.plan.packing.clone(),
            copies_header: true,
        };
        let writer = in_storage(&self.metrics.recorder, || {
            SegmentWriter::create_as(&*self.storage, name, header, &self.plan.attachments, form)
        })?;
        self.metrics.recorder.bytes.add(writer.stored_bytes());
        Ok(OpenSegment {
            begin_bytes: writer.bytes(),
            writer,
            created_ns: mono_ns,
            first_unsynced_ns: Some(mono_ns),
            first_unindexed_ns: None,
            synced_offset: 0,
        })
    }
}
