//! Orders the segments of a feed by sequence numbers and message times, and detects late, repeated
//! and restarted numbers.
//!
//! A feed may be captured on two lines at once. The packets of the two lines arrive in any order.
//! The feed may also restart its numbers without notice. The rules are therefore:
//!
//! - A segment with the next expected sequence number is recorded. A segment with a later number is
//!   held until the missing segments before it have arrived. If the time limit ([`HELD_NS_MAX`])
//!   has expired or too many segments or bytes are held ([`HELD_SEGMENTS_MAX`],
//!   [`HELD_BYTES_MAX`]), the gap is recorded as lost.
//! - A segment with an old number is a repeat if its first message is not newer than the newest
//!   message so far. If the message is newer, the feed has restarted. A new epoch then begins with
//!   number 1. A new session also begins a new epoch.
//! - A segment in a recorded gap is late if it arrives shortly after the time limit. This rule also
//!   applies if the first message of the segment is a little newer than the newest message
//!   ([`LATE_NS_MAX`]). The reason is that messages are not strictly in the order of their times.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Time to wait for a gap to be filled, in nanoseconds of the capture's clock. Segments that fill a
/// gap are recorded after segments that were captured later. The time must therefore be shorter
/// than a backward step that is treated as a clock change.
pub(super) const HELD_NS_MAX: i64 = 500_000_000;
/// Maximum number of held segments. If more segments are held, the first gap is recorded as lost.
pub(super) const HELD_SEGMENTS_MAX: usize = 1024;
/// Maximum number of held bytes. If more bytes are held, the first gap is recorded as lost.
pub(super) const HELD_BYTES_MAX: usize = 4 << 20;
/// Maximum time from the newest message to a message that fills a recorded gap, in nanoseconds. A
/// message beyond this limit belongs to a new epoch.
pub(super) const LATE_NS_MAX: i64 = 1_000_000_000;
/// Maximum number of recorded gaps that are stored to detect late segments. The oldest gaps are
/// removed first.
const GAPS_MAX: usize = 64;

/// The properties of a segment that decide its order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) session: u32,
    /// Sequence number of the segment's first message.
    pub(super) first: u64,
    /// Number of the segment's messages. If the count is 0, `first` is the sequence number of the
    /// feed's next message.
    pub(super) count: u16,
    /// Time of the segment's first message.
    pub(super) first_ns: i64,
    /// Send time.
    pub(super) send_ns: i64,
    /// Capture time.
    pub(super) wall_ns: i64,
}

/// The classification of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// The segment contains the next expected messages. The given number of messages at its start
    /// is already recorded.
    Next(u16),
    /// Messages before this segment are missing. The caller must [hold](ReorderBuffer::hold) the
    /// segment.
    Ahead,
    /// All messages of the segment are already recorded.
    Repeat,
    /// The segment is in a recorded gap.
    Late,
    /// The segment belongs to an old epoch.
    OldEpoch,
    /// The segment belongs to an old epoch and was captured before the current epoch began. The
    /// captures are therefore in the wrong order.
    WrongOrder,
    /// The segment begins a new epoch. The caller must call
    /// [`begin_epoch`](ReorderBuffer::begin_epoch) and then classify the segment again.
    NewEpoch,
    /// The segment has no messages and shows no gap.
    Heartbeat,
}

/// A gap whose missing messages are no longer awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SequenceGap {
    /// Number of missing messages.
    pub(super) count: u64,
    /// Whether damage to the capture may have caused the gap.
    pub(super) is_damage: bool,
}

/// Puts the segments of one feed in order. `T` is the data that is stored with a held segment.
#[derive(Debug)]
pub(super) struct ReorderBuffer<T> {
    session: u32,
    next: Option<u64>,                // next sequence number; none before the first segment
    epoch_start_ns: i64,              // capture time of the epoch's first segment
    newest_ns: i64,                   // time of the epoch's newest message
    newest_send_ns: i64,              // send time of the epoch's newest segment
    old_epochs: Option<(i64, i64)>,   // both times, over all old epochs
    held: BTreeMap<u64, HeldItem<T>>, // all of this epoch; first numbers > next
    held_bytes: usize,                // of all in held
    gaps: VecDeque<Range<u64>>,       // <= GAPS_MAX, of this epoch
    damaged: Range<u64>,              // numbers in damaged segments
    is_damaged: bool,                 // damage of unknown size since the last segment that was next
}

#[derive(Debug)]
struct HeldItem<T> {
    arrival: Arrival,
    bytes: usize,
    item: T,
}

impl<T> ReorderBuffer<T> {
    pub(super) fn new() -> Self {
        Self {
            session: 0,
            next: None,
            epoch_start_ns: i64::MIN,
            newest_ns: i64::MIN,
            newest_send_ns: i64::MIN,
            old_epochs: None,
            held: BTreeMap::new(),
            held_bytes: 0,
            gaps: VecDeque::new(),
            damaged: 0..0,
            is_damaged: false,
        }
    }

    /// Classifies a segment.
    #[inline]
    pub(super) fn classify(&self, arrival: &Arrival) -> Placement {
        if self.next == Some(arrival.first)
            && arrival.session == self.session
            && arrival.count > 0
            && !self.is_from_old_epoch(arrival)
        {
            return Placement::Next(0);
        }
        self.classify_other(arrival)
    }

    fn classify_other(&self, arrival: &Arrival) -> Placement {
        let Arrival { session, first, count, .. } = *arrival;
        let Some(next) = self.next else {
            return match first {
                _ if count == 0 => Placement::Heartbeat,
                _ if self.starts_epoch_after_held(arrival) => Placement::NewEpoch,
                0 | 1 => Placement::Next(0),
                _ => Placement::Ahead,
            };
        };
        if count == 0 {
            let shows_gap = session == self.session && first > next && !self.is_from_old_epoch(arrival);
            return if shows_gap { Placement::Ahead } else { Placement::Heartbeat };
        }
        let newer_ns = arrival.first_ns.saturating_sub(self.newest_ns);
        if self.is_from_old_epoch(arrival) {
            return self.classify_old_epoch(arrival);
        }
        if session != self.session {
            return if newer_ns > 0 { Placement::NewEpoch } else { self.classify_old_epoch(arrival) };
        }
        if first > next {
            return Placement::Ahead;
        }
        let end = first.saturating_add(count.into());
        let is_in_gap = self.gaps.iter().any(|hole| hole.start < end && first < hole.end);
        if newer_ns > 0 && !(is_in_gap && newer_ns <= LATE_NS_MAX) {
            return Placement::NewEpoch;
        }
        if end > next {
            return Placement::Next(u16::try_from(next - first).unwrap_or(count));
        }
        if is_in_gap { Placement::Late } else { Placement::Repeat }
    }

    /// Returns whether the segment begins an epoch after the epoch of the held segments. This
    /// method is used only before anything is recorded. The segment begins such an epoch if it has
    /// another session or a lower sequence number, and is newer than all held segments.
    fn starts_epoch_after_held(&self, arrival: &Arrival) -> bool {
        let is_newer = |held: &Arrival| arrival.first_ns > held.first_ns && arrival.send_ns > held.send_ns;
        let first = self.held.values().next().map(|held| held.arrival);
        first.is_some_and(|first| arrival.session != first.session || arrival.first < first.first)
            && self.held.values().all(|held| is_newer(&held.arrival))
    }

    /// Classifies a segment of an old epoch.
    fn classify_old_epoch(&self, arrival: &Arrival) -> Placement {
        if arrival.wall_ns < self.epoch_start_ns { Placement::WrongOrder } else { Placement::OldEpoch }
    }

    /// Returns whether the segment and its first message are older than the end of an old epoch.
    #[inline]
    fn is_from_old_epoch(&self, arrival: &Arrival) -> bool {
        self.old_epochs
            .is_some_and(|(newest_ns, send_ns)| arrival.first_ns <= newest_ns && arrival.send_ns <= send_ns)
    }

    /// Notes that the messages of a segment were recorded. `newest_ns` is the time of the newest
    /// message.
    #[inline]
    pub(super) fn record(&mut self, arrival: &Arrival, newest_ns: i64) {
        if self.next.is_none() {
            self.session = arrival.session;
            self.epoch_start_ns = arrival.wall_ns;
        }
        self.next = Some(arrival.first.saturating_add(arrival.count.into()));
        self.newest_ns = self.newest_ns.max(newest_ns);
        self.newest_send_ns = self.newest_send_ns.max(arrival.send_ns);
        if self.held.is_empty() {
            self.is_damaged = false;
        }
    }

    /// Records damage of unknown size, which may be the cause of the next gap.
    pub(super) fn note_damage(&mut self) {
        self.is_damaged = true;
    }

    /// Records that these sequence numbers of the epoch were in a damaged segment.
    pub(super) fn note_damaged_numbers(&mut self, numbers: Range<u64>) {
        self.damaged = if self.damaged.is_empty() {
            numbers
        } else {
            self.damaged.start.min(numbers.start)..self.damaged.end.max(numbers.end)
        };
    }

    /// Holds a segment that is [ahead](Placement::Ahead). If two segments have the same sequence
    /// number, keeps the longer one.
    pub(super) fn hold(&mut self, arrival: Arrival, bytes: usize, item: T) {
        let shorter = |held: &HeldItem<T>| held.arrival.count < arrival.count;
        if self.held.get(&arrival.first).is_none_or(shorter) {
            let before = self.held.insert(arrival.first, HeldItem { arrival, bytes, item });
            self.held_bytes = self.held_bytes - before.map_or(0, |held| held.bytes) + bytes;
        }
    }

    /// Removes and returns the first held segment if it begins at or before the next expected
    /// message. Also returns the number of its messages that are already recorded.
    pub(super) fn take_next(&mut self) -> Option<(Arrival, T, u16)> {
        loop {
            let entry = self.held.first_entry()?;
            let (next, Arrival { first, count, .. }) = (self.next?, entry.get().arrival);
            if first > next {
                return None;
            }
            let held = entry.remove();
            self.held_bytes -= held.bytes;
            if let Ok(before) = u16::try_from(next - first)
                && before < count
            {
                return Some((held.arrival, held.item, before));
            }
        }
    }

    /// Returns whether the first gap must be given up at the capture time `wall_ns`.
    #[inline]
    pub(super) fn is_overdue(&self, wall_ns: i64) -> bool {
        !self.held.is_empty() && self.is_first_overdue(wall_ns)
    }

    fn is_first_overdue(&self, wall_ns: i64) -> bool {
        let first = self.held.values().next();
        let waited = first.map_or(0, |held| wall_ns.saturating_sub(held.arrival.wall_ns));
        waited > HELD_NS_MAX || self.held.len() > HELD_SEGMENTS_MAX || self.held_bytes > HELD_BYTES_MAX
    }

    /// Gives up the gap before the held segments, which can then be [taken](Self::take_next).
    /// Returns `None` if nothing is held.
    pub(super) fn give_up_gap(&mut self) -> Option<SequenceGap> {
        let (&first, held) = self.held.first_key_value()?;
        let Some(next) = self.next.replace(first) else {
            // A capture that begins in the middle of a feed has no gap.
            self.session = held.arrival.session;
            return Some(SequenceGap { count: 0, is_damage: false });
        };
        let hole = next..first;
        let is_damage = std::mem::take(&mut self.is_damaged)
            || (self.damaged.start < hole.end && hole.start < self.damaged.end);
        if self.gaps.len() == GAPS_MAX {
            self.gaps.pop_front();
        }
        self.gaps.push_back(hole);
        Some(SequenceGap { count: first.saturating_sub(next), is_damage })
    }

    /// Begins a new epoch with this segment. No segment may be held when this method is called.
    pub(super) fn begin_epoch(&mut self, arrival: &Arrival) {
        let (newest_ns, send_ns) = self.old_epochs.unwrap_or((i64::MIN, i64::MIN));
        self.old_epochs = Some((newest_ns.max(self.newest_ns), send_ns.max(self.newest_send_ns)));
        self.session = arrival.session;
        self.epoch_start_ns = arrival.wall_ns;
        self.next = Some(arrival.first.min(1));
        (self.newest_ns, self.newest_send_ns) = (i64::MIN, i64::MIN);
        self.gaps.clear();
        self.damaged = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(first: u64, count: u16, first_ns: i64) -> Arrival {
        Arrival { session: 1, first, count, first_ns, send_ns: first_ns, wall_ns: first_ns }
    }

    // Proves that held segments are bounded by count, bytes and time.
    #[test]
    fn held_segments_are_bounded() {
        let held = |bytes: usize, step_ns: i64| {
            let mut order = ReorderBuffer::new();
            order.record(&arrival(1, 1, 0), 0);
            let mut number = 3;
            while !order.is_overdue(i64::try_from(number).unwrap() * step_ns) {
                let ahead = arrival(number, 1, i64::try_from(number).unwrap() * step_ns);
                assert_eq!(order.classify(&ahead), Placement::Ahead);
                order.hold(ahead, bytes, ());
                number += 1;
            }
            assert_eq!(order.give_up_gap(), Some(SequenceGap { count: 1, is_damage: false }));
            let mut taken = 0;
            while let Some((arrival, (), 0)) = order.take_next() {
                order.record(&arrival, arrival.first_ns);
                taken += 1;
            }
            assert_eq!(order.held_bytes, 0);
            taken
        };
        assert_eq!(held(1, 1), HELD_SEGMENTS_MAX + 1);
        assert_eq!(held(HELD_BYTES_MAX / 4, 1), 5);
        assert_eq!(held(1, HELD_NS_MAX / 3), 4);
    }

    // Proves that a gap is attributed to damage only if damage overlaps the gap.
    #[test]
    fn a_hole_has_its_cause() {
        let hole = |prepare: &dyn Fn(&mut ReorderBuffer<()>)| {
            let mut order = ReorderBuffer::new();
            order.record(&arrival(1, 4, 10), 10);
            prepare(&mut order);
            order.hold(arrival(9, 1, 20), 1, ());
            order.give_up_gap()
        };
        let of = |is_damage| Some(SequenceGap { count: 4, is_damage });
        assert_eq!(hole(&|_| {}), of(false));
        assert_eq!(hole(&|order| order.note_damage()), of(true));
        assert_eq!(hole(&|order| order.note_damaged_numbers(6..7)), of(true));
        assert_eq!(hole(&|order| order.note_damaged_numbers(9..12)), of(false));
        assert_eq!(hole(&|order| (order.note_damage(), order.record(&arrival(5, 0, 11), 11)).1), of(false));
    }

    // Proves that epochs are not mixed if the feed restarts immediately after the capture begins.
    #[test]
    fn held_segments_are_one_epoch() {
        let mut order = ReorderBuffer::new();
        let first = arrival(1000, 1, 10);
        assert_eq!(order.classify(&first), Placement::Ahead);
        order.hold(first, 1, ());
        assert_eq!(order.classify(&arrival(1001, 1, 11)), Placement::Ahead);
        assert_eq!(order.classify(&arrival(1, 1, 11)), Placement::NewEpoch);
        assert_eq!(order.classify(&arrival(7, 1, 11)), Placement::NewEpoch);
        assert_eq!(order.classify(&Arrival { session: 2, ..arrival(2000, 1, 11) }), Placement::NewEpoch);
        assert_eq!(order.classify(&arrival(1, 1, 9)), Placement::Next(0));
        assert_eq!(order.classify(&arrival(999, 1, 9)), Placement::Ahead);
    }

    // Proves that extreme sequence numbers neither panic nor wrap.
    #[test]
    fn extreme_numbers_do_not_wrap() {
        let mut order = ReorderBuffer::new();
        order.record(&arrival(u64::MAX - 1, 5, 10), 10);
        assert_eq!(order.classify(&arrival(u64::MAX, 9, 5)), Placement::Next(0));
        assert_eq!(order.classify(&arrival(0, 1, 20)), Placement::NewEpoch);
        assert_eq!(order.classify(&arrival(0, 1, 9)), Placement::Repeat);
        order.begin_epoch(&arrival(0, 1, 20));
        assert_eq!(order.classify(&arrival(0, 1, 20)), Placement::Next(0));
        order.record(&arrival(0, 1, 20), 20);
        let last = Arrival { count: 0, ..arrival(u64::MAX, 0, 30) };
        assert_eq!(order.classify(&last), Placement::Ahead);
        order.hold(last, 0, ());
        assert_eq!(order.give_up_gap(), Some(SequenceGap { count: u64::MAX - 1, is_damage: false }));
        assert!(order.take_next().is_none());
    }
}
