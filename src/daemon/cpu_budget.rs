//! Keeps the whole recorder within its CPU budget. Updates the CPU governor and makes its cap
//! visible to the samplers.

use flatcap_metrics::Metrics;
use flatcap_os::clock::process_cpu_ns;
use flatcap_sampling::{Allowance, CpuGovernor, CpuUsage, GOVERN_INTERVAL_NS};

use crate::config::{CpuShare, RecorderConfig};

/// The CPU governor and the time of its next update. There is one update per second.
#[derive(Debug)]
pub(super) struct CpuBudgetWatch {
    governor: CpuGovernor,
    budget: CpuShare,
    next_ns: u64,
    before: UsageTotals, // as of the last update
    shared_ns: u64,      // what other threads have used for pushed frames
    copies: u64,         // of snapshots, begun until the last update
    is_logged: bool,     // logged that the budget cannot be kept
}

/// CPU time and bytes of the process.
#[derive(Debug, Clone, Copy, Default)]
struct UsageTotals {
    process_ns: u64, // CPU time
    sources_ns: u64, // the part of the host's sources
    pushes_ns: u64,  // the part of pushes that is known
    host_bytes: u64, // of frames
    pushed_bytes: u64,
}

impl UsageTotals {
    fn of(metrics: &Metrics) -> Self {
        let mut usage =
            Self { process_ns: process_cpu_ns(), pushes_ns: metrics.push.cpu_ns.get(), ..Self::default() };
        for source in metrics.sources.iter() {
            usage.sources_ns += source.spent.get();
            let bytes = if source.is_pushed() { &mut usage.pushed_bytes } else { &mut usage.host_bytes };
            *bytes += source.bytes.get();
        }
        usage
    }

    /// Returns the share of pushed frames in the common CPU time since `before`. Common CPU time,
    /// for example for syncing and compressing, is not caused by sources or pushes alone. It is
    /// divided in proportion to the bytes that were written.
    fn pushes_part_ns(&self, before: &Self) -> u64 {
        let since = |value: fn(&Self) -> u64| value(self).saturating_sub(value(before));
        let (pushed, host) = (since(|usage| usage.pushed_bytes), since(|usage| usage.host_bytes));
        let known_ns = since(|usage| usage.sources_ns).saturating_add(since(|usage| usage.pushes_ns));
        let rest_ns = since(|usage| usage.process_ns).saturating_sub(known_ns);
        let part = u128::from(rest_ns) * u128::from(pushed) / (u128::from(pushed) + u128::from(host)).max(1);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl CpuBudgetWatch {
    /// Creates a watch with the CPU budget of the configuration.
    pub(super) fn new(recorder: &RecorderConfig, metrics: &Metrics) -> Self {
        let budget = recorder.cpu_budget;
        let governor = CpuGovernor::new(budget.basis_points(), metrics.sources.len());
        Self {
            governor,
            budget,
            next_ns: 0,
            before: UsageTotals::default(),
            shared_ns: 0,
            copies: 0,
            is_logged: false,
        }
    }

    /// Changes the budget. The cap stays until the next update. Returns whether the new budget
    /// differs from the old one.
    pub(super) fn set_budget(&mut self, budget: CpuShare) -> bool {
        let is_another = budget != self.budget;
        if is_another {
            self.governor.set_budget(budget.basis_points());
            (self.budget, self.is_logged) = (budget, false);
        }
        is_another
    }

    /// Updates the cap if one second has passed since the last update. CPU time of pushes does not
    /// count. Pushes have their own budget, so that applications cannot slow down the host's
    /// sources. While `is_recovering` is true, or while a snapshot is copied, CPU time does not
    /// count either. Both are temporary, and they are no reason to record less after a crash or an
    /// incident.
    pub(super) fn update(&mut self, now_ns: u64, metrics: &Metrics, is_recovering: bool) {
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + GOVERN_INTERVAL_NS;
        let usage = UsageTotals::of(metrics);
        self.shared_ns += usage.pushes_part_ns(&self.before);
        self.before = usage;
        let process_ns = usage.process_ns.saturating_sub(usage.pushes_ns + self.shared_ns);
        let sources_ns = usage.sources_ns;
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

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the CPU time of shared threads is divided in proportion to the bytes written, and
    // that nothing is counted twice. Also proves that all of it counts for the host if no frames
    // are pushed.
    #[test]
    fn what_is_shared_is_divided_by_bytes() {
        let usage = |process_ns, sources_ns, pushes_ns, host_bytes, pushed_bytes| UsageTotals {
            process_ns,
            sources_ns,
            pushes_ns,
            host_bytes,
            pushed_bytes,
        };
        let before = usage(1000, 100, 10, 5000, 0);
        for (now, part) in [
            (usage(2000, 300, 210, 5100, 300), 450),
            (usage(2000, 300, 210, 5100, 0), 0),
            (usage(2000, 300, 210, 5000, 300), 600),
            (usage(2000, 900, 810, 5100, 300), 0),
            (usage(1000, 100, 10, 5000, 0), 0),
            (usage(u64::MAX, 100, 10, 5000, u64::MAX), u64::MAX - 1000),
        ] {
            assert_eq!(now.pushes_part_ns(&before), part, "{now:?}");
        }
    }
}
