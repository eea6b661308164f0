//! Batches: the rows of one table, column by column.

use super::column::ValueColumn;

/// Rows of one table of one source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnBatch {
    /// Index of the table in [`QueryResults::tables`](super::QueryResults::tables).
    pub table: usize,
    /// The samples of the rows, in the order of time.
    pub times: BatchTimes,
    /// The sample and element of each row.
    pub rows: RowSource,
    /// The columns of the table, in its order.
    pub columns: Vec<ValueColumn>,
}

/// The envelopes of samples: one entry per sample in each list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchTimes {
    /// Sequence numbers.
    pub seq: Vec<u64>,
    /// Begin of each sample, in monotonic nanoseconds.
    pub mono_ns: Vec<u64>,
    /// Begin of each sample, in wall nanoseconds.
    pub wall_ns: Vec<i64>,
    /// Time that each sample took, in nanoseconds.
    pub duration_ns: Vec<u32>,
    /// Flags of each sample (`flatcap.frame.Flags`).
    pub flags: Vec<u16>,
}

/// The sample and the element of each row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RowSource {
    /// Row `i` is sample `i`: the table is no list.
    #[default]
    Samples,
    /// The table is a list: a row is an element of it in a sample.
    Elements {
        /// The sample's position in [`BatchTimes`], rising.
        samples: Vec<u32>,
        /// The element, for [`ElementNames`](super::ElementNames).
        elements: Vec<u32>,
    },
}

impl ColumnBatch {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match &self.rows {
            RowSource::Samples => self.times.seq.len(),
            RowSource::Elements { samples, .. } => samples.len(),
        }
    }

    /// Returns the position of a row's sample in [`times`](Self::times).
    pub fn sample(&self, row: usize) -> usize {
        match &self.rows {
            RowSource::Samples => row,
            RowSource::Elements { samples, .. } => {
                samples.get(row).map_or(usize::MAX, |sample| *sample as usize)
            }
        }
    }

    /// Returns the element of a row; none in a table that is no list.
    pub fn element(&self, row: usize) -> Option<u32> {
        match &self.rows {
            RowSource::Samples => None,
            RowSource::Elements { elements, .. } => elements.get(row).copied(),
        }
    }
}

impl BatchTimes {
    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.seq.len()
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.seq.is_empty()
    }
}
