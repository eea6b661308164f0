//! Successive samples without holes between them. Such samples are summarized together, which is
//! several times faster than summarizing them one by one.

use std::ops::Range;

use crate::columns::batch::BatchTimes;
use crate::columns::column::{ColumnValues, ValueColumn};

/// Number of values that are compared at the same time.
// This is the number of values that fit in the registers of a processor.
const LANES: usize = 8;

/// The times of successive samples of a source. The times ascend, and there is no hole between two
/// successive times.
#[derive(Debug, Clone, Copy)]
pub(super) struct WholeTimes<'b> {
    pub(super) mono_ns: &'b [u64],
    pub(super) wall_ns: &'b [i64],
}

impl<'b> WholeTimes<'b> {
    /// Returns the times of some samples of a batch. Returns `None` if there are fewer than two
    /// samples, if the time between two successive samples is longer than `longest_ns`, or if a
    /// clock was set back.
    pub(super) fn of(times: &'b BatchTimes, samples: Range<usize>, longest_ns: u64) -> Option<Self> {
        let mono_ns = times.mono_ns.get(samples.clone()).filter(|mono_ns| mono_ns.len() > 1)?;
        let wall_ns = times.wall_ns.get(samples)?;
        // The loop has no early exit, because with an early exit the compiler could not compare
        // several values at a time.
        let is_near = pairs(mono_ns).fold(true, |is_near, (before, now)| {
            is_near && now > before && now.wrapping_sub(*before) <= longest_ns
        });
        let is_rising = pairs(wall_ns).fold(true, |is_rising, (before, now)| is_rising && now >= before);
        (is_near && is_rising).then_some(Self { mono_ns, wall_ns })
    }

    /// Returns the values of all samples except the first one. Returns `None` if a value is missing
    /// or NaN, or if the values are neither integers nor 64-bit floats.
    #[allow(clippy::cast_precision_loss, reason = "integers are drawn as the nearest float")]
    pub(super) fn values_after_first(&self, column: &ValueColumn, rows: Range<usize>) -> Option<Vec<f64>> {
        if !column.valid.are_all() {
            return None;
        }
        let after = rows.start + 1..rows.end;
        let values: Vec<f64> = match &column.values {
            ColumnValues::Unsigned(values) => values.get(after)?.iter().map(|value| *value as f64).collect(),
            ColumnValues::Signed(values) => values.get(after)?.iter().map(|value| *value as f64).collect(),
            ColumnValues::Float(values) => values.get(after)?.to_vec(),
            ColumnValues::Float32(_) | ColumnValues::Bool(_) | ColumnValues::Text(_) => return None,
        };
        let has_nan = values.iter().any(|value| value.is_nan());
        (!has_nan && values.len() + 1 == self.mono_ns.len()).then_some(values)
    }

    /// Returns the change per second of a counter at each sample after the first. Returns `None` if
    /// the counter decreases. Also returns `None` if the counter is a float, because the change of
    /// a float may be NaN.
    #[allow(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
    pub(super) fn rates_after_first(&self, column: &ValueColumn, rows: Range<usize>) -> Option<Vec<f64>> {
        let ColumnValues::Unsigned(values) = &column.values else { return None };
        let counts = values.get(rows).filter(|_| column.valid.are_all())?;
        // The loop has no early exit, for the same reason as the comparison of times above.
        let has_decreased =
            pairs(counts).fold(false, |has_decreased, (before, now)| has_decreased || now < before);
        if has_decreased || counts.len() != self.mono_ns.len() {
            return None;
        }
        let steps = pairs(counts).zip(pairs(self.mono_ns));
        let rate = |((before, now), (before_ns, now_ns)): ((&u64, &u64), (&u64, &u64))| {
            (now - before) as f64 / ((now_ns - before_ns) as f64 / 1e9)
        };
        Some(steps.map(rate).collect())
    }
}

/// Returns all pairs of successive values.
fn pairs<T>(values: &[T]) -> impl Iterator<Item = (&T, &T)> {
    values.iter().zip(values.get(1..).unwrap_or_default())
}

/// Returns the smallest and the largest of the values. None of the values may be NaN.
pub(super) fn extrema(values: &[f64]) -> (f64, f64) {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (mut min, mut max) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
    // Unlike `f64::min`, which handles NaN, this comparison is one instruction for several values.
    let smaller = |one: f64, other: f64| if other < one { other } else { one };
    let larger = |one: f64, other: f64| if other > one { other } else { one };
    for chunk in chunks {
        for ((min, max), value) in min.iter_mut().zip(&mut max).zip(chunk) {
            (*min, *max) = (smaller(*min, *value), larger(*max, *value));
        }
    }
    let min = min.iter().chain(rest).copied().fold(f64::INFINITY, smaller);
    let max = max.iter().chain(rest).copied().fold(f64::NEG_INFINITY, larger);
    (min, max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Proves that fewer than two samples, samples with a hole, and samples during which a clock was
    // set back are rejected.
    #[test]
    fn times_are_whole_or_none() {
        let times = BatchTimes {
            mono_ns: vec![0, 10, 20, 40, 50, 50],
            wall_ns: vec![0, 10, 20, 40, 30, 30],
            ..BatchTimes::default()
        };
        for (samples, is_whole) in [
            (0..0, false),
            (1..2, false),
            (0..3, true),
            (2..4, false),
            (3..5, false),
            (4..6, false),
            (4..7, false),
        ] {
            assert_eq!(WholeTimes::of(&times, samples.clone(), 10).is_some(), is_whole, "{samples:?}");
        }
    }

    proptest! {
        // Proves that the smallest and the largest value are correct for any number of values.
        #[test]
        fn extrema_are_of_all_values(values in proptest::collection::vec(-1e9..1e9, 1..100)) {
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert_eq!(extrema(&values), (min, max));
        }
    }
}
