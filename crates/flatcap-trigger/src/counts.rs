//! Counts of a rule: evaluations, firings, and the reasons for none.

/// Counts of a rule since the engine was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TriggerCounts {
    /// Evaluations of the rule's condition.
    pub evaluated: u64,
    /// Evaluations with an unknown result.
    pub unknown: u64,
    /// Episodes started.
    pub fired: u64,
    /// Firings that extended an episode.
    pub extended: u64,
    /// Firings suppressed because the last episode ended less than `hold_off` before.
    pub suppressed_hold_off: u64,
    /// Firings suppressed because the daily limit was reached.
    pub suppressed_per_day: u64,
    /// Firings suppressed because the episode would have become too long.
    pub suppressed_length: u64,
    /// Values of list elements that are unknown because the list has more elements than a
    /// transform tracks.
    pub untracked: u64,
}

impl TriggerCounts {
    /// Returns the sum of the two.
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

    /// Returns the number of suppressed firings, for any reason.
    pub fn suppressed(self) -> u64 {
        self.suppressed_hold_off + self.suppressed_per_day + self.suppressed_length
    }
}
