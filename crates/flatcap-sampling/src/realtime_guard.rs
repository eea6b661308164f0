//! Bounds the share of a CPU that a thread uses with real-time priority (a token bucket).
//!
//! A thread with real-time priority precedes all ordinary work. A source that takes longer than
//! expected must not take a CPU from the host. So a thread that has used its share continues with
//! ordinary priority until it has credit again.

use flatcap_metrics::GroupMetrics;
use flatcap_os::clock::{monotonic_ns, thread_cpu_ns};
use flatcap_os::thread;

use super::thread_settings::ThreadSettings;

/// Interval at which the CPU time of the thread is compared with its share, in nanoseconds.
const CHECK_NS: u64 = 10_000_000;
/// Time of which a thread may use its share at once, in nanoseconds.
const BURST_NS: u64 = 1_000_000_000;

/// Compares the CPU time of the calling thread with its share, and changes its priority.
#[derive(Debug)]
pub(super) struct RealtimeGuard {
    credit: RealtimeCredit,
    due_ns: u64,
    cpu_ns: u64,
}

impl RealtimeGuard {
    /// Begins to bound the real-time priority of the calling thread. Returns `None` if the thread
    /// has no such priority.
    pub(super) fn begin(has_priority: bool, thread: &ThreadSettings, metrics: &GroupMetrics) -> Option<Self> {
        metrics.realtime.set(has_priority.into());
        let now_ns = monotonic_ns();
        let credit = RealtimeCredit::new(thread.realtime_share, now_ns);
        has_priority.then(|| Self { credit, due_ns: now_ns + CHECK_NS, cpu_ns: thread_cpu_ns() })
    }

    /// If a check is due, compares the CPU time of the thread with its share, and changes the
    /// priority if necessary.
    #[inline]
    pub(super) fn check(guard: Option<&mut Self>, now_ns: u64, priority: u8, metrics: &GroupMetrics) {
        if let Some(guard) = guard.filter(|guard| now_ns >= guard.due_ns) {
            guard.compare(now_ns, priority, metrics);
        }
    }

    /// Compares the CPU time with the share. If the kernel refuses to change the priority, the next
    /// check tries it again.
    #[cold]
    fn compare(&mut self, now_ns: u64, priority: u8, metrics: &GroupMetrics) {
        let cpu_ns = thread_cpu_ns();
        let used_ns = cpu_ns.saturating_sub(std::mem::replace(&mut self.cpu_ns, cpu_ns));
        self.due_ns = now_ns + CHECK_NS;
        self.credit.spend(now_ns, used_ns);
        let wanted = self.credit.wants_priority();
        if wanted == self.credit.has_priority {
            return;
        }
        let changed =
            if wanted { thread::set_realtime_priority(priority) } else { thread::drop_realtime_priority() };
        if changed.is_ok() {
            self.credit.has_priority = wanted;
            metrics.realtime.set(wanted.into());
            metrics.realtime_yields.add(u64::from(!wanted));
        }
    }
}

/// The credit of one thread. The caller passes times.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RealtimeCredit {
    /// Share of a CPU, in basis points.
    basis_points: u32,
    /// CPU time that may still be used with real-time priority. It is negative if the thread has
    /// used more.
    credit_ns: i64,
    last_ns: u64,
    has_priority: bool,
}

impl RealtimeCredit {
    /// Returns the full credit of a thread that has real-time priority at `now_ns`.
    fn new(basis_points: u32, now_ns: u64) -> Self {
        let mut share = Self { basis_points, credit_ns: 0, last_ns: now_ns, has_priority: true };
        share.credit_ns = share.most_ns();
        share
    }

    /// Counts the CPU time that the thread has used since the last call.
    fn spend(&mut self, now_ns: u64, used_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        let earned_ns = share_of(elapsed_ns, self.basis_points);
        let spent_ns = if self.has_priority { i64::try_from(used_ns).unwrap_or(i64::MAX) } else { 0 };
        let credit_ns = self.credit_ns.saturating_add(earned_ns).min(self.most_ns());
        self.credit_ns = credit_ns.saturating_sub(spent_ns);
    }

    /// Returns whether the thread may have real-time priority now.
    fn wants_priority(&self) -> bool {
        // The priority returns only with half of the credit, so that it seldom changes.
        let least_ns = if self.has_priority { 0 } else { self.most_ns() / 2 };
        self.credit_ns > least_ns
    }

    fn most_ns(&self) -> i64 {
        share_of(BURST_NS, self.basis_points)
    }
}

/// Returns a share of a time, in nanoseconds.
fn share_of(ns: u64, basis_points: u32) -> i64 {
    let share = u128::from(ns) * u128::from(basis_points) / 10_000;
    i64::try_from(share).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    // Proves that a thread within its share keeps its priority, and that a thread above it loses
    // the priority and gets it back.
    #[test]
    fn a_thread_above_its_share_yields() {
        let mut credit = RealtimeCredit::new(1_000, 0);
        let mut spend = |now_ns, used_ns| {
            credit.spend(now_ns, used_ns);
            credit.has_priority = credit.wants_priority();
            credit.has_priority
        };
        assert!((1..1_000).all(|tick| spend(tick * 10 * MS, MS)), "a tenth is the share");
        assert!(!spend(10_000 * MS, 500 * MS));
        assert!(!spend(10_010 * MS, 10 * MS), "used with ordinary priority");
        assert!(spend(20_000 * MS, 0));
    }

    proptest! {
        // Proves that with any ticks a thread uses at most its share, the credit of one second and
        // one tick with real-time priority.
        #[test]
        fn the_share_is_never_exceeded(
            basis_points in 1..5_000_u32,
            ticks in prop::collection::vec((1..200_u64, 0..200_u64), 1..300),
        ) {
            let (mut credit, mut now_ns, mut used_ns) = (RealtimeCredit::new(basis_points, 0), 0, 0);
            let mut longest_ns = 0;
            for (period_ms, busy_ms) in ticks {
                let busy_ns = busy_ms.min(period_ms) * MS;
                now_ns += period_ms * MS;
                used_ns += if credit.has_priority { busy_ns } else { 0 };
                longest_ns = longest_ns.max(busy_ns);
                credit.spend(now_ns, busy_ns);
                credit.has_priority = credit.wants_priority();
                let most = share_of(now_ns + BURST_NS, basis_points).unsigned_abs() + longest_ns;
                prop_assert!(used_ns <= most + 1_000, "{used_ns} {most}");
            }
        }
    }
}
