//! A flag that a thread can sleep on until an absolute deadline: the stop signal, the recorder's wake-up.
//!
//! One futex word. Setting it costs a system call only while somebody sleeps; waiting uses the same timer of the
//! kernel as `clock_nanosleep`, so the lateness of a deadline is the same.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;

use super::clock;

/// A flag with sleepers. Shared by reference; every method takes `&self`.
#[derive(Debug, Default)]
pub struct Event {
    word: AtomicU32,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The deadline has passed.
    Deadline,
    /// The event is set.
    Set,
}

impl Event {
    const CLEAR: u32 = 0;
    const SET: u32 = 1;
    /// Wakes whoever waits, whatever bits it waits for.
    const ANY: NonZeroU32 = NonZeroU32::MAX;

    /// A clear event.
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(Self::CLEAR) }
    }

    /// Sets the event and wakes all sleepers. Setting it again does nothing.
    pub fn set(&self) {
        if self.word.swap(Self::SET, Ordering::AcqRel) == Self::CLEAR {
            // Waking cannot fail on a word that is ours; with nobody asleep it wakes 0.
            let _woken = futex::wake(&self.word, futex::Flags::PRIVATE, i32::MAX.unsigned_abs());
        }
    }

    /// Clears the event. Only for an event with a single waiter, which clears it before it looks for what it waits for: what
    /// was done before the event was last set is seen by that look, and whoever sets it later wakes the waiter.
    pub fn clear(&self) {
        // An exchange, not a store: it reads what the last `set` has written, and so everything before that; a store might
        // overtake the look behind it.
        self.word.swap(Self::CLEAR, Ordering::AcqRel);
    }

    /// Whether it is set.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.word.load(Ordering::Acquire) == Self::SET
    }

    /// Sleeps until the event is set or the monotonic clock reaches `deadline_ns`.
    pub fn wait_until(&self, deadline_ns: u64) -> Woken {
        let deadline = clock::timespec(deadline_ns);
        loop {
            if self.is_set() {
                return Woken::Set;
            }
            // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC (futex(2)).
            // Set meanwhile, interrupted by a signal, or woken without reason: looks again.
            let flags = futex::Flags::PRIVATE;
            if futex::wait_bitset(&self.word, flags, Self::CLEAR, Some(&deadline), Self::ANY)
                == Err(Errno::TIMEDOUT)
            {
                return Woken::Deadline;
            }
        }
    }

    /// Sleeps until the event is set.
    pub fn wait(&self) {
        while self.wait_until(clock::monotonic_ns() + 3600 * clock::NS_PER_S) != Woken::Set {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    // Goal: a wait never ends before its deadline. Method: real clock, 2 ms.
    #[test]
    fn a_wait_ends_at_its_deadline() {
        let event = Event::new();
        let deadline = clock::monotonic_ns() + 2_000_000;
        assert_eq!(event.wait_until(deadline), Woken::Deadline);
        assert!(clock::monotonic_ns() >= deadline);
    }

    // Goal: setting wakes a sleeper long before its deadline, and stays visible. Method: two threads.
    #[test]
    fn setting_wakes_the_sleeper() {
        let event = Arc::new(Event::new());
        let sleeper = {
            let event = Arc::clone(&event);
            std::thread::Builder::new()
                .spawn(move || event.wait_until(clock::monotonic_ns() + 60 * clock::NS_PER_S))
                .unwrap()
        };
        event.set();
        assert_eq!(sleeper.join().unwrap(), Woken::Set);
        assert_eq!(event.wait_until(0), Woken::Set);
        event.clear();
        assert_eq!(event.wait_until(0), Woken::Deadline);
    }
}
