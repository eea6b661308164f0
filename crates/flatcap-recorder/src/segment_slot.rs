//! The slot of the open segment. The slot creates, rotates and seals segments. After a storage
//! error it tries again, with exponential backoff.

use std::io;
use std::sync::Arc;

use flatcap_format::host::ClockReading;
use flatcap_format::segment::{
    SealState, SegmentHeader, SegmentName, SegmentOptions, SegmentWriter, SourceInfo,
};
use flatcap_format::storage::Storage;
use flatcap_metrics::{Metrics, RecorderMetrics};
use flatcap_os::clock::monotonic_ns;

use super::gap_tracker::GapTracker;
use super::latencies::LatencyAggregator;
use super::limit_warning::LimitWarning;
use super::policy::{self, RotationLimits, SegmentState};
use super::quota_core::{is_history_kept, is_limit};
use super::quota_storage::QuotaStorage;
use super::run_plan::RunPlan;
use super::syncer::{Syncer, SyncerResult};

/// Maximum number of abandoned segments whose removal is tried again. Recovery removes the
/// abandoned segments above this number.
const GIVEN_UP_MAX: usize = 64;
/// The error code that is stored as the last storage error if another program has removed the open
/// segment.
const ENOENT: i32 = 2;

/// Makes a call that the storage may delay. During the call, the metrics show a storage call, so
/// that the watchdog does not mistake the delay for a stuck loop.
pub(super) fn call_storage<T>(metrics: &RecorderMetrics, call: impl FnOnce() -> T) -> T {
    metrics.enter_storage(monotonic_ns());
    let result = call();
    metrics.leave_storage(monotonic_ns());
    result
}

/// The open segment, if there is any, and the state for creating and sealing segments.
#[derive(Debug)]
pub(super) struct SegmentSlot {
    pub(super) plan: RunPlan,
    pub(super) storage: Arc<QuotaStorage>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) syncer: Syncer,
    pub(super) latencies: LatencyAggregator,
    pub(super) gaps: GapTracker,
    pub(super) segment: Option<OpenSegment>,
    next_number: u64,
    pub(super) failures: u32, // consecutive
    limit_warning: LimitWarning,
    retry_ns: u64,
    pub(super) back_off_ns: fn(u32) -> u64, // wait after this many failures
    pub(super) is_ring: bool,               // without a segment it goes on, and tries again
    given_up: Vec<SegmentName>,             // whose creation failed, and which may be left
}

/// A segment that is being written.
#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) writer: SegmentWriter,
    pub(super) created_ns: u64,
    /// Size of header and attachments, in bytes.
    pub(super) preamble_bytes: u64,
    pub(super) first_unsynced_ns: Option<u64>,
    pub(super) first_unindexed_ns: Option<u64>,
    pub(super) synced_offset: u64,
}

impl SegmentSlot {
    /// Opens the first segment, with a higher number than any segment that the directory ever had,
    /// and starts the syncer.
    ///
    /// # Errors
    /// Errors of the storage. If the history is protected, or if this is the recorder of a ring,
    /// the run starts without a segment instead of failing.
    pub(super) fn start(
        (plan, is_ring): (RunPlan, bool),
        storage: Arc<QuotaStorage>,
        latencies: LatencyAggregator,
        gaps: GapTracker,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let entries = storage.entries()?;
        let next_number = SegmentName::first_number_of_run(entries.iter().map(|entry| entry.name.as_str()))
            .ok_or(io::ErrorKind::StorageFull)?;
        let mut slot = Self {
            syncer: Syncer::start(Arc::clone(&storage))?,
            plan,
            storage,
            metrics,
            latencies,
            gaps,
            segment: None,
            next_number,
            failures: 0,
            limit_warning: LimitWarning::default(),
            retry_ns: 0,
            back_off_ns: policy::back_off_ns,
            is_ring,
            given_up: Vec::new(),
        };
        match slot.create_segment() {
            // If the history is protected, the run starts without a segment, and tries again later
            // to create a segment.
            Err(error) if is_ring || is_history_kept(&error) => {
                slot.handle_segment_error("create", &error, monotonic_ns());
            }
            created => slot.segment = Some(created?),
        }
        Ok(slot)
    }

    /// Starts a sync if a sync is due according to the policy.
    pub(super) fn sync_if_due(&mut self, now: u64) {
        if let Some(segment) = &mut self.segment
            && policy::should_sync(self.plan.sync, segment.first_unsynced_ns, now)
            && self.syncer.sync(&segment.writer)
        {
            segment.first_unsynced_ns = None;
        }
    }

    /// Handles the results of the syncer.
    pub(super) fn poll_syncer(&mut self, now: u64) {
        for done in self.syncer.poll() {
            self.handle_result(done, now);
        }
    }

    fn handle_result(&mut self, done: SyncerResult, now: u64) {
        match done {
            SyncerResult::Sync { file, offset, duration_ns, result } => {
                self.latencies.sync.record(duration_ns);
                // A segment that was opened after the request is not affected.
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
                self.limit_warning.note(result, &self.metrics.recorder, now);
                // A segment that was opened after the request is not affected.
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

    /// Updates the metrics of the open segment.
    pub(super) fn publish_segment_metrics(&self) {
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

    /// Ensures, if possible, that there is an open segment with space for `bytes` more bytes.
    pub(super) fn ensure_segment(&mut self, bytes: u64, now: u64) {
        self.rotate_if_due(bytes, now);
        if self.segment.is_none() && now >= self.retry_ns {
            self.reopen(now);
        }
        self.index_if_due(now);
    }

    /// Adds a source to the run. Later segments have the source in their header. Returns whether
    /// the source is new.
    pub(super) fn add_source(&mut self, source: SourceInfo) -> bool {
        let sources = &mut self.plan.header.sources;
        // Source ids are assigned in ascending order. A concurrent reload may have added the same
        // source already.
        if usize::from(source.id) != sources.len() {
            return false;
        }
        sources.push(source);
        let count = sources.len();
        self.gaps.add_source();
        self.latencies.update_sources(count, Vec::new(), Vec::new());
        true
    }

    /// Describes the sources that the open segment does not describe yet. Returns false if a source
    /// remains without a descriptor. The samples of a source without a descriptor must not be
    /// written.
    pub(super) fn describe_sources(&mut self, now: u64) -> bool {
        while let Some(segment) = &self.segment {
            // Both lists of sources are sorted by id.
            let known = segment.writer.header().sources.len();
            let Some(source) = self.plan.header.sources.get(known) else { return true };
            let next_seq = self.gaps.progress.get(known).map_or(0, |progress| progress.next_seq);
            let source = SourceInfo { next_seq, ..source.clone() };
            self.append_control(now, |writer| writer.append_source(source));
            let has_it = |segment: &OpenSegment| segment.writer.header().sources.len() > known;
            if !self.segment.as_ref().is_some_and(has_it) {
                return false;
            }
        }
        false
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

    /// Writes gaps for samples that were begun but are in no slab. If a gap cannot be written, the
    /// next call tries again.
    pub(super) fn write_last_gaps(&mut self, now: u64) {
        for gap in self.gaps.last_gaps(now) {
            let Some(mut segment) = self.segment.take() else { return };
            let before = segment.writer.stored_bytes();
            match call_storage(&self.metrics.recorder, || {
                segment.writer.append_gaps(std::slice::from_ref(&gap))
            }) {
                Ok(()) => {
                    self.metrics.recorder.bytes.add(segment.writer.stored_bytes() - before);
                    self.gaps.count_last_gap(&gap);
                    self.segment = Some(segment);
                }
                Err(error) => {
                    self.handle_write_error(segment, &error, now);
                    return;
                }
            }
        }
    }

    /// Ends the run. Writes the last gaps and seals the segment. If a write fails, the remaining
    /// gaps go into another segment, because the run has no other place to record them.
    pub(super) fn end(&mut self, now: u64) {
        for _attempt in 0..2 {
            if self.segment.is_none() {
                self.reopen(now);
            }
            self.describe_sources(now);
            self.write_last_gaps(now);
            if self.segment.is_some() {
                break;
            }
        }
        self.seal();
    }

    pub(super) fn index_if_due(&mut self, now: u64) {
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

    /// Returns whether the open segment is known to be missing from the directory.
    pub(super) fn is_segment_removed(&self) -> bool {
        self.segment.as_ref().is_some_and(|segment| {
            let (name, file) = (segment.writer.name().to_string(), segment.writer.file());
            matches!(self.storage.is_name_of(&name, &*file), Ok(false))
        })
    }

    /// Begins the next segment in the current directory, because the open segment is no longer
    /// there. If the next segment cannot be created, the recorder continues with the old segment.
    /// If another program has moved the old segment, the recorded data is at the new place of this
    /// segment.
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

    /// Syncs the open segment and waits for the result.
    pub(super) fn sync_inline(&mut self) {
        let Some(segment) = &mut self.segment else { return };
        segment.first_unsynced_ns = None;
        let done = call_storage(&self.metrics.recorder, || self.syncer.sync_inline(&segment.writer));
        self.handle_result(done, monotonic_ns());
    }

    pub(super) fn rotate_if_due(&mut self, next_bytes: u64, now: u64) {
        let preamble_bytes = self.segment.as_ref().map_or(0, |segment| segment.preamble_bytes);
        let limits =
            RotationLimits { bytes: self.segment_bytes(preamble_bytes), age_ns: self.plan.segment_age_ns };
        let due = self.segment.as_ref().is_some_and(|segment| {
            let state = SegmentState {
                // The length that the segment would have if it were sealed now.
                bytes: segment.writer.bytes() + segment.writer.seal_bytes(),
                created_ns: segment.created_ns,
                has_content: segment.writer.has_content(),
            };
            segment.writer.has_max_blocks() || policy::should_rotate(state, limits, next_bytes, now)
        });
        if !due || now < self.retry_ns {
            return;
        }
        // The new segment is created first. If the creation fails, the old segment continues beyond
        // its limit.
        match self.create_segment() {
            Ok(next) => {
                self.failures = 0;
                self.seal();
                self.segment = Some(next);
            }
            Err(error) => {
                // If there is no closed segment to remove, the open segment contains the whole
                // history. After it is sealed, it can be removed.
                let is_all = is_limit(&error) && !self.storage.has_closed_segment();
                self.handle_segment_error("create", &error, now);
                if is_all && self.syncer.is_idle() {
                    self.seal();
                    self.retry_ns = now;
                }
            }
        }
    }

    /// Returns the size at which a segment is currently sealed.
    fn segment_bytes(&self, preamble_bytes: u64) -> u64 {
        policy::segment_bytes(self.plan.segment_bytes, self.storage.usable_bytes(), preamble_bytes)
    }

    /// Seals the open segment. The syncer then gives the segment its final name.
    pub(super) fn seal(&mut self) {
        let Some(mut segment) = self.segment.take() else { return };
        self.latencies.collect();
        let closed = self.latencies.finish_segment(&mut segment.writer);
        for source in closed {
            self.gaps.free_losses(source);
        }
        for (id, (source, progress)) in (0..).zip(self.metrics.sources.iter().zip(&mut self.gaps.progress)) {
            let (missed, partial) = (source.missed.get(), source.incomplete.get());
            if let Some(totals) = segment.writer.totals_mut(id) {
                totals.missed = missed - progress.missed_before;
                totals.incomplete = partial - progress.incomplete_before;
                if totals.incomplete > 0 {
                    let flags = source.incomplete_flags.get();
                    totals.incomplete_flags = u16::try_from(flags).unwrap_or_default();
                }
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

    /// Opens the next segment. If the segment cannot be opened, waits for the back-off time before
    /// the next attempt.
    pub(super) fn reopen(&mut self, now: u64) {
        match self.create_segment() {
            Ok(segment) => {
                self.failures = 0;
                self.segment = Some(segment);
            }
            Err(error) => self.handle_segment_error("create", &error, now),
        }
    }

    /// Handles a failed write. If the disk is full, nothing was written, and the segment stays open
    /// until there is space again. After any other error, the recorder never writes to the segment
    /// again.
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
            // This error was already logged. The operation is tried again with each batch, but not
            // logged again.
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let wait_ns = (self.back_off_ns)(self.failures);
        self.retry_ns = now + wait_ns;
        tracing::error!(
            %error,
            retry_in_ms = wait_ns / 1_000_000,
            ring = self.is_ring,
            "cannot {action} a segment; sampling goes on, samples that cannot be written count as lost"
        );
    }

    /// Tries again to remove abandoned segments, that is, segments that could neither be created
    /// completely nor be removed.
    fn remove_given_up(&mut self) {
        let storage = &self.storage;
        self.given_up.retain(|name| {
            let removed = call_storage(&self.metrics.recorder, || storage.remove(&name.to_string()));
            removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        });
        let excess = self.given_up.len().saturating_sub(GIVEN_UP_MAX);
        self.given_up.drain(..excess);
    }

    /// Creates the next segment without making it the open segment.
    pub(super) fn create_segment(&mut self) -> io::Result<OpenSegment> {
        self.remove_given_up();
        let number = self.next_number;
        self.next_number = SegmentName::next_number(number).ok_or(io::ErrorKind::StorageFull)?;
        let mono_ns = monotonic_ns();
        let last_sync = self.plan.header.clocks;
        let clocks = ClockReading {
            mono_ns,
            // Wall and boot time are derived from the last clock sync, like the stamps of the
            // frames.
            boot_ns: last_sync.boot_ns + mono_ns.saturating_sub(last_sync.mono_ns),
            wall_ns: last_sync.wall_offset_ns().wrapping_add_unsigned(mono_ns),
        };
        let mut header = SegmentHeader { segment: number, clocks, ..self.plan.header.clone() };
        for (source, progress) in header.sources.iter_mut().zip(&self.gaps.progress) {
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
        })
        .inspect_err(|error| {
            // A file that already existed belongs to another program.
            let is_left = || self.storage.open(&name.to_string()).is_ok();
            if error.kind() != io::ErrorKind::AlreadyExists && is_left() {
                self.given_up.push(name);
            }
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
