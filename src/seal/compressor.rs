//! A thread that compresses one segment after the other, each when the worker hands it one.
//!
//! What the two share is read and written without a lock: a thread at idle priority may be kept from running for minutes at any point, also where it
//! holds one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;

use super::outcome::{Outcome, SealError};
use super::packing::{Job, Placing, Slice, pack};
use super::throttle::{Budget, Cost, Throttle};
use super::ways::NamedWays;
use crate::metrics::{Counter, SealerMetrics};
use crate::os::clock::{monotonic_ns, thread_cpu_ns};
use crate::os::event::Event;
use crate::os::storage::Storage;
use crate::os::thread;
use crate::segment::SegmentName;

/// What kind of thread a compressor is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// The thread's name.
    pub(super) name: &'static str,
    /// Gives the calling thread its priority.
    pub(super) settle: fn() -> io::Result<()>,
    /// Where its CPU time is counted.
    pub(super) cpu_ns: fn(&SealerMetrics) -> &Counter,
}

/// Takes what nobody else wants (`SCHED_IDLE`): it holds nobody up, and on a busy host it gets next to nothing.
pub(super) const SPARE: Kind =
    Kind { name: "compress-idle", settle: thread::run_last, cpu_ns: |metrics| &metrics.spare_cpu_ns };

/// Has its part like any other thread, within the budget: it gets on beside anything.
pub(super) const GUARANTEED: Kind =
    Kind { name: "compress", settle: thread::run_in_batches, cpu_ns: |metrics| &metrics.guaranteed_cpu_ns };

/// What all compressors of a run share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) metrics: Arc<SealerMetrics>,
    pub(super) throttle: Throttle,
    cpu_basis_points: AtomicU32, // of the budget in force
    io_bytes: AtomicU64,
    bell: Arc<Event>, // the worker's: rung when a segment is done
}

impl Common {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        metrics: Arc<SealerMetrics>,
        budget: Budget,
        bell: Arc<Event>,
    ) -> Self {
        Self {
            storage,
            metrics,
            throttle: Throttle::default(),
            cpu_basis_points: AtomicU32::new(budget.cpu_basis_points),
            io_bytes: AtomicU64::new(budget.io_bytes),
            bell,
        }
    }

    /// Returns the budget in force. A thread that meets a change may see one number of each: it is asked again after the next slice.
    pub(super) fn budget(&self) -> Budget {
        Budget {
            cpu_basis_points: self.cpu_basis_points.load(Ordering::Relaxed),
            io_bytes: self.io_bytes.load(Ordering::Relaxed),
        }
    }

    /// Another budget is in force from now on. Compressors that sleep have to be woken.
    pub(super) fn set_budget(&self, budget: Budget) {
        self.cpu_basis_points.store(budget.cpu_basis_points, Ordering::Relaxed);
        self.io_bytes.store(budget.io_bytes, Ordering::Relaxed);
        self.throttle.forgive();
    }
}

/// One segment to be compressed, and what has become of it.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) name: SegmentName,
    pub(super) ways: NamedWays,
    pub(super) block_bytes: usize,
    pub(super) keep_free: u64,
    is_recalled: AtomicBool,
    progress_ns: AtomicU64, // when the last slice ended, or when the pause after it does
    result: OnceLock<Result<Outcome, SealError>>,
}

impl Assignment {
    pub(super) fn new(name: SegmentName, ways: NamedWays, block_bytes: usize, keep_free: u64) -> Self {
        Self {
            name,
            ways,
            block_bytes,
            keep_free,
            is_recalled: AtomicBool::new(false),
            progress_ns: AtomicU64::new(monotonic_ns()),
            result: OnceLock::new(),
        }
    }

    /// Returns what has become of the segment; none where the thread panicked over it.
    pub(super) fn result(&self) -> Option<&Result<Outcome, SealError>> {
        self.result.get()
    }
}

/// A compressor, as the worker has it. Its thread is started with the first segment.
#[derive(Debug)]
pub(super) struct Compressor {
    kind: Kind,
    common: Arc<Common>,
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
    current: Option<Arc<Assignment>>,
}

#[derive(Debug)]
struct Mailbox {
    next: ArrayQueue<Arc<Assignment>>, // pushed only when the one before is done: neither side ever meets the other in here
    bell: Event,                       // rung for a segment, a recall, another budget, the end
    stop: AtomicBool,
}

impl Compressor {
    pub(super) fn new(kind: Kind, common: Arc<Common>) -> Self {
        let mailbox = Mailbox { next: ArrayQueue::new(1), bell: Event::new(), stop: AtomicBool::new(false) };
        Self { kind, common, mailbox: Arc::new(mailbox), thread: None, current: None }
    }

    /// The segment that it has.
    pub(super) fn current(&self) -> Option<&SegmentName> {
        self.current.as_ref().map(|current| &current.name)
    }

    /// Hands it a segment; it must have none.
    ///
    /// # Errors
    /// Its thread cannot be started.
    pub(super) fn assign(&mut self, assignment: Assignment) -> io::Result<()> {
        if self.thread.is_none() {
            let (kind, common, mailbox) = (self.kind, Arc::clone(&self.common), Arc::clone(&self.mailbox));
            self.thread = Some(thread::spawn(kind.name, move || work(kind, &common, &mailbox))?);
        }
        let assignment = Arc::new(assignment);
        let _was_empty = self.mailbox.next.push(Arc::clone(&assignment));
        self.current = Some(assignment);
        self.mailbox.bell.set();
        Ok(())
    }

    /// Takes its segment back once it is done with it, or has panicked over it.
    pub(super) fn take_done(&mut self) -> Option<Arc<Assignment>> {
        let has_ended = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        if has_ended {
            self.thread = None; // the next segment starts another one
        }
        self.current.take_if(|current| current.result.get().is_some() || has_ended)
    }

    /// Asks for its segment back: it comes as [`Outcome::Stopped`] after the slice under way.
    pub(super) fn recall(&self) {
        if let Some(current) = &self.current {
            current.is_recalled.store(true, Ordering::Release);
            self.wake();
        }
    }

    /// When it last got on with its segment, or when its pause ends; none if it has none.
    pub(super) fn progress_ns(&self) -> Option<u64> {
        self.current.as_ref().map(|current| current.progress_ns.load(Ordering::Relaxed))
    }

    /// Ends a pause: there is something to heed.
    pub(super) fn wake(&self) {
        self.mailbox.bell.set();
    }

    /// Tells the thread to end. What it is at work on is dropped.
    pub(super) fn stop(&self) {
        self.mailbox.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Waits for the end of the thread.
    pub(super) fn join(self) {
        if let Some(thread) = self.thread {
            // A panic in there was reported by the panic hook; the segments stay as they are.
            let _panicked = thread.join();
        }
    }
}

/// The thread: it takes segments until the end.
fn work(kind: Kind, common: &Common, mailbox: &Mailbox) {
    let cpu_ns = (kind.cpu_ns)(&common.metrics);
    if let Err(error) = (kind.settle)() {
        tracing::warn!(
            %error,
            "compression does not run at the priority it should: the kernel refuses it; its budgets hold all the same"
        );
    }
    let mut spent = Spent { began_ns: monotonic_ns(), cpu_ns: thread_cpu_ns() };
    loop {
        mailbox.bell.clear();
        if mailbox.stop.load(Ordering::Acquire) {
            return;
        }
        let Some(assignment) = mailbox.next.pop() else {
            mailbox.bell.wait();
            continue;
        };
        spent.began_ns = monotonic_ns();
        let mut after = |slice: Slice| {
            spent.charge(common, slice.io_bytes);
            cpu_ns.set(spent.cpu_ns);
            let may_go_on = pause(common, mailbox, &assignment);
            spent.began_ns = monotonic_ns();
            may_go_on
        };
        // Before it begins, for what others have spent; and at the end, for what it took to look at a segment that is left as it is.
        let nothing = Slice { raw_bytes: 0, io_bytes: 0 };
        let result =
            if after(nothing) { compress(common, &assignment, &mut after) } else { Ok(Outcome::Stopped) };
        spent.charge(common, 0);
        cpu_ns.set(spent.cpu_ns);
        let _first = assignment.result.set(result);
        common.bell.set();
    }
}

fn compress(
    common: &Common,
    assignment: &Assignment,
    after: &mut dyn FnMut(Slice) -> bool,
) -> Result<Outcome, SealError> {
    let mut job = Job {
        storage: &*common.storage,
        ways: &assignment.ways,
        block_bytes: assignment.block_bytes,
        keep_free: assignment.keep_free,
        placing: Placing::Exchange,
        pace: after,
    };
    pack(&mut job, assignment.name)
}

/// What a thread had spent when it was last charged.
struct Spent {
    began_ns: u64,
    cpu_ns: u64,
}

impl Spent {
    fn charge(&mut self, common: &Common, io_bytes: u64) {
        let before_ns = std::mem::replace(&mut self.cpu_ns, thread_cpu_ns());
        let cost = Cost { cpu_ns: self.cpu_ns.saturating_sub(before_ns), io_bytes };
        common.throttle.charge(common.budget(), self.began_ns, cost);
    }
}

/// Sleeps until the budget allows more. Returns whether to go on.
fn pause(common: &Common, mailbox: &Mailbox, assignment: &Assignment) -> bool {
    loop {
        mailbox.bell.clear();
        if assignment.is_recalled.load(Ordering::Acquire) || mailbox.stop.load(Ordering::Acquire) {
            return false;
        }
        let now_ns = monotonic_ns();
        let pause_ns = common.throttle.pause_ns(now_ns);
        let end_ns = now_ns.saturating_add(pause_ns);
        assignment.progress_ns.store(end_ns, Ordering::Relaxed);
        if pause_ns == 0 {
            return true;
        }
        mailbox.bell.wait_until(end_ns);
    }
}
