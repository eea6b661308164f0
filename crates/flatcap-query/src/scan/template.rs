//! A template contains the offsets of the values of a payload. Another payload with the same
//! structure has its values at the same offsets, so its values can be read without a walk of the
//! payload. The rows of a matrix are read without rebuilding their payloads.

use std::ops::Range;

use flatcap_format::block::{FieldRef, MatrixRows, ValueType};
use flatcap_format::schema::envelope::{ENVELOPE_BYTES, PAYLOAD_LENGTH_AT};
use flatcap_format::schema::{ColumnType, CompiledSchema, DecodeError, FieldValue, ScalarReader, text_of};

use super::fixed_content::FixedContent;
use super::row_visitor::{AccessLog, RowVisitor};
use super::scalar_cells::ScalarCells;
use super::table_rows::{CellBytes, TableRows};
use crate::columns::column::ValueColumn;
use crate::columns::strided_rows::StridedRows;
use crate::names::elements::{ElementName, ElementNames};
use crate::plan::SourcePlan;

/// The rows of one payload, and the bytes from which these rows are read.
#[derive(Debug)]
pub(super) struct SampleTemplate {
    /// The bytes that determine the rows and the offsets of their values.
    fixed: FixedContent,
    tables: Vec<TableRows>,
    /// The positions of the values, by table and column. `None` for columns that are read cell by
    /// cell.
    scalars: Vec<Vec<Option<ScalarCells>>>,
    named: Vec<(u32, ElementName)>,
    /// For each requested field, the cell of its single value. `None` if the field is in a list, is
    /// not a scalar, or is an enum.
    single: Vec<Option<CellBytes>>,
}

impl SampleTemplate {
    /// Makes a template of a payload.
    ///
    /// # Errors
    /// The payload does not fit its schema.
    pub(super) fn of(
        plan: &SourcePlan,
        payload: &[u8],
        names: &mut ElementNames,
    ) -> Result<Self, DecodeError> {
        let mut tables: Vec<TableRows> = plan.tables.iter().map(TableRows::new).collect();
        // Only a template needs the bytes of each value.
        for table in &mut tables {
            table.cells = Some(Vec::new());
        }
        for table in tables.iter_mut().filter(|table| !table.is_list) {
            table.begin_row();
        }
        let mut log = AccessLog::default();
        names.begin_sample();
        let mut visitor = RowVisitor::new(&plan.root, &mut tables, names, 0);
        visitor.log = Some(&mut log);
        plan.schema.walk(payload, &mut visitor)?;
        let single = plan.places.iter().map(|place| single_cell(plan, &tables, (*place)?)).collect();
        let columns =
            |rows: &TableRows| (0..rows.columns.len()).map(|column| ScalarCells::of(rows, column)).collect();
        let scalars = tables.iter().map(columns).collect();
        Ok(Self { fixed: FixedContent::of(payload, log.fixed), tables, scalars, named: log.named, single })
    }

    /// Replaces the values by the values of another payload that fits the template.
    pub(super) fn renew(&mut self, plan: &SourcePlan, payload: &[u8]) {
        for (own, info) in self.tables.iter_mut().zip(&plan.tables) {
            let columns = info.columns.iter().enumerate().map(|(number, column)| {
                let mut values = ValueColumn::new(column.column_type, own.rows());
                for row in 0..own.rows() {
                    own.read((row, number), &plan.schema, payload, |value| values.push(value));
                }
                values
            });
            own.columns = columns.collect();
        }
    }

    /// Returns whether a payload has its values at the offsets of this template.
    #[inline]
    pub(super) fn fits(&self, payload: &[u8]) -> bool {
        self.fixed.are_in(payload)
    }

    /// Returns the number of values of a sample.
    pub(super) fn values(&self) -> usize {
        self.tables.iter().map(|table| table.rows() * table.columns.len()).sum()
    }

    /// Returns the rows of the payload.
    pub(super) fn tables(&self) -> &[TableRows] {
        &self.tables
    }

    /// Sets the current names of the elements to the names in this template's payload.
    pub(super) fn name_elements(&self, names: &mut ElementNames) {
        for (number, name) in &self.named {
            names.set_latest(*number, *name);
        }
    }

    /// Appends the rows of a payload that fits the template.
    pub(super) fn append_payload(
        &self,
        schema: &CompiledSchema,
        payload: &[u8],
        sample: u32,
        to: &mut [TableRows],
    ) {
        for ((own, scalars), table) in self.tables.iter().zip(&self.scalars).zip(to.iter_mut()) {
            table.samples.extend(std::iter::repeat_n(sample, own.rows()));
            table.elements.extend_from_slice(&own.elements);
            table.names.extend_from_slice(&own.names);
            for (number, (column, scalars)) in table.columns.iter_mut().zip(scalars).enumerate() {
                if let Some(scalars) = scalars {
                    scalars.append(payload, column);
                    continue;
                }
                for row in 0..own.rows() {
                    own.read((row, number), schema, payload, |value| match value {
                        FieldValue::Text(text) => column.push_text(text, own.rows()),
                        value => column.push(value),
                    });
                }
            }
        }
    }

    /// Reads the single value of a field in a payload that fits the template. Returns `None` if the
    /// field is not a plain scalar or is in a list. [`read_column`](Self::read_column) reads such
    /// fields.
    #[inline]
    pub(super) fn read_single<'v>(
        &'v self,
        schema: &'v CompiledSchema,
        payload: &'v [u8],
        field: usize,
    ) -> Option<FieldValue<'v>> {
        let cell = self.single.get(field)?.as_ref()?;
        let bits = scalar_bits(payload.get(cell.bytes.clone())?)?;
        Some(schema.read_bits(cell.reader.as_ref()?, bits))
    }

    /// Reads the values of a column of a table in a payload that fits the template. The values are
    /// in the order of the table's rows.
    #[inline]
    pub(super) fn read_column(
        &self,
        schema: &CompiledSchema,
        payload: &[u8],
        (table, column): (usize, usize),
        mut take: impl FnMut(Option<u32>, FieldValue<'_>),
    ) {
        let Some(rows) = self.tables.get(table) else { return };
        for row in 0..rows.rows() {
            let element = rows.elements.get(row).copied();
            rows.read((row, column), schema, payload, |value| take(element, value));
        }
    }

    /// Returns whether all rows of a matrix have their values at the offsets of this template, and
    /// every string is the same in all rows. The template must have been made from the first row of
    /// the matrix.
    pub(super) fn fits_all(&self, matrix: &MatrixRows) -> bool {
        let may_change = |bytes: &Range<usize>| {
            matrix.may_change(bytes.start + ENVELOPE_BYTES..bytes.end + ENVELOPE_BYTES)
        };
        let texts = self.cells().filter(|cell| cell.reader.is_none()).map(|cell| &cell.bytes);
        // Payloads of another length may have other offsets, even if all fixed bytes are the same.
        !matrix.may_change(PAYLOAD_FIELD) && !self.fixed.ranges().iter().chain(texts).any(may_change)
    }

    /// Returns the values that differ between the rows of a matrix.
    pub(super) fn changing_fields(&self, matrix: &MatrixRows) -> Vec<FieldRef> {
        self.cells()
            .filter_map(CellBytes::field)
            .filter(|field| matrix.may_change(bytes_of(*field)))
            .collect()
    }

    fn cells(&self) -> impl Iterator<Item = &CellBytes> {
        self.tables.iter().filter_map(|table| table.cells.as_ref()).flatten().flatten()
    }

    /// Appends rows of a matrix that fits the template. The columns of all changing fields must be
    /// loaded.
    pub(super) fn append_rows(
        &self,
        schema: &CompiledSchema,
        slice: &MatrixSlice<'_>,
        sample: u32,
        to: &mut [TableRows],
    ) {
        let MatrixSlice { matrix, rows } = slice;
        let count = rows.len();
        for (own, table) in self.tables.iter().zip(to.iter_mut()) {
            let start = table.rows();
            let last = sample.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            for number in sample..last {
                table.samples.extend(std::iter::repeat_n(number, own.rows()));
                table.elements.extend_from_slice(&own.elements);
                table.names.extend_from_slice(&own.names);
            }
            for (number, (column, pattern)) in table.columns.iter_mut().zip(&own.columns).enumerate() {
                // The values are appended directly, because filling the column with zeros first
                // would take longer.
                if own.rows() == 1
                    && let Some((field, reader)) = own.changing(0, number, matrix)
                {
                    column.push_bits(&matrix.values(field, rows.clone()), reader, schema);
                    continue;
                }
                column.grow(count * own.rows());
                for row in 0..own.rows() {
                    let place = StridedRows { start: start + row, stride: own.rows(), count };
                    match own.changing(row, number, matrix) {
                        Some((field, reader)) => {
                            column.write_bits(place, &matrix.values(field, rows.clone()), reader, schema);
                        }
                        None => column.write_constant(place, pattern.get(row)),
                    }
                }
            }
        }
    }
}

/// Returns the cell of a field that is outside of lists and is a scalar without value names.
fn single_cell(
    plan: &SourcePlan,
    tables: &[TableRows],
    (table, column): (usize, usize),
) -> Option<CellBytes> {
    let info = plan.tables.get(table)?.columns.get(column)?;
    let rows = tables.get(table).filter(|rows| !rows.is_list && info.column_type != ColumnType::Text)?;
    rows.cell(0, column).filter(|cell| cell.reader.is_some()).cloned()
}

/// Consecutive rows of a matrix.
#[derive(Debug)]
pub(super) struct MatrixSlice<'m> {
    pub(super) matrix: &'m MatrixRows,
    pub(super) rows: Range<usize>,
}

/// Position and length of the source's payload in the envelope of a sample.
const PAYLOAD_FIELD: Range<usize> = PAYLOAD_LENGTH_AT - 4..ENVELOPE_BYTES;

impl CellBytes {
    /// Returns the location of a scalar in the payload of a frame.
    fn field(&self) -> Option<FieldRef> {
        let at = u32::try_from(self.bytes.start + ENVELOPE_BYTES).ok()?;
        let bytes = u8::try_from(self.reader.as_ref()?.bytes()).ok()?;
        Some(FieldRef { at, bytes, kind: ValueType::Unsigned })
    }

    /// Reads the value of this cell in a payload that fits the template, and passes the value to
    /// the function `take`.
    fn read(&self, schema: &CompiledSchema, payload: &[u8], take: impl FnOnce(FieldValue<'_>)) {
        // A payload that fits the template has the same length as the template's payload, so it has
        // these bytes.
        let bytes = payload.get(self.bytes.clone()).unwrap_or_default();
        if let Some(reader) = &self.reader {
            let value = scalar_bits(bytes).map(|bits| schema.read_bits(reader, bits));
            return take(value.unwrap_or(FieldValue::Absent));
        }
        let end = if self.is_padded { bytes.iter().position(|byte| *byte == 0) } else { None };
        let text = text_of(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default());
        take(FieldValue::Text(&text));
    }
}

/// Returns the bits of a scalar of 1, 2, 4 or 8 bytes, or `None` for another length.
#[inline]
fn scalar_bits(bytes: &[u8]) -> Option<u64> {
    // There is one case for each length, so that each scalar is read by one load instruction.
    Some(match bytes.len() {
        1 => u64::from(*bytes.first()?),
        2 => u64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
        4 => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
        8 => u64::from_le_bytes(*bytes.first_chunk()?),
        _ => return None,
    })
}

impl TableRows {
    /// Returns the position of a value's bytes, or `None` if the value is not in the payload or the
    /// position is unknown.
    pub(super) fn cell(&self, row: usize, column: usize) -> Option<&CellBytes> {
        self.cells.as_ref()?.get(row * self.columns.len() + column)?.as_ref()
    }

    /// Returns the location of a value that differs between the rows of a matrix.
    pub(super) fn changing(
        &self,
        row: usize,
        column: usize,
        matrix: &MatrixRows,
    ) -> Option<(FieldRef, &ScalarReader)> {
        let cell = self.cell(row, column)?;
        let field = cell.field()?;
        matrix.may_change(bytes_of(field)).then_some((field, cell.reader.as_ref()?))
    }

    /// Reads the value that a row has in another payload that fits the template. Passes the value
    /// to the function `take`.
    fn read(
        &self,
        (row, column): (usize, usize),
        schema: &CompiledSchema,
        payload: &[u8],
        take: impl FnOnce(FieldValue<'_>),
    ) {
        match self.cell(row, column) {
            Some(cell) => cell.read(schema, payload, take),
            None => take(self.columns.get(column).map_or(FieldValue::Absent, |column| column.get(row))),
        }
    }
}

fn bytes_of(field: FieldRef) -> Range<usize> {
    field.at as usize..field.at as usize + usize::from(field.bytes)
}
