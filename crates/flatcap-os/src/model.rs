//! Model checking of lock-free code with loom, in every execution order that the memory model
//! allows. Replaces the atomics, the channel and the queue in a build with `--cfg flatcap_model`
//! (scripts/models.sh).
//!
//! The memory ordering of this queue is not stronger than in crossbeam's queue. Each slot has a
//! stamp. A change of the stamp makes a value visible or frees the slot. Head and tail advance by
//! compare-exchange. An operation on a full or empty queue synchronizes with nothing.

use std::sync::Arc as Shared;

use crossbeam_channel::{TryRecvError, TrySendError};
pub use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};

/// A bounded queue like crossbeam's `ArrayQueue` and the array flavor of its channel.
#[derive(Debug)]
pub struct ArrayQueue<T> {
    slots: Vec<QueueSlot<T>>,
    head: AtomicUsize, // position of the next pop
    tail: AtomicUsize, // position of the next push
}

#[derive(Debug)]
struct QueueSlot<T> {
    // `free` of the position at which a value may be pushed, `filled` after that push
    stamp: AtomicUsize,
    // a mutex of std, which loom does not see, so it orders nothing; it is never contended
    value: std::sync::Mutex<Option<T>>,
}

impl<T> ArrayQueue<T> {
    pub fn new(capacity: usize) -> Self {
        let slot = |at| QueueSlot { stamp: AtomicUsize::new(at), value: std::sync::Mutex::new(None) };
        Self {
            slots: (0..capacity).map(slot).collect(),
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
        }
    }

    fn slot(&self, at: usize) -> &QueueSlot<T> {
        &self.slots[at % self.slots.len()]
    }

    pub fn push(&self, value: T) -> Result<(), T> {
        loop {
            // Stamps count positions twice, so that free and filled differ even with one slot.
            let tail = self.tail.load(Ordering::Relaxed);
            let slot = self.slot(tail);
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == Self::free(tail, self.slots.len()) {
                if self.tail.compare_exchange(tail, tail + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    *slot.value.try_lock().expect("the exchange has won this slot") = Some(value);
                    slot.stamp.store(Self::filled(tail, self.slots.len()), Ordering::Release);
                    return Ok(());
                }
            } else if tail - self.head.load(Ordering::Relaxed).min(tail) >= self.slots.len() {
                return Err(value);
            } else {
                loom::thread::yield_now();
            }
        }
    }

    pub fn pop(&self) -> Option<T> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            let slot = self.slot(head);
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == Self::filled(head, self.slots.len()) {
                if self.head.compare_exchange(head, head + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    let value = slot.value.try_lock().expect("the exchange has won this slot").take();
                    slot.stamp
                        .store(Self::free(head + self.slots.len(), self.slots.len()), Ordering::Release);
                    return value;
                }
            } else if self.tail.load(Ordering::Relaxed) <= head {
                return None;
            } else {
                loom::thread::yield_now();
            }
        }
    }

    /// Returns the stamp of a slot that is free for this position. Two successive positions of the
    /// same slot differ by the number of slots (one lap).
    fn free(at: usize, slots: usize) -> usize {
        at % slots + at / slots * 2 * slots
    }

    fn filled(at: usize, slots: usize) -> usize {
        Self::free(at, slots) + slots
    }

    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).saturating_sub(head)
    }
}

/// A channel over an `ArrayQueue`. The channel disconnects when its sender or its last receiver is
/// dropped.
#[derive(Debug)]
struct Ends<T> {
    queue: ArrayQueue<T>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

#[derive(Debug)]
pub struct Sender<T>(Shared<Ends<T>>);

#[derive(Debug)]
pub struct Receiver<T>(Shared<Ends<T>>);

pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let ends = Shared::new(Ends {
        queue: ArrayQueue::new(capacity),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    });
    (Sender(Shared::clone(&ends)), Receiver(ends))
}

impl<T> Sender<T> {
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        if self.0.receivers.load(Ordering::Acquire) == 0 {
            return Err(TrySendError::Disconnected(value));
        }
        self.0.queue.push(value).map_err(TrySendError::Full)
    }

    pub fn len(&self) -> usize {
        self.0.queue.len()
    }

    pub fn capacity(&self) -> Option<usize> {
        Some(self.0.queue.slots.len())
    }
}

impl<T> Receiver<T> {
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let has_ended = self.0.senders.load(Ordering::Acquire) == 0;
        let error = if has_ended { TryRecvError::Disconnected } else { TryRecvError::Empty };
        self.0.queue.pop().ok_or(error)
    }

    pub fn len(&self) -> usize {
        self.0.queue.len()
    }

    pub fn capacity(&self) -> Option<usize> {
        Some(self.0.queue.slots.len())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.receivers.fetch_add(1, Ordering::AcqRel);
        Self(Shared::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.senders.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receivers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The kernel's side of a futex: comparing the word and going to sleep are atomic with respect to a
/// wake-up. There are no timeouts, so a lost wake-up causes a sleep without end, which loom
/// reports.
#[derive(Debug)]
pub struct Futex {
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    pub fn new() -> Self {
        Self { sleepers: Mutex::new(()), woken: Condvar::new() }
    }

    pub fn wait(&self, word: &AtomicU32, expected: u32) {
        let guard = self.sleepers.lock().unwrap();
        if word.load(Ordering::SeqCst) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    pub fn wake(&self) {
        drop(self.sleepers.lock().unwrap());
        self.woken.notify_all();
    }
}

/// Checks every execution order with at most three preemptions. Bugs with two or three threads need
/// fewer preemptions, and checks with more preemptions take hours. There is no time limit, because
/// a run that ends at a time limit would look like a successful check.
pub fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}
