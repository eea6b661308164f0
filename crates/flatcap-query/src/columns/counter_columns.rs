//! Adds columns to the batches of a source. Rates need these columns in addition to the counters.

use flatcap_format::schema::FieldValue;

use super::batch::ColumnBatch;

/// The columns that the batches of a plan need for rates.
#[derive(Debug, Default)]
pub(crate) struct CounterColumns {
    /// Position of a table, position of a counter in this table, and position of the column with
    /// the value at which this counter wraps.
    pub(crate) ranges: Vec<(usize, usize, usize)>,
    /// Position of a table. If a column contains the number of elements that each sample leaves
    /// out, also the position of this column and of its table.
    pub(crate) sparse: Vec<(usize, Option<(usize, usize)>)>,
}

impl CounterColumns {
    /// Adds the columns for rates to the batches of all tables of a plan.
    pub(crate) fn add_to(&self, batches: &mut [ColumnBatch]) {
        for (table, counter, range) in &self.ranges {
            let Some(batch) = batches.get_mut(*table) else { continue };
            batch.ranges.extend(batch.columns.get(*range).map(|range| (*counter, range.clone())));
        }
        for (table, place) in &self.sparse {
            let samples = batches.get(*table).map_or(0, |batch| batch.times.len());
            let values = place.and_then(|(table, column)| batches.get(table)?.columns.get(column));
            // If the field is missing, it is unknown whether elements are left out.
            let is_complete =
                |sample: usize| values.map(|values| values.get(sample)) == Some(FieldValue::Unsigned(0));
            let sparse = (0..samples).map(|sample| !is_complete(sample)).collect();
            if let Some(batch) = batches.get_mut(*table) {
                batch.sparse = sparse;
            }
        }
    }
}
