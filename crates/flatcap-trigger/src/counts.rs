//! Counts of a rule. The counts are the evaluations, the firings, and the suppressed firings by
//! reason.

/// Counts of a rule. The counts start at 0 when the engine is created. If the engine takes over the
/// state of an earlier engine, the counts continue from the earlier counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TriggerCounts {
    /// Number of evaluations of the rule's condition.
    pub evaluated: u64,
    /// Number of evaluations with an unknown result.
    pub unknown: u64,
    /// Number of episodes that started.
    pub fired: u64,
    /// Number of firings that extended an episode.
    pub extended: u64,
    /// Number of firings that were suppressed because the time since the end of the last episode
    /// was shorter than `hold_off`.
    pub suppressed_hold_off: u64,
    /// Number of firings that were suppressed because the daily limit was reached.
    pub suppressed_per_day: u64,
    /// Number of firings that were suppressed because the episode would have become too long.
    pub suppressed_length: u64,
    /// Number of values of list elements that are unknown because the list has more elements than a
    /// transform tracks.
    pub untracked: u64,
}

impl TriggerCounts {
    /// Returns the sum of these counts and other counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            evaluated: self.evaluated + other.evaluated,
            unknown: self.unknown + other.unknown,
            fired: self.fired + other.fired,
            extended: self.extended + other.extended,
            suppressed_hold_off: self.suppressed_hold_off + other.suppressed_hold_off,
            suppressed_per_day: self.suppressed_per_day + other.suppressed_per_day,
            suppressed_length: self.suppressed_length + other.suppressed_length,
            untracked: self.untracked + other.untracked,
        }
    }

    /// Returns the number of suppressed firings, whatever the reason was.
    pub fn suppressed(self) -> u64 {
        self.suppressed_hold_off + self.suppressed_per_day + self.suppressed_length
    }
}
