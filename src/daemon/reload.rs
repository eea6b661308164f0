//! Reloads the configuration on a separate thread. Queues requests, decides when the next reload
//! may begin, and runs it.
//!
//! Requests are merged. While a reload is running, and until one second after a reload, all
//! requests wait for the next reload. That reload reads the configuration as it is then.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use flatcap_control::{Answer, Call, Refusal, RefusalKind};
use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_recorder::{CommandError, flush};

use super::last_good::LastGoodWriter;
use super::reconfigure::{ReloadError, RunningConfig};
use crate::config::{Config, CpuShare};

/// Minimum interval between two reloads.
const INTERVAL_NS: u64 = NS_PER_S;
/// Maximum number of calls that wait for a reload. Further calls are refused as busy.
const CALLS_MAX: usize = 64;
/// Maximum number of jobs that are queued for the thread. The jobs are one reload and any number of
/// flushes. Further jobs are refused as busy.
const JOBS_MAX: usize = 16;
/// Maximum time that the end of a run waits for a reload. If a source hangs while it is opened, the
/// thread is abandoned after this time.
const STOP_MAX_NS: u64 = NS_PER_S;
/// Duration after which a running reload is logged once, because callers wait for the reload.
const SLOW_NS: u64 = 10 * NS_PER_S;

/// A function that reads the configuration again. The error lists all mistakes in the
/// configuration.
pub type ConfigReader = Box<dyn FnMut() -> Result<Config, String> + Send>;

/// A job of the reload thread.
enum ReloadJob {
    Reload,
    Flush(Call),
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReloadResult {
    /// The end of the reload, in monotonic nanoseconds.
    pub(super) at_ns: u64,
    /// One line with the changes, or with the reason why nothing has changed.
    pub(super) result: Result<String, Refusal>,
}

/// The message of the thread after a reload, with its result and the current CPU budget.
struct ReloadOutcome {
    result: Result<String, Refusal>,
    cpu_budget: CpuShare,
}

/// Accepts reload requests and tracks the reload thread.
pub(super) struct Reloader {
    jobs: Sender<ReloadJob>,
    outcomes: Receiver<ReloadOutcome>,
    thread: JoinHandle<()>,
    is_requested: bool,
    waiting: Vec<Call>,   // for the next reload
    answering: Vec<Call>, // for the current one
    next_ns: u64,         // when the next one may begin
    is_slow_logged: bool,
    /// Start of the current reload, in monotonic nanoseconds; `None` between reloads.
    pub(super) since_ns: Option<u64>,
    /// The result of the last reload; `None` before the first reload.
    pub(super) last: Option<ReloadResult>,
    /// The CPU budget of the current configuration.
    pub(super) cpu_budget: CpuShare,
}

impl Reloader {
    /// Starts the thread, which reads the configuration and applies the changes. The thread sets
    /// `wake` after each reload. `writer` saves the current configuration at the start and after
    /// each change.
    pub(super) fn start(
        in_force: RunningConfig,
        reread: ConfigReader,
        mut writer: LastGoodWriter,
        wake: Arc<WakeEvent>,
    ) -> std::io::Result<Self> {
        let cpu_budget = in_force.config().recorder.cpu_budget;
        Self::start_with(cpu_budget, move |jobs, outcomes| {
            // The configuration is saved on this thread, because the disk may hang and the main
            // loop must not.
            writer.save(&in_force);
            work(in_force, reread, writer, (&jobs, &outcomes), &wake);
        })
    }

    fn start_with(
        cpu_budget: CpuShare,
        work: impl FnOnce(Receiver<ReloadJob>, Sender<ReloadOutcome>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, jobs_in) = bounded(JOBS_MAX);
        let (outcomes_out, outcomes) = bounded(1);
        let thread = thread::spawn("reload", move || work(jobs_in, outcomes_out))?;
        Ok(Self {
            cpu_budget,
            jobs,
            outcomes,
            thread,
            is_requested: false,
            waiting: Vec::new(),
            answering: Vec::new(),
            next_ns: 0,
            is_slow_logged: false,
            since_ns: None,
            last: None,
        })
    }

    /// Requests a reload for a caller that does not wait.
    pub(super) fn request(&mut self) {
        self.is_requested = true;
    }

    /// Requests a reload for a caller that waits for the result.
    pub(super) fn request_for(&mut self, call: Call) {
        if self.waiting.len() >= CALLS_MAX {
            return call.answer(Err(busy("too many reload requests are waiting; try again")));
        }
        self.is_requested = true;
        self.waiting.push(call);
    }

    /// Begins a reload if one is due. If it returns true, [`send`](Self::send) must follow.
    pub(super) fn begin_if_due(&mut self, now_ns: u64) -> bool {
        if !self.is_requested || self.since_ns.is_some() || now_ns < self.next_ns {
            return false;
        }
        self.is_requested = false;
        self.next_ns = now_ns.saturating_add(INTERVAL_NS);
        (self.since_ns, self.is_slow_logged) = (Some(now_ns), false);
        self.answering.append(&mut self.waiting);
        true
    }

    /// Sends the job to the thread. If sending fails, ends the reload and returns false.
    pub(super) fn send(&mut self) -> bool {
        let sent = self.jobs.try_send(ReloadJob::Reload);
        if let Err(error) = &sent {
            self.end(Err(send_error(error)));
        }
        sent.is_ok()
    }

    /// Returns whether the current reload has ended: with success, with an error, or because the
    /// thread ended. The result is then in `last`.
    pub(super) fn poll(&mut self, now_ns: u64) -> bool {
        let Some(since_ns) = self.since_ns else { return false };
        if now_ns.saturating_sub(since_ns) >= SLOW_NS && !self.is_slow_logged {
            self.is_slow_logged = true;
            tracing::warn!(
                "a reload has been running for {} s, others wait: opening a source or reading a configuration file hangs, or \
                 the storage is stalled",
                SLOW_NS / NS_PER_S
            );
        }
        match self.outcomes.try_recv() {
            Ok(ReloadOutcome { result, cpu_budget }) => {
                self.cpu_budget = cpu_budget;
                self.end(result);
            }
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Disconnected) => self.end(Err(no_thread())),
        }
        true
    }

    /// Queues, writes and syncs all samples on the reload thread, which then answers the call.
    pub(super) fn flush(&self, call: Call) {
        let Err(error) = self.jobs.try_send(ReloadJob::Flush(call)) else { return };
        let refusal = send_error(&error);
        if let ReloadJob::Flush(call) = error.into_inner() {
            call.answer(Err(refusal));
        }
    }

    fn end(&mut self, result: Result<String, Refusal>) {
        self.since_ns = None;
        for call in self.answering.drain(..) {
            call.answer(result.clone().map(Answer::Done));
        }
        self.last = Some(ReloadResult { at_ns: monotonic_ns(), result });
    }

    /// Ends the thread at the end of the run.
    pub(super) fn finish(self) {
        let Self { jobs, thread, .. } = self;
        drop(jobs);
        if !thread::wait_for_exit(&thread, monotonic_ns() + STOP_MAX_NS, &mut |_| {}) {
            tracing::warn!("a reload is still running at the end; it is abandoned");
            return;
        }
        // If the thread panicked, the panic hook has reported it.
        let _panicked = thread.join();
    }
}

fn work(
    mut in_force: RunningConfig,
    mut reread: ConfigReader,
    mut keeper: LastGoodWriter,
    (jobs, outcomes): (&Receiver<ReloadJob>, &Sender<ReloadOutcome>),
    bell: &WakeEvent,
) {
    for job in jobs {
        match job {
            ReloadJob::Reload => {
                let config = reread().map_err(|message| Refusal { kind: RefusalKind::Invalid, message });
                let change = |wanted| in_force.apply(&wanted).map_err(|error| refusal_of(&error));
                let result = config.and_then(change);
                let (is_done, cpu_budget) = (result.is_ok(), in_force.config().recorder.cpu_budget);
                if outcomes.send(ReloadOutcome { result, cpu_budget }).is_err() {
                    return;
                }
                bell.set();
                if is_done {
                    keeper.save(&in_force);
                }
            }
            ReloadJob::Flush(call) => {
                let handles = in_force.handles();
                // A group that has ended has already queued the slab that it was filling.
                for (_, handle) in &handles.groups {
                    let _has_ended = handle.flush();
                }
                flush(&handles.commands, handles.ring.as_ref(), answer_of(call));
            }
        }
    }
}

/// Returns a callback that answers a call with the recorder's result.
pub(super) fn answer_of(call: Call) -> impl FnOnce(Result<String, CommandError>) + Send + 'static {
    |result| {
        call.answer(result.map(Answer::Done).map_err(|error| {
            let kind = match error {
                CommandError::Invalid(_) => RefusalKind::Invalid,
                CommandError::Busy | CommandError::Ending => RefusalKind::Busy,
                CommandError::Failed(_) => RefusalKind::Failed,
            };
            Refusal { kind, message: error.to_string() }
        }));
    }
}

fn refusal_of(error: &ReloadError) -> Refusal {
    let kind = match error {
        ReloadError::Invalid(_) => RefusalKind::Invalid,
        ReloadError::Failed(_) => RefusalKind::Failed,
        ReloadError::Ending => RefusalKind::Busy,
    };
    Refusal { kind, message: error.to_string() }
}

/// Returns the reason why the thread did not accept a job.
fn send_error(error: &TrySendError<ReloadJob>) -> Refusal {
    match error {
        // Only flush requests can fill the queue, and each of them takes little time.
        TrySendError::Full(_) => busy("too many flush requests are waiting; try again"),
        TrySendError::Disconnected(_) => no_thread(),
    }
}

/// Returns the error after the thread has ended. During a run, only a panic ends the thread.
fn no_thread() -> Refusal {
    let message =
        "the thread that reloads and flushes has panicked; recording continues; restart the service";
    Refusal { kind: RefusalKind::Failed, message: message.to_owned() }
}

fn busy(message: &str) -> Refusal {
    Refusal { kind: RefusalKind::Busy, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use flatcap_control::{Caller, Calls, ControlRequest, calls};

    use super::*;

    /// Sends a request, and waits for the call. Returns the thread that waits for the reply, and
    /// the call as the daemon receives it.
    fn ask(
        caller: &Caller,
        calls: &Calls,
        request: ControlRequest,
    ) -> (JoinHandle<Result<Answer, Refusal>>, Call) {
        let caller = caller.clone();
        let asks = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(caller.ask(request))
        };
        let waiter = thread::spawn("asks", asks).unwrap();
        (waiter, eventually(|| calls.next()))
    }

    fn eventually<T>(mut found: impl FnMut() -> Option<T>) -> T {
        let (never, deadline_ns) = (WakeEvent::new(), monotonic_ns() + 60 * NS_PER_S);
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(monotonic_ns() < deadline_ns, "not within a minute");
            never.wait_until(monotonic_ns() + 1_000_000);
        }
    }

    // Proves that a panic of the thread ends the current reload, and that the callers of this
    // reload and all later callers get an error.
    #[test]
    fn a_reload_ends_with_its_thread() {
        let config = Config::default();
        let (caller, calls) = calls(Arc::new(WakeEvent::new()));
        let panics = |jobs: Receiver<ReloadJob>, _outcomes: Sender<ReloadOutcome>| {
            drop(jobs.recv());
            // `jobs` is dropped before `_outcomes`, because the test waits until `_outcomes` is
            // disconnected.
            drop(jobs);
            panic!("as the test wants it");
        };
        let mut reloader = Reloader::start_with(config.recorder.cpu_budget, panics).unwrap();
        let (waiter, call) = ask(&caller, &calls, ControlRequest::Reload);
        reloader.request_for(call);
        assert!(reloader.begin_if_due(NS_PER_S) && reloader.send());
        eventually(|| reloader.poll(NS_PER_S).then_some(()));
        assert_eq!(reloader.since_ns, None, "the next one may begin");
        let refusal = reloader.last.clone().unwrap().result.unwrap_err();
        assert!(refusal == no_thread() && refusal.message.contains("restart the service"));
        assert_eq!(waiter.join().unwrap(), Err(no_thread()));
        assert_eq!(reloader.cpu_budget, config.recorder.cpu_budget);
        reloader.request();
        assert!(reloader.begin_if_due(3 * NS_PER_S) && !reloader.send());
        assert_eq!((reloader.since_ns, reloader.last.clone().unwrap().result), (None, Err(no_thread())));
        let (waiter, call) = ask(&caller, &calls, ControlRequest::Flush);
        reloader.flush(call);
        assert_eq!(waiter.join().unwrap(), Err(no_thread()));
        reloader.finish();
    }
}
