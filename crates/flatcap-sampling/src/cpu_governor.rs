//! The CPU governor throttles sources to keep the whole recorder within its share of the
//! processors. The code is pure, since the caller passes times and costs.
//!
//! Every source gets the same cap, which is the highest cap at which total usage fits the budget.
//! The most expensive sources are therefore throttled first, and sources that cost less than the
//! cap are not affected. CPU time that belongs to no source is called overhead, and the recorder
//! thread uses most of it. This overhead may or may not shrink when the sources do less. The
//! governor considers both cases, so that the cap is neither lowered too far nor raised too far.

use flatcap_os::clock::NS_PER_S;

/// Interval between two updates.
pub const GOVERN_INTERVAL_NS: u64 = NS_PER_S;
/// Target for the CPU usage when a cap is set, in percent of the budget. The cap then stays the
/// same until usage exceeds the whole budget. So the cap does not change with every small
/// fluctuation.
const TARGET_PERCENT: u64 = 95;
/// Time for which a higher cap must have been possible before it is applied.
const RAISE_DELAY_NS: u64 = 10 * NS_PER_S;
/// A higher cap is applied only if it exceeds the current cap by more than 1 / `RISE_PART` of the
/// current cap.
const RISE_PART: u64 = 20;
/// If the sources use at most 1 / `NEGLIGIBLE_PART` of the overhead, throttling them does not help.
const NEGLIGIBLE_PART: u64 = 20;

/// CPU usage accumulated up to one point in time.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_field_names, reason = "the unit")]
pub struct CpuUsage {
    /// Monotonic time, in nanoseconds.
    pub now_ns: u64,
    /// Processor time of the process, in nanoseconds.
    pub process_ns: u64,
    /// The part of `process_ns` that belongs to sources, in nanoseconds.
    pub sources_ns: u64,
}

/// CPU time that the sources may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// Sources may use as much as their own budgets allow.
    All,
    /// Each source may use at most this many nanoseconds of a core per second. The value is at
    /// least 1.
    Cap(u64),
    /// Sources may use no CPU time, because the overhead alone uses the whole budget.
    Nothing,
}

/// CPU usage in one interval, in nanoseconds of a core per second.
#[derive(Debug, Clone, Copy)]
struct IntervalUsage {
    used: u64,     // by the process
    overhead: u64, // <= used
}

/// Usage that exceeded the budget, in nanoseconds of a core per second.
#[derive(Debug, Clone, Copy)]
struct BudgetExcess {
    sources: u64, // by the sources
    used: u64,    // by the process
}

/// Keeps one budget.
#[derive(Debug)]
pub struct CpuGovernor {
    budget: u64, // in nanoseconds per second, > 0
    before: Option<CpuUsage>,
    last_interval: Option<IntervalUsage>, // of the last interval, unless the cap has changed since it began
    allowance: Allowance,
    raise_since: Option<(u64, Allowance)>, // when a rise became possible, and the lowest new cap
    excess: Option<BudgetExcess>,          // the last excess, unless the cap has risen since
    demands: Vec<u64>,                     // reused; sorted in ascending order while in use
}

impl CpuGovernor {
    /// Creates a governor for this many sources with a budget in basis points of a core.
    pub fn new(basis_points: u32, sources: usize) -> Self {
        Self {
            budget: u64::from(basis_points).max(1) * (NS_PER_S / 10_000),
            before: None,
            last_interval: None,
            allowance: Allowance::All,
            raise_since: None,
            excess: None,
            demands: Vec::with_capacity(sources),
        }
    }

    /// Sets the budget, in basis points of a core. The cap itself changes only at later updates.
    pub fn set_budget(&mut self, basis_points: u32) {
        self.budget = u64::from(basis_points).max(1) * (NS_PER_S / 10_000);
        self.raise_since = None;
        self.excess = None;
    }

    /// Returns the CPU time that belonged to no source in the last interval, in nanoseconds of a
    /// core per second.
    pub fn overhead(&self) -> u64 {
        self.last_interval.map_or(0, |seen| seen.overhead)
    }

    /// Ignores the CPU time that was used since the last call. This is meant for intervals with
    /// temporary work.
    pub fn skip_interval(&mut self, spent: CpuUsage) {
        self.before = Some(spent);
        self.last_interval = None;
    }

    /// Compares the CPU time used since the last call with the budget. `demands` is the cost of
    /// each source per second at the rate that its own budget allows. Returns the new allowance of
    /// the sources.
    pub fn update(&mut self, spent: CpuUsage, demands: impl Iterator<Item = u64>) -> Allowance {
        let Some(before) = self.before.replace(spent) else { return self.allowance };
        let elapsed_ns = spent.now_ns.saturating_sub(before.now_ns).max(1);
        let process_ns = spent.process_ns.saturating_sub(before.process_ns);
        let sources_ns = spent.sources_ns.saturating_sub(before.sources_ns);
        let per_second = |ns: u64| scaled(ns, NS_PER_S, elapsed_ns);
        let usage = IntervalUsage {
            used: per_second(process_ns),
            overhead: per_second(process_ns.saturating_sub(sources_ns)),
        };
        // The usage of two intervals decides. So neither one second of compressing and syncing nor
        // an interval in which a change takes effect can decide alone.
        let Some(last) = self.last_interval.replace(usage) else { return self.allowance };
        self.demands.clear();
        self.demands.extend(demands);
        self.demands.sort_unstable();
        let allowance = if last.used.min(usage.used) > self.budget {
            self.raise_since = None;
            self.lower_cap(IntervalUsage {
                used: last.used.min(usage.used),
                overhead: last.overhead.min(usage.overhead),
            })
        } else {
            self.excess = None;
            self.raise_cap(
                IntervalUsage {
                    used: last.used.max(usage.used),
                    overhead: last.overhead.max(usage.overhead),
                },
                spent.now_ns,
            )
        };
        if allowance != self.allowance {
            self.allowance = allowance;
            self.last_interval = (allowance == Allowance::Nothing).then_some(usage);
        }
        allowance
    }

    /// Lowers the cap after the budget was exceeded. Each value of `usage` is the lower of its
    /// values in the last two intervals. The function first assumes that the overhead shrinks with
    /// the sources. If usage is still too high two seconds later, the function uses the reduction
    /// that it has measured since then.
    fn lower_cap(&mut self, usage: IntervalUsage) -> Allowance {
        let now = BudgetExcess { sources: total_usage(&self.demands, self.allowance), used: usage.used };
        let before = self.excess.replace(now);
        if usage.overhead >= self.budget && now.sources <= usage.overhead / NEGLIGIBLE_PART {
            return Allowance::Nothing;
        }
        let upper = scaled(now.sources, self.target(), now.used);
        let lower = self.target().saturating_sub(usage.overhead).min(upper);
        let available =
            before.map_or(upper, |before| now.extrapolate(before, self.target()).clamp(lower, upper));
        match fill(&self.demands, available) {
            Allowance::Nothing => Allowance::Cap(1),
            allowance => allowance,
        }
        .min(self.allowance)
    }

    /// Raises the cap, if possible, while the process stays within its budget. Each value of
    /// `usage` is the higher of its values in the last two intervals. The function assumes that the
    /// overhead either stays constant or grows with the sources, whichever leaves less CPU time.
    fn raise_cap(&mut self, usage: IntervalUsage, now_ns: u64) -> Allowance {
        let taken = total_usage(&self.demands, self.allowance);
        let mut available = self.target().saturating_sub(usage.overhead);
        if taken > 0 {
            available = available.min(scaled(taken, self.target(), usage.used));
        }
        let more = fill(&self.demands, available);
        if !more.is_clearly_above(self.allowance) {
            self.raise_since = None;
            return self.allowance;
        }
        let (since_ns, least) = self.raise_since.unwrap_or((now_ns, more));
        let least = least.min(more);
        if now_ns.saturating_sub(since_ns) < RAISE_DELAY_NS {
            self.raise_since = Some((since_ns, least));
            return self.allowance;
        }
        self.raise_since = None;
        least
    }

    fn target(&self) -> u64 {
        self.budget / 100 * TARGET_PERCENT
    }
}

impl BudgetExcess {
    /// Returns the CPU time that the sources may use if the process is to use `aim`. The value is
    /// extrapolated from the change between `before` and now (a secant).
    fn extrapolate(self, before: Self, aim: u64) -> u64 {
        let (less_taken, less_used) =
            (before.sources.saturating_sub(self.sources), before.used.saturating_sub(self.used));
        if less_used == 0 {
            return 0; // Throttling the sources has not helped.
        }
        self.sources.saturating_sub(scaled(self.used.saturating_sub(aim), less_taken, less_used))
    }
}

/// Returns `value * by / of`, saturated.
fn scaled(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

/// Returns the highest cap at which these demands, sorted in ascending order, use at most
/// `available`.
fn fill(demands: &[u64], available: u64) -> Allowance {
    let mut remaining = available;
    for (done, demand) in demands.iter().enumerate() {
        let cap = remaining / u64::try_from(demands.len() - done).unwrap_or(u64::MAX);
        if *demand > cap {
            return if cap == 0 { Allowance::Nothing } else { Allowance::Cap(cap) };
        }
        remaining -= demand;
    }
    Allowance::All
}

/// Returns the total usage of sources with these demands under this allowance.
fn total_usage(demands: &[u64], allowance: Allowance) -> u64 {
    let cap = allowance.cap();
    demands.iter().fold(0, |sum: u64, demand| sum.saturating_add(*demand.min(&cap)))
}

impl Allowance {
    /// Returns the cap in nanoseconds of a core per second.
    fn cap(self) -> u64 {
        match self {
            Self::All => u64::MAX,
            Self::Cap(cap) => cap,
            Self::Nothing => 0,
        }
    }

    fn min(self, other: Self) -> Self {
        if self.cap() < other.cap() { self } else { other }
    }

    fn is_clearly_above(self, other: Self) -> bool {
        self.cap() > other.cap().saturating_add(other.cap() / RISE_PART)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERCENT: u64 = NS_PER_S / 100;

    /// A simulated process whose sources use, in each second, as much CPU time as they are allowed
    /// to use.
    struct SimulatedProcess {
        governor: CpuGovernor,
        spent: CpuUsage,
        follows: u64, // overhead that follows the sources' usage, in percent of that usage
    }

    impl SimulatedProcess {
        fn new(basis_points: u32) -> Self {
            let spent = CpuUsage { now_ns: 0, process_ns: 0, sources_ns: 0 };
            let mut governor = CpuGovernor::new(basis_points, 8);
            governor.update(spent, [].into_iter());
            Self { governor, spent, follows: 0 }
        }

        /// Runs the process for this many seconds, with `rest` as the constant part of the
        /// overhead.
        fn run(&mut self, seconds: u64, rest: u64, demands: &[u64]) -> Allowance {
            for _ in 0..seconds {
                let sources = total_usage(demands, self.governor.allowance);
                self.spent.now_ns += NS_PER_S;
                self.spent.process_ns += sources + sources * self.follows / 100 + rest;
                self.spent.sources_ns += sources;
                self.governor.update(self.spent, demands.iter().copied());
            }
            self.governor.allowance
        }

        /// Returns the current total usage per second.
        fn usage(&self, rest: u64, demands: &[u64]) -> u64 {
            let sources = total_usage(demands, self.governor.allowance);
            sources + sources * self.follows / 100 + rest
        }
    }

    // Proves that the most expensive sources are throttled first and that sources below the cap are
    // not throttled. The budget is 20 % of a core. The overhead is 1 % of a core.
    #[test]
    fn the_most_expensive_are_throttled_first() {
        let mut process = SimulatedProcess::new(2_000);
        let some = [PERCENT, 2 * PERCENT, 3 * PERCENT];
        assert_eq!(process.run(60, PERCENT, &some), Allowance::All);
        let with_one = [PERCENT, 2 * PERCENT, 40 * PERCENT];
        let Allowance::Cap(cap) = process.run(2, PERCENT, &with_one) else { panic!() };
        assert!((15 * PERCENT..=16 * PERCENT).contains(&cap), "{cap}");
        let with_two = [PERCENT, 50 * PERCENT, 40 * PERCENT];
        let Allowance::Cap(cap) = process.run(3, PERCENT, &with_two) else { panic!() };
        assert!((17 * PERCENT / 2..=9 * PERCENT).contains(&cap), "{cap}");
    }

    // Proves that the cap rises after ten seconds of low usage, and not earlier.
    #[test]
    fn the_cap_rises_after_a_delay() {
        let mut process = SimulatedProcess::new(2_000);
        let cap = process.run(2, 0, &[40 * PERCENT]);
        assert_eq!(cap, Allowance::Cap(19 * PERCENT));
        assert_eq!(process.run(5, 0, &[PERCENT]), cap);
        assert_eq!(process.run(1, 0, &[40 * PERCENT]), cap);
        assert_eq!(process.run(10, 0, &[PERCENT]), cap);
        assert_eq!(process.run(2, 0, &[PERCENT]), Allowance::All);
    }

    // Proves that the cap does not follow small fluctuations of the demands.
    #[test]
    fn the_cap_ignores_fluctuations() {
        let mut process = SimulatedProcess::new(2_000);
        let mut allowances: Vec<Allowance> = (0..60)
            .map(|second| process.run(1, PERCENT, &[(96 + second % 5) * PERCENT / 10, 40 * PERCENT]))
            .collect();
        allowances.dedup();
        assert_eq!(allowances.len(), 2, "{allowances:?}");
    }

    // Proves that one busy second does not throttle the sources, but that a lasting overhead beyond
    // the budget stops the sources. After the overhead ends, the sources start again. Skipped
    // intervals do not count.
    #[test]
    fn lasting_overhead_stops_sources() {
        let mut process = SimulatedProcess::new(5_000);
        assert_eq!(process.run(30, PERCENT, &[10 * PERCENT]), Allowance::All);
        assert_eq!(process.run(1, 100 * PERCENT, &[10 * PERCENT]), Allowance::All);
        assert_eq!(process.run(1, PERCENT, &[10 * PERCENT]), Allowance::All);
        assert_eq!(process.run(6, 100 * PERCENT, &[10 * PERCENT]), Allowance::Nothing);
        assert_eq!(process.governor.overhead(), 100 * PERCENT);
        assert_eq!(process.run(30, PERCENT, &[10 * PERCENT]), Allowance::All);
        for _ in 0..3 {
            process.spent.now_ns += NS_PER_S;
            process.spent.process_ns += 1_000 * NS_PER_S;
            process.governor.skip_interval(process.spent);
        }
        assert_eq!(process.run(2, PERCENT, &[10 * PERCENT]), Allowance::All);
    }

    // Proves that overhead caused by the sources does not stop them. The governor finds the cap in
    // one step and keeps it, although each second of the sources causes one second of overhead.
    #[test]
    fn overhead_of_sources_shrinks_with_them() {
        let mut process = SimulatedProcess { follows: 100, ..SimulatedProcess::new(500) };
        let cap = process.run(2, 0, &[40 * PERCENT]);
        assert_eq!(cap, Allowance::Cap(19 * PERCENT / 8));
        assert_eq!(process.run(60, 0, &[40 * PERCENT]), cap);
    }

    proptest! {
        // Proves that, for any demands and any available time, the total usage under the returned
        // cap fits, and that the usage under a higher cap would not fit.
        #[test]
        fn the_cap_is_the_highest_that_fits(
            mut demands in proptest::collection::vec(0_u64..2 * NS_PER_S, 0..20),
            available in 0_u64..4 * NS_PER_S,
        ) {
            demands.sort_unstable();
            let allowance = fill(&demands, available);
            prop_assert!(total_usage(&demands, allowance) <= available);
            if allowance != Allowance::All {
                let more = Allowance::Cap(allowance.cap() + 1);
                prop_assert!(total_usage(&demands, more) > available);
            }
        }

        // Proves that, some time after any change of the demands, the process stays within the
        // budget or the sources are stopped. After that, most of the budget is used.
        #[test]
        fn the_budget_is_kept_and_used(
            budget in 10_u32..100_000,
            rest in 0_u64..NS_PER_S,
            follows in 0_u64..300,
            demands in proptest::collection::vec(proptest::collection::vec(0_u64..2 * NS_PER_S, 8), 2),
        ) {
            let mut process = SimulatedProcess { follows, ..SimulatedProcess::new(budget) };
            let budget = u64::from(budget) * (NS_PER_S / 10_000);
            for demands in demands {
                let allowance = process.run(60, rest, &demands);
                let takes = process.usage(rest, &demands);
                prop_assert!(takes <= budget || total_usage(&demands, allowance) <= rest / NEGLIGIBLE_PART, "{takes} of {budget}");
                let allowance = process.run(600, rest, &demands);
                let takes = process.usage(rest, &demands);
                let is_used = allowance == Allowance::All || takes >= budget / 100 * 85;
                prop_assert!(is_used || allowance == Allowance::Nothing, "{takes} of {budget}, {allowance:?}");
            }
        }
    }
}
