//! The rows of one table that are being collected.

use std::ops::Range;

use flatcap_format::schema::{Field, FieldValue, ScalarReader};

use crate::columns::batch::{BatchTimes, ColumnBatch, RowSource};
use crate::columns::column::ValueColumn;
use crate::names::elements::ElementName;
use crate::plan::TableInfo;

/// The rows of one table.
#[derive(Debug)]
pub(super) struct TableRows {
    pub(super) is_list: bool,
    pub(super) samples: Vec<u32>,
    pub(super) elements: Vec<u32>,
    /// The names of the elements in these rows.
    pub(super) names: Vec<ElementName>,
    pub(super) columns: Vec<ValueColumn>,
    /// Number of rows for which a new batch reserves space.
    space: usize,
    /// The positions of each value's bytes, row by row. `None` if they are not needed.
    pub(super) cells: Option<Vec<Option<CellBytes>>>,
}

/// The position of a value's bytes in a payload.
#[derive(Debug, Clone)]
pub(super) struct CellBytes {
    pub(super) bytes: Range<usize>,
    /// The reader of the value. `None` for a string.
    pub(super) reader: Option<ScalarReader>,
    /// Whether the string ends at the first zero byte.
    pub(super) is_padded: bool,
}

impl CellBytes {
    pub(super) fn new(bytes: Range<usize>, field: &Field) -> Self {
        Self { bytes, reader: field.scalar_reader(), is_padded: field.is_padded_text() }
    }
}

/// Divisor for the decrease of the space that is reserved for rows. After each batch, the space is
/// reduced by 1 / `SPACE_DECAY`.
// Because of the decrease, the memory for a large batch is not kept for long.
const SPACE_DECAY: usize = 64;

/// Returns the number of rows for which the next batch reserves space. The space is enough for the
/// largest of the recent batches.
pub(super) fn next_space(space: usize, held: usize) -> usize {
    // Without enough space, a growing batch would copy its rows.
    held.max(space - space / SPACE_DECAY)
}

impl TableRows {
    pub(super) fn new(info: &TableInfo) -> Self {
        Self::with_capacity(info, 0)
    }

    /// Creates a table that has space for `rows` rows.
    fn with_capacity(info: &TableInfo, rows: usize) -> Self {
        let is_list = info.list.is_some();
        let columns = info.columns.iter().map(|column| ValueColumn::new(column.column_type, rows));
        Self {
            is_list,
            samples: Vec::with_capacity(rows),
            elements: Vec::with_capacity(if is_list { rows } else { 0 }),
            names: Vec::with_capacity(if is_list { rows } else { 0 }),
            columns: columns.collect(),
            space: rows,
            cells: None,
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.samples.len()
    }

    /// Appends a row without values.
    pub(super) fn begin_row(&mut self) {
        self.samples.push(0);
        self.columns.iter_mut().for_each(ValueColumn::push_absent);
        if let Some(cells) = &mut self.cells {
            cells.extend(self.columns.iter().map(|_| None));
        }
    }

    /// Sets the sample and the element of the last row, if they are not set.
    pub(super) fn end_row(&mut self, sample: u32, (element, name): (u32, ElementName)) {
        if self.elements.len() < self.samples.len() {
            self.elements.push(element);
            self.names.push(name);
            if let Some(last) = self.samples.last_mut() {
                *last = sample;
            }
        }
    }

    /// Sets a value of the last row, and records the bytes from which the value was read.
    pub(super) fn set_last(&mut self, column: usize, value: FieldValue<'_>, cell: Option<&CellBytes>) {
        let columns = self.columns.len();
        if let Some(column) = self.columns.get_mut(column) {
            column.set_last(value);
        }
        if let Some(cells) = &mut self.cells {
            let row = cells.len().saturating_sub(columns);
            if let Some(own) = cells.get_mut(row + column) {
                *own = cell.cloned();
            }
        }
    }

    /// Keeps only the first `rows` rows.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.samples.truncate(rows);
        self.elements.truncate(rows);
        self.names.truncate(rows);
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
        if let Some(cells) = &mut self.cells {
            cells.truncate(rows * self.columns.len());
        }
    }

    /// Removes the rows of the first `samples` samples, and returns them as a batch.
    pub(super) fn take(
        &mut self,
        info: &TableInfo,
        (source, table): (u16, usize),
        times: BatchTimes,
    ) -> ColumnBatch {
        let taken = times.len();
        let limit = u32::try_from(taken).unwrap_or(u32::MAX);
        let rows = if self.is_list { self.samples.partition_point(|sample| *sample < limit) } else { taken };
        let capacity = next_space(self.space, self.rows());
        let mut later = Self::with_capacity(info, capacity);
        if rows < self.rows() {
            later.samples.extend(self.samples.drain(rows..).map(|sample| sample.saturating_sub(limit)));
            later.elements.extend(self.elements.drain(rows.min(self.elements.len())..));
            later.names.extend(self.names.drain(rows.min(self.names.len())..));
            later.columns = self.columns.iter_mut().map(|column| column.split_off(rows, capacity)).collect();
        }
        let Self { samples, elements, names, columns, is_list, .. } = std::mem::replace(self, later);
        let rows =
            if is_list { RowSource::Elements { samples, elements, names } } else { RowSource::Samples };
        ColumnBatch { table, source, times, rows, columns, ..ColumnBatch::default() }
    }
}
