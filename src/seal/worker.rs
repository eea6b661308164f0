//! Compresses closed segments beside a recording: the loop that owns all state, decides and hands segments to compressors. It runs on a thread that
//! somebody else has started.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;

use super::backlog::{Backlog, Share, Situation, Step, WAIT_MAX_NS, choose};
use super::choice::{clear, sealed};
#[cfg(test)]
use super::compressor::Kind;
use super::compressor::{Assignment, Common, Compressor, GUARANTEED, SPARE};
use super::outcome::{Left, Outcome, SealError};
use super::throttle::{Budget, Cost};
use super::ways::NamedWays;
use crate::metrics::{DirectoryMetrics, SealerMetrics};
use crate::os::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use crate::os::event::Event;
use crate::os::storage::Storage;
use crate::os::thread;
use crate::segment::SegmentName;

/// How often the worker looks for segments although nobody has announced one: others may have put them there.
const LOOK_INTERVAL_NS: u64 = 60 * NS_PER_S;
/// While segments wait, announced ones are looked for at most this often: the directory may hold thousands.
const LOOK_PAUSE_NS: u64 = 10 * NS_PER_S;
/// The first pause after a failure; each further one is twice as long...
const BACK_OFF_NS: u64 = NS_PER_S;
/// ...up to this.
const BACK_OFF_MAX_NS: u64 = 600 * NS_PER_S;
/// Plans that wait to be heard; the oldest gives way to the newest.
const PLANS_MAX: usize = 16;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Whether anything is.
    pub enabled: bool,
    /// By which codecs and layouts.
    pub ways: NamedWays,
    /// Bytes of frames in a block.
    pub block_bytes: usize,
    /// What it may cost.
    pub budget: Budget,
}

/// Controls a worker, from any thread.
#[derive(Debug, Clone)]
pub struct Link {
    signals: Arc<Signals>,
}

/// Compresses one segment after the other.
///
/// A compressor at idle priority gets each segment first. One that has waited too long there, since the host is busy or more is recorded than the budget
/// allows, goes to a second compressor with a guaranteed share. Both together stay within the budget.
#[derive(Debug)]
pub struct Worker {
    signals: Arc<Signals>,
    plan: Plan,
    common: Arc<Common>,
    directory: Arc<DirectoryMetrics>,
    backlog: Backlog,
    spare: Compressor,
    guaranteed: Compressor,
    wait_max_ns: u64,
    look_ns: u64,   // when the directory is looked at next
    looked_ns: u64, // when it was looked at last
    resume_ns: u64, // nothing is begun before this: the pause after a failure
    cpu_ns: u64,    // of this thread, as charged so far
    failures: u32,  // in a row
    said: BTreeMap<&'static str, String>,
    can_exchange: bool,
}

#[derive(Debug)]
struct Signals {
    plans: ArrayQueue<Plan>, // the newest counts
    bell: Arc<Event>,        // rung for any of these, and by a compressor that is done
    has_news: AtomicBool,    // a new segment, a new plan
    is_urgent: AtomicBool,   // disk space is short
    stop: AtomicBool,
}

/// Makes a worker and its controls.
pub fn link(
    plan: Plan,
    storage: Arc<dyn Storage>,
    metrics: Arc<SealerMetrics>,
    directory: Arc<DirectoryMetrics>,
) -> (Link, Worker) {
    let bell = Arc::new(Event::new());
    let common = Arc::new(Common::new(storage, metrics, plan.budget, Arc::clone(&bell)));
    let signals = Arc::new(Signals {
        plans: ArrayQueue::new(PLANS_MAX),
        bell,
        has_news: AtomicBool::new(false),
        is_urgent: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    });
    let worker = Worker {
        signals: Arc::clone(&signals),
        plan,
        spare: Compressor::new(SPARE, Arc::clone(&common)),
        guaranteed: Compressor::new(GUARANTEED, Arc::clone(&common)),
        common,
        directory,
        backlog: Backlog::default(),
        wait_max_ns: WAIT_MAX_NS,
        look_ns: 0,
        looked_ns: 0,
        resume_ns: 0,
        cpu_ns: 0,
        failures: 0,
        said: BTreeMap::new(),
        can_exchange: true,
    };
    (Link { signals }, worker)
}

#[cfg(test)]
impl Worker {
    /// The same with threads of other priorities, one of which a test may hold up, and another bound on waiting.
    pub(super) fn with_threads(self, spare: Kind, guaranteed: Kind, wait_max_ns: u64) -> Self {
        Self {
            spare: Compressor::new(spare, Arc::clone(&self.common)),
            guaranteed: Compressor::new(guaranteed, Arc::clone(&self.common)),
            wait_max_ns,
            ..self
        }
    }

    /// For how long the budget has everything pause from now on, in nanoseconds; asked by another thread.
    pub(super) fn watch_pause(&self) -> impl Fn() -> u64 + use<> {
        let common = Arc::clone(&self.common);
        move || common.throttle.pause_ns(monotonic_ns())
    }
}

impl Link {
    /// Announces a closed segment.
    pub fn ring(&self) {
        self.signals.has_news.store(true, Ordering::Release);
        self.signals.bell.set();
    }

    /// Puts another plan in force. A segment under way goes on as it began, within the new budget, unless nothing is to be done any more.
    pub fn change(&self, plan: Plan) {
        let _older = self.signals.plans.force_push(plan);
        self.ring();
    }

    /// Says whether disk space is short. While it is, closed segments are compressed with the guaranteed share, however short they have waited.
    /// Never waits: any thread may call this as often as it likes.
    pub fn urge(&self, is_urgent: bool) {
        if self.signals.is_urgent.swap(is_urgent, Ordering::AcqRel) != is_urgent {
            self.ring();
        }
    }

    /// The end: what is under way is dropped.
    pub fn stop(&self) {
        self.signals.stop.store(true, Ordering::Release);
        self.signals.bell.set();
    }
}

impl Worker {
    /// Works until the end, on a thread that is nobody else's.
    pub fn run(mut self) {
        // It does little, and what it does must not hold up the samplers. At idle priority it could not hand out the guaranteed share.
        if let Err(error) = thread::run_in_batches() {
            tracing::warn!(%error, "the thread that plans compression keeps the priority of the process: the kernel refuses to lower it");
        }
        match clear(&*self.common.storage) {
            Ok(0) => {}
            Ok(files) => tracing::info!(files, "removed what an interrupted compression had left"),
            Err(error) => self.complain(&error, "cannot remove what an interrupted compression has left"),
        }
        while !self.signals.stop.load(Ordering::Acquire) {
            self.signals.bell.clear();
            let now_ns = monotonic_ns();
            self.hear(now_ns);
            self.collect(now_ns);
            let until_ns = self.advance(now_ns);
            self.note(now_ns);
            self.signals.bell.wait_until(until_ns);
        }
        self.spare.stop();
        self.guaranteed.stop();
        self.guaranteed.join();
        self.spare.join();
    }

    /// Takes the newest plan, and what was announced. What did not pay in one way may in another.
    fn hear(&mut self, now_ns: u64) {
        if !self.signals.has_news.swap(false, Ordering::AcqRel) {
            return;
        }
        self.resume_ns = now_ns;
        let looks_now = self.backlog.waiting() == 0 || self.looked_ns.saturating_add(LOOK_PAUSE_NS) <= now_ns;
        self.look_ns = if looks_now { now_ns } else { self.look_ns.min(self.looked_ns + LOOK_PAUSE_NS) };
        let mut newest = None;
        while let Some(plan) = self.signals.plans.pop() {
            newest = Some(plan);
        }
        let Some(plan) = newest else { return };
        if (&plan.ways, plan.block_bytes) != (&self.plan.ways, self.plan.block_bytes) {
            self.backlog.forget_unpaid();
            self.look_ns = now_ns;
        }
        if plan.budget != self.plan.budget {
            self.common.set_budget(plan.budget);
            self.spare.wake();
            self.guaranteed.wake();
        }
        self.plan = plan;
    }

    /// Takes what compressors are done with.
    fn collect(&mut self, now_ns: u64) {
        while let Some(done) = self.spare.take_done().or_else(|| self.guaranteed.take_done()) {
            self.conclude(&done, now_ns);
        }
    }

    /// Looks for segments and hands them out, as is due. Returns when to go on at the latest.
    fn advance(&mut self, now_ns: u64) -> u64 {
        let is_enabled = self.plan.enabled && self.can_exchange;
        self.common.metrics.enabled.set(u64::from(is_enabled));
        if !is_enabled {
            self.spare.recall();
            self.guaranteed.recall();
            return now_ns.saturating_add(LOOK_INTERVAL_NS);
        }
        if self.resume_ns > now_ns {
            return self.resume_ns;
        }
        loop {
            if self.look_ns <= now_ns {
                self.look(now_ns);
            }
            let step = choose(Situation {
                now_ns,
                wait_max_ns: self.wait_max_ns,
                is_urgent: self.signals.is_urgent.load(Ordering::Acquire),
                next_since_ns: self.backlog.next_since_ns(),
                spare_progress_ns: self.spare.progress_ns(),
                is_guaranteed_free: self.guaranteed.current().is_none(),
            });
            match step {
                Step::Assign(share) => self.assign(share, now_ns),
                Step::Recall => {
                    self.spare.recall();
                    return self.look_ns;
                }
                Step::WaitUntil(until_ns) => return until_ns.min(self.look_ns),
            }
        }
    }

    fn look(&mut self, now_ns: u64) {
        (self.looked_ns, self.look_ns) = (now_ns, now_ns.saturating_add(LOOK_INTERVAL_NS));
        match sealed(&*self.common.storage) {
            Ok(names) => {
                let assigned = [&self.spare, &self.guaranteed].into_iter().filter_map(Compressor::current);
                let assigned: Vec<SegmentName> = assigned.copied().collect();
                self.backlog.look(names, &assigned, now_ns);
            }
            Err(error) => self.complain(&error, "cannot look for segments to compress"),
        }
    }

    /// Hands out the next segment. After the last one the directory is looked at again.
    fn assign(&mut self, share: Share, now_ns: u64) {
        let Some(name) = self.backlog.take() else { return };
        let compressor = match share {
            Share::Spare => &mut self.spare,
            Share::Guaranteed => &mut self.guaranteed,
        };
        let Plan { ways, block_bytes, .. } = self.plan.clone();
        let keep_free = self.directory.keep_free_bytes.get();
        if let Err(error) = compressor.assign(Assignment::new(name, ways, block_bytes, keep_free)) {
            self.fail(name, &format!("starting a thread: {error}"), now_ns);
        }
        if self.backlog.waiting() == 0 {
            self.look_ns = now_ns;
        }
    }

    /// Publishes how it goes, and charges what this thread has cost.
    fn note(&mut self, now_ns: u64) {
        let assigned = [&self.spare, &self.guaranteed].into_iter().filter_map(Compressor::current);
        let assigned: Vec<&SegmentName> = assigned.collect();
        let since = assigned.iter().filter_map(|name| self.backlog.since_ns(name));
        let oldest_ns = since.chain(self.backlog.next_since_ns()).min();
        let metrics = &self.common.metrics;
        metrics.waiting.set((self.backlog.waiting() + assigned.len()) as u64);
        metrics.oldest_since_ns.set(oldest_ns.unwrap_or(0));
        let before_ns = std::mem::replace(&mut self.cpu_ns, thread_cpu_ns());
        metrics.own_cpu_ns.set(self.cpu_ns);
        let cost = Cost { cpu_ns: self.cpu_ns.saturating_sub(before_ns), io_bytes: 0 };
        self.common.throttle.charge(self.plan.budget, now_ns, cost);
    }

    /// Takes what has become of a segment.
    fn conclude(&mut self, done: &Assignment, now_ns: u64) {
        let (name, metrics) = (done.name, &self.common.metrics);
        match done.result() {
            Some(Ok(Outcome::Packed { raw_bytes, stored_bytes })) => {
                let (raw_bytes, stored_bytes) = (*raw_bytes, *stored_bytes);
                metrics.segments.add(1);
                metrics.raw_bytes.add(raw_bytes);
                metrics.stored_bytes.add(stored_bytes);
                tracing::info!(segment = %name, raw_bytes, stored_bytes, "a segment is compressed");
            }
            Some(Ok(Outcome::Stopped)) => return self.backlog.put_back(name),
            Some(Ok(Outcome::Left(left @ (Left::NoRoom { .. } | Left::MediumFull)))) => {
                // Others may be smaller, but the oldest goes first.
                self.backlog.put_back(name);
                return self.back_off(name, &left.to_string(), now_ns);
            }
            Some(Ok(Outcome::Left(Left::NoExchange))) => {
                self.backlog.put_back(name);
                if std::mem::replace(&mut self.can_exchange, false) {
                    tracing::warn!(
                        "segments stay as they are: the file system cannot exchange two files' names; flatcap seal can do without while no \
                         recorder is at work"
                    );
                }
                return;
            }
            Some(Ok(Outcome::Left(Left::Gone | Left::Packed { .. }))) => {}
            Some(Ok(Outcome::Left(left))) => {
                metrics.left.add(1);
                tracing::info!(segment = %name, "a segment is left as it is: {left}");
                if matches!(left, Left::DoesNotPay { .. }) {
                    let is_current =
                        (&done.ways, done.block_bytes) == (&self.plan.ways, self.plan.block_bytes);
                    (self.failures, self.said) = (0, BTreeMap::new());
                    if is_current {
                        self.backlog.finish_unpaid(&name);
                    } else {
                        self.backlog.put_back(name);
                    }
                    return;
                }
            }
            Some(Err(SealError { step, error, .. })) => {
                return self.fail(name, &format!("{step}: {error}"), now_ns);
            }
            None => return self.fail(name, "the thread that compressed it panicked, see the log", now_ns),
        }
        (self.failures, self.said) = (0, BTreeMap::new());
        self.backlog.finish(&name);
    }

    fn fail(&mut self, name: SegmentName, error: &str, now_ns: u64) {
        self.common.metrics.failures.add(1);
        self.back_off(name, error, now_ns);
        self.backlog.fail(name);
    }

    /// Begins nothing for a while. Logged once until a segment has been compressed.
    fn back_off(&mut self, name: SegmentName, error: &str, now_ns: u64) {
        let what = "cannot compress a segment";
        if self.said.get(what).is_none_or(|said| said != error) {
            self.said.insert(what, error.to_owned());
            tracing::warn!(segment = %name, error, "cannot compress a segment");
        }
        let pause_ns = BACK_OFF_NS.saturating_mul(1 << self.failures.min(16)).min(BACK_OFF_MAX_NS);
        self.failures = self.failures.saturating_add(1);
        self.resume_ns = now_ns.saturating_add(pause_ns);
    }

    fn complain(&mut self, error: &io::Error, what: &'static str) {
        let error = error.to_string();
        if self.said.get(what) != Some(&error) {
            tracing::warn!(error, "compression: {what}");
            self.said.insert(what, error);
        }
    }
}
