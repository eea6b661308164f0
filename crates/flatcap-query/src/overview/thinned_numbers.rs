//! The sequence numbers of thinned samples, that is, samples that were left out on purpose.

use std::collections::BTreeMap;

use flatcap_format::segment::Gap;

/// Ranges of sequence numbers of thinned samples, for one source in one run.
#[derive(Debug, Default)]
pub(super) struct ThinnedNumbers {
    /// For each range, the first sequence number after the range. The key is the first sequence
    /// number of the range.
    ends: BTreeMap<u64, u64>,
    /// For each range, its first sequence number. The key is the first sequence number after the
    /// range.
    starts: BTreeMap<u64, u64>,
}

impl ThinnedNumbers {
    /// Adds the sequence numbers of the samples in a gap, if these samples were thinned.
    pub(super) fn add(&mut self, gap: &Gap) {
        if gap.is_thinned() && gap.count > 0 {
            let end = gap.first.saturating_add(gap.count);
            self.ends.insert(gap.first, end);
            self.starts.insert(end, gap.first);
        }
    }

    /// Returns the first sequence number at or after `seq` whose sample was not thinned.
    pub(super) fn skip(&self, mut seq: u64) -> u64 {
        // A range may directly follow another range.
        while let Some(end) = self.ends.get(&seq) {
            seq = *end;
        }
        seq
    }

    /// Returns the first of the consecutive thinned numbers that directly precede `seq`. Returns
    /// `seq` if its predecessor was not thinned.
    pub(super) fn skip_back(&self, mut seq: u64) -> u64 {
        while let Some(start) = self.starts.get(&seq) {
            seq = *start;
        }
        seq
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::segment::GapCause;

    use super::*;

    // Proves that adjacent ranges are skipped like a single range, in both directions, and that
    // lost samples are not skipped.
    #[test]
    fn ranges_are_skipped() {
        let gap = |first, count, is_thinned| Gap {
            source: 0,
            first,
            count,
            causes: if is_thinned { GapCause::Thinned.bits() } else { GapCause::QueueFull.bits() },
            after_mono_ns: 0,
            before_mono_ns: 0,
        };
        let mut numbers = ThinnedNumbers::default();
        for (first, count, is_thinned) in [(10, 5, true), (15, 1, true), (17, 3, true), (30, 9, false)] {
            numbers.add(&gap(first, count, is_thinned));
        }
        assert_eq!([9, 10, 15, 16, 17, 30].map(|seq| numbers.skip(seq)), [9, 16, 16, 16, 20, 30]);
        assert_eq!([10, 15, 16, 20, 39].map(|seq| numbers.skip_back(seq)), [10, 10, 10, 17, 39]);
    }
}
