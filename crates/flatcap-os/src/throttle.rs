//! A throttle (rate limit), which keeps work within a budget per second. It uses the generic cell
//! rate algorithm, a token bucket whose state is one number. It reads no clock and takes no lock.
//!
//! The throttle takes no lock, because a thread at idle priority may be suspended at any point,
//! even while it holds a lock. The state is the time by which the budget will have paid for all
//! work so far.

use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::NS_PER_S;

/// Computes how long to wait in order to stay within a budget. The unit of the budget is arbitrary,
/// for example bytes or nanoseconds of CPU time.
#[derive(Debug)]
pub struct Throttle {
    per_second: AtomicU64, // the budget, > 0
    burst_ns: u64,
    paid_ns: AtomicU64, // on the caller's clock
}

impl Throttle {
    /// Creates a throttle with this budget per second. Unused budget does not accumulate.
    pub fn new(per_second: u64) -> Self {
        Self { per_second: AtomicU64::new(per_second.max(1)), burst_ns: 0, paid_ns: AtomicU64::new(0) }
    }

    /// Lets unused budget accumulate for up to this duration, like a token bucket that is full at
    /// first.
    #[must_use]
    pub fn with_burst(self, burst_ns: u64) -> Self {
        Self { burst_ns, ..self }
    }

    /// Changes the budget. Discards all charges so far, because they were computed with the
    /// previous budget.
    pub fn set_budget(&self, per_second: u64) {
        self.per_second.store(per_second.max(1), Ordering::Relaxed);
        self.paid_ns.store(0, Ordering::Relaxed);
    }

    /// Charges work that began at `began_ns`. The charge counts from `began_ns` on, so the duration
    /// of the work counts as waiting time.
    pub fn charge(&self, began_ns: u64, amount: u64) {
        let per_second = self.per_second.load(Ordering::Relaxed);
        let needed_ns = u128::from(amount) * u128::from(NS_PER_S) / u128::from(per_second);
        let needed_ns = u64::try_from(needed_ns).unwrap_or(u64::MAX);
        let after = |paid_ns: u64| Some(paid_ns.max(began_ns).saturating_add(needed_ns));
        let _before = self.paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
    }

    /// Returns the time to wait before the next work may begin, in nanoseconds.
    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        let paid_ns = self.paid_ns.load(Ordering::Relaxed);
        paid_ns.saturating_sub(now_ns.saturating_add(self.burst_ns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    // Proves that work causes a wait, and that unused budget does not accumulate. Threads share the
    // budget, and a new budget discards the charges. The budget is 2 % of a core.
    #[test]
    fn work_is_paid_for() {
        let throttle = Throttle::new(20 * MS);
        throttle.charge(0, MS);
        assert_eq!(throttle.wait_ns(MS), 49 * MS, "1 ms of 50");
        assert_eq!(throttle.wait_ns(50 * MS), 0);
        throttle.charge(10_000 * MS, MS);
        assert_eq!(throttle.wait_ns(10_001 * MS), 49 * MS, "as before");
        throttle.charge(10_000 * MS, MS);
        assert_eq!(throttle.wait_ns(10_001 * MS), 99 * MS, "another thread at the same time");
        throttle.set_budget(NS_PER_S);
        assert_eq!(throttle.wait_ns(10_001 * MS), 0);
        throttle.charge(10_001 * MS, MS);
        assert_eq!(throttle.wait_ns(10_001 * MS), MS);
    }

    // Proves that over any interval, the work does not exceed the budget plus the burst, and that
    // infrequent work never waits. The budget is 2.5 % of a core. The test makes back-to-back
    // requests of 1 ms for an hour, and then one request every 15 s.
    #[test]
    fn a_burst_is_saved_up() {
        let throttle = Throttle::new(25 * MS).with_burst(8 * NS_PER_S);
        let (mut now, mut spent) = (NS_PER_S, 0);
        let end = now + 3600 * NS_PER_S;
        while now < end {
            match throttle.wait_ns(now) {
                0 => {
                    throttle.charge(now, MS);
                    (now, spent) = (now + MS, spent + MS);
                }
                wait_ns => now += wait_ns,
            }
        }
        let limit = 3600 * 25 * MS + 200 * MS;
        assert!(spent <= limit + MS && spent > limit * 99 / 100, "{spent}");
        for request in 1..100 {
            let began_ns = now + request * 15 * NS_PER_S;
            assert_eq!(throttle.wait_ns(began_ns), 0);
            throttle.charge(began_ns, 200 * MS);
        }
    }

    // Proves that the smallest budget still allows work, and that nothing overflows.
    #[test]
    fn edges_are_safe() {
        let throttle = Throttle::new(0);
        throttle.charge(5, u64::MAX);
        assert!(throttle.wait_ns(4) > 0);
        let throttle = Throttle::new(u64::MAX).with_burst(u64::MAX);
        throttle.charge(u64::MAX, u64::MAX);
        assert_eq!(throttle.wait_ns(u64::MAX), 0);
        let throttle = Throttle::new(1);
        throttle.charge(0, 3);
        assert_eq!(throttle.wait_ns(0), 3 * NS_PER_S);
        assert_eq!(throttle.wait_ns(3 * NS_PER_S), 0);
    }

    proptest! {
        // Proves that work stays within the budget if it observes the computed waits. The amounts
        // of work are random, and the waits end late.
        #[test]
        fn budgets_are_kept(
            slices in proptest::collection::vec((0_u64..20 * MS, 0_u64..100_000, 0_u64..5 * MS), 1..100),
            per_second in 1000_u64..1_000_000,
        ) {
            let (mut now, mut spent) = (0_u64, 0_u64);
            let throttle = Throttle::new(per_second);
            for (took_ns, amount, late_ns) in slices {
                throttle.charge(now, amount);
                (now, spent) = (now + took_ns, spent + amount);
                let wait_ns = throttle.wait_ns(now);
                now += wait_ns + if wait_ns > 0 { late_ns } else { 0 };
                // Rounding shortens each charge by less than a nanosecond.
                let passed = u128::from(now) + 100;
                prop_assert!(u128::from(spent) * u128::from(NS_PER_S) <= passed * u128::from(per_second));
            }
        }
    }
}
