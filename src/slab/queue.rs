//! One queue a group: bounded, lock-free, first in first out, and what becomes of a slab that finds it full.
//!
//! Three protocols stand on the channel. A group that gives up its own oldest slab marks the queue before it takes it and
//! until the loss is written down; the recorder passes over a marked queue, so that it never sees a slab behind a loss that
//! it cannot explain. A group that waits clears an event, looks for room, and sleeps on the event; the recorder makes
//! room and sets the event. The end is ownership: a queue ends when its sender is dropped and everything is taken.

use std::sync::Arc;
#[cfg(not(all(test, flatcap_model)))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(all(test, flatcap_model)))]
use crossbeam_channel::{Receiver, Sender, bounded};
pub use crossbeam_channel::{TryRecvError, TrySendError};

use super::slab::Slab;
#[cfg(all(test, flatcap_model))]
use crate::model::{AtomicU64, Ordering, Receiver, Sender, bounded};
use crate::os::event::Event;

/// What becomes of a slab that finds its queue full. Whatever it is, it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// It is given up.
    DropNewest,
    /// The oldest slab of the same queue is given up for it.
    DropOldest,
    /// Its group waits until there is room.
    Block,
}

/// What both ends of a queue look at.
#[derive(Debug, Default)]
struct Shared {
    room: Event,            // set unless the group waits for room
    withdrawals: AtomicU64, // begun and ended: odd while one is not written down yet
    is_over: AtomicU64,     // 1 once the recorder has ended
}

/// The group's end.
#[derive(Debug)]
pub struct QueueSender<T> {
    slabs: Sender<T>,
    oldest: Receiver<T>, // to take from, if the oldest is given up
    on_full: OnFull,
    shared: Arc<Shared>,
}

/// The recorder's end.
#[derive(Debug)]
pub struct QueueReceiver<T> {
    slabs: Receiver<T>,
    head: Option<T>, // taken to be looked at: the oldest
    shared: Arc<Shared>,
}

/// A queue for `capacity` slabs. It ends once the sender is dropped and all is taken.
pub fn slab_queue<T>(capacity: usize, on_full: OnFull) -> (QueueSender<T>, QueueReceiver<T>) {
    let (sender, receiver) = bounded(capacity);
    let shared = Arc::new(Shared::default());
    shared.room.set();
    (
        QueueSender { slabs: sender, oldest: receiver.clone(), on_full, shared: Arc::clone(&shared) },
        QueueReceiver { slabs: receiver, head: None, shared },
    )
}

impl<T> QueueSender<T> {
    /// What becomes of a slab that finds the queue full.
    pub fn on_full(&self) -> OnFull {
        self.on_full
    }

    /// From now on this becomes of it.
    pub fn set_on_full(&mut self, on_full: OnFull) {
        self.on_full = on_full;
    }

    /// Slabs that wait, without the one that the recorder looks at.
    pub fn len(&self) -> usize {
        self.slabs.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most slabs that can wait.
    pub fn capacity(&self) -> usize {
        self.slabs.capacity().unwrap_or(usize::MAX)
    }

    /// Hands one over.
    ///
    /// # Errors
    /// It comes back: the queue is full, or the recorder has ended.
    pub fn try_send(&self, slab: T) -> Result<(), TrySendError<T>> {
        // The channel does not tell: this end keeps it open, too.
        if self.shared.is_over.load(Ordering::Acquire) == 1 {
            return Err(TrySendError::Disconnected(slab));
        }
        self.slabs.try_send(slab)
    }

    /// Takes the oldest slab back, if the recorder has not been quicker. Once this returns, or before the recorder takes one
    /// behind it, `write_down` has seen it.
    pub(super) fn withdraw_oldest(&self, write_down: impl FnOnce(&T)) -> Option<T> {
        let withdrawals = self.shared.withdrawals.load(Ordering::Relaxed);
        // Whoever takes the slab behind ours reads what taking ours has written, and so this mark as well.
        self.shared.withdrawals.store(withdrawals.wrapping_add(1), Ordering::Relaxed);
        let slab = self.oldest.try_recv().ok();
        if let Some(slab) = &slab {
            write_down(slab);
        }
        self.shared.withdrawals.store(withdrawals.wrapping_add(2), Ordering::Release);
        slab
    }

    /// Attempts again whenever the recorder has made room. Before each wait `until` says until when it looks again at the
    /// latest; none gives up.
    ///
    /// # Errors
    /// `until` has given up: what was to be done, undone.
    pub(super) fn wait_for_room<V, R>(
        &self,
        value: V,
        mut attempt: impl FnMut(V) -> Result<R, V>,
        mut until: impl FnMut() -> Option<u64>,
    ) -> Result<R, V> {
        let mut value = value;
        let outcome = loop {
            // Before it is looked for room: who makes some after this look sets it again.
            self.shared.room.clear();
            value = match attempt(value) {
                Ok(done) => break Ok(done),
                Err(back) => back,
            };
            let Some(deadline_ns) = until() else { break Err(value) };
            self.shared.room.wait_until(deadline_ns);
        };
        // Whoever sets an event that is set pays no system call: nobody waits any more.
        self.shared.room.set();
        outcome
    }
}

impl<T> QueueReceiver<T> {
    /// The oldest slab, which stays.
    ///
    /// # Errors
    /// `Empty` if there is none now, or none that may be taken yet. `Disconnected` if there will never be one again.
    pub fn look(&mut self) -> Result<&T, TryRecvError> {
        if self.head.is_none() {
            self.head = Some(self.slabs.try_recv()?);
            self.tell_room();
        }
        // Behind a slab that the group has just withdrawn: not before that is written down.
        if self.shared.withdrawals.load(Ordering::Acquire) % 2 == 1 {
            return Err(TryRecvError::Empty);
        }
        self.head.as_ref().ok_or(TryRecvError::Empty)
    }

    /// Takes the oldest slab.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.look()?;
        self.head.take().ok_or(TryRecvError::Empty)
    }

    /// Most slabs that can wait, without the one that is looked at.
    pub fn capacity(&self) -> usize {
        self.slabs.capacity().unwrap_or(usize::MAX)
    }

    /// Slabs that wait.
    pub fn len(&self) -> usize {
        self.slabs.len() + usize::from(self.head.is_some())
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells a group that waits that there may be room. Costs no system call where none does.
    pub fn tell_room(&self) {
        self.shared.room.set();
    }
}

impl<T> Drop for QueueReceiver<T> {
    fn drop(&mut self) {
        self.shared.is_over.store(1, Ordering::Release);
        // A group that waits looks again, and sees it.
        self.shared.room.set();
    }
}

/// The queues of all groups, as the recorder takes from them: what was handed over first comes first, whoever it is from.
/// So a busy group holds up another one's slab by what it handed over before that, and by nothing else.
#[derive(Debug)]
pub struct Inbox {
    queues: Vec<QueueReceiver<Box<Slab>>>,
}

impl Inbox {
    /// The queues of a run, one a group.
    pub fn new(queues: Vec<QueueReceiver<Box<Slab>>>) -> Self {
        Self { queues }
    }

    /// Takes the slab that was handed over first.
    ///
    /// # Errors
    /// `Empty` if there is none now, `Disconnected` if there will never be one again: all groups have ended.
    pub fn try_recv(&mut self) -> Result<Box<Slab>, TryRecvError> {
        let mut oldest: Option<(u64, &mut QueueReceiver<Box<Slab>>)> = None;
        let mut outcome = TryRecvError::Disconnected;
        for queue in &mut self.queues {
            match queue.look() {
                Ok(slab) => {
                    let handed_over_ns = slab.handed_over_ns;
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

    /// Slabs that wait in all queues.
    pub fn len(&self) -> usize {
        self.queues.iter().map(QueueReceiver::len).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells the groups that wait that there may be room: slabs went back to the pool.
    pub fn tell_room(&self) {
        self.queues.iter().for_each(QueueReceiver::tell_room);
    }
}
