//! A run and all around it: signals, requests, budget, the recovery of earlier runs. One loop that acts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::control::ControlThread;
use super::error::{DaemonError, start, unusable};
use super::last_good::{Keeper, LastGood};
use super::manager::Manager;
use super::memory::{RunMemory, take_memory};
use super::memory_limit;
use super::plan::{data_dir, forget_memory, retention, run_dir};
use super::processor::ProcessorWatch;
use super::recovery::Recovery;
use super::reload::{ReloadDesk, answer_of};
use super::replan::InForce;
use super::run::{Place, Run};
use super::sealing::{self, Sealing};
use super::sources::{OpenedSources, SkippedSource, open_sources};
use super::status::StatusBook;
use crate::config::Config;
use crate::control::{Answer, Call, Calls, Refusal, RefusalKind, Request, Status, calls};
use crate::metrics::Metrics;
use crate::os::clock::{ClockReading, NS_PER_S, monotonic_ns};
use crate::os::control_group::{MemoryLimit, memory_limit};
use crate::os::current_directory::CurrentDirectory;
use crate::os::event::Event;
use crate::os::host::random_u64;
use crate::os::signal::SignalWatch;
use crate::os::storage::Storage;
use crate::recorder::{Capped, Order, RecorderReport};
use crate::{control, recorder};

/// Neither room knows the other: what the control server lets through, the recorder takes.
const _: () = assert!(control::MARK_BYTES_MAX == recorder::MARK_BYTES_MAX);

/// How often the loop looks at what rings no bell.
const LOOK_INTERVAL_NS: u64 = 200_000_000;

/// How a run is going, for whoever watches.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Time since the first tick, in nanoseconds.
    pub elapsed_ns: u64,
    /// All counters.
    pub metrics: &'a Metrics,
}

/// Reads the configuration anew; the error says all that is wrong with it.
pub type Reread = Box<dyn FnMut() -> Result<Config, String> + Send>;

#[allow(missing_debug_implementations, reason = "three closures: nothing to show")]
/// What the daemon asks of the program around it, which alone knows its arguments and its log.
pub struct Surroundings<'a> {
    /// How long to record; none for until a signal.
    pub duration: Option<Duration>,
    /// Told several times a second.
    pub watch: &'a mut dyn FnMut(Progress<'_>),
    /// Reads the configuration anew. Called on a thread of its own: its files may be on a disk that does not answer.
    pub reread: Reread,
    /// Where the last good configuration is kept; none if it is not.
    pub last_good: Option<LastGood>,
    /// Sets the filter of the log; the error says what is wrong with it.
    pub set_log: &'a mut dyn FnMut(&str) -> Result<(), String>,
}

/// What a run has come to.
#[derive(Debug)]
pub struct RunSummary {
    /// Where the segments are.
    pub data_dir: PathBuf,
    /// The run's id, in every segment and name.
    pub run_id: u64,
    /// From the first tick to the stop, in nanoseconds.
    pub elapsed_ns: u64,
    /// Configured sources that this host lacks.
    pub skipped: Vec<SkippedSource>,
    /// What was recorded and lost.
    pub report: RecorderReport,
}

/// Records as configured until a signal, or for a duration.
///
/// # Errors
/// Every kind of [`DaemonError`].
pub fn record(config: &Config, surroundings: Surroundings<'_>) -> Result<RunSummary, DaemonError> {
    let limit = memory_limit();
    let config = &within(limit.as_ref(), config.clone());
    let bell = Arc::new(Event::new());
    let signals = SignalWatch::all(Arc::clone(&bell)).map_err(start("signal handling"))?;
    let OpenedSources { sources, skipped, metrics } = open_sources(config)?;
    for source in &skipped {
        tracing::warn!(source = source.name.as_str(), "skipped: {}", source.reason);
    }
    let directory = data_dir(config);
    let directory = CurrentDirectory::open(&directory).map_err(unusable(&directory))?;
    let (now, directory) = (directory.now(), Arc::new(directory));
    let (sealer, worker) = sealing::prepare(config, Arc::clone(&directory) as Arc<dyn Storage>, &metrics);
    let place = Place {
        directory: now.identity(),
        sealer: sealer.clone(),
        storage: Arc::new(Capped::published(directory, retention(config), Arc::clone(&metrics.directory))),
    };
    let configured = sources.iter().map(|source| source.config.clone()).collect();
    let run_id = random_u64().map_err(start("a run id"))?;
    let RunMemory { arena, is_kept, recovery } = take_memory(config, &place, run_id)?;
    metrics.daemon.note_run_dir(is_kept);
    let run = Run::start(config, sources, &place, (run_id, arena), &metrics)?;
    let recovery = recovery
        .map_or_else(|| Recovery::start(place.storage, run_id, run_dir(config), place.directory), Ok)
        .map_err(start("the recovery of earlier runs"))?;
    let sealing = Sealing::start(sealer, worker).map_err(start("the sealer"))?;
    let start_ns = run.start_ns;
    let (caller, calls) = calls(Arc::clone(&bell));
    let control = ControlThread::start(config, run_id, caller, &metrics);
    let Surroundings { duration, watch, mut reread, last_good, set_log } = surroundings;
    let (kept_in, refusal) = last_good.map(|kept| (kept.file, kept.refusal)).unzip();
    let refusal = refusal.flatten();
    note_config(&metrics, refusal.is_some());
    let mut manager = Manager::find(&metrics);
    manager.ready(&metrics);
    let in_force =
        InForce::new(config, configured, run.header.clone(), Arc::clone(&metrics), run.controls.clone());
    let reread = Box::new(move || reread().map(|config| within(limit.as_ref(), config)));
    let reloads = ReloadDesk::start(in_force, reread, Keeper::new(kept_in), Arc::clone(&bell))
        .map_err(start("the thread that reloads"))?;
    let mut service = Service {
        manager,
        processor: ProcessorWatch::new(&config.agent, &metrics),
        status: StatusBook::new(run_id, now.path(), start_ns, refusal),
        metrics,
        bell,
        signals,
        calls,
        run,
        reloads,
        recovery,
        sealing,
        duration,
        watch,
        set_log,
    };
    service.serve();
    let (report, elapsed_ns) = finish(service, control, start_ns)?;
    if report.storage_errors == 0 {
        // Everything is in the files. After an error it may not be, and the next run looks.
        forget_memory(config, run_id);
    }
    let data_dir = now.path().to_owned();
    Ok(RunSummary { data_dir, run_id, elapsed_ns, skipped, report })
}

/// Ends the threads in order. Returns what the recorder reports, and how long it recorded.
fn finish(
    service: Service<'_>,
    control: ControlThread,
    start_ns: u64,
) -> Result<(RecorderReport, u64), DaemonError> {
    let Service { run, reloads, recovery, sealing, calls, mut manager, metrics, .. } = service;
    // First of all: the end comes when it was asked for.
    run.stop();
    sealing.stop();
    let elapsed_ns = monotonic_ns() - start_ns;
    // Who still waits for an answer is told that this is the end.
    drop(calls);
    control.finish();
    manager.end_begins();
    let mut meanwhile = |now_ns| manager.look_at_end(now_ns, &metrics);
    let report = run.finish(&mut meanwhile);
    reloads.finish();
    let report = report?;
    recovery.finish(&mut meanwhile);
    sealing.finish(&mut meanwhile);
    Ok((report, elapsed_ns))
}

/// The configuration, made to fit a limit on memory if there is one.
fn within(limit: Option<&MemoryLimit>, config: Config) -> Config {
    let Some((fitted, said)) = limit.and_then(|limit| memory_limit::fit(&config, limit)) else {
        return config;
    };
    tracing::warn!("the control group leaves too little memory: {said}");
    fitted
}

/// A run that is watched and answers.
struct Service<'a> {
    manager: Manager,
    metrics: Arc<Metrics>,
    bell: Arc<Event>,
    signals: SignalWatch,
    calls: Calls,
    processor: ProcessorWatch,
    status: StatusBook,
    run: Run,
    reloads: ReloadDesk,
    recovery: Recovery,
    sealing: Sealing,
    duration: Option<Duration>,
    watch: &'a mut dyn FnMut(Progress<'_>),
    set_log: &'a mut dyn FnMut(&str) -> Result<(), String>,
}

impl Service<'_> {
    /// Until the end: a signal, the duration, or a thread that has ended by itself.
    fn serve(&mut self) {
        let start_ns = self.run.start_ns;
        let end_ns = self.duration.map_or(u64::MAX, |duration| {
            start_ns.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
        });
        let mut now = monotonic_ns();
        while now < end_ns && !self.run.has_ended() && !self.signals.is_stop_asked() {
            self.bell.wait_until(end_ns.min(now + LOOK_INTERVAL_NS));
            self.bell.clear();
            now = monotonic_ns();
            if self.signals.take_reload() {
                self.reloads.wish();
            }
            if self.signals.take_rotate() {
                self.rotate();
            }
            while let Some(call) = self.calls.next() {
                self.answer(call);
            }
            if self.reloads.begin(now) {
                self.begin_reload();
            }
            if self.reloads.ended(now) {
                self.processor.set_budget(self.reloads.cpu_budget);
                self.end_reload();
            }
            self.manager.look(now, &self.metrics);
            self.status.look(now, &self.metrics);
            self.sealing.look(&self.metrics);
            self.processor.look(now, &self.metrics, self.recovery.is_at_work());
            (self.watch)(Progress { elapsed_ns: now - start_ns, metrics: &self.metrics });
        }
    }

    /// How it is now.
    fn state(&self) -> Status {
        self.status.status(monotonic_ns(), &self.metrics, self.recovery.is_at_work())
    }

    /// A reload begins: its thread reads what is wanted.
    fn begin_reload(&mut self) {
        self.manager.reload_begins();
        if !self.reloads.go() {
            self.end_reload();
        }
    }

    /// A reload has ended, well or not.
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
                    tracing::error!("not reloaded, all goes on as it was: {refusal}");
                    refusal.message.clone()
                }
            });
        }
        self.manager.reload_ends(&self.metrics);
    }

    fn rotate(&mut self) {
        self.run.controls.orders.give(Order::Rotate, |result| match result {
            Ok(done) => tracing::info!("rotated: {done}"),
            Err(error) => tracing::error!("not rotated: {error}"),
        });
    }

    fn answer(&mut self, call: Call) {
        let invalid = |message| Refusal { kind: RefusalKind::Invalid, message };
        let order = match &call.request {
            Request::Reload => return self.reloads.wish_for(call),
            Request::Flush => return self.reloads.flush(call),
            Request::Rotate => Order::Rotate,
            Request::Mark(text) => Order::Mark(text.clone()),
            Request::Log(filter) => {
                let result = (self.set_log)(filter)
                    .map(|()| Answer::Done(format!("logging by the filter {filter}")))
                    .map_err(invalid);
                return call.answer(result);
            }
            Request::Status => {
                let state = self.state().to_json();
                return call.answer(Ok(Answer::Status(state)));
            }
        };
        self.run.controls.orders.give(order, answer_of(call));
    }
}

/// Publishes which configuration is in effect.
fn note_config(metrics: &Metrics, is_fallback: bool) {
    if is_fallback { metrics.daemon.note_fallback(wall_s()) } else { metrics.daemon.note_config(wall_s()) }
}

/// Seconds since 1970, as the wall clock says.
fn wall_s() -> u64 {
    u64::try_from(ClockReading::now().wall_ns / NS_PER_S.cast_signed()).unwrap_or_default()
}
