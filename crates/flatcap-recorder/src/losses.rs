//! Tracks the losses that explain jumps in sequence numbers. Samplers and the recorder report
//! losses. Each loss is kept until the gap that covers it is written.

use flatcap_slab::{Causes, Loss, LossLedger};

/// Maximum number of losses per source. If this number is exceeded, neighbouring losses are merged,
/// and the gap names the causes of all merged losses.
const LOSSES_MAX: usize = 1024;
/// Maximum number of losses per source, for sources that an application has added. Applications may
/// add thousands of sources, so the lists of losses for these sources are not allocated in advance.
const ADDED_LOSSES_MAX: usize = 64;

/// A range of consecutive samples that are not in the files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LostPart {
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) causes: Causes,
}

/// Reported losses that no gap in a file covers yet.
#[derive(Debug, Default)]
pub(super) struct LossTracker {
    sources: Vec<Vec<Loss>>,
}

impl LossTracker {
    /// Memory of the list of losses, in bytes per source.
    pub(super) const SOURCE_BYTES: usize = LOSSES_MAX * size_of::<Loss>();

    /// Adds lists for sources with ids below `sources`.
    pub(super) fn resize_sources(&mut self, sources: usize) {
        let missing = sources.saturating_sub(self.sources.len());
        self.sources.extend((0..missing).map(|_| Vec::with_capacity(LOSSES_MAX)));
    }

    /// Adds an empty list for the next source.
    pub(super) fn add_source(&mut self) {
        self.sources.push(Vec::new());
    }

    /// Frees the list of a source that will have no further loss.
    pub(super) fn free(&mut self, source: u16) {
        if let Some(losses) = self.sources.get_mut(usize::from(source)) {
            *losses = Vec::new();
        }
    }

    /// Moves all losses from the samplers' ledger into the lists.
    pub(super) fn read(&mut self, ledger: &LossLedger) {
        while let Some(loss) = ledger.take() {
            self.add(loss);
        }
    }

    /// Adds a loss. The loss is merged with the previous loss of the source if the two are adjacent
    /// and have the same cause, or if the list is full.
    pub(super) fn add(&mut self, loss: Loss) {
        let Some(losses) = self.sources.get_mut(usize::from(loss.source)) else { return };
        // For a list that was not allocated in advance, the limit is lower.
        let full = losses.len() >= losses.capacity().clamp(ADDED_LOSSES_MAX, LOSSES_MAX);
        match losses.last_mut() {
            Some(last) if last.first_seq + last.count == loss.first_seq && last.causes == loss.causes => {
                last.count += loss.count;
            }
            Some(last) if full => {
                let end = (last.first_seq + last.count).max(loss.first_seq + loss.count);
                last.first_seq = last.first_seq.min(loss.first_seq);
                last.count = end - last.first_seq;
                last.causes |= loss.causes;
            }
            _ => losses.push(loss),
        }
    }

    /// Returns all causes of losses of `source` within `first..end`. The causes of losses that did
    /// not fit into the ledger are included.
    pub(super) fn causes(&self, source: u16, first: u64, end: u64, ledger: &LossLedger) -> Causes {
        self.of(source)
            .iter()
            .filter(|loss| loss.first_seq < end && loss.first_seq + loss.count > first)
            .fold(ledger.overflowed(source, first, end), |causes, loss| causes | loss.causes)
    }

    /// Discards the losses below `next_seq`, because the file already covers them.
    pub(super) fn discard_before(&mut self, source: u16, next_seq: u64) {
        if let Some(losses) = self.sources.get_mut(usize::from(source))
            && !losses.is_empty()
        {
            losses.retain(|loss| loss.first_seq + loss.count > next_seq);
        }
    }

    /// Calls `add` for each part of `first..end` in order, with the causes of the part. Samples
    /// that were only thinned are passed in separate parts, because they are not lost.
    pub(super) fn parts(
        &self,
        source: u16,
        (first, end): (u64, u64),
        ledger: &LossLedger,
        mut add: impl FnMut(LostPart),
    ) {
        let mut next = first;
        for (from, to) in self.thinned(source, first, end).into_iter().chain([(end, end)]) {
            if next < from {
                let causes = self.causes(source, next, from, ledger);
                add(LostPart { first: next, count: from - next, causes });
            }
            if from < to {
                add(LostPart { first: from, count: to - from, causes: Causes::Thinned });
            }
            next = to;
        }
    }

    /// Returns the ranges of `first..end` that were only thinned, in order. The list contains the
    /// losses in the order in which they were added. The range of a merged loss may overlap the
    /// ranges of other losses.
    fn thinned(&self, source: u16, first: u64, end: u64) -> Vec<(u64, u64)> {
        let within = |is_thinned: bool| {
            let losses =
                self.of(source).iter().filter(move |loss| (loss.causes == Causes::Thinned) == is_thinned);
            let ranges =
                losses.map(|loss| (loss.first_seq.max(first), (loss.first_seq + loss.count).min(end)));
            ranges.filter(|(from, to)| from < to)
        };
        let mut thinned: Vec<(u64, u64)> = within(true).collect();
        if thinned.is_empty() {
            return thinned;
        }
        thinned.sort_unstable();
        let mut lost: Vec<(u64, u64)> = within(false).collect();
        lost.sort_unstable();
        let mut alone: Vec<(u64, u64)> = Vec::new();
        let mut push = |from: u64, to: u64| match alone.last_mut() {
            _ if from >= to => {}
            Some(before) if from <= before.1 => before.1 = before.1.max(to),
            _ => alone.push((from, to)),
        };
        for (begin, to) in thinned {
            let mut from = begin;
            for (lost_from, lost_to) in lost.iter().copied().filter(|range| range.1 > begin && range.0 < to) {
                push(from, lost_from.min(to));
                from = from.max(lost_to);
            }
            push(from, to);
        }
        alone
    }

    /// Returns the number of lost samples that no gap covers yet, and the number of these samples
    /// that the storage has refused. If losses were merged to save space, the count includes the
    /// sequence numbers between the merged losses.
    pub(super) fn pending(&self) -> (u64, u64) {
        let sum = |(all, refused), loss: &Loss| {
            let is_refused = loss.causes | Causes::Storage == loss.causes;
            (all + loss.count, refused + if is_refused { loss.count } else { 0 })
        };
        let lost = self.sources.iter().flatten().filter(|loss| loss.causes != Causes::Thinned);
        lost.fold((0, 0), sum)
    }

    fn of(&self, source: u16) -> &[Loss] {
        self.sources.get(usize::from(source)).map(Vec::as_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(first_seq: u64, count: u64, causes: Causes) -> Loss {
        Loss { source: 0, first_seq, count, causes }
    }

    // Proves that a gap names exactly the causes of the losses within its sequence numbers.
    #[test]
    fn causes_belong_to_their_numbers() {
        let ledger = LossLedger::new(1);
        let mut tracker = LossTracker::default();
        tracker.resize_sources(1);
        ledger.write(loss(5, 2, Causes::QueueFull));
        ledger.write(loss(7, 1, Causes::QueueFull));
        ledger.write(loss(20, 1, Causes::ReadFailed));
        tracker.read(&ledger);
        assert_eq!(tracker.of(0).len(), 2, "neighbours are one");
        assert_eq!(tracker.causes(0, 5, 8, &ledger), Causes::QueueFull);
        assert_eq!(tracker.causes(0, 8, 20, &ledger), Causes::default());
        assert_eq!(tracker.causes(0, 7, 21, &ledger), Causes::QueueFull | Causes::ReadFailed);
        tracker.discard_before(0, 8);
        assert_eq!(tracker.of(0).len(), 1);
    }

    // Proves that the parts of a jump in the sequence numbers cover each number exactly once and in
    // order. Samples that were only thinned are in separate parts.
    #[test]
    fn thinned_parts_stand_alone() {
        let ledger = LossLedger::new(1);
        let mut tracker = LossTracker::default();
        tracker.resize_sources(1);
        tracker.add(loss(2, 3, Causes::Thinned));
        tracker.add(loss(5, 1, Causes::QueueFull));
        tracker.add(loss(6, 1, Causes::Storage));
        tracker.add(loss(7, 3, Causes::Thinned));
        let parts = |tracker: &LossTracker, first, end| {
            let mut parts = Vec::new();
            tracker.parts(0, (first, end), &ledger, |part| parts.push((part.first, part.count, part.causes)));
            parts
        };
        let lost = Causes::QueueFull | Causes::Storage;
        assert_eq!(parts(&tracker, 2, 5), [(2, 3, Causes::Thinned)]);
        assert_eq!(parts(&tracker, 2, 10), [(2, 3, Causes::Thinned), (5, 2, lost), (7, 3, Causes::Thinned)]);
        assert_eq!(parts(&tracker, 8, 12), [(8, 2, Causes::Thinned), (10, 2, Causes::default())]);
        assert_eq!(parts(&tracker, 0, 3), [(0, 2, Causes::default()), (2, 1, Causes::Thinned)]);
        assert_eq!(parts(&tracker, 20, 21), [(20, 1, Causes::default())]);
        assert_eq!(tracker.pending().0, 2);
        // These losses are recorded late and overlap thinned samples. A lost sample does not count
        // as thinned.
        tracker.add(loss(3, 1, Causes::ReadFailed));
        tracker.add(loss(0, 1, Causes::ReadFailed));
        let (failed, both) = (Causes::ReadFailed, Causes::ReadFailed | Causes::Thinned);
        assert_eq!(
            parts(&tracker, 0, 5),
            [(0, 2, failed), (2, 1, Causes::Thinned), (3, 1, both), (4, 1, Causes::Thinned)]
        );
    }

    // Proves that, with very many separate losses, memory stays bounded and no cause is lost.
    #[test]
    fn a_full_tracker_merges() {
        let ledger = LossLedger::new(1);
        let mut tracker = LossTracker::default();
        tracker.resize_sources(1);
        for k in 0..2 * LOSSES_MAX as u64 {
            tracker.add(loss(k * 2, 1, Causes::PoolEmpty));
        }
        tracker.add(loss(10_000, 1, Causes::TooLarge));
        assert_eq!(tracker.of(0).len(), LOSSES_MAX);
        assert_eq!(tracker.causes(0, 9999, 10_001, &ledger), Causes::PoolEmpty | Causes::TooLarge);
        tracker.add_source();
        for k in 0..2 * ADDED_LOSSES_MAX as u64 {
            tracker.add(Loss { source: 1, ..loss(k * 2, 1, Causes::PoolEmpty) });
        }
        assert_eq!(tracker.of(1).len(), ADDED_LOSSES_MAX);
    }
}
