//! Sources that no segment contains: their samples are computed from those of another source.
//!
//! What threads did is no part of `process`: the samples of that source have times and numbers of
//! their own, and a row has the values of one sample. At the period of /proc these counters would
//! be no better than those of /proc. The number of a computed sample is its time divided by the
//! step, so missing numbers are holes. Its counters begin at 0 where a reading begins: only their
//! changes mean something.

use flatcap_tasks::schema::{SCHED_ROOT, TASKS, TASKS_NAME, TASKS_ROOT};

use crate::segment::{SourceInfo, SourceKind};

/// Its id in the readings of a run, which no recorded source has.
pub(super) const TASKS_ID: u16 = u16::MAX;
/// Its period, unless a query asks for shorter steps: that of the times in /proc.
pub(super) const TASKS_STEP_NS: u64 = 10_000_000;
/// A step is cut into at most so many parts more than it takes.
const PARTS_MORE_MAX: u64 = 1_000;

/// Returns the source that is computed from these. A recorded source with the same name does not
/// replace it: paths select the recorded source by its id.
pub(super) fn computed_source(sources: &[SourceInfo]) -> Option<SourceInfo> {
    events_of(sources).map(|_| tasks_source())
}

/// Returns the recorded sources with the same name as a source that is computed from these.
pub(super) fn computed_namesakes(sources: &[SourceInfo]) -> impl Iterator<Item = &SourceInfo> {
    let has_events = events_of(sources).is_some();
    sources.iter().filter(move |source| has_events && source.name == TASKS_NAME)
}

/// Returns the source with the events of the host's scheduler. One that was pushed says nothing of
/// the host.
pub(super) fn events_of(sources: &[SourceInfo]) -> Option<&SourceInfo> {
    sources.iter().find(|source| source.root == SCHED_ROOT && source.sender().is_none())
}

/// Returns the length of the steps of which rows of this step consist: as many equal ones as it
/// takes for the period.
pub(super) fn part_of_step(step_ns: u64) -> u64 {
    let least = step_ns.div_ceil(TASKS_STEP_NS).max(1);
    let count = (least..least.saturating_add(PARTS_MORE_MAX)).find(|count| step_ns.is_multiple_of(*count));
    step_ns / count.unwrap_or(1)
}

/// Returns the computed source as a run with it would describe it.
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
