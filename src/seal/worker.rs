//! What packs beside a recording: a loop on a thread of its own that somebody else has started.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;

use super::choice::{clear, sealed};
use super::outcome::{Left, Outcome, SealError};
use super::pace::{Budget, Pace};
use super::packing::{Job, Placing, Slice, pack};
use super::ways::NamedWays;
use crate::metrics::{DirectoryMetrics, SealerMetrics};
use crate::os::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use crate::os::event::Event;
use crate::os::storage::Storage;
use crate::os::thread;
use crate::segment::SegmentName;

/// How often it looks for segments although nobody has told it of one: others may have put them there.
const LOOK_INTERVAL_NS: u64 = 60 * NS_PER_S;
/// The first pause after something has failed; each further one is twice as long...
const BACK_OFF_NS: u64 = NS_PER_S;
/// ...up to this.
const BACK_OFF_MAX_NS: u64 = 600 * NS_PER_S;
/// A segment is tried so often in a run before it is left as it is.
const TRIES_MAX: u32 = 3;
/// Plans that wait to be heard; the oldest gives way. More than one, so that whoever brings one need not wait for a thread that runs last and is just
/// taking another one out.
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

/// The way to a worker, from any thread.
#[derive(Debug, Clone)]
pub struct Link {
    signals: Arc<Signals>,
}

/// What packs one segment after the other.
#[derive(Debug)]
pub struct Worker {
    orders: Orders,
    storage: Arc<dyn Storage>,
    metrics: Arc<SealerMetrics>,
    directory: Arc<DirectoryMetrics>,
    queue: VecDeque<SegmentName>, // of the last look, the oldest first
    done: BTreeSet<Key>,          // need no look in this run
    unpaid: BTreeSet<Key>,        // need none until they are to be packed in another way
    tries: BTreeMap<Key, u32>,    // of those that have failed
    pace: Pace,
    failures: u32, // one after the other
    said: BTreeMap<&'static str, String>,
    can_exchange: bool,
}

/// Number and run of a segment: what tells those of a directory apart.
type Key = (u64, u64);

#[derive(Debug)]
struct Signals {
    plans: ArrayQueue<Plan>, // the newest counts
    bell: Event,             // rung for a new segment, a new plan, the end
    stop: Event,
    is_urgent: AtomicBool, // disk space is short
}

/// What a worker is told, and what it was told last.
#[derive(Debug)]
struct Orders {
    plan: Plan,
    signals: Arc<Signals>,
}

/// A worker and the way to it.
pub fn link(
    plan: Plan,
    storage: Arc<dyn Storage>,
    metrics: Arc<SealerMetrics>,
    directory: Arc<DirectoryMetrics>,
) -> (Link, Worker) {
    let plans = ArrayQueue::new(PLANS_MAX);
    let signals = Arc::new(Signals { plans, bell: Event::new(), stop: Event::new(), is_urgent: AtomicBool::new(false) });
    let worker = Worker {
        orders: Orders { plan, signals: Arc::clone(&signals) },
        storage,
        metrics,
        directory,
        queue: VecDeque::new(),
        done: BTreeSet::new(),
        unpaid: BTreeSet::new(),
        tries: BTreeMap::new(),
        pace: Pace::new(0, 0),
        failures: 0,
        said: BTreeMap::new(),
        can_exchange: true,
    };
    (Link { signals }, worker)
}

impl Link {
    /// There may be something to do.
    pub fn ring(&self) {
        self.signals.bell.set();
    }

    /// This is to be done from now on. A segment under way goes on in the way in which it began, within the new budget, unless nothing is to be done any
    /// more.
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
        self.signals.stop.set();
        self.ring();
    }
}

impl Orders {
    /// Takes the newest plan. Rings of before are heard by that.
    fn hear(&mut self) {
        self.signals.bell.clear();
        while let Some(plan) = self.signals.plans.pop() {
            self.plan = plan;
        }
    }

    fn is_stopped(&self) -> bool {
        self.signals.stop.is_set()
    }

    /// Sleeps until a time of the monotonic clock, or until somebody rings.
    fn sleep_until(&self, deadline_ns: u64) {
        self.signals.bell.wait_until(deadline_ns);
    }

    /// Pauses until what was spent, with so many more bytes, is within the budget. Returns whether to go on.
    fn pause(&mut self, pace: &mut Pace, cpu_ns: u64, mut io_bytes: u64) -> bool {
        loop {
            self.hear();
            if !self.plan.enabled || self.is_stopped() {
                return false;
            }
            let now_ns = monotonic_ns();
            match pace.pause_ns(self.plan.budget, now_ns, cpu_ns, std::mem::take(&mut io_bytes)) {
                0 => return true,
                pause_ns => self.sleep_until(now_ns.saturating_add(pause_ns)),
            }
        }
    }
}

impl Worker {
    /// Works until the end, on a thread that is nobody else's: it will run last from now on.
    pub fn run(mut self) {
        if let Err(error) = thread::run_last() {
            tracing::warn!(%error, "the sealer does not run at idle priority: the kernel refuses it; its budgets hold all the same");
        }
        match clear(&*self.storage) {
            Ok(0) => {}
            Ok(files) => tracing::info!(files, "removed what an interrupted sealing had left"),
            Err(error) => self.complain(&error, "cannot remove what an interrupted sealing has left"),
        }
        while !self.orders.is_stopped() {
            self.hear();
            let is_enabled = self.orders.plan.enabled && self.can_exchange;
            self.metrics.enabled.set(u64::from(is_enabled));
            let next = if is_enabled { self.next() } else { None };
            let wait_ns = match next {
                Some(name) => self.work(name),
                None => LOOK_INTERVAL_NS,
            };
            self.metrics.cpu_ns.set(thread_cpu_ns());
            if wait_ns > 0 {
                self.orders.sleep_until(monotonic_ns().saturating_add(wait_ns));
            }
        }
    }

    /// Takes the newest plan. What did not pay in one way may in another.
    fn hear(&mut self) {
        let before = (self.orders.plan.ways.clone(), self.orders.plan.block_bytes);
        self.orders.hear();
        if before != (self.orders.plan.ways.clone(), self.orders.plan.block_bytes) {
            self.unpaid.clear();
        }
    }

    /// The oldest segment that is not known to be done with. The directory is looked at once all that were found the last time have had their turn: it
    /// may hold thousands.
    fn next(&mut self) -> Option<SegmentName> {
        if self.queue.is_empty() {
            self.look();
        }
        self.metrics.waiting.set(self.queue.len() as u64);
        self.queue.pop_front()
    }

    fn look(&mut self) {
        let names = match sealed(&*self.storage) {
            Ok(names) => names,
            Err(error) => return self.complain(&error, "cannot look for segments to seal"),
        };
        let there: BTreeSet<Key> = names.iter().map(key).collect();
        self.done.retain(|done| there.contains(done));
        self.unpaid.retain(|unpaid| there.contains(unpaid));
        self.tries.retain(|tried, _| there.contains(tried));
        let is_known = |key: &Key| self.done.contains(key) || self.unpaid.contains(key);
        self.queue.extend(names.into_iter().filter(|name| !is_known(&key(name))));
    }

    /// Packs a segment. Returns for how long to wait before the next one, in nanoseconds.
    fn work(&mut self, name: SegmentName) -> u64 {
        let Plan { ways, block_bytes, .. } = self.orders.plan.clone();
        let mut pace = self.pace;
        let (orders, metrics) = (&mut self.orders, &self.metrics);
        let mut go_on = |slice: Slice| {
            let cpu_ns = thread_cpu_ns();
            metrics.cpu_ns.set(cpu_ns);
            orders.pause(&mut pace, cpu_ns, slice.io_bytes)
        };
        let result = pack(
            &mut Job {
                storage: &*self.storage,
                ways: &ways,
                block_bytes,
                keep_free: self.directory.keep_free_bytes.get(),
                placing: Placing::Exchange,
                pace: &mut go_on,
            },
            name,
        );
        // What it took to look at one that is left as it is.
        go_on(Slice { raw_bytes: 0, io_bytes: 0 });
        self.pace = pace;
        let wait_ns = self.conclude(name, result);
        if (&ways, block_bytes) != (&self.orders.plan.ways, self.orders.plan.block_bytes) {
            self.unpaid.clear();
        }
        wait_ns
    }

    fn conclude(&mut self, name: SegmentName, result: Result<Outcome, SealError>) -> u64 {
        let metrics = &self.metrics;
        match result {
            Ok(Outcome::Packed { raw_bytes, stored_bytes }) => {
                metrics.segments.add(1);
                metrics.raw_bytes.add(raw_bytes);
                metrics.stored_bytes.add(stored_bytes);
                tracing::info!(segment = %name, raw_bytes, stored_bytes, "a segment is sealed as compressed blocks");
            }
            Ok(Outcome::Stopped) => {
                self.queue.push_front(name);
                return 0;
            }
            Ok(Outcome::Left(left @ (Left::NoRoom { .. } | Left::MediumFull))) => {
                // Others may be smaller, but the oldest goes first.
                self.queue.push_front(name);
                return self.back_off(name, &left.to_string());
            }
            Ok(Outcome::Left(Left::NoExchange)) => {
                self.can_exchange = false;
                tracing::warn!(
                    "segments stay as they are: the file system cannot exchange two files' names; flatcap seal can do without while no \
                     recorder is at work"
                );
                return 0;
            }
            Ok(Outcome::Left(Left::Gone | Left::Packed { .. })) => {}
            Ok(Outcome::Left(left)) => {
                metrics.left.add(1);
                if matches!(left, Left::DoesNotPay { .. }) {
                    self.unpaid.insert(key(&name));
                }
                tracing::info!(segment = %name, "a segment is left as it is: {left}");
            }
            Err(error) => {
                metrics.failures.add(1);
                let wait_ns = self.back_off(name, &format!("{}: {}", error.step, error.error));
                let tries = self.tries.entry(key(&name)).or_default();
                *tries += 1;
                if *tries >= TRIES_MAX {
                    self.done.insert(key(&name));
                } else {
                    // Another one may do better meanwhile.
                    self.queue.push_back(name);
                }
                return wait_ns;
            }
        }
        self.failures = 0;
        self.said.clear();
        if !self.unpaid.contains(&key(&name)) {
            self.done.insert(key(&name));
        }
        0
    }

    /// Something is in the way. Said once until a segment has been done with.
    fn back_off(&mut self, name: SegmentName, error: &str) -> u64 {
        let what = "cannot seal a segment as compressed blocks";
        if self.said.get(what).is_none_or(|said| said != error) {
            self.said.insert(what, error.to_owned());
            tracing::warn!(segment = %name, error, "cannot seal a segment as compressed blocks");
        }
        let wait_ns = BACK_OFF_NS.saturating_mul(1 << self.failures.min(16)).min(BACK_OFF_MAX_NS);
        self.failures = self.failures.saturating_add(1);
        wait_ns
    }

    fn complain(&mut self, error: &io::Error, what: &'static str) {
        let error = error.to_string();
        if self.said.get(what) != Some(&error) {
            tracing::warn!(error, "sealing: {what}");
            self.said.insert(what, error);
        }
    }
}

fn key(name: &SegmentName) -> Key {
    (name.number, name.run_id)
}

#[cfg(test)]
mod tests {
    use super::super::rig::{BLOCK_BYTES, read, storage};
    use super::*;
    use crate::block::{Codec, Layout, Way};
    use crate::os::simulated::{Operation, SimulatedStorage};

    const BUDGET: Budget = Budget { cpu_basis_points: 10_000, io_bytes: 1 << 40 };

    /// A worker at work, and what it counts.
    struct AtWork {
        link: Link,
        thread: std::thread::JoinHandle<()>,
        metrics: Arc<SealerMetrics>,
    }

    fn plan(enabled: bool, budget: Budget) -> Plan {
        Plan { enabled, ways: NamedWays::default(), block_bytes: BLOCK_BYTES, budget }
    }

    impl AtWork {
        fn start(storage: &SimulatedStorage, plan: Plan) -> Self {
            let metrics: Arc<SealerMetrics> = Arc::default();
            let (link, worker) = link(plan, Arc::new(storage.clone()), Arc::clone(&metrics), Arc::default());
            let thread = thread::spawn("sealer", move || worker.run()).unwrap();
            Self { link, thread, metrics }
        }

        fn eventually(&self, mut holds: impl FnMut(&SealerMetrics) -> bool) {
            let (never, deadline_ns) = (Event::new(), monotonic_ns() + 60 * NS_PER_S);
            while !holds(&self.metrics) {
                assert!(monotonic_ns() < deadline_ns, "not within a minute: {:?}", self.metrics);
                never.wait_until(monotonic_ns() + 1_000_000);
            }
        }

        fn stop(self) {
            self.link.stop();
            self.thread.join().unwrap();
        }
    }

    // Goal: every closed segment is packed, those that come later once they are told of, and each is looked at once. Method: segments before and while it
    // is at work; one more look.
    #[test]
    fn all_segments_are_packed() {
        let (storage, raw) = storage(1, 0..2);
        let at_work = AtWork::start(&storage, plan(true, BUDGET));
        at_work.eventually(|metrics| metrics.segments.get() == 2 && metrics.waiting.get() == 0);
        let name = super::super::rig::segment(&storage, 2, crate::stream::ChecksumKind::Xxh3, 40).to_string();
        let late = storage.content(&name).unwrap();
        at_work.link.ring();
        at_work.eventually(|metrics| metrics.segments.get() == 3 && metrics.waiting.get() == 0);
        let sum = |of: fn(&[u8], &[u8]) -> u64| -> u64 {
            let all = raw.iter().map(|(name, bytes)| (name.as_str(), bytes)).chain([(name.as_str(), &late)]);
            all.map(|(name, bytes)| of(bytes, &storage.content(name).unwrap())).sum()
        };
        let metrics = &at_work.metrics;
        assert_eq!(metrics.raw_bytes.get(), sum(|raw, _| raw.len() as u64));
        assert_eq!(metrics.stored_bytes.get(), sum(|_, stored| stored.len() as u64));
        assert!(metrics.cpu_ns.get() > 0 && metrics.enabled.get() == 1);
        let operations = storage.log().len();
        at_work.link.ring();
        at_work.stop();
        assert_eq!(storage.log().len(), operations, "nothing is touched again");
        assert_eq!(read(&storage, &name), (late, true));
    }

    // Goal: one that is off does nothing until it is turned on, and one that is stopped in the middle of a pause ends at once and leaves nothing. Method: a
    // budget that has it pause for hours after the first block.
    #[test]
    fn pauses_end_with_the_end() {
        let (storage, raw) = storage(1, 0..1);
        let before = storage.log().len();
        let at_work = AtWork::start(&storage, plan(false, BUDGET));
        at_work.eventually(|metrics| metrics.cpu_ns.get() > 0);
        assert_eq!((storage.log().len(), at_work.metrics.enabled.get()), (before, 0));
        at_work.link.change(plan(true, Budget { cpu_basis_points: 1, io_bytes: 1 }));
        at_work.eventually(|_| storage.log().len() > before + 3);
        at_work.stop();
        assert_eq!(storage.names(), raw.keys().cloned().collect::<Vec<_>>());
        assert!(!read(&storage, raw.keys().next().unwrap()).1);
    }

    // Goal: what does not pay is looked at once, and again when it is to be packed in another way. Method: rows by no codec, then the default.
    #[test]
    fn what_does_not_pay_may_in_another_way() {
        let (storage, _) = storage(1, 0..2);
        let general = Way { layout: Layout::Row, codec: Codec::None };
        let ways = NamedWays { general, sources: Vec::new() };
        let at_work = AtWork::start(&storage, Plan { ways, ..plan(true, BUDGET) });
        at_work.eventually(|metrics| metrics.left.get() == 2 && metrics.waiting.get() == 0);
        let operations = storage.log().len();
        at_work.link.ring();
        at_work.link.change(plan(true, BUDGET));
        at_work.eventually(|metrics| metrics.segments.get() == 2 && metrics.waiting.get() == 0);
        assert!(storage.log().len() > operations && at_work.metrics.left.get() == 2);
        at_work.stop();
    }

    // Goal: a new budget holds from the middle of a pause on. Method: one that would have it pause for hours, then one that does not.
    #[test]
    fn a_pause_heeds_a_new_budget() {
        let (storage, _) = storage(1, 0..1);
        let at_work = AtWork::start(&storage, plan(true, Budget { cpu_basis_points: 1, io_bytes: 1 }));
        let before = storage.log().len();
        at_work.eventually(|metrics| metrics.cpu_ns.get() > 0 && storage.log().len() > before);
        at_work.link.change(plan(true, BUDGET));
        at_work.eventually(|metrics| metrics.segments.get() == 1);
        at_work.stop();
    }

    // Goal: a segment that fails is counted and tried again, and holds no other one up; where names cannot be exchanged, everything stays as it is and nothing is tried again.
    // Method: the first creation of a packed file fails; then the first exchange.
    #[test]
    fn failures_hold_nothing_up() {
        let (storage_a, raw) = storage(1, 0..2);
        storage_a.fail(storage_a.log().len() + 1, 5);
        let at_work = AtWork::start(&storage_a, plan(true, BUDGET));
        at_work.eventually(|metrics| metrics.segments.get() == 2 && metrics.waiting.get() == 0);
        assert_eq!(at_work.metrics.failures.get(), 1);
        at_work.stop();
        assert_eq!(storage_a.names().len(), raw.len());

        let (storage_b, raw) = storage(1, 0..2);
        let exchange = {
            let (storage, _) = storage(1, 0..1);
            let behind = storage.log().len();
            AtWork::start(&storage, plan(true, BUDGET)).eventually(|metrics| metrics.segments.get() == 1);
            let is_exchange = |operation: &Operation| matches!(operation, Operation::Exchange { .. });
            storage.log()[behind..].iter().position(|event| is_exchange(&event.operation)).unwrap()
        };
        storage_b.fail(storage_b.log().len() + exchange, io::ErrorKind::Unsupported);
        let at_work = AtWork::start(&storage_b, plan(true, BUDGET));
        at_work.eventually(|metrics| {
            metrics.enabled.get() == 0 && metrics.cpu_ns.get() > 0 && storage_b.log().len() > 4
        });
        let operations = storage_b.log().len();
        at_work.link.ring();
        at_work.stop();
        assert_eq!((storage_b.names().len(), storage_b.log().len()), (raw.len(), operations));
    }
}
