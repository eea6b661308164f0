//! The age of the oldest segment of the ring.

use std::collections::VecDeque;

/// The start times of the ring's segments by the monotonic clock. The name of a segment has the
/// wall time of its creation. After the wall clock was set, this time says nothing about the
/// segment's age.
#[derive(Debug, Default)]
pub(super) struct RingAge {
    /// For each segment, the wall time in its name and the monotonic time of its start, in seconds.
    /// The oldest comes first.
    begun: VecDeque<(u64, u64)>,
}

/// The times of both clocks, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockSeconds {
    pub(super) mono: u64,
    pub(super) wall: u64,
}

impl RingAge {
    /// Returns the age of the oldest segment in seconds; 0 if there is no segment. The segments are
    /// identified by the wall times in their names; 0 means no segment. This function must be
    /// called at least once while each segment is open.
    pub(super) fn update(&mut self, oldest_s: u64, open_s: u64, now: ClockSeconds) -> u64 {
        if open_s != 0 && self.begun.back().is_none_or(|(name, _)| *name != open_s) {
            self.begun.push_back((open_s, now.mono));
        }
        let oldest_s = if oldest_s == 0 { open_s } else { oldest_s };
        if oldest_s == 0 {
            return 0;
        }
        let Some(at) = self.begun.iter().position(|(name, _)| *name == oldest_s) else {
            // The segment belongs to an earlier run, so its monotonic start time is not known.
            return now.wall.saturating_sub(oldest_s);
        };
        self.begun.drain(..at);
        self.begun.front().map_or(0, |(_, mono)| now.mono.saturating_sub(*mono))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the age of a segment does not change when the wall clock is set, in either
    // direction. Also proves that a segment of an earlier run has the age that follows from its
    // name.
    #[test]
    fn the_age_follows_no_wall_clock() {
        let mut age = RingAge::default();
        let now = |mono: u64, wall: u64| ClockSeconds { mono, wall };
        assert_eq!(age.update(0, 0, now(10, 1000)), 0);
        assert_eq!(age.update(0, 1000, now(10, 1000)), 0);
        assert_eq!(age.update(0, 1000, now(14, 4604)), 4);
        assert_eq!(age.update(1000, 4605, now(15, 4605)), 5);
        assert_eq!(age.update(1000, 4605, now(17, 300)), 7);
        assert_eq!(age.update(4605, 302, now(19, 302)), 4);
        assert_eq!(age.update(302, 310, now(27, 310)), 8);
        assert!(age.begun.len() <= 2, "{age:?}");
        assert_eq!(age.update(200, 310, now(28, 311)), 111);
    }
}
