//! Reloading beside the loop: who asked, when the next one may begin, and the thread that does it.
//!
//! A wish is one wish, however often it comes: while a reload is under way, or the last one is less than a second old, all that
//! is asked for waits for the next, which reads what is configured then.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};

use super::last_good::Keeper;
use super::replan::{InForce, Unchanged};
use super::service::Reread;
use crate::config::CpuShare;
use crate::control::{Answer, Call, Refusal, RefusalKind};
use crate::os::clock::{NS_PER_S, monotonic_ns};
use crate::os::event::Event;
use crate::os::thread;
use crate::recorder::{Order, OrderError};

/// A reload begins at most this often.
const INTERVAL_NS: u64 = NS_PER_S;
/// Calls that may wait for a reload; more are refused as busy.
const CALLS_MAX: usize = 64;
/// Jobs that may wait for the thread: one reload, and flushes; more are refused as busy.
const JOBS_MAX: usize = 16;
/// The end of a run waits so long for a reload that is under way. A source that hangs while it is opened is left behind.
const STOP_MAX_NS: u64 = NS_PER_S;
/// A reload that takes longer is said, once: somebody waits for it.
const SLOW_NS: u64 = 10 * NS_PER_S;

/// What the thread is asked for.
enum Job {
    Reload,
    Flush(Call),
}

/// What a reload has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reloaded {
    /// When it ended, in monotonic nanoseconds.
    pub(super) at_ns: u64,
    /// One line that says what has changed, or why nothing has.
    pub(super) result: Result<String, Refusal>,
}

/// What the thread says of a reload that has ended: that, and what the agent may take of a core from now on.
struct Outcome {
    result: Result<String, Refusal>,
    cpu_budget: CpuShare,
}

/// Where reloads are asked for.
pub(super) struct ReloadDesk {
    jobs: Sender<Job>,
    outcomes: Receiver<Outcome>,
    thread: JoinHandle<()>,
    is_wished: bool,
    waiting: Vec<Call>,   // for the next reload
    answering: Vec<Call>, // for the one under way
    next_ns: u64,         // when the next may begin
    is_slow_said: bool,
    /// Since when one has been under way, in monotonic nanoseconds.
    pub(super) since_ns: Option<u64>,
    /// What the last one has come to.
    pub(super) last: Option<Reloaded>,
    /// What the agent may take of a core, as the configuration in force says.
    pub(super) cpu_budget: CpuShare,
}

impl ReloadDesk {
    /// Starts the thread, which reads what is wanted and changes what is in force. `bell` is rung when it has.
    /// `keeper` keeps what is in force, now and after each change.
    pub(super) fn start(
        in_force: InForce,
        reread: Reread,
        mut keeper: Keeper,
        bell: Arc<Event>,
    ) -> std::io::Result<Self> {
        let cpu_budget = in_force.config().agent.cpu_budget;
        Self::start_with(cpu_budget, move |jobs, outcomes| {
            // On this thread: the disk may not answer, and the loop must.
            keeper.keep(&in_force);
            work(in_force, reread, keeper, (&jobs, &outcomes), &bell);
        })
    }

    fn start_with(
        cpu_budget: CpuShare,
        work: impl FnOnce(Receiver<Job>, Sender<Outcome>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, jobs_in) = bounded(JOBS_MAX);
        let (outcomes_out, outcomes) = bounded(1);
        let thread = thread::spawn("reload", move || work(jobs_in, outcomes_out))?;
        Ok(Self {
            cpu_budget,
            jobs,
            outcomes,
            thread,
            is_wished: false,
            waiting: Vec::new(),
            answering: Vec::new(),
            next_ns: 0,
            is_slow_said: false,
            since_ns: None,
            last: None,
        })
    }

    /// A reload is wished for by nobody who waits.
    pub(super) fn wish(&mut self) {
        self.is_wished = true;
    }

    /// Somebody wishes for a reload and waits for what it comes to.
    pub(super) fn wish_for(&mut self, call: Call) {
        if self.waiting.len() >= CALLS_MAX {
            return call.answer(Err(busy("the agent has too many requests to reload; ask again")));
        }
        self.is_wished = true;
        self.waiting.push(call);
    }

    /// Whether one is to begin now. If so it has begun: [`go`](Self::go) must follow.
    pub(super) fn begin(&mut self, now_ns: u64) -> bool {
        if !self.is_wished || self.since_ns.is_some() || now_ns < self.next_ns {
            return false;
        }
        self.is_wished = false;
        self.next_ns = now_ns.saturating_add(INTERVAL_NS);
        (self.since_ns, self.is_slow_said) = (Some(now_ns), false);
        self.answering.append(&mut self.waiting);
        true
    }

    /// The thread is told. False if it does not take it: then the reload has ended.
    pub(super) fn go(&mut self) -> bool {
        let sent = self.jobs.try_send(Job::Reload);
        if let Err(error) = &sent {
            self.end(Err(not_taken(error)));
        }
        sent.is_ok()
    }

    /// Whether the one under way has ended, well or not, or with the thread. What it has come to is in `last` then.
    pub(super) fn ended(&mut self, now_ns: u64) -> bool {
        let Some(since_ns) = self.since_ns else { return false };
        if now_ns.saturating_sub(since_ns) >= SLOW_NS && !self.is_slow_said {
            self.is_slow_said = true;
            tracing::warn!(
                "a reload has been under way for {} s, others wait: a source that is being opened hangs, or a configuration file, or \
                 the storage is stalled",
                SLOW_NS / NS_PER_S
            );
        }
        match self.outcomes.try_recv() {
            Ok(Outcome { result, cpu_budget }) => {
                self.cpu_budget = cpu_budget;
                self.end(result);
            }
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Disconnected) => self.end(Err(no_thread())),
        }
        true
    }

    /// Hands over, writes and syncs, beside the loop; answers then.
    pub(super) fn flush(&self, call: Call) {
        let Err(error) = self.jobs.try_send(Job::Flush(call)) else { return };
        let refusal = not_taken(&error);
        if let Job::Flush(call) = error.into_inner() {
            call.answer(Err(refusal));
        }
    }

    fn end(&mut self, result: Result<String, Refusal>) {
        self.since_ns = None;
        for call in self.answering.drain(..) {
            call.answer(result.clone().map(Answer::Done));
        }
        self.last = Some(Reloaded { at_ns: monotonic_ns(), result });
    }

    /// The run has ended, and so does the thread.
    pub(super) fn finish(self) {
        let Self { jobs, thread, .. } = self;
        drop(jobs);
        if !thread::ends_by(&thread, monotonic_ns() + STOP_MAX_NS, &mut |_| {}) {
            tracing::warn!("a reload is still under way at the end; it is left behind");
            return;
        }
        // A panic in there was reported by the panic hook.
        let _panicked = thread.join();
    }
}

fn work(
    mut in_force: InForce,
    mut reread: Reread,
    mut keeper: Keeper,
    (jobs, outcomes): (&Receiver<Job>, &Sender<Outcome>),
    bell: &Event,
) {
    for job in jobs {
        match job {
            Job::Reload => {
                let wanted = reread().map_err(|message| Refusal { kind: RefusalKind::Invalid, message });
                let change = |wanted| in_force.change(&wanted).map_err(|error| refusal_of(&error));
                let result = wanted.and_then(change);
                let (is_done, cpu_budget) = (result.is_ok(), in_force.config().agent.cpu_budget);
                if outcomes.send(Outcome { result, cpu_budget }).is_err() {
                    return;
                }
                bell.set();
                if is_done {
                    keeper.keep(&in_force);
                }
            }
            Job::Flush(call) => {
                let controls = in_force.controls();
                // A group that has ended has handed over.
                for (_, link) in &controls.groups {
                    let _has_ended = link.hand_over();
                }
                controls.orders.give(Order::Flush, answer_of(call));
            }
        }
    }
}

/// Answers a call with what the recorder says.
pub(super) fn answer_of(call: Call) -> impl FnOnce(Result<String, OrderError>) + Send + 'static {
    |result| {
        call.answer(result.map(Answer::Done).map_err(|error| {
            let kind = match error {
                OrderError::Invalid(_) => RefusalKind::Invalid,
                OrderError::Busy | OrderError::Ending => RefusalKind::Busy,
                OrderError::Failed(_) => RefusalKind::Failed,
            };
            Refusal { kind, message: error.to_string() }
        }));
    }
}

fn refusal_of(error: &Unchanged) -> Refusal {
    let kind = match error {
        Unchanged::Invalid(_) => RefusalKind::Invalid,
        Unchanged::Failed(_) => RefusalKind::Failed,
        Unchanged::Ending => RefusalKind::Busy,
    };
    Refusal { kind, message: error.to_string() }
}

/// Why the thread did not take a job.
fn not_taken(error: &TrySendError<Job>) -> Refusal {
    match error {
        // Flushes alone can fill the queue, and they are soon done.
        TrySendError::Full(_) => busy("the agent has too many flushes to do; ask again"),
        TrySendError::Disconnected(_) => no_thread(),
    }
}

/// While the run goes on, only a panic ends the thread.
fn no_thread() -> Refusal {
    let message =
        "the thread that reloads and flushes has ended by a panic; recording goes on; restart the service";
    Refusal { kind: RefusalKind::Failed, message: message.to_owned() }
}

fn busy(message: &str) -> Refusal {
    Refusal { kind: RefusalKind::Busy, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::control::{Caller, Calls, Request, calls};

    /// Somebody who asks and waits, and the call as the daemon takes it.
    fn ask(caller: &Caller, calls: &Calls, request: Request) -> (JoinHandle<Result<Answer, Refusal>>, Call) {
        let caller = caller.clone();
        let asks = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(caller.ask(request))
        };
        let waits = thread::spawn("asks", asks).unwrap();
        (waits, eventually(|| calls.next()))
    }

    fn eventually<T>(mut found: impl FnMut() -> Option<T>) -> T {
        let (never, deadline_ns) = (Event::new(), monotonic_ns() + 60 * NS_PER_S);
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(monotonic_ns() < deadline_ns, "not within a minute");
            never.wait_until(monotonic_ns() + 1_000_000);
        }
    }

    // Goal: a thread that dies in a reload ends that reload, whoever waits is told why, and so is everybody after it. Method: a thread
    // that panics over its first job.
    #[test]
    fn a_reload_ends_with_its_thread() {
        let config = Config::default();
        let (caller, calls) = calls(Arc::new(Event::new()));
        let dies = |jobs: Receiver<Job>, _outcomes: Sender<Outcome>| {
            drop(jobs.recv());
            panic!("as the test wants it");
        };
        let mut desk = ReloadDesk::start_with(config.agent.cpu_budget, dies).unwrap();
        let (waits, call) = ask(&caller, &calls, Request::Reload);
        desk.wish_for(call);
        assert!(desk.begin(NS_PER_S) && desk.go());
        eventually(|| desk.ended(NS_PER_S).then_some(()));
        assert_eq!(desk.since_ns, None, "the next one may begin");
        let refusal = desk.last.clone().unwrap().result.unwrap_err();
        assert!(refusal == no_thread() && refusal.message.contains("restart the service"));
        assert_eq!(waits.join().unwrap(), Err(no_thread()));
        assert_eq!(desk.cpu_budget, config.agent.cpu_budget);
        desk.wish();
        assert!(desk.begin(3 * NS_PER_S) && !desk.go());
        assert_eq!((desk.since_ns, desk.last.clone().unwrap().result), (None, Err(no_thread())));
        let (waits, call) = ask(&caller, &calls, Request::Flush);
        desk.flush(call);
        assert_eq!(waits.join().unwrap(), Err(no_thread()));
        desk.finish();
    }
}
