//! Summarizes the values of a formula in one table.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use flatcap_format::schema::ElementPresence;

use super::drawn_value::Formula;
use super::formula_history::{ChangeTime, FieldReading, FormulaHistory};
use super::series_cells::{HoleLimits, SamplePoint, SeriesFold};
use crate::columns::batch::ColumnBatch;
use crate::names::elements::{ElementName, ElementNames};

/// After each removal, the next limit on the number of elements is twice the number of remaining
/// elements, plus this constant. If the count of elements exceeds this limit, old readings are
/// removed.
const OLD_MAX: usize = 1 << 10;

/// Maximum number of entries in the record of the elements that had the largest value.
const LARGEST_MAX: usize = 1 << 10;

/// The series of a formula in one table.
#[derive(Debug)]
pub(super) struct FormulaFold {
    /// Position of the value in the request.
    pub(super) value: usize,
    pub(super) formula: Box<Formula>,
    /// The column of each field. `None` if the table lacks the field.
    columns: Vec<Option<usize>>,
    /// The readings of each element. A table that is not a list has one entry, with the key `None`.
    histories: HashMap<Option<u32>, FormulaHistory>,
    /// Number of elements at which old readings are removed.
    sweep_at: usize,
    pub(super) series: SeriesFold,
    /// The elements that had the largest value, each with the wall time at which its value became
    /// the largest.
    largest: VecDeque<(i64, ElementName)>,
    now: Vec<Option<FieldReading>>,
}

impl FormulaFold {
    pub(super) fn new(value: usize, formula: &Formula, bits: u32) -> Self {
        Self {
            value,
            formula: Box::new(formula.clone()),
            columns: vec![None; formula.fields.len()],
            histories: HashMap::new(),
            sweep_at: OLD_MAX,
            series: SeriesFold::new(bits, false),
            largest: VecDeque::new(),
            now: Vec::new(),
        }
    }

    /// Sets the column of a field.
    pub(super) fn bind(&mut self, field: usize, column: usize) {
        if let Some(own) = self.columns.get_mut(field) {
            *own = Some(column);
        }
    }

    /// Adds the values of samples. There must be no hole between these samples.
    pub(super) fn add(
        &mut self,
        batch: &ColumnBatch,
        (rows, kinds): (Range<usize>, &[ElementPresence]),
        (limits, hole_end_ns, names): (HoleLimits, u64, &ElementNames),
    ) {
        let mut row = rows.start;
        while row < rows.end {
            let sample = batch.sample(row);
            let times = (batch.times.mono_ns.get(sample), batch.times.wall_ns.get(sample));
            let (Some(mono_ns), Some(wall_ns)) = times else { return };
            let first = row;
            while row < rows.end && batch.sample(row) == sample {
                row += 1;
            }
            if let Some((value, name)) = self.largest(batch, (first..row, kinds), (*mono_ns, limits), names) {
                let point = SamplePoint { mono_ns: *mono_ns, wall_ns: *wall_ns, counted: None };
                self.series.add(point, value, (limits, hole_end_ns), false);
                self.note(*wall_ns, name);
            }
        }
    }

    /// Returns the largest value of the elements of a sample, and the element that has this value.
    fn largest(
        &mut self,
        batch: &ColumnBatch,
        (rows, kinds): (Range<usize>, &[ElementPresence]),
        (mono_ns, limits): (u64, HoleLimits),
        names: &ElementNames,
    ) -> Option<(f64, Option<ElementName>)> {
        let resolution_ns = self.formula.resolution_ns;
        let most_ns = limits.reach_ns().max(resolution_ns * 3);
        let time = ChangeTime { wanted_ns: resolution_ns, least_ns: resolution_ns, most_ns };
        self.sweep(mono_ns, most_ns);
        let mut largest: Option<(f64, Option<ElementName>)> = None;
        for row in rows {
            let kind = kinds.get(row).copied().unwrap_or(ElementPresence::Known);
            // Elements with the same identity cannot be matched to elements of other samples.
            if kind == ElementPresence::Ambiguous && self.formula.has_counters() {
                continue;
            }
            let element = batch.element(row).map(|element| names.first_of(element));
            let history = self.histories.entry(element).or_default();
            if kind == ElementPresence::New {
                history.clear();
            }
            self.now.clear();
            self.now.extend(
                self.columns.iter().map(|column| FieldReading::of(batch.columns.get((*column)?)?.get(row))),
            );
            let value = history.value(&self.formula, mono_ns, &self.now, time);
            if let Some(value) = value.filter(|value| largest.is_none_or(|(most, _)| *value > most)) {
                largest = Some((value, batch.name(row)));
            }
        }
        largest
    }

    /// Records the element with the largest value, if it is not the last recorded element.
    fn note(&mut self, wall_ns: i64, name: Option<ElementName>) {
        let Some(name) = name.filter(|name| self.largest.back().is_none_or(|(_, last)| last != name)) else {
            return;
        };
        if self.largest.len() >= LARGEST_MAX {
            self.largest.pop_front();
        }
        self.largest.push_back((wall_ns, name));
    }

    /// Returns the element with the largest value at a wall time.
    pub(super) fn largest_at(&self, wall_ns: i64) -> Option<ElementName> {
        let after = self.largest.partition_point(|(since_ns, _)| *since_ns <= wall_ns);
        self.largest.get(after.checked_sub(1)?).map(|(_, name)| *name)
    }

    /// Removes readings that are too old to compute a change.
    fn sweep(&mut self, mono_ns: u64, most_ns: u64) {
        if self.histories.len() > self.sweep_at {
            self.histories.retain(|_, history| mono_ns.saturating_sub(history.last_ns()) <= most_ns);
            self.sweep_at = self.histories.len() * 2 + OLD_MAX;
        }
    }

    /// Removes all readings, because the following samples belong to other counters.
    pub(super) fn clear(&mut self) {
        self.histories.clear();
    }

    /// Takes over the readings of the formula `before`, because the first changes of this series
    /// depend on them. Discards the readings of elements that have ended. `has_ended` returns
    /// whether an element has ended.
    pub(super) fn follow(&mut self, before: Self, has_ended: impl Fn(u32) -> bool) {
        self.histories = before.histories;
        self.histories.retain(|element, _| !element.is_some_and(&has_ended));
    }
}
