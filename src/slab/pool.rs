//! The slabs there are, and the queue they are handed over through.

use crossbeam_channel::{Receiver, Sender, bounded};
use crossbeam_queue::ArrayQueue;

use super::slab::Slab;

/// Free slabs of two classes: the standard size, and one for frames that fit no standard slab. All are made at the
/// start; lock-free.
#[derive(Debug)]
pub struct SlabPool {
    standard: ArrayQueue<Box<Slab>>,
    large: ArrayQueue<Box<Slab>>,
    standard_bytes: usize,
}

impl SlabPool {
    /// A pool of `count` slabs of `bytes`, and `large_count` of `large_bytes`.
    pub fn new(count: usize, bytes: usize, large_count: usize, large_bytes: usize) -> Self {
        let class = |count: usize, bytes: usize| {
            let queue = ArrayQueue::new(count.max(1));
            for _ in 0..count {
                // Cannot be full: it was made for as many.
                drop(queue.push(Box::new(Slab::new(bytes))));
            }
            queue
        };
        Self { standard: class(count, bytes), large: class(large_count, large_bytes), standard_bytes: bytes }
    }

    /// A free slab with room for a frame of `bytes`; none if all of that class are in use, or none is that large.
    #[inline]
    pub(super) fn take(&self, bytes: usize) -> Option<Box<Slab>> {
        let class = if bytes <= self.standard_bytes { &self.standard } else { &self.large };
        class.pop()
    }

    /// Takes a slab back and clears it.
    pub fn give_back(&self, mut slab: Box<Slab>) {
        slab.clear();
        let class = if slab.capacity() <= self.standard_bytes { &self.standard } else { &self.large };
        // Cannot be full: every slab came from here.
        drop(class.push(slab));
    }

    /// Free standard slabs at this moment.
    pub fn free(&self) -> usize {
        self.standard.len()
    }
}

/// The queue of filled slabs: bounded, first in first out, and disconnected once every sender is dropped.
pub fn slab_queue(capacity: usize) -> (Sender<Box<Slab>>, Receiver<Box<Slab>>) {
    bounded(capacity)
}
