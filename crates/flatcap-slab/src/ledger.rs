//! Stores the lost samples with the causes of the losses. The samplers write losses to this ledger,
//! and the recorder reads them.

#[cfg(not(flatcap_model))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(flatcap_model))]
use crossbeam_queue::ArrayQueue;

#[cfg(flatcap_model)]
use flatcap_os::model::{ArrayQueue, AtomicU32, AtomicU64, Ordering};

/// A set of causes of a loss. Gaps contain such sets.
pub use flatcap_format::schema::segment::GapCause as Causes;

/// Maximum number of queued losses. For losses beyond the limit, only the causes and one range of
/// sequence numbers per source are stored. The limit is high, because the recorder polls every few
/// milliseconds and consecutive losses are one entry.
const ENTRIES_MAX: usize = 4096;

/// Consecutive samples of one source that were lost for the same reason.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// The source's id.
    pub source: u16,
    /// First sequence number.
    pub first_seq: u64,
    /// Number of samples.
    pub count: u64,
    /// The causes of the loss.
    pub causes: Causes,
}

/// The losses of all groups, queued for the recorder. The ledger is lock-free and bounded.
#[derive(Debug)]
pub struct LossLedger {
    entries: ArrayQueue<Loss>,
    overflowed: Box<[Overflow]>, // one per source
}

/// Losses of one source that found no free entry. The overflow stores all causes of these losses,
/// and the range of their sequence numbers. The only writer is the source's group.
#[derive(Debug, Default)]
struct Overflow {
    causes: AtomicU32,
    first_seq: AtomicU64,
    end_seq: AtomicU64,
}

impl LossLedger {
    /// Memory of a ledger's entries, in bytes. Each entry has a stamp of the queue.
    pub const BYTES: usize = ENTRIES_MAX * (size_of::<Loss>() + size_of::<usize>());

    /// Creates a ledger for sources with ids below `sources`.
    pub fn new(sources: usize) -> Self {
        Self::with_entries(ENTRIES_MAX, sources)
    }

    /// Creates a ledger whose queue has `entries` entries.
    pub(super) fn with_entries(entries: usize, sources: usize) -> Self {
        Self {
            entries: ArrayQueue::new(entries),
            overflowed: (0..sources).map(|_| Overflow::default()).collect(),
        }
    }

    /// Records a loss. Never waits. Only the group that owns the source of the loss may call this
    /// function.
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

    /// Returns the number of queued losses.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.entries.len()
    }

    /// Returns the causes of the losses of `source` that found no free entry, if any of these
    /// losses may be in `first..end`.
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
        // The causes are stored last. So a reader that sees the causes also sees a range that is at
        // least as wide as their range.
        self.causes.store(known | loss.causes.bits(), Ordering::Release);
    }

    fn causes(&self, first: u64, end: u64) -> Causes {
        let causes = Causes::from_bits_retain(self.causes.load(Ordering::Acquire));
        let overlaps =
            self.first_seq.load(Ordering::Relaxed) < end && self.end_seq.load(Ordering::Relaxed) > first;
        if overlaps { causes } else { Causes::default() }
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::GapCauseNames;

    use super::*;

    // Proves that a set of causes is displayed with the names of the format.
    #[test]
    fn causes_have_the_names_of_the_format() {
        let names = |causes: Causes| GapCauseNames(causes.bits()).to_string();
        assert_eq!(names(Causes::QueueFull | Causes::Storage), "queue_full+storage");
        assert_eq!(names(Causes::default()), "unknown");
    }

    // Proves that a full ledger loses the exact ranges of losses but no causes, and that sequence
    // numbers outside of the losses get no cause.
    #[test]
    fn a_full_ledger_keeps_the_causes() {
        let ledger = LossLedger::new(2);
        for seq in 0..=ENTRIES_MAX as u64 {
            ledger.write(Loss { source: 1, first_seq: seq * 2, count: 1, causes: Causes::PoolEmpty });
        }
        ledger.write(Loss { source: 1, first_seq: 9000, count: 5, causes: Causes::QueueFull });
        assert_eq!(ledger.overflowed(1, 9004, 9010), Causes::PoolEmpty | Causes::QueueFull);
        assert_eq!(ledger.overflowed(1, 8192, 8193), Causes::PoolEmpty | Causes::QueueFull);
        assert_eq!(ledger.overflowed(1, 0, 8192), Causes::default());
        assert_eq!(ledger.overflowed(1, 9005, 9010), Causes::default());
        assert_eq!(ledger.overflowed(0, 0, u64::MAX), Causes::default());
        assert_eq!(std::iter::from_fn(|| ledger.take()).count(), ENTRIES_MAX);
    }
}
