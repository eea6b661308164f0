//! Small tables for gaps, marks and sources.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use flatcap_arrow::{ZONE, time_type};

use crate::error::{ColumnarError, encoding_error};

/// Number of rows that are collected before they are written.
const ROWS_MAX: usize = 4096;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellType {
    /// INT64.
    Number,
    /// UTF-8.
    Text,
    /// A timestamp in microseconds, UTC.
    Time,
}

/// A value of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Cell {
    /// No value.
    #[default]
    Absent,
    /// A number.
    Number(i64),
    /// A string.
    Text(String),
    /// A time, in nanoseconds of the wall clock.
    Time(i64),
}

impl Cell {
    /// Returns a cell with a number, or an empty cell if the number is larger than the column can
    /// hold.
    pub fn number(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Absent, Self::Number)
    }
}

/// Rows of values that are collected one by one.
#[derive(Debug)]
pub struct RecordTable {
    pub(crate) schema: SchemaRef,
    types: Vec<CellType>,
    rows: Vec<Vec<Cell>>,
}

impl RecordTable {
    /// Creates a table with these columns. Any cell may be empty.
    pub fn new(columns: &[(&str, CellType)]) -> Self {
        let field = |(name, cell_type): &(&str, CellType)| {
            let data_type = match cell_type {
                CellType::Number => DataType::Int64,
                CellType::Text => DataType::Utf8,
                CellType::Time => time_type(TimeUnit::Microsecond),
            };
            Field::new(*name, data_type, true)
        };
        let fields: Vec<Field> = columns.iter().map(field).collect();
        let types = columns.iter().map(|(_, cell_type)| *cell_type).collect();
        Self { schema: Arc::new(Schema::new(fields)), types, rows: Vec::new() }
    }

    /// Adds a row, with a cell per column. Returns whether there are enough rows for a write. In
    /// this case, the caller should take the rows now.
    pub fn push(&mut self, row: Vec<Cell>) -> bool {
        self.rows.push(row);
        self.rows.len() >= ROWS_MAX
    }

    /// Removes and returns the rows.
    ///
    /// # Errors
    /// Returns `Encode` if the type of a cell differs from the type of its column.
    pub fn take(&mut self) -> Result<RecordBatch, ColumnarError> {
        let rows = std::mem::take(&mut self.rows);
        let arrays = self.types.iter().enumerate().map(|(column, cell_type)| {
            let cells = rows.iter().map(|row| row.get(column).unwrap_or(&Cell::Absent));
            column_of(cells, *cell_type)
        });
        RecordBatch::try_new(Arc::clone(&self.schema), arrays.collect()).map_err(encoding_error)
    }
}

fn column_of<'c>(cells: impl Iterator<Item = &'c Cell>, cell_type: CellType) -> ArrayRef {
    match cell_type {
        CellType::Text => Arc::new(
            cells
                .map(|cell| if let Cell::Text(text) = cell { Some(text.as_str()) } else { None })
                .collect::<StringArray>(),
        ),
        CellType::Number => Arc::new(
            cells
                .map(|cell| if let Cell::Number(number) = cell { Some(*number) } else { None })
                .collect::<Int64Array>(),
        ),
        CellType::Time => Arc::new(
            cells
                .map(|cell| if let Cell::Time(ns) = cell { Some(ns.div_euclid(1000)) } else { None })
                .collect::<TimestampMicrosecondArray>()
                .with_timezone(ZONE),
        ),
    }
}

/// Returns a cell with a string, or an empty cell for `None`.
pub(crate) fn text(value: Option<&str>) -> Cell {
    value.map_or(Cell::Absent, |text| Cell::Text(text.to_owned()))
}
