//! Collects the ranges of a window in which some switches were not recorded.

use std::ops::Range;

use super::batch::SchedBatch;
use super::cpu_history::CpuHistory;
use super::interval::{Interval, TimelineObserver};
use super::recording_faults::{HoleCause, RecordingHole};

/// Maximum number of holes that are kept. Further holes are only counted.
const HOLES_MAX: usize = 256;

/// The holes in a window. Consecutive holes with the same cause are merged.
#[derive(Debug)]
pub struct RecordingHoles {
    window: Range<u64>,
    holes: Vec<RecordingHole>,
    further: u64,
}

impl RecordingHoles {
    /// Creates a collection of the holes that overlap `window`, which is a range of monotonic
    /// nanoseconds.
    pub fn new(window: Range<u64>) -> Self {
        Self { window, holes: Vec::new(), further: 0 }
    }

    /// Returns the holes, ordered by their start times. A hole may begin before the window, but it
    /// ends in the window.
    pub fn holes(&self) -> impl Iterator<Item = RecordingHole> {
        let Range { start, end } = self.window;
        let overlapping = self.holes.iter().filter(move |hole| hole.begin_ns < end && hole.end_ns > start);
        overlapping.map(move |hole| RecordingHole { end_ns: hole.end_ns.min(end), ..*hole })
    }

    /// Returns the number of further holes in the window that were not kept because of the limit.
    pub fn further(&self) -> u64 {
        self.further
    }

    /// Adds a hole. Holes must be added in the order of their start times.
    fn add(&mut self, hole: &RecordingHole) {
        if hole.begin_ns >= self.window.end {
            return;
        }
        let joined = self.holes.iter_mut().rev().find_map(|known| {
            let cause = joined_cause(known.cause, hole.cause)?;
            (known.end_ns >= hole.begin_ns).then_some((known, cause))
        });
        if let Some((known, cause)) = joined {
            known.cause = cause;
            known.end_ns = known.end_ns.max(hole.end_ns);
            return;
        }
        // A hole that ended before the window was kept only because it might have continued into
        // the window.
        let start = self.window.start;
        self.holes.retain(|known| known.end_ns > start || known.end_ns >= hole.begin_ns);
        if self.holes.len() < HOLES_MAX {
            self.holes.push(*hole);
        } else if hole.end_ns > start {
            self.further += 1;
        }
    }
}

impl TimelineObserver for RecordingHoles {
    fn interval(&mut self, _: &Interval, _: &CpuHistory) {}

    fn hole(&mut self, hole: &RecordingHole) {
        self.add(hole);
    }
}

/// Returns the common cause of two holes, or `None` if the causes differ.
fn joined_cause(one: HoleCause, other: HoleCause) -> Option<HoleCause> {
    match (one, other) {
        (HoleCause::LostRecords(one), HoleCause::LostRecords(other)) => {
            Some(HoleCause::LostRecords(one.saturating_add(other)))
        }
        _ => (one == other).then_some(one),
    }
}

/// Returns the part of a payload's range in which switches were recorded. `was_stopped` states
/// whether recording was stopped at the start of the payload. `stopped_before_ns` is the total
/// stopped time up to that start.
pub(super) fn recorded_part(batch: &SchedBatch<'_>, was_stopped: bool, stopped_before_ns: u64) -> Range<u64> {
    let (begin_ns, end_ns) = (batch.begin_ns(), batch.end_ns());
    let stopped_ns = batch.stopped_ns().saturating_sub(stopped_before_ns).min(end_ns - begin_ns);
    match (was_stopped, batch.is_stopped()) {
        (false, false) => begin_ns..end_ns,
        (false, true) => begin_ns..end_ns - stopped_ns,
        (true, false) => begin_ns + stopped_ns..end_ns,
        // Switches may have been recorded between the start and the end of the payload, at an
        // unknown time.
        (true, true) => end_ns..end_ns,
    }
}

/// Reports the holes in a payload's range. The holes are the time without recorded switches, the
/// whole range if records were lost, and the time of missing samples.
pub(super) fn report_holes(
    batch: &SchedBatch<'_>,
    recorded: &Range<u64>,
    (lost, missing_since_ns): (u64, Option<u64>),
    observer: &mut impl TimelineObserver,
) {
    let (begin_ns, end_ns) = (batch.begin_ns(), batch.end_ns());
    let missing = missing_since_ns.map(|since_ns| (since_ns..begin_ns, HoleCause::MissingSamples));
    let lost = (lost > 0).then_some((begin_ns..end_ns, HoleCause::LostRecords(lost)));
    let stopped = [begin_ns..recorded.start, recorded.end..end_ns].map(|times| (times, HoleCause::Stopped));
    for (times, cause) in missing.into_iter().chain(lost).chain(stopped) {
        if times.start < times.end {
            observer.hole(&RecordingHole { begin_ns: times.start, end_ns: times.end, cause });
        }
    }
}
