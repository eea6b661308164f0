//! The list of segments that retention has removed while older segments of the same run still
//! exist.
//!
//! A segment is listed before it is removed, so that a crash between the two steps leaves no
//! unexplained hole. If a listed segment still exists, the removal did not take place. Such a
//! segment is taken off the list at the next change of the list, or when the next recorder starts.
//! Otherwise, if the segment is lost later, the loss would look like a removal. If the list cannot
//! be written before the removal, as on a full disk, it is written after the removal. If the
//! recorder gave up a segment number, this number is listed together with the neighbouring removed
//! segment.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::Path;

use flatcap_format::segment::{REMOVED_NAME, RemovedSegments, SegmentName, SegmentReader};
use flatcap_format::storage::Storage;

/// The segments of a directory. An entry has the run, the number and the name of a segment.
pub(super) type StoredSegments = BTreeSet<(u64, u64, String)>;

/// A range of segment numbers of a run that have no segment after a segment was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) run_id: u64,
    /// The number of the removed segment.
    pub(super) number: u64,
    first: u64,
    last: u64,
}

impl Hole {
    /// Returns the hole that the removal of a segment leaves. There is a hole if an older segment
    /// of the same run is in `left`. `left` contains the segments that are not removed.
    ///
    /// A neighbouring number without a segment also belongs to the hole if no samples are missing
    /// between the segments around it. In this case, the recorder has given up the number. If
    /// samples are missing, the segment was not removed by retention.
    pub(super) fn of(
        storage: &dyn Storage,
        (segments, left): (&StoredSegments, &StoredSegments),
        segment: SegmentName,
    ) -> Option<Self> {
        let SegmentName { run_id, number, .. } = segment;
        let first_of = |number: u64| (run_id, number, String::new());
        left.range(first_of(0)..first_of(number)).next()?;
        let own = segment.to_string();
        let is_near = |first: &str, second: &str| follow_each_other(storage, first, second) == Some(true);
        let mut hole = Self { run_id, number, first: number, last: number };
        if let Some((_, before, older)) = segments.range(first_of(0)..first_of(number)).next_back()
            && before + 1 < number
            && is_near(older, &own)
        {
            hole.first = before + 1;
        }
        let next = number.saturating_add(1);
        if let Some((_, after, newer)) = segments.range(first_of(next)..first_of(u64::MAX)).next()
            && next < *after
            && is_near(&own, newer)
        {
            hole.last = after - 1;
        }
        Some(hole)
    }

    /// Returns whether the segment of this hole is gone.
    pub(super) fn is_open(&self, segments: &StoredSegments) -> bool {
        let Self { run_id, number, .. } = *self;
        segments.range((run_id, number, String::new())..(run_id, number + 1, String::new())).next().is_none()
    }
}

/// Returns whether no sample is missing between two segments of a run, or `None` if this cannot be
/// determined.
fn follow_each_other(storage: &dyn Storage, first: &str, second: &str) -> Option<bool> {
    let read = |name: &str| SegmentReader::over(Path::new(name), storage.open(name).ok()?).ok();
    Some(read(first)?.footer()?.is_followed_by(read(second)?.header()))
}

/// Adds holes to the list. Removes a number from the list if its segment exists and the number is
/// in none of the holes. If the list changes, the new list is on disk when this function returns.
/// Returns whether the list has changed and was written.
///
/// # Errors
/// Errors of the storage. If there is an error, the previous list stays.
pub(super) fn list_holes(
    storage: &dyn Storage,
    segments: &StoredSegments,
    holes: &[Hole],
) -> io::Result<bool> {
    // If the list cannot be read, a new list replaces it.
    let listed = RemovedSegments::read(storage).unwrap_or_default();
    let mut removed = listed.clone();
    for (run_id, number, _) in segments {
        removed.remove(*run_id, *number);
    }
    for hole in holes {
        removed.add(hole.run_id, hole.first, hole.last);
    }
    let runs: BTreeSet<u64> = segments.iter().map(|(run_id, ..)| *run_id).collect();
    removed.retain_runs(|run_id| runs.contains(&run_id));
    let stored = |run_id: u64, first: u64, last: u64| {
        let from = (run_id, first, String::new());
        let to = (run_id, last.saturating_add(1), String::new());
        let mut numbers: Vec<u64> = segments.range(from..to).map(|(_, number, _)| *number).collect();
        numbers.dedup();
        numbers.len() as u64
    };
    if !removed.shorten(stored) {
        tracing::warn!(
            file = REMOVED_NAME,
            "too many runs lack segments that retention has removed: verify will report those of some runs as missing"
        );
    }
    if removed == listed {
        return Ok(false);
    }
    let unfinished = format!("{REMOVED_NAME}.new");
    let _left_by_a_kill = storage.remove(&unfinished);
    let file = storage.create(&unfinished)?;
    file.append_all(&mut [IoSlice::new(removed.to_string().as_bytes())])?;
    // The list is synced before the segments are removed, because the kernel may write changes to
    // the disk in any order.
    file.sync()?;
    storage.replace(&unfinished, REMOVED_NAME)?;
    storage.sync_directory()?;
    Ok(true)
}
