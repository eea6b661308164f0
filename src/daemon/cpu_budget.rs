//! Keeps the whole recorder within its CPU budget: updates the CPU governor and publishes its cap.

use crate::config::{CpuShare, RecorderConfig};
use crate::metrics::Metrics;
use crate::os::clock::process_cpu_ns;
use crate::sampling::{Allowance, CpuGovernor, CpuUsage, GOVERN_INTERVAL_NS};

/// The CPU governor and its schedule: one update per second.
#[derive(Debug)]
pub(super) struct CpuBudgetWatch {
    governor: CpuGovernor,
    budget: CpuShare,
    next_ns: u64,
    copies: u64,     // of snapshots, begun until the last update
    is_logged: bool, // logged that the budget cannot be kept
}

impl CpuBudgetWatch {
    /// Creates a watch over these sources.
    pub(super) fn new(recorder: &RecorderConfig, metrics: &Metrics) -> Self {
        let budget = recorder.cpu_budget;
        let governor = CpuGovernor::new(budget.basis_points(), metrics.sources.len());
        Self { governor, budget, next_ns: 0, copies: 0, is_logged: false }
    }

    /// Changes the budget. The cap stays until the next update. Returns whether it is another one.
    pub(super) fn set_budget(&mut self, budget: CpuShare) -> bool {
        let is_another = budget != self.budget;
        if is_another {
            self.governor.set_budget(budget.basis_points());
            (self.budget, self.is_logged) = (budget, false);
        }
        is_another
    }

    /// Updates the cap if one second has passed. While `is_recovering`, or while a snapshot is
    /// copied, CPU time does not count: both are temporary, and no reason to record less of the
    /// time after a crash or an incident.
    pub(super) fn update(&mut self, now_ns: u64, metrics: &Metrics, is_recovering: bool) {
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + GOVERN_INTERVAL_NS;
        let sources_ns = metrics.sources.iter().map(|source| source.spent.get()).sum();
        let process_ns = process_cpu_ns();
        let spent = CpuUsage { now_ns, process_ns, sources_ns };
        let (begun, ended) = (metrics.snapshots.copies_begun.get(), metrics.snapshots.copies_ended.get());
        let has_copied = begun != std::mem::replace(&mut self.copies, begun) || begun != ended;
        if is_recovering || has_copied {
            self.governor.skip_interval(spent);
            return;
        }
        let demands = metrics.sources.iter().map(|source| source.demand.get());
        let allowance = self.governor.update(spent, demands);
        metrics.source_cap.set(match allowance {
            Allowance::All => 0,
            Allowance::Cap(cap) => cap,
            Allowance::Nothing => 1,
        });
        if allowance == Allowance::Nothing && !self.is_logged {
            self.is_logged = true;
            let overhead = self.governor.overhead() / 100_000;
            tracing::warn!(
                "[recorder] cpu_budget = \"{}\": the recorder alone, without any source, takes {}.{:02}%; every source is read at its \
                 longest stride; raise cpu_budget, or record less",
                self.budget,
                overhead / 100,
                overhead % 100
            );
        }
    }
}
