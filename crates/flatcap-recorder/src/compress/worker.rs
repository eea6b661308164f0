//! Compresses sealed segments during a recording. All state belongs to the worker's loop. The loop
//! decides when segments are compressed, and assigns them to compressors. The caller provides the
//! thread of the loop.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use flatcap_format::segment::SegmentName;
use flatcap_format::storage::Storage;
use flatcap_metrics::{CompressionMetrics, DirectoryMetrics};
use flatcap_os::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;

use super::backlog::{Backlog, BacklogState, CompressorShare, NextAction, WAIT_MAX_NS, next_action};
#[cfg(test)]
use super::compressor::CompressorKind;
use super::compressor::{
    Assignment, CompressionBudget, CompressorContext, CompressorHandle, GUARANTEED, IDLE,
};
use super::named_options::NamedSourceCompression;
use super::outcome::{CompressError, CompressOutcome, CompressSkipReason};
use super::sealed_segments::{remove_leftovers, sealed_segments};

/// Interval between two listings of the directory if no segment is announced. The listing finds
/// segments that other programs have put into the directory.
const LIST_INTERVAL_NS: u64 = 60 * NS_PER_S;
/// Minimum interval between two listings of the directory while segments wait. The interval is
/// needed because the directory may contain thousands of segments.
const LIST_PAUSE_NS: u64 = 10 * NS_PER_S;
/// The pause after the first failure, in nanoseconds. After each further failure, the pause is
/// twice as long, up to `BACK_OFF_MAX_NS`.
const BACK_OFF_NS: u64 = NS_PER_S;
/// Maximum pause after a failure, in nanoseconds.
const BACK_OFF_MAX_NS: u64 = 600 * NS_PER_S;
/// Maximum number of settings that the worker has not read yet. Further settings replace the
/// oldest.
const SETTINGS_MAX: usize = 16;

/// The settings of compression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressSettings {
    /// Whether to compress.
    pub enabled: bool,
    /// Codecs and layouts of the sources.
    pub compression: NamedSourceCompression,
    /// Limit on the raw bytes per block.
    pub block_bytes: usize,
    /// The budget of all threads together.
    pub budget: CompressionBudget,
    /// Whether compressed segments are not logged. A ring sets this, because it compresses a
    /// segment every few seconds.
    pub is_quiet: bool,
}

/// Controls a worker from any thread.
#[derive(Debug, Clone)]
pub struct CompressWorkerHandle {
    signals: Arc<WorkerSignals>,
}

/// Compresses segments one after the other.
///
/// Each segment is first assigned to the compressor at idle priority. If a segment has waited too
/// long, a second compressor, which has a guaranteed share, compresses the segment. Segments wait
/// because the host is busy or because the recording rate exceeds the budget. Both compressors
/// together stay within the budget.
#[derive(Debug)]
pub struct CompressWorker {
    signals: Arc<WorkerSignals>,
    settings: CompressSettings,
    common: Arc<CompressorContext>,
    directory: Arc<DirectoryMetrics>,
    backlog: Backlog,
    idle: CompressorHandle,
    guaranteed: CompressorHandle,
    wait_max_ns: u64,
    next_listing_ns: u64, // when to list the directory next
    last_listing_ns: u64, // when it was listed last
    resume_ns: u64,       // nothing starts before this: the pause after a failure
    cpu_ns: u64,          // of this thread, charged so far
    failures: u32,        // in a row
    logged: BTreeMap<&'static str, String>,
    can_exchange: bool,
}

#[derive(Debug)]
struct WorkerSignals {
    settings: ArrayQueue<CompressSettings>, // the newest counts
    wake: Arc<WakeEvent>,                   // set with any of these, and by a compressor that is done
    has_update: AtomicBool,                 // a new segment or new settings
    is_urgent: AtomicBool,                  // disk space is low
    stop: AtomicBool,
}

/// Creates a worker and its handle.
pub fn new_worker(
    settings: CompressSettings,
    storage: Arc<dyn Storage>,
    metrics: Arc<CompressionMetrics>,
    directory: Arc<DirectoryMetrics>,
) -> (CompressWorkerHandle, CompressWorker) {
    let bell = Arc::new(WakeEvent::new());
    let common = Arc::new(CompressorContext::new(storage, metrics, settings.budget, Arc::clone(&bell)));
    let signals = Arc::new(WorkerSignals {
        settings: ArrayQueue::new(SETTINGS_MAX),
        wake: bell,
        has_update: AtomicBool::new(false),
        is_urgent: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    });
    let worker = CompressWorker {
        signals: Arc::clone(&signals),
        settings,
        idle: CompressorHandle::new(IDLE, Arc::clone(&common)),
        guaranteed: CompressorHandle::new(GUARANTEED, Arc::clone(&common)),
        common,
        directory,
        backlog: Backlog::default(),
        wait_max_ns: WAIT_MAX_NS,
        next_listing_ns: 0,
        last_listing_ns: 0,
        resume_ns: 0,
        cpu_ns: 0,
        failures: 0,
        logged: BTreeMap::new(),
        can_exchange: true,
    };
    (CompressWorkerHandle { signals }, worker)
}

#[cfg(test)]
impl CompressWorker {
    /// Replaces the kinds of threads and the maximum waiting time, so that a test can block a
    /// thread.
    pub(super) fn with_threads(
        self,
        spare: CompressorKind,
        guaranteed: CompressorKind,
        wait_max_ns: u64,
    ) -> Self {
        Self {
            idle: CompressorHandle::new(spare, Arc::clone(&self.common)),
            guaranteed: CompressorHandle::new(guaranteed, Arc::clone(&self.common)),
            wait_max_ns,
            ..self
        }
    }

    /// Returns a function that other threads can call to get the current pause, in nanoseconds.
    pub(super) fn watch_pause(&self) -> impl Fn() -> u64 + use<> {
        let common = Arc::clone(&self.common);
        move || common.pause_ns(monotonic_ns())
    }
}

impl CompressWorkerHandle {
    /// Announces a sealed segment.
    pub fn notify(&self) {
        self.signals.has_update.store(true, Ordering::Release);
        self.signals.wake.set();
    }

    /// Changes the settings. The current segment continues with its options under the new budget,
    /// unless compression is disabled.
    pub fn set_settings(&self, settings: CompressSettings) {
        let _older = self.signals.settings.force_push(settings);
        self.notify();
    }

    /// Sets whether disk space is low. If disk space is low, segments are compressed with the
    /// guaranteed share without waiting. This function never blocks, so any thread may call it
    /// often.
    pub fn set_urgent(&self, is_urgent: bool) {
        if self.signals.is_urgent.swap(is_urgent, Ordering::AcqRel) != is_urgent {
            self.notify();
        }
    }

    /// Stops the worker. The segments that are being compressed are abandoned.
    pub fn stop(&self) {
        self.signals.stop.store(true, Ordering::Release);
        self.signals.wake.set();
    }
}

impl CompressWorker {
    /// Runs the loop on the caller's thread until the worker is stopped.
    pub fn run(mut self) {
        // The worker must not delay the samplers. At idle priority, however, the worker might get
        // no CPU time to assign segments to the guaranteed compressor.
        if let Err(error) = thread::set_batch_priority() {
            tracing::warn!(%error, "cannot lower the priority of the compression worker; it keeps that of the process");
        }
        match remove_leftovers(&*self.common.storage) {
            Ok(0) => {}
            Ok(files) => tracing::info!(files, "removed temporary files of an interrupted compression"),
            Err(error) => {
                self.warn_once(&error, "cannot remove the temporary files of an interrupted compression");
            }
        }
        while !self.signals.stop.load(Ordering::Acquire) {
            self.signals.wake.clear();
            let now_ns = monotonic_ns();
            self.receive_settings(now_ns);
            self.collect(now_ns);
            let until_ns = self.advance(now_ns);
            self.publish_metrics(now_ns);
            self.signals.wake.wait_until(until_ns);
        }
        self.idle.stop();
        self.guaranteed.stop();
        self.guaranteed.join();
        self.idle.join();
    }

    /// Reads the newest settings and announcements. After a change of options, segments for which
    /// compression saved too little are tried again.
    fn receive_settings(&mut self, now_ns: u64) {
        if !self.signals.has_update.swap(false, Ordering::AcqRel) {
            return;
        }
        self.resume_ns = now_ns;
        let looks_now =
            self.backlog.waiting() == 0 || self.last_listing_ns.saturating_add(LIST_PAUSE_NS) <= now_ns;
        self.next_listing_ns =
            if looks_now { now_ns } else { self.next_listing_ns.min(self.last_listing_ns + LIST_PAUSE_NS) };
        let mut newest = None;
        while let Some(settings) = self.signals.settings.pop() {
            newest = Some(settings);
        }
        let Some(settings) = newest else { return };
        if (&settings.compression, settings.block_bytes)
            != (&self.settings.compression, self.settings.block_bytes)
        {
            self.backlog.forget_incompressible();
            self.next_listing_ns = now_ns;
        }
        if settings.budget != self.settings.budget {
            self.common.set_budget(settings.budget);
            self.idle.wake();
            self.guaranteed.wake();
        }
        self.settings = settings;
    }

    /// Takes finished assignments.
    fn collect(&mut self, now_ns: u64) {
        while let Some(done) = self.idle.take_done().or_else(|| self.guaranteed.take_done()) {
            self.handle_result(&done, now_ns);
        }
    }

    /// Lists the directory and assigns segments, if this is due. Returns the latest time at which
    /// the loop must continue.
    fn advance(&mut self, now_ns: u64) -> u64 {
        let is_enabled = self.settings.enabled && self.can_exchange;
        self.common.metrics.enabled.set(u64::from(is_enabled));
        if !is_enabled {
            self.idle.recall();
            self.guaranteed.recall();
            return now_ns.saturating_add(LIST_INTERVAL_NS);
        }
        if self.resume_ns > now_ns {
            return self.resume_ns;
        }
        loop {
            if self.next_listing_ns <= now_ns {
                self.list_segments(now_ns);
            }
            let step = next_action(BacklogState {
                now_ns,
                wait_max_ns: self.wait_max_ns,
                is_urgent: self.signals.is_urgent.load(Ordering::Acquire),
                next_since_ns: self.backlog.next_since_ns(),
                idle_progress_ns: self.idle.progress_ns(),
                is_guaranteed_free: self.guaranteed.current().is_none(),
            });
            match step {
                NextAction::Assign(share) => self.assign(share, now_ns),
                NextAction::Recall => {
                    self.idle.recall();
                    return self.next_listing_ns;
                }
                NextAction::WaitUntil(until_ns) => return until_ns.min(self.next_listing_ns),
            }
        }
    }

    fn list_segments(&mut self, now_ns: u64) {
        (self.last_listing_ns, self.next_listing_ns) = (now_ns, now_ns.saturating_add(LIST_INTERVAL_NS));
        match sealed_segments(&*self.common.storage) {
            Ok(names) => {
                let assigned =
                    [&self.idle, &self.guaranteed].into_iter().filter_map(CompressorHandle::current);
                let assigned: Vec<SegmentName> = assigned.copied().collect();
                self.backlog.update(names, &assigned, now_ns);
            }
            Err(error) => self.warn_once(&error, "cannot list the segments to compress"),
        }
    }

    /// Assigns the next segment to a compressor. After the last waiting segment is assigned, the
    /// directory is listed again.
    fn assign(&mut self, share: CompressorShare, now_ns: u64) {
        let Some(name) = self.backlog.take() else { return };
        let compressor = match share {
            CompressorShare::Idle => &mut self.idle,
            CompressorShare::Guaranteed => &mut self.guaranteed,
        };
        let CompressSettings { compression, block_bytes, .. } = self.settings.clone();
        let min_free = self.directory.min_free_bytes.get();
        if let Err(error) = compressor.assign(Assignment::new(name, compression, block_bytes, min_free)) {
            self.fail(name, &format!("starting a thread: {error}"), now_ns);
        }
        if self.backlog.waiting() == 0 {
            self.next_listing_ns = now_ns;
        }
    }

    /// Updates the metrics and charges the CPU time of this thread.
    fn publish_metrics(&mut self, now_ns: u64) {
        let assigned = [&self.idle, &self.guaranteed].into_iter().filter_map(CompressorHandle::current);
        let assigned: Vec<&SegmentName> = assigned.collect();
        let since = assigned.iter().filter_map(|name| self.backlog.waiting_since_ns(name));
        let oldest_ns = since.chain(self.backlog.next_since_ns()).min();
        let metrics = &self.common.metrics;
        // If compression is disabled or impossible, no segment counts as waiting.
        let is_enabled = self.settings.enabled && self.can_exchange;
        let waiting = if is_enabled { self.backlog.waiting() + assigned.len() } else { 0 };
        metrics.waiting.set(waiting as u64);
        metrics.oldest_since_ns.set(oldest_ns.filter(|_| is_enabled).unwrap_or(0));
        let before_ns = std::mem::replace(&mut self.cpu_ns, thread_cpu_ns());
        metrics.planner_cpu_ns.set(self.cpu_ns);
        self.common.charge(now_ns, self.cpu_ns.saturating_sub(before_ns), 0);
    }

    /// Handles the result of compressing a segment.
    fn handle_result(&mut self, done: &Assignment, now_ns: u64) {
        let (name, metrics) = (done.name, &self.common.metrics);
        match done.result() {
            Some(Ok(CompressOutcome::Compressed { raw_bytes, stored_bytes })) => {
                let (raw_bytes, stored_bytes) = (*raw_bytes, *stored_bytes);
                metrics.segments.add(1);
                metrics.raw_bytes.add(raw_bytes);
                metrics.stored_bytes.add(stored_bytes);
                if self.settings.is_quiet {
                    tracing::debug!(segment = %name, raw_bytes, stored_bytes, "a segment is compressed");
                } else {
                    tracing::info!(segment = %name, raw_bytes, stored_bytes, "a segment is compressed");
                }
            }
            Some(Ok(CompressOutcome::Stopped)) => return self.backlog.put_back(name),
            Some(Ok(CompressOutcome::Skipped(
                left @ (CompressSkipReason::TooLittleSpace { .. } | CompressSkipReason::DiskFull),
            ))) => {
                // Other segments may be smaller and may fit into the free space, but the oldest
                // segment must be compressed first.
                self.backlog.put_back(name);
                return self.back_off(name, &left.to_string(), now_ns);
            }
            Some(Ok(CompressOutcome::Skipped(CompressSkipReason::NoExchange))) => {
                self.backlog.put_back(name);
                if std::mem::replace(&mut self.can_exchange, false) {
                    tracing::warn!(
                        "segments are not compressed: the file system cannot exchange two file names; run flatcap compress \
                         while no recorder is running"
                    );
                }
                return;
            }
            // `Restored` does not occur here, because only `compress --undo` restores segments.
            Some(Ok(
                CompressOutcome::Restored { .. }
                | CompressOutcome::Skipped(
                    CompressSkipReason::Removed | CompressSkipReason::AlreadyCompressed { .. },
                ),
            )) => {}
            Some(Ok(CompressOutcome::Skipped(left))) => {
                metrics.skipped.add(1);
                if self.settings.is_quiet {
                    tracing::debug!(segment = %name, "a segment is left as it is: {left}");
                } else {
                    tracing::info!(segment = %name, "a segment is left as it is: {left}");
                }
                if matches!(left, CompressSkipReason::SavesTooLittle { .. }) {
                    let is_current = (&done.compression, done.block_bytes)
                        == (&self.settings.compression, self.settings.block_bytes);
                    (self.failures, self.logged) = (0, BTreeMap::new());
                    if is_current {
                        self.backlog.finish_incompressible(&name);
                    } else {
                        self.backlog.put_back(name);
                    }
                    return;
                }
            }
            Some(Err(CompressError { step, error, .. })) => {
                return self.fail(name, &format!("{step}: {error}"), now_ns);
            }
            None => return self.fail(name, "its compression thread panicked; see the log", now_ns),
        }
        (self.failures, self.logged) = (0, BTreeMap::new());
        self.backlog.finish(&name);
    }

    fn fail(&mut self, name: SegmentName, error: &str, now_ns: u64) {
        self.common.metrics.failures.add(1);
        self.back_off(name, error, now_ns);
        self.backlog.fail(name);
    }

    /// Pauses after a failure. Each reason is logged only once until a segment is compressed.
    fn back_off(&mut self, name: SegmentName, error: &str, now_ns: u64) {
        let what = "cannot compress a segment";
        if self.logged.get(what).is_none_or(|said| said != error) {
            self.logged.insert(what, error.to_owned());
            tracing::warn!(segment = %name, error, "cannot compress a segment");
        }
        let pause_ns = BACK_OFF_NS.saturating_mul(1 << self.failures.min(16)).min(BACK_OFF_MAX_NS);
        self.failures = self.failures.saturating_add(1);
        self.resume_ns = now_ns.saturating_add(pause_ns);
    }

    fn warn_once(&mut self, error: &io::Error, what: &'static str) {
        let error = error.to_string();
        if self.logged.get(what) != Some(&error) {
            tracing::warn!(error, "compression: {what}");
            self.logged.insert(what, error);
        }
    }
}
