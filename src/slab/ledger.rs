//! Which readings did not get through, and why: written by samplers, read by the recorder.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_queue::ArrayQueue;

/// Losses that wait for the recorder; beyond that only their causes are kept, a bit set a source. The recorder
/// looks every few milliseconds, and a run of losses is one entry.
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
        const NAMES: [&str; 8] = [
            "queue_full",
            "pool_empty",
            "too_large",
            "read_failed",
            "storage",
            "crash",
            "damaged",
            "timed_out",
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
    overflowed: Box<[AtomicU32]>, // one a source, causes whose entry found no room
}

impl LossLedger {
    /// A ledger for sources with ids below `sources`.
    pub fn new(sources: usize) -> Self {
        Self {
            entries: ArrayQueue::new(ENTRIES_MAX),
            overflowed: (0..sources).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Writes a loss down. Never waits.
    pub fn write(&self, loss: Loss) {
        if self.entries.push(loss).is_err()
            && let Some(causes) = self.overflowed.get(usize::from(loss.source))
        {
            causes.fetch_or(loss.causes.bits(), Ordering::Release);
        }
    }

    /// Takes the oldest loss.
    pub fn take(&self) -> Option<Loss> {
        self.entries.pop()
    }

    /// Causes of a source's losses that found no room as entries.
    pub fn overflowed(&self, source: u16) -> Causes {
        let bits =
            self.overflowed.get(usize::from(source)).map_or(0, |causes| causes.load(Ordering::Acquire));
        Causes::from_bits(bits)
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

    // Goal: a full ledger forgets ranges but never causes. Method: one entry too many.
    #[test]
    fn a_full_ledger_keeps_the_causes() {
        let ledger = LossLedger::new(2);
        for seq in 0..=ENTRIES_MAX as u64 {
            ledger.write(Loss { source: 1, first_seq: seq * 2, count: 1, causes: Causes::POOL_EMPTY });
        }
        assert_eq!(ledger.overflowed(1), Causes::POOL_EMPTY);
        assert_eq!(ledger.overflowed(0), Causes::default());
        assert_eq!(std::iter::from_fn(|| ledger.take()).count(), ENTRIES_MAX);
    }
}
