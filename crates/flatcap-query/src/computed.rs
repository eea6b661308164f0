//! Computed sources. No segment contains a computed source, because its samples are computed from
//! the samples of another source.
//!
//! The counters of threads are not a part of the source `process`. These counters have other times
//! and sequence numbers than the samples of `process`, but all values of a row must belong to one
//! sample. If they were sampled with the period of /proc, these counters would be no better than
//! the counters in /proc. The sequence number of a computed sample is its time divided by the step,
//! so missing numbers show holes. The counters of the computed source begin at 0 at the start of a
//! query, so only their changes are meaningful.

use flatcap_format::segment::{SourceInfo, SourceKind};
use flatcap_tasks::schema::{SCHED_ROOT, TASKS, TASKS_NAME, TASKS_ROOT};

/// The id of the source `tasks` in the results of a run.
// No recorded source has this id.
pub(super) const TASKS_ID: u16 = u16::MAX;
/// The period of the source `tasks` in nanoseconds, unless a query requests shorter steps.
// This is the resolution of the times in /proc.
pub(super) const TASKS_STEP_NS: u64 = 10_000_000;
/// Maximum number of divisors that are tried to divide a step into equal parts. The first divisor
/// that is tried is the smallest one that makes the parts short enough.
const PARTS_MORE_MAX: u64 = 1_000;

/// Returns the source that is computed from these sources. Returns the computed source even if a
/// recorded source has the same name.
pub(super) fn computed_source(sources: &[SourceInfo]) -> Option<SourceInfo> {
    // A recorded source with the same name is selected by its id in paths.
    events_of(sources).map(|_| tasks_source())
}

/// Returns the recorded sources with the same name as a computed source. The list `sources`
/// determines which source is computed.
pub(super) fn computed_namesakes(sources: &[SourceInfo]) -> impl Iterator<Item = &SourceInfo> {
    let has_events = events_of(sources).is_some();
    sources.iter().filter(move |source| has_events && source.name == TASKS_NAME)
}

/// Returns the source with the events of the host's scheduler. Never returns a pushed source.
pub(super) fn events_of(sources: &[SourceInfo]) -> Option<&SourceInfo> {
    // An application chose the contents of a pushed source.
    sources.iter().find(|source| source.root == SCHED_ROOT && source.sender().is_none())
}

/// Returns the length of the parts into which a step is divided, in nanoseconds. The parts are
/// equal, and not longer than the source's period. Returns the length of the whole step if no equal
/// parts are short enough.
pub(super) fn part_of_step(step_ns: u64) -> u64 {
    let least = step_ns.div_ceil(TASKS_STEP_NS).max(1);
    let count = (least..least.saturating_add(PARTS_MORE_MAX)).find(|count| step_ns.is_multiple_of(*count));
    step_ns / count.unwrap_or(1)
}

/// Returns the description of the computed source, as the header of a run would contain it.
pub(super) fn tasks_source() -> SourceInfo {
    SourceInfo {
        id: TASKS_ID,
        name: TASKS_NAME.to_owned(),
        labels: Vec::new(),
        kind: SourceKind::Host,
        period_ns: TASKS_STEP_NS,
        root: TASKS_ROOT.to_owned(),
        schema: TASKS.to_vec(),
        next_seq: 0,
    }
}
