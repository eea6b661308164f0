//! Converts counters to their change per second.

use std::collections::HashMap;

use flatcap_format::schema::{ColumnType, CountedValue, CounterHistory, FieldValue, Growth, has_rate};

use crate::columns::batch::ColumnBatch;
use crate::columns::column::ValueColumn;
use crate::names::elements::{ElementNames, NO_ELEMENT};
use crate::plan::{ColumnInfo, TableInfo};

/// The last values of the counters of a query, which are needed to convert its batches to rates.
#[derive(Debug, Default)]
pub struct CounterRates {
    /// The history of each table and source. The key consists of the index of the table and the id
    /// of the source.
    tables: HashMap<(usize, u16), CounterHistory>,
}

/// The growth of one counter in each row of a batch.
#[derive(Debug)]
pub struct ColumnGrowth {
    /// The position of the counter's column in the table.
    pub column: usize,
    /// The growth since the previous row of the same element, for each row.
    pub growths: Vec<Growth>,
}

impl ColumnGrowth {
    /// Keeps only the rows with these positions.
    pub(crate) fn select(&mut self, rows: &[usize]) {
        self.growths = rows.iter().filter_map(|row| self.growths.get(*row).copied()).collect();
    }
}

impl CounterRates {
    /// Replaces the counters of a batch by their change per second since the last row of the same
    /// element. There is no value in the first row of an element, or in a row in which the counter
    /// decreased. There is no value if several elements of one sample have the same identity. An
    /// element that is missing in a complete sample has ended, so a later element with the same
    /// identity is a new element.
    pub fn apply(&mut self, batch: &mut ColumnBatch, table: &TableInfo, names: &ElementNames) {
        for ColumnGrowth { column, growths } in self.growths(batch, table, names) {
            let mut rates = ValueColumn::new(ColumnType::Float, growths.len());
            for growth in growths {
                rates.push(growth.rate().map_or(FieldValue::Absent, FieldValue::Float));
            }
            if let Some(own) = batch.columns.get_mut(column) {
                *own = rates;
            }
        }
    }

    /// Returns the growth of each counter of a batch since the last row of the same element. The
    /// documentation of [`apply`](Self::apply) states in which rows the growth is unknown.
    pub fn growths(
        &mut self,
        batch: &ColumnBatch,
        table: &TableInfo,
        names: &ElementNames,
    ) -> Vec<ColumnGrowth> {
        let counters = table.columns.iter().enumerate().filter(|(_, info)| info.has_rate());
        let growths = || Vec::with_capacity(batch.rows());
        let mut found: Vec<ColumnGrowth> =
            counters.map(|(column, _)| ColumnGrowth { column, growths: growths() }).collect();
        if found.is_empty() {
            return found;
        }
        // Sources may share a table, but not their counters.
        let history = self.tables.entry((batch.table, batch.source)).or_default();
        let (mut first_row, mut places) = (0, Vec::new());
        for (sample, mono_ns) in batch.times.mono_ns.iter().enumerate() {
            history.begin_sample(batch.leaves_out(sample));
            places.clear();
            while first_row + places.len() < batch.rows() && batch.sample(first_row + places.len()) == sample
            {
                places.push(match batch.element(first_row + places.len()) {
                    // Elements without an id are never compared with each other.
                    Some(NO_ELEMENT) => usize::MAX,
                    // Elements with the same identity cannot be matched to elements of the next
                    // sample.
                    Some(element) => history.add_element(u64::from(names.first_of(element))),
                    None => history.add_element(u64::MAX),
                });
            }
            for ColumnGrowth { column, growths } in &mut found {
                let values = batch.columns.get(*column);
                let ranges = batch.ranges.iter().find(|(counter, _)| counter == column);
                growths.extend(places.iter().enumerate().map(|(number, place)| {
                    let row = first_row + number;
                    let value = values.and_then(|values| CountedValue::of(values.get(row)));
                    let Some(value) = value else { return Growth::UNKNOWN };
                    let wraps_at = ranges.and_then(|(_, ranges)| CountedValue::of(ranges.get(row)));
                    history.growth(*place, *column, (*mono_ns, value), wraps_at)
                }));
            }
            first_row += places.len();
        }
        found
    }

    /// Removes all values, because the next run begins.
    pub fn clear(&mut self) {
        // The counters of the next run are independent of the counters of this run.
        self.tables.clear();
    }
}

impl ColumnInfo {
    /// Returns whether a change per second can be computed for the values.
    pub fn has_rate(&self) -> bool {
        has_rate(self.kind, self.column_type)
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::{MetricKind, Usage};

    use super::*;
    use crate::{BatchTimes, RowSource};

    // Proves that counters of elements without an id have no rate, because two such rows may belong
    // to different elements.
    #[test]
    fn elements_without_a_number_have_no_rate() {
        let table = TableInfo {
            source: "cpu".into(),
            instance: None,
            list: Some("cores".into()),
            columns: vec![ColumnInfo {
                path: "user".into(),
                column_type: ColumnType::Unsigned,
                type_name: "ulong".into(),
                unit: None,
                kind: MetricKind::Counter,
                usage: Usage::Use,
                is_identity: false,
                order: 0,
            }],
        };
        let mut counts = ValueColumn::new(ColumnType::Unsigned, 0);
        for count in [10, 500, 30, 900] {
            counts.push_absent();
            counts.set_last(FieldValue::Unsigned(count));
        }
        let mut batch = ColumnBatch {
            table: 0,
            source: 0,
            times: BatchTimes { seq: vec![0, 1], mono_ns: vec![0, 1_000_000_000], ..BatchTimes::default() },
            rows: RowSource::Elements {
                samples: vec![0, 0, 1, 1],
                elements: vec![3, NO_ELEMENT, 3, NO_ELEMENT],
                names: Vec::new(),
            },
            columns: vec![counts],
            ..ColumnBatch::default()
        };
        CounterRates::default().apply(&mut batch, &table, &ElementNames::default());
        let rates: Vec<FieldValue<'_>> = (0..4).map(|row| batch.columns[0].get(row)).collect();
        let absent = FieldValue::Absent;
        assert_eq!(rates, [absent, absent, FieldValue::Float(20.0), absent]);
    }
}
