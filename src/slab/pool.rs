//! The slabs there are.

use crossbeam_queue::ArrayQueue;

use super::arena::Arena;
use super::slab::Slab;

/// Free slabs of two classes: the standard size, and one for frames that fit no standard slab. All are there from the
/// start; lock-free.
#[derive(Debug)]
pub struct SlabPool {
    standard: ArrayQueue<Box<Slab>>,
    large: ArrayQueue<Box<Slab>>,
    standard_bytes: usize,
}

impl SlabPool {
    /// The slabs of an arena.
    pub fn new(arena: Arena) -> Self {
        let class = |slabs: Vec<Slab>| {
            let queue = ArrayQueue::new(slabs.len().max(1));
            for slab in slabs {
                // Cannot be full: it was made for as many.
                drop(queue.push(Box::new(slab)));
            }
            queue
        };
        let standard_bytes = arena.geometry.slab_bytes;
        Self { standard: class(arena.slabs), large: class(arena.large_slabs), standard_bytes }
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
        let class = if self.is_large(&slab) { &self.large } else { &self.standard };
        // Cannot be full: every slab came from here.
        drop(class.push(slab));
    }

    /// Whether a slab is one of the large ones.
    pub(super) fn is_large(&self, slab: &Slab) -> bool {
        slab.capacity() > self.standard_bytes
    }

    /// Free standard slabs at this moment.
    pub fn free(&self) -> usize {
        self.standard.len()
    }
}
