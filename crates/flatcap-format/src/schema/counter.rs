//! Decides which fields are counters that have a rate, and computes the change of a counter. All
//! numeric types and all output formats use these functions.

use super::compiled::MetricKind;
use super::value::{ColumnType, FieldValue};

/// Divisor of a counter's value. The quotient is the maximum fall that is treated as a correction.
/// A counter that falls by at most this quotient was corrected and not reset. For example, the
/// kernel's idle and iowait times sometimes fall by a tick.
const CORRECTED_PART: u32 = 100;

/// Maximum time between two samples in which a counter is assumed to wrap at most once, in
/// nanoseconds. For example, the energy counter of a processor package wraps every 60 s at its
/// highest power (Intel SDM, volume 3, section 16.10).
const WRAP_NS: u64 = 60_000_000_000;

/// Returns whether a field has a rate per second. Counters of any numeric type have a rate.
pub fn has_rate(kind: MetricKind, column_type: ColumnType) -> bool {
    let is_number = match column_type {
        ColumnType::Unsigned | ColumnType::Signed | ColumnType::Float32 | ColumnType::Float => true,
        ColumnType::Bool | ColumnType::Text => false,
    };
    kind == MetricKind::Counter && is_number
}

/// The value of a counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CountedValue {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A finite floating-point number.
    Fraction(f64),
}

/// The change of a counter from one sample to a later sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Growth {
    /// The amount of the change. It is below 0 if the counter was corrected.
    pub amount: f64,
    /// The time between the samples, in nanoseconds. 0 if the change is unknown.
    pub elapsed_ns: u64,
}

impl Growth {
    /// An unknown change.
    pub const UNKNOWN: Self = Self { amount: 0.0, elapsed_ns: 0 };

    /// Returns the change from a sample to a later sample, each given as its time and value.
    /// `wraps_at` is the value at which the counter wraps to 0, if that is known. If the samples
    /// are more than a minute apart, a counter that wraps may have wrapped unnoticed, so the change
    /// is unknown.
    pub fn between(
        before: (u64, CountedValue),
        now: (u64, CountedValue),
        wraps_at: Option<CountedValue>,
    ) -> Self {
        let elapsed_ns = now.0.saturating_sub(before.0);
        if wraps_at.is_some() && elapsed_ns > WRAP_NS {
            return Self::UNKNOWN;
        }
        now.1.change_since(before.1, wraps_at).map_or(Self::UNKNOWN, |amount| Self { amount, elapsed_ns })
    }

    /// Returns the sum of two changes. Both the amounts and the times are added. An unknown change
    /// adds nothing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        if !other.is_known() {
            return self;
        }
        let elapsed_ns = self.elapsed_ns.saturating_add(other.elapsed_ns);
        Self { amount: self.amount + other.amount, elapsed_ns }
    }

    /// Returns whether the change is known.
    pub fn is_known(self) -> bool {
        self.elapsed_ns > 0
    }

    /// Returns the change per second, or `None` if the change is not known or the counter fell.
    #[allow(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
    pub fn rate(self) -> Option<f64> {
        (self.elapsed_ns > 0 && self.amount >= 0.0).then(|| self.amount / (self.elapsed_ns as f64 / 1e9))
    }
}

impl CountedValue {
    /// Returns the value of a counter, or `None` if the value is not a number or not finite.
    #[inline]
    pub fn of(value: FieldValue<'_>) -> Option<Self> {
        let fraction = |number: f64| number.is_finite().then_some(Self::Fraction(number));
        match value {
            FieldValue::Unsigned(number) => Some(Self::Unsigned(number)),
            FieldValue::Signed(number) => Some(Self::Signed(number)),
            FieldValue::Float(number) => fraction(number),
            FieldValue::Float32(number) => fraction(number.into()),
            FieldValue::Bool(_) | FieldValue::Text(_) | FieldValue::Absent => None,
        }
    }

    /// Returns the growth of the counter since `before`. The counter may have wrapped once. If the
    /// counter was corrected, returns the correction, which is negative. Returns `None` if the
    /// counter was reset, because then its growth is not known.
    #[allow(clippy::cast_precision_loss, reason = "a difference: 53 bits are plenty")]
    pub(crate) fn change_since(self, before: Self, wraps_at: Option<Self>) -> Option<f64> {
        let change = match (self, before) {
            (Self::Unsigned(now), Self::Unsigned(before)) => {
                let size = now.abs_diff(before) as f64;
                if now >= before { size } else { -size }
            }
            (Self::Signed(now), Self::Signed(before)) => {
                let size = now.abs_diff(before) as f64;
                if now >= before { size } else { -size }
            }
            (Self::Fraction(now), Self::Fraction(before)) => now - before,
            _ => return None,
        };
        if change >= 0.0 {
            return Some(change).filter(|change| change.is_finite());
        }
        if -change <= before.number().abs() / f64::from(CORRECTED_PART) {
            return Some(change);
        }
        let range = wraps_at?;
        let is_within = range.number() >= before.number() && self.number() >= 0.0;
        let rest = is_within.then(|| range.change_since(before, None)).flatten()?;
        Some(rest + self.number())
    }

    #[allow(clippy::cast_precision_loss, reason = "compared only: 53 bits are plenty")]
    fn number(self) -> f64 {
        match self {
            Self::Unsigned(number) => number as f64,
            Self::Signed(number) => number as f64,
            Self::Fraction(number) => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that counters of all numeric types have a rate, and that no other fields have a rate.
    #[test]
    fn counters_that_are_numbers_have_a_rate() {
        let numbers = [ColumnType::Unsigned, ColumnType::Signed, ColumnType::Float32, ColumnType::Float];
        for column_type in numbers {
            assert!(has_rate(MetricKind::Counter, column_type), "{column_type:?}");
            assert!(!has_rate(MetricKind::Gauge, column_type), "{column_type:?}");
        }
        assert!(![ColumnType::Bool, ColumnType::Text].iter().any(|own| has_rate(MetricKind::Counter, *own)));
    }

    // Proves that the change of a counter is exact for numbers above 2^53, for negative numbers and
    // over a wrap. Proves that a reset counter has no change.
    #[test]
    fn changes_are_growth_corrections_and_wraps() {
        use FieldValue::{Float, Float32, Signed, Unsigned};
        for (before, now, wraps_at, change) in [
            (Unsigned(u64::MAX - 7), Unsigned(u64::MAX), None, Some(7.0)),
            (Unsigned((1 << 53) + 1), Unsigned((1 << 53) + 2), None, Some(1.0)),
            (Signed(i64::MIN), Signed(i64::MIN + 5), None, Some(5.0)),
            (Signed(-3), Signed(4), None, Some(7.0)),
            (Float(1.5), Float(2.0), None, Some(0.5)),
            (Float32(1.5), Float32(4.0), None, Some(2.5)),
            (Unsigned(1000), Unsigned(990), None, Some(-10.0)),
            (Unsigned(1000), Unsigned(989), None, None),
            (Unsigned(99), Unsigned(98), None, None),
            (Unsigned(1000), Unsigned(0), None, None),
            (Unsigned(900), Unsigned(50), Some(Unsigned(1000)), Some(150.0)),
            (Unsigned(900), Unsigned(899), Some(Unsigned(1000)), Some(-1.0)),
            (Unsigned(1001), Unsigned(50), Some(Unsigned(1000)), None),
            (Float(0.0), Float(f64::MAX), None, Some(f64::MAX)),
            (Float(-f64::MAX), Float(f64::MAX), None, None),
            (Unsigned(1), Signed(2), None, None),
        ] {
            let of = |value| CountedValue::of(value).unwrap();
            let found = of(now).change_since(of(before), wraps_at.map(of));
            assert_eq!(found, change, "{before:?} {now:?} {wraps_at:?}");
        }
        assert_eq!(CountedValue::of(Float(f64::NAN)), None);
        assert_eq!(CountedValue::of(Float32(f32::INFINITY)), None);
    }
}
