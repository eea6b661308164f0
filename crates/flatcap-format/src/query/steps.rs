//! Summarizes values over equal steps of time.

use std::str::FromStr;

use super::held_value::HeldValue;
use crate::schema::{CountedValue, FieldValue};

/// How the values of a step become one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aggregate {
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The mean, each sample with the same weight.
    Mean,
    /// The last.
    Last,
    /// The sum.
    Sum,
    /// The number of samples with a value.
    Count,
    /// The smallest value that at least this share of the values does not exceed: 0.99 for p99.
    Quantile(f64),
}

/// A text that is no aggregate.
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

/// Equal steps of time, and how the values in them become one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// Length of a step, in nanoseconds; not 0.
    pub step_ns: u64,
    /// Of numbers. Without one, counters have their last value, and others their mean.
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
    /// The last value, as it is.
    Last(HeldValue),
    /// The change per second of a counter.
    Rate(RateCell),
}

/// What a column needs of its steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StepKind {
    /// An aggregate of its numbers; its texts have their last value.
    Aggregate(Aggregate),
    /// Its last value.
    Last,
    /// The mean change per second of a counter. A value may be compared with one that is this much
    /// older, in nanoseconds.
    Rate(u64),
}

#[derive(Debug, Clone)]
pub(super) struct NumberCell {
    aggregate: Aggregate,
    count: u64,
    sum: f64,
    smallest: f64,
    largest: f64,
    last: HeldValue,
    /// All values; only for a quantile.
    values: Vec<f64>,
}

#[derive(Debug, Clone)]
pub(super) struct RateCell {
    age_max_ns: u64,
    /// Time and value of the last sample before the step.
    before: Option<(u64, CountedValue)>,
    first: Option<(u64, CountedValue)>,
    last: Option<(u64, CountedValue)>,
    has_decreased: bool,
}

impl StepCell {
    pub(super) fn new(kind: StepKind) -> Self {
        match kind {
            StepKind::Last => Self::Last(HeldValue::Absent),
            StepKind::Rate(age_max_ns) => Self::Rate(RateCell {
                age_max_ns,
                before: None,
                first: None,
                last: None,
                has_decreased: false,
            }),
            StepKind::Aggregate(aggregate) => Self::Numbers(NumberCell {
                aggregate,
                count: 0,
                sum: 0.0,
                smallest: f64::INFINITY,
                largest: f64::NEG_INFINITY,
                last: HeldValue::Absent,
                values: Vec::new(),
            }),
        }
    }

    /// Adds the value of a sample.
    pub(super) fn add(&mut self, mono_ns: u64, value: FieldValue<'_>) {
        match (self, value) {
            (_, FieldValue::Absent) => {}
            (Self::Last(last), value) => last.set(value),
            (Self::Rate(cell), value) => {
                if let Some(count) = CountedValue::of(value) {
                    cell.add(mono_ns, count);
                }
            }
            (Self::Numbers(cell), value) => cell.add(value),
        }
    }

    /// Returns the value of the step, and begins the next one.
    pub(super) fn finish(&mut self) -> HeldValue {
        match self {
            Self::Last(last) => std::mem::take(last),
            Self::Rate(cell) => cell.finish().map_or(HeldValue::Absent, HeldValue::Float),
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
        let number = number(value);
        // What is not a number is no value.
        if number.is_none() && !matches!(value, FieldValue::Text(_)) {
            return;
        }
        self.count += 1;
        self.last.set(value);
        let Some(number) = number else { return };
        self.sum += number;
        self.smallest = self.smallest.min(number);
        self.largest = self.largest.max(number);
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
        // Whole numbers stay whole: the smallest counter value of a step is one of its values.
        let as_is = |number: f64| match last {
            HeldValue::Unsigned(own) if (own as f64).total_cmp(&number).is_eq() => HeldValue::Unsigned(own),
            _ => HeldValue::Float(number),
        };
        match self.aggregate {
            Aggregate::Last | Aggregate::Count => last,
            Aggregate::Min => as_is(self.smallest),
            Aggregate::Max => as_is(self.largest),
            Aggregate::Sum => HeldValue::Float(self.sum),
            Aggregate::Mean => HeldValue::Float(self.sum / self.count as f64),
            Aggregate::Quantile(share) => {
                quantile(&mut self.values, share).map_or(HeldValue::Absent, HeldValue::Float)
            }
        }
    }
}

impl RateCell {
    fn add(&mut self, mono_ns: u64, value: CountedValue) {
        let earlier = self.last.or(self.before);
        self.has_decreased |= earlier.is_some_and(|(_, earlier)| value.growth_since(earlier).is_none());
        self.first.get_or_insert((mono_ns, value));
        self.last = Some((mono_ns, value));
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
    fn finish(&mut self) -> Option<f64> {
        let (end_ns, end) = self.last.take()?;
        let is_recent = |(at_ns, _): &(u64, CountedValue)| end_ns.saturating_sub(*at_ns) <= self.age_max_ns;
        let start = self.before.filter(is_recent).or(self.first);
        let has_decreased = std::mem::take(&mut self.has_decreased);
        self.first = None;
        self.before = Some((end_ns, end));
        let (start_ns, start) = start.filter(|_| !has_decreased)?;
        let elapsed_ns = end_ns.checked_sub(start_ns).filter(|elapsed| *elapsed > 0)?;
        Some(end.growth_since(start)? / (elapsed_ns as f64 / 1e9))
    }
}

#[allow(clippy::cast_precision_loss, reason = "an aggregate: 53 bits are plenty")]
fn number(value: FieldValue<'_>) -> Option<f64> {
    let number = match value {
        FieldValue::Unsigned(number) => number as f64,
        FieldValue::Signed(number) => number as f64,
        FieldValue::Float32(number) => f64::from(number),
        FieldValue::Float(number) => number,
        FieldValue::Bool(value) => f64::from(u8::from(value)),
        FieldValue::Text(_) | FieldValue::Absent => return None,
    };
    Some(number).filter(|number| !number.is_nan())
}

/// Returns the smallest value that at least this share of the values does not exceed.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank among values in memory, clamped to them"
)]
fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    let rank = (share * values.len() as f64).ceil() as usize;
    let at = rank.clamp(1, values.len().max(1)) - 1;
    if at >= values.len() {
        return None;
    }
    let (_, value, _) = values.select_nth_unstable_by(at, f64::total_cmp);
    Some(*value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(kind: StepKind, values: &[u64]) -> HeldValue {
        let mut cell = StepCell::new(kind);
        for (at, value) in values.iter().enumerate() {
            cell.add(at as u64, FieldValue::Unsigned(*value));
        }
        cell.finish()
    }

    // Proves that each aggregate has the value that its name says, and that whole numbers stay
    // whole.
    #[test]
    fn aggregates_are_as_named() {
        let all: Vec<u64> = (1..=100).collect();
        for (name, expected) in [
            ("min", HeldValue::Float(1.0)),
            ("max", HeldValue::Unsigned(100)),
            ("mean", HeldValue::Float(50.5)),
            ("last", HeldValue::Unsigned(100)),
            ("sum", HeldValue::Float(5050.0)),
            ("count", HeldValue::Unsigned(100)),
            ("p99", HeldValue::Float(99.0)),
            ("p50", HeldValue::Float(50.0)),
            ("p0.1", HeldValue::Float(1.0)),
            ("p100", HeldValue::Float(100.0)),
        ] {
            assert_eq!(summary(StepKind::Aggregate(name.parse().unwrap()), &all), expected, "{name}");
        }
        for wrong in ["", "p", "p0", "p101", "median", "px", "pNaN"] {
            assert!(wrong.parse::<Aggregate>().is_err(), "{wrong}");
        }
    }

    // Proves that a step without samples has no value, except for their count, and that a text has
    // its last value under every aggregate.
    #[test]
    fn empty_steps_have_no_value() {
        for name in ["min", "max", "mean", "last", "sum", "p99"] {
            let kind = StepKind::Aggregate(name.parse().unwrap());
            assert_eq!(summary(kind, &[]), HeldValue::Absent, "{name}");
            let mut cell = StepCell::new(kind);
            cell.add(0, FieldValue::Text("a"));
            cell.add(1, FieldValue::Text("b"));
            assert_eq!(cell.finish(), HeldValue::Text("b".into()), "{name}");
            assert_eq!(cell.finish(), HeldValue::Absent, "{name}: the next step is empty");
        }
        assert_eq!(summary(StepKind::Aggregate(Aggregate::Count), &[]), HeldValue::Unsigned(0));
        assert_eq!(summary(StepKind::Last, &[]), HeldValue::Absent);
        assert_eq!(summary(StepKind::Rate(10), &[]), HeldValue::Absent);
    }

    // Proves that what is not a number counts for no aggregate, and that a counter may have
    // fractions.
    #[test]
    fn fractions_are_counted() {
        for (name, expected) in
            [("min", 100.0), ("max", 100.0), ("mean", 100.0), ("sum", 100.0), ("p50", 100.0)]
        {
            let mut cell = StepCell::new(StepKind::Aggregate(name.parse().unwrap()));
            for value in [f64::NAN, 100.0, f64::NAN] {
                cell.add(0, FieldValue::Float(value));
            }
            assert_eq!(cell.finish(), HeldValue::Float(expected), "{name}");
            cell.add(0, FieldValue::Float(f64::NAN));
            assert_eq!(cell.finish(), HeldValue::Absent, "{name}");
        }
        let mut cell = StepCell::new(StepKind::Rate(u64::MAX));
        for (at_ns, value) in [(0, 1.5), (500_000_000, 2.0), (1_000_000_000, 3.0)] {
            cell.add(at_ns, FieldValue::Float(value));
        }
        assert_eq!(cell.finish(), HeldValue::Float(1.5));
    }

    // Proves that the rate of a step is that from the last value before it to its own last value,
    // and that a counter that decreased or that was not seen for too long begins anew.
    #[test]
    fn rates_are_averaged_over_the_step() {
        let second = 1_000_000_000;
        let mut cell = StepCell::new(StepKind::Rate(2 * second));
        let mut step = |samples: &[(u64, u64)]| {
            for (at, value) in samples {
                cell.add(at * second, FieldValue::Unsigned(*value));
            }
            cell.finish()
        };
        assert_eq!(step(&[(1, 10)]), HeldValue::Absent, "the first value has none before it");
        assert_eq!(step(&[(2, 15), (3, 16)]), HeldValue::Float(3.0));
        assert_eq!(step(&[(4, 2)]), HeldValue::Absent, "it decreased");
        assert_eq!(step(&[]), HeldValue::Absent);
        assert_eq!(step(&[(6, 8)]), HeldValue::Float(3.0), "two seconds since the value before");
        assert_eq!(step(&[(9, 100)]), HeldValue::Absent, "three seconds are too long");
        assert_eq!(step(&[(20, 10), (21, 11), (22, 14)]), HeldValue::Absent, "it decreased meanwhile");
        assert_eq!(step(&[(30, 20), (31, 24), (32, 25)]), HeldValue::Float(2.5), "within the step");
    }

    // Proves that steps begin at multiples of their length, before 1970 too.
    #[test]
    fn steps_are_aligned() {
        let steps = Steps { step_ns: 100, aggregate: None };
        assert_eq!([0, 99, 100, -1].map(|at| steps.number(at)), [0, 0, 1, -1]);
        assert_eq!([0, 3, -1].map(|number| steps.begin_ns(number)), [0, 300, -100]);
    }
}
