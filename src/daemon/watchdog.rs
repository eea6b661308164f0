//! Decides when to feed the service manager's watchdog. It is fed while the recorder's loop
//! iterates or waits for storage, and never by a timer alone. Has no side effects.

use std::time::Duration;

/// Observed activity of the recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RecorderActivity {
    /// Number of iterations of the recorder's loop so far.
    pub(super) iterations: u64,
    /// Start of the current storage call, in monotonic nanoseconds; 0 if there is no call.
    pub(super) in_storage_since_ns: u64,
}

/// The action to take now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchdogAction {
    /// Do nothing yet.
    Wait,
    /// Feed the watchdog, because the loop has iterated since the last feed.
    Feed,
    /// Feed the watchdog, although the loop has been in a storage call for this many nanoseconds.
    /// Killing the process would not repair the disk, and would not save any samples.
    FeedStalled(u64),
    /// Do not feed the watchdog, because the loop has neither iterated nor been in a storage call
    /// for this many nanoseconds.
    Withhold(u64),
}

/// The state of the watchdog.
#[derive(Debug)]
pub(super) struct Watchdog {
    interval_ns: u64,
    next_ns: u64,
    fed: RecorderActivity,
    iterated_ns: u64, // when the loop was last seen to iterate
}

impl Watchdog {
    /// Creates a watchdog that must be fed within `limit`, counted from `now_ns`. It is fed three
    /// times as often as necessary.
    pub(super) fn new(limit: Duration, now_ns: u64) -> Self {
        let interval_ns = u64::try_from(limit.as_nanos() / 3).unwrap_or(u64::MAX);
        Self { interval_ns, next_ns: now_ns, fed: RecorderActivity::default(), iterated_ns: now_ns }
    }

    /// Returns the action for the observed activity.
    pub(super) fn check(&mut self, now_ns: u64, activity: RecorderActivity) -> WatchdogAction {
        if now_ns < self.next_ns {
            return WatchdogAction::Wait;
        }
        let action = if activity.iterations != self.fed.iterations {
            self.iterated_ns = now_ns;
            WatchdogAction::Feed
        } else if activity.in_storage_since_ns != 0 {
            WatchdogAction::FeedStalled(now_ns.saturating_sub(activity.in_storage_since_ns))
        } else {
            // This is checked again at the next call, and not only when the next feed is due,
            // because a single iteration suffices to feed.
            return WatchdogAction::Withhold(now_ns.saturating_sub(self.iterated_ns));
        };
        self.fed = activity;
        self.next_ns = now_ns.saturating_add(self.interval_ns);
        action
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn seen(turns: u64, in_storage_since_ns: u64) -> RecorderActivity {
        RecorderActivity { iterations: turns, in_storage_since_ns }
    }

    // Proves that the watchdog is fed three times within the limit if the loop iterates.
    #[test]
    fn a_loop_that_turns_is_fed() {
        let mut watchdog = Watchdog::new(Duration::from_secs(30), 0);
        let fed =
            (0..300).filter(|look| watchdog.check(look * S / 5, seen(1 + look, 0)) == WatchdogAction::Feed);
        assert_eq!(fed.count(), 6);
    }

    // Proves that the watchdog is fed for the whole duration of a storage call, and that the
    // duration of the call is known.
    #[test]
    fn a_loop_that_waits_for_the_storage_is_fed() {
        let mut watchdog = Watchdog::new(Duration::from_secs(30), 0);
        assert_eq!(watchdog.check(S, seen(7, S)), WatchdogAction::Feed);
        for second in (11..3600).step_by(10) {
            assert_eq!(watchdog.check(second * S, seen(7, S)), WatchdogAction::FeedStalled((second - 1) * S));
        }
    }

    // Proves that the watchdog is not fed while the loop is stuck outside of storage calls, and
    // that one iteration makes it fed again immediately.
    #[test]
    fn a_stuck_loop_is_not_fed() {
        let mut watchdog = Watchdog::new(Duration::from_secs(30), 0);
        assert_eq!(watchdog.check(S, seen(7, 0)), WatchdogAction::Feed);
        assert_eq!(watchdog.check(2 * S, seen(7, 0)), WatchdogAction::Wait);
        for second in 11..71 {
            assert_eq!(watchdog.check(second * S, seen(7, 0)), WatchdogAction::Withhold((second - 1) * S));
        }
        assert_eq!(watchdog.check(71 * S, seen(8, 0)), WatchdogAction::Feed);
        assert_eq!(watchdog.check(72 * S, seen(8, 0)), WatchdogAction::Wait);
    }

    // Proves that the watchdog is never fed for a loop that has not iterated yet and is in no
    // storage call.
    #[test]
    fn a_loop_that_never_began_is_not_fed() {
        let mut watchdog = Watchdog::new(Duration::from_secs(3), 5 * S);
        assert_eq!(watchdog.check(6 * S, seen(0, 0)), WatchdogAction::Withhold(S));
        assert_eq!(watchdog.check(7 * S, seen(0, 7 * S)), WatchdogAction::FeedStalled(0));
    }
}
