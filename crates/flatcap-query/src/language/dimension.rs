//! Dimensions of values. Dimensions determine which values can be compared, and how values are
//! printed.

use std::fmt::{self, Display};

use flatcap_format::units::{SECOND_UNITS, SHARE, Unit, WRITTEN_SIZE_UNITS, fitting_unit};

/// The dimension of a value. A dimension is a base unit (bytes, seconds, counts, or another unit of
/// a schema), divided by a power of seconds. The dimension of a share, such as 20 %, is seconds per
/// second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimension {
    base: DimensionBase,
    per_s: i8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DimensionBase {
    Count,
    Bytes,
    Seconds,
    /// A base unit other than bytes, seconds and counts, such as `degC` or `W`. The unit is spelled
    /// as in [`CommonUnit`](super::CommonUnit).
    Other(Box<str>),
}

/// A value with its unit, formatted for people, such as `34.2 %` or `12.5 ms`.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitValue {
    /// The value in this unit.
    pub value: f64,
    /// The unit, spelled as in [`CommonUnit`](super::CommonUnit), such as `%`, `s` or `B/s`. Empty
    /// for a plain number.
    pub unit: Box<str>,
}

impl Dimension {
    /// A plain number.
    pub const COUNT: Self = Self { base: DimensionBase::Count, per_s: 0 };
    /// A duration in seconds.
    pub(super) const SECONDS: Self = Self { base: DimensionBase::Seconds, per_s: 0 };
    /// A share, such as a percentage.
    pub(super) const SHARE: Self = Self { base: DimensionBase::Seconds, per_s: 1 };

    /// Returns the dimension of a field whose attribute `unit` has this value, and the factor that
    /// converts the values of the field to base units.
    pub fn of_field(unit: Option<&str>) -> (Self, f64) {
        match Unit::of_field(unit) {
            Some(known) => (Self::of_written(Some(known), false), known.factor()),
            None => (Self { base: DimensionBase::of(unit.unwrap_or_default()), per_s: 0 }, 1.0),
        }
    }

    /// Returns the dimension of a number with a unit. `is_rate` means that the number is divided by
    /// seconds.
    pub(super) fn of_written(unit: Option<&Unit>, is_rate: bool) -> Self {
        match unit.map_or("", |unit| unit.base) {
            SHARE => Self { per_s: 1 + i8::from(is_rate), ..Self::SHARE },
            base => Self { base: DimensionBase::of(base), per_s: is_rate.into() },
        }
    }

    /// Returns the dimension of a change per second, for values with this dimension.
    #[must_use]
    pub fn per_second(&self) -> Self {
        match &self.base {
            // The kernel's sensors report power in W, so the rate of an energy must have the unit W
            // to be compared with power.
            DimensionBase::Other(name) if **name == *"J" && self.per_s == 0 => {
                Self { base: DimensionBase::Other("W".into()), per_s: 0 }
            }
            base => Self { base: base.clone(), per_s: self.per_s.saturating_add(1) },
        }
    }

    /// Returns whether a number without a unit can be compared with values of this dimension.
    pub(super) fn is_plain(&self) -> bool {
        // A number of bytes or seconds without a unit is rejected, because its author may mean KiB
        // or ms.
        matches!(self.base, DimensionBase::Count | DimensionBase::Other(_))
    }

    /// Returns the dimension of the product of two values, or `None` if the product is not
    /// supported.
    pub(super) fn times(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (one, share) | (share, one) if *share == Self::SHARE => Some(one.clone()),
            (Self { base, per_s }, Self { base: DimensionBase::Count, per_s: other })
            | (Self { base: DimensionBase::Count, per_s: other }, Self { base, per_s }) => {
                Some(Self { base: base.clone(), per_s: per_s.saturating_add(*other) })
            }
            (Self { base, per_s }, Self { base: DimensionBase::Seconds, per_s: 0 })
            | (Self { base: DimensionBase::Seconds, per_s: 0 }, Self { base, per_s }) => {
                Some(Self { base: base.clone(), per_s: per_s.saturating_sub(1) })
            }
            _ => None,
        }
    }

    /// Returns the dimension of the quotient of two values, or `None` if the quotient is not
    /// supported.
    pub(super) fn over(&self, other: &Self) -> Option<Self> {
        // The quotient of equal dimensions is a share, which users compare with a percentage.
        if self == other {
            return Some(Self::SHARE);
        }
        match other {
            share if *share == Self::SHARE => Some(self.clone()),
            Self { base: DimensionBase::Count, per_s } => {
                Some(Self { base: self.base.clone(), per_s: self.per_s.saturating_sub(*per_s) })
            }
            Self { base: DimensionBase::Seconds, per_s: 0 } => Some(self.per_second()),
            _ => None,
        }
    }

    /// Converts a value in base units to the unit in which views show it.
    pub fn quantity(&self, value: f64) -> UnitValue {
        if *self == Self::SHARE {
            return UnitValue { value: value * 100.0, unit: "%".into() };
        }
        UnitValue { value, unit: self.to_string().into() }
    }

    /// Returns an example of a number with this dimension, for error messages.
    pub(super) fn example(&self) -> String {
        match (&self.base, self.per_s) {
            _ if *self == Self::SHARE => "20%".to_owned(),
            (DimensionBase::Count, 0) => "100".to_owned(),
            (DimensionBase::Seconds, 0) => "5ms".to_owned(),
            (DimensionBase::Bytes, 0) => "64MiB".to_owned(),
            (DimensionBase::Bytes, 1) => "64MiB/s".to_owned(),
            _ => format!("100{self}"),
        }
    }
}

impl DimensionBase {
    fn of(name: &str) -> Self {
        match name {
            "" => Self::Count,
            "s" => Self::Seconds,
            "B" => Self::Bytes,
            other => Self::Other(other.into()),
        }
    }
}

impl Display for Dimension {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::SHARE {
            return formatter.write_str("%");
        }
        formatter.write_str(match &self.base {
            DimensionBase::Count => "",
            DimensionBase::Bytes => "B",
            DimensionBase::Seconds => "s",
            DimensionBase::Other(name) => name,
        })?;
        match self.per_s {
            0 => Ok(()),
            1 => formatter.write_str("/s"),
            power => write!(formatter, "/s^{power}"),
        }
    }
}

impl Display for UnitValue {
    /// Writes three significant digits, and a unit that suits the size of the value.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, rate) = self.unit.strip_suffix("/s").map_or((&*self.unit, ""), |base| (base, "/s"));
        let units = match base {
            "s" => SECOND_UNITS,
            "B" => WRITTEN_SIZE_UNITS,
            _ => &[],
        };
        // This function divides by the factor, because the result of `in_fitting_unit` may differ
        // in the last digit.
        let unit = fitting_unit(units, self.value, 1.0);
        let (factor, unit) = unit.map_or((1.0, base), |unit| (unit.factor(), unit.name));
        let value = self.value / factor;
        let decimals = if value.fract() == 0.0 {
            0
        } else {
            match value.abs() {
                large if large >= 100.0 => 0,
                large if large >= 10.0 => 1,
                large if large >= 1.0 => 2,
                large if large >= 0.1 => 3,
                _ => 4,
            }
        };
        write!(formatter, "{value:.decimals$}")?;
        if unit.is_empty() && rate.is_empty() { Ok(()) } else { write!(formatter, " {unit}{rate}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(unit: &str) -> Dimension {
        let base = unit.strip_suffix("/s").unwrap_or(unit);
        Dimension::of_written(Unit::of_field(Some(base)), base != unit)
    }

    // Proves that values are printed with three digits and a unit that suits their size.
    #[test]
    fn quantities_are_written_for_people() {
        let shown = |value, unit: &str| UnitValue { value, unit: unit.into() }.to_string();
        assert_eq!(shown(34.236, "%"), "34.2 %");
        assert_eq!(shown(0.0125, "s"), "12.5 ms");
        assert_eq!(shown(0.0, "s"), "0 ns");
        assert_eq!(shown(67_108_864.0, "B/s"), "64 MiB/s");
        assert_eq!(shown(1234.5, "/s"), "1234 /s");
        assert_eq!(shown(17.0, ""), "17");
    }

    // Proves that arithmetic gives rates, shares and quotients the expected dimensions.
    #[test]
    fn dimensions_follow_from_arithmetic() {
        let field = |unit| Dimension::of_field(Some(unit)).0;
        assert_eq!(field("us").per_second(), Dimension::SHARE);
        assert_eq!(field("%"), written("%"));
        assert_eq!(field("sectors").per_second(), written("MiB/s"));
        assert_eq!(field("J").per_second(), written("W"));
        let latency = field("ms").per_second().over(&Dimension::COUNT.per_second());
        assert_eq!(latency, Some(written("ms")));
        assert_eq!(field("bytes").over(&field("KiB")), Some(Dimension::SHARE));
        assert_eq!(field("bytes").times(&Dimension::SHARE), Some(field("bytes")));
        assert_eq!(field("bytes").over(&field("mdegC")), None);
        assert_eq!(Unit::at_start("MB"), None);
    }
}
