//! The state of a field's transforms over time, for one list element.

use std::collections::VecDeque;

use flatcap_format::schema::{CountedValue, FieldValue, Growth};
use flatcap_query::language::Transform;

use crate::window::{Fold, FoldedWindow, SortedWindow};

/// A number as it is stored in the payload, so that differences of large counters are exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RawNumber {
    Unknown,
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl RawNumber {
    pub(crate) fn of(value: FieldValue<'_>) -> Self {
        match value {
            FieldValue::Unsigned(number) => Self::Unsigned(number),
            FieldValue::Signed(number) => Self::Signed(number),
            FieldValue::Float32(number) => Self::Float(number.into()),
            FieldValue::Float(number) => Self::Float(number),
            FieldValue::Bool(value) => Self::Unsigned(u64::from(value)),
            FieldValue::Text(_) | FieldValue::Absent => Self::Unknown,
        }
    }

    /// Returns the number, which is NaN if it is unknown.
    #[allow(clippy::cast_precision_loss, reason = "compared with a threshold: 53 bits are plenty")]
    pub(crate) fn float(self) -> f64 {
        match self {
            Self::Unknown => f64::NAN,
            Self::Unsigned(number) => number as f64,
            Self::Signed(number) => number as f64,
            Self::Float(number) => number,
        }
    }

    /// Returns the number as the value of a counter, or `None` if it is unknown or not finite.
    fn counted(self) -> Option<CountedValue> {
        match self {
            Self::Unknown => None,
            Self::Unsigned(number) => Some(CountedValue::Unsigned(number)),
            Self::Signed(number) => Some(CountedValue::Signed(number)),
            Self::Float(number) => CountedValue::of(FieldValue::Float(number)),
        }
    }

    /// Returns the change since an earlier number of a field that is not a counter, or NaN if one
    /// of the numbers is unknown.
    #[allow(clippy::cast_precision_loss, reason = "a difference: 53 bits are plenty")]
    fn change_since(self, before: Self) -> f64 {
        match (self, before) {
            // Integers are subtracted before the conversion to floats, because two floats above
            // 2^53 could be equal although the counters differ.
            (Self::Unsigned(now), Self::Unsigned(before)) if now >= before => (now - before) as f64,
            (Self::Unsigned(now), Self::Unsigned(before)) => -((before - now) as f64),
            (Self::Signed(now), Self::Signed(before)) => (i128::from(now) - i128::from(before)) as f64,
            (now, before) => now.float() - before.float(),
        }
    }
}

/// A transform of a compiled rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stage {
    pub(crate) transform: Transform,
    /// Whether the values belong to a counter. [`Growth`] computes the growth of a counter.
    pub(crate) is_counter: bool,
    /// Maximum number of samples in the transform's window.
    pub(crate) samples_max: usize,
}

/// The state of one transform.
#[derive(Debug, Clone)]
enum StageState {
    /// The samples from which a change is measured, oldest first. Without a window, only the
    /// previous sample is stored.
    Change(VecDeque<(u64, RawNumber)>),
    /// The samples of a counter from which growth is measured, oldest first.
    Growth(VecDeque<CountedSample>),
    Folded(FoldedWindow),
    Sorted(SortedWindow),
    Times(VecDeque<u64>),
    Last(Option<(u64, f64)>),
    Changed(Option<f64>),
}

/// A sample of a counter.
#[derive(Debug, Clone, Copy)]
struct CountedSample {
    mono_ns: u64,
    value: CountedValue,
    /// Growth of the counter up to this sample. Only the difference between two samples has a
    /// meaning.
    grown: f64,
}

/// The state of all transforms of a field, for one element.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    stages: Vec<(StageState, Option<u64>)>, // state, and the time since which there were values
}

impl Series {
    pub(crate) fn new(stages: &[Stage]) -> Self {
        Self { stages: stages.iter().map(|stage| (StageState::new(*stage), None)).collect() }
    }

    /// Adds the value of a sample and returns the result of the transforms, or NaN if the result is
    /// unknown. A counter wraps to 0 when it reaches `wraps_at`.
    #[inline]
    pub(crate) fn push(
        &mut self,
        stages: &[Stage],
        mono_ns: u64,
        raw: RawNumber,
        wraps_at: Option<CountedValue>,
    ) -> f64 {
        let mut value = raw;
        for (stage, (state, since_ns)) in stages.iter().zip(&mut self.stages) {
            value = RawNumber::Float(state.push(*stage, since_ns, (mono_ns, value), wraps_at));
        }
        value.float()
    }
}

impl StageState {
    fn new(stage: Stage) -> Self {
        match stage.transform {
            Transform::Rate(_) | Transform::Delta(_) if stage.is_counter => Self::Growth(VecDeque::new()),
            Transform::Rate(_) | Transform::Delta(_) => Self::Change(VecDeque::new()),
            Transform::Average(_) | Transform::Sum(_) => Self::Folded(FoldedWindow::new(Fold::Sum)),
            Transform::Largest(_) => Self::Folded(FoldedWindow::new(Fold::Largest)),
            Transform::Smallest(_) => Self::Folded(FoldedWindow::new(Fold::Smallest)),
            Transform::Quantile(..) => Self::Sorted(SortedWindow::default()),
            Transform::Count(_) => Self::Times(VecDeque::new()),
            Transform::Last(_) => Self::Last(None),
            Transform::Changed => Self::Changed(None),
        }
    }

    fn push(
        &mut self,
        stage: Stage,
        since_ns: &mut Option<u64>,
        (mono_ns, raw): (u64, RawNumber),
        wraps_at: Option<CountedValue>,
    ) -> f64 {
        let value = raw.float();
        let window_ns = stage.transform.window_ns().unwrap_or(0);
        // `Times` and `Last` have results for absent values, and a counter continues to grow while
        // its value is absent. All other transforms restart.
        let bears_unknown = matches!(self, Self::Times(_) | Self::Last(_) | Self::Growth(_));
        if value.is_nan() && !bears_unknown {
            *self = Self::new(stage);
            *since_ns = None;
            return f64::NAN;
        }
        // The observation must span the whole window. Otherwise the result would describe a shorter
        // time than the user wrote.
        let is_filled = mono_ns - *since_ns.get_or_insert(mono_ns) >= window_ns;
        let start_ns = mono_ns.saturating_sub(window_ns);
        let (result, held) = match self {
            Self::Change(samples) => (change(samples, stage, mono_ns, raw), samples.len()),
            Self::Growth(samples) => {
                let result = raw.counted().map(|value| growth(samples, stage, (mono_ns, value), wraps_at));
                (result.unwrap_or(f64::NAN), samples.len())
            }
            Self::Folded(window) => {
                window.push(mono_ns, value);
                window.remove_until(start_ns);
                (folded(window, stage.transform), window.len())
            }
            Self::Sorted(window) => {
                window.push(mono_ns, value);
                window.remove_until(start_ns);
                let share = if let Transform::Quantile(share, _) = stage.transform { share } else { 0.0 };
                (window.quantile(share).unwrap_or(f64::NAN), window.len())
            }
            Self::Times(times) => {
                if !value.is_nan() {
                    times.push_back(mono_ns);
                }
                while times.front().is_some_and(|time| *time <= start_ns) {
                    times.pop_front();
                }
                #[allow(clippy::cast_precision_loss, reason = "bounded by the samples of a window")]
                (times.len() as f64, times.len())
            }
            Self::Last(last) => {
                if !value.is_nan() {
                    *last = Some((mono_ns, value));
                }
                // A single value is enough for `:last`, so the window need not be filled.
                return last.filter(|(time, _)| *time >= start_ns).map_or(f64::NAN, |(_, value)| value);
            }
            Self::Changed(before) => {
                let before = before.replace(value);
                return before.map_or(f64::NAN, |before| f64::from(before.total_cmp(&value).is_ne()));
            }
        };
        if held > stage.samples_max {
            // Samples arrive faster than the period of the source allows, so the limit is too small
            // for the window. The transform restarts.
            *self = Self::new(stage);
            *since_ns = None;
            return f64::NAN;
        }
        if is_filled { result } else { f64::NAN }
    }
}

/// Returns the change of a number that is not a counter. The change is measured over the window.
/// Without a window, it is measured from the previous sample.
fn change(samples: &mut VecDeque<(u64, RawNumber)>, stage: Stage, mono_ns: u64, raw: RawNumber) -> f64 {
    let start_ns = start_ns(stage, mono_ns);
    // Keep the latest sample at or before the start of the window, and all later samples.
    while samples.get(1).is_some_and(|(time, _)| start_ns.is_some_and(|start| *time <= start)) {
        samples.pop_front();
    }
    let first = samples.front().copied();
    // A second sample with the same time replaces the first sample.
    if samples.back().is_some_and(|(time, _)| *time == mono_ns) {
        samples.pop_back();
    }
    samples.push_back((mono_ns, raw));
    let Some((time, before)) = first.filter(|(time, _)| start_ns.is_some_and(|start| *time <= start)) else {
        return f64::NAN;
    };
    per_second(stage, raw.change_since(before), mono_ns - time)
}

/// Returns the growth of a counter over the window, or since the previous sample if there is no
/// window. The result is the sum of the growth between successive samples, so wraps and corrections
/// are taken into account. The sum restarts after a reset.
fn growth(
    samples: &mut VecDeque<CountedSample>,
    stage: Stage,
    (mono_ns, value): (u64, CountedValue),
    wraps_at: Option<CountedValue>,
) -> f64 {
    const GROWN_MAX: f64 = 1e15;
    let start_ns = start_ns(stage, mono_ns);
    while samples.get(1).is_some_and(|sample| start_ns.is_some_and(|start| sample.mono_ns <= start)) {
        samples.pop_front();
    }
    // A second sample with the same time replaces the first sample.
    if samples.back().is_some_and(|last| last.mono_ns == mono_ns) {
        samples.pop_back();
    }
    // Larger sums would lose integer precision.
    if samples.back().is_some_and(|last| last.grown.abs() > GROWN_MAX) {
        let begin = samples.front().map_or(0.0, |first| first.grown);
        for sample in samples.iter_mut() {
            sample.grown -= begin;
        }
    }
    let last = samples.back().copied();
    let own = last.map(|last| Growth::between((last.mono_ns, last.value), (mono_ns, value), wraps_at));
    // The growth across a reset is unknown, so no sample before the reset can be a base.
    if own.is_some_and(|own| !own.is_known()) {
        samples.clear();
    }
    let before = samples.back().map_or(0.0, |last| last.grown);
    let grown = before + own.filter(|own| own.is_known()).map_or(0.0, |own| own.amount);
    samples.push_back(CountedSample { mono_ns, value, grown });
    let Some(first) = samples.front().copied() else { return f64::NAN };
    if start_ns.is_none_or(|start| first.mono_ns > start) {
        return f64::NAN;
    }
    let change = grown - first.grown;
    // The growth is unknown if the corrections are larger than the growth.
    if change < 0.0 { f64::NAN } else { per_second(stage, change, mono_ns - first.mono_ns) }
}

/// Returns the time at which the window begins. A sample at or before this time is before the
/// window. Without a window, returns the latest time before `mono_ns`.
fn start_ns(stage: Stage, mono_ns: u64) -> Option<u64> {
    mono_ns.checked_sub(stage.transform.window_ns().unwrap_or(1))
}

#[allow(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
fn per_second(stage: Stage, change: f64, elapsed_ns: u64) -> f64 {
    if matches!(stage.transform, Transform::Rate(_)) { change / (elapsed_ns as f64 / 1e9) } else { change }
}

fn folded(window: &FoldedWindow, transform: Transform) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "bounded by the samples of a window")]
    match transform {
        Transform::Average(_) => window.aggregate() / window.len() as f64,
        _ => window.aggregate(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn stage(transform: Transform) -> Stage {
        Stage { transform, is_counter: true, samples_max: 100 }
    }

    /// Passes values of a counter to some transforms, one value per millisecond.
    fn results(transforms: &[Transform], values: &[Option<u64>]) -> Vec<Option<f64>> {
        let stages: Vec<Stage> = transforms.iter().copied().map(stage).collect();
        let mut series = Series::new(&stages);
        let times = (1..).map(|number| number * MS);
        let pushed = times.zip(values).map(|(time, value)| {
            let raw = value.map_or(RawNumber::Unknown, RawNumber::Unsigned);
            Some(series.push(&stages, time, raw, None)).filter(|value| !value.is_nan())
        });
        pushed.collect()
    }

    // Proves that rates and changes cover the time since the previous sample, or a window, and that
    // they are unknown after a reset. Also proves that a counter grows while a value is absent.
    #[test]
    fn changes_of_counters() {
        let some = |values: &[u64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        let values = some(&[10, 10, 13, 5, 6]);
        assert_eq!(
            results(&[Transform::Delta(None)], &values),
            [None, Some(0.0), Some(3.0), None, Some(1.0)]
        );
        assert_eq!(
            results(&[Transform::Rate(None)], &values),
            [None, Some(0.0), Some(3000.0), None, Some(1000.0)]
        );
        let values = some(&[0, 1, 2, 4, 8, 3, 4, 5]);
        assert_eq!(
            results(&[Transform::Delta(Some(2 * MS))], &values),
            [None, None, Some(2.0), Some(3.0), Some(6.0), None, None, Some(2.0)]
        );
        let huge = some(&[u64::MAX - 3, u64::MAX - 2]);
        assert_eq!(results(&[Transform::Delta(None)], &huge), [None, Some(1.0)]);
        let values = [Some(1), None, Some(3), Some(4)];
        assert_eq!(results(&[Transform::Delta(None)], &values), [None, None, Some(2.0), Some(1.0)]);
    }

    // Proves that the result for a window is unknown until the window is filled, and again after an
    // unknown value. Also proves that transforms can be chained, and that `count` and `last` accept
    // absent values.
    #[test]
    fn windows_are_filled_before_they_say_something() {
        let values = [Some(1), Some(2), Some(6), Some(4), None, Some(9), Some(9), Some(12)];
        let window = 2 * MS;
        assert_eq!(
            results(&[Transform::Average(window)], &values),
            [None, None, Some(4.0), Some(5.0), None, None, None, Some(10.5)]
        );
        assert_eq!(results(&[Transform::Largest(window)], &values)[2..5], [Some(6.0), Some(6.0), None]);
        assert_eq!(results(&[Transform::Quantile(0.5, window)], &values)[2], Some(2.0));
        assert_eq!(
            results(&[Transform::Delta(None), Transform::Largest(window)], &[1, 2, 6, 7].map(Some)),
            [None, None, None, Some(4.0)]
        );
        assert_eq!(
            results(&[Transform::Count(window)], &values)[2..6],
            [2, 2, 1, 1].map(|n| Some(f64::from(n)))
        );
        assert_eq!(results(&[Transform::Last(window)], &values)[3..6], [Some(4.0), Some(4.0), Some(9.0)]);
        assert_eq!(results(&[Transform::Changed], &values)[..3], [None, Some(1.0), Some(1.0)]);
    }

    // Proves that a window restarts if it gets more samples than its limit.
    #[test]
    fn windows_are_bounded() {
        let bounded = [Stage { samples_max: 3, ..stage(Transform::Sum(100 * MS)) }];
        let mut series = Series::new(&bounded);
        for time in 0..1000 {
            assert!(series.push(&bounded, time * MS, RawNumber::Unsigned(1), None).is_nan());
            let (StageState::Folded(window), _) = &series.stages[0] else { panic!("a fold") };
            assert!(window.len() <= 3);
        }
    }
}
