//! Applies a condition in three ways: to a whole matrix by the bounds of its columns (predicate
//! pushdown), to the rows of a matrix by their columns, and to rows that are already collected.
//!
//! Values are read column by column into numbers, and then compared row by row. An absent value is
//! read as NaN.

use std::convert::Infallible;

use flatcap_format::block::{FieldRef, MatrixRows};
use flatcap_format::schema::{CompiledSchema, FieldValue};

use super::table_rows::TableRows;
use crate::columns::batch::{ColumnBatch, RowSource};
use crate::language::{Check, Comparison, Logic, Possible, Scale, Truth, ValueTest};
use crate::plan::{HIDDEN, SourcePlan, TableInfo};

/// A condition on rows. In this condition, each value is the index of an input.
pub(super) type RowLogic = Logic<Check<usize, Infallible>>;

/// A condition on the rows of one source.
#[derive(Debug)]
pub(crate) struct RowFilter {
    pub(super) logic: RowLogic,
    pub(super) inputs: Vec<ColumnInput>,
    /// Whether batches keep all rows and list the rows that pass.
    // This is needed for rates, because rates are computed from all rows.
    pub(super) keeps_all: bool,
}

/// A value that the condition reads from a column.
#[derive(Debug)]
pub(super) struct ColumnInput {
    /// The test of the column's value. The input is the result of this test. `None` if the input is
    /// the number in the column, without a test.
    pub(super) test: Option<ValueTest>,
    /// Converts the number to base units.
    pub(super) scale: Scale,
    /// The table and column of the elements that the condition selects.
    pub(super) own: (usize, usize),
    /// The tables in which each row has its own value of the field, and, for each of these tables,
    /// the column of the field.
    pub(super) tables: Vec<(usize, usize)>,
}

/// The input values of one table. An entry is a row of a batch. For a matrix, an entry is a row of
/// the table in one sample.
struct TableInputs {
    /// For each input, its values in the order of the entries. `None` for an input without a column
    /// in this table.
    inputs: Vec<Option<Vec<f64>>>,
    /// For each entry, the position of its sample.
    samples: Vec<usize>,
}

/// The values of all tables, and the results for the elements of lists.
struct RowInputs {
    tables: Vec<TableInputs>,
    /// For each input that identifies a list, the result of the condition on the elements of the
    /// list, per sample.
    elements: Vec<Vec<Truth>>,
}

impl ColumnInput {
    fn column(&self, table: usize) -> Option<usize> {
        self.tables.iter().find(|(known, _)| *known == table).map(|(_, column)| *column)
    }

    /// Converts a value to the number that the condition compares. An absent value becomes NaN.
    fn number(&self, value: FieldValue<'_>) -> f64 {
        if let Some(test) = &self.test {
            return test.passes(value).map_or(f64::NAN, |passes| f64::from(u8::from(passes)));
        }
        // Rules convert integers in the same way.
        self.scale.apply(value.number().unwrap_or(f64::NAN))
    }
}

impl RowInputs {
    /// Returns the value of an input for an entry. A field outside of lists has one value for all
    /// entries of a sample.
    fn value(&self, inputs: &[ColumnInput], input: usize, (table, entry): (usize, usize)) -> f64 {
        let own = |table: usize| self.tables.get(table)?.inputs.get(input)?.as_ref();
        // A row of a list has its own values of the fields of this list. Fields outside of lists
        // have one value per sample. For fields of other lists, the results of the elements were
        // already combined into one result per sample.
        let value = match own(table) {
            Some(values) => values.get(entry),
            None => inputs.get(input).and_then(|input| {
                let sample = self.tables.get(table)?.samples.get(entry)?;
                own(input.own.0)?.get(*sample)
            }),
        };
        value.copied().unwrap_or(f64::NAN)
    }

    fn evaluate(&self, inputs: &[ColumnInput], logic: &RowLogic, at: (usize, usize)) -> Truth {
        logic.evaluate(&|check| match check {
            Check::Compare(comparison) => comparison.evaluate(&|input| self.value(inputs, *input, at)),
            Check::Elements(check) => {
                // In a row that is an element of the list, the comparison applies to this element.
                // For example, each row of `cpu.cores[*]` is selected by its own values.
                let has_own = inputs.get(check.anchor).is_some_and(|input| input.column(at.0).is_some());
                if check.is_implicit && has_own {
                    return self.evaluate(inputs, &check.inner, at);
                }
                let sample = self.tables.get(at.0).and_then(|table| table.samples.get(at.1));
                let results = self.elements.get(check.anchor).zip(sample);
                results.and_then(|(results, sample)| results.get(*sample).copied()).unwrap_or(Truth::Unknown)
            }
            Check::Other(never) => match *never {},
        })
    }
}

/// Returns whether a table has a requested column.
pub(crate) fn is_visible(table: &TableInfo) -> bool {
    table.columns.iter().any(|column| column.order != HIDDEN)
}

/// Returns a table with only the requested columns.
pub(crate) fn visible(table: &TableInfo) -> TableInfo {
    let columns = table.columns.iter().filter(|column| column.order != HIDDEN).cloned().collect();
    TableInfo { columns, ..table.clone() }
}

/// Keeps the requested tables and columns.
pub(super) fn keep_visible(plan: &SourcePlan, batches: Vec<ColumnBatch>) -> Vec<ColumnBatch> {
    let tables = plan.tables.iter().zip(batches).filter(|(info, _)| is_visible(info));
    tables
        .map(|(info, mut batch)| {
            // The columns that were not requested follow the requested ones.
            batch.columns.truncate(info.columns.iter().filter(|column| column.order != HIDDEN).count());
            batch
        })
        .collect()
}

impl RowFilter {
    /// Applies the condition to the batches of all tables of the plan. Removes the rows that do not
    /// pass. If `keeps_all` is true, lists the rows that pass instead. Keeps only the requested
    /// columns.
    pub(super) fn apply(&self, plan: &SourcePlan, batches: Vec<ColumnBatch>) -> Vec<ColumnBatch> {
        let samples = batches.first().map_or(0, |batch| batch.times.len());
        let tables = batches.iter().enumerate().map(|(table, batch)| TableInputs {
            inputs: self.columns(table, |input, column| {
                let column = batch.columns.get(column)?;
                Some((0..batch.rows()).map(|row| input.number(column.get(row))).collect())
            }),
            samples: (0..batch.rows()).map(|row| batch.sample(row)).collect(),
        });
        let inputs = self.inputs_of(tables.collect(), samples);
        // A condition may load tables that the query did not request. The rows of such tables are
        // not returned.
        let passing: Vec<Vec<usize>> = (plan.tables.iter().zip(&batches).enumerate())
            .filter(|(_, (info, _))| is_visible(info))
            .map(|(table, (_, batch))| {
                let holds =
                    |row: &usize| inputs.evaluate(&self.inputs, &self.logic, (table, *row)) == Truth::True;
                (0..batch.rows()).filter(holds).collect()
            })
            .collect();
        let mut kept = keep_visible(plan, batches);
        for (batch, rows) in kept.iter_mut().zip(passing) {
            if self.keeps_all {
                batch.passing = Some(rows);
            } else {
                *batch = batch.select(&rows);
            }
        }
        kept
    }

    /// Returns, for each row of a matrix (each row is a sample), whether the condition holds for at
    /// least one row of a requested table. The columns of [`fields`](Self::fields) must be loaded.
    pub(super) fn rows_of(&self, plan: &SourcePlan, matrix: &MatrixRows, tables: &[TableRows]) -> Vec<bool> {
        let samples = matrix.row_count();
        let of_table = |(number, table): (usize, &TableRows)| TableInputs {
            inputs: self.columns(number, |input, column| {
                let mut values = Vec::with_capacity(table.rows() * samples);
                for row in 0..table.rows() {
                    // A value that is the same in the whole matrix is read only one time, whatever
                    // the number of samples.
                    if let Some((field, reader)) = table.changing(row, column, matrix) {
                        let bits = matrix.values(field, 0..samples);
                        values.extend(
                            bits.iter().map(|bits| input.number(plan.schema.read_bits(reader, *bits))),
                        );
                    } else {
                        let value = input.number(constant(table, row, column));
                        values.extend(std::iter::repeat_n(value, samples));
                    }
                }
                Some(values)
            }),
            samples: (0..table.rows()).flat_map(|_| 0..samples).collect(),
        };
        let inputs = self.inputs_of(tables.iter().enumerate().map(of_table).collect(), samples);
        let mut passing = vec![false; samples];
        // A row of a table that was not requested does not make the sample pass.
        let visible = plan.tables.iter().enumerate().filter(|(_, info)| is_visible(info));
        for (number, table) in visible.filter_map(|(number, _)| Some((number, inputs.tables.get(number)?))) {
            for (entry, sample) in table.samples.iter().enumerate() {
                if let Some(passing) = passing.get_mut(*sample).filter(|passing| !**passing) {
                    *passing = inputs.evaluate(&self.inputs, &self.logic, (number, entry)) == Truth::True;
                }
            }
        }
        passing
    }

    /// Returns the values of each input in a table. The function `values` reads a column.
    fn columns(
        &self,
        table: usize,
        values: impl Fn(&ColumnInput, usize) -> Option<Vec<f64>>,
    ) -> Vec<Option<Vec<f64>>> {
        self.inputs.iter().map(|input| values(input, input.column(table)?)).collect()
    }

    /// Returns the inputs of all tables, with the results for the elements of lists.
    fn inputs_of(&self, tables: Vec<TableInputs>, samples: usize) -> RowInputs {
        let mut inputs = RowInputs { tables, elements: vec![Vec::new(); self.inputs.len()] };
        self.logic.visit(&mut |check| {
            let Check::Elements(check) = check else { return };
            let Some((table, _)) = self.inputs.get(check.anchor).map(|input| input.own) else { return };
            let mut of_samples: Vec<Option<Truth>> = vec![None; samples];
            let entries = inputs.tables.get(table).map_or(&[][..], |table| &table.samples);
            for (entry, sample) in entries.iter().enumerate() {
                if let Some(own) = of_samples.get_mut(*sample) {
                    let result = inputs.evaluate(&self.inputs, &check.inner, (table, entry));
                    *own = Some(check.joined(own.iter().copied().chain([result])));
                }
            }
            // A sample with an empty list has no entry in the table of the list.
            let empty = check.joined(std::iter::empty());
            let joined = of_samples.into_iter().map(|own| own.unwrap_or(empty)).collect();
            if let Some(own) = inputs.elements.get_mut(check.anchor) {
                *own = joined;
            }
        });
        inputs
    }

    /// Returns whether, according to the bounds of the matrix's columns, the condition may hold for
    /// a row of the matrix. `tables` contains the rows of the matrix's template.
    pub(super) fn may_hold(
        &self,
        schema: &CompiledSchema,
        matrix: &MatrixRows,
        tables: &[TableRows],
    ) -> bool {
        let compared = |check: &Check<usize, Infallible>| match check {
            Check::Compare(comparison) => self.possible(comparison, schema, matrix, tables),
            // The bounds say nothing about this check, so the matrix must be read.
            _ => Possible::BOTH,
        };
        self.logic.may_be(true, &|check| match check {
            Check::Elements(check) => {
                let [is_true, is_false] = [true, false].map(|result| check.inner.may_be(result, &compared));
                // The list may also be empty in a row.
                let empty = check.joined(std::iter::empty());
                Possible { is_true, is_false }.or(Possible::of(empty))
            }
            check => compared(check),
        })
    }

    /// Returns the results that a comparison may have in any of the tables.
    fn possible(
        &self,
        comparison: &Comparison<usize>,
        schema: &CompiledSchema,
        matrix: &MatrixRows,
        tables: &[TableRows],
    ) -> Possible {
        let Some(input) = comparison.compared().and_then(|input| self.inputs.get(*input)) else {
            return Possible::BOTH;
        };
        let mut all = Possible::NONE;
        for (table, column) in &input.tables {
            let Some(table) = tables.get(*table) else { return Possible::BOTH };
            for row in 0..table.rows() {
                let own = match table.changing(row, *column, matrix) {
                    None => {
                        let number = input.number(constant(table, row, *column));
                        Possible::of(comparison.evaluate(&|_| number))
                    }
                    Some((field, reader)) => {
                        let kind = reader.number_kind().into();
                        let Some((lowest, highest)) = matrix.bounds(FieldRef { kind, ..field }) else {
                            return Possible::BOTH;
                        };
                        let bounds = (schema.read_bits(reader, lowest), schema.read_bits(reader, highest));
                        comparison.possible(input.test.as_ref(), bounds)
                    }
                };
                all = all.or(own);
            }
        }
        all
    }

    /// Returns the fields that the comparisons need and that change within a matrix.
    pub(super) fn fields(&self, matrix: &MatrixRows, tables: &[TableRows]) -> Vec<FieldRef> {
        let mut fields = Vec::new();
        for (table, column) in self.inputs.iter().flat_map(|input| &input.tables) {
            let Some(table) = tables.get(*table) else { continue };
            let changing = (0..table.rows()).filter_map(|row| table.changing(row, *column, matrix));
            fields.extend(changing.map(|(field, _)| field));
        }
        fields
    }
}

/// Returns a value that is the same in all rows of a matrix.
fn constant(table: &TableRows, row: usize, column: usize) -> FieldValue<'_> {
    table.columns.get(column).map_or(FieldValue::Absent, |column| column.get(row))
}

impl ColumnBatch {
    /// Returns the rows at these positions, which must be in ascending order. Leaves out the
    /// columns that are needed only for rates, and the samples without a returned row.
    pub(crate) fn select(&self, rows: &[usize]) -> Self {
        let mut samples: Vec<usize> = rows.iter().map(|row| self.sample(*row)).collect();
        samples.dedup();
        let source = match &self.rows {
            RowSource::Samples => RowSource::Samples,
            RowSource::Elements { elements, names, .. } => {
                let number = |row: &usize| samples.partition_point(|sample| *sample < self.sample(*row));
                let numbers = rows.iter().map(|row| u32::try_from(number(row)).unwrap_or(u32::MAX));
                let elements = rows.iter().filter_map(|row| elements.get(*row).copied());
                let names = rows.iter().filter_map(|row| names.get(*row).copied());
                let (samples, elements) = (numbers.collect(), elements.collect());
                RowSource::Elements { samples, elements, names: names.collect() }
            }
        };
        Self {
            table: self.table,
            source: self.source,
            times: self.times.select(&samples),
            rows: source,
            columns: self.columns.iter().map(|column| column.select(rows)).collect(),
            ..Self::default()
        }
    }
}
