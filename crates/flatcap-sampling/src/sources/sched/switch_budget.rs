//! The budget of context switches. The kernel records a switch on the CPU time of the switching
//! threads, so a longer period of the source would save nothing. If the budget is exceeded,
//! recording stops for a while. The code is pure, since times are passed in.

use flatcap_os::clock::NS_PER_S;

/// Time over which costs are added up and compared with the budget.
const WINDOW_NS: u64 = NS_PER_S;
/// Time for which switches are not recorded after they exceeded the budget.
pub(super) const STOP_NS: u64 = 10 * NS_PER_S;
/// Basis points in one core.
const BASIS_POINTS: u64 = 10_000;

/// The action that the costs require.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BudgetStep {
    /// Stop recording switches.
    Stop {
        /// Cost of the switches in the last second, in basis points of a core.
        share: u64,
        /// Whether the switches have been within the budget at any time since the last stop.
        is_new: bool,
    },
    /// Start to record switches again.
    Resume,
    /// Switches have been within the budget for a second since their recording was last stopped.
    Recovered,
}

/// The budget of one source.
#[derive(Debug)]
pub(super) struct SwitchBudget {
    share: u64, // in basis points of a core
    window_ns: u64,
    spent_ns: u64, // cost since `window_ns`
    stopped_since_ns: Option<u64>,
    stopped_ns: u64, // total stopped time, without the current stop
    is_over: bool,   // whether the last window with switches exceeded the budget
}

impl SwitchBudget {
    /// Creates a budget in basis points of a core. The first window begins at `now_ns`.
    pub(super) fn new(share: u32, now_ns: u64) -> Self {
        Self {
            share: u64::from(share),
            window_ns: now_ns,
            spent_ns: 0,
            stopped_since_ns: None,
            stopped_ns: 0,
            is_over: false,
        }
    }

    /// Returns the total time until `end_ns` for which the recording of switches was stopped, and
    /// whether it is stopped at `end_ns`.
    pub(super) fn stopped(&self, end_ns: u64) -> (u64, bool) {
        match self.stopped_since_ns {
            Some(since_ns) => (self.stopped_ns + end_ns.saturating_sub(since_ns), since_ns < end_ns),
            None => (self.stopped_ns, false),
        }
    }

    /// Adds the costs of a sample that was built at `now_ns`.
    pub(super) fn spend(&mut self, now_ns: u64, cost_ns: u64) -> Option<BudgetStep> {
        if let Some(since_ns) = self.stopped_since_ns {
            let stopped_ns = now_ns.saturating_sub(since_ns);
            if stopped_ns < STOP_NS {
                return None;
            }
            self.stopped_ns += stopped_ns;
            self.stopped_since_ns = None;
            (self.window_ns, self.spent_ns) = (now_ns, 0);
            return Some(BudgetStep::Resume);
        }
        self.spent_ns = self.spent_ns.saturating_add(cost_ns);
        let elapsed_ns = now_ns.saturating_sub(self.window_ns);
        if elapsed_ns < WINDOW_NS {
            return None;
        }
        let share = u128::from(self.spent_ns) * u128::from(BASIS_POINTS) / u128::from(elapsed_ns);
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        (self.window_ns, self.spent_ns) = (now_ns, 0);
        let was_over = std::mem::replace(&mut self.is_over, share > self.share);
        if self.is_over {
            self.stopped_since_ns = Some(now_ns);
            return Some(BudgetStep::Stop { share, is_new: !was_over });
        }
        was_over.then_some(BudgetStep::Recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Charges `cost_ns` to the budget every 10 ms, for at most 20 s. Returns the first step and
    /// its time.
    fn until_step(budget: &mut SwitchBudget, now_ns: &mut u64, cost_ns: u64) -> Option<BudgetStep> {
        for _ in 0..2_000 {
            *now_ns += 10 * MS;
            let step = budget.spend(*now_ns, cost_ns);
            if step.is_some() {
                return step;
            }
        }
        None
    }

    // Proves that switches within the budget are recorded, and that switches beyond the budget stop
    // the recording after one second, for ten seconds. The stopped time is counted, and a stop is
    // new only after the switches were within the budget.
    #[test]
    fn switches_stop_and_resume() {
        let (mut now, mut budget) = (0, SwitchBudget::new(500, 0));
        assert_eq!(until_step(&mut budget, &mut now, MS / 2), None);
        now = now.next_multiple_of(NS_PER_S);
        let begin = now;
        let stop = until_step(&mut budget, &mut now, MS);
        assert_eq!(stop, Some(BudgetStep::Stop { share: 1_000, is_new: true }));
        assert_eq!((now - begin, budget.stopped(now)), (NS_PER_S, (0, false)));
        assert_eq!(budget.stopped(now + 7), (7, true));
        assert_eq!(budget.stopped(now - 7), (0, false));
        let stopped_ns = now;
        assert_eq!(until_step(&mut budget, &mut now, 0), Some(BudgetStep::Resume));
        assert_eq!((now - stopped_ns, budget.stopped(now)), (STOP_NS, (STOP_NS, false)));
        let stop = until_step(&mut budget, &mut now, MS);
        assert_eq!(stop, Some(BudgetStep::Stop { share: 1_000, is_new: false }));
        assert_eq!(until_step(&mut budget, &mut now, 0), Some(BudgetStep::Resume));
        assert_eq!(until_step(&mut budget, &mut now, MS / 2), Some(BudgetStep::Recovered));
        assert_eq!(until_step(&mut budget, &mut now, MS / 2), None);
        assert_eq!(budget.stopped(now), (2 * STOP_NS, false));
    }

    // Proves that extreme times and costs cause no overflow.
    #[test]
    fn extremes_do_not_overflow() {
        let mut budget = SwitchBudget::new(u32::MAX, u64::MAX);
        assert_eq!(budget.spend(0, u64::MAX), None);
        let mut budget = SwitchBudget::new(0, 0);
        assert_eq!(budget.spend(NS_PER_S - 1, u64::MAX), None);
        assert!(matches!(budget.spend(u64::MAX, u64::MAX), Some(BudgetStep::Stop { .. })));
        assert_eq!(budget.spend(0, u64::MAX), None);
        assert_eq!(budget.stopped(0), (0, false));
    }
}
