//! Turns counters into their change per second.

use std::collections::HashMap;

use super::batch::ColumnBatch;
use super::column::ValueColumn;
use super::elements::NO_ELEMENT;
use super::plan::{ColumnInfo, TableInfo};
use crate::schema::{ColumnType, CountedValue, FieldValue, MetricKind};

/// Table, id of the source, column and element.
type CounterKey = (usize, u16, usize, Option<u32>);

/// The last values of the counters of a query, by which its batches become rates.
#[derive(Debug, Clone, Default)]
pub struct CounterRates {
    /// Time and value by table, source, column and element.
    last: HashMap<CounterKey, (u64, CountedValue)>,
}

impl CounterRates {
    /// Replaces the counters of a batch by their change per second since the row of the same
    /// element before. The first row of an element, and one whose counter decreased, have no value.
    pub fn apply(&mut self, batch: &mut ColumnBatch, table: &TableInfo) {
        for (number, info) in table.columns.iter().enumerate() {
            if !has_rate(info) {
                continue;
            }
            let mut rates = ValueColumn::new(ColumnType::Float, batch.rows());
            for row in 0..batch.rows() {
                rates.push_absent();
                // Several elements without a number are none.
                if batch.element(row) == Some(NO_ELEMENT) {
                    continue;
                }
                let Some(value) = batch.columns.get(number).map(|column| column.get(row)) else { continue };
                let Some(value) = CountedValue::of(value) else { continue };
                let Some(mono_ns) = batch.times.mono_ns.get(batch.sample(row)).copied() else { continue };
                let key = (batch.table, batch.source, number, batch.element(row));
                let before = self.last.insert(key, (mono_ns, value));
                if let Some(rate) = before.and_then(|before| rate(before, (mono_ns, value))) {
                    rates.set_last(FieldValue::Float(rate));
                }
            }
            if let Some(column) = batch.columns.get_mut(number) {
                *column = rates;
            }
        }
    }

    /// Forgets all values: those of the next run are of other counters.
    pub fn clear(&mut self) {
        self.last.clear();
    }
}

/// Returns whether the values of a column have a change per second.
pub(super) fn has_rate(column: &ColumnInfo) -> bool {
    // Counters of programs may be fractions.
    let counts = matches!(column.column_type, ColumnType::Unsigned | ColumnType::Float);
    column.kind == MetricKind::Counter && counts
}

/// Returns the change per second from one time and value to the next; none if the value decreased
/// or no time passed.
#[allow(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
pub(super) fn rate(before: (u64, CountedValue), now: (u64, CountedValue)) -> Option<f64> {
    let elapsed_ns = now.0.checked_sub(before.0).filter(|elapsed| *elapsed > 0)?;
    let change = now.1.growth_since(before.1)?;
    Some(change / (elapsed_ns as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{BatchTimes, RowSource};
    use crate::schema::Usage;

    // Proves that counters of elements for which there was no number have no rate: one row is not
    // of the same element as the other.
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
        };
        CounterRates::default().apply(&mut batch, &table);
        let rates: Vec<FieldValue<'_>> = (0..4).map(|row| batch.columns[0].get(row)).collect();
        let absent = FieldValue::Absent;
        assert_eq!(rates, [absent, absent, FieldValue::Float(20.0), absent]);
    }
}
