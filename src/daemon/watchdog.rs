//! Whether the service manager's watchdog is fed: while the drain loop turns, or waits for the storage, and never by a timer alone.
//! Pure.

use std::time::Duration;

/// What was seen of the recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// Turns of its loop so far.
    pub(super) turns: u64,
    /// Since when it waits for the storage, on the monotonic clock in nanoseconds; 0 if it does not.
    pub(super) in_storage_since_ns: u64,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing yet.
    Wait,
    /// Feed: the loop has turned since the last time.
    Feed,
    /// Feed: the loop has waited for the storage for so many nanoseconds. Killing it would mend no disk and lose nothing less.
    FeedStalled(u64),
    /// Do not feed: the loop neither turns nor waits for the storage, for so many nanoseconds.
    Starve(u64),
}

/// Decides.
#[derive(Debug)]
pub(super) struct Watchdog {
    interval_ns: u64,
    next_ns: u64,
    fed: Seen,
    turned_ns: u64, // when it was last seen to turn
}

impl Watchdog {
    /// One that wants to be fed within `limit`; it is fed three times as often. It counts from `now_ns` on.
    pub(super) fn new(limit: Duration, now_ns: u64) -> Self {
        let interval_ns = u64::try_from(limit.as_nanos() / 3).unwrap_or(u64::MAX);
        Self { interval_ns, next_ns: now_ns, fed: Seen::default(), turned_ns: now_ns }
    }

    /// What is to be done with this in view.
    pub(super) fn look(&mut self, now_ns: u64, seen: Seen) -> Verdict {
        if now_ns < self.next_ns {
            return Verdict::Wait;
        }
        let verdict = if seen.turns != self.fed.turns {
            self.turned_ns = now_ns;
            Verdict::Feed
        } else if seen.in_storage_since_ns != 0 {
            Verdict::FeedStalled(now_ns.saturating_sub(seen.in_storage_since_ns))
        } else {
            // Looked at again at the next look, not only when the next feed is due: one turn, and all is well.
            return Verdict::Starve(now_ns.saturating_sub(self.turned_ns));
        };
        self.fed = seen;
        self.next_ns = now_ns.saturating_add(self.interval_ns);
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn seen(turns: u64, in_storage_since_ns: u64) -> Seen {
        Seen { turns, in_storage_since_ns }
    }

    // Goal: a loop that turns is fed, three times within the limit. Method: looks at 200 ms over a minute.
    #[test]
    fn a_loop_that_turns_is_fed() {
        let mut watchdog = Watchdog::new(Duration::from_secs(30), 0);
        let fed = (0..300).filter(|look| watchdog.look(look * S / 5, seen(1 + look, 0)) == Verdict::Feed);
        assert_eq!(fed.count(), 6);
    }

    // Goal: a loop in the storage is fed for as long as it is there, and it is known for how long. Method: a call of an hour.
    #[test]
    fn a_loop_that_waits_for_the_storage_is_fed() {
        let mut watchdog = Watchdog::new(Duration::from_secs(30), 0);
        assert_eq!(watchdog.look(S, seen(7, S)), Verdict::Feed);
        for second in (11..3600).step_by(10) {
            assert_eq!(watchdog.look(second * S, seen(7, S)), Verdict::FeedStalled((second - 1) * S));
        }
    }

    // Goal: a loop that is stuck elsewhere starves, whatever the time; one turn feeds it again at once. Method: the same count over a
    // minute, then one more.
    #[test]
    fn a_loop_that_is_stuck_starves() {
        let mut watchdog = Watchdog::new(Duration::from_secs(30), 0);
        assert_eq!(watchdog.look(S, seen(7, 0)), Verdict::Feed);
        assert_eq!(watchdog.look(2 * S, seen(7, 0)), Verdict::Wait);
        for second in 11..71 {
            assert_eq!(watchdog.look(second * S, seen(7, 0)), Verdict::Starve((second - 1) * S));
        }
        assert_eq!(watchdog.look(71 * S, seen(8, 0)), Verdict::Feed);
        assert_eq!(watchdog.look(72 * S, seen(8, 0)), Verdict::Wait);
    }

    // Goal: a loop that has never turned, and waits for nothing, is not fed even once. Method: the counts of a start.
    #[test]
    fn a_loop_that_never_began_starves() {
        let mut watchdog = Watchdog::new(Duration::from_secs(3), 5 * S);
        assert_eq!(watchdog.look(6 * S, seen(0, 0)), Verdict::Starve(S));
        assert_eq!(watchdog.look(7 * S, seen(0, 7 * S)), Verdict::FeedStalled(0));
    }
}
