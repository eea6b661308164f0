//! Which closed segments wait, since when, and which compressor gets the next one. Decided on names and times. No clock, no file.

use std::collections::{BTreeMap, BTreeSet};

use crate::os::clock::NS_PER_S;
use crate::segment::SegmentName;

/// A segment that has waited this long is compressed with the guaranteed share. A segment of the default size takes 10 s within the default budget, so a
/// host with idle time does not come here unless more is recorded than the budget allows.
pub(super) const WAIT_MAX_NS: u64 = 30 * NS_PER_S;
/// A segment that fails is tried this often in a run before it is left as it is.
const TRIES_MAX: u32 = 3;

/// Number and run of a segment: what tells those of a directory apart.
type Key = (u64, u64);

/// The segments of a directory that are closed, as compression sees them.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: BTreeMap<(u32, Key), SegmentName>, // by failed tries, then the oldest first
    since_ns: BTreeMap<Key, u64>, // when each was first seen, also of those that a compressor has
    tries: BTreeMap<Key, u32>,    // of those that have failed
    done: BTreeSet<Key>,          // need no look in this run
    unpaid: BTreeSet<Key>,        // need none until they are to be compressed in another way
}

impl Backlog {
    /// Takes the closed segments of the directory, as they were found at `now_ns`. Those that a compressor has are not waiting.
    pub(super) fn look(&mut self, names: Vec<SegmentName>, assigned: &[SegmentName], now_ns: u64) {
        let there: BTreeSet<Key> = names.iter().map(key).collect();
        self.done.retain(|key| there.contains(key));
        self.unpaid.retain(|key| there.contains(key));
        self.tries.retain(|key, _| there.contains(key));
        self.since_ns.retain(|key, _| there.contains(key));
        self.waiting.clear();
        for name in names {
            let key = key(&name);
            if !self.done.contains(&key) && !self.unpaid.contains(&key) {
                self.since_ns.entry(key).or_insert(now_ns);
                if !assigned.contains(&name) {
                    self.wait(name);
                }
            }
        }
    }

    /// Takes the next segment: the oldest, and those that have failed after all others.
    pub(super) fn take(&mut self) -> Option<SegmentName> {
        self.waiting.pop_first().map(|(_, name)| name)
    }

    /// Puts a segment back in its place.
    pub(super) fn put_back(&mut self, name: SegmentName) {
        self.wait(name);
    }

    /// A segment is compressed, or stays as it is for the rest of the run.
    pub(super) fn finish(&mut self, name: &SegmentName) {
        self.since_ns.remove(&key(name));
        self.done.insert(key(name));
    }

    /// A segment would hardly become smaller: it stays as it is until another way is tried.
    pub(super) fn finish_unpaid(&mut self, name: &SegmentName) {
        self.since_ns.remove(&key(name));
        self.unpaid.insert(key(name));
    }

    /// Compressing a segment has failed. It waits again, after all others, unless it has failed too often.
    pub(super) fn fail(&mut self, name: SegmentName) {
        let tries = self.tries.entry(key(&name)).or_default();
        *tries += 1;
        if *tries < TRIES_MAX { self.wait(name) } else { self.finish(&name) }
    }

    /// Forgets which segments would hardly become smaller: from the next look on they wait again.
    pub(super) fn forget_unpaid(&mut self) {
        self.unpaid.clear();
    }

    /// How many wait, without those that a compressor has.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Since when the next segment has waited; none if none waits.
    pub(super) fn next_since_ns(&self) -> Option<u64> {
        self.waiting.first_key_value().and_then(|((_, key), _)| self.since_ns.get(key)).copied()
    }

    /// Since when this segment, which a compressor has, has waited.
    pub(super) fn since_ns(&self, name: &SegmentName) -> Option<u64> {
        self.since_ns.get(&key(name)).copied()
    }

    fn wait(&mut self, name: SegmentName) {
        let key = key(&name);
        let tries = self.tries.get(&key).copied().unwrap_or(0);
        self.waiting.insert((tries, key), name);
    }
}

/// Which compressor gets a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// The one at idle priority.
    Spare,
    /// The one with the guaranteed share.
    Guaranteed,
}

/// What [`choose`] looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation {
    pub(super) now_ns: u64,
    /// A segment that has waited this long needs the guaranteed share.
    pub(super) wait_max_ns: u64,
    /// Disk space is short: each segment needs it.
    pub(super) is_urgent: bool,
    /// Since when the next segment has waited; none if none waits.
    pub(super) next_since_ns: Option<u64>,
    /// When the compressor with the spare share last got on with its segment; none if it has none.
    pub(super) spare_progress_ns: Option<u64>,
    /// Whether the one with the guaranteed share has none.
    pub(super) is_guaranteed_free: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The next segment goes to this compressor.
    Assign(Share),
    /// The spare share's segment is asked back: it has not got on, and the guaranteed share has nothing else to do.
    Recall,
    /// Nothing before this time, unless something happens.
    WaitUntil(u64),
}

/// Decides what is to be done next.
pub(super) fn choose(situation: Situation) -> Step {
    let Situation { now_ns, wait_max_ns, is_urgent, next_since_ns, spare_progress_ns, is_guaranteed_free } =
        situation;
    let overdue_ns = next_since_ns.map(|since_ns| since_ns.saturating_add(wait_max_ns));
    let needs_guaranteed = overdue_ns.is_some_and(|overdue_ns| is_urgent || now_ns >= overdue_ns);
    if is_guaranteed_free && needs_guaranteed {
        return Step::Assign(Share::Guaranteed);
    }
    if next_since_ns.is_some() && spare_progress_ns.is_none() {
        return Step::Assign(Share::Spare);
    }
    if !is_guaranteed_free {
        return Step::WaitUntil(u64::MAX); // it rings when it is done
    }
    match (overdue_ns, spare_progress_ns.map(|progress_ns| progress_ns.saturating_add(wait_max_ns))) {
        (None, Some(stuck_ns)) if now_ns >= stuck_ns => Step::Recall,
        (None, Some(stuck_ns)) => Step::WaitUntil(stuck_ns),
        (overdue_ns, _) => Step::WaitUntil(overdue_ns.unwrap_or(u64::MAX)),
    }
}

fn key(name: &SegmentName) -> Key {
    (name.number, name.run_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::State;

    fn name(number: u64, run_id: u64) -> SegmentName {
        SegmentName { number, created_s: 1_700_000_000, run_id, state: State::Sealed }
    }

    // Goal: the oldest goes first, one that has failed last and not for ever, one that is handed out waits no more, and what is done with is not looked at again.
    // Method: by hand, with two runs that have the same numbers.
    #[test]
    fn each_waits_its_turn() {
        let mut backlog = Backlog::default();
        let all = vec![name(1, 9), name(1, 5), name(2, 9), name(3, 9)];
        backlog.look(all.clone(), &[name(2, 9)], 100);
        assert_eq!((backlog.waiting(), backlog.since_ns(&name(2, 9))), (3, Some(100)));
        assert_eq!(backlog.take(), Some(name(1, 5)));
        backlog.fail(name(1, 5));
        assert_eq!(backlog.take(), Some(name(1, 9)));
        backlog.finish(&name(1, 9));
        backlog.look(all.clone(), &[], 200);
        let taken: Vec<_> = std::iter::from_fn(|| backlog.take()).collect();
        assert_eq!(taken, [name(2, 9), name(3, 9), name(1, 5)]);
        backlog.put_back(name(2, 9));
        assert_eq!(backlog.next_since_ns(), Some(100), "as long as it was first seen");
        backlog.finish_unpaid(&name(3, 9));
        (0..2).for_each(|_| backlog.fail(name(1, 5)));
        backlog.look(all.clone(), &[], 300);
        assert_eq!((backlog.waiting(), backlog.take()), (1, Some(name(2, 9))));
        backlog.forget_unpaid();
        backlog.look(all, &[name(2, 9)], 400);
        assert_eq!((backlog.waiting(), backlog.next_since_ns()), (1, Some(400)));
        backlog.look(Vec::new(), &[], 500);
        assert_eq!((backlog.waiting(), backlog.next_since_ns()), (0, None));
    }

    // Goal: idle time comes first; the guaranteed share takes only what has waited too long or is urgent, and never what the other one has unless that has not
    // got on and nothing else waits. Method: every situation that matters.
    #[test]
    fn idle_time_comes_first() {
        let calm = Situation {
            now_ns: 1000,
            wait_max_ns: 30,
            is_urgent: false,
            next_since_ns: Some(990),
            spare_progress_ns: None,
            is_guaranteed_free: true,
        };
        let busy = Situation { spare_progress_ns: Some(999), ..calm };
        let overdue = Situation { next_since_ns: Some(970), ..busy };
        let both_busy = Situation { is_guaranteed_free: false, ..overdue };
        let stuck = Situation { next_since_ns: None, spare_progress_ns: Some(970), ..calm };
        for (situation, step) in [
            (calm, Step::Assign(Share::Spare)),
            (busy, Step::WaitUntil(1020)),
            (overdue, Step::Assign(Share::Guaranteed)),
            (Situation { spare_progress_ns: None, ..overdue }, Step::Assign(Share::Guaranteed)),
            (Situation { is_urgent: true, ..busy }, Step::Assign(Share::Guaranteed)),
            (Situation { is_urgent: true, ..both_busy }, Step::WaitUntil(u64::MAX)),
            (both_busy, Step::WaitUntil(u64::MAX)),
            (Situation { spare_progress_ns: None, ..both_busy }, Step::Assign(Share::Spare)),
            (stuck, Step::Recall),
            (Situation { spare_progress_ns: Some(971), ..stuck }, Step::WaitUntil(1001)),
            (Situation { spare_progress_ns: Some(5000), ..stuck }, Step::WaitUntil(5030)),
            (Situation { is_guaranteed_free: false, ..stuck }, Step::WaitUntil(u64::MAX)),
            (Situation { next_since_ns: None, ..calm }, Step::WaitUntil(u64::MAX)),
        ] {
            assert_eq!(choose(situation), step, "{situation:?}");
        }
    }
}
