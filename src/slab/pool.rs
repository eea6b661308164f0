//! The slabs there are.

use crossbeam_queue::ArrayQueue;

use super::arena::Arena;
use super::slab::Slab;

/// Standard slabs that go round while the recorder keeps up: half a megabyte of the usual size, which stays in a processor's cache.
const WARM_SLABS: usize = 8;

/// Free slabs of two classes: the standard size, and one for frames that fit no standard slab. All are there from the
/// start; lock-free.
#[derive(Debug)]
pub struct SlabPool {
    warm: ArrayQueue<Box<Slab>>, // standard ones that go round: taken first
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
        let warm = ArrayQueue::new(WARM_SLABS);
        Self { warm, standard: class(arena.slabs), large: class(arena.large_slabs), standard_bytes }
    }

    /// An empty slab with room for a frame of `bytes`; none if all of that class are in use, or none is that large.
    #[inline]
    pub(super) fn take(&self, bytes: usize) -> Option<Box<Slab>> {
        let mut slab = if bytes > self.standard_bytes {
            self.large.pop()
        } else {
            // Once more, for one that came back between the two looks.
            self.warm.pop().or_else(|| self.standard.pop()).or_else(|| self.warm.pop())
        }?;
        slab.clear();
        Some(slab)
    }

    /// Takes a slab back. What it holds is released here and cleared by whoever takes it next: what the recorder writes to would
    /// have to come from its processor's cache, and a sampler would wait for that.
    pub fn give_back(&self, mut slab: Box<Slab>) {
        slab.release();
        let slab = if self.is_large(&slab) {
            self.large.push(slab)
        } else {
            self.warm.push(slab).or_else(|slab| self.standard.push(slab))
        };
        // Cannot be full: every slab came from here.
        drop(slab);
    }

    /// Whether a slab is one of the large ones.
    pub(super) fn is_large(&self, slab: &Slab) -> bool {
        slab.capacity() > self.standard_bytes
    }

    /// Free standard slabs at this moment.
    pub fn free(&self) -> usize {
        self.warm.len() + self.standard.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::arena::Geometry;

    // Goal: slabs that were used last go round, all others are still there. Method: a slab taken and given back many times; then all
    // taken, and all given back.
    #[test]
    fn slabs_used_last_go_round() {
        let geometry =
            Geometry { sources: 1, slabs: 20, slab_bytes: 4096, large_slabs: 1, large_slab_bytes: 8192 };
        let pool = SlabPool::new(Arena::anonymous(geometry).unwrap());
        let place = |slab: &Slab| std::ptr::from_ref(slab).addr();
        let first = pool.take(100).unwrap();
        let warm = place(&first);
        pool.give_back(first);
        for _ in 0..100 {
            let slab = pool.take(100).unwrap();
            assert_eq!(place(&slab), warm);
            pool.give_back(slab);
        }
        for _ in 0..2 {
            let all: Vec<_> = std::iter::from_fn(|| pool.take(100)).collect();
            assert_eq!((all.len(), pool.free()), (20, 0));
            let large = pool.take(5000).unwrap();
            assert!(pool.is_large(&large), "another class");
            pool.give_back(large);
            for slab in all {
                pool.give_back(slab);
            }
            assert_eq!(pool.free(), 20);
        }
    }
}
