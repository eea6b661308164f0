//! Tests of the worker and its threads on a simulated storage.

use std::io;
use std::sync::{Arc, LazyLock};

use flatcap_format::block::{Codec, CompressionOptions, Layout};
use flatcap_format::testing::simulated::{Operation, SimulatedStorage};
use flatcap_metrics::CompressionMetrics;
use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;

use super::fixtures::{BLOCK_BYTES, read, storage};
use crate::compress::backlog::WAIT_MAX_NS;
use crate::compress::compressor::{CompressorKind, GUARANTEED, IDLE};
use crate::compress::{
    CompressSettings, CompressWorkerHandle, CompressionBudget, NamedSourceCompression, new_worker,
};

const BUDGET: CompressionBudget = CompressionBudget { cpu_basis_points: 10_000, io_bytes: 1 << 40 };

/// A running worker and its metrics.
struct RunningWorker {
    link: CompressWorkerHandle,
    thread: std::thread::JoinHandle<()>,
    metrics: Arc<CompressionMetrics>,
    pause_ns: Box<dyn Fn() -> u64>,
}

/// Replaces the function that sets idle priority. At idle priority, a test could wait for minutes
/// on a busy machine.
const KEEP_PRIORITY: fn() -> io::Result<()> = || Ok(());

fn plan(enabled: bool, budget: CompressionBudget) -> CompressSettings {
    CompressSettings {
        enabled,
        compression: NamedSourceCompression::default(),
        block_bytes: BLOCK_BYTES,
        is_quiet: false,
        budget,
    }
}

impl RunningWorker {
    fn start(storage: &SimulatedStorage, plan: CompressSettings) -> Self {
        Self::start_with(storage, plan, KEEP_PRIORITY, WAIT_MAX_NS)
    }

    /// Starts a worker with this maximum waiting time. The given function replaces the function
    /// that sets idle priority.
    fn start_with(
        storage: &SimulatedStorage,
        plan: CompressSettings,
        settle_spare: fn() -> io::Result<()>,
        wait_max_ns: u64,
    ) -> Self {
        let metrics: Arc<CompressionMetrics> = Arc::default();
        let (link, worker) =
            new_worker(plan, Arc::new(storage.clone()), Arc::clone(&metrics), Arc::default());
        let spare = CompressorKind { set_priority: settle_spare, ..IDLE };
        let worker = worker.with_threads(
            spare,
            CompressorKind { set_priority: KEEP_PRIORITY, ..GUARANTEED },
            wait_max_ns,
        );
        let pause_ns = Box::new(worker.watch_pause());
        let thread = thread::spawn("compression", move || worker.run()).unwrap();
        Self { link, thread, metrics, pause_ns }
    }

    fn eventually(&self, mut holds: impl FnMut(&CompressionMetrics) -> bool) {
        let (never, deadline_ns) = (WakeEvent::new(), monotonic_ns() + 60 * NS_PER_S);
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

// Proves that every sealed segment is compressed exactly once, even if it is announced later.
#[test]
fn all_segments_are_compressed() {
    let (storage, raw) = storage(1, 0..2);
    let at_work = RunningWorker::start(&storage, plan(true, BUDGET));
    at_work.eventually(|metrics| metrics.segments.get() == 2 && metrics.waiting.get() == 0);
    let name = super::fixtures::segment(&storage, 2, flatcap_stream::ChecksumKind::Xxh3, 40).to_string();
    let late = storage.content(&name).unwrap();
    at_work.link.notify();
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
    at_work.link.notify();
    at_work.stop();
    assert_eq!(storage.log().len(), operations, "no segment is read again");
    assert_eq!(read(&storage, &name), (late, true));
}

// Proves that a disabled worker does nothing until it is enabled. Also proves that a stop ends a
// pause of hours at once and leaves no temporary file.
#[test]
fn a_stop_ends_a_pause() {
    let (storage, raw) = storage(1, 0..1);
    let before = storage.log().len();
    let at_work = RunningWorker::start(&storage, plan(false, BUDGET));
    at_work.eventually(|metrics| metrics.cpu_ns() > 0);
    assert_eq!((storage.log().len(), at_work.metrics.enabled.get()), (before, 0));
    at_work.link.set_settings(plan(true, CompressionBudget { cpu_basis_points: 1, io_bytes: 1 }));
    at_work.eventually(|_| storage.log().len() > before + 3);
    at_work.stop();
    assert_eq!(storage.names(), raw.keys().cloned().collect::<Vec<_>>());
    assert!(!read(&storage, raw.keys().next().unwrap()).1);
}

// Proves that a segment that compression would hardly make smaller is tried only one time with the
// same options, and is tried again with other options.
#[test]
fn incompressible_segments_are_tried_with_other_options() {
    let (storage, _) = storage(1, 0..2);
    let general = CompressionOptions { layout: Layout::Row, codec: Codec::None };
    let compression = NamedSourceCompression { general, sources: Vec::new() };
    let at_work = RunningWorker::start(&storage, CompressSettings { compression, ..plan(true, BUDGET) });
    at_work.eventually(|metrics| metrics.skipped.get() == 2 && metrics.waiting.get() == 0);
    let operations = storage.log().len();
    at_work.link.notify();
    at_work.link.set_settings(plan(true, BUDGET));
    at_work.eventually(|metrics| metrics.segments.get() == 2 && metrics.waiting.get() == 0);
    assert!(storage.log().len() > operations && at_work.metrics.skipped.get() == 2);
    at_work.stop();
}

// Proves that a new budget takes effect during a pause of hours.
#[test]
fn a_new_budget_ends_a_pause() {
    let (storage, _) = storage(1, 0..1);
    let at_work =
        RunningWorker::start(&storage, plan(true, CompressionBudget { cpu_basis_points: 1, io_bytes: 1 }));
    at_work.eventually(|_| (at_work.pause_ns)() > 600 * NS_PER_S);
    assert_eq!(at_work.metrics.segments.get(), 0);
    at_work.link.set_settings(plan(true, BUDGET));
    at_work.eventually(|metrics| metrics.segments.get() == 1);
    at_work.stop();
}

// Proves that segments that make no progress at idle priority are compressed exactly once with the
// guaranteed share. A segment that is assigned to the idle thread is recalled as soon as possible.
// The idle thread gets no CPU time until a gate opens.
#[test]
fn a_starved_backlog_is_compressed() {
    static GATE: LazyLock<WakeEvent> = LazyLock::new(WakeEvent::new);
    let (storage, raw) = storage(1, 0..4);
    let starved = || {
        GATE.wait();
        Ok(())
    };
    let at_work = RunningWorker::start_with(&storage, plan(true, BUDGET), starved, 0);
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

// Proves that segments do not wait for idle time while disk space is low, and that they wait again
// after space was freed. The idle thread gets no CPU time until a gate opens.
#[test]
fn urgency_does_not_wait() {
    static GATE: LazyLock<WakeEvent> = LazyLock::new(WakeEvent::new);
    let (storage, _) = storage(1, 0..3);
    let starved = || {
        GATE.wait();
        Ok(())
    };
    let at_work = RunningWorker::start_with(&storage, plan(true, BUDGET), starved, 3_600 * NS_PER_S);
    at_work.eventually(|metrics| metrics.waiting.get() == 3);
    assert_eq!(at_work.metrics.segments.get(), 0);
    at_work.link.set_urgent(true);
    at_work.eventually(|metrics| metrics.segments.get() == 2 && metrics.waiting.get() == 1);
    at_work.link.set_urgent(false);
    super::fixtures::segment(&storage, 3, flatcap_stream::ChecksumKind::Xxh3, 40);
    at_work.link.notify();
    at_work.eventually(|metrics| metrics.waiting.get() == 2);
    assert_eq!(at_work.metrics.segments.get(), 2);
    GATE.set();
    at_work.eventually(|metrics| metrics.segments.get() == 4);
    at_work.stop();
}

// Proves that a failed segment is counted, is tried again and delays no other segment. If names
// cannot be exchanged, all segments stay unchanged and no segment is tried again.
#[test]
fn failures_hold_nothing_up() {
    let (storage_a, raw) = storage(1, 0..2);
    storage_a.fail(storage_a.log().len() + 1, 5);
    let at_work = RunningWorker::start(&storage_a, plan(true, BUDGET));
    at_work.eventually(|metrics| metrics.segments.get() == 2 && metrics.waiting.get() == 0);
    assert_eq!(at_work.metrics.failures.get(), 1);
    at_work.stop();
    assert_eq!(storage_a.names().len(), raw.len());

    let (storage_b, raw) = storage(1, 0..2);
    let exchange = {
        let (storage, _) = storage(1, 0..1);
        let behind = storage.log().len();
        RunningWorker::start(&storage, plan(true, BUDGET)).eventually(|metrics| metrics.segments.get() == 1);
        let is_exchange = |operation: &Operation| matches!(operation, Operation::Exchange { .. });
        storage.log()[behind..].iter().position(|event| is_exchange(&event.operation)).unwrap()
    };
    storage_b.fail(storage_b.log().len() + exchange, io::ErrorKind::Unsupported);
    let at_work = RunningWorker::start(&storage_b, plan(true, BUDGET));
    at_work.eventually(|metrics| {
        metrics.enabled.get() == 0 && metrics.cpu_ns() > 0 && storage_b.log().len() > 4
    });
    let operations = storage_b.log().len();
    at_work.link.notify();
    at_work.stop();
    assert_eq!((storage_b.names().len(), storage_b.log().len()), (raw.len(), operations));
}
