//! A snapshot that was requested but is not complete yet. This module holds the requests of the
//! snapshot, and the time at which to copy the window.

use flatcap_os::host_log::{HostLog, LogWindow};

use super::order::{OrderId, SnapshotOrder};
use super::ring_segment::RingSegment;

/// Maximum length of the combined window of joined requests, in nanoseconds. The length is
/// sufficient for an hour before a rule fires, plus the longest episode of the rule. A request that
/// would exceed this length gets a separate snapshot. Otherwise further requests could postpone the
/// completion of the snapshot forever.
const JOINED_NS_MAX: u64 = 4_200_000_000_000;
/// Maximum number of attempts to copy a window. Several attempts are made, because a failure may be
/// temporary, such as a full disk.
const COPY_ATTEMPTS_MAX: u32 = 6;
/// Delay between the first and the second attempt, in nanoseconds. Each further delay is twice as
/// long as the previous delay, so the last attempt is 31 s after the first attempt. During this
/// time, segments that the ring has removed stay in memory.
const COPY_RETRY_NS: u64 = 1_000_000_000;

/// A snapshot whose window has not ended or is not copied yet.
#[derive(Debug, Default)]
pub(super) struct PendingSnapshot {
    /// The requests of this run. The list is empty for a snapshot of an earlier run, which cannot
    /// be extended.
    pub(super) ids: Vec<OrderId>,
    pub(super) orders: Vec<SnapshotOrder>,
    /// Name of the snapshot's directory.
    pub(super) name: String,
    pub(super) run_id: u64,
    /// Offset that is added to monotonic time to get wall time, in nanoseconds.
    pub(super) wall_offset_ns: i64,
    /// The window in monotonic nanoseconds, including both ends.
    pub(super) window: (u64, u64),
    /// The open segment files that the window needs. The files stay readable even if the ring
    /// removes their segments before the window is copied.
    pub(super) held: Vec<RingSegment>,
    /// The failed attempts to copy the window.
    pub(super) failed: FailedAttempts,
}

/// Failed attempts to copy a window.
#[derive(Debug, Default)]
pub(super) struct FailedAttempts {
    count: u32,
    retry_ns: u64, // when the next one is made, in monotonic nanoseconds
}

impl PendingSnapshot {
    /// Returns whether a request with this window and user joins this snapshot.
    pub(super) fn joins(&self, window: (u64, u64), user: Option<u32>) -> bool {
        if self.orders.first().is_none_or(|first| first.user != user) {
            return false;
        }
        let (first, last) = self.window;
        let is_short = last.max(window.1).saturating_sub(first.min(window.0)) <= JOINED_NS_MAX;
        first <= window.1 && window.0 <= last && is_short
    }

    /// Returns the time at which to copy the window. The last samples of the window are in the ring
    /// at the latest `settle_ns` after the end of the window.
    pub(super) fn due_ns(&self, settle_ns: u64) -> u64 {
        self.window.1.saturating_add(settle_ns).max(self.failed.retry_ns)
    }

    /// Records a failed attempt to copy the window. Returns the time until the next attempt, in
    /// nanoseconds, or `None` after the last attempt.
    pub(super) fn retry_after(&mut self, now_ns: u64) -> Option<u64> {
        let wait_ns = COPY_RETRY_NS << self.failed.count;
        self.failed.count += 1;
        self.failed.retry_ns = now_ns.saturating_add(wait_ns);
        (self.failed.count < COPY_ATTEMPTS_MAX).then_some(wait_ns)
    }

    /// Returns the logs of the host that the requests of this snapshot name, without duplicates.
    pub(super) fn captured(&self) -> impl Iterator<Item = HostLog> {
        let is_wanted = |log: &HostLog| self.orders.iter().any(|order| order.capture.contains(log));
        HostLog::ALL.iter().copied().filter(is_wanted)
    }

    /// Returns the window in monotonic time and in wall time.
    pub(super) fn log_window(&self) -> LogWindow {
        let wall_ns = |mono_ns: u64| self.wall_offset_ns.wrapping_add_unsigned(mono_ns);
        LogWindow { wall_ns: (wall_ns(self.window.0), wall_ns(self.window.1)), mono_ns: self.window }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that requests of applications are joined only with requests of the same user, so that
    // a person's snapshot never has the name of an application's trigger.
    #[test]
    fn orders_of_users_are_kept_apart() {
        let users = [None, Some(7), Some(8)];
        for (first, second) in users.iter().flat_map(|first| users.iter().map(move |second| (first, second)))
        {
            let order = SnapshotOrder { user: *first, ..SnapshotOrder::default() };
            let pending =
                PendingSnapshot { orders: vec![order], window: (10, 20), ..PendingSnapshot::default() };
            assert_eq!(pending.joins((15, 30), *second), first == second, "{first:?} {second:?}");
            assert!(!pending.joins((21, 30), *second));
        }
    }
}
