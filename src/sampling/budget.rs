//! What a source may cost, and how much longer its period must be to stay within that. Pure: times are handed in.

use crate::os::clock::NS_PER_S;

/// Costs are judged over this time at least...
const WINDOW_NS: u64 = NS_PER_S;
/// ...and over so many readings, so that one that was interrupted does not decide.
const WINDOW_READINGS: u64 = 10;
/// For so long all windows must ask for a shorter period before it is shortened: a cost that goes to and fro at the limit
/// does not make the period do so.
const CALM_NS: u64 = 10 * NS_PER_S;
/// Longest stride: a source that would need more is read so often all the same.
pub const STRIDE_MAX: u64 = 10_000;
/// A share of a core is counted in these parts.
const PARTS: u64 = 10_000;

/// A stretch of work that took longer than this may have been interrupted: the thread's processor time is asked for.
const LONG_NS: u64 = 500_000;
/// How often it is asked for anyway, so that little else lies between two answers.
const ASK_INTERVAL_NS: u64 = 50_000_000;

/// What stretches of one thread's work cost: as long as they took, but no more than the thread was on a processor. Asking for
/// that takes longer than most stretches do, so it is asked for seldom.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessorTime {
    asked_ns: u64,
    cpu_ns: u64, // of the thread by then
}

impl ProcessorTime {
    /// What the work from `begin_ns` to `end_ns` cost; `cpu_ns` tells the thread's processor time.
    #[inline]
    pub(super) fn cost(&mut self, begin_ns: u64, end_ns: u64, cpu_ns: impl FnOnce() -> u64) -> u64 {
        let took_ns = end_ns.saturating_sub(begin_ns);
        if took_ns < LONG_NS && end_ns.saturating_sub(self.asked_ns) < ASK_INTERVAL_NS {
            return took_ns;
        }
        let before_ns = self.cpu_ns;
        (self.asked_ns, self.cpu_ns) = (end_ns, cpu_ns());
        took_ns.min(self.cpu_ns.saturating_sub(before_ns))
    }
}

/// The budget of one source.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    share: u64,     // of a core, in parts, > 0
    period_ns: u64, // > 0
    stride: u64,
    window_ns: u64, // when the open window began
    readings: u64,
    spent_ns: u64,
    calm_ns: Option<u64>, // when the first of the windows began that asked for less, without a break
}

impl Budget {
    /// A source with this period may take so many hundredths of a percent of a core, from `start_ns` on.
    pub(super) fn new(basis_points: u16, period_ns: u64, start_ns: u64) -> Self {
        Self {
            share: u64::from(basis_points).max(1),
            period_ns: period_ns.max(1),
            stride: 1,
            window_ns: start_ns,
            readings: 0,
            spent_ns: 0,
            calm_ns: None,
        }
    }

    /// A reading that ended at `now_ns` has cost so much. Returns the new stride, if it is another one from now on.
    #[inline]
    pub(super) fn spend(&mut self, now_ns: u64, cost_ns: u64) -> Option<u64> {
        self.readings += 1;
        self.spent_ns += cost_ns;
        if self.readings < WINDOW_READINGS || now_ns.saturating_sub(self.window_ns) < WINDOW_NS {
            return None;
        }
        let needed = self.needed();
        let calm_ns = self.calm_ns.unwrap_or(self.window_ns);
        self.calm_ns = (needed < self.stride).then_some(calm_ns);
        self.window_ns = now_ns;
        self.readings = 0;
        self.spent_ns = 0;
        let is_calm = self.calm_ns.is_some_and(|calm_ns| now_ns.saturating_sub(calm_ns) >= CALM_NS);
        if needed <= self.stride && !is_calm {
            return None;
        }
        self.calm_ns = None;
        self.stride = needed;
        Some(needed)
    }

    /// The least stride at which readings of this cost stay within the budget.
    fn needed(&self) -> u64 {
        let allowed_ns = u128::from(self.readings) * u128::from(self.period_ns) * u128::from(self.share);
        let spent = u128::from(self.spent_ns) * u128::from(PARTS);
        u64::try_from(spent.div_ceil(allowed_ns.max(1))).unwrap_or(u64::MAX).clamp(1, STRIDE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A budget of 2 % at a period of 1 ms, and readings of this cost until it answers, at most for so many seconds.
    fn answer(budget: &mut Budget, from_ns: &mut u64, cost_ns: u64, seconds: u64) -> Option<u64> {
        let end = *from_ns + seconds * NS_PER_S;
        while *from_ns < end {
            *from_ns += MS * budget.stride;
            if let Some(stride) = budget.spend(*from_ns, cost_ns) {
                return Some(stride);
            }
        }
        None
    }

    // Goal: a source within its budget keeps its period, one beyond it gets just as much longer a one as it needs, and
    // comes back when it is cheap again. Method: 2 % of 1 ms are 20 us.
    #[test]
    fn the_period_follows_the_cost() {
        let mut now = 0;
        let mut budget = Budget::new(200, MS, now);
        assert_eq!(answer(&mut budget, &mut now, 20_000, 60), None);
        assert_eq!(answer(&mut budget, &mut now, 50_000, 2), Some(3));
        assert_eq!(answer(&mut budget, &mut now, 60_000, 60), None);
        assert_eq!(answer(&mut budget, &mut now, 10_000, 9), None, "not at once");
        assert_eq!(answer(&mut budget, &mut now, 10_000, 3), Some(1));
    }

    // Goal: one long reading in many does not lengthen a period. Method: 15 ms once, within the share of a second.
    #[test]
    fn one_interruption_is_forgiven() {
        let mut budget = Budget::new(200, MS, 0);
        assert_eq!(budget.spend(MS, 15 * MS), None);
        let mut now = MS;
        assert_eq!(answer(&mut budget, &mut now, 1_000, 60), None);
    }

    // Goal: after a pause of the whole host a source is read at its period again within ten readings or ten seconds, whichever comes
    // last. Method: a minute, once, at a period of 10 ms; at the stride that follows, cheap readings.
    #[test]
    fn a_pause_is_soon_forgotten() {
        let period = 10 * MS;
        let mut budget = Budget::new(1_000, period, 0);
        let (mut now, mut stride) = (0, 1);
        for reading in 0..100 {
            now += period;
            let cost = if reading == 99 { 60 * NS_PER_S } else { 10_000 };
            stride = budget.spend(now, cost).unwrap_or(stride);
        }
        assert_eq!(stride, 601);
        for _ in 0..10 {
            now += period * stride;
            assert_eq!(budget.stride, 601);
            stride = budget.spend(now, 10_000).unwrap_or(stride);
        }
        assert_eq!(budget.stride, 1);
    }

    // Goal: a thread that had to wait is not charged for it, one that worked is. Method: short work, long work, a long wait, and
    // both after a pause.
    #[test]
    fn waiting_costs_nothing() {
        let mut time = ProcessorTime::default();
        assert_eq!(time.cost(100 * MS, 100 * MS + 5_000, || 70 * MS), 5_000);
        assert_eq!(time.cost(101 * MS, 101 * MS + 5_000, || panic!("asked for too often")), 5_000);
        assert_eq!(time.cost(102 * MS, 104 * MS, || 72 * MS + 10_000), 2 * MS);
        assert_eq!(time.cost(105 * MS, 355 * MS, || 72 * MS + 30_000), 20_000);
        assert_eq!(time.cost(900 * MS, 901 * MS, || 90 * MS), MS);
        assert_eq!(time.cost(901 * MS, 902 * MS, || 90 * MS), 0);
    }

    proptest! {
        // Goal: at the stride that is answered the cost lies within the budget, and at the next shorter one it would not.
        // Method: any costs, shares and periods.
        #[test]
        fn strides_are_as_short_as_can_be(cost in 1..10_000_000_u64, share in 1..=10_000_u16, period in 50_000..NS_PER_S) {
            let mut budget = Budget::new(share, period, 0);
            let mut stride = 1;
            for reading in 1..=WINDOW_READINGS {
                stride = budget.spend(NS_PER_S * reading, cost).unwrap_or(stride);
            }
            let is_within = |stride: u64| {
                u128::from(cost) * u128::from(PARTS)
                    <= u128::from(share) * u128::from(period) * u128::from(stride)
            };
            prop_assert!(is_within(stride) || stride == STRIDE_MAX);
            prop_assert!(stride == 1 || !is_within(stride - 1));
        }
    }
}
