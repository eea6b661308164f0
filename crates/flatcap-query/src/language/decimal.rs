//! Numbers as users write them in conditions, and exact comparisons of these numbers with integers.

use std::cmp::Ordering;

use flatcap_format::schema::FieldValue;
use flatcap_format::units::Unit;

/// Maximum absolute value of the exponent of 10. Beyond the maximum, each number is 0 or infinite
/// as a 64-bit float.
const EXPONENT_MAX: i32 = 400;

/// A decimal number, which is `mantissa` times 10 to the power of `exponent`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Decimal {
    mantissa: i128,
    exponent: i32,
}

/// A number with which the values of a field are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Threshold {
    Integer(i128),
    Float(f64),
}

impl Decimal {
    /// Parses a number. Returns `None` for a string that is not a number, and for a number with too
    /// many digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let exponent: i32 = exponent.parse().ok()?;
        let places = i32::try_from(fraction.len()).ok()?;
        // The limit keeps the powers of 10 that are computed later small. Without the limit, a
        // number such as 1e999999999 would take minutes and gigabytes to compute.
        let exponent = exponent.checked_sub(places).filter(|all| all.abs() <= EXPONENT_MAX)?;
        Some(Self { mantissa: format!("{whole}{fraction}").parse().ok()?, exponent })
    }

    /// Converts the number from a unit to its base unit. Returns `None` if the result has too many
    /// digits.
    pub(super) fn in_base(self, unit: &Unit) -> Option<Self> {
        let mantissa = self.mantissa.checked_mul(unit.scale.into())?;
        Some(Self { mantissa, exponent: self.exponent - i32::from(unit.decimals) })
    }

    pub(super) fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// Returns the nearest 64-bit float.
    pub(super) fn float(self) -> f64 {
        // The parser of the standard library rounds only one time. A product of floats would round
        // two times, so 0.3 ms would not be equal to 300 us.
        format!("{}e{}", self.mantissa, self.exponent).parse().unwrap_or(f64::NAN)
    }

    /// Converts the number from base units to the unit `unit`.
    pub(super) fn in_unit(self, unit: Option<&Unit>) -> Threshold {
        let (scale, decimals) = unit.map_or((1, 0), |unit| (unit.scale, i32::from(unit.decimals)));
        let exponent = self.exponent + decimals;
        let power = 10_i128.checked_pow(exponent.unsigned_abs());
        let product = |one: i128| power.and_then(|power| one.checked_mul(power));
        let (number, divisor) = if exponent < 0 {
            (Some(self.mantissa), product(scale.into()))
        } else {
            (product(self.mantissa), Some(i128::from(scale)))
        };
        match (number, divisor) {
            // A threshold that is a whole number in the field's unit is compared exactly with
            // integers, even above 2^53.
            (Some(number), Some(divisor)) if number % divisor == 0 => Threshold::Integer(number / divisor),
            #[allow(clippy::cast_precision_loss, reason = "scales are powers of 2 or less than 2^32")]
            _ => Threshold::Float(Self { exponent, ..self }.float() / scale as f64),
        }
    }
}

impl Threshold {
    /// Returns the order of a number relative to the threshold. The comparison is exact if both
    /// numbers are integers. Otherwise, both numbers are compared as 64-bit floats. Returns `None`
    /// for NaN and for values that are not numbers.
    #[allow(clippy::cast_precision_loss, reason = "documented")]
    pub(super) fn order(self, value: FieldValue<'_>) -> Option<Ordering> {
        let float = |number: f64| match self {
            Self::Integer(own) => number.partial_cmp(&(own as f64)),
            Self::Float(own) => number.partial_cmp(&own),
        };
        let integer = |number: i128| match self {
            Self::Integer(own) => Some(number.cmp(&own)),
            Self::Float(_) => float(number as f64),
        };
        match value {
            FieldValue::Unsigned(number) => integer(number.into()),
            FieldValue::Signed(number) => integer(number.into()),
            FieldValue::Float32(number) => float(number.into()),
            FieldValue::Float(number) => float(number),
            FieldValue::Bool(_) | FieldValue::Text(_) | FieldValue::Absent => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that numbers are converted between units exactly, and that integers are compared
    // exactly.
    #[test]
    fn numbers_are_exact() {
        let unit = |name| Unit::of_field(Some(name)).unwrap();
        let number = |text: &str, written| Decimal::parse(text).unwrap().in_base(unit(written)).unwrap();
        for (text, written, own, expected) in [
            ("0.3", "ms", "us", 300),
            ("30", "ms", "jiffies", 3),
            ("1.5", "KiB", "sectors", 3),
            ("1e3", "GiB", "KiB", 1_048_576_000),
            ("-12.5", "%", "m%", -12_500),
            ("9223372036854775807", "ns", "ns", i128::from(i64::MAX)),
        ] {
            let number = number(text, written);
            assert_eq!(number.in_unit(Some(unit(own))), Threshold::Integer(expected), "{text}{written}");
        }
        assert_eq!(number("1", "B").in_unit(Some(unit("KiB"))), Threshold::Float(1.0 / 1024.0));
        assert_eq!(number("0.3", "ms").float().total_cmp(&3e-4), Ordering::Equal);
        let largest = Decimal::parse("18446744073709551614").unwrap().in_unit(None);
        assert_eq!(largest.order(FieldValue::Unsigned(u64::MAX)), Some(Ordering::Greater));
        assert_eq!(largest.order(FieldValue::Unsigned(u64::MAX - 1)), Some(Ordering::Equal));
        for text in ["", ".", "1.2.3", "e5", "1e999", "--1", "12345678901234567890123456789012345678901"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }
}
