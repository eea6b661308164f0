//! Makes one row for each step of time.

use std::collections::{BTreeMap, HashSet};

use flatcap_format::schema::{FieldValue, Growth, MetricKind};

use super::held_value::HeldValue;
use super::join::{RowBuffer, RowStamp};
use super::layout::RowColumn;
use super::merge::MergedSample;
use super::steps::{Aggregate, StepCell, StepKind, Steps};
use crate::names::elements::ElementName;

/// Maximum age of a counter's last value that is used for a rate, in periods or steps.
// The source may have missed one sample.
const AGE_PERIODS: u64 = 2;

/// Minimum change of the wall clock that counts as a clock step, in nanoseconds.
// Smaller changes are ignored, because clocks are adjusted all the time.
const CLOCK_STEP_NS: u64 = 1_000_000_000;

/// The position of a value, which is a column and, if rows are elements, an element.
pub(super) type CellPlace = (Option<ElementName>, usize);

/// The current step of a run.
#[derive(Debug)]
pub(super) struct StepRows {
    steps: Steps,
    /// Wall time minus monotonic time at the beginning of the run.
    // The offset is fixed, so that steps have equal lengths on the monotonic clock even if the wall
    // clock is set.
    offset_ns: Option<i64>,
    /// The change of the difference between wall time and monotonic time since the beginning of the
    /// run. One value is for the beginning of the current step, and one value is for the beginning
    /// of the step that has ended.
    shift_ns: i64,
    ended_shift_ns: i64,
    current: Option<i64>,
    cells: BTreeMap<CellPlace, StepCell>,
    /// Elements with samples in the current step, in the order of the samples.
    elements: Vec<ElementName>,
    seen: HashSet<ElementName>,
    has_samples: bool,
}

impl StepRows {
    pub(super) fn new(steps: Steps) -> Self {
        Self {
            steps,
            offset_ns: None,
            shift_ns: 0,
            ended_shift_ns: 0,
            current: None,
            cells: BTreeMap::new(),
            elements: Vec::new(),
            seen: HashSet::new(),
            has_samples: false,
        }
    }

    /// Advances to the step of a sample. Returns the previous step if it has ended.
    pub(super) fn reach(&mut self, sample: &MergedSample) -> Option<i64> {
        let mono_ns = i64::try_from(sample.mono_ns).unwrap_or(i64::MAX);
        let offset_ns = *self.offset_ns.get_or_insert(sample.wall_ns.saturating_sub(mono_ns));
        let number = self.steps.number(mono_ns.saturating_add(offset_ns));
        let ended = self.current.filter(|current| *current < number);
        if ended.is_some() || self.current.is_none() {
            let shift_ns = sample.wall_ns.saturating_sub(mono_ns.saturating_add(offset_ns));
            self.ended_shift_ns = std::mem::replace(&mut self.shift_ns, shift_ns);
        }
        // The times of samples of several sources may step back, but a step that has ended does not
        // begin again.
        self.current = Some(self.current.map_or(number, |current| current.max(number)));
        ended
    }

    /// Returns the kind of summary that a column needs. `period_ns` is the period of the column's
    /// source.
    pub(super) fn kind(&self, column: &RowColumn, period_ns: u64) -> StepKind {
        match (self.steps.aggregate, column.kind) {
            (None | Some(Aggregate::Mean), _) if column.is_rate => {
                // The values of a source without a period never become too old.
                let period_ns = if period_ns == 0 { u64::MAX } else { period_ns };
                StepKind::Rate(period_ns.max(self.steps.step_ns).saturating_mul(AGE_PERIODS))
            }
            (Some(aggregate), MetricKind::Counter | MetricKind::Gauge | MetricKind::Unknown) => {
                StepKind::Aggregate(aggregate)
            }
            (Some(Aggregate::Count), _) => StepKind::Aggregate(Aggregate::Count),
            (None, MetricKind::Counter) if column.is_rate => StepKind::Aggregate(Aggregate::Mean),
            (None, MetricKind::Gauge | MetricKind::Unknown) => StepKind::Aggregate(Aggregate::Mean),
            _ => StepKind::Last,
        }
    }

    /// Adds a value of a sample. `growth` is called only for the rate of a counter.
    pub(super) fn add(
        &mut self,
        place: CellPlace,
        kind: StepKind,
        value: FieldValue<'_>,
        growth: impl FnOnce() -> Growth,
    ) {
        self.has_samples = true;
        if let (Some(element), _) = place
            // The values of an element usually follow each other, so the set is rarely searched.
            && self.elements.last() != Some(&element)
            && self.seen.insert(element)
        {
            self.elements.push(element);
        }
        match self.cells.entry(place).or_insert_with(|| StepCell::new(kind)) {
            StepCell::Rate(cell) => cell.add(growth()),
            cell => cell.add(value),
        }
    }

    /// Removes the values of the current step. The rates of the next step still use these values.
    pub(super) fn forget_values(&mut self) {
        self.cells.values_mut().for_each(|cell| drop(cell.finish()));
        self.elements.clear();
        self.seen.clear();
        self.has_samples = false;
    }

    /// Appends the rows of a step that has ended. Appends one row, or, if rows are elements, one
    /// row for each element with a sample. Appends no row for a step without samples.
    pub(super) fn finish(&mut self, number: i64, is_long: bool, columns: usize, rows: &mut RowBuffer) {
        let begin_ns = self.steps.begin_ns(number);
        let mono_ns = begin_ns.saturating_sub(self.offset_ns.unwrap_or_default());
        // Steps have equal lengths on the monotonic clock. After a suspend, or after the wall clock
        // was set, the times of the steps follow the wall clock.
        let shift_ns = if self.current == Some(number) { self.shift_ns } else { self.ended_shift_ns };
        let is_step = shift_ns.unsigned_abs() >= CLOCK_STEP_NS;
        let wall_ns = if is_step { begin_ns.saturating_add(shift_ns) } else { begin_ns };
        let stamp = RowStamp { wall_ns, mono_ns: u64::try_from(mono_ns).unwrap_or_default(), element: None };
        if std::mem::take(&mut self.has_samples) && columns > 0 {
            // Rows of elements repeat the values of the fields that are not in the list of
            // elements.
            let shared: Vec<HeldValue> = (0..columns).map(|place| self.value((None, place))).collect();
            if is_long {
                for element in std::mem::take(&mut self.elements) {
                    rows.stamps.push(RowStamp { element: Some(element), ..stamp });
                    rows.values.extend(shared.iter().enumerate().map(|(place, shared)| {
                        match self.value((Some(element), place)) {
                            HeldValue::Absent => shared.clone(),
                            own => own,
                        }
                    }));
                }
            } else {
                rows.stamps.push(stamp);
                rows.values.extend(shared);
            }
        }
        self.forget_values();
    }

    /// Returns the current step at the end of the run, if the step has samples.
    pub(super) fn end(&mut self) -> Option<i64> {
        self.current.filter(|_| self.has_samples)
    }

    fn value(&mut self, place: CellPlace) -> HeldValue {
        self.cells.get_mut(&place).map_or(HeldValue::Absent, StepCell::finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(mono_ns: u64, wall_ns: i64) -> MergedSample {
        MergedSample {
            batch: 0,
            source: 0,
            name: 0,
            table: 0,
            seq: 0,
            mono_ns,
            wall_ns,
            first_row: 0,
            end_row: 1,
        }
    }

    fn steps(step_ns: u64) -> StepRows {
        StepRows::new(Steps { step_ns, aggregate: None })
    }

    // Proves that steps begin at multiples of their length on the wall clock as it was at the
    // beginning of the run, even after the wall clock was set. Also proves that a step without
    // samples has no row.
    #[test]
    fn steps_follow_the_monotonic_clock() {
        let mut step_rows = steps(100);
        let kind = StepKind::Aggregate(Aggregate::Max);
        let mut rows = RowBuffer::default();
        for (mono_ns, wall_ns) in [(5, 1_005), (99, 1_099), (100, 7), (350, 0), (399, 0)] {
            if let Some(number) = step_rows.reach(&sample(mono_ns, wall_ns)) {
                step_rows.finish(number, false, 1, &mut rows);
            }
            step_rows.add((None, 0), kind, FieldValue::Unsigned(mono_ns), Growth::default);
        }
        let number = step_rows.end().unwrap();
        step_rows.finish(number, false, 1, &mut rows);
        let found: Vec<(i64, u64)> = rows.stamps.iter().map(|stamp| (stamp.wall_ns, stamp.mono_ns)).collect();
        assert_eq!(found, [(1_000, 0), (1_100, 100), (1_300, 300)]);
        assert_eq!(rows.values, [99, 100, 399].map(HeldValue::Unsigned));
        assert_eq!(step_rows.end(), None);
    }

    // Proves that each element of a step has a row with its own values and the values that all rows
    // share, and that a step contains no elements of other steps.
    #[test]
    fn elements_have_rows_of_their_own() {
        let mut step_rows = steps(10);
        let mut rows = RowBuffer::default();
        step_rows.reach(&sample(1, 1));
        let name = |number| Some(ElementName(number));
        step_rows.add((None, 0), StepKind::Last, FieldValue::Unsigned(8), Growth::default);
        step_rows.add((name(5), 1), StepKind::Last, FieldValue::Unsigned(50), Growth::default);
        step_rows.add((name(2), 1), StepKind::Last, FieldValue::Unsigned(20), Growth::default);
        let ended = step_rows.reach(&sample(11, 11)).unwrap();
        step_rows.finish(ended, true, 2, &mut rows);
        step_rows.add((name(2), 1), StepKind::Last, FieldValue::Unsigned(21), Growth::default);
        let number = step_rows.end().unwrap();
        step_rows.finish(number, true, 2, &mut rows);
        let elements: Vec<Option<ElementName>> = rows.stamps.iter().map(|stamp| stamp.element).collect();
        assert_eq!(elements, [5, 2, 2].map(|element| Some(ElementName(element))));
        let expected = [8, 50, 8, 20].map(HeldValue::Unsigned);
        assert_eq!(rows.values[..4], expected);
        assert_eq!(rows.values[4..], [HeldValue::Absent, HeldValue::Unsigned(21)]);
    }
}
