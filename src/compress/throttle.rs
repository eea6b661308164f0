//! A throttle of two token buckets, CPU time and I/O, shared by all compression threads. Uses no
//! clock and no lock.
//!
//! Not a lock, because a thread at idle priority may stop running at any point, even while it holds
//! one. Each bucket is one number, the time at which all work so far is paid for (the generic cell
//! rate algorithm). Unused budget does not accumulate.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::os::clock::NS_PER_S;

/// The budget per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressionBudget {
    /// CPU time, in hundredths of a percent of one core. At least 1.
    pub cpu_basis_points: u32,
    /// Bytes read and written per second. At least 1.
    pub io_bytes: u64,
}

/// The cost of some work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkCost {
    /// CPU time, in nanoseconds.
    pub(super) cpu_ns: u64,
    /// Bytes read and written.
    pub(super) io_bytes: u64,
}

/// Computes how long to sleep to stay within a [`CompressionBudget`].
#[derive(Debug, Default)]
pub(super) struct Throttle {
    cpu_paid_ns: AtomicU64, // on the caller's clock
    io_paid_ns: AtomicU64,
}

impl Throttle {
    /// Charges work that began at `began_ns`. The duration of the work counts toward paying for it.
    pub(super) fn charge(&self, budget: CompressionBudget, began_ns: u64, cost: WorkCost) {
        let for_cpu = u128::from(cost.cpu_ns) * 10_000 / u128::from(budget.cpu_basis_points.max(1));
        let for_io = u128::from(cost.io_bytes) * u128::from(NS_PER_S) / u128::from(budget.io_bytes.max(1));
        for (paid_ns, needed_ns) in [(&self.cpu_paid_ns, for_cpu), (&self.io_paid_ns, for_io)] {
            let needed_ns = u64::try_from(needed_ns).unwrap_or(u64::MAX);
            let after = |paid_ns: u64| Some(paid_ns.max(began_ns).saturating_add(needed_ns));
            let _before = paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        }
    }

    /// Returns how long to sleep before the next work, in nanoseconds.
    pub(super) fn pause_ns(&self, now_ns: u64) -> u64 {
        let paid_ns = self.cpu_paid_ns.load(Ordering::Relaxed).max(self.io_paid_ns.load(Ordering::Relaxed));
        paid_ns.saturating_sub(now_ns)
    }

    /// Forgets all charges: after a change of the budget their price is unknown.
    pub(super) fn forget_charges(&self) {
        self.cpu_paid_ns.store(0, Ordering::Relaxed);
        self.io_paid_ns.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    // Proves that work costs a pause by the stricter bucket, that unused budget does not
    // accumulate, that threads share the budget, and that charges can be forgotten.
    #[test]
    fn work_is_paid_for() {
        let budget = CompressionBudget { cpu_basis_points: 200, io_bytes: 1000 };
        let throttle = Throttle::default();
        let work =
            |began_ns, cpu_ns, io_bytes| throttle.charge(budget, began_ns, WorkCost { cpu_ns, io_bytes });
        work(0, MS, 0);
        assert_eq!(throttle.pause_ns(MS), 49 * MS, "1 ms of 50");
        assert_eq!(throttle.pause_ns(50 * MS), 0);
        work(50 * MS, 0, 100);
        assert_eq!(throttle.pause_ns(51 * MS), 99 * MS, "100 bytes: a tenth of a second");
        work(10_000 * MS, MS, 0);
        assert_eq!(throttle.pause_ns(10_001 * MS), 49 * MS, "as before");
        work(10_000 * MS, MS, 0);
        assert_eq!(throttle.pause_ns(10_001 * MS), 99 * MS, "another thread at the same time");
        throttle.forget_charges();
        assert_eq!(throttle.pause_ns(10_001 * MS), 0);
    }

    proptest! {
        // Proves that work with the computed pauses stays within both budgets, for random work and
        // pauses that end late.
        #[test]
        fn budgets_are_kept(
            slices in proptest::collection::vec((0_u64..20 * MS, 0_u64..100_000, 0_u64..5 * MS), 1..100),
            cpu_basis_points in 1_u32..=10_000,
            io_bytes in 1000_u64..1_000_000,
        ) {
            let budget = CompressionBudget { cpu_basis_points, io_bytes };
            let (mut now, mut cpu, mut bytes) = (0_u64, 0_u64, 0_u64);
            let throttle = Throttle::default();
            for (cpu_ns, io, late) in slices {
                let began = now;
                now += cpu_ns;
                cpu += cpu_ns;
                bytes += io;
                throttle.charge(budget, began, WorkCost { cpu_ns, io_bytes: io });
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
