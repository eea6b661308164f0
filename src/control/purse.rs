//! What a listener may take of a core: it saves up for a few seconds, and waits where it has spent more than it had. Pure.

/// A listener has this part of `cpu_budget`: asking without end must not take from the sources what the whole agent may have.
const BUDGET_PART: u64 = 10;
/// What it has saved at most is what it gets in so many seconds: enough for a few requests at once, and never the whole budget of one
/// second.
const SAVED_MAX_S: i64 = 8;
const NS_PER_S: u64 = 1_000_000_000;

/// One a listener.
#[derive(Debug)]
pub(super) struct Purse {
    a_second_ns: i64, // > 0
    saved: i64,       // in nanoseconds, <= SAVED_MAX_S * a_second_ns; less than 0 is owed
    at_ns: u64,
}

impl Purse {
    /// A full one, of an agent that may take so many hundredths of a percent of a core.
    pub(super) fn new(basis_points: u32, now_ns: u64) -> Self {
        let a_second_ns = u64::from(basis_points) * (NS_PER_S / 10_000) / BUDGET_PART;
        let a_second_ns = i64::try_from(a_second_ns).unwrap_or(i64::MAX).max(1);
        Self { a_second_ns, saved: a_second_ns.saturating_mul(SAVED_MAX_S), at_ns: now_ns }
    }

    /// So much of a core was taken, in nanoseconds.
    pub(super) fn spend(&mut self, ns: u64) {
        self.saved = self.saved.saturating_sub(i64::try_from(ns).unwrap_or(i64::MAX));
    }

    /// For how long nothing may be begun, in nanoseconds: until nothing is owed.
    pub(super) fn wait_ns(&mut self, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns;
        let got = i128::from(passed_ns) * i128::from(self.a_second_ns) / i128::from(NS_PER_S);
        let saved = i128::from(self.saved) + got;
        let most = self.a_second_ns.saturating_mul(SAVED_MAX_S);
        self.saved = i64::try_from(saved).unwrap_or(most).min(most);
        let owed = u128::from(self.saved.min(0).unsigned_abs());
        let wait_ns = (owed * u128::from(NS_PER_S)).div_ceil(u128::from(self.a_second_ns.unsigned_abs()));
        u64::try_from(wait_ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    // Goal: over any stretch no more is spent than the share and what was saved, however much is asked; who asks rarely never waits.
    // Method: an hour of requests of 1 ms, one behind the other, then one every 15 s, at 25 % for the agent.
    #[test]
    fn no_more_than_the_share_is_spent() {
        let mut purse = Purse::new(2_500, 0);
        let (mut now, mut spent) = (0, 0);
        while now < 3600 * NS_PER_S {
            match purse.wait_ns(now) {
                0 => {
                    purse.spend(MS);
                    (now, spent) = (now + MS, spent + MS);
                }
                wait_ns => now += wait_ns,
            }
        }
        let most = 3600 * 25 * MS + 200 * MS;
        assert!(spent <= most + MS && spent > most * 99 / 100, "{spent}");
        for scrape in 1..100 {
            assert_eq!(purse.wait_ns(now + scrape * 15 * NS_PER_S), 0);
            purse.spend(200 * MS);
        }
    }

    // Goal: the smallest budget lets something through, and no number overflows. Method: the edges.
    #[test]
    fn edges_are_safe() {
        let mut purse = Purse::new(0, 5);
        purse.spend(u64::MAX);
        assert!(purse.wait_ns(4) > 0);
        assert!(purse.wait_ns(u64::MAX) > 0);
        let mut purse = Purse::new(u32::MAX, 0);
        assert_eq!(purse.wait_ns(u64::MAX), 0);
        let mut purse = Purse::new(1, 0);
        purse.spend(MS);
        let wait_ns = purse.wait_ns(0);
        assert!(wait_ns > 0 && purse.wait_ns(wait_ns) == 0);
    }
}
