//! The rows of a batch, grouped by element. All rows of an element are observed together, column by
//! column, so that a column and its series stay in the cache.

use std::ops::Range;

use flatcap_query::ColumnBatch;

use super::element_row::ElementRow;
use super::element_slot::{ElementSlot, FollowedColumns};
use super::observation::{Observer, SeriesStore};

/// The rows of a batch that are not observed yet.
#[derive(Debug, Default)]
pub(super) struct ElementRows {
    /// The rows of each slot.
    rows: Vec<Vec<ElementRow>>,
    /// The slots that have rows.
    used: Vec<usize>,
    /// Empty lists whose memory is reused. Slots without rows have no list, so elements that have
    /// ended take no memory for rows.
    spare: Vec<Vec<ElementRow>>,
}

impl ElementRows {
    /// Adds the next row of the element in a slot.
    pub(super) fn add(&mut self, slot: usize, row: ElementRow) {
        if self.rows.len() <= slot {
            self.rows.resize_with(slot + 1, Vec::new);
        }
        let Some(rows) = self.rows.get_mut(slot) else { return };
        if rows.is_empty() {
            self.used.push(slot);
            *rows = self.spare.pop().unwrap_or_default();
        }
        rows.push(row);
    }

    /// Returns the last row of the element in a slot.
    pub(super) fn last(&self, slot: usize) -> Option<&ElementRow> {
        self.rows.get(slot)?.last()
    }

    /// Observes all rows and removes them. The rows must belong to this batch.
    pub(super) fn observe(
        &mut self,
        batch: &ColumnBatch,
        columns: FollowedColumns<'_>,
        slots: &mut [Option<Box<ElementSlot>>],
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        let mut used = std::mem::take(&mut self.used);
        for at in used.drain(..) {
            self.observe_slot(at, (batch, columns), slots, store);
        }
        self.used = used;
    }

    /// Observes the rows of the element in a slot and removes them.
    pub(super) fn observe_slot(
        &mut self,
        at: usize,
        (batch, columns): (&ColumnBatch, FollowedColumns<'_>),
        slots: &mut [Option<Box<ElementSlot>>],
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        let Some(mut rows) = self.rows.get_mut(at).map(std::mem::take).filter(|rows| !rows.is_empty()) else {
            return;
        };
        if let Some(Some(slot)) = slots.get_mut(at) {
            slot.observe(batch, &rows, columns, store);
        }
        rows.clear();
        self.spare.push(rows);
    }
}

/// Returns the rows of a sample. `first` is the first of these rows.
pub(super) fn rows_of(batch: &ColumnBatch, sample: usize, first: usize) -> Range<usize> {
    let end = (first..batch.rows()).find(|row| batch.sample(*row) != sample);
    first..end.unwrap_or(batch.rows())
}
