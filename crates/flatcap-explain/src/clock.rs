//! Pairs monotonic times with wall times, from the samples of a run.

/// Maximum number of steps of the wall clock that are kept. The earliest steps are dropped first.
const STEPS_MAX: usize = 4096;
/// Smallest change of the offset that counts as a step. A smaller change is a gradual adjustment of
/// the clock.
const STEP_MIN_NS: u64 = 100_000_000;

/// The offsets of the wall clock during a run.
#[derive(Debug, Clone, Default)]
pub(super) struct RunClock {
    /// Pairs of a monotonic time and the offset that is valid from this time on.
    offsets: Vec<(u64, i64)>,
}

impl RunClock {
    pub(super) fn add(&mut self, mono_ns: u64, wall_ns: i64) {
        let offset = wall_ns.wrapping_sub_unsigned(mono_ns);
        // Batches of several sources overlap in time, so an older sample must not restore an old
        // offset.
        let is_new =
            self.offsets.last().is_none_or(|(from_ns, known)| *known != offset && mono_ns > *from_ns);
        if is_new {
            if self.offsets.len() >= STEPS_MAX {
                self.offsets.remove(0);
            }
            self.offsets.push((mono_ns, offset));
        }
    }

    /// Converts a monotonic time to wall time. For times before the first sample, uses the offset
    /// of the first sample.
    pub(super) fn wall_ns(&self, mono_ns: u64) -> i64 {
        let after = self.offsets.partition_point(|(from_ns, _)| *from_ns <= mono_ns);
        let offset = self.offsets.get(after.saturating_sub(1)).map_or(0, |(_, offset)| *offset);
        offset.wrapping_add_unsigned(mono_ns)
    }

    /// Converts a wall time to monotonic time. If the clock showed the wall time twice, returns the
    /// later monotonic time.
    pub(super) fn mono_ns(&self, wall_ns: i64) -> Option<u64> {
        let (_, last) = self.offsets.last()?;
        let by = |offset: i64| u64::try_from(wall_ns.checked_sub(offset)?).ok();
        let within = self
            .offsets
            .iter()
            .rev()
            .find_map(|(from_ns, offset)| by(*offset).filter(|mono_ns| mono_ns >= from_ns));
        within.or_else(|| by(self.offsets.first().map_or(*last, |(_, offset)| *offset)))
    }

    /// Returns the steps of the wall clock, each with its monotonic time and its size in
    /// nanoseconds.
    pub(super) fn steps(&self) -> impl Iterator<Item = (u64, i64)> {
        let pairs = self.offsets.iter().zip(self.offsets.iter().skip(1));
        pairs
            .map(|((_, before), (from_ns, after))| (*from_ns, after.wrapping_sub(*before)))
            .filter(|(_, step)| step.unsigned_abs() >= STEP_MIN_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each time is converted with the offset that was valid at that time, and that a
    // step is found.
    #[test]
    fn each_time_has_its_offset() {
        let mut clock = RunClock::default();
        for at in 1..=10_u64 {
            let offset = if at <= 5 { 1_000_000_000_000 } else { 3_000_000_000_000 };
            let mono_ns = at * 1_000_000_000;
            clock.add(mono_ns, offset + mono_ns.cast_signed());
        }
        assert_eq!(clock.wall_ns(2_500_000_000), 1_002_500_000_000);
        assert_eq!(clock.wall_ns(500_000_000), 1_000_500_000_000);
        assert_eq!(clock.wall_ns(9_000_000_000), 3_009_000_000_000);
        assert_eq!(clock.mono_ns(3_009_000_000_000), Some(9_000_000_000));
        assert_eq!(clock.mono_ns(1_002_500_000_000), Some(2_500_000_000));
        assert_eq!(clock.steps().collect::<Vec<_>>(), [(6_000_000_000, 2_000_000_000_000)]);
    }
}
