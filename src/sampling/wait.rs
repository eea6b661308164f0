//! How a sampler thread gets from one tick to the next: asleep, or asleep and then spinning.

use std::hint::spin_loop;
use std::sync::Arc;

use super::lead::Lead;
use crate::config::Timing;
use crate::os::clock::monotonic_ns;
use crate::os::event::{Event, Woken};

/// Waits for deadlines, one after the other, on one thread.
#[derive(Debug)]
pub(super) struct Waiter {
    timing: Timing,
    lead: Lead,
    bell: Arc<Event>,
}

impl Waiter {
    /// Waits as `timing` says, and no longer than until `bell` is set. The timer slack is the thread's own matter
    /// ([`crate::os::thread::wake_precisely`]).
    pub(super) fn new(timing: Timing, bell: Arc<Event>) -> Self {
        Self { timing, lead: Lead::default(), bell }
    }

    /// Waits as `timing` says from now on.
    pub(super) fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Waits until the deadline, in monotonic nanoseconds, or until the bell rings; `now_ns` is a time that has just been. A deadline
    /// that has passed is not waited for.
    #[inline]
    pub(super) fn until(&mut self, deadline_ns: u64, now_ns: u64) -> Woken {
        if deadline_ns <= now_ns {
            return if self.bell.is_set() { Woken::Set } else { Woken::Deadline };
        }
        match self.timing {
            Timing::Relaxed | Timing::Precise => self.bell.wait_until(deadline_ns),
            Timing::Spin => self.spin_until(deadline_ns),
        }
    }

    fn spin_until(&mut self, deadline_ns: u64) -> Woken {
        let wake_ns = deadline_ns.saturating_sub(self.lead.ns());
        // By a clock read of its own: what the thread has done since its last one is no late sleep.
        if wake_ns <= monotonic_ns() {
            self.lead.not_slept();
        } else if self.bell.wait_until(wake_ns) == Woken::Set {
            return Woken::Set;
        } else {
            self.lead.slept(monotonic_ns().saturating_sub(wake_ns));
        }
        while !self.bell.is_set() {
            if monotonic_ns() >= deadline_ns {
                return Woken::Deadline;
            }
            spin_loop();
        }
        Woken::Set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    // Goal: no wait ends before its deadline, however the thread waits; one that has passed is not waited for. Method: the real
    // clock; deadlines within the lead and beyond it.
    #[test]
    fn no_wait_ends_early() {
        for timing in Timing::ALL {
            let mut waiter = Waiter::new(*timing, Arc::new(Event::new()));
            for ahead_ns in [1, 1_000, 50_000, MS, 3 * MS] {
                let now = monotonic_ns();
                assert_eq!(waiter.until(now + ahead_ns, now), Woken::Deadline);
                assert!(monotonic_ns() >= now + ahead_ns, "{timing:?}, {ahead_ns}");
                assert_eq!(waiter.until(now, now), Woken::Deadline);
            }
        }
    }

    // Goal: a stop ends every wait, also one that spins. Method: a stop before the wait; one from another thread while the
    // deadline is an hour away, and while it is so near that nothing but spinning is left.
    #[test]
    fn a_stop_ends_the_wait() {
        for timing in Timing::ALL {
            let stop = Arc::new(Event::new());
            let mut waiter = Waiter::new(*timing, Arc::clone(&stop));
            let now = monotonic_ns();
            let sleeper = std::thread::Builder::new()
                .spawn(move || {
                    let woken = waiter.until(now + 3_600_000 * MS, now);
                    (woken, waiter)
                })
                .unwrap();
            stop.set();
            let (woken, mut waiter) = sleeper.join().unwrap();
            assert_eq!(woken, Woken::Set, "{timing:?}");
            let now = monotonic_ns();
            assert_eq!([now, now + 1].map(|deadline| waiter.until(deadline, now)), [Woken::Set; 2]);
            // The lead that a new waiter begins with is longer: it spins at once.
            waiter.lead = Lead::default();
            assert_eq!(waiter.until(now + 50_000, now), Woken::Set);
        }
    }
}
