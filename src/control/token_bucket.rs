//! A token bucket for the CPU time of one listener: it accumulates for a few seconds, and the
//! listener waits while it is overdrawn. Pure.

/// A listener gets this part of `cpu_budget`, so that constant requests do not take the CPU time
/// that the sources need.
const BUDGET_PART: u64 = 10;
/// Capacity in seconds of refill: enough for a few requests at once, and never the whole budget of
/// one second.
const CAPACITY_S: i64 = 8;
const NS_PER_S: u64 = 1_000_000_000;

/// The token bucket of one listener.
#[derive(Debug)]
pub(super) struct TokenBucket {
    refill_per_s: i64, // > 0
    tokens_ns: i64,    // in nanoseconds, <= CAPACITY_S * refill_per_s; negative if overdrawn
    at_ns: u64,
}

impl TokenBucket {
    /// Creates a full bucket for a CPU budget in basis points of a core.
    pub(super) fn new(basis_points: u32, now_ns: u64) -> Self {
        let refill_per_s = u64::from(basis_points) * (NS_PER_S / 10_000) / BUDGET_PART;
        let a_second_ns = i64::try_from(refill_per_s).unwrap_or(i64::MAX).max(1);
        Self { refill_per_s: a_second_ns, tokens_ns: a_second_ns.saturating_mul(CAPACITY_S), at_ns: now_ns }
    }

    /// Takes this much CPU time, in nanoseconds.
    pub(super) fn spend(&mut self, ns: u64) {
        self.tokens_ns = self.tokens_ns.saturating_sub(i64::try_from(ns).unwrap_or(i64::MAX));
    }

    /// Refills the bucket and returns how long to wait until it is no longer overdrawn, in
    /// nanoseconds.
    pub(super) fn wait_ns(&mut self, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns;
        let refill = i128::from(passed_ns) * i128::from(self.refill_per_s) / i128::from(NS_PER_S);
        let saved = i128::from(self.tokens_ns) + refill;
        let capacity = self.refill_per_s.saturating_mul(CAPACITY_S);
        self.tokens_ns = i64::try_from(saved).unwrap_or(capacity).min(capacity);
        let overdrawn = u128::from(self.tokens_ns.min(0).unsigned_abs());
        let wait_ns =
            (overdrawn * u128::from(NS_PER_S)).div_ceil(u128::from(self.refill_per_s.unsigned_abs()));
        u64::try_from(wait_ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    // Proves that over any interval at most the refill and the capacity are spent, and that
    // infrequent requests never wait. The budget is 25 %; an hour of back-to-back requests of 1 ms,
    // then one every 15 s.
    #[test]
    fn at_most_the_share_is_spent() {
        let mut bucket = TokenBucket::new(2_500, 0);
        let (mut now, mut spent) = (0, 0);
        while now < 3600 * NS_PER_S {
            match bucket.wait_ns(now) {
                0 => {
                    bucket.spend(MS);
                    (now, spent) = (now + MS, spent + MS);
                }
                wait_ns => now += wait_ns,
            }
        }
        let limit = 3600 * 25 * MS + 200 * MS;
        assert!(spent <= limit + MS && spent > limit * 99 / 100, "{spent}");
        for scrape in 1..100 {
            assert_eq!(bucket.wait_ns(now + scrape * 15 * NS_PER_S), 0);
            bucket.spend(200 * MS);
        }
    }

    // Proves that the smallest budget still allows requests, and that nothing overflows.
    #[test]
    fn edges_are_safe() {
        let mut bucket = TokenBucket::new(0, 5);
        bucket.spend(u64::MAX);
        assert!(bucket.wait_ns(4) > 0);
        assert!(bucket.wait_ns(u64::MAX) > 0);
        let mut bucket = TokenBucket::new(u32::MAX, 0);
        assert_eq!(bucket.wait_ns(u64::MAX), 0);
        let mut bucket = TokenBucket::new(1, 0);
        bucket.spend(MS);
        let wait_ns = bucket.wait_ns(0);
        assert!(wait_ns > 0 && bucket.wait_ns(wait_ns) == 0);
    }
}
