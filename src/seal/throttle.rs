//! A token bucket for CPU time and one for I/O, shared by all threads that compress. No clock, no lock.
//!
//! A thread at idle priority may be kept from running at any point, so what it shares with others must not be a lock. Each bucket is one number: the time
//! at which all that was spent is paid for (the generic cell rate algorithm). Nothing is saved up while less is spent.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::clock::NS_PER_S;

/// What a second may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Hundredths of a percent of one core, at least 1.
    pub cpu_basis_points: u32,
    /// Bytes read and written a second, at least 1.
    pub io_bytes: u64,
}

/// What some work has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// CPU time, in nanoseconds.
    pub(super) cpu_ns: u64,
    /// Bytes read and written.
    pub(super) io_bytes: u64,
}

/// Says how long to sleep to stay within a [`Budget`].
#[derive(Debug, Default)]
pub(super) struct Throttle {
    cpu_paid_ns: AtomicU64, // on the caller's clock
    io_paid_ns: AtomicU64,
}

impl Throttle {
    /// Charges work that began at `began_ns`: the time that the work itself took counts toward paying for it.
    pub(super) fn charge(&self, budget: Budget, began_ns: u64, cost: Cost) {
        let for_cpu = u128::from(cost.cpu_ns) * 10_000 / u128::from(budget.cpu_basis_points.max(1));
        let for_io = u128::from(cost.io_bytes) * u128::from(NS_PER_S) / u128::from(budget.io_bytes.max(1));
        for (paid_ns, needed_ns) in [(&self.cpu_paid_ns, for_cpu), (&self.io_paid_ns, for_io)] {
            let needed_ns = u64::try_from(needed_ns).unwrap_or(u64::MAX);
            let after = |paid_ns: u64| Some(paid_ns.max(began_ns).saturating_add(needed_ns));
            let _before = paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        }
    }

    /// Returns how long to sleep before more may be spent, in nanoseconds.
    pub(super) fn pause_ns(&self, now_ns: u64) -> u64 {
        let paid_ns = self.cpu_paid_ns.load(Ordering::Relaxed).max(self.io_paid_ns.load(Ordering::Relaxed));
        paid_ns.saturating_sub(now_ns)
    }

    /// Forgets what was charged: the budget is another one from now on, and what it would have cost by that one is not known.
    pub(super) fn forgive(&self) {
        self.cpu_paid_ns.store(0, Ordering::Relaxed);
        self.io_paid_ns.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    // Goal: work costs the pause that pays for it, by the stricter of the two budgets; idling saves nothing up; two threads share one budget; and a debt
    // can be forgiven. Method: by hand.
    #[test]
    fn work_is_paid_for() {
        let budget = Budget { cpu_basis_points: 200, io_bytes: 1000 };
        let throttle = Throttle::default();
        let work = |began_ns, cpu_ns, io_bytes| throttle.charge(budget, began_ns, Cost { cpu_ns, io_bytes });
        work(0, MS, 0);
        assert_eq!(throttle.pause_ns(MS), 49 * MS, "1 ms of 50");
        assert_eq!(throttle.pause_ns(50 * MS), 0);
        work(50 * MS, 0, 100);
        assert_eq!(throttle.pause_ns(51 * MS), 99 * MS, "100 bytes: a tenth of a second");
        work(10_000 * MS, MS, 0);
        assert_eq!(throttle.pause_ns(10_001 * MS), 49 * MS, "as before");
        work(10_000 * MS, MS, 0);
        assert_eq!(throttle.pause_ns(10_001 * MS), 99 * MS, "another thread at the same time");
        throttle.forgive();
        assert_eq!(throttle.pause_ns(10_001 * MS), 0);
    }

    proptest! {
        // Goal: over any time, work that pauses as it should stays within both budgets. Method: random work, pauses that end late.
        #[test]
        fn budgets_are_kept(
            slices in proptest::collection::vec((0_u64..20 * MS, 0_u64..100_000, 0_u64..5 * MS), 1..100),
            cpu_basis_points in 1_u32..=10_000,
            io_bytes in 1000_u64..1_000_000,
        ) {
            let budget = Budget { cpu_basis_points, io_bytes };
            let (mut now, mut cpu, mut bytes) = (0_u64, 0_u64, 0_u64);
            let throttle = Throttle::default();
            for (cpu_ns, io, late) in slices {
                let began = now;
                now += cpu_ns;
                cpu += cpu_ns;
                bytes += io;
                throttle.charge(budget, began, Cost { cpu_ns, io_bytes: io });
                let pause = throttle.pause_ns(now);
                now += pause + if pause > 0 { late } else { 0 };
                // Each charge rounds down by less than a nanosecond.
                let passed = u128::from(now) + 100;
                prop_assert!(u128::from(cpu) * 10_000 <= passed * u128::from(cpu_basis_points));
                prop_assert!(u128::from(bytes) * u128::from(NS_PER_S) <= passed * u128::from(io_bytes));
            }
        }
    }
}
