//! Reads elements that can hang individually, such as mounts and sensors. An element that hangs is
//! tried again with exponential backoff.
//!
//! A helper thread reads the elements of a source in turn. If the thread makes no progress, the
//! thread and its current element are suspended, and another thread reads the other elements. After
//! the read of a suspended element has returned, a separate thread tries the element again. The
//! delay before the next attempt doubles with each failure. The source does not wait for that
//! separate thread. Therefore an element that hangs delays only one sample, and the number of
//! threads is limited.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::Thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use flatcap_os::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use flatcap_os::thread;

/// An element whose read takes longer than this is treated as hanging. A sample with one such
/// element still ends in time, unless the read uses the CPU ([`READY_TIMEOUTS`]).
const ELEMENT_TIMEOUT: Duration = Duration::from_millis(800);
/// Number of timeouts after which a read is treated as hanging even if its thread is ready to run.
/// Until then, the thread may merely be waiting for a CPU.
const READY_TIMEOUTS: u32 = 10;
/// Time after which a suspended element is tried again. The delay doubles at each failure.
const RETRY_NS: u64 = 5 * NS_PER_S;
const RETRY_NS_MAX: u64 = 600 * NS_PER_S;
/// Maximum number of threads of a source that hang at the same time. At this limit, the source
/// waits for each read until it ends.
const HANGING_MAX: usize = 16;
/// Value of `place` that causes a thread to end.
const ABANDONED: usize = usize::MAX;
/// Value of `took_ns` for a read that has not ended.
const UNFINISHED: u64 = u64::MAX;

/// An element whose read may hang.
pub(super) trait BlockingRead: Debug + Send + 'static {
    /// Reads the element. The result stays in the element.
    fn read(&mut self);
}

/// An element with its lock. Only one thread reads the element at a time. A thread that hangs keeps
/// holding the lock.
#[derive(Debug)]
pub(super) struct GuardedElement<E> {
    shared: Arc<SharedElement<E>>,
    suspension: Option<Suspension>,
}

#[derive(Debug)]
struct SharedElement<E> {
    element: Mutex<Option<E>>, // `None` after the element was removed
    took_ns: AtomicU64,        // duration of the last read
}

#[derive(Debug)]
struct Suspension {
    retry_at_ns: u64,
    retry_after_ns: u64, // the last delay, which the next retry doubles
    is_tried: bool,      // whether a thread of its own reads it or has read it
}

/// Reads the elements of a source with a helper thread.
#[derive(Debug)]
pub(super) struct GuardedReads<E> {
    source: &'static str,
    timeout: Duration,
    helper: Option<Helper<E>>,
    threads: Arc<()>,   // a clone in each thread, idle or hanging
    batch: Batch<E>,    // reused
    places: Vec<usize>, // reused; positions of the elements of the batch
    spare: Batch<E>,    // removed elements, kept for their memory
    cpu_ns: u64,
}

type Batch<E> = Vec<Arc<SharedElement<E>>>;

#[derive(Debug)]
struct Helper<E> {
    requests: Sender<(Batch<E>, Thread)>, // with the thread that waits for the result
    results: Receiver<(Batch<E>, u64)>,
    progress: Arc<HelperProgress>,
}

#[derive(Debug, Default)]
struct HelperProgress {
    place: AtomicUsize, // position of the element that the thread reads
    thread: AtomicI32,  // thread id; 0 before the thread runs
}

impl HelperProgress {
    /// Returns whether the thread is ready to run. If so, it may merely be waiting for a CPU.
    fn is_ready(&self) -> bool {
        let id = self.thread.load(Ordering::Acquire);
        id == 0 || thread::is_ready(id)
    }
}

impl<E> SharedElement<E> {
    /// Returns the element, or `None` while a thread reads it.
    fn try_lock(&self) -> Option<MutexGuard<'_, Option<E>>> {
        match self.element.try_lock() {
            Ok(element) => Some(element),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<E: BlockingRead> SharedElement<E> {
    fn read(&self) {
        let begin_ns = monotonic_ns();
        self.took_ns.store(UNFINISHED, Ordering::Relaxed);
        let mut element = self.element.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        element.iter_mut().for_each(E::read);
        drop(element);
        self.took_ns.store(monotonic_ns().saturating_sub(begin_ns), Ordering::Release);
    }
}

impl<E> GuardedElement<E> {
    pub(super) fn new(element: E) -> Self {
        let took_ns = AtomicU64::new(0);
        let element = Mutex::new(Some(element));
        Self { shared: Arc::new(SharedElement { element, took_ns }), suspension: None }
    }

    /// Calls `act` with the element after the element's last read, and returns the result of `act`.
    /// Returns `None` while the element is suspended.
    #[inline]
    pub(super) fn with<Got>(&self, act: impl FnOnce(&mut E) -> Got) -> Option<Got> {
        if self.suspension.is_some() {
            return None;
        }
        self.shared.try_lock()?.as_mut().map(act)
    }
}

impl<E: BlockingRead> GuardedReads<E> {
    /// Creates the helper of a source. Its thread is started by the first read.
    pub(super) fn new(source: &'static str) -> Self {
        Self {
            source,
            timeout: ELEMENT_TIMEOUT,
            helper: None,
            threads: Arc::new(()),
            batch: Vec::new(),
            places: Vec::new(),
            spare: Vec::new(),
            cpu_ns: 0,
        }
    }

    /// Wraps an element. If the memory of a removed element can be reused, this function does not
    /// allocate.
    pub(super) fn element(&mut self, element: E) -> GuardedElement<E> {
        let Some(shared) = self.spare.pop() else { return GuardedElement::new(element) };
        if let Some(mut place) = shared.try_lock() {
            *place = Some(element);
        }
        shared.took_ns.store(0, Ordering::Relaxed);
        GuardedElement { shared, suspension: None }
    }

    /// Removes the items for which `keeps` returns false, and closes the open files of their
    /// elements. The files of an element that hangs stay open.
    pub(super) fn retain<Item>(
        &mut self,
        items: &mut Vec<Item>,
        mut keeps: impl FnMut(&Item) -> bool,
        guarded: fn(&mut Item) -> &mut GuardedElement<E>,
    ) {
        // The batch is cleared, because it still refers to its elements after a read.
        self.batch.clear();
        items.retain_mut(|item| {
            if keeps(item) {
                return true;
            }
            let shared = &guarded(item).shared;
            if Arc::strong_count(shared) == 1
                && let Some(mut element) = shared.try_lock()
            {
                *element = None;
                self.spare.push(Arc::clone(shared));
            }
            false
        });
    }

    /// Returns the CPU time that the last read took in other threads, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Reads all elements that do not hang. `guarded` returns the element of an item, and `name`
    /// returns the item's name for log lines.
    ///
    /// # Errors
    /// Fails if the kernel refuses another thread.
    pub(super) fn read<Item>(
        &mut self,
        items: &mut [Item],
        guarded: fn(&mut Item) -> &mut GuardedElement<E>,
        name: fn(&Item) -> String,
    ) -> io::Result<()> {
        self.cpu_ns = 0;
        self.places.clear();
        for (place, item) in items.iter_mut().enumerate() {
            if self.resume(item, guarded, name) {
                self.places.push(place);
            }
        }
        let mut first = 0;
        while let Some(places) = self.places.get(first..).filter(|places| !places.is_empty()) {
            self.batch.clear();
            for place in places {
                if let Some(item) = items.get_mut(*place) {
                    self.batch.push(Arc::clone(&guarded(item).shared));
                }
            }
            let Some(stuck) = self.read_batch().inspect_err(|_| self.helper = None)? else { break };
            let place = self.places.get(first + stuck).copied().unwrap_or_default();
            first += stuck + 1;
            if let Some(item) = items.get_mut(place) {
                tracing::warn!(
                    source = self.source,
                    element = name(item),
                    "does not answer in {} ms: it is suspended, and tried again after {} s; the other \
                     elements are recorded",
                    self.timeout.as_millis(),
                    RETRY_NS / NS_PER_S
                );
                guarded(item).suspension = Some(Suspension {
                    retry_at_ns: monotonic_ns().saturating_add(RETRY_NS),
                    retry_after_ns: RETRY_NS,
                    is_tried: false,
                });
            }
        }
        Ok(())
    }

    /// Returns whether the limit allows one more hanging thread.
    fn can_hang(&self) -> bool {
        Arc::strong_count(&self.threads) <= 1 + HANGING_MAX
    }

    /// Returns whether an element is to be read. Starts another attempt for a suspended element if
    /// that attempt is due.
    fn resume<Item>(
        &self,
        item: &mut Item,
        guarded: fn(&mut Item) -> &mut GuardedElement<E>,
        name: fn(&Item) -> String,
    ) -> bool {
        let GuardedElement { shared, suspension } = guarded(item);
        let Some(state) = suspension else { return true };
        let took_ns = shared.took_ns.load(Ordering::Acquire);
        if took_ns == UNFINISHED {
            return false;
        }
        if state.is_tried && u128::from(took_ns) < self.timeout.as_nanos() {
            *suspension = None;
            tracing::info!(source = self.source, element = name(item), "answers again");
            return true;
        }
        let now_ns = monotonic_ns();
        if now_ns < state.retry_at_ns || !self.can_hang() {
            return false;
        }
        state.retry_after_ns = (2 * state.retry_after_ns).min(RETRY_NS_MAX);
        state.retry_at_ns = now_ns.saturating_add(state.retry_after_ns);
        state.is_tried = true;
        shared.took_ns.store(UNFINISHED, Ordering::Relaxed);
        let (element, counted) = (Arc::clone(shared), Arc::clone(&self.threads));
        let body = move || {
            element.read();
            drop(counted);
        };
        if thread::spawn(&format!("retry-{}", self.source), body).is_err() {
            shared.took_ns.store(u64::MAX - 1, Ordering::Relaxed);
        }
        false
    }

    /// Reads the batch. Returns the index of the element that hangs. Elements after this one are
    /// not read.
    fn read_batch(&mut self) -> io::Result<Option<usize>> {
        if self.helper.is_none() {
            self.helper = Some(Helper::start(self.source, Arc::clone(&self.threads))?);
        }
        let can_hang = self.can_hang();
        let Some(helper) = &self.helper else { return Ok(None) };
        helper.progress.place.store(0, Ordering::Release);
        if helper.requests.send((std::mem::take(&mut self.batch), std::thread::current())).is_err() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (mut last, mut ready_timeouts) = (0, 0);
        loop {
            match helper.wait(self.timeout) {
                Ok((batch, cpu_ns)) => {
                    self.batch = batch;
                    self.cpu_ns += cpu_ns;
                    return Ok(None);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let place = helper.progress.place.load(Ordering::Acquire);
            ready_timeouts = if place == last { ready_timeouts + 1 } else { 0 };
            let may_wait_for_cpu = ready_timeouts < READY_TIMEOUTS && helper.progress.is_ready();
            let is_stuck = place == last && can_hang && !may_wait_for_cpu;
            last = place;
            // The thread may have continued since the timeout.
            let order = Ordering::AcqRel;
            if is_stuck
                && helper.progress.place.compare_exchange(place, ABANDONED, order, Ordering::Acquire).is_ok()
            {
                self.helper = None;
                return Ok(Some(place));
            }
        }
    }
}

impl<E: BlockingRead> Helper<E> {
    fn start(source: &str, counted: Arc<()>) -> io::Result<Self> {
        let (requests, batches) = bounded(1);
        let (returns, results) = bounded(1);
        let progress = Arc::new(HelperProgress::default());
        let own_progress = Arc::clone(&progress);
        // The thread ends when it is abandoned, or when the sender is dropped. The thread is not
        // joined, since it may hang for ever. The thread inherits the CPUs and the priority of the
        // thread that starts it.
        thread::spawn(&format!("help-{source}"), move || {
            own_progress.thread.store(thread::current_id(), Ordering::Release);
            serve(&batches, &returns, &own_progress.place);
            drop(counted);
        })?;
        Ok(Self { requests, results, progress })
    }

    /// Waits for a result without the channel's blocking receive, because that receive allocates
    /// when it blocks for the first time.
    fn wait(&self, timeout: Duration) -> Result<(Batch<E>, u64), RecvTimeoutError> {
        let begin_ns = monotonic_ns();
        loop {
            match self.results.try_recv() {
                Ok(result) => return Ok(result),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            let remaining =
                timeout.saturating_sub(Duration::from_nanos(monotonic_ns().saturating_sub(begin_ns)));
            if remaining.is_zero() {
                return Err(RecvTimeoutError::Timeout);
            }
            // The thread may also wake up without a result.
            std::thread::park_timeout(remaining);
        }
    }
}

/// Reads batches until the helper is abandoned, or its source ends.
fn serve<E: BlockingRead>(
    batches: &Receiver<(Batch<E>, Thread)>,
    returns: &Sender<(Batch<E>, u64)>,
    place: &AtomicUsize,
) {
    for (batch, waiting) in batches {
        let cpu_begin_ns = thread_cpu_ns();
        for (at, element) in batch.iter().enumerate() {
            element.read();
            let order = Ordering::AcqRel;
            if place.compare_exchange(at, at + 1, order, Ordering::Acquire).is_err() {
                return;
            }
        }
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_begin_ns);
        if returns.send((batch, cpu_ns)).is_err() {
            return;
        }
        waiting.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;

    use super::*;

    /// A barrier that blocks the reads of an element while the barrier is closed.
    #[derive(Debug, Default)]
    struct Barrier {
        is_closed: Mutex<bool>,
        opened: Condvar,
    }

    impl Barrier {
        fn set(&self, is_closed: bool) {
            *self.is_closed.lock().unwrap() = is_closed;
            self.opened.notify_all();
        }
    }

    /// An element that counts its reads, and whose reads block while its barrier is closed.
    #[derive(Debug)]
    struct TestElement {
        reads: usize,
        barrier: Arc<Barrier>,
    }

    impl BlockingRead for TestElement {
        fn read(&mut self) {
            let is_closed = self.barrier.is_closed.lock().unwrap();
            drop(self.barrier.opened.wait_while(is_closed, |is_closed| *is_closed).unwrap());
            self.reads += 1;
        }
    }

    #[derive(Debug)]
    struct TestItem {
        element: GuardedElement<TestElement>,
        barrier: Arc<Barrier>,
    }

    fn item() -> TestItem {
        let barrier = Arc::new(Barrier::default());
        let element = TestElement { reads: 0, barrier: Arc::clone(&barrier) };
        TestItem { element: GuardedElement::new(element), barrier }
    }

    fn read(reads: &mut GuardedReads<TestElement>, items: &mut [TestItem]) -> Vec<Option<usize>> {
        reads.read(items, |item| &mut item.element, |_| "test".to_owned()).unwrap();
        items.iter().map(|item| item.element.with(|element| element.reads)).collect()
    }

    fn block_all(items: &[TestItem], is_blocked: bool) {
        for item in items {
            item.barrier.set(is_blocked);
        }
    }

    // Proves that any element that hangs is left out while all others are read at each sample. The
    // test also lets several elements hang.
    #[test]
    fn an_element_that_hangs_costs_only_itself() {
        for hanging in 0..8_usize {
            let mut items: Vec<TestItem> = (0..3).map(|_| item()).collect();
            let mut reads = GuardedReads { timeout: Duration::from_millis(20), ..GuardedReads::new("test") };
            assert_eq!(read(&mut reads, &mut items), [Some(1); 3]);
            let is_hanging = |at: usize| hanging & (1 << at) != 0;
            for (at, item) in items.iter().enumerate() {
                item.barrier.set(is_hanging(at));
            }
            for sample in 2..5 {
                let expected: Vec<_> = (0..3).map(|at| (!is_hanging(at)).then_some(sample)).collect();
                assert_eq!(read(&mut reads, &mut items), expected, "{hanging:b}");
            }
            block_all(&items, false);
        }
    }

    // Proves that an element whose read has returned is tried again when that is due, not before,
    // and is then read like the others.
    #[test]
    fn an_element_that_answers_is_read_again() {
        let mut items = vec![item(), item()];
        let mut reads = GuardedReads { timeout: Duration::from_millis(20), ..GuardedReads::new("test") };
        items[0].barrier.set(true);
        assert_eq!(read(&mut reads, &mut items), [None, Some(1)]);
        items[0].barrier.set(false);
        let is_finished = |item: &TestItem| item.element.shared.took_ns.load(Ordering::Acquire) != UNFINISHED;
        while !is_finished(&items[0]) {
            std::thread::yield_now();
        }
        assert_eq!(read(&mut reads, &mut items), [None, Some(2)], "the retry is not due");
        // A thread that was slow to start must not be treated as hanging.
        reads.timeout = Duration::from_secs(60);
        items[0].element.suspension.as_mut().unwrap().retry_at_ns = 0;
        assert_eq!(read(&mut reads, &mut items), [None, Some(3)], "nobody waits for the retry");
        while !is_finished(&items[0]) {
            std::thread::yield_now();
        }
        assert_eq!(read(&mut reads, &mut items), [Some(3), Some(4)]);
    }

    // Proves that the number of threads is limited, and that a source waits when the limit is
    // reached.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test that ends when the sleep ends")]
    fn the_number_of_threads_is_limited() {
        let mut items: Vec<TestItem> = (0..=HANGING_MAX).map(|_| item()).collect();
        let mut reads = GuardedReads { timeout: Duration::from_millis(5), ..GuardedReads::new("test") };
        block_all(&items, true);
        let last = Arc::clone(&items[HANGING_MAX].element.shared);
        let barrier = Arc::clone(&items[HANGING_MAX].barrier);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while last.took_ns.load(Ordering::Acquire) != UNFINISHED {
                    std::thread::yield_now();
                }
                // Without a limit, the element would be suspended by then.
                std::thread::sleep(Duration::from_millis(100));
                barrier.set(false);
            });
            let counts = read(&mut reads, &mut items);
            assert_eq!(counts[HANGING_MAX], Some(1));
            assert_eq!(counts.iter().flatten().count(), 1, "{counts:?}");
        });
        block_all(&items, false);
    }
}
