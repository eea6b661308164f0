//! How long must who has a budget pause? Decided on times and bytes that were measured. No clock.

use crate::os::clock::NS_PER_S;

/// What a second may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Hundredths of a percent of one core, at least 1.
    pub cpu_basis_points: u32,
    /// Bytes read and written a second, at least 1.
    pub io_bytes: u64,
}

/// What was spent since the budget was last kept.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    since_ns: u64,
    cpu_ns: u64, // the thread's by then
    io_bytes: u64,
}

impl Pace {
    /// Nothing spent, at this time of the monotonic clock and of the thread's processor time.
    pub fn new(now_ns: u64, cpu_ns: u64) -> Self {
        Self { since_ns: now_ns, cpu_ns, io_bytes: 0 }
    }

    /// After so many more bytes: for how long to pause so that what was spent is within the budget, in nanoseconds. Time in which less was
    /// spent is not saved up.
    pub fn pause_ns(&mut self, budget: Budget, now_ns: u64, cpu_ns: u64, io_bytes: u64) -> u64 {
        self.io_bytes = self.io_bytes.saturating_add(io_bytes);
        let spent_ns = u128::from(cpu_ns.saturating_sub(self.cpu_ns));
        let of_cpu = spent_ns * 10_000 / u128::from(budget.cpu_basis_points.max(1));
        let of_io = u128::from(self.io_bytes) * u128::from(NS_PER_S) / u128::from(budget.io_bytes.max(1));
        let needed_ns = u64::try_from(of_cpu.max(of_io)).unwrap_or(u64::MAX);
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        if needed_ns <= passed_ns {
            *self = Self::new(now_ns, cpu_ns);
        }
        needed_ns.saturating_sub(passed_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    // Goal: a slice costs the pause that makes it right, by whichever of the two budgets is the stricter, and idling buys nothing. Method: by
    // hand.
    #[test]
    fn slices_are_paid_for() {
        let budget = Budget { cpu_basis_points: 200, io_bytes: 1000 };
        let mut pace = Pace::new(0, 0);
        assert_eq!(pace.pause_ns(budget, MS, MS, 0), 49 * MS, "1 ms of 50");
        assert_eq!(pace.pause_ns(budget, 50 * MS, MS, 0), 0);
        assert_eq!(pace.pause_ns(budget, 51 * MS, MS, 100), 99 * MS, "100 bytes: a tenth of a second");
        assert_eq!(pace.pause_ns(budget, 10_000 * MS, MS, 0), 0);
        assert_eq!(pace.pause_ns(budget, 10_001 * MS, 2 * MS, 0), 49 * MS, "as before");
    }

    proptest! {
        // Goal: over any time, whoever pauses as told stays within both budgets. Method: random slices, pauses that end late.
        #[test]
        fn budgets_are_kept(
            slices in proptest::collection::vec((0_u64..20 * MS, 0_u64..100_000, 0_u64..5 * MS), 1..100),
            cpu_basis_points in 1_u32..=10_000,
            io_bytes in 1000_u64..1_000_000,
        ) {
            let budget = Budget { cpu_basis_points, io_bytes };
            let (mut now, mut cpu, mut bytes) = (0, 0, 0);
            let mut pace = Pace::new(0, 0);
            for (spent, io, late) in slices {
                now += spent;
                cpu += spent;
                bytes += io;
                let pause = pace.pause_ns(budget, now, cpu, io);
                now += pause + if pause > 0 { late } else { 0 };
                prop_assert!(u128::from(cpu) * 10_000 <= (u128::from(now) + 1) * u128::from(cpu_basis_points));
                prop_assert!(u128::from(bytes) * u128::from(NS_PER_S) <= (u128::from(now) + 1) * u128::from(io_bytes));
            }
        }
    }
}
