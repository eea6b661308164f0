//! A flag that a thread can sleep on until an absolute deadline. The stop signal and the recorder's
//! wake-up event are such flags.
//!
//! The flag is one futex word. Setting the flag costs a system call only while a thread sleeps.
//! Waiting uses the same kernel timer as `clock_nanosleep`, so wake-ups have the same latency as
//! with `clock_nanosleep`.

#[cfg(not(flatcap_model))]
use std::sync::atomic::{AtomicU32, Ordering};

use super::clock;
#[cfg(flatcap_model)]
use crate::model::{AtomicU32, Futex, Ordering};

/// A flag that threads can wait for. Threads share it by reference, because every method takes
/// `&self`.
#[derive(Debug)]
pub struct WakeEvent {
    word: AtomicU32,
    #[cfg(flatcap_model)]
    kernel: Futex,
}

impl Default for WakeEvent {
    fn default() -> Self {
        Self::new()
    }
}

/// The reason why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeReason {
    /// The deadline has passed.
    Deadline,
    /// The event is set.
    Set,
}

impl WakeEvent {
    const CLEAR: u32 = 0;
    const SET: u32 = 1;

    /// Creates a clear event.
    #[cfg(not(flatcap_model))]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(Self::CLEAR) }
    }

    /// Creates an event that is clear, with the model checker's atomics.
    #[cfg(flatcap_model)]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(Self::CLEAR), kernel: Futex::new() }
    }

    /// Sets the event and wakes all waiting threads. Does nothing if the event is already set.
    pub fn set(&self) {
        if self.word.swap(Self::SET, Ordering::AcqRel) == Self::CLEAR {
            self.wake();
        }
    }

    /// Clears the event. Use this only for an event with a single waiter, which must clear the
    /// event before it checks its condition. The check then sees everything that happened before
    /// the event was last set, and a later `set` wakes the waiter again.
    pub fn clear(&self) {
        // This is a swap, not a store, because a swap reads the value of the last `set` and so
        // synchronizes with everything before that `set`. A store could be reordered after the
        // check that follows.
        self.word.swap(Self::CLEAR, Ordering::AcqRel);
    }

    /// Returns whether the event is set.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.word.load(Ordering::Acquire) == Self::SET
    }

    /// Sleeps until the event is set or the monotonic clock reaches `deadline_ns`.
    pub fn wait_until(&self, deadline_ns: u64) -> WakeReason {
        let deadline = clock::timespec(deadline_ns);
        loop {
            if self.is_set() {
                return WakeReason::Set;
            }
            // The event was set, a signal interrupted the wait, or the wake-up was spurious. The
            // loop therefore checks the event again. So check the event again.
            if self.sleep(&deadline) == WakeReason::Deadline {
                return WakeReason::Deadline;
            }
        }
    }

    /// Sleeps until the event is set.
    pub fn wait(&self) {
        while self.wait_until(clock::monotonic_ns() + 3600 * clock::NS_PER_S) != WakeReason::Set {}
    }
}

/// Waits with the kernel's futex.
#[cfg(not(flatcap_model))]
impl WakeEvent {
    fn wake(&self) {
        use rustix::thread::futex;
        // Waking cannot fail on a valid word; without waiters it wakes 0 threads.
        let _woken = futex::wake(&self.word, futex::Flags::PRIVATE, i32::MAX.unsigned_abs());
    }

    /// Sleeps if the word is clear. Returns `Deadline` if the deadline has passed.
    fn sleep(&self, deadline: &rustix::thread::futex::Timespec) -> WakeReason {
        use rustix::thread::futex;
        // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC (futex(2)). With all bits
        // set, the wait matches every wake-up.
        let any = std::num::NonZeroU32::MAX;
        match futex::wait_bitset(&self.word, futex::Flags::PRIVATE, Self::CLEAR, Some(deadline), any) {
            Err(rustix::io::Errno::TIMEDOUT) => WakeReason::Deadline,
            _ => WakeReason::Set,
        }
    }
}

/// Waits with the model checker's futex. Deadlines never pass.
#[cfg(flatcap_model)]
impl WakeEvent {
    fn wake(&self) {
        self.kernel.wake();
    }

    fn sleep(&self, _deadline: &rustix::thread::futex::Timespec) -> WakeReason {
        self.kernel.wait(&self.word, Self::CLEAR);
        WakeReason::Set
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    // Proves that a wait does not end before its deadline.
    #[test]
    fn a_wait_ends_at_its_deadline() {
        let event = WakeEvent::new();
        let deadline = clock::monotonic_ns() + 2_000_000;
        assert_eq!(event.wait_until(deadline), WakeReason::Deadline);
        assert!(clock::monotonic_ns() >= deadline);
    }

    // Proves that setting the event wakes a waiting thread long before its deadline, and that the
    // event stays set until it is cleared.
    #[test]
    fn setting_wakes_the_sleeper() {
        let event = Arc::new(WakeEvent::new());
        let sleeper = {
            let event = Arc::clone(&event);
            std::thread::Builder::new()
                .spawn(move || event.wait_until(clock::monotonic_ns() + 60 * clock::NS_PER_S))
                .unwrap()
        };
        event.set();
        assert_eq!(sleeper.join().unwrap(), WakeReason::Set);
        assert_eq!(event.wait_until(0), WakeReason::Set);
        event.clear();
        assert_eq!(event.wait_until(0), WakeReason::Deadline);
    }
}
