//! Which readings did not get through, and why: written by samplers, read by the recorder.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};
#[cfg(not(all(test, flatcap_model)))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(all(test, flatcap_model)))]
use crossbeam_queue::ArrayQueue;

#[cfg(all(test, flatcap_model))]
use crate::model::{ArrayQueue, AtomicU32, AtomicU64, Ordering};

/// Losses that wait for the recorder; beyond that only their causes are kept, with one range of numbers a source. The
/// recorder looks every few milliseconds, and a run of losses is one entry.
const ENTRIES_MAX: usize = 4096;

/// Why readings were lost: a set of causes, with the bits of `GapCause` in schemas/segment.fbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Causes(u32);

impl Causes {
    /// The hand-over queue was full.
    pub const QUEUE_FULL: Self = Self(1);
    /// No free slab was left.
    pub const POOL_EMPTY: Self = Self(1 << 1);
    /// The frame was longer than the limit.
    pub const TOO_LARGE: Self = Self(1 << 2);
    /// The source could not be read.
    pub const READ_FAILED: Self = Self(1 << 3);
    /// The storage refused the write.
    pub const STORAGE: Self = Self(1 << 4);
    /// The source did not answer in time.
    pub const TIMED_OUT: Self = Self(1 << 7);

    /// The set with these bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for Causes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Causes {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 9] = [
            "queue_full",
            "pool_empty",
            "too_large",
            "read_failed",
            "storage",
            "crash",
            "damaged",
            "timed_out",
            "not_received",
        ];
        let mut names =
            NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1).map(|(_, name)| name);
        match names.next() {
            None => f.write_str("unknown"),
            Some(first) => {
                f.write_str(first)?;
                names.try_for_each(|name| write!(f, "+{name}"))
            }
        }
    }
}

/// Consecutive readings of one source that were lost for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The source's id.
    pub source: u16,
    /// First sequence number.
    pub first_seq: u64,
    /// How many.
    pub count: u64,
    /// Why.
    pub causes: Causes,
}

/// The losses of all groups, on their way to the recorder. Lock-free and bounded.
#[derive(Debug)]
pub struct LossLedger {
    entries: ArrayQueue<Loss>,
    overflowed: Box<[Overflow]>, // one a source
}

/// Losses of one source that found no room as entries: all causes, and the numbers they lie within. One writer, the source's
/// group.
#[derive(Debug, Default)]
struct Overflow {
    causes: AtomicU32,
    first_seq: AtomicU64,
    end_seq: AtomicU64,
}

impl LossLedger {
    /// What a ledger takes for its entries, each with a mark of its place.
    pub const BYTES: usize = ENTRIES_MAX * (size_of::<Loss>() + size_of::<usize>());

    /// A ledger for sources with ids below `sources`.
    pub fn new(sources: usize) -> Self {
        Self::with_entries(ENTRIES_MAX, sources)
    }

    /// A ledger for so many entries.
    pub(super) fn with_entries(entries: usize, sources: usize) -> Self {
        Self {
            entries: ArrayQueue::new(entries),
            overflowed: (0..sources).map(|_| Overflow::default()).collect(),
        }
    }

    /// Writes a loss down. Never waits. Only for the group of the loss's source.
    pub fn write(&self, loss: Loss) {
        if self.entries.push(loss).is_err()
            && let Some(overflow) = self.overflowed.get(usize::from(loss.source))
        {
            overflow.widen(loss);
        }
    }

    /// Takes the oldest loss.
    pub fn take(&self) -> Option<Loss> {
        self.entries.pop()
    }

    /// Losses that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.entries.len()
    }

    /// Causes of losses of `source` that found no room as entries, if any of them may lie within `first..end`.
    pub fn overflowed(&self, source: u16, first: u64, end: u64) -> Causes {
        self.overflowed
            .get(usize::from(source))
            .map_or(Causes::default(), |overflow| overflow.causes(first, end))
    }
}

impl Overflow {
    fn widen(&self, loss: Loss) {
        let end_seq = loss.first_seq + loss.count;
        let known = self.causes.load(Ordering::Relaxed);
        if known == 0 || loss.first_seq < self.first_seq.load(Ordering::Relaxed) {
            self.first_seq.store(loss.first_seq, Ordering::Relaxed);
        }
        if end_seq > self.end_seq.load(Ordering::Relaxed) {
            self.end_seq.store(end_seq, Ordering::Relaxed);
        }
        // Last: who sees these causes sees a range that is at least as wide as theirs.
        self.causes.store(known | loss.causes.bits(), Ordering::Release);
    }

    fn causes(&self, first: u64, end: u64) -> Causes {
        let causes = Causes::from_bits(self.causes.load(Ordering::Acquire));
        let overlaps =
            self.first_seq.load(Ordering::Relaxed) < end && self.end_seq.load(Ordering::Relaxed) > first;
        if overlaps { causes } else { Causes::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::segment::GapCause;

    // Goal: the bits are those of the file format. Method: compare with the generated bit set, name by name.
    #[test]
    fn bits_are_those_of_the_format() {
        let pairs = [
            (Causes::QUEUE_FULL, GapCause::QueueFull),
            (Causes::POOL_EMPTY, GapCause::PoolEmpty),
            (Causes::TOO_LARGE, GapCause::TooLarge),
            (Causes::READ_FAILED, GapCause::ReadFailed),
            (Causes::STORAGE, GapCause::Storage),
            (Causes::TIMED_OUT, GapCause::TimedOut),
        ];
        for (ours, format) in pairs {
            assert_eq!(ours.bits(), format.bits());
        }
        assert_eq!((Causes::QUEUE_FULL | Causes::STORAGE).to_string(), "queue_full+storage");
        assert_eq!(Causes::default().to_string(), "unknown");
    }

    // Goal: a full ledger forgets single ranges but no cause, and blames no other numbers. Method: entries too many, by two causes.
    #[test]
    fn a_full_ledger_keeps_the_causes() {
        let ledger = LossLedger::new(2);
        for seq in 0..=ENTRIES_MAX as u64 {
            ledger.write(Loss { source: 1, first_seq: seq * 2, count: 1, causes: Causes::POOL_EMPTY });
        }
        ledger.write(Loss { source: 1, first_seq: 9000, count: 5, causes: Causes::QUEUE_FULL });
        assert_eq!(ledger.overflowed(1, 9004, 9010), Causes::POOL_EMPTY | Causes::QUEUE_FULL);
        assert_eq!(ledger.overflowed(1, 8192, 8193), Causes::POOL_EMPTY | Causes::QUEUE_FULL);
        assert_eq!(ledger.overflowed(1, 0, 8192), Causes::default());
        assert_eq!(ledger.overflowed(1, 9005, 9010), Causes::default());
        assert_eq!(ledger.overflowed(0, 0, u64::MAX), Causes::default());
        assert_eq!(std::iter::from_fn(|| ledger.take()).count(), ENTRIES_MAX);
    }
}
