//! A run and its main loop, which handles signals, requests, the CPU budget and the recovery of
//! earlier runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flatcap_control::{
    Answer, Call, Calls, ControlRequest, ListenerBudget, Refusal, RefusalKind, Status, calls,
};
use flatcap_format::storage::Storage;
use flatcap_metrics::{Metrics, SourceMetrics};
use flatcap_os::autogroup::{self, NiceValues};
use flatcap_os::clock::{NS_PER_S, monotonic_ns, read_clocks};
use flatcap_os::control_group::{MemoryLimit, memory_limit};
use flatcap_os::host::random_u64;
use flatcap_os::reopening_directory::ReopeningDirectory;
use flatcap_os::signal::SignalWatch;
use flatcap_os::wake_event::WakeEvent;
use flatcap_recorder::snapshot::{SnapshotHandle, snapshot_requests};
use flatcap_recorder::{RecorderCommand, RecorderReport};

use super::compression::{self, CompressionThread};
use super::control::ControlThread;
use super::cpu_budget::CpuBudgetWatch;
use super::error::{DaemonError, cannot_start, unusable};
use super::lane_store::LaneStore;
use super::last_good::{LastGood, LastGoodWriter};
use super::memory_limit;
use super::notify::ServiceNotifier;
use super::push;
use super::reconfigure::RunningConfig;
use super::recovery::RecoveryThread;
use super::reload::{ConfigReader, Reloader, answer_of};
use super::rescue::{RescueThread, left_lanes};
use super::ring::Ring;
use super::ring_age::{ClockSeconds, RingAge};
use super::run::{RunStorage, RunThreads};
use super::run_memory::{RunMemory, allocate_memory};
use super::settings::{data_dir, quota_storage, remove_memory, run_dir};
use super::snapshots::OrderedWindow;
use super::snapshots::{self, SnapshotPlace, SnapshotThread};
use super::sources::{OpenedSources, open_sources};
use super::status::StatusTracker;
use crate::config::Config;

/// The control server and the recorder do not depend on each other. This check ensures that the
/// recorder accepts every mark that the control server accepts.
const _: () = assert!(flatcap_control::MARK_BYTES_MAX == flatcap_recorder::MARK_BYTES_MAX);

/// Interval at which the main loop polls for events that do not wake it, in nanoseconds.
const POLL_INTERVAL_NS: u64 = 200_000_000;

/// The progress of a run, for the caller.
#[derive(Debug, Clone, Copy)]
pub struct RunProgress<'a> {
    /// Time since the first tick, in nanoseconds.
    pub elapsed_ns: u64,
    /// All counters.
    pub metrics: &'a Metrics,
}

/// Information about a run that has begun, for the caller.
#[derive(Debug, Clone, Copy)]
pub struct RunStart<'a> {
    /// The configuration in effect, which may use less memory than was configured.
    pub config: &'a Config,
    /// The directory of the segments.
    pub data_dir: &'a Path,
    /// All counters of the run.
    pub metrics: &'a Metrics,
}

#[allow(missing_debug_implementations, reason = "closures: nothing to print")]
/// Functions of the program that the daemon calls. Only the program knows its arguments and its
/// log.
pub struct Callbacks<'a> {
    /// The time to record; `None` records until a signal.
    pub duration: Option<Duration>,
    /// Called once, when recording has begun.
    pub on_start: &'a mut dyn FnMut(RunStart<'_>),
    /// Called several times per second.
    pub on_progress: &'a mut dyn FnMut(RunProgress<'_>),
    /// Reads the configuration again. It is called on another thread, because the files may be on a
    /// disk that does not respond.
    pub read_config: ConfigReader,
    /// The location of the last good configuration; `None` if it is not saved.
    pub last_good: Option<LastGood>,
    /// Sets the log filter. The error describes the mistake in the filter.
    pub set_log: &'a mut dyn FnMut(&str) -> Result<(), String>,
}

/// The result of a run.
#[derive(Debug)]
pub struct RunSummary {
    /// The directory of the segments.
    pub data_dir: PathBuf,
    /// Time from the first tick to the stop, in nanoseconds.
    pub elapsed_ns: u64,
    /// Recorded and lost samples.
    pub report: RecorderReport,
}

/// Records as configured until a signal arrives or the duration has passed.
///
/// # Errors
/// Every kind of [`DaemonError`].
#[allow(clippy::too_many_lines, reason = "the order in which the parts of a run start, in one place")]
pub fn record(config: &Config, callbacks: Callbacks<'_>) -> Result<RunSummary, DaemonError> {
    let limit = memory_limit();
    let config = &fit_memory(limit.as_ref(), config.clone());
    let wake = Arc::new(WakeEvent::new());
    let signals = SignalWatch::for_recorder(Arc::clone(&wake), config.blackbox.is_on())
        .map_err(cannot_start("signal handling"))?;
    let OpenedSources { sources, skipped, metrics } = open_sources(config)?;
    for source in &skipped {
        tracing::warn!(source = source.name.as_str(), "skipped: {}", source.reason);
    }
    let directory = data_dir(config);
    let directory = ReopeningDirectory::open(&directory).map_err(unusable(&directory))?;
    let (now, directory) = (directory.current(), Arc::new(directory));
    let (compression, worker) =
        compression::prepare(config, Arc::clone(&directory) as Arc<dyn Storage>, &metrics);
    let ring = Ring::open(config, &now, &metrics);
    let (snapshots, snapshot_orders) = ring.as_ref().map(|_| snapshot_requests()).unzip();
    let (rescue, rescued) = left_lanes();
    let (lane_store, stored_lanes) = LaneStore::connect();
    let place = RunStorage {
        left_lanes: rescue,
        lane_store: Arc::new(lane_store),
        ring: ring.as_ref().map(|ring| (Arc::clone(&ring.storage), Arc::clone(&ring.metrics))),
        snapshots,
        directory: now.identity(),
        // The path is made absolute, because programs of rules receive the path and run in another
        // directory.
        data_dir: Arc::from(std::path::absolute(now.path()).unwrap_or_else(|_| now.path().to_owned())),
        compressors: (compression.clone(), ring.as_ref().map(Ring::compressor)),
        storage: Arc::new(quota_storage(config, directory, Arc::clone(&metrics.directory))),
    };
    let configured = sources.iter().map(|source| source.config.clone()).collect();
    let run_id = random_u64().map_err(cannot_start("a run id"))?;
    let RunMemory { arena, is_kept, recovery } = allocate_memory(config, &place, run_id)?;
    metrics.daemon.note_run_dir(is_kept);
    let run = RunThreads::start(config, sources, &place, (run_id, arena), &metrics)?;
    let keeping = ring.as_ref().zip(snapshot_orders).zip(run.handles.ring.clone());
    let keeping = keeping.and_then(|((ring, requests), ring_recorder)| {
        let place = SnapshotPlace {
            directory: &now,
            storage: Arc::clone(&place.storage),
            ring: Arc::clone(&ring.storage),
            ring_recorder,
            run_id,
        };
        SnapshotThread::start(config, place, requests, &metrics)
    });
    let RunStorage { storage, ring: ring_storage, directory, left_lanes, lane_store, .. } = place;
    let own_lanes = config.push.enabled.then(|| push::lane_header(config, run_id, directory));
    let wall_offset_ns = run.header.clocks.wall_offset_ns();
    lane_store.pass_on(stored_lanes, own_lanes.as_ref(), wall_offset_ns, &left_lanes);
    // The only other sender belongs to the thread of pushed frames. The rescue ends when that
    // thread ends.
    drop(left_lanes);
    let rescue_storage = Arc::clone(&storage);
    let ring_storage = ring_storage.map(|(storage, _)| storage);
    let recovery = recovery
        .map_or_else(|| RecoveryThread::start(storage, ring_storage, run_id, run_dir(config), directory), Ok)
        .map_err(cannot_start("the recovery of earlier runs"))?;
    let rescued = (rescued, config.push.verify);
    let rescue = RescueThread::start((rescue_storage, lane_store), rescued, recovery.ending())
        .map_err(cannot_start("the rescue of lanes"))?;
    let ring_path = ring.as_ref().map(|ring| ring.path.clone());
    let ring_compression =
        ring.map(Ring::start_compression).transpose().map_err(cannot_start("the compression of the ring"))?;
    let sealing = CompressionThread::start("compression", compression, worker)
        .map_err(cannot_start("the compression"))?;
    let start_ns = run.start_ns;
    let (caller, calls) = calls(Arc::clone(&wake));
    let control = ControlThread::start(config, run_id, caller, &metrics);
    let Callbacks { duration, on_start, on_progress, read_config: mut reread, last_good, set_log } =
        callbacks;
    let (file, refusal) = last_good.map(|kept| (kept.file, kept.refusal)).unzip();
    let refusal = refusal.flatten();
    publish_config(&metrics, refusal.is_some());
    let mut manager = ServiceNotifier::connect(&metrics);
    manager.ready(&metrics);
    let in_force =
        RunningConfig::new(config, configured, run.header.clone(), Arc::clone(&metrics), run.handles.clone());
    let reread = Box::new(move || reread().map(|config| fit_memory(limit.as_ref(), config)));
    let reloads = Reloader::start(in_force, reread, LastGoodWriter::new(file), Arc::clone(&wake))
        .map_err(cannot_start("the thread that reloads"))?;
    let mut service = MainLoop {
        notifier: manager,
        cpu_budget: CpuBudgetWatch::new(&config.recorder, &metrics),
        listeners: control.listener_budget(),
        status: StatusTracker::new(run_id, now.path(), start_ns, refusal)
            .with_host(&run.header)
            .with_nice(raised_session())
            .with_ring(config.blackbox.window, ring_path),
        metrics,
        wake,
        signals,
        calls,
        run,
        reloads,
        recovery,
        rescue,
        compression: sealing,
        ring_compression,
        ring_age: RingAge::default(),
        keeping,
        has_recovered: false,
        blackbox_window: config.blackbox.window,
        keeps_crashed: config.blackbox.window_on_disk,
        duration,
        on_progress,
        set_log,
    };
    on_start(RunStart { config, data_dir: now.path(), metrics: &service.metrics });
    service.run();
    let (report, elapsed_ns) = finish(service, control, start_ns)?;
    if report.metrics.recorder.storage_errors.get() == 0 {
        // All samples are in the files. After a storage error, some samples may be missing in the
        // files. The memory is then kept, and the next run checks it.
        remove_memory(config, run_id);
    }
    Ok(RunSummary { data_dir: now.path().to_owned(), elapsed_ns, report })
}

/// Ends the threads in order. Returns the recorder's report and the recording time.
fn finish(
    service: MainLoop<'_>,
    control: ControlThread,
    start_ns: u64,
) -> Result<(RecorderReport, u64), DaemonError> {
    let MainLoop {
        run,
        reloads,
        recovery,
        rescue,
        compression: sealing,
        ring_compression,
        keeping,
        calls,
        notifier: mut manager,
        metrics,
        ..
    } = service;
    // The samplers are stopped first, so that recording ends at the requested time.
    run.stop();
    sealing.stop();
    ring_compression.iter().for_each(CompressionThread::stop);
    let elapsed_ns = monotonic_ns() - start_ns;
    // Callers that still wait get the error that the recorder is stopping.
    drop(calls);
    control.finish();
    manager.end_begins();
    let mut meanwhile = |now_ns| manager.update_while_stopping(now_ns, &metrics);
    let report = run.finish(&mut meanwhile);
    reloads.finish();
    let report = report?;
    // At this point, the ring is sealed.
    if let Some(keeping) = keeping {
        keeping.finish(&mut meanwhile);
    }
    recovery.finish(&mut meanwhile);
    rescue.finish(&mut meanwhile);
    sealing.finish(&mut meanwhile);
    if let Some(ring_compression) = ring_compression {
        ring_compression.finish(&mut meanwhile);
    }
    Ok((report, elapsed_ns))
}

/// Returns the configuration, reduced to fit the memory limit if there is a limit.
fn fit_memory(limit: Option<&MemoryLimit>, config: Config) -> Config {
    let Some((fitted, said)) = limit.and_then(|limit| memory_limit::fit(&config, limit)) else {
        return config;
    };
    tracing::warn!("the control group leaves too little memory: {said}");
    fitted
}

/// The state of the main loop.
struct MainLoop<'a> {
    notifier: ServiceNotifier,
    metrics: Arc<Metrics>,
    wake: Arc<WakeEvent>,
    signals: SignalWatch,
    calls: Calls,
    cpu_budget: CpuBudgetWatch,
    listeners: Option<ListenerBudget>, // none without a control server
    status: StatusTracker,
    run: RunThreads,
    reloads: Reloader,
    recovery: RecoveryThread,
    rescue: RescueThread,
    compression: CompressionThread,
    ring_compression: Option<CompressionThread>,
    ring_age: RingAge,
    keeping: Option<SnapshotThread>,
    has_recovered: bool, // earlier runs, so that their snapshots can be completed
    blackbox_window: Duration,
    keeps_crashed: bool, // what the ring has of runs that a crash has ended
    duration: Option<Duration>,
    on_progress: &'a mut dyn FnMut(RunProgress<'_>),
    set_log: &'a mut dyn FnMut(&str) -> Result<(), String>,
}

impl MainLoop<'_> {
    /// Runs until a signal arrives, the duration has passed, or a thread has ended by itself.
    fn run(&mut self) {
        let start_ns = self.run.start_ns;
        let end_ns = self.duration.map_or(u64::MAX, |duration| {
            start_ns.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
        });
        let mut now = monotonic_ns();
        while now < end_ns && !self.run.has_ended() && !self.signals.is_stop_requested() {
            self.wake.wait_until(end_ns.min(now + POLL_INTERVAL_NS));
            self.wake.clear();
            now = monotonic_ns();
            if self.signals.take_reload() {
                self.reloads.request();
            }
            if self.signals.take_rotate() {
                self.rotate();
            }
            if self.signals.take_snapshot() {
                self.keep_window();
            }
            if !self.has_recovered && !self.recovery.is_running() {
                self.has_recovered = true;
                // If the request is refused, the next start completes the snapshots.
                let snapshots = self.run.handles.snapshots.as_ref();
                let _refused = snapshots.map(SnapshotHandle::complete_interrupted);
                if self.keeps_crashed {
                    for run_id in self.recovery.crashed_runs() {
                        let _refused = snapshots.map(|snapshots| snapshots.keep_run(*run_id));
                    }
                }
            }
            while let Some(call) = self.calls.next() {
                self.answer(call);
            }
            if self.reloads.begin_if_due(now) {
                self.begin_reload();
            }
            if self.reloads.poll(now) {
                let budget = self.reloads.cpu_budget;
                if self.cpu_budget.set_budget(budget) {
                    self.listeners.iter().for_each(|listeners| listeners.set(budget));
                }
                self.end_reload();
            }
            self.notifier.update(now, &self.metrics, self.run.handles.ring_metrics.as_deref());
            self.status.update(now, &self.metrics);
            self.compression.update(&self.metrics);
            if let (Some(compression), Some(ring)) =
                (&mut self.ring_compression, &self.run.handles.ring_metrics)
            {
                compression.notify(ring);
                publish_ring(&self.metrics, ring, &mut self.ring_age);
            }
            push::publish_sums(&self.metrics);
            self.cpu_budget.update(now, &self.metrics, self.recovery.is_running());
            (self.on_progress)(RunProgress { elapsed_ns: now - start_ns, metrics: &self.metrics });
        }
    }

    /// Returns the current status.
    fn current_status(&self) -> Status {
        self.status.status(monotonic_ns(), &self.metrics, self.recovery.is_running())
    }

    /// Begins a reload. The reload thread reads the new configuration.
    fn begin_reload(&mut self) {
        self.notifier.reload_begins();
        if !self.reloads.send() {
            self.end_reload();
        }
    }

    /// Makes the result of a reload visible in the status and the metrics.
    fn end_reload(&mut self) {
        if let Some(last) = &self.reloads.last {
            self.status.last_reload = Some(match &last.result {
                Ok(changes) => {
                    self.metrics.daemon.note_reload(wall_s());
                    tracing::info!("reloaded: {changes}");
                    changes.clone()
                }
                Err(refusal) => {
                    self.metrics.daemon.note_failed_reload();
                    tracing::error!("not reloaded, the old configuration stays in effect: {refusal}");
                    refusal.message.clone()
                }
            });
        }
        self.notifier.reload_ends(&self.metrics);
    }

    fn rotate(&mut self) {
        self.run.handles.commands.send(RecorderCommand::Rotate, |result| match result {
            Ok(done) => tracing::info!("rotated: {done}"),
            Err(error) => tracing::error!("not rotated: {error}"),
        });
    }

    /// Requests a snapshot of everything in the ring. This function is called when a signal asks
    /// for a snapshot.
    fn keep_window(&self) {
        let window = OrderedWindow { last: self.blackbox_window, after: Duration::ZERO, user: None };
        snapshots::order(self.run.handles.snapshots.as_ref(), window, "signal", |result| match result {
            Ok(done) => tracing::info!("{done}"),
            Err(refusal) => tracing::error!("no snapshot: {}", refusal.message),
        });
    }

    fn answer(&mut self, call: Call) {
        let invalid = |message| Refusal { kind: RefusalKind::Invalid, message };
        let order = match &call.request {
            ControlRequest::Reload => return self.reloads.request_for(call),
            ControlRequest::Flush => return self.reloads.flush(call),
            ControlRequest::Rotate => RecorderCommand::Rotate,
            ControlRequest::Mark(text) => RecorderCommand::Mark(text.clone()),
            ControlRequest::Log(filter) => {
                let result = (self.set_log)(filter)
                    .map(|()| Answer::Done(format!("log filter set to {filter}")))
                    .map_err(invalid);
                return call.answer(result);
            }
            ControlRequest::Snapshot(wanted) => {
                let reason = wanted.reason.clone();
                let window = OrderedWindow { last: wanted.last, after: wanted.after, user: None };
                return snapshots::order(self.run.handles.snapshots.as_ref(), window, &reason, |result| {
                    call.answer(result.map(Answer::Done));
                });
            }
            ControlRequest::Status => {
                let state = self.current_status().to_json();
                return call.answer(Ok(Answer::Status(state)));
            }
        };
        if let (RecorderCommand::Mark(text), Some(ring)) = (&order, &self.run.handles.ring) {
            // The recorder of the data directory answers the caller, so the result of the ring's
            // recorder is dropped.
            ring.send(RecorderCommand::Mark(text.clone()), drop);
        }
        self.run.handles.commands.send(order, answer_of(call));
    }
}

/// Updates the metrics that show whether the current configuration or the last good one is in
/// effect.
fn publish_config(metrics: &Metrics, is_fallback: bool) {
    if is_fallback { metrics.daemon.note_fallback(wall_s()) } else { metrics.daemon.note_config(wall_s()) }
}

/// Updates the metrics of the ring from the counters of the ring's own threads.
fn publish_ring(metrics: &Metrics, ring: &Metrics, age: &mut RingAge) {
    let (of_ring, directory) = (&metrics.ring, &ring.directory);
    let now = ClockSeconds { mono: monotonic_ns() / NS_PER_S, wall: wall_s() };
    let (oldest_s, open_s) = (directory.oldest_created_s.get(), ring.recorder.segment_created_s.get());
    of_ring.held_s.set(age.update(oldest_s, open_s, now));
    of_ring.bytes.set(directory.bytes.get());
    of_ring.bytes_max.set(directory.bytes_max.get());
    let sum = |count: fn(&SourceMetrics) -> u64| ring.sources.iter().map(|source| count(source)).sum();
    of_ring.recorded.set(sum(|source| source.recorded.get()));
    of_ring.lost.set(sum(|source| source.lost.get()));
    of_ring.storage_errors.set(ring.recorder.storage_errors.get());
}

/// Returns the wall clock time in seconds since 1970.
fn wall_s() -> u64 {
    u64::try_from(read_clocks().wall_ns / NS_PER_S.cast_signed()).unwrap_or_default()
}

/// Gives the session of the recorder the nice value of the recorder. Returns the values in force.
fn raised_session() -> NiceValues {
    let (values, refused) = autogroup::raise_session();
    if let Some(error) = refused {
        tracing::debug!(
            %error,
            "the session keeps nice {}, which decides against other sessions, not the recorder's nice {}",
            values.session.unwrap_or_default(),
            values.process
        );
    }
    values
}
