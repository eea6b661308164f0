//! The warning that the retention limits of the data directory cannot be kept.

use std::io;

use flatcap_metrics::RecorderMetrics;
use flatcap_os::clock::NS_PER_S;

/// Logs the warning that the retention limits cannot be kept, at a limited rate.
#[derive(Debug, Default)]
pub(super) struct LimitWarning {
    reason: Option<io::ErrorKind>,
    repeats: u32,
    next_ns: u64,
}

impl LimitWarning {
    /// Interval between the first and the second warning. Each further interval is twice as long.
    const INTERVAL_NS: u64 = 60 * NS_PER_S;
    /// Maximum number of doublings. The interval grows to at most 2^10 times the first interval,
    /// that is, to 17 hours.
    const DOUBLINGS_MAX: u32 = 10;

    /// Returns whether to warn now. If so, counts the warning.
    fn is_due(&mut self, reason: io::ErrorKind, now: u64) -> bool {
        if self.reason == Some(reason) && now < self.next_ns {
            return false;
        }
        self.repeats = if self.reason == Some(reason) { self.repeats + 1 } else { 0 };
        self.reason = Some(reason);
        self.next_ns = now.saturating_add(Self::INTERVAL_NS << self.repeats.min(Self::DOUBLINGS_MAX));
        true
    }

    /// Warns that the limits cannot be kept. Warns the first time, whenever the reason changes, and
    /// then at growing intervals.
    pub(super) fn note(&mut self, result: io::Result<()>, metrics: &RecorderMetrics, now: u64) {
        let Err(error) = result else {
            *self = Self::default();
            return;
        };
        // One warning counts as one error, because it is a single failure, however often the limits
        // are checked.
        if self.is_due(error.kind(), now) {
            metrics.note_storage_error(&error);
            tracing::warn!(%error, "cannot keep the retention limits of the data directory");
        }
    }
}
