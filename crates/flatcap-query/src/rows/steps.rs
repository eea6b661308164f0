//! Downsamples values, that is, summarizes the values in equal steps of time.

use std::cmp::Ordering;
use std::str::FromStr;

use flatcap_format::schema::{FieldValue, Growth};

use super::held_value::HeldValue;
use crate::quantile::quantile_rank;

/// The function that summarizes the values of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aggregate {
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The mean of the values. Each sample has the same weight.
    Mean,
    /// The last value.
    Last,
    /// The sum of the values.
    Sum,
    /// The number of samples that have a value.
    Count,
    /// A quantile, which is the smallest value such that at least a given share of all values is
    /// less than or equal to it. The share is 0.99 for p99.
    Quantile(f64),
}

/// The error for a string that is not an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such aggregate; use min, max, mean, last, sum, count, or p50 to p99.9")]
pub struct AggregateError;

impl FromStr for Aggregate {
    type Err = AggregateError;

    fn from_str(text: &str) -> Result<Self, AggregateError> {
        Ok(match text {
            "min" => Self::Min,
            "max" => Self::Max,
            "mean" => Self::Mean,
            "last" => Self::Last,
            "sum" => Self::Sum,
            "count" => Self::Count,
            _ => {
                let percent = text.strip_prefix('p').and_then(|digits| digits.parse::<f64>().ok());
                let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
                Self::Quantile(percent.ok_or(AggregateError)? / 100.0)
            }
        })
    }
}

/// Equal steps of time, and the function that summarizes the values in each step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// Length of a step, in nanoseconds. It is above 0.
    pub step_ns: u64,
    /// The aggregate for numbers. The mean is the default for gauges, for fields without a metric
    /// kind, and for rates of counters. For all other fields, the default is the last value.
    pub aggregate: Option<Aggregate>,
}

impl Steps {
    /// Returns the number of the step that contains a wall time.
    pub(super) fn number(&self, wall_ns: i64) -> i64 {
        wall_ns.div_euclid(i64::try_from(self.step_ns.max(1)).unwrap_or(i64::MAX))
    }

    /// Returns the wall time at which a step begins.
    pub(super) fn begin_ns(&self, number: i64) -> i64 {
        number.saturating_mul(i64::try_from(self.step_ns.max(1)).unwrap_or(i64::MAX))
    }
}

/// The summary of the values of one column in the current step.
#[derive(Debug, Clone)]
pub(super) enum StepCell {
    /// An aggregate of numbers.
    Numbers(NumberCell),
    /// The last value, unchanged.
    Last(HeldValue),
    /// The change per second of a counter.
    Rate(RateCell),
}

/// The kind of summary that a column needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StepKind {
    /// An aggregate of the column's numbers. For strings, the last value is used.
    Aggregate(Aggregate),
    /// The last value.
    Last,
    /// The mean change per second of a counter. The integer is the maximum age of the earlier value
    /// from which the change is computed, in nanoseconds.
    Rate(u64),
}

#[derive(Debug, Clone)]
pub(super) struct NumberCell {
    aggregate: Aggregate,
    count: u64,
    sum: NumberSum,
    smallest: Option<Number>,
    largest: Option<Number>,
    last: HeldValue,
    /// All values. The individual values are stored only for a quantile.
    values: Vec<Number>,
}

/// A number in the type of its field.
#[derive(Debug, Clone, Copy, PartialEq)]
// Integers are not converted to floats, because integers beyond 2^53 would then not be exact.
enum Number {
    Unsigned(u64),
    Signed(i64),
    Float32(f32),
    Float(f64),
}

/// A sum of numbers.
#[derive(Debug, Clone, Copy)]
enum NumberSum {
    /// An exact sum.
    // This type can hold the sum of 2^64 integers of 64 bits.
    Integers(i128),
    Floats(f64),
}

#[derive(Debug, Clone)]
pub(super) struct RateCell {
    age_max_ns: u64,
    /// The growth of the counter since the previous sample, summed over the samples in the step.
    sum: Growth,
}

impl StepCell {
    pub(super) fn new(kind: StepKind) -> Self {
        match kind {
            StepKind::Last => Self::Last(HeldValue::Absent),
            StepKind::Rate(age_max_ns) => Self::Rate(RateCell { age_max_ns, sum: Growth::UNKNOWN }),
            StepKind::Aggregate(aggregate) => Self::Numbers(NumberCell {
                aggregate,
                count: 0,
                sum: NumberSum::Integers(0),
                smallest: None,
                largest: None,
                last: HeldValue::Absent,
                values: Vec::new(),
            }),
        }
    }

    /// Adds the value of a sample. For the rate of a counter, [`RateCell::add`] adds the growth.
    pub(super) fn add(&mut self, value: FieldValue<'_>) {
        match (self, value) {
            (_, FieldValue::Absent) | (Self::Rate(_), _) => {}
            (Self::Last(last), value) if is_value(value) => last.set(value),
            (Self::Last(_), _) => {}
            (Self::Numbers(cell), value) => cell.add(value),
        }
    }

    /// Returns the value of the step, and begins the next step.
    pub(super) fn finish(&mut self) -> HeldValue {
        match self {
            Self::Last(last) => std::mem::take(last),
            Self::Rate(cell) => {
                let sum = std::mem::replace(&mut cell.sum, Growth::UNKNOWN);
                sum.rate().map_or(HeldValue::Absent, HeldValue::Float)
            }
            Self::Numbers(cell) => {
                let fresh = Self::new(StepKind::Aggregate(cell.aggregate));
                let value = cell.value();
                *self = fresh;
                value
            }
        }
    }
}

impl NumberCell {
    fn add(&mut self, value: FieldValue<'_>) {
        if !is_value(value) {
            return;
        }
        let number = Number::of(value);
        self.count += 1;
        self.last.set(value);
        let Some(number) = number else { return };
        self.sum.add(number);
        if self.smallest.is_none_or(|smallest| number.order(smallest).is_lt()) {
            self.smallest = Some(number);
        }
        if self.largest.is_none_or(|largest| number.order(largest).is_gt()) {
            self.largest = Some(number);
        }
        if matches!(self.aggregate, Aggregate::Quantile(_)) {
            self.values.push(number);
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a mean: 53 bits are plenty")]
    fn value(&mut self) -> HeldValue {
        let last = std::mem::take(&mut self.last);
        if self.aggregate == Aggregate::Count {
            return HeldValue::Unsigned(self.count);
        }
        if self.count == 0 || matches!(last, HeldValue::Text(_)) {
            return last;
        }
        let held = |number: Option<Number>| number.map_or(HeldValue::Absent, Number::held);
        match self.aggregate {
            Aggregate::Last | Aggregate::Count => last,
            Aggregate::Min => held(self.smallest),
            Aggregate::Max => held(self.largest),
            Aggregate::Sum => self.sum.held(&last),
            Aggregate::Mean => HeldValue::Float(self.sum.float() / self.count as f64),
            Aggregate::Quantile(share) => held(quantile(&mut self.values, share)),
        }
    }
}

impl RateCell {
    /// Adds the growth of the counter since the previous sample.
    pub(super) fn add(&mut self, growth: Growth) {
        // If the interval of the growth is too long, the growth is not representative of this step.
        if growth.elapsed_ns <= self.age_max_ns {
            self.sum = self.sum.plus(growth);
        }
    }
}

impl Number {
    /// Returns a value as a number, or `None` if the value is a string, NaN or absent.
    fn of(value: FieldValue<'_>) -> Option<Self> {
        match value {
            FieldValue::Unsigned(number) => Some(Self::Unsigned(number)),
            FieldValue::Signed(number) => Some(Self::Signed(number)),
            FieldValue::Float32(number) => (!number.is_nan()).then_some(Self::Float32(number)),
            FieldValue::Float(number) => (!number.is_nan()).then_some(Self::Float(number)),
            FieldValue::Bool(value) => Some(Self::Float(f64::from(u8::from(value)))),
            FieldValue::Text(_) | FieldValue::Absent => None,
        }
    }

    fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Unsigned(own), Self::Unsigned(other)) => own.cmp(&other),
            (Self::Signed(own), Self::Signed(other)) => own.cmp(&other),
            // Both numbers are floats here, because a field has one type in a run.
            _ => self.float().total_cmp(&other.float()),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "for means and fields that change their type")]
    fn float(self) -> f64 {
        match self {
            Self::Unsigned(number) => number as f64,
            Self::Signed(number) => number as f64,
            Self::Float32(number) => number.into(),
            Self::Float(number) => number,
        }
    }

    fn held(self) -> HeldValue {
        match self {
            Self::Unsigned(number) => HeldValue::Unsigned(number),
            Self::Signed(number) => HeldValue::Signed(number),
            Self::Float32(number) => HeldValue::Float32(number),
            Self::Float(number) => HeldValue::Float(number),
        }
    }
}

impl NumberSum {
    fn add(&mut self, number: Number) {
        *self = match (*self, number) {
            (Self::Integers(sum), Number::Unsigned(number)) => Self::Integers(sum + i128::from(number)),
            (Self::Integers(sum), Number::Signed(number)) => Self::Integers(sum + i128::from(number)),
            (sum, number) => Self::Floats(sum.float() + number.float()),
        };
    }

    #[allow(clippy::cast_precision_loss, reason = "for means and fields that change their type")]
    fn float(self) -> f64 {
        match self {
            Self::Integers(sum) => sum as f64,
            Self::Floats(sum) => sum,
        }
    }

    /// Returns the sum in the type of `last`, or absent if the sum does not fit in that type.
    fn held(self, last: &HeldValue) -> HeldValue {
        match (self, last) {
            (Self::Integers(sum), HeldValue::Signed(_)) => {
                i64::try_from(sum).map_or(HeldValue::Absent, HeldValue::Signed)
            }
            (Self::Integers(sum), _) => u64::try_from(sum).map_or(HeldValue::Absent, HeldValue::Unsigned),
            (Self::Floats(sum), _) => HeldValue::Float(sum),
        }
    }
}

/// Returns whether there is a value. NaN does not count as a value.
fn is_value(value: FieldValue<'_>) -> bool {
    matches!(value, FieldValue::Text(_)) || Number::of(value).is_some()
}

/// Returns the quantile, which is the smallest value such that at least this share of all values is
/// less than or equal to it.
fn quantile(values: &mut [Number], share: f64) -> Option<Number> {
    let at = quantile_rank(share, values.len()) - 1;
    if at >= values.len() {
        return None;
    }
    // Only one rank is needed, so the values need not be sorted completely.
    let (_, value, _) = values.select_nth_unstable_by(at, |own, other| own.order(*other));
    Some(*value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(kind: StepKind, values: &[u64]) -> HeldValue {
        let mut cell = StepCell::new(kind);
        for value in values {
            cell.add(FieldValue::Unsigned(*value));
        }
        cell.finish()
    }

    // Proves that each aggregate has the value that its name states, and that the aggregates of
    // integers are integers.
    #[test]
    fn aggregates_are_as_named() {
        let all: Vec<u64> = (1..=100).collect();
        for (name, expected) in [
            ("min", HeldValue::Unsigned(1)),
            ("max", HeldValue::Unsigned(100)),
            ("mean", HeldValue::Float(50.5)),
            ("last", HeldValue::Unsigned(100)),
            ("sum", HeldValue::Unsigned(5050)),
            ("count", HeldValue::Unsigned(100)),
            ("p99", HeldValue::Unsigned(99)),
            ("p50", HeldValue::Unsigned(50)),
            ("p0.1", HeldValue::Unsigned(1)),
            ("p100", HeldValue::Unsigned(100)),
        ] {
            assert_eq!(summary(StepKind::Aggregate(name.parse().unwrap()), &all), expected, "{name}");
        }
        for wrong in ["", "p", "p0", "p101", "median", "px", "pNaN"] {
            assert!(wrong.parse::<Aggregate>().is_err(), "{wrong}");
        }
    }

    // Proves that a step without samples has no value, except for the count of its samples. Also
    // proves that every aggregate of strings is the last string.
    #[test]
    fn empty_steps_have_no_value() {
        for name in ["min", "max", "mean", "last", "sum", "p99"] {
            let kind = StepKind::Aggregate(name.parse().unwrap());
            assert_eq!(summary(kind, &[]), HeldValue::Absent, "{name}");
            let mut cell = StepCell::new(kind);
            cell.add(FieldValue::Text("a"));
            cell.add(FieldValue::Text("b"));
            assert_eq!(cell.finish(), HeldValue::Text("b".into()), "{name}");
            assert_eq!(cell.finish(), HeldValue::Absent, "{name}: the next step is empty");
        }
        assert_eq!(summary(StepKind::Aggregate(Aggregate::Count), &[]), HeldValue::Unsigned(0));
        assert_eq!(summary(StepKind::Last, &[]), HeldValue::Absent);
        assert_eq!(summary(StepKind::Rate(10), &[]), HeldValue::Absent);
    }

    // Proves that NaN is ignored by all aggregates, and that a counter may have fractions.
    #[test]
    fn fractions_are_counted() {
        for (name, expected) in
            [("min", 100.0), ("max", 100.0), ("mean", 100.0), ("sum", 100.0), ("p50", 100.0)]
        {
            let mut cell = StepCell::new(StepKind::Aggregate(name.parse().unwrap()));
            for value in [f64::NAN, 100.0, f64::NAN] {
                cell.add(FieldValue::Float(value));
            }
            assert_eq!(cell.finish(), HeldValue::Float(expected), "{name}");
            cell.add(FieldValue::Float(f64::NAN));
            assert_eq!(cell.finish(), HeldValue::Absent, "{name}");
        }
    }

    // Proves that the rate of a step is the sum of the growth in its intervals, divided by the
    // total length of these intervals. A decrease that is a correction is included. Intervals with
    // a reset and intervals that are too long are excluded.
    #[test]
    fn rates_are_the_growth_of_a_step() {
        let second = 1_000_000_000;
        let mut cell = StepCell::new(StepKind::Rate(2 * second));
        let mut step = |intervals: &[(f64, u64)]| {
            for (amount, seconds) in intervals {
                let StepCell::Rate(cell) = &mut cell else { panic!("{cell:?}") };
                cell.add(Growth { amount: *amount, elapsed_ns: seconds * second });
            }
            cell.finish()
        };
        assert_eq!(step(&[]), HeldValue::Absent);
        assert_eq!(step(&[(0.0, 0)]), HeldValue::Absent, "no interval");
        assert_eq!(step(&[(5.0, 1), (1.0, 1)]), HeldValue::Float(3.0));
        assert_eq!(step(&[(5.0, 1), (0.0, 0), (1.0, 1)]), HeldValue::Float(3.0), "it was reset");
        assert_eq!(step(&[(5.0, 1), (-1.0, 1)]), HeldValue::Float(2.0), "it was corrected");
        assert_eq!(step(&[(-1.0, 1)]), HeldValue::Absent, "it fell");
        assert_eq!(step(&[(8.0, 2), (100.0, 3)]), HeldValue::Float(4.0), "three seconds are too long");
    }

    // Proves that integers beyond 2^53 are exact and remain integers, and that 32-bit floats remain
    // 32-bit floats. A sum that does not fit is absent.
    #[test]
    fn integers_are_exact() {
        let big = (1_u64 << 63) + 1;
        let of = |name: &str, values: &[FieldValue<'_>]| {
            let mut cell = StepCell::new(StepKind::Aggregate(name.parse().unwrap()));
            for value in values {
                cell.add(*value);
            }
            cell.finish()
        };
        let unsigned = [(1 << 53) + 1, 1 << 53, big, big - 1].map(FieldValue::Unsigned);
        for (name, expected) in
            [("max", big), ("min", 1 << 53), ("p50", (1 << 53) + 1), ("p75", big - 1), ("last", big - 1)]
        {
            assert_eq!(of(name, &unsigned), HeldValue::Unsigned(expected), "{name}");
        }
        assert_eq!(of("sum", &unsigned), HeldValue::Absent);
        assert_eq!(of("sum", &unsigned[..3]), HeldValue::Unsigned(big + (1 << 54) + 1));
        let signed = [i64::MIN + 1, i64::MIN, 3].map(FieldValue::Signed);
        for (name, expected) in [("max", 3), ("min", i64::MIN), ("p50", i64::MIN + 1)] {
            assert_eq!(of(name, &signed), HeldValue::Signed(expected), "{name}");
        }
        assert_eq!(of("sum", &signed[1..]), HeldValue::Signed(i64::MIN + 3));
        assert_eq!(of("sum", &signed), HeldValue::Absent);
        let floats = [0.1, 0.3].map(FieldValue::Float32);
        assert_eq!(of("max", &floats), HeldValue::Float32(0.3));
        assert_eq!(of("p50", &floats), HeldValue::Float32(0.1));
    }

    // Proves that steps begin at multiples of their length, even before 1970.
    #[test]
    fn steps_are_aligned() {
        let steps = Steps { step_ns: 100, aggregate: None };
        assert_eq!([0, 99, 100, -1].map(|at| steps.number(at)), [0, 0, 1, -1]);
        assert_eq!([0, 3, -1].map(|number| steps.begin_ns(number)), [0, 300, -100]);
    }
}
