//! Stores the sealed segments that wait for compression, and chooses the compressor for the next
//! segment. The decisions depend only on segment names and on times that the caller passes. It uses
//! neither a clock nor files.

use std::collections::{BTreeMap, BTreeSet};

use flatcap_format::segment::SegmentName;
use flatcap_os::clock::NS_PER_S;

/// Maximum time that a segment waits before it is compressed with the guaranteed share. Compressing
/// a segment of the default size takes 10 s within the default budget. So on a host with idle time,
/// segments wait this long only if the recording rate exceeds the budget.
pub(super) const WAIT_MAX_NS: u64 = 30 * NS_PER_S;
/// Maximum number of attempts to compress one segment in a run. After the last failed attempt the
/// segment stays uncompressed.
const ATTEMPTS_MAX: u32 = 3;

/// The number and the run of a segment, which together are unique in a directory.
type BacklogKey = (u64, u64);

/// The sealed segments of a directory.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: BTreeMap<(u32, BacklogKey), SegmentName>, // by failed attempts, then age
    waiting_since_ns: BTreeMap<BacklogKey, u64>,       // when each was first seen, including assigned ones
    failed_attempts: BTreeMap<BacklogKey, u32>,        // failed attempts
    done: BTreeSet<BacklogKey>,                        // finished in this run
    incompressible: BTreeSet<BacklogKey>,              // finished until the compression options change
}

impl Backlog {
    /// Updates the backlog with the sealed segments found in the directory at `now_ns`. Segments
    /// that are assigned to a compressor do not wait.
    pub(super) fn update(&mut self, names: Vec<SegmentName>, assigned: &[SegmentName], now_ns: u64) {
        let there: BTreeSet<BacklogKey> = names.iter().map(key).collect();
        self.done.retain(|key| there.contains(key));
        self.incompressible.retain(|key| there.contains(key));
        self.failed_attempts.retain(|key, _| there.contains(key));
        self.waiting_since_ns.retain(|key, _| there.contains(key));
        self.waiting.clear();
        for name in names {
            let key = key(&name);
            if !self.done.contains(&key) && !self.incompressible.contains(&key) {
                self.waiting_since_ns.entry(key).or_insert(now_ns);
                if !assigned.contains(&name) {
                    self.wait(name);
                }
            }
        }
    }

    /// Removes the next segment in the order from the backlog and returns it. Segments with failed
    /// attempts come after all others.
    pub(super) fn take(&mut self) -> Option<SegmentName> {
        self.waiting.pop_first().map(|(_, name)| name)
    }

    /// Puts a segment back into its position in the order.
    pub(super) fn put_back(&mut self, name: SegmentName) {
        self.wait(name);
    }

    /// Marks a segment as finished for this run, because the segment was compressed or was left
    /// unchanged.
    pub(super) fn finish(&mut self, name: &SegmentName) {
        self.waiting_since_ns.remove(&key(name));
        self.done.insert(key(name));
    }

    /// Marks a segment as finished until the compression options change, because compression saves
    /// too little space.
    pub(super) fn finish_incompressible(&mut self, name: &SegmentName) {
        self.waiting_since_ns.remove(&key(name));
        self.incompressible.insert(key(name));
    }

    /// Counts a failed attempt. The segment waits again, after all others, unless it has failed too
    /// often.
    pub(super) fn fail(&mut self, name: SegmentName) {
        let tries = self.failed_attempts.entry(key(&name)).or_default();
        *tries += 1;
        if *tries < ATTEMPTS_MAX { self.wait(name) } else { self.finish(&name) }
    }

    /// Returns incompressible segments to the backlog at the next update.
    pub(super) fn forget_incompressible(&mut self) {
        self.incompressible.clear();
    }

    /// Returns the number of waiting segments, without the assigned segments.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the time at which the next segment began to wait, or `None` if no segment waits.
    pub(super) fn next_since_ns(&self) -> Option<u64> {
        self.waiting.first_key_value().and_then(|((_, key), _)| self.waiting_since_ns.get(key)).copied()
    }

    /// Returns the time at which an assigned segment began to wait.
    pub(super) fn waiting_since_ns(&self, name: &SegmentName) -> Option<u64> {
        self.waiting_since_ns.get(&key(name)).copied()
    }

    fn wait(&mut self, name: SegmentName) {
        let key = key(&name);
        let tries = self.failed_attempts.get(&key).copied().unwrap_or(0);
        self.waiting.insert((tries, key), name);
    }
}

/// The compressor that compresses a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompressorShare {
    /// The compressor at idle priority.
    Idle,
    /// The compressor with the guaranteed share.
    Guaranteed,
}

/// The input of [`next_action`].
#[derive(Debug, Clone, Copy)]
pub(super) struct BacklogState {
    pub(super) now_ns: u64,
    /// Maximum time that a segment waits before it needs the guaranteed share, in nanoseconds.
    pub(super) wait_max_ns: u64,
    /// Whether disk space is low, so that every segment needs the guaranteed share.
    pub(super) is_urgent: bool,
    /// Time at which the next segment began to wait, or `None` if no segment waits.
    pub(super) next_since_ns: Option<u64>,
    /// Time of the last progress of the idle compressor, or `None` if this compressor has no
    /// segment.
    pub(super) idle_progress_ns: Option<u64>,
    /// Whether the guaranteed compressor has no segment at the moment.
    pub(super) is_guaranteed_free: bool,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Assign the next segment to this compressor.
    Assign(CompressorShare),
    /// Recall the segment of the idle compressor, because it has made no progress and the
    /// guaranteed compressor has nothing else to do.
    Recall,
    /// Wait until this time or until an event.
    WaitUntil(u64),
}

/// Returns the next action.
pub(super) fn next_action(situation: BacklogState) -> NextAction {
    let BacklogState { now_ns, wait_max_ns, is_urgent, next_since_ns, idle_progress_ns, is_guaranteed_free } =
        situation;
    let overdue_ns = next_since_ns.map(|since_ns| since_ns.saturating_add(wait_max_ns));
    let needs_guaranteed = overdue_ns.is_some_and(|overdue_ns| is_urgent || now_ns >= overdue_ns);
    if is_guaranteed_free && needs_guaranteed {
        return NextAction::Assign(CompressorShare::Guaranteed);
    }
    if next_since_ns.is_some() && idle_progress_ns.is_none() {
        return NextAction::Assign(CompressorShare::Idle);
    }
    if !is_guaranteed_free {
        return NextAction::WaitUntil(u64::MAX); // the compressor wakes the worker when it is done
    }
    match (overdue_ns, idle_progress_ns.map(|progress_ns| progress_ns.saturating_add(wait_max_ns))) {
        (None, Some(stuck_ns)) if now_ns >= stuck_ns => NextAction::Recall,
        (None, Some(stuck_ns)) => NextAction::WaitUntil(stuck_ns),
        (overdue_ns, _) => NextAction::WaitUntil(overdue_ns.unwrap_or(u64::MAX)),
    }
}

fn key(name: &SegmentName) -> BacklogKey {
    (name.number, name.run_id)
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::SealState;

    use super::*;

    fn name(number: u64, run_id: u64) -> SegmentName {
        SegmentName { number, created_s: 1_700_000_000, run_id, state: SealState::Sealed }
    }

    // Proves the order of segments. The oldest segment is first. Failed segments are last and are
    // not tried for ever. Assigned or finished segments are not returned. Two runs use the same
    // segment numbers.
    #[test]
    fn each_waits_its_turn() {
        let mut backlog = Backlog::default();
        let all = vec![name(1, 9), name(1, 5), name(2, 9), name(3, 9)];
        backlog.update(all.clone(), &[name(2, 9)], 100);
        assert_eq!((backlog.waiting(), backlog.waiting_since_ns(&name(2, 9))), (3, Some(100)));
        assert_eq!(backlog.take(), Some(name(1, 5)));
        backlog.fail(name(1, 5));
        assert_eq!(backlog.take(), Some(name(1, 9)));
        backlog.finish(&name(1, 9));
        backlog.update(all.clone(), &[], 200);
        let taken: Vec<_> = std::iter::from_fn(|| backlog.take()).collect();
        assert_eq!(taken, [name(2, 9), name(3, 9), name(1, 5)]);
        backlog.put_back(name(2, 9));
        assert_eq!(backlog.next_since_ns(), Some(100), "since it was first seen");
        backlog.finish_incompressible(&name(3, 9));
        (0..2).for_each(|_| backlog.fail(name(1, 5)));
        backlog.update(all.clone(), &[], 300);
        assert_eq!((backlog.waiting(), backlog.take()), (1, Some(name(2, 9))));
        backlog.forget_incompressible();
        backlog.update(all, &[name(2, 9)], 400);
        assert_eq!((backlog.waiting(), backlog.next_since_ns()), (1, Some(400)));
        backlog.update(Vec::new(), &[], 500);
        assert_eq!((backlog.waiting(), backlog.next_since_ns()), (0, None));
    }

    // Proves that the compressor at idle priority is used first. The guaranteed share takes only
    // segments that are overdue or urgent. A segment is recalled from the idle compressor only if
    // that compressor makes no progress and no other segment waits.
    #[test]
    fn idle_time_comes_first() {
        let calm = BacklogState {
            now_ns: 1000,
            wait_max_ns: 30,
            is_urgent: false,
            next_since_ns: Some(990),
            idle_progress_ns: None,
            is_guaranteed_free: true,
        };
        let busy = BacklogState { idle_progress_ns: Some(999), ..calm };
        let overdue = BacklogState { next_since_ns: Some(970), ..busy };
        let both_busy = BacklogState { is_guaranteed_free: false, ..overdue };
        let stuck = BacklogState { next_since_ns: None, idle_progress_ns: Some(970), ..calm };
        for (situation, step) in [
            (calm, NextAction::Assign(CompressorShare::Idle)),
            (busy, NextAction::WaitUntil(1020)),
            (overdue, NextAction::Assign(CompressorShare::Guaranteed)),
            (
                BacklogState { idle_progress_ns: None, ..overdue },
                NextAction::Assign(CompressorShare::Guaranteed),
            ),
            (BacklogState { is_urgent: true, ..busy }, NextAction::Assign(CompressorShare::Guaranteed)),
            (BacklogState { is_urgent: true, ..both_busy }, NextAction::WaitUntil(u64::MAX)),
            (both_busy, NextAction::WaitUntil(u64::MAX)),
            (BacklogState { idle_progress_ns: None, ..both_busy }, NextAction::Assign(CompressorShare::Idle)),
            (stuck, NextAction::Recall),
            (BacklogState { idle_progress_ns: Some(971), ..stuck }, NextAction::WaitUntil(1001)),
            (BacklogState { idle_progress_ns: Some(5000), ..stuck }, NextAction::WaitUntil(5030)),
            (BacklogState { is_guaranteed_free: false, ..stuck }, NextAction::WaitUntil(u64::MAX)),
            (BacklogState { next_since_ns: None, ..calm }, NextAction::WaitUntil(u64::MAX)),
        ] {
            assert_eq!(next_action(situation), step, "{situation:?}");
        }
    }
}
