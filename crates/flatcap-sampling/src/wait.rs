//! Waiting from one tick to the next. The thread either only sleeps, or sleeps and then spins.
//! Spinning reduces the jitter of the samples.

use std::hint::spin_loop;
use std::sync::Arc;

use flatcap_os::clock::monotonic_ns;
use flatcap_os::wake_event::{WakeEvent, WakeReason};

use super::spin_margin::SpinMargin;
use super::thread_settings::Timing;

/// Waits for one deadline after another on one thread.
#[derive(Debug)]
pub(super) struct Waiter {
    timing: Timing,
    spin_margin: SpinMargin,
    wake: Arc<WakeEvent>,
}

impl Waiter {
    /// Creates a waiter with the timing `timing`. Its waits also end when `wake` is set. The thread
    /// must set its timer slack itself ([`flatcap_os::thread::wake_precisely`]).
    pub(super) fn new(timing: Timing, wake: Arc<WakeEvent>) -> Self {
        Self { timing, spin_margin: SpinMargin::default(), wake }
    }

    /// Changes the timing.
    pub(super) fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Waits until the deadline, in monotonic nanoseconds, or until the wake-up event is set.
    /// `now_ns` is a recent reading of the monotonic clock. Returns at once if the deadline has
    /// passed.
    #[inline]
    pub(super) fn until(&mut self, deadline_ns: u64, now_ns: u64) -> WakeReason {
        if deadline_ns <= now_ns {
            return if self.wake.is_set() { WakeReason::Set } else { WakeReason::Deadline };
        }
        match self.timing {
            Timing::Relaxed | Timing::Precise => self.wake.wait_until(deadline_ns),
            Timing::Spin => self.spin_until(deadline_ns),
        }
    }

    fn spin_until(&mut self, deadline_ns: u64) -> WakeReason {
        let wake_ns = deadline_ns.saturating_sub(self.spin_margin.ns());
        // The clock is read again, so that work that the thread did since its last clock read is
        // not measured as a late sleep.
        if wake_ns <= monotonic_ns() {
            self.spin_margin.record_no_sleep();
        } else if self.wake.wait_until(wake_ns) == WakeReason::Set {
            return WakeReason::Set;
        } else {
            self.spin_margin.record_sleep(monotonic_ns().saturating_sub(wake_ns));
        }
        while !self.wake.is_set() {
            if monotonic_ns() >= deadline_ns {
                return WakeReason::Deadline;
            }
            spin_loop();
        }
        WakeReason::Set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    // Proves that no wait ends before its deadline, for every timing, and that the wait for a past
    // deadline ends at once.
    #[test]
    fn no_wait_ends_early() {
        for timing in Timing::ALL {
            let mut waiter = Waiter::new(*timing, Arc::new(WakeEvent::new()));
            for ahead_ns in [1, 1_000, 50_000, MS, 3 * MS] {
                let now = monotonic_ns();
                assert_eq!(waiter.until(now + ahead_ns, now), WakeReason::Deadline);
                assert!(monotonic_ns() >= now + ahead_ns, "{timing:?}, {ahead_ns}");
                assert_eq!(waiter.until(now, now), WakeReason::Deadline);
            }
        }
    }

    // Proves that a stop ends every wait, even a spinning one. The stop may occur before the wait,
    // or come from another thread during the wait.
    #[test]
    fn a_stop_ends_the_wait() {
        for timing in Timing::ALL {
            let stop = Arc::new(WakeEvent::new());
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
            assert_eq!(woken, WakeReason::Set, "{timing:?}");
            let now = monotonic_ns();
            assert_eq!([now, now + 1].map(|deadline| waiter.until(deadline, now)), [WakeReason::Set; 2]);
            // The initial spin margin is longer than the time until this deadline, so the waiter
            // spins at once.
            waiter.spin_margin = SpinMargin::default();
            assert_eq!(waiter.until(now + 50_000, now), WakeReason::Set);
        }
    }
}
