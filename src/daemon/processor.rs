//! Sees to it that the whole agent keeps its budget: the one who asks the governor, and publishes what it says.

use crate::config::{Agent, CpuShare};
use crate::metrics::Metrics;
use crate::os::clock::process_cpu_ns;
use crate::sampling::{Allowance, GOVERN_INTERVAL_NS, Governor, Spent};

/// Looks once a second.
#[derive(Debug)]
pub(super) struct ProcessorWatch {
    governor: Governor,
    budget: CpuShare,
    next_ns: u64,
    is_said: bool, // that the budget cannot be kept
}

impl ProcessorWatch {
    /// Watches over these sources from now on.
    pub(super) fn new(agent: &Agent, metrics: &Metrics) -> Self {
        let budget = agent.cpu_budget;
        let governor = Governor::new(budget.basis_points(), metrics.sources.len());
        Self { governor, budget, next_ns: 0, is_said: false }
    }

    /// Keeps another budget from now on. What sources are left stays until it has looked.
    pub(super) fn set_budget(&mut self, budget: CpuShare) {
        if budget != self.budget {
            self.governor.set_budget(budget.basis_points());
            (self.budget, self.is_said) = (budget, false);
        }
    }

    /// If it is time to look. While `is_recovering`, what the process takes does not count: that will end, and it is no reason to record
    /// less of what comes after a crash.
    pub(super) fn look(&mut self, now_ns: u64, metrics: &Metrics, is_recovering: bool) {
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + GOVERN_INTERVAL_NS;
        let sources_ns = metrics.sources.iter().map(|source| source.spent.get()).sum();
        let process_ns = process_cpu_ns();
        let spent = Spent { now_ns, process_ns, sources_ns };
        if is_recovering {
            self.governor.pass_over(spent);
            return;
        }
        let demands = metrics.sources.iter().map(|source| source.demand.get());
        let allowance = self.governor.judge(spent, demands);
        metrics.source_cap.set(match allowance {
            Allowance::All => 0,
            Allowance::Cap(cap) => cap,
            Allowance::Nothing => 1,
        });
        if allowance == Allowance::Nothing && !self.is_said {
            self.is_said = true;
            let takes = self.governor.rest() / 100_000;
            tracing::warn!(
                "[agent] cpu_budget = \"{}\": recording alone, without any source, takes {}.{:02}%; every source is read as \
                 rarely as can be; raise cpu_budget, or record less",
                self.budget,
                takes / 100,
                takes % 100
            );
        }
    }
}
