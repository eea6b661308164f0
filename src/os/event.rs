//! A flag that a thread can sleep on until an absolute deadline: the stop signal, the recorder's wake-up.
//!
//! One futex word. Setting it costs a system call only while somebody sleeps; waiting uses the same timer of the
//! kernel as `clock_nanosleep`, so the lateness of a deadline is the same.

#[cfg(not(all(test, flatcap_model)))]
use std::sync::atomic::{AtomicU32, Ordering};

use super::clock;
#[cfg(all(test, flatcap_model))]
use crate::model::{AtomicU32, Futex, Ordering};

/// A flag with sleepers. Shared by reference; every method takes `&self`.
#[derive(Debug)]
pub struct Event {
    word: AtomicU32,
    #[cfg(all(test, flatcap_model))]
    kernel: Futex,
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
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

    /// A clear event.
    #[cfg(not(all(test, flatcap_model)))]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(Self::CLEAR) }
    }

    /// The same on the atomics of the model checker.
    #[cfg(all(test, flatcap_model))]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(Self::CLEAR), kernel: Futex::new() }
    }

    /// Sets the event and wakes all sleepers. Setting it again does nothing.
    pub fn set(&self) {
        if self.word.swap(Self::SET, Ordering::AcqRel) == Self::CLEAR {
            self.wake();
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
            // Set meanwhile, interrupted by a signal, or woken without reason: looks again.
            if self.sleep(&deadline) == Woken::Deadline {
                return Woken::Deadline;
            }
        }
    }

    /// Sleeps until the event is set.
    pub fn wait(&self) {
        while self.wait_until(clock::monotonic_ns() + 3600 * clock::NS_PER_S) != Woken::Set {}
    }
}

/// What the kernel does.
#[cfg(not(all(test, flatcap_model)))]
impl Event {
    fn wake(&self) {
        use rustix::thread::futex;
        // Waking cannot fail on a word that is ours; with nobody asleep it wakes 0.
        let _woken = futex::wake(&self.word, futex::Flags::PRIVATE, i32::MAX.unsigned_abs());
    }

    /// Sleeps if the word is clear, and says whether the deadline has passed.
    fn sleep(&self, deadline: &rustix::thread::futex::Timespec) -> Woken {
        use rustix::thread::futex;
        // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC (futex(2)). Woken whatever bits are waked.
        let any = std::num::NonZeroU32::MAX;
        match futex::wait_bitset(&self.word, futex::Flags::PRIVATE, Self::CLEAR, Some(deadline), any) {
            Err(rustix::io::Errno::TIMEDOUT) => Woken::Deadline,
            _ => Woken::Set,
        }
    }
}

/// The model's kernel. Deadlines never pass there.
#[cfg(all(test, flatcap_model))]
impl Event {
    fn wake(&self) {
        self.kernel.wake();
    }

    fn sleep(&self, _deadline: &rustix::thread::futex::Timespec) -> Woken {
        self.kernel.wait(&self.word, Self::CLEAR);
        Woken::Set
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
