//! Queues of slabs between the groups and the recorder, one queue per group. A queue has one
//! producer and one consumer (SPSC), and is bounded, lock-free, and first in, first out. The queue
//! has backpressure. If the queue is full, its policy decides whether the group drops its newest
//! slab, drops its oldest slab, or waits.
//!
//! Three protocols build on the channel.
//!
//! - Eviction: a group that drops its own oldest slab marks the queue before it takes the slab. The
//!   mark remains until the group has recorded the loss. The recorder skips a marked queue. So the
//!   recorder never takes a slab that follows a loss before the ledger contains this loss.
//! - Blocking: a group that waits clears an event, checks for space, and sleeps on the event. The
//!   recorder makes space and sets the event.
//! - End: a queue ends when its sender is dropped and all slabs are taken.

use std::sync::Arc;
#[cfg(not(flatcap_model))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(flatcap_model))]
use crossbeam_channel::{Receiver, Sender, bounded};
pub use crossbeam_channel::{TryRecvError, TrySendError};

use super::slab::Slab;
#[cfg(flatcap_model)]
use flatcap_os::model::{AtomicU64, Ordering, Receiver, Sender, bounded};
use flatcap_os::wake_event::WakeEvent;

/// The policy for a full queue. Every dropped slab is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// The group drops the slab that does not fit into the queue.
    DropNewest,
    /// The group drops the oldest slab in its queue.
    DropOldest,
    /// The group waits until the queue has space.
    Block,
}

/// The state that both ends of a queue share.
#[derive(Debug, Default)]
struct QueueState {
    not_full: WakeEvent,       // cleared only while the group waits for space
    evictions: AtomicU64,      // begun + ended, so odd while a loss is not yet recorded
    recorder_ended: AtomicU64, // 1 once the recorder has ended
}

/// The group's end of a queue.
#[derive(Debug)]
pub struct QueueSender<T> {
    slabs: Sender<T>,
    oldest: Receiver<T>, // for evictions
    on_full: OnFull,
    shared: Arc<QueueState>,
}

/// The recorder's end of a queue.
#[derive(Debug)]
pub struct QueueReceiver<T> {
    slabs: Receiver<T>,
    head: Option<T>, // the oldest slab, while peeked at
    shared: Arc<QueueState>,
}

/// Creates a queue for `capacity` slabs. The queue ends when the sender is dropped and all slabs
/// are taken.
pub fn slab_queue<T>(capacity: usize, on_full: OnFull) -> (QueueSender<T>, QueueReceiver<T>) {
    let (sender, receiver) = bounded(capacity);
    let shared = Arc::new(QueueState::default());
    shared.not_full.set();
    (
        QueueSender { slabs: sender, oldest: receiver.clone(), on_full, shared: Arc::clone(&shared) },
        QueueReceiver { slabs: receiver, head: None, shared },
    )
}

impl<T> QueueSender<T> {
    /// Returns the policy for a full queue.
    pub fn on_full(&self) -> OnFull {
        self.on_full
    }

    /// Sets the policy for a full queue.
    pub fn set_on_full(&mut self, on_full: OnFull) {
        self.on_full = on_full;
    }

    /// Returns the number of queued slabs, excluding the slab that the recorder has peeked at.
    #[allow(clippy::len_without_is_empty, reason = "nothing asks whether it is empty")]
    pub fn len(&self) -> usize {
        self.slabs.len()
    }

    /// Returns the maximum number of queued slabs.
    pub fn capacity(&self) -> usize {
        self.slabs.capacity().unwrap_or(usize::MAX)
    }

    /// Queues a slab.
    ///
    /// # Errors
    /// The error contains the slab if the queue is full or the recorder has ended.
    pub fn try_send(&self, slab: T) -> Result<(), TrySendError<T>> {
        // The channel cannot report the end of the recorder, because this sender also holds a
        // receiver of the channel.
        if self.shared.recorder_ended.load(Ordering::Acquire) == 1 {
            return Err(TrySendError::Disconnected(slab));
        }
        self.slabs.try_send(slab)
    }

    /// Takes the oldest slab back, unless the recorder took it first. `record_loss` is called
    /// before this function returns, and before the recorder can take a slab that was queued later.
    pub(super) fn evict_oldest(&self, record_loss: impl FnOnce(&T)) -> Option<T> {
        let evictions = self.shared.evictions.load(Ordering::Relaxed);
        // A thread that takes the next slab synchronizes with this take, so the thread also sees
        // this mark.
        self.shared.evictions.store(evictions.wrapping_add(1), Ordering::Relaxed);
        let slab = self.oldest.try_recv().ok();
        if let Some(slab) = &slab {
            record_loss(slab);
        }
        self.shared.evictions.store(evictions.wrapping_add(2), Ordering::Release);
        slab
    }

    /// Retries `attempt` whenever the recorder has made space. Before each wait, `until` returns
    /// the latest time of the next attempt, or `None` to give up.
    ///
    /// # Errors
    /// Returns the value of the failed attempt if `until` returned `None`.
    pub(super) fn wait_for_space<V, R>(
        &self,
        value: V,
        mut attempt: impl FnMut(V) -> Result<R, V>,
        mut until: impl FnMut() -> Option<u64>,
    ) -> Result<R, V> {
        let mut value = value;
        let outcome = loop {
            // The event is cleared before the attempt, because space that is made after the attempt
            // sets the event again.
            self.shared.not_full.clear();
            value = match attempt(value) {
                Ok(done) => break Ok(done),
                Err(back) => back,
            };
            let Some(deadline_ns) = until() else { break Err(value) };
            self.shared.not_full.wait_until(deadline_ns);
        };
        // The group no longer waits, so the event stays set. Setting an event that is already set
        // makes no system call.
        self.shared.not_full.set();
        outcome
    }
}

impl<T> QueueReceiver<T> {
    /// Returns the oldest slab without taking it.
    ///
    /// # Errors
    /// `Empty` if no slab is queued, or if the oldest slab must not be taken yet. `Disconnected` if
    /// there will never be a slab again.
    pub fn peek(&mut self) -> Result<&T, TryRecvError> {
        if self.head.is_none() {
            self.head = Some(self.slabs.try_recv()?);
            self.notify_not_full();
        }
        // This slab may follow an evicted slab, so it is not taken before the loss of the evicted
        // slab is recorded.
        if self.shared.evictions.load(Ordering::Acquire) % 2 == 1 {
            return Err(TryRecvError::Empty);
        }
        self.head.as_ref().ok_or(TryRecvError::Empty)
    }

    /// Takes the oldest slab.
    ///
    /// # Errors
    /// Returns the same errors as [`peek`](Self::peek).
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.peek()?;
        self.head.take().ok_or(TryRecvError::Empty)
    }

    /// Returns the maximum number of queued slabs, excluding the peeked slab.
    pub fn capacity(&self) -> usize {
        self.slabs.capacity().unwrap_or(usize::MAX)
    }

    /// Returns the number of queued slabs.
    #[allow(clippy::len_without_is_empty, reason = "nothing asks whether it is empty")]
    pub fn len(&self) -> usize {
        self.slabs.len() + usize::from(self.head.is_some())
    }

    /// Notifies a waiting group that there may be space. Makes no system call if no group waits.
    pub fn notify_not_full(&self) {
        self.shared.not_full.set();
    }
}

impl<T> Drop for QueueReceiver<T> {
    fn drop(&mut self) {
        self.shared.recorder_ended.store(1, Ordering::Release);
        // A waiting group then tries again and detects the end of the recorder.
        self.shared.not_full.set();
    }
}

/// A collection of the queues of all groups. The recorder takes the slabs of all groups in the
/// order in which they were queued. So a busy group delays another group's slab only by the slabs
/// that were queued earlier.
#[derive(Debug)]
pub struct Inbox {
    queues: Vec<QueueReceiver<Box<Slab>>>,
}

impl Inbox {
    /// Creates an inbox from the queues of a run, one per group.
    pub fn new(queues: Vec<QueueReceiver<Box<Slab>>>) -> Self {
        Self { queues }
    }

    /// Takes the slab that was queued first.
    ///
    /// # Errors
    /// `Empty` if no slab can be taken now. `Disconnected` if no slab will ever follow, because all
    /// groups have ended.
    pub fn try_recv(&mut self) -> Result<Box<Slab>, TryRecvError> {
        let mut oldest: Option<(u64, &mut QueueReceiver<Box<Slab>>)> = None;
        let mut outcome = TryRecvError::Disconnected;
        for queue in &mut self.queues {
            match queue.peek() {
                Ok(slab) => {
                    let handed_over_ns = slab.queued_ns;
                    if oldest.as_ref().is_none_or(|(first_ns, _)| handed_over_ns < *first_ns) {
                        oldest = Some((handed_over_ns, queue));
                    }
                }
                Err(TryRecvError::Empty) => outcome = TryRecvError::Empty,
                Err(TryRecvError::Disconnected) => {}
            }
        }
        oldest.map_or(Err(outcome), |(_, queue)| queue.try_recv())
    }

    /// Returns the number of slabs in all queues.
    pub fn len(&self) -> usize {
        self.queues.iter().map(QueueReceiver::len).sum()
    }

    /// Returns whether all queues are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notifies waiting groups that there may be space, because slabs were returned to the pool.
    pub fn notify_not_full(&self) {
        self.queues.iter().for_each(QueueReceiver::notify_not_full);
    }
}
