//! Rate limits of bytes and of CPU time. The limits use the generic cell rate algorithm, which is a
//! form of token bucket.

use std::time::Duration;

use crate::environment::{cpu_ns, monotonic_ns};

const NS_PER_S: u64 = 1_000_000_000;

/// Computes pauses that limit work to an amount per second. Unused budget does not accumulate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateBudget {
    per_second: u64, // > 0
    paid_ns: u64,    // when all work so far is paid for, on the caller's clock
}

impl RateBudget {
    pub(crate) fn new(per_second: u64) -> Self {
        Self { per_second: per_second.max(1), paid_ns: 0 }
    }

    /// Charges work that began at `began_ns`. The duration of the work is subtracted from the
    /// required pause.
    pub(crate) fn charge(&mut self, began_ns: u64, amount: u64) {
        // For amounts of 18 GB and more, the product exceeds 64 bits.
        let needed_ns = u128::from(amount) * u128::from(NS_PER_S) / u128::from(self.per_second);
        let needed_ns = u64::try_from(needed_ns).unwrap_or(u64::MAX);
        // Idle time before the work is not credited, so idle time does not allow a burst.
        self.paid_ns = self.paid_ns.max(began_ns).saturating_add(needed_ns);
    }

    /// Returns the time to wait before the next piece of work.
    pub(crate) fn wait(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.paid_ns.saturating_sub(now_ns))
    }
}

/// The budget for the CPU time of this process, as a share of one core.
#[derive(Debug)]
pub(crate) struct CpuBudget {
    throttle: RateBudget, // in nanoseconds of CPU time
    charged_cpu_ns: u64,
    charged_at_ns: u64,
}

impl CpuBudget {
    /// Creates a budget of a share of one core.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 < share <= 64 cores")]
    pub(crate) fn new(share: f64) -> Self {
        let per_second = (share * 1e9) as u64;
        Self {
            throttle: RateBudget::new(per_second),
            charged_cpu_ns: cpu_ns(),
            charged_at_ns: monotonic_ns(),
        }
    }

    /// Charges the CPU time used since the last call. Returns the time for which to pause.
    pub(crate) fn rest(&mut self) -> Duration {
        let (cpu_ns, now_ns) = (cpu_ns(), monotonic_ns());
        self.throttle.charge(self.charged_at_ns, cpu_ns.saturating_sub(self.charged_cpu_ns));
        (self.charged_cpu_ns, self.charged_at_ns) = (cpu_ns, now_ns);
        self.throttle.wait(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that work causes a wait, that unused budget does not accumulate, and that no
    // computation overflows. Method: the budget is 2 % of a core.
    #[test]
    fn work_is_paid_for() {
        const MS: u64 = 1_000_000;
        let mut throttle = RateBudget::new(20 * MS);
        throttle.charge(0, MS);
        assert_eq!(throttle.wait(MS), Duration::from_millis(49), "1 ms of 50");
        assert_eq!(throttle.wait(50 * MS), Duration::ZERO);
        throttle.charge(10_000 * MS, MS);
        assert_eq!(throttle.wait(10_001 * MS), Duration::from_millis(49), "as before");
        throttle.charge(u64::MAX, u64::MAX);
        assert_eq!(throttle.wait(u64::MAX), Duration::ZERO);
        let mut throttle = RateBudget::new(0);
        throttle.charge(0, 3);
        assert_eq!(throttle.wait(0), Duration::from_secs(3));
    }
}
