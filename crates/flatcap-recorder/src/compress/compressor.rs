//! A thread that compresses the segments assigned to it, one at a time.
//!
//! The thread shares no lock with the worker, because a thread at idle priority may get no CPU time
//! for minutes, even while it holds a lock.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;
use flatcap_format::segment::SegmentName;
use flatcap_format::storage::Storage;
use flatcap_metrics::{CompressionMetrics, Counter};
use flatcap_os::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use flatcap_os::thread;
use flatcap_os::throttle::Throttle;
use flatcap_os::wake_event::WakeEvent;

use super::named_options::NamedSourceCompression;
use super::outcome::{CompressError, CompressOutcome};
use super::replacement::{ReplaceJob, ReplaceMode, WorkSlice};
use super::rewrite::{CompressJob, compress_segment};

/// The kind of a compressor thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompressorKind {
    /// The thread's name.
    pub(super) name: &'static str,
    /// Sets the priority of the calling thread.
    pub(super) set_priority: fn() -> io::Result<()>,
    /// Returns the counter of the thread's CPU time.
    pub(super) cpu_ns: fn(&CompressionMetrics) -> &Counter,
}

/// The thread runs at idle priority (`SCHED_IDLE`). This thread delays no other thread. On a busy
/// host, it gets almost no CPU time.
pub(super) const IDLE: CompressorKind = CompressorKind {
    name: "compress-idle",
    set_priority: thread::set_idle_priority,
    cpu_ns: |metrics| &metrics.spare_cpu_ns,
};

/// The thread runs at normal priority within the budget. This thread therefore makes progress on a
/// busy host too.
pub(super) const GUARANTEED: CompressorKind = CompressorKind {
    name: "compress",
    set_priority: thread::set_batch_priority,
    cpu_ns: |metrics| &metrics.guaranteed_cpu_ns,
};

/// The resources that compression may use per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressionBudget {
    /// CPU time, in hundredths of a percent of one core. At least 1.
    pub cpu_basis_points: u32,
    /// Bytes read and written per second. At least 1.
    pub io_bytes: u64,
}

impl CompressionBudget {
    fn cpu_ns(self) -> u64 {
        u64::from(self.cpu_basis_points) * (NS_PER_S / 10_000)
    }
}

/// The state shared by all compressors of a run.
#[derive(Debug)]
pub(super) struct CompressorContext {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) metrics: Arc<CompressionMetrics>,
    cpu: Throttle,
    io: Throttle,
    worker_wake: Arc<WakeEvent>, // the worker's: set when a segment is done
}

impl CompressorContext {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        metrics: Arc<CompressionMetrics>,
        budget: CompressionBudget,
        bell: Arc<WakeEvent>,
    ) -> Self {
        Self {
            storage,
            metrics,
            cpu: Throttle::new(budget.cpu_ns()),
            io: Throttle::new(budget.io_bytes),
            worker_wake: bell,
        }
    }

    /// Changes the budget. The caller must wake sleeping compressors.
    pub(super) fn set_budget(&self, budget: CompressionBudget) {
        self.cpu.set_budget(budget.cpu_ns());
        self.io.set_budget(budget.io_bytes);
    }

    /// Charges the budgets for work that began at `began_ns`, whichever thread did the work.
    pub(super) fn charge(&self, began_ns: u64, cpu_ns: u64, io_bytes: u64) {
        self.cpu.charge(began_ns, cpu_ns);
        self.io.charge(began_ns, io_bytes);
    }

    /// Returns the time to sleep until both budgets allow more work, in nanoseconds.
    pub(super) fn pause_ns(&self, now_ns: u64) -> u64 {
        self.cpu.wait_ns(now_ns).max(self.io.wait_ns(now_ns))
    }
}

/// A segment to compress, and its result.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) name: SegmentName,
    pub(super) compression: NamedSourceCompression,
    pub(super) block_bytes: usize,
    pub(super) min_free: u64,
    is_recalled: AtomicBool,
    progress_ns: AtomicU64, // end of the last slice, or of the pause after it
    result: OnceLock<Result<CompressOutcome, CompressError>>,
}

impl Assignment {
    pub(super) fn new(
        name: SegmentName,
        compression: NamedSourceCompression,
        block_bytes: usize,
        min_free: u64,
    ) -> Self {
        Self {
            name,
            compression,
            block_bytes,
            min_free,
            is_recalled: AtomicBool::new(false),
            progress_ns: AtomicU64::new(monotonic_ns()),
            result: OnceLock::new(),
        }
    }

    /// Returns the result, or `None` if the compressor has not finished or its thread has panicked.
    pub(super) fn result(&self) -> Option<&Result<CompressOutcome, CompressError>> {
        self.result.get()
    }
}

/// The worker's handle of a compressor. The thread starts with the first assignment.
#[derive(Debug)]
pub(super) struct CompressorHandle {
    kind: CompressorKind,
    common: Arc<CompressorContext>,
    queue: Arc<AssignmentQueue>,
    thread: Option<JoinHandle<()>>,
    current: Option<Arc<Assignment>>,
}

#[derive(Debug)]
struct AssignmentQueue {
    // pushed only when the previous assignment is done, so the two threads never contend for the
    // queue
    next: ArrayQueue<Arc<Assignment>>,
    wake: WakeEvent, // set for an assignment, a recall, another budget and the end
    stop: AtomicBool,
}

impl CompressorHandle {
    pub(super) fn new(kind: CompressorKind, common: Arc<CompressorContext>) -> Self {
        let queue = AssignmentQueue {
            next: ArrayQueue::new(1),
            wake: WakeEvent::new(),
            stop: AtomicBool::new(false),
        };
        Self { kind, common, queue: Arc::new(queue), thread: None, current: None }
    }

    /// Returns the assigned segment.
    pub(super) fn current(&self) -> Option<&SegmentName> {
        self.current.as_ref().map(|current| &current.name)
    }

    /// Assigns a segment. The compressor must not have a segment.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn assign(&mut self, assignment: Assignment) -> io::Result<()> {
        if self.thread.is_none() {
            let (kind, common, queue) = (self.kind, Arc::clone(&self.common), Arc::clone(&self.queue));
            self.thread = Some(thread::spawn(kind.name, move || run_compressor(kind, &common, &queue))?);
        }
        let assignment = Arc::new(assignment);
        let _was_empty = self.queue.next.push(Arc::clone(&assignment));
        self.current = Some(assignment);
        self.queue.wake.set();
        Ok(())
    }

    /// Takes back the assignment after it is done or the compressor's thread has panicked.
    pub(super) fn take_done(&mut self) -> Option<Arc<Assignment>> {
        let has_ended = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        if has_ended {
            self.thread = None; // the next assignment starts another one
        }
        self.current.take_if(|current| current.result.get().is_some() || has_ended)
    }

    /// Recalls the segment. The assignment ends with [`CompressOutcome::Stopped`] after the current
    /// slice.
    pub(super) fn recall(&self) {
        if let Some(current) = &self.current {
            current.is_recalled.store(true, Ordering::Release);
            self.wake();
        }
    }

    /// Returns the time of the last progress on the segment, or the planned end of the last pause
    /// if that end is later. Returns `None` if the compressor has no segment.
    pub(super) fn progress_ns(&self) -> Option<u64> {
        self.current.as_ref().map(|current| current.progress_ns.load(Ordering::Relaxed))
    }

    /// Ends a pause of the thread, so that the thread checks for a recall, a stop or a new budget.
    pub(super) fn wake(&self) {
        self.queue.wake.set();
    }

    /// Stops the thread. The current segment is abandoned.
    pub(super) fn stop(&self) {
        self.queue.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Waits for the thread to end.
    pub(super) fn join(self) {
        if let Some(thread) = self.thread {
            // If the thread has panicked, the panic hook has reported it. The segments stay
            // unchanged.
            let _panicked = thread.join();
        }
    }
}

/// Runs the thread, which compresses assignments until it is stopped.
fn run_compressor(kind: CompressorKind, common: &CompressorContext, queue: &AssignmentQueue) {
    let cpu_ns = (kind.cpu_ns)(&common.metrics);
    if let Err(error) = (kind.set_priority)() {
        tracing::warn!(
            %error,
            "cannot set the priority of a compression thread; its budgets still hold"
        );
    }
    let mut usage = CompressorUsage { began_ns: monotonic_ns(), cpu_ns: thread_cpu_ns() };
    loop {
        queue.wake.clear();
        if queue.stop.load(Ordering::Acquire) {
            return;
        }
        let Some(assignment) = queue.next.pop() else {
            queue.wake.wait();
            continue;
        };
        usage.began_ns = monotonic_ns();
        let mut after = |slice: WorkSlice| {
            usage.charge(common, slice.io_bytes);
            cpu_ns.set(usage.cpu_ns);
            let may_go_on = pause(common, queue, &assignment);
            usage.began_ns = monotonic_ns();
            may_go_on
        };
        // Charge the budget before the start, so that the work of the other threads is paid for.
        // Charge the budget again at the end, for the check of a segment that stays unchanged.
        let nothing = WorkSlice { raw_bytes: 0, io_bytes: 0 };
        let result = if after(nothing) {
            compress(common, &assignment, &mut after)
        } else {
            Ok(CompressOutcome::Stopped)
        };
        usage.charge(common, 0);
        cpu_ns.set(usage.cpu_ns);
        let _first = assignment.result.set(result);
        common.worker_wake.set();
    }
}

fn compress(
    common: &CompressorContext,
    assignment: &Assignment,
    after: &mut dyn FnMut(WorkSlice) -> bool,
) -> Result<CompressOutcome, CompressError> {
    let mut job = CompressJob {
        replace: ReplaceJob {
            storage: &*common.storage,
            min_free: assignment.min_free,
            replace_mode: ReplaceMode::Exchange,
            after_slice: after,
        },
        compression: &assignment.compression,
        block_bytes: assignment.block_bytes,
    };
    compress_segment(&mut job, assignment.name)
}

/// The CPU time charged so far, and the start of the current slice.
struct CompressorUsage {
    began_ns: u64,
    cpu_ns: u64,
}

impl CompressorUsage {
    fn charge(&mut self, common: &CompressorContext, io_bytes: u64) {
        let before_ns = std::mem::replace(&mut self.cpu_ns, thread_cpu_ns());
        common.charge(self.began_ns, self.cpu_ns.saturating_sub(before_ns), io_bytes);
    }
}

/// Sleeps until the budget allows more work. Returns whether to continue with the assignment.
fn pause(common: &CompressorContext, queue: &AssignmentQueue, assignment: &Assignment) -> bool {
    loop {
        queue.wake.clear();
        if assignment.is_recalled.load(Ordering::Acquire) || queue.stop.load(Ordering::Acquire) {
            return false;
        }
        let now_ns = monotonic_ns();
        let pause_ns = common.pause_ns(now_ns);
        let end_ns = now_ns.saturating_add(pause_ns);
        assignment.progress_ns.store(end_ns, Ordering::Relaxed);
        if pause_ns == 0 {
            return true;
        }
        queue.wake.wait_until(end_ns);
    }
}
