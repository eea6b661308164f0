//! Measures how much fields vary, so that the output can show the most interesting columns first.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use flatcap_format::schema::{FieldValue, MetricKind};
use flatcap_query::{
    ColumnBatch, ColumnInfo, CommonUnit, CounterRates, ElementName, ElementNames, TableInfo,
};

use crate::cli::human;

/// Maximum number of series that are followed. The limit bounds the memory, even if many elements
/// appear and disappear.
const SERIES_MAX: usize = 1 << 18;

/// The statistics of the values of one field. If the field is in a list, the statistics cover one
/// element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Movement {
    pub(super) samples: u64,
    changes: u64,
    last: f64,
    sum: f64,
    pub(super) smallest: f64,
    pub(super) largest: f64,
}

/// Counts how often a string changes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct TextChanges {
    samples: u64,
    changes: u64,
    /// A hash of the last value of the string.
    last: u64,
}

/// The key of a series: a table, a column of the table, and the name of an element if the table is
/// a list.
pub(super) type Series = (usize, usize, Option<ElementName>);

/// The movement of all series of a query.
#[derive(Debug, Default)]
pub(super) struct Movements {
    series: HashMap<Series, Movement>,
    /// Series whose values are not numbers.
    others: HashMap<Series, TextChanges>,
    hasher: RandomState,
    rates: Option<CounterRates>,
}

impl Movement {
    fn new(value: f64) -> Self {
        Self { samples: 1, changes: 0, last: value, sum: value, smallest: value, largest: value }
    }

    fn add(&mut self, value: f64) {
        self.samples += 1;
        self.changes += u64::from((value - self.last).abs() > 0.0);
        self.last = value;
        self.sum += value;
        self.smallest = self.smallest.min(value);
        self.largest = self.largest.max(value);
    }

    #[allow(clippy::cast_precision_loss, reason = "a mean for people")]
    pub(super) fn mean(&self) -> f64 {
        self.sum / self.samples as f64
    }

    /// Returns the smallest, the mean and the largest value in a human-readable form. `is_rate`
    /// states that counters are shown as change per second.
    pub(super) fn texts(&self, info: &ColumnInfo, is_rate: bool) -> [String; 3] {
        let is_counter = info.has_rate();
        let unit = if is_counter && !is_rate {
            CommonUnit::own(info.unit.as_deref(), false)
        } else {
            CommonUnit::of(info.unit.as_deref(), is_counter)
        };
        [self.smallest, self.mean(), self.largest]
            .map(|value| human::quantity(unit.convert(value), &unit.name))
    }

    /// Returns a score from 0 to 1 for how much the values vary. The score is their range relative
    /// to their magnitude, and is lower if the values seldom change.
    #[allow(clippy::cast_precision_loss, reason = "a score")]
    pub(super) fn score(&self) -> f64 {
        let size = self.largest.abs().max(self.smallest.abs());
        if size == 0.0 || !size.is_finite() || self.samples < 2 {
            return 0.0;
        }
        let changes = self.changes as f64 / (self.samples - 1) as f64;
        (self.largest - self.smallest) / (2.0 * size) * changes.sqrt()
    }
}

impl TextChanges {
    fn add(&mut self, hash: u64) {
        self.changes += u64::from(self.samples > 0 && self.last != hash);
        self.samples += 1;
        self.last = hash;
    }

    /// Returns a score from 0 to 1 for how often the string changes. A number that changes as often
    /// between 0 and its maximum has the same score.
    #[allow(clippy::cast_precision_loss, reason = "a score")]
    fn score(self) -> f64 {
        let steps = self.samples.saturating_sub(1).max(1);
        (self.changes as f64 / steps as f64).sqrt() / 2.0
    }
}

impl Movements {
    /// Creates an empty set. If `is_rate` is true, the values of a counter are its changes per
    /// second.
    pub(super) fn new(is_rate: bool) -> Self {
        Self { rates: is_rate.then(CounterRates::default), ..Self::default() }
    }

    /// Begins a run. Counters of one run are not compared with counters of another run.
    pub(super) fn begin_run(&mut self) {
        self.rates.iter_mut().for_each(CounterRates::clear);
    }

    /// Adds the values of a batch to the statistics.
    pub(super) fn add(&mut self, batch: &mut ColumnBatch, table: &TableInfo, names: &ElementNames) {
        if let Some(rates) = &mut self.rates {
            rates.apply(batch, table, names);
        }
        for (number, (column, info)) in batch.columns.iter().zip(&table.columns).enumerate() {
            let is_level = !matches!(info.kind, MetricKind::State | MetricKind::Text);
            for row in 0..batch.rows() {
                let series = (batch.table, number, batch.name(row));
                let is_known = self.series.contains_key(&series) || self.others.contains_key(&series);
                if self.series.len() + self.others.len() >= SERIES_MAX && !is_known {
                    continue;
                }
                // A string is followed even if the schema declares no kind for it.
                if let FieldValue::Text(text) = column.get(row) {
                    let hash = if info.kind == MetricKind::State { 0 } else { self.hasher.hash_one(text) };
                    self.others.entry(series).or_default().add(hash);
                    continue;
                }
                match column.number(row).filter(|_| is_level) {
                    Some(value) => {
                        let movement = self.series.entry(series);
                        movement.and_modify(|own| own.add(value)).or_insert_with(|| Movement::new(value));
                    }
                    None if !is_level => {
                        self.others.entry(series).or_default();
                    }
                    None => {}
                }
            }
        }
    }

    /// Returns all series. The series that vary most come first. Among series with equal scores,
    /// numbers come before strings. After that, the order of the schema applies.
    pub(super) fn ranked(&self) -> Vec<(Series, Option<Movement>)> {
        let numbers =
            self.series.iter().map(|(series, movement)| (*series, Some(*movement), movement.score()));
        let others = self.others.iter().map(|(series, changes)| (*series, None, changes.score()));
        let mut ranked: Vec<_> = numbers.chain(others).collect();
        ranked.sort_by(|(one, first, score), (other, second, other_score)| {
            let texts_last = first.is_none().cmp(&second.is_none());
            other_score.total_cmp(score).then(texts_last).then(one.cmp(other))
        });
        ranked.into_iter().map(|(series, movement, _)| (series, movement)).collect()
    }
}

/// Returns the path of a series without the name of its source.
pub(super) fn series_path(series: Series, tables: &[TableInfo], names: &ElementNames) -> Option<String> {
    let (table, column, element) = series;
    let table = tables.get(table)?;
    let info = table.columns.get(column)?;
    Some(match element {
        Some(element) => table.element_path(info, names.label(element)),
        None => table.path(info),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn movement(values: &[f64]) -> Movement {
        let mut values = values.iter();
        let mut movement = Movement::new(*values.next().unwrap());
        values.for_each(|value| movement.add(*value));
        movement
    }

    // Proves that a string that changes each time has a higher score than a number that varies
    // slightly. Also proves that more changes give a higher score, and that a constant string has
    // no score.
    #[test]
    fn texts_that_change_come_first() {
        let changes = |hashes: &[u64]| {
            let mut changes = TextChanges::default();
            for hash in hashes {
                changes.add(*hash);
            }
            changes.score()
        };
        assert!(changes(&[1, 2, 3]) > movement(&[10.0, 12.0, 11.0]).score());
        assert!(changes(&[1, 1, 1, 2]) < changes(&[1, 2, 1, 2]) && changes(&[1, 1]) == 0.0);
        assert!(changes(&[]) == 0.0 && changes(&[1]) == 0.0);
    }

    // Proves that a series that oscillates has a higher score than a series that drifts or changes
    // only one time, and that a constant series has no score.
    #[test]
    fn what_swings_comes_first() {
        let swings = movement(&[0.0, 90.0, 10.0, 80.0]);
        let once = movement(&[0.0, 0.0, 0.0, 80.0]);
        let drifts = movement(&[1_000.0, 1_001.0, 1_002.0, 1_003.0]);
        let scores = [swings, once, drifts].map(|movement| movement.score());
        assert!(scores.is_sorted_by(|one, next| one > next), "{scores:?}");
        for constant in [movement(&[5.0, 5.0]), movement(&[0.0, 0.0]), movement(&[7.0])] {
            assert!(constant.score() == 0.0, "{constant:?}");
        }
        assert_eq!((swings.mean(), swings.smallest, swings.largest), (45.0, 0.0, 90.0));
    }
}
