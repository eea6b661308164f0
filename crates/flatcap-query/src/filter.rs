//! Applies a condition to rows: to a whole matrix by bounds (predicate pushdown), to the rows of a
//! matrix by their columns, and to collected rows.
//!
//! If the condition picks no elements, a comparison with a field of a list uses the row's own
//! element in tables of that list. In other tables, the comparison is true if any picked element
//! passes.

use flatcap_format::block::{FieldRef, MatrixRows};
use flatcap_format::schema::{CompiledSchema, FieldValue};

use super::batch::{ColumnBatch, RowSource};
use super::condition::{Possible, RowCondition};
use super::plan::{HIDDEN, SourcePlan, TableInfo};
use super::table_rows::TableRows;

/// A condition on the rows of one source.
#[derive(Debug)]
pub(super) struct RowFilter {
    pub(super) condition: RowCondition,
    /// The columns of each comparison.
    pub(super) columns: Vec<ComparedColumns>,
    /// Whether batches keep all rows and list the rows that pass.
    // Rates are computed from all rows.
    pub(super) keeps_all: bool,
}

/// The columns with the values of a comparison's field.
#[derive(Debug)]
pub(super) struct ComparedColumns {
    /// The table and column of the elements that the condition picks.
    pub(super) own: (usize, usize),
    /// The tables in which each row has its own value of the field, and the columns.
    pub(super) local: Vec<(usize, usize)>,
}

impl ComparedColumns {
    fn local(&self, table: usize) -> Option<usize> {
        self.local.iter().find(|(known, _)| *known == table).map(|(_, column)| *column)
    }
}

/// Returns whether a table has a requested column.
pub(super) fn is_visible(table: &TableInfo) -> bool {
    table.columns.iter().any(|column| column.order != HIDDEN)
}

/// Returns a table with only the requested columns.
pub(super) fn visible(table: &TableInfo) -> TableInfo {
    let columns = table.columns.iter().filter(|column| column.order != HIDDEN).cloned().collect();
    TableInfo { columns, ..table.clone() }
}

/// Keeps the requested tables and columns.
pub(super) fn keep_visible(plan: &SourcePlan, batches: Vec<ColumnBatch>) -> Vec<ColumnBatch> {
    let tables = plan.tables.iter().zip(batches).filter(|(info, _)| is_visible(info));
    tables
        .map(|(info, mut batch)| {
            // The other columns follow the requested ones.
            batch.columns.truncate(info.columns.iter().filter(|column| column.order != HIDDEN).count());
            batch
        })
        .collect()
}

impl RowFilter {
    /// Applies the condition to the batches of all tables of the plan. Removes the rows that do not
    /// pass, or, with `keeps_all`, lists the rows that pass. Keeps only the requested columns.
    pub(super) fn apply(&self, plan: &SourcePlan, batches: Vec<ColumnBatch>) -> Vec<ColumnBatch> {
        let passing = self.passing_rows(plan, &batches);
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

    /// Returns the rows that pass the condition, for each requested table.
    fn passing_rows(&self, plan: &SourcePlan, batches: &[ColumnBatch]) -> Vec<Vec<usize>> {
        // Computed once per sample, because each row of another table needs the result.
        let any: Vec<Vec<bool>> =
            (0..self.columns.len()).map(|comparison| self.samples(comparison, batches)).collect();
        let tables = plan.tables.iter().zip(batches).enumerate();
        let tables = tables.filter(|(_, (info, _))| is_visible(info));
        tables
            .map(|(table, (_, batch))| {
                let holds = |row: &usize| {
                    self.condition.holds(&|comparison| match self.local_value(comparison, table, batch, *row)
                    {
                        Some(value) => self.passes(comparison, value),
                        None => any
                            .get(comparison)
                            .and_then(|samples| samples.get(batch.sample(*row)))
                            .copied()
                            .unwrap_or_default(),
                    })
                };
                (0..batch.rows()).filter(holds).collect()
            })
            .collect()
    }

    fn passes(&self, comparison: usize, value: FieldValue<'_>) -> bool {
        self.condition.comparisons.get(comparison).is_some_and(|comparison| comparison.passes(value))
    }

    fn local_value<'b>(
        &self,
        comparison: usize,
        table: usize,
        batch: &'b ColumnBatch,
        row: usize,
    ) -> Option<FieldValue<'b>> {
        let column = self.columns.get(comparison)?.local(table)?;
        Some(batch.columns.get(column)?.get(row))
    }

    /// Returns for each sample whether any picked element passes a comparison.
    fn samples(&self, comparison: usize, batches: &[ColumnBatch]) -> Vec<bool> {
        let own = self.columns.get(comparison).map(|columns| columns.own);
        let Some((batch, column)) = own.and_then(|(table, column)| {
            let batch = batches.get(table)?;
            Some((batch, batch.columns.get(column)?))
        }) else {
            return Vec::new();
        };
        let mut samples = vec![false; batch.times.len()];
        for row in 0..batch.rows() {
            if let Some(sample) = samples.get_mut(batch.sample(row)) {
                *sample |= self.passes(comparison, column.get(row));
            }
        }
        samples
    }

    /// Returns whether the condition may hold for a row of a matrix, by the bounds of its columns.
    /// `tables` are the rows of the matrix's template.
    pub(super) fn may_hold(
        &self,
        schema: &CompiledSchema,
        matrix: &MatrixRows,
        tables: &[TableRows],
    ) -> bool {
        let possible = |comparison: usize| self.possible(comparison, schema, matrix, tables);
        self.condition.possible(&possible).is_true
    }

    fn possible(
        &self,
        number: usize,
        schema: &CompiledSchema,
        matrix: &MatrixRows,
        tables: &[TableRows],
    ) -> Possible {
        let (Some(comparison), Some(columns)) =
            (self.condition.comparisons.get(number), self.columns.get(number))
        else {
            return Possible::UNKNOWN;
        };
        let places = columns.local.iter().chain([&columns.own]);
        // Without elements, no comparison passes.
        let none = Possible::known(false);
        let mut all: Option<Possible> = None;
        for (table, column) in places {
            let Some(table) = tables.get(*table) else { return Possible::UNKNOWN };
            let own = (0..table.rows()).map(|row| match table.changing(row, *column, matrix) {
                None => Possible::known(
                    table.columns.get(*column).is_some_and(|column| comparison.passes(column.get(row))),
                ),
                Some((field, reader)) => match matrix
                    .bounds(FieldRef { kind: reader.number_kind().into(), ..field })
                {
                    None => Possible::UNKNOWN,
                    Some((lowest, highest)) => {
                        let possible = comparison
                            .possible(schema.read_bits(reader, lowest), schema.read_bits(reader, highest));
                        // Absent values pass no comparison, and may be within the bounds.
                        if reader.absent_bits().is_some() { possible.or(none) } else { possible }
                    }
                },
            });
            // A list may be empty, and then no comparison with its elements passes.
            let own = own.fold(if table.is_list { Some(none) } else { None }, |all, own| {
                Some(all.map_or(own, |all: Possible| all.or(own)))
            });
            all = match (all, own) {
                (Some(all), Some(own)) => Some(all.or(own)),
                (all, own) => all.or(own),
            };
        }
        all.unwrap_or(Possible::UNKNOWN)
    }

    /// Returns the changing fields of a matrix that the comparisons need.
    pub(super) fn fields(&self, matrix: &MatrixRows, tables: &[TableRows]) -> Vec<FieldRef> {
        let mut fields = Vec::new();
        for (table, column) in
            self.columns.iter().flat_map(|columns| columns.local.iter().chain([&columns.own]))
        {
            let Some(table) = tables.get(*table) else { continue };
            let changing = (0..table.rows()).filter_map(|row| table.changing(row, *column, matrix));
            fields.extend(changing.map(|(field, _)| field));
        }
        fields
    }

    /// For each row of a matrix, returns whether the condition holds for a row of any requested
    /// table. The columns of [`fields`](Self::fields) must be loaded.
    pub(super) fn rows_of(&self, plan: &SourcePlan, matrix: &MatrixRows, tables: &[TableRows]) -> Vec<bool> {
        let results = |comparison: usize, table: usize, column: usize| -> Vec<Vec<bool>> {
            let Some(own) = tables.get(table) else { return Vec::new() };
            let of = |row: usize| {
                if let Some((field, reader)) = own.changing(row, column, matrix) {
                    let passes = |bits: &u64| self.passes(comparison, plan.schema.read_bits(reader, *bits));
                    matrix.values(field, 0..matrix.len()).iter().map(passes).collect()
                } else {
                    let value = own.columns.get(column).map_or(FieldValue::Absent, |column| column.get(row));
                    vec![self.passes(comparison, value); matrix.len()]
                }
            };
            (0..own.rows()).map(of).collect()
        };
        let any: Vec<Vec<bool>> = (self.columns.iter().enumerate())
            .map(|(comparison, columns)| {
                let mut any = vec![false; matrix.len()];
                for own in results(comparison, columns.own.0, columns.own.1) {
                    any.iter_mut().zip(own).for_each(|(any, own)| *any |= own);
                }
                any
            })
            .collect();
        let mut passing = vec![false; matrix.len()];
        // A row of a table that was not requested does not make the sample pass.
        for (table, own) in tables.iter().enumerate() {
            if !plan.tables.get(table).is_some_and(is_visible) {
                continue;
            }
            let locals: Vec<Option<Vec<Vec<bool>>>> = (self.columns.iter().enumerate())
                .map(|(comparison, columns)| Some(results(comparison, table, columns.local(table)?)))
                .collect();
            for row in 0..own.rows() {
                for (sample, passing) in passing.iter_mut().enumerate() {
                    *passing |= self.condition.holds(&|comparison| {
                        let local = locals.get(comparison).and_then(Option::as_ref);
                        let results =
                            local.map_or(any.get(comparison), |local| local.get(row)).map(Vec::as_slice);
                        results.and_then(|results| results.get(sample)).copied().unwrap_or_default()
                    });
                }
            }
        }
        passing
    }
}

impl ColumnBatch {
    /// Returns some rows, in ascending order, without the columns that only rates need. Omits
    /// samples without a row.
    pub(super) fn select(&self, rows: &[usize]) -> Self {
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
