//! What a source may cost, and how much longer its period must be to stay within that. Pure: times are handed in.

use crate::metrics::Limit;
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
const ASK_INTERVAL_NS: u64 = 200_000_000;

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

/// What a group's thread does beside its sources' readings: waiting, handing over, everything. It is shared out among the readings.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Overhead {
    cpu_ns: u64,   // of the thread, as last asked
    costs_ns: u64, // of readings on this thread since then
    readings: u64, // since then, on other threads too
    reading_ns: u64,
}

impl Overhead {
    /// A reading was made. Returns its share, in nanoseconds, going by the last stretch.
    #[inline]
    pub(super) fn share(&mut self, own_cost_ns: u64) -> u64 {
        self.costs_ns += own_cost_ns;
        self.readings += 1;
        self.reading_ns
    }

    /// A stretch is over, by the thread's processor time.
    pub(super) fn settle(&mut self, cpu_ns: u64) {
        let beside_ns = cpu_ns.saturating_sub(self.cpu_ns).saturating_sub(self.costs_ns);
        let reading_ns = beside_ns.checked_div(self.readings).unwrap_or(self.reading_ns);
        *self = Self { cpu_ns, reading_ns, ..Self::default() };
    }
}

/// What one reading has cost, in nanoseconds of a core.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// Reading and building: what the source's own budget is about.
    pub(super) own_ns: u64,
    /// That and its share of what is done around it: what the agent's budget is about.
    pub(super) all_ns: u64,
}

/// How often a source is read from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// Every how many ticks, 1 to [`STRIDE_MAX`].
    pub(super) stride: u64,
    /// Which budget asks for that.
    pub(super) limit: Limit,
}

/// What a budget says at the end of a window, or when the agent leaves a source another share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// If the source is read at another stride from now on.
    pub(super) change: Option<Change>,
    /// What all of it takes as often as its own budget lets it be read, in nanoseconds of a core a second; 0 until that is known.
    pub(super) demand: u64,
}

/// The budget of one source: its own share of a core, and what the agent's budget leaves each source.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    share: u64,      // of a core, in parts, > 0
    period_ns: u64,  // > 0
    change: Change,  // as last answered
    own_stride: u64, // by its own budget, going by the last window
    rate: u64, // what all of it takes at a stride of 1, in nanoseconds a second, going by the last window
    cap: u64,  // what the agent leaves it, in nanoseconds a second, > 0
    window_ns: u64, // when the open window began
    readings: u64,
    spent_ns: u64, // own
    all_ns: u64,
    calm_ns: Option<u64>, // when the first of the windows began that asked for less, without a break
}

impl Budget {
    /// A source with this period may take so many hundredths of a percent of a core, from `start_ns` on.
    pub(super) fn new(basis_points: u32, period_ns: u64, start_ns: u64) -> Self {
        Self {
            share: u64::from(basis_points).max(1),
            period_ns: period_ns.max(1),
            change: Change { stride: 1, limit: Limit::Source },
            own_stride: 1,
            rate: 0,
            cap: u64::MAX,
            window_ns: start_ns,
            readings: 0,
            spent_ns: 0,
            all_ns: 0,
            calm_ns: None,
        }
    }

    /// A reading that ended at `now_ns` has cost so much, while the agent leaves each source `cap` nanoseconds of a core a second.
    #[inline]
    pub(super) fn spend(&mut self, now_ns: u64, cost: Cost, cap: u64) -> Option<Verdict> {
        self.readings += 1;
        self.spent_ns += cost.own_ns;
        self.all_ns += cost.all_ns;
        let is_open = self.readings < WINDOW_READINGS || now_ns.saturating_sub(self.window_ns) < WINDOW_NS;
        if is_open && cap == self.cap {
            return None;
        }
        Some(self.judge(now_ns, is_open, cap.max(1)))
    }

    /// The same between two readings: what the agent leaves each source may have become another, and the next reading be far off.
    pub(super) fn allow(&mut self, now_ns: u64, cap: u64) -> Option<Verdict> {
        let cap = cap.max(1);
        (cap != self.cap).then(|| self.judge(now_ns, true, cap))
    }

    /// Whether the agent's budget keeps the source from being read as often as its own allows.
    pub(super) fn is_held_back(&self) -> bool {
        self.change.limit == Limit::Agent
    }

    #[cold]
    fn judge(&mut self, now_ns: u64, is_open: bool, cap: u64) -> Verdict {
        let change = self.changed(now_ns, is_open, cap);
        Verdict { change, demand: self.rate / self.own_stride }
    }

    fn changed(&mut self, now_ns: u64, is_open: bool, cap: u64) -> Option<Change> {
        // Whoever decides on the cap has waited already until it was calm.
        let mut is_calm = cap > self.cap;
        self.cap = cap;
        if !is_open {
            self.own_stride = self.own_needed();
            self.rate = self.rate_of_window();
        }
        let needed = self.needed();
        if !is_open {
            let calm_ns = self.calm_ns.unwrap_or(self.window_ns);
            self.calm_ns = (needed.stride < self.change.stride).then_some(calm_ns);
            (self.window_ns, self.readings, self.spent_ns, self.all_ns) = (now_ns, 0, 0, 0);
            is_calm |= self.calm_ns.is_some_and(|calm_ns| now_ns.saturating_sub(calm_ns) >= CALM_NS);
        }
        let is_other = needed.stride > self.change.stride || (is_calm && needed.stride < self.change.stride);
        if !is_other {
            return None;
        }
        self.calm_ns = None;
        self.change = needed;
        Some(needed)
    }

    /// The least stride at which both budgets are kept.
    fn needed(&self) -> Change {
        let capped = self.rate.div_ceil(self.cap).clamp(1, STRIDE_MAX);
        if capped > self.own_stride {
            Change { stride: capped, limit: Limit::Agent }
        } else {
            Change { stride: self.own_stride, limit: Limit::Source }
        }
    }

    /// The least stride at which readings of this cost stay within the source's own budget.
    fn own_needed(&self) -> u64 {
        let allowed_ns = u128::from(self.readings) * u128::from(self.period_ns) * u128::from(self.share);
        let spent = u128::from(self.spent_ns) * u128::from(PARTS);
        u64::try_from(spent.div_ceil(allowed_ns.max(1))).unwrap_or(u64::MAX).clamp(1, STRIDE_MAX)
    }

    fn rate_of_window(&self) -> u64 {
        let ticks_ns = u128::from(self.readings) * u128::from(self.period_ns);
        let spent = u128::from(self.all_ns) * u128::from(NS_PER_S);
        u64::try_from(spent.div_ceil(ticks_ns.max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const NO_CAP: u64 = u64::MAX;

    /// A reading with nothing around it.
    fn cost(ns: u64) -> Cost {
        Cost { own_ns: ns, all_ns: ns }
    }

    /// The change that a reading brings.
    fn spend(budget: &mut Budget, now_ns: u64, cost: Cost, cap: u64) -> Option<Change> {
        budget.spend(now_ns, cost, cap)?.change
    }

    fn demand(budget: &Budget) -> u64 {
        budget.rate / budget.own_stride
    }

    /// The stride after a window of readings of 1 ms each that cost so much, under this cap.
    fn window(budget: &mut Budget, now_ns: &mut u64, cost: Cost, cap: u64) -> Change {
        let end_ns = *now_ns + NS_PER_S.max(WINDOW_READINGS * MS * budget.change.stride);
        while *now_ns < end_ns {
            *now_ns += MS * budget.change.stride;
            spend(budget, *now_ns, cost, cap);
        }
        budget.change
    }

    /// A budget of 2 % at a period of 1 ms, and readings of this cost until it answers, at most for so many seconds.
    fn answer(budget: &mut Budget, from_ns: &mut u64, cost_ns: u64, seconds: u64) -> Option<u64> {
        let end = *from_ns + seconds * NS_PER_S;
        while *from_ns < end {
            *from_ns += MS * budget.change.stride;
            if let Some(change) = spend(budget, *from_ns, cost(cost_ns), NO_CAP) {
                assert_eq!(change.limit, Limit::Source);
                return Some(change.stride);
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
        assert_eq!(spend(&mut budget, MS, cost(15 * MS), NO_CAP), None);
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
            let ns = if reading == 99 { 60 * NS_PER_S } else { 10_000 };
            stride = spend(&mut budget, now, cost(ns), NO_CAP).map_or(stride, |change| change.stride);
        }
        assert_eq!(stride, 601);
        for _ in 0..10 {
            now += period * stride;
            assert_eq!(budget.change.stride, 601);
            stride = spend(&mut budget, now, cost(10_000), NO_CAP).map_or(stride, |change| change.stride);
        }
        assert_eq!(budget.change.stride, 1);
    }

    // Goal: a thread that had to wait is not charged for it, one that worked is. Method: short work, long work, a long wait, and
    // both after a pause.
    #[test]
    fn waiting_costs_nothing() {
        let mut time = ProcessorTime::default();
        assert_eq!(time.cost(200 * MS, 200 * MS + 5_000, || 70 * MS), 5_000);
        assert_eq!(time.cost(201 * MS, 201 * MS + 5_000, || panic!("asked for too often")), 5_000);
        assert_eq!(time.cost(202 * MS, 204 * MS, || 72 * MS + 10_000), 2 * MS);
        assert_eq!(time.cost(205 * MS, 455 * MS, || 72 * MS + 30_000), 20_000);
        assert_eq!(time.cost(900 * MS, 901 * MS, || 90 * MS), MS);
        assert_eq!(time.cost(901 * MS, 902 * MS, || 90 * MS), 0);
    }

    // Goal: what the agent leaves a source holds at once in both directions, names itself as the reason, and counts what is done around
    // a reading; the own budget still holds. Method: 20 us a reading with 10 us around it at 1 ms, under caps of 3 %, less and more.
    #[test]
    fn the_agent_takes_and_gives_at_once() {
        let reading = Cost { own_ns: 20_000, all_ns: 30_000 };
        let percent = NS_PER_S / 100;
        let (mut now, mut budget) = (0, Budget::new(200, MS, 0));
        let at = |stride, limit| Change { stride, limit };
        assert_eq!(window(&mut budget, &mut now, reading, 3 * percent), at(1, Limit::Source));
        assert_eq!(demand(&budget), 3 * percent);
        // Known costs are enough: no window has to end first.
        now += MS;
        assert_eq!(spend(&mut budget, now, reading, percent), Some(at(3, Limit::Agent)));
        assert_eq!(spend(&mut budget, now + 3 * MS, reading, 3 * percent - 1), Some(at(2, Limit::Agent)));
        assert_eq!(spend(&mut budget, now + 5 * MS, reading, NO_CAP), Some(at(1, Limit::Source)));
        assert_eq!(
            spend(&mut budget, now + 6 * MS, reading, 0),
            Some(at(STRIDE_MAX, Limit::Agent)),
            "nothing is left"
        );

        // Both: the one that asks for more is named, and only the share that the own budget leaves is asked of the agent.
        let (mut now, mut budget) = (0, Budget::new(100, MS, 0));
        assert_eq!(window(&mut budget, &mut now, reading, 2 * percent), at(2, Limit::Source));
        assert_eq!(demand(&budget), 3 * percent / 2);
        assert_eq!(window(&mut budget, &mut now, reading, percent), at(3, Limit::Agent));
    }

    // Goal: what the agent gives back is given between two readings, once, and what it takes too. Method: no reading behind the one that
    // made the cost known.
    #[test]
    fn the_agent_needs_no_reading() {
        let (mut now, mut budget) = (0, Budget::new(10_000, MS, 0));
        window(&mut budget, &mut now, cost(20_000), NO_CAP);
        let change = |verdict: Option<Verdict>| verdict.and_then(|verdict| verdict.change);
        assert_eq!(budget.allow(now, NO_CAP), None);
        let least = Change { stride: STRIDE_MAX, limit: Limit::Agent };
        assert_eq!((change(budget.allow(now, 1)), budget.is_held_back()), (Some(least), true));
        assert_eq!(budget.allow(now + 1, 1), None);
        let all = Change { stride: 1, limit: Limit::Source };
        assert_eq!((change(budget.allow(now + 2, NO_CAP)), budget.is_held_back()), (Some(all), false));
    }

    // Goal: what a thread does beside its readings is shared out among them, once. Method: 10 readings of 1 ms within 30 ms of a
    // thread's time; then none; then readings on other threads alone.
    #[test]
    fn overhead_is_shared_out() {
        let mut overhead = Overhead::default();
        let shares: Vec<u64> = (0..10).map(|_| overhead.share(MS)).collect();
        assert_eq!(shares, [0; 10], "not known yet");
        overhead.settle(30 * MS);
        assert_eq!(overhead.share(MS), 2 * MS);
        overhead.settle(31 * MS);
        assert_eq!(overhead.share(0), 0);
        overhead.settle(34 * MS);
        assert_eq!(overhead.share(0), 3 * MS);
    }

    proptest! {
        // Goal: at the stride that is answered the cost lies within the budget, and at the next shorter one it would not.
        // Method: any costs, shares and periods.
        #[test]
        fn strides_are_as_short_as_can_be(ns in 1..10_000_000_u64, share in 1..=10_000_u32, period in 50_000..NS_PER_S) {
            let mut budget = Budget::new(share, period, 0);
            let mut stride = 1;
            for reading in 1..=WINDOW_READINGS {
                let change = spend(&mut budget, NS_PER_S * reading, cost(ns), NO_CAP);
                stride = change.map_or(stride, |change| change.stride);
            }
            let is_within = |stride: u64| {
                u128::from(ns) * u128::from(PARTS)
                    <= u128::from(share) * u128::from(period) * u128::from(stride)
            };
            prop_assert!(is_within(stride) || stride == STRIDE_MAX);
            prop_assert!(stride == 1 || !is_within(stride - 1));
        }
    }
}
