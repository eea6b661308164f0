//! The CPU budget of one source, which determines how much longer the source's period must become.
//! The code is pure, since the caller passes the times.

use flatcap_metrics::LimitingBudget;
use flatcap_os::clock::NS_PER_S;

/// Minimum length of the window over which costs are averaged, in nanoseconds.
const WINDOW_NS: u64 = NS_PER_S;
/// Minimum number of samples in a window, so that one interrupted read does not determine the
/// average cost.
const WINDOW_SAMPLES: u64 = 10;
/// Time during which every window must allow a shorter period before the period is shortened. The
/// delay prevents a cost that oscillates around the limit from making the period oscillate.
const SHORTEN_DELAY_NS: u64 = 10 * NS_PER_S;
/// Maximum stride. A source that would need a longer stride is read at this stride and exceeds its
/// budget.
pub(crate) const STRIDE_MAX: u64 = 10_000;
/// Basis points in one core.
const BASIS_POINTS: u64 = 10_000;

/// Duration of work above which the thread may have been preempted, so that the thread's CPU time
/// is read.
const LONG_WORK_NS: u64 = 500_000;
/// Maximum interval between two reads of the thread's CPU time. With a short interval, the
/// difference between two reads includes little work other than the measured work.
const CPU_TIME_INTERVAL_NS: u64 = 200_000_000;

/// Measures the CPU cost of pieces of work on one thread. The cost is the elapsed time, but at most
/// the CPU time of the thread. Reading the CPU time takes longer than most pieces of work, so the
/// CPU time is read rarely.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CpuMeter {
    read_ns: u64, // when the CPU time was last read
    cpu_ns: u64,  // CPU time of the thread at `read_ns`
}

impl CpuMeter {
    /// Returns the cost of the work from `begin_ns` to `end_ns`. The function `cpu_ns` reads the
    /// thread's CPU time.
    #[inline]
    pub(super) fn cost(&mut self, begin_ns: u64, end_ns: u64, cpu_ns: impl FnOnce() -> u64) -> u64 {
        let took_ns = end_ns.saturating_sub(begin_ns);
        if took_ns < LONG_WORK_NS && end_ns.saturating_sub(self.read_ns) < CPU_TIME_INTERVAL_NS {
            return took_ns;
        }
        let before_ns = self.cpu_ns;
        (self.read_ns, self.cpu_ns) = (end_ns, cpu_ns());
        took_ns.min(self.cpu_ns.saturating_sub(before_ns))
    }
}

/// The work of a sampler thread that belongs to no sample (waiting, queueing slabs and so on). This
/// work is shared equally among the samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Overhead {
    cpu_ns: u64,        // CPU time of the thread at the start of the interval
    costs_ns: u64,      // of samples read on this thread since then
    samples: u64,       // samples since then, including those read on other threads
    per_sample_ns: u64, // overhead per sample in the last full interval
}

impl Overhead {
    /// Adds one sample. Returns the sample's share of the overhead in nanoseconds, as measured in
    /// the last interval.
    #[inline]
    pub(super) fn share(&mut self, own_cost_ns: u64) -> u64 {
        self.costs_ns += own_cost_ns;
        self.samples += 1;
        self.per_sample_ns
    }

    /// Ends an interval. `cpu_ns` is the current CPU time of the thread.
    pub(super) fn end_interval(&mut self, cpu_ns: u64) {
        let overhead_ns = cpu_ns.saturating_sub(self.cpu_ns).saturating_sub(self.costs_ns);
        let reading_ns = overhead_ns.checked_div(self.samples).unwrap_or(self.per_sample_ns);
        *self = Self { cpu_ns, per_sample_ns: reading_ns, ..Self::default() };
    }
}

/// CPU cost of one sample, in nanoseconds of CPU time.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleCost {
    /// Cost of reading the source and building the sample. The source's own budget limits this
    /// cost.
    pub(super) own_ns: u64,
    /// `own_ns` plus the sample's share of the overhead. The recorder's budget limits this cost.
    pub(super) all_ns: u64,
}

/// A new sampling rate of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StrideChange {
    /// Number of ticks per sample, 1 to [`STRIDE_MAX`].
    pub(super) stride: u64,
    /// The budget that requires this stride.
    pub(super) limit: LimitingBudget,
}

/// The decision of a budget, at the end of a window or when the cap changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BudgetDecision {
    /// The new stride, or `None` if the stride stays the same.
    pub(super) change: Option<StrideChange>,
    /// Cost of the source in nanoseconds of a core per second, at the rate that its own budget
    /// allows. The value is 0 until this cost is known.
    pub(super) demand: u64,
}

/// The budget of one source. It consists of the source's own share of a core, and of the cap that
/// the recorder's budget sets for each source.
#[derive(Debug, Clone)]
pub(super) struct SourceBudget {
    share: u64,            // of a core, in basis points; > 0
    period_ns: u64,        // > 0
    current: StrideChange, // the last one returned
    own_stride: u64,       // required by its own budget, as of the last window
    rate: u64,             // cost at a stride of 1, in nanoseconds per second, as of the last window
    cap: u64,              // set by the recorder's budget, in nanoseconds per second, > 0
    window_ns: u64,        // when the open window began
    samples: u64,
    spent_ns: u64, // own cost of the samples in the open window
    all_ns: u64,
    shorten_since_ns: Option<u64>, // start of the first consecutive window that allows a shorter period
}

impl SourceBudget {
    /// Creates the budget of a source with this period, and this share of a core in basis points.
    /// The first window begins at `start_ns`.
    pub(super) fn new(basis_points: u32, period_ns: u64, start_ns: u64) -> Self {
        Self {
            share: u64::from(basis_points).max(1),
            period_ns: period_ns.max(1),
            current: StrideChange { stride: 1, limit: LimitingBudget::Source },
            own_stride: 1,
            rate: 0,
            cap: u64::MAX,
            window_ns: start_ns,
            samples: 0,
            spent_ns: 0,
            all_ns: 0,
            shorten_since_ns: None,
        }
    }

    /// Adds the cost of a sample that ended at `now_ns`. `cap` is the current limit per source, in
    /// nanoseconds of a core per second.
    #[inline]
    pub(super) fn spend(&mut self, now_ns: u64, cost: SampleCost, cap: u64) -> Option<BudgetDecision> {
        self.samples += 1;
        self.spent_ns += cost.own_ns;
        self.all_ns += cost.all_ns;
        let is_open = self.samples < WINDOW_SAMPLES || now_ns.saturating_sub(self.window_ns) < WINDOW_NS;
        if is_open && cap == self.cap {
            return None;
        }
        Some(self.decide(now_ns, is_open, cap.max(1)))
    }

    /// Applies a new cap immediately, between two samples, because the next sample may be hours
    /// away.
    pub(super) fn set_cap(&mut self, now_ns: u64, cap: u64) -> Option<BudgetDecision> {
        let cap = cap.max(1);
        (cap != self.cap).then(|| self.decide(now_ns, true, cap))
    }

    #[cold]
    fn decide(&mut self, now_ns: u64, is_open: bool, cap: u64) -> BudgetDecision {
        let change = self.update(now_ns, is_open, cap);
        BudgetDecision { change, demand: self.rate / self.own_stride }
    }

    fn update(&mut self, now_ns: u64, is_open: bool, cap: u64) -> Option<StrideChange> {
        // The CPU governor already waits before it raises the cap, so no further delay is needed.
        let mut may_shorten = cap > self.cap;
        self.cap = cap;
        if !is_open {
            self.own_stride = self.own_required_stride();
            self.rate = self.window_rate();
        }
        let needed = self.required();
        if !is_open {
            let calm_ns = self.shorten_since_ns.unwrap_or(self.window_ns);
            self.shorten_since_ns = (needed.stride < self.current.stride).then_some(calm_ns);
            (self.window_ns, self.samples, self.spent_ns, self.all_ns) = (now_ns, 0, 0, 0);
            may_shorten |= self
                .shorten_since_ns
                .is_some_and(|calm_ns| now_ns.saturating_sub(calm_ns) >= SHORTEN_DELAY_NS);
        }
        let has_changed =
            needed.stride > self.current.stride || (may_shorten && needed.stride < self.current.stride);
        if !has_changed {
            return None;
        }
        self.shorten_since_ns = None;
        self.current = needed;
        Some(needed)
    }

    /// Returns the shortest stride with which the source stays within both budgets.
    fn required(&self) -> StrideChange {
        let capped = self.rate.div_ceil(self.cap).clamp(1, STRIDE_MAX);
        if capped > self.own_stride {
            StrideChange { stride: capped, limit: LimitingBudget::Recorder }
        } else {
            StrideChange { stride: self.own_stride, limit: LimitingBudget::Source }
        }
    }

    /// Returns the shortest stride with which samples of this cost stay within the source's own
    /// budget.
    fn own_required_stride(&self) -> u64 {
        let allowed_ns = u128::from(self.samples) * u128::from(self.period_ns) * u128::from(self.share);
        let spent = u128::from(self.spent_ns) * u128::from(BASIS_POINTS);
        u64::try_from(spent.div_ceil(allowed_ns.max(1))).unwrap_or(u64::MAX).clamp(1, STRIDE_MAX)
    }

    fn window_rate(&self) -> u64 {
        let ticks_ns = u128::from(self.samples) * u128::from(self.period_ns);
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

    /// Returns a cost without overhead.
    fn cost(ns: u64) -> SampleCost {
        SampleCost { own_ns: ns, all_ns: ns }
    }

    /// Returns the stride change that a sample causes.
    fn spend(budget: &mut SourceBudget, now_ns: u64, cost: SampleCost, cap: u64) -> Option<StrideChange> {
        budget.spend(now_ns, cost, cap)?.change
    }

    fn demand(budget: &SourceBudget) -> u64 {
        budget.rate / budget.own_stride
    }

    /// Returns the stride after a window in which the samples have this cost. The period is 1 ms,
    /// and this cap applies.
    fn window(budget: &mut SourceBudget, now_ns: &mut u64, cost: SampleCost, cap: u64) -> StrideChange {
        let end_ns = *now_ns + NS_PER_S.max(WINDOW_SAMPLES * MS * budget.current.stride);
        while *now_ns < end_ns {
            *now_ns += MS * budget.current.stride;
            spend(budget, *now_ns, cost, cap);
        }
        budget.current
    }

    /// Charges samples of this cost to the budget, at a period of 1 ms. Stops when the stride
    /// changes or this many seconds have passed.
    fn next_stride(budget: &mut SourceBudget, from_ns: &mut u64, cost_ns: u64, seconds: u64) -> Option<u64> {
        let end = *from_ns + seconds * NS_PER_S;
        while *from_ns < end {
            *from_ns += MS * budget.current.stride;
            if let Some(change) = spend(budget, *from_ns, cost(cost_ns), NO_CAP) {
                assert_eq!(change.limit, LimitingBudget::Source);
                return Some(change.stride);
            }
        }
        None
    }

    // Proves that a source keeps its period while its cost is within its budget. If the cost
    // exceeds the budget, the source gets exactly the period that it needs, and it returns to its
    // own period when the cost falls. 2 % of 1 ms are 20 us.
    #[test]
    fn the_period_follows_the_cost() {
        let mut now = 0;
        let mut budget = SourceBudget::new(200, MS, now);
        assert_eq!(next_stride(&mut budget, &mut now, 20_000, 60), None);
        assert_eq!(next_stride(&mut budget, &mut now, 50_000, 2), Some(3));
        assert_eq!(next_stride(&mut budget, &mut now, 60_000, 60), None);
        assert_eq!(next_stride(&mut budget, &mut now, 10_000, 9), None, "not at once");
        assert_eq!(next_stride(&mut budget, &mut now, 10_000, 3), Some(1));
    }

    // Proves that one long read among many does not lengthen the period.
    #[test]
    fn one_interruption_is_forgiven() {
        let mut budget = SourceBudget::new(200, MS, 0);
        assert_eq!(spend(&mut budget, MS, cost(15 * MS), NO_CAP), None);
        let mut now = MS;
        assert_eq!(next_stride(&mut budget, &mut now, 1_000, 60), None);
    }

    // Proves that after a pause of the whole host a source returns to its period within ten samples
    // or ten seconds, whichever comes last.
    #[test]
    fn a_pause_is_soon_forgotten() {
        let period = 10 * MS;
        let mut budget = SourceBudget::new(1_000, period, 0);
        let (mut now, mut stride) = (0, 1);
        for reading in 0..100 {
            now += period;
            let ns = if reading == 99 { 60 * NS_PER_S } else { 10_000 };
            stride = spend(&mut budget, now, cost(ns), NO_CAP).map_or(stride, |change| change.stride);
        }
        assert_eq!(stride, 601);
        for _ in 0..10 {
            now += period * stride;
            assert_eq!(budget.current.stride, 601);
            stride = spend(&mut budget, now, cost(10_000), NO_CAP).map_or(stride, |change| change.stride);
        }
        assert_eq!(budget.current.stride, 1);
    }

    // Proves that a thread is charged for CPU time and not for time spent waiting.
    #[test]
    fn waiting_costs_nothing() {
        let mut time = CpuMeter::default();
        assert_eq!(time.cost(200 * MS, 200 * MS + 5_000, || 70 * MS), 5_000);
        assert_eq!(time.cost(201 * MS, 201 * MS + 5_000, || panic!("asked for too often")), 5_000);
        assert_eq!(time.cost(202 * MS, 204 * MS, || 72 * MS + 10_000), 2 * MS);
        assert_eq!(time.cost(205 * MS, 455 * MS, || 72 * MS + 30_000), 20_000);
        assert_eq!(time.cost(900 * MS, 901 * MS, || 90 * MS), MS);
        assert_eq!(time.cost(901 * MS, 902 * MS, || 90 * MS), 0);
    }

    // Proves that a new cap applies at once in both directions, is named as the limit, and includes
    // overhead. The source's own budget remains in force.
    #[test]
    fn the_agent_takes_and_gives_at_once() {
        let cost = SampleCost { own_ns: 20_000, all_ns: 30_000 };
        let percent = NS_PER_S / 100;
        let (mut now, mut budget) = (0, SourceBudget::new(200, MS, 0));
        let at = |stride, limit| StrideChange { stride, limit };
        assert_eq!(window(&mut budget, &mut now, cost, 3 * percent), at(1, LimitingBudget::Source));
        assert_eq!(demand(&budget), 3 * percent);
        // The cost is already known, so the cap applies without waiting for the end of a window.
        now += MS;
        assert_eq!(spend(&mut budget, now, cost, percent), Some(at(3, LimitingBudget::Recorder)));
        assert_eq!(
            spend(&mut budget, now + 3 * MS, cost, 3 * percent - 1),
            Some(at(2, LimitingBudget::Recorder))
        );
        assert_eq!(spend(&mut budget, now + 5 * MS, cost, NO_CAP), Some(at(1, LimitingBudget::Source)));
        assert_eq!(
            spend(&mut budget, now + 6 * MS, cost, 0),
            Some(at(STRIDE_MAX, LimitingBudget::Recorder)),
            "no CPU time is left"
        );

        // If both limits apply, the stricter limit is named, and the demand is the cost at the rate
        // that the own budget allows.
        let (mut now, mut budget) = (0, SourceBudget::new(100, MS, 0));
        assert_eq!(window(&mut budget, &mut now, cost, 2 * percent), at(2, LimitingBudget::Source));
        assert_eq!(demand(&budget), 3 * percent / 2);
        assert_eq!(window(&mut budget, &mut now, cost, percent), at(3, LimitingBudget::Recorder));
    }

    // Proves that a changed cap applies between two samples, and that it applies only one time.
    #[test]
    fn the_agent_needs_no_reading() {
        let (mut now, mut budget) = (0, SourceBudget::new(10_000, MS, 0));
        window(&mut budget, &mut now, cost(20_000), NO_CAP);
        let change = |verdict: Option<BudgetDecision>| verdict.and_then(|verdict| verdict.change);
        assert_eq!(budget.set_cap(now, NO_CAP), None);
        let longest = StrideChange { stride: STRIDE_MAX, limit: LimitingBudget::Recorder };
        assert_eq!(
            (change(budget.set_cap(now, 1)), budget.current.limit == LimitingBudget::Recorder),
            (Some(longest), true)
        );
        assert_eq!(budget.set_cap(now + 1, 1), None);
        let all = StrideChange { stride: 1, limit: LimitingBudget::Source };
        assert_eq!(
            (change(budget.set_cap(now + 2, NO_CAP)), budget.current.limit == LimitingBudget::Recorder),
            (Some(all), false)
        );
    }

    // Proves that the overhead of a thread is shared among its samples exactly once, even if the
    // thread has no samples or its sources are read on other threads.
    #[test]
    fn overhead_is_shared_out() {
        let mut overhead = Overhead::default();
        let shares: Vec<u64> = (0..10).map(|_| overhead.share(MS)).collect();
        assert_eq!(shares, [0; 10], "not known yet");
        overhead.end_interval(30 * MS);
        assert_eq!(overhead.share(MS), 2 * MS);
        overhead.end_interval(31 * MS);
        assert_eq!(overhead.share(0), 0);
        overhead.end_interval(34 * MS);
        assert_eq!(overhead.share(0), 3 * MS);
    }

    proptest! {
        // Proves that, for any cost, share and period, the returned stride keeps the budget and
        // that the next shorter stride would exceed the budget.
        #[test]
        fn strides_are_as_short_as_can_be(ns in 1..10_000_000_u64, share in 1..=10_000_u32, period in 50_000..NS_PER_S) {
            let mut budget = SourceBudget::new(share, period, 0);
            let mut stride = 1;
            for reading in 1..=WINDOW_SAMPLES {
                let change = spend(&mut budget, NS_PER_S * reading, cost(ns), NO_CAP);
                stride = change.map_or(stride, |change| change.stride);
            }
            let is_within = |stride: u64| {
                u128::from(ns) * u128::from(BASIS_POINTS)
                    <= u128::from(share) * u128::from(period) * u128::from(stride)
            };
            prop_assert!(is_within(stride) || stride == STRIDE_MAX);
            prop_assert!(stride == 1 || !is_within(stride - 1));
        }
    }
}
