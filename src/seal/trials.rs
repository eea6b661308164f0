//! The worker and its threads on a simulated storage.

use std::io;
use std::sync::{Arc, LazyLock};

use super::backlog::WAIT_MAX_NS;
use super::compressor::{GUARANTEED, Kind, SPARE};
use super::rig::{BLOCK_BYTES, read, storage};
use super::{Budget, Link, NamedWays, Plan, link};
use crate::block::{Codec, Layout, Way};
use crate::metrics::SealerMetrics;
use crate::os::clock::{NS_PER_S, monotonic_ns};
use crate::os::event::Event;
use crate::os::simulated::{Operation, SimulatedStorage};
use crate::os::thread;

const BUDGET: Budget = Budget { cpu_basis_points: 10_000, io_bytes: 1 << 40 };

/// A worker at work, and what it counts.
struct AtWork {
    link: Link,
    thread: std::thread::JoinHandle<()>,
    metrics: Arc<SealerMetrics>,
    pause_ns: Box<dyn Fn() -> u64>,
}

/// The priority of the test: at idle priority a thread may wait for minutes on a busy machine.
const UNSETTLED: fn() -> io::Result<()> = || Ok(());

fn plan(enabled: bool, budget: Budget) -> Plan {
    Plan { enabled, ways: NamedWays::default(), block_bytes: BLOCK_BYTES, budget }
}

impl AtWork {
    fn start(storage: &SimulatedStorage, plan: Plan) -> Self {
        Self::start_with(storage, plan, UNSETTLED, WAIT_MAX_NS)
    }

    /// With what the thread at idle priority does first, and for how long a segment may wait for it.
    fn start_with(
        storage: &SimulatedStorage,
        plan: Plan,
        settle_spare: fn() -> io::Result<()>,
        wait_max_ns: u64,
    ) -> Self {
        let metrics: Arc<SealerMetrics> = Arc::default();
        let (link, worker) = link(plan, Arc::new(storage.clone()), Arc::clone(&metrics), Arc::default());
        let spare = Kind { settle: settle_spare, ..SPARE };
        let worker = worker.with_threads(spare, Kind { settle: UNSETTLED, ..GUARANTEED }, wait_max_ns);
        let pause_ns = Box::new(worker.watch_pause());
        let thread = thread::spawn("compression", move || worker.run()).unwrap();
        Self { link, thread, metrics, pause_ns }
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
    let name = super::rig::segment(&storage, 2, crate::stream::ChecksumKind::Xxh3, 40).to_string();
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
    assert!(metrics.cpu_ns() > 0 && metrics.enabled.get() == 1);
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
    at_work.eventually(|metrics| metrics.cpu_ns() > 0);
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

// Goal: a new budget holds from the middle of a pause on. Method: one that has everything pause for hours after the first slice, and that is seen; then one
// that does not.
#[test]
fn a_pause_heeds_a_new_budget() {
    let (storage, _) = storage(1, 0..1);
    let at_work = AtWork::start(&storage, plan(true, Budget { cpu_basis_points: 1, io_bytes: 1 }));
    at_work.eventually(|_| (at_work.pause_ns)() > 600 * NS_PER_S);
    assert_eq!(at_work.metrics.segments.get(), 0);
    at_work.link.change(plan(true, BUDGET));
    at_work.eventually(|metrics| metrics.segments.get() == 1);
    at_work.stop();
}

// Goal: segments that get nowhere at idle priority are compressed with the guaranteed share, the one that was handed out there as soon as it can be taken
// back, and each once. Method: a thread at idle priority that gets no processor at all until a gate opens.
#[test]
fn a_starved_backlog_is_compressed() {
    static GATE: LazyLock<Event> = LazyLock::new(Event::new);
    let (storage, raw) = storage(1, 0..4);
    let starved = || {
        GATE.wait();
        Ok(())
    };
    let at_work = AtWork::start_with(&storage, plan(true, BUDGET), starved, 0);
    at_work.eventually(|metrics| metrics.segments.get() == 3 && metrics.waiting.get() == 1);
    let metrics = &at_work.metrics;
    assert!(metrics.guaranteed_cpu_ns.get() > 0 && metrics.spare_cpu_ns.get() == 0);
    assert!(metrics.oldest_wait_ns(monotonic_ns()) > 0);
    GATE.set();
    at_work.eventually(|metrics| metrics.segments.get() == 4 && metrics.waiting.get() == 0);
    assert_eq!(at_work.metrics.oldest_wait_ns(monotonic_ns()), 0);
    at_work.stop();
    for (name, bytes) in raw {
        assert_eq!(read(&storage, &name), (bytes, true));
    }
}

// Goal: while disk space is short nothing waits for idle time, and once it is not, everything does. Method: a thread at idle priority that gets no processor
// at all, a long bound on waiting, the signal up, and down.
#[test]
fn urgency_does_not_wait() {
    static GATE: LazyLock<Event> = LazyLock::new(Event::new);
    let (storage, _) = storage(1, 0..3);
    let starved = || {
        GATE.wait();
        Ok(())
    };
    let at_work = AtWork::start_with(&storage, plan(true, BUDGET), starved, 3_600 * NS_PER_S);
    at_work.eventually(|metrics| metrics.waiting.get() == 3);
    assert_eq!(at_work.metrics.segments.get(), 0);
    at_work.link.urge(true);
    at_work.eventually(|metrics| metrics.segments.get() == 2 && metrics.waiting.get() == 1);
    at_work.link.urge(false);
    super::rig::segment(&storage, 3, crate::stream::ChecksumKind::Xxh3, 40);
    at_work.link.ring();
    at_work.eventually(|metrics| metrics.waiting.get() == 2);
    assert_eq!(at_work.metrics.segments.get(), 2);
    GATE.set();
    at_work.eventually(|metrics| metrics.segments.get() == 4);
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
        metrics.enabled.get() == 0 && metrics.cpu_ns() > 0 && storage_b.log().len() > 4
    });
    let operations = storage_b.log().len();
    at_work.link.ring();
    at_work.stop();
    assert_eq!((storage_b.names().len(), storage_b.log().len()), (raw.len(), operations));
}
