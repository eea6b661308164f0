//! A number that one thread writes and every thread may read.

#[cfg(not(flatcap_model))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(flatcap_model)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// A number with a single writer. An addition is therefore a load and a store, not an atomic
/// read-modify-write.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Must only be called by the counter's single writer.
    #[inline]
    pub fn add(&self, count: u64) {
        self.set(self.get().wrapping_add(count));
    }

    /// Sets the value. Must only be called by the counter's single writer.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the latest value that is visible to this thread.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
