//! Which messages of a feed are new? Decides by sequence numbers and the messages' own times, on what came late, twice, or anew.
//!
//! A feed may be captured on two lines at once, whose packets come in any order, and it may begin its numbers anew without a word. So:
//!
//! - What has the next number is next. What is ahead of it is held back until the hole in front of it is filled, the window's time
//!   is over ([`HELD_NS_MAX`]), or too much is held ([`HELD_SEGMENTS_MAX`], [`HELD_BYTES_MAX`]); then the hole is a gap.
//! - What is behind is a repeat, if its first message is not newer than the newest so far. If it is newer, the feed has begun anew: an
//!   epoch, whose numbers begin at 1. A new session is one too.
//! - A number that is in a gap already and came a little later than the window allows is late, even if it is a little
//!   newer ([`LATE_NS_MAX`]): messages are not exactly in the order of their times.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// How long a hole is waited for, by the capture's clock, in nanoseconds. Less than a step back of a recording's clock, as what
/// fills a hole is recorded behind what was captured before it.
pub(super) const HELD_NS_MAX: i64 = 500_000_000;
/// Most segments that are held back; with one more the first hole is a gap.
pub(super) const HELD_SEGMENTS_MAX: usize = 1024;
/// Most bytes that are held back, likewise.
pub(super) const HELD_BYTES_MAX: usize = 4 << 20;
/// Most by which a message that fills a gap may be newer than the newest message, in nanoseconds; beyond, it is of a new epoch.
pub(super) const LATE_NS_MAX: i64 = 1_000_000_000;
/// Most gaps that are remembered for it; of more, the oldest are forgotten.
const HOLES_MAX: usize = 64;

/// What is asked about a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) session: u32,
    /// Sequence number of its first message.
    pub(super) first: u64,
    /// Its messages; 0: the number of the next one.
    pub(super) count: u16,
    /// Time of its first message.
    pub(super) first_ns: i64,
    /// When it was sent.
    pub(super) send_ns: i64,
    /// When it was captured.
    pub(super) wall_ns: i64,
}

/// What becomes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// Its messages are next, but for so many that were there before.
    Next(u16),
    /// Its messages are ahead: it is to be [held](Order::hold).
    Ahead,
    /// All of it was there before.
    Repeat,
    /// It is in a gap already, or of an epoch that is over.
    Late,
    /// It begins a new epoch: [`begin`](Order::begin), then ask again.
    Anew,
    /// It has no messages and tells nothing new.
    Heartbeat,
}

/// A hole that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    /// Messages that are missing.
    pub(super) count: u64,
    /// Damage of the capture may have taken them.
    pub(super) is_damage: bool,
}

/// The order of one feed's segments. `T` is what is held of one.
#[derive(Debug)]
pub(super) struct Order<T> {
    session: u32,
    next: Option<u64>,            // sequence number; none before the first segment
    newest_ns: i64,               // time of the epoch's newest message
    newest_send_ns: i64,          // and when it was sent
    over: Option<(i64, i64)>,     // both, of the epochs before
    held: BTreeMap<u64, Held<T>>, // all of the epoch; first numbers > next
    held_bytes: usize,            // of all in held
    holes: VecDeque<Range<u64>>,  // <= HOLES_MAX, of the epoch
    damaged: Range<u64>,          // numbers that damaged segments had
    is_damaged: bool,             // damage of unknown size since the last segment that was next
}

#[derive(Debug)]
struct Held<T> {
    arrival: Arrival,
    bytes: usize,
    item: T,
}

impl<T> Order<T> {
    pub(super) fn new() -> Self {
        Self {
            session: 0,
            next: None,
            newest_ns: i64::MIN,
            newest_send_ns: i64::MIN,
            over: None,
            held: BTreeMap::new(),
            held_bytes: 0,
            holes: VecDeque::new(),
            damaged: 0..0,
            is_damaged: false,
        }
    }

    /// What becomes of a segment.
    #[inline]
    pub(super) fn place(&self, arrival: &Arrival) -> Placement {
        if self.next == Some(arrival.first)
            && arrival.session == self.session
            && arrival.count > 0
            && !self.is_over(arrival)
        {
            return Placement::Next(0);
        }
        self.place_other(arrival)
    }

    fn place_other(&self, arrival: &Arrival) -> Placement {
        let Arrival { session, first, count, .. } = *arrival;
        let Some(next) = self.next else {
            return match first {
                _ if count == 0 => Placement::Heartbeat,
                _ if self.is_behind_held(arrival) => Placement::Anew,
                0 | 1 => Placement::Next(0),
                _ => Placement::Ahead,
            };
        };
        if count == 0 {
            let tells = session == self.session && first > next && !self.is_over(arrival);
            return if tells { Placement::Ahead } else { Placement::Heartbeat };
        }
        let newer_ns = arrival.first_ns.saturating_sub(self.newest_ns);
        if self.is_over(arrival) {
            return Placement::Late;
        }
        if session != self.session {
            return if newer_ns > 0 { Placement::Anew } else { Placement::Late };
        }
        if first > next {
            return Placement::Ahead;
        }
        let end = first.saturating_add(count.into());
        let is_in_hole = self.holes.iter().any(|hole| hole.start < end && first < hole.end);
        if newer_ns > 0 && !(is_in_hole && newer_ns <= LATE_NS_MAX) {
            return Placement::Anew;
        }
        if end > next {
            return Placement::Next(u16::try_from(next - first).unwrap_or(count));
        }
        if is_in_hole { Placement::Late } else { Placement::Repeat }
    }

    /// Where nothing is recorded yet: whether it begins an epoch behind the one that is held, by its session or by a lower number, as it is
    /// newer than all of that.
    fn is_behind_held(&self, arrival: &Arrival) -> bool {
        let is_newer = |held: &Arrival| arrival.first_ns > held.first_ns && arrival.send_ns > held.send_ns;
        let first = self.held.values().next().map(|held| held.arrival);
        first.is_some_and(|first| arrival.session != first.session || arrival.first < first.first)
            && self.held.values().all(|held| is_newer(&held.arrival))
    }

    /// Whether it was sent, and its first message made, before an epoch was over that is not this one.
    #[inline]
    fn is_over(&self, arrival: &Arrival) -> bool {
        self.over
            .is_some_and(|(newest_ns, send_ns)| arrival.first_ns <= newest_ns && arrival.send_ns <= send_ns)
    }

    /// Messages were recorded: `count` from the number `first` on, the newest of this time.
    #[inline]
    pub(super) fn record(&mut self, arrival: &Arrival, newest_ns: i64) {
        if self.next.is_none() {
            self.session = arrival.session;
        }
        self.next = Some(arrival.first.saturating_add(arrival.count.into()));
        self.newest_ns = self.newest_ns.max(newest_ns);
        self.newest_send_ns = self.newest_send_ns.max(arrival.send_ns);
        if self.held.is_empty() {
            self.is_damaged = false;
        }
    }

    /// Something of unknown size could not be read: the next hole may be due to it.
    pub(super) fn damage(&mut self) {
        self.is_damaged = true;
    }

    /// These numbers of the epoch were in a segment that is damaged.
    pub(super) fn damage_of(&mut self, numbers: Range<u64>) {
        self.damaged = if self.damaged.is_empty() {
            numbers
        } else {
            self.damaged.start.min(numbers.start)..self.damaged.end.max(numbers.end)
        };
    }

    /// Holds a segment that is [ahead](Placement::Ahead); of two with the same number the longer one.
    pub(super) fn hold(&mut self, arrival: Arrival, bytes: usize, item: T) {
        let shorter = |held: &Held<T>| held.arrival.count < arrival.count;
        if self.held.get(&arrival.first).is_none_or(shorter) {
            let before = self.held.insert(arrival.first, Held { arrival, bytes, item });
            self.held_bytes = self.held_bytes - before.map_or(0, |held| held.bytes) + bytes;
        }
    }

    /// The next segment that was held back, if it is next now, and how many of its messages were there before.
    pub(super) fn take(&mut self) -> Option<(Arrival, T, u16)> {
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

    /// Whether the first hole is to be given up at this time of the capture.
    #[inline]
    pub(super) fn is_overdue(&self, wall_ns: i64) -> bool {
        !self.held.is_empty() && self.is_first_overdue(wall_ns)
    }

    fn is_first_overdue(&self, wall_ns: i64) -> bool {
        let first = self.held.values().next();
        let waited = first.map_or(0, |held| wall_ns.saturating_sub(held.arrival.wall_ns));
        waited > HELD_NS_MAX || self.held.len() > HELD_SEGMENTS_MAX || self.held_bytes > HELD_BYTES_MAX
    }

    /// Gives up the hole in front of what is held; what was behind it can be [taken](Self::take). None: nothing is held.
    pub(super) fn give_up(&mut self) -> Option<Hole> {
        let (&first, held) = self.held.first_key_value()?;
        let Some(next) = self.next.replace(first) else {
            // A capture that begins in the middle lacks nothing.
            self.session = held.arrival.session;
            return Some(Hole { count: 0, is_damage: false });
        };
        let hole = next..first;
        let is_damage = std::mem::take(&mut self.is_damaged)
            || (self.damaged.start < hole.end && hole.start < self.damaged.end);
        if self.holes.len() == HOLES_MAX {
            self.holes.pop_front();
        }
        self.holes.push_back(hole);
        Some(Hole { count: first.saturating_sub(next), is_damage })
    }

    /// A new epoch, begun by this segment. Nothing may be held any more.
    pub(super) fn begin(&mut self, arrival: &Arrival) {
        let (newest_ns, send_ns) = self.over.unwrap_or((i64::MIN, i64::MIN));
        self.over = Some((newest_ns.max(self.newest_ns), send_ns.max(self.newest_send_ns)));
        self.session = arrival.session;
        self.next = Some(arrival.first.min(1));
        (self.newest_ns, self.newest_send_ns) = (i64::MIN, i64::MIN);
        self.holes.clear();
        self.damaged = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(first: u64, count: u16, first_ns: i64) -> Arrival {
        Arrival { session: 1, first, count, first_ns, send_ns: first_ns, wall_ns: first_ns }
    }

    // Goal: what is held back is bounded. Method: segments ahead of a hole, more than may be held by number, by bytes, and by time.
    #[test]
    fn what_is_held_is_bounded() {
        let held = |bytes: usize, step_ns: i64| {
            let mut order = Order::new();
            order.record(&arrival(1, 1, 0), 0);
            let mut number = 3;
            while !order.is_overdue(i64::try_from(number).unwrap() * step_ns) {
                let ahead = arrival(number, 1, i64::try_from(number).unwrap() * step_ns);
                assert_eq!(order.place(&ahead), Placement::Ahead);
                order.hold(ahead, bytes, ());
                number += 1;
            }
            assert_eq!(order.give_up(), Some(Hole { count: 1, is_damage: false }));
            let mut taken = 0;
            while let Some((arrival, (), 0)) = order.take() {
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

    // Goal: a hole has the cause that took it. Method: damage of unknown size, damage of these numbers and of others, none.
    #[test]
    fn a_hole_has_its_cause() {
        let hole = |prepare: &dyn Fn(&mut Order<()>)| {
            let mut order = Order::new();
            order.record(&arrival(1, 4, 10), 10);
            prepare(&mut order);
            order.hold(arrival(9, 1, 20), 1, ());
            order.give_up()
        };
        let of = |is_damage| Some(Hole { count: 4, is_damage });
        assert_eq!(hole(&|_| {}), of(false));
        assert_eq!(hole(&|order| order.damage()), of(true));
        assert_eq!(hole(&|order| order.damage_of(6..7)), of(true));
        assert_eq!(hole(&|order| order.damage_of(9..12)), of(false));
        assert_eq!(hole(&|order| (order.damage(), order.record(&arrival(5, 0, 11), 11)).1), of(false));
    }

    // Goal: a capture that begins within a feed which begins anew at once mixes no epochs. Method: segments held at the begin, then lower numbers that
    // are newer, or of another session; lower ones that were only late.
    #[test]
    fn what_is_held_at_the_begin_is_one_epoch() {
        let mut order = Order::new();
        let first = arrival(1000, 1, 10);
        assert_eq!(order.place(&first), Placement::Ahead);
        order.hold(first, 1, ());
        assert_eq!(order.place(&arrival(1001, 1, 11)), Placement::Ahead);
        assert_eq!(order.place(&arrival(1, 1, 11)), Placement::Anew);
        assert_eq!(order.place(&arrival(7, 1, 11)), Placement::Anew);
        assert_eq!(order.place(&Arrival { session: 2, ..arrival(2000, 1, 11) }), Placement::Anew);
        assert_eq!(order.place(&arrival(1, 1, 9)), Placement::Next(0));
        assert_eq!(order.place(&arrival(999, 1, 9)), Placement::Ahead);
    }

    // Goal: numbers that nobody can believe neither panic nor wrap. Method: the highest numbers, 0, a heartbeat at the end of all.
    #[test]
    fn numbers_at_the_end_of_all() {
        let mut order = Order::new();
        order.record(&arrival(u64::MAX - 1, 5, 10), 10);
        assert_eq!(order.place(&arrival(u64::MAX, 9, 5)), Placement::Next(0));
        assert_eq!(order.place(&arrival(0, 1, 20)), Placement::Anew);
        assert_eq!(order.place(&arrival(0, 1, 9)), Placement::Repeat);
        order.begin(&arrival(0, 1, 20));
        assert_eq!(order.place(&arrival(0, 1, 20)), Placement::Next(0));
        order.record(&arrival(0, 1, 20), 20);
        let last = Arrival { count: 0, ..arrival(u64::MAX, 0, 30) };
        assert_eq!(order.place(&last), Placement::Ahead);
        order.hold(last, 0, ());
        assert_eq!(order.give_up(), Some(Hole { count: u64::MAX - 1, is_damage: false }));
        assert!(order.take().is_none());
    }
}
