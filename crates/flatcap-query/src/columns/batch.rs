//! Batches of rows. A batch contains the rows of one table, column by column.

use std::ops::Range;

use flatcap_format::block::{FieldRef, MatrixRows, ValueType};
use flatcap_format::schema::envelope::{HEADER_AT, leaves_out_elements};
use flatcap_format::segment::SampleView;

use super::column::ValueColumn;
use super::strided_rows::{picked, split_off};
use crate::names::elements::ElementName;

/// A batch of rows that belong to one table of one source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnBatch {
    /// Index of the table in [`QueryResults::tables`](crate::QueryResults::tables).
    pub table: usize,
    /// The source's id in the run.
    pub source: u16,
    /// The samples to which the rows belong, in time order.
    pub times: BatchTimes,
    /// The sample and element of each row.
    pub rows: RowSource,
    /// The columns, in the order of the table's columns.
    pub columns: Vec<ValueColumn>,
    /// For each sample, whether the sample leaves out elements that exist. Empty if no sample
    /// leaves out elements.
    pub sparse: Vec<bool>,
    /// For each column with a counter that wraps to 0: the position of the column, and a column
    /// with the value at which the counter wraps in each row.
    pub ranges: Vec<(usize, ValueColumn)>,
    /// The rows that pass the condition of the query, in ascending order. `None` if all rows of the
    /// batch pass the condition.
    pub passing: Option<Vec<usize>>,
}

/// The envelopes of samples. Each list has one entry per sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchTimes {
    /// Sequence numbers.
    pub seq: Vec<u64>,
    /// Start of each sample, in nanoseconds of the monotonic clock.
    pub mono_ns: Vec<u64>,
    /// Start of each sample, in nanoseconds of wall time.
    pub wall_ns: Vec<i64>,
    /// Duration of each sample, in nanoseconds.
    pub duration_ns: Vec<u32>,
    /// Flags of each sample (`flatcap.frame.Flags`).
    pub flags: Vec<u16>,
}

/// The sample and the element of each row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RowSource {
    /// The table is not a list, so row `i` is sample `i`.
    #[default]
    Samples,
    /// The table is a list, so each row is one element of the list in one sample.
    Elements {
        /// For each row, the position of its sample in [`BatchTimes`], in ascending order.
        samples: Vec<u32>,
        /// For each row, the id of its element, which [`ElementNames`](crate::ElementNames)
        /// resolves.
        elements: Vec<u32>,
        /// For each row, the name of its element in the sample.
        names: Vec<ElementName>,
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

    /// Returns whether a sample may leave out elements that exist. A sample may leave out elements
    /// if it was cut, or if it is marked as leaving out elements.
    pub fn leaves_out(&self, sample: usize) -> bool {
        let flags = self.times.flags.get(sample).copied().unwrap_or_default();
        leaves_out_elements(flags) || self.sparse.get(sample).copied().unwrap_or_default()
    }

    /// Returns the number of rows of the first `samples` samples.
    pub(crate) fn rows_before(&self, samples: usize) -> usize {
        match &self.rows {
            RowSource::Samples => samples,
            RowSource::Elements { samples: own, .. } => {
                own.partition_point(|sample| (*sample as usize) < samples)
            }
        }
    }

    /// Returns the name of a row's element in its sample, or `None` if the table is not a list.
    pub fn name(&self, row: usize) -> Option<ElementName> {
        match &self.rows {
            RowSource::Samples => None,
            RowSource::Elements { names, .. } => names.get(row).copied(),
        }
    }

    /// Returns the element of a row, or `None` if the table is not a list.
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

    /// The fields of a frame that [`extend`](Self::extend) reads, in the order in which it reads
    /// them.
    pub(crate) const FIELDS: [FieldRef; 6] = [MONO_NS, WALL_NS, SEQ, SOURCE, FLAGS, DURATION_NS];

    /// Appends a sample.
    pub(crate) fn push(&mut self, sample: &SampleView<'_>) {
        self.seq.push(sample.seq);
        self.mono_ns.push(sample.mono_ns);
        self.wall_ns.push(sample.wall_ns);
        self.duration_ns.push(sample.duration_ns);
        self.flags.push(sample.flags);
    }

    /// Appends rows of a matrix. The columns of [`FIELDS`](Self::FIELDS) must be loaded.
    #[allow(clippy::cast_possible_truncation, reason = "values of fewer bits")]
    pub(crate) fn extend(&mut self, matrix: &MatrixRows, rows: Range<usize>) {
        self.seq.extend_from_slice(&matrix.values(SEQ, rows.clone()));
        self.mono_ns.extend_from_slice(&matrix.values(MONO_NS, rows.clone()));
        let wall_ns = matrix.values(WALL_NS, rows.clone());
        self.wall_ns.extend(wall_ns.iter().map(|bits| bits.cast_signed()));
        let duration_ns = matrix.values(DURATION_NS, rows.clone());
        self.duration_ns.extend(duration_ns.iter().map(|bits| *bits as u32));
        self.flags.extend(matrix.values(FLAGS, rows).iter().map(|bits| *bits as u16));
    }

    /// Returns the number of samples before a monotonic time.
    pub(crate) fn before(&self, mono_ns: u64) -> usize {
        // `u64::MAX` means that there is no limit, so samples of the last representable nanosecond
        // belong to the batch, too.
        if mono_ns == u64::MAX {
            return self.len();
        }
        self.mono_ns.iter().position(|own| *own >= mono_ns).unwrap_or(self.len())
    }

    /// Returns the samples with these positions.
    pub(crate) fn select(&self, samples: &[usize]) -> Self {
        Self {
            seq: picked(&self.seq, samples),
            mono_ns: picked(&self.mono_ns, samples),
            wall_ns: picked(&self.wall_ns, samples),
            duration_ns: picked(&self.duration_ns, samples),
            flags: picked(&self.flags, samples),
        }
    }

    /// Splits off the samples from position `at` on. Reserves space for `samples` samples in the
    /// part that is split off.
    pub(crate) fn split_off(&mut self, at: usize, samples: usize) -> Self {
        Self {
            seq: split_off(&mut self.seq, at, samples),
            mono_ns: split_off(&mut self.mono_ns, at, samples),
            wall_ns: split_off(&mut self.wall_ns, at, samples),
            duration_ns: split_off(&mut self.duration_ns, at, samples),
            flags: split_off(&mut self.flags, at, samples),
        }
    }
}

/// The fields of a sample's envelope, by their position in the payload of a frame.
pub(crate) const MONO_NS: FieldRef = in_header(0, 8, ValueType::Unsigned);
pub(crate) const WALL_NS: FieldRef = in_header(8, 8, ValueType::Signed);
const SEQ: FieldRef = in_header(16, 8, ValueType::Unsigned);
const SOURCE: FieldRef = in_header(24, 2, ValueType::Unsigned);
const FLAGS: FieldRef = in_header(26, 2, ValueType::Unsigned);
const DURATION_NS: FieldRef = in_header(28, 4, ValueType::Unsigned);

#[allow(clippy::cast_possible_truncation, reason = "an offset in the envelope")]
const fn in_header(at: usize, bytes: u8, kind: ValueType) -> FieldRef {
    FieldRef { at: (HEADER_AT + at) as u32, bytes, kind }
}
