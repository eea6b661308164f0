//! Functions of one value.

use crate::calendar::{CalendarPart, calendar_part};

/// A function of one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Function {
    Absolute,
    Ceil,
    Floor,
    SquareRoot,
    Exponential,
    NaturalLogarithm,
    BinaryLogarithm,
    DecimalLogarithm,
    Sign,
    /// To the nearest multiple of a number; halves up.
    Round(f64),
    Clamp(f64, f64),
    /// A function of an angle, or one that returns an angle, in radians.
    Angle(AngleFunction),
    /// A part of the date of a time in seconds since 1970, in UTC.
    Calendar(CalendarPart),
}

/// A function of an angle, or one that returns an angle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AngleFunction {
    Sine,
    Cosine,
    Tangent,
    ArcSine,
    ArcCosine,
    ArcTangent,
    HyperbolicSine,
    HyperbolicCosine,
    HyperbolicTangent,
    AreaSine,
    AreaCosine,
    AreaTangent,
    Degrees,
    Radians,
}

impl AngleFunction {
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Sine => value.sin(),
            Self::Cosine => value.cos(),
            Self::Tangent => value.tan(),
            Self::ArcSine => value.asin(),
            Self::ArcCosine => value.acos(),
            Self::ArcTangent => value.atan(),
            Self::HyperbolicSine => value.sinh(),
            Self::HyperbolicCosine => value.cosh(),
            Self::HyperbolicTangent => value.tanh(),
            Self::AreaSine => value.asinh(),
            Self::AreaCosine => value.acosh(),
            Self::AreaTangent => value.atanh(),
            Self::Degrees => value.to_degrees(),
            Self::Radians => value.to_radians(),
        }
    }
}

/// The functions without parameters, by name.
const NAMED: [(&str, Function); 31] = [
    ("abs", Function::Absolute),
    ("ceil", Function::Ceil),
    ("floor", Function::Floor),
    ("sqrt", Function::SquareRoot),
    ("exp", Function::Exponential),
    ("ln", Function::NaturalLogarithm),
    ("log2", Function::BinaryLogarithm),
    ("log10", Function::DecimalLogarithm),
    ("sgn", Function::Sign),
    ("sin", Function::Angle(AngleFunction::Sine)),
    ("cos", Function::Angle(AngleFunction::Cosine)),
    ("tan", Function::Angle(AngleFunction::Tangent)),
    ("asin", Function::Angle(AngleFunction::ArcSine)),
    ("acos", Function::Angle(AngleFunction::ArcCosine)),
    ("atan", Function::Angle(AngleFunction::ArcTangent)),
    ("sinh", Function::Angle(AngleFunction::HyperbolicSine)),
    ("cosh", Function::Angle(AngleFunction::HyperbolicCosine)),
    ("tanh", Function::Angle(AngleFunction::HyperbolicTangent)),
    ("asinh", Function::Angle(AngleFunction::AreaSine)),
    ("acosh", Function::Angle(AngleFunction::AreaCosine)),
    ("atanh", Function::Angle(AngleFunction::AreaTangent)),
    ("deg", Function::Angle(AngleFunction::Degrees)),
    ("rad", Function::Angle(AngleFunction::Radians)),
    ("minute", Function::Calendar(CalendarPart::Minute)),
    ("hour", Function::Calendar(CalendarPart::Hour)),
    ("day_of_week", Function::Calendar(CalendarPart::DayOfWeek)),
    ("day_of_month", Function::Calendar(CalendarPart::DayOfMonth)),
    ("day_of_year", Function::Calendar(CalendarPart::DayOfYear)),
    ("days_in_month", Function::Calendar(CalendarPart::DaysInMonth)),
    ("month", Function::Calendar(CalendarPart::Month)),
    ("year", Function::Calendar(CalendarPart::Year)),
];

/// The functions with parameters, which are numbers.
const WITH_PARAMETERS: [&str; 4] = ["round", "clamp", "clamp_min", "clamp_max"];

impl Function {
    /// Returns the function of a name and its parameters.
    pub(crate) fn named(name: &str, parameters: &[f64]) -> Option<Self> {
        if let Some((_, function)) = NAMED.iter().find(|(own, _)| *own == name) {
            return Some(*function);
        }
        Some(match (name, parameters) {
            ("round", []) => Self::Round(1.0),
            ("round", [to]) => Self::Round(*to),
            ("clamp", [min, max]) => Self::Clamp(*min, *max),
            ("clamp_min", [min]) => Self::Clamp(*min, f64::INFINITY),
            ("clamp_max", [max]) => Self::Clamp(f64::NEG_INFINITY, *max),
            _ => return None,
        })
    }

    /// Returns whether the function returns a part of a date.
    pub(crate) fn is_of_calendar(self) -> bool {
        matches!(self, Self::Calendar(_))
    }

    /// Returns all names.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name).chain(WITH_PARAMETERS)
    }

    /// Returns the value, or `None` for a clamp whose minimum exceeds its maximum.
    pub(crate) fn of(self, value: f64) -> Option<f64> {
        Some(match self {
            Self::Absolute => value.abs(),
            Self::Ceil => value.ceil(),
            Self::Floor => value.floor(),
            Self::SquareRoot => value.sqrt(),
            Self::Exponential => value.exp(),
            Self::NaturalLogarithm => value.ln(),
            Self::BinaryLogarithm => value.log2(),
            Self::DecimalLogarithm => value.log10(),
            // `signum` of 0.0 is 1.0.
            Self::Sign if value == 0.0 || value.is_nan() => value,
            Self::Sign => value.signum(),
            Self::Round(to) => {
                // Uses the inverse, as Prometheus does, so that 0.1 stays 0.1.
                let inverse = 1.0 / to;
                (value * inverse + 0.5).floor() / inverse
            }
            Self::Clamp(min, max) if min > max => return None,
            // `max` and `min` ignore NaN, which a limit computed from several series is.
            Self::Clamp(min, max) if value.is_nan() || min.is_nan() || max.is_nan() => f64::NAN,
            Self::Clamp(min, max) => min.max(max.min(value)),
            Self::Angle(function) => function.of(value),
            Self::Calendar(part) => calendar_part(part, value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each listed function has a value, and those whose value is easily got wrong.
    #[test]
    fn functions_have_values() {
        for name in Function::names() {
            let parameters: &[f64] = match name {
                "clamp" => &[1.0, 2.0],
                "clamp_min" | "clamp_max" | "round" => &[1.0],
                _ => &[],
            };
            assert!(
                Function::named(name, parameters).and_then(|function| function.of(1.0)).is_some(),
                "{name}"
            );
        }
        for (function, value, expected) in [
            (Function::Round(1.0), -2.5, -2.0),
            (Function::Round(5.0), 12.6, 15.0),
            (Function::Clamp(1.0, 2.0), 7.0, 2.0),
            (Function::Sign, -3.0, -1.0),
            (Function::Sign, 0.0, 0.0),
        ] {
            assert_eq!(function.of(value), Some(expected), "{function:?} {value}");
        }
        assert_eq!(Function::Clamp(2.0, 1.0).of(1.5), None);
        for limits in [(f64::NAN, f64::INFINITY), (f64::NEG_INFINITY, f64::NAN)] {
            assert!(Function::Clamp(limits.0, limits.1).of(1.5).unwrap().is_nan(), "{limits:?}");
        }
        assert_eq!(Function::named("clamp", &[1.0]), None);
    }
}
