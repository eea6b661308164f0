//! The pool of free slabs. The pool exists so that no buffer is allocated after the start.

use crossbeam_queue::ArrayQueue;

use super::arena::Arena;
use super::slab::Slab;

/// Number of standard slabs that circulate while the recorder keeps up. At the default slab size,
/// these slabs take 512 KiB in total and stay in the cache of a processor.
const WARM_SLABS: usize = 8;

/// A pool of free slabs of two classes, standard and large. Large slabs are for frames that do not
/// fit a standard slab. All slabs are created at the start. The pool is lock-free.
#[derive(Debug)]
pub struct SlabPool {
    warm: ArrayQueue<Box<Slab>>, // circulating standard slabs: taken first
    standard: ArrayQueue<Box<Slab>>,
    large: ArrayQueue<Box<Slab>>,
    standard_bytes: usize,
}

impl SlabPool {
    /// Creates a pool that contains all slabs of an arena.
    pub fn new(arena: Arena) -> Self {
        let class = |slabs: Vec<Slab>| {
            let queue = ArrayQueue::new(slabs.len().max(1));
            for slab in slabs {
                // The queue cannot be full, because it was created for this number of slabs.
                drop(queue.push(Box::new(slab)));
            }
            queue
        };
        let standard_bytes = arena.geometry.slab_bytes;
        let warm = ArrayQueue::new(WARM_SLABS);
        Self { warm, standard: class(arena.slabs), large: class(arena.large_slabs), standard_bytes }
    }

    /// Takes an empty slab with space for a frame of `bytes` bytes. Returns `None` if all slabs of
    /// the class are in use, or if no slab is large enough.
    #[inline]
    pub(super) fn take(&self, bytes: usize) -> Option<Box<Slab>> {
        let mut slab = if bytes > self.standard_bytes {
            self.large.pop()
        } else {
            // The first queue is tried again, because a slab may have been returned between the two
            // attempts.
            self.warm.pop().or_else(|| self.standard.pop()).or_else(|| self.warm.pop())
        }?;
        slab.clear();
        Some(slab)
    }

    /// Returns a slab to the pool. This function releases the slab. The slab is cleared only when
    /// it is taken again. If it were cleared here, its memory would move into the cache of the
    /// recorder's core, and a sampler would later wait for that memory.
    pub fn give_back(&self, mut slab: Box<Slab>) {
        slab.release();
        let slab = if self.is_large(&slab) {
            self.large.push(slab)
        } else {
            self.warm.push(slab).or_else(|slab| self.standard.push(slab))
        };
        // The queue cannot be full, because every slab came from this pool.
        drop(slab);
    }

    /// Returns whether a slab is a large slab.
    pub(super) fn is_large(&self, slab: &Slab) -> bool {
        slab.capacity() > self.standard_bytes
    }

    /// Returns the current number of free standard slabs.
    pub fn free(&self) -> usize {
        self.warm.len() + self.standard.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Geometry;

    // Proves that the most recently used slabs circulate, and that all other slabs remain
    // available.
    #[test]
    fn slabs_used_last_go_round() {
        let geometry =
            Geometry { sources: 1, slabs: 20, slab_bytes: 4096, large_slabs: 1, large_slab_bytes: 8192 };
        let pool = SlabPool::new(Arena::anonymous(geometry).unwrap());
        let address = |slab: &Slab| std::ptr::from_ref(slab).addr();
        let first = pool.take(100).unwrap();
        let warm = address(&first);
        pool.give_back(first);
        for _ in 0..100 {
            let slab = pool.take(100).unwrap();
            assert_eq!(address(&slab), warm);
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
