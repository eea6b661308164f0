//! Merges the samples of several batches in time order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use flatcap_format::schema::Growth;

use crate::columns::batch::{ColumnBatch, RowSource};
use crate::rates::rate::ColumnGrowth;

/// Batches whose samples are returned in time order.
#[derive(Debug, Default)]
pub(super) struct BatchMerge {
    open: Vec<OpenBatch>,
    /// The next sample of each batch, with the earliest sample on top. The heap is rebuilt after a
    /// batch is added.
    next: BinaryHeap<Reverse<NextSample>>,
    is_sorted: bool,
}

/// The sort key of a sample. It consists of the time, a flag that is set for the source that comes
/// last, the rank of the batch, and the index of the batch.
type NextSample = (u64, bool, usize, usize);

/// The rank of a batch among the batches that have samples at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BatchRank {
    /// The index of the source's name.
    pub(super) name: usize,
    /// The rank of the source and its table. Smaller ranks come first.
    pub(super) rank: usize,
}

/// A batch, and the position of its next sample.
#[derive(Debug)]
struct OpenBatch {
    batch: ColumnBatch,
    growths: Vec<ColumnGrowth>,
    rank: BatchRank,
    next_sample: usize,
    next_row: usize,
}

/// A sample of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MergedSample {
    /// The index of the batch, for [`BatchMerge::batch`].
    pub(super) batch: usize,
    /// The id of the sample's source.
    pub(super) source: u16,
    /// The index of the name of the sample's source.
    pub(super) name: usize,
    pub(super) table: usize,
    pub(super) seq: u64,
    pub(super) mono_ns: u64,
    pub(super) wall_ns: i64,
    /// The first row of the sample in the batch, and the end of the sample's rows.
    pub(super) first_row: usize,
    pub(super) end_row: usize,
}

impl MergedSample {
    /// Returns whether two merged samples come from two tables of one source and belong to the same
    /// original sample.
    pub(super) fn is_with(&self, other: &Self) -> bool {
        (self.source, self.seq, self.mono_ns) == (other.source, other.seq, other.mono_ns)
            && self.table != other.table
    }
}

impl BatchMerge {
    pub(super) fn add(&mut self, batch: ColumnBatch, growths: Vec<ColumnGrowth>, rank: BatchRank) {
        self.open.push(OpenBatch { batch, growths, rank, next_sample: 0, next_row: 0 });
        self.is_sorted = false;
    }

    /// Returns the growth of a counter since the previous row of its element.
    pub(super) fn growth(&self, batch: usize, column: usize, row: usize) -> Growth {
        let growths = self.open.get(batch).map(|open| open.growths.as_slice()).unwrap_or_default();
        let own = growths.iter().find(|own| own.column == column);
        own.and_then(|own| own.growths.get(row).copied()).unwrap_or(Growth::UNKNOWN)
    }

    pub(super) fn batch(&self, number: usize) -> Option<&ColumnBatch> {
        self.open.get(number).map(|open| &open.batch)
    }

    /// Returns the next sample, but does not remove it. Among samples with the same time, the
    /// samples of sources with the name index `last` come last. `last` may change only after a
    /// batch was added.
    pub(super) fn peek(&mut self, last: usize) -> Option<MergedSample> {
        // A batch that was added may contain earlier samples than the other batches.
        if !self.is_sorted {
            let all = self.open.iter().enumerate();
            self.next = all.filter_map(|(number, open)| Some(Reverse(open.next(number, last)?))).collect();
            self.is_sorted = true;
        }
        let Reverse((.., number)) = *self.next.peek()?;
        let open = self.open.get(number)?;
        let at = open.next_sample;
        Some(MergedSample {
            batch: number,
            source: open.batch.source,
            name: open.rank.name,
            table: open.batch.table,
            seq: *open.batch.times.seq.get(at)?,
            mono_ns: *open.batch.times.mono_ns.get(at)?,
            wall_ns: *open.batch.times.wall_ns.get(at)?,
            first_row: open.next_row,
            end_row: open.end_row(),
        })
    }

    /// Removes the sample that [`peek`](Self::peek) returned.
    pub(super) fn take(&mut self, sample: &MergedSample) {
        let Some(open) = self.open.get_mut(sample.batch) else { return };
        open.next_sample += 1;
        open.next_row = sample.end_row;
        // Changing the top element in place moves it in the heap only once. A pop and a push would
        // move elements twice.
        if let Some(mut top) = self.next.peek_mut() {
            let Reverse((_, is_last, rank, number)) = *top;
            match open.batch.times.mono_ns.get(open.next_sample) {
                Some(mono_ns) => *top = Reverse((*mono_ns, is_last, rank, number)),
                None => drop(PeekMut::pop(top)),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.next.clear();
        self.is_sorted = false;
    }
}

impl OpenBatch {
    fn next(&self, number: usize, last: usize) -> Option<NextSample> {
        let mono_ns = *self.batch.times.mono_ns.get(self.next_sample)?;
        Some((mono_ns, self.rank.name == last, self.rank.rank, number))
    }

    /// Returns the position after the last row of the next sample.
    fn end_row(&self) -> usize {
        match &self.batch.rows {
            RowSource::Samples => self.next_sample + 1,
            RowSource::Elements { samples, .. } => {
                let rest = samples.get(self.next_row..).unwrap_or_default();
                let own = rest.iter().take_while(|sample| **sample as usize == self.next_sample);
                self.next_row + own.count()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::batch::BatchTimes;

    fn batch(mono_ns: &[u64], rows: RowSource) -> ColumnBatch {
        let times = BatchTimes {
            seq: (0..mono_ns.len() as u64).collect(),
            mono_ns: mono_ns.to_vec(),
            wall_ns: vec![0; mono_ns.len()],
            ..BatchTimes::default()
        };
        ColumnBatch { times, rows, ..ColumnBatch::default() }
    }

    // Proves that samples are returned in the order of time and then of rank, and that the samples
    // of one source come last. Also proves that each sample has its own rows, and that a sample
    // without elements has no rows.
    #[test]
    fn samples_are_merged_by_time() {
        let mut merge = BatchMerge::default();
        let elements =
            RowSource::Elements { samples: vec![0, 0, 2], elements: vec![1, 2, 1], names: Vec::new() };
        merge.add(batch(&[1, 3, 5], elements), Vec::new(), BatchRank { name: 1, rank: 2 });
        merge.add(batch(&[3, 4], RowSource::Samples), Vec::new(), BatchRank { name: 2, rank: 5 });
        let mut order = Vec::new();
        while let Some(sample) = merge.peek(1) {
            merge.take(&sample);
            order.push((sample.mono_ns, sample.batch, sample.first_row..sample.end_row));
        }
        assert_eq!(order, [(1, 0, 0..2), (3, 1, 0..1), (3, 0, 2..2), (4, 1, 1..2), (5, 0, 2..3)]);
    }
}
