//! Determines the time at which the returned rows begin. This time is later than the first sample
//! that is read, if earlier samples are needed for the rates of the first rows.

use flatcap_format::segment::{Gap, RecordingStart};

use crate::request::Query;
use crate::results::RunInfo;

/// Number of periods for which the last value of a source stays valid.
// This is twice the period, because the source may have missed one tick.
pub(super) const PERIODS_HELD: u64 = 2;
/// Length of the additional time before the first row whose samples are read for the rates of the
/// first rows, in nanoseconds. At least two periods are read.
// Samples may be late.
const LEAD_NS: u64 = 1_000_000_000;

/// The time at which the returned rows begin, if earlier samples are read for the rates of the
/// first rows.
#[derive(Debug, Clone, Default)]
pub(super) struct RowWindow {
    since_ns: Option<i64>,
    elapsed: Option<(RecordingStart, u64)>,
    run_id: u64,
    boot_id: Option<String>,
    wall_offset_ns: i64,
}

impl RowWindow {
    /// Makes the query begin earlier, and stores the time at which rows begin. `periods_ns` are the
    /// periods of the queried sources.
    pub(super) fn widen(&mut self, query: &mut Query, periods_ns: impl Iterator<Item = u64>) {
        let longest = periods_ns.max().unwrap_or_default();
        let lead_ns = longest.saturating_mul(PERIODS_HELD).saturating_add(LEAD_NS);
        // If no begin was requested, rows begin with the first sample of the recording, which has
        // no rate.
        if let Some(since_ns) = &mut query.filter.since_ns {
            self.since_ns = Some(*since_ns);
            *since_ns = since_ns.saturating_sub_unsigned(lead_ns);
        }
        if let Some(elapsed) = &mut query.filter.elapsed {
            self.elapsed = Some((elapsed.start.clone(), elapsed.ns.start));
            elapsed.ns.start = elapsed.ns.start.saturating_sub(lead_ns);
        }
    }

    /// Begins a run.
    pub(super) fn begin_run(&mut self, run: &RunInfo) {
        (self.run_id, self.wall_offset_ns) = (run.run_id, run.wall_offset_ns);
        self.boot_id.clone_from(&run.host.boot_id);
    }

    /// Returns whether a gap ends before the first row.
    pub(super) fn is_gap_before(&self, gap: &Gap) -> bool {
        // A gap has only monotonic times. The time offset of the run converts them to wall time.
        self.is_before(gap.before_mono_ns, self.wall_offset_ns.wrapping_add_unsigned(gap.before_mono_ns))
    }

    /// Returns whether a time is before the first row.
    pub(super) fn is_before(&self, mono_ns: u64, wall_ns: i64) -> bool {
        if self.since_ns.is_some_and(|since_ns| wall_ns < since_ns) {
            return true;
        }
        let Some((start, ns)) = &self.elapsed else { return false };
        let is_same_boot = start.boot_id.is_some() && start.boot_id == self.boot_id;
        // Monotonic times can be compared only within one boot.
        if start.run_id == self.run_id || is_same_boot {
            mono_ns < start.mono_ns.saturating_add(*ns)
        } else {
            wall_ns < start.wall_ns.saturating_add_unsigned(*ns)
        }
    }
}
