//! Functions of one value.

use crate::calendar::{CalendarPart, calendar_part};

/// A function of one value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Function {
    Plain(fn(f64) -> f64),
    /// Rounds to the nearest multiple of a number. A value halfway between two multiples is rounded
    /// up.
    Round(f64),
    Clamp(f64, f64),
    /// A part of the date, in UTC. The date is given in seconds since 1970.
    Calendar(CalendarPart),
}

/// The functions without parameters, by name.
const NAMED: [(&str, Function); 31] = [
    ("abs", Function::Plain(f64::abs)),
    ("ceil", Function::Plain(f64::ceil)),
    ("floor", Function::Plain(f64::floor)),
    ("sqrt", Function::Plain(f64::sqrt)),
    ("exp", Function::Plain(f64::exp)),
    ("ln", Function::Plain(f64::ln)),
    ("log2", Function::Plain(f64::log2)),
    ("log10", Function::Plain(f64::log10)),
    ("sgn", Function::Plain(sign)),
    ("sin", Function::Plain(f64::sin)),
    ("cos", Function::Plain(f64::cos)),
    ("tan", Function::Plain(f64::tan)),
    ("asin", Function::Plain(f64::asin)),
    ("acos", Function::Plain(f64::acos)),
    ("atan", Function::Plain(f64::atan)),
    ("sinh", Function::Plain(f64::sinh)),
    ("cosh", Function::Plain(f64::cosh)),
    ("tanh", Function::Plain(f64::tanh)),
    ("asinh", Function::Plain(f64::asinh)),
    ("acosh", Function::Plain(f64::acosh)),
    ("atanh", Function::Plain(f64::atanh)),
    ("deg", Function::Plain(f64::to_degrees)),
    ("rad", Function::Plain(f64::to_radians)),
    ("minute", Function::Calendar(|date| date.minute().into())),
    ("hour", Function::Calendar(|date| date.hour().into())),
    // The number of the day, from 0 (Sunday) to 6.
    ("day_of_week", Function::Calendar(|date| date.weekday().to_sunday_zero_offset().into())),
    ("day_of_month", Function::Calendar(|date| date.day().into())),
    ("day_of_year", Function::Calendar(|date| date.day_of_year().into())),
    ("days_in_month", Function::Calendar(|date| date.days_in_month().into())),
    ("month", Function::Calendar(|date| date.month().into())),
    ("year", Function::Calendar(|date| date.year().into())),
];

/// The functions whose parameters are numbers.
const WITH_PARAMETERS: [&str; 4] = ["round", "clamp", "clamp_min", "clamp_max"];

impl Function {
    /// Returns the function with this name and these parameters.
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

    /// Returns the names of all functions.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name).chain(WITH_PARAMETERS)
    }

    /// Returns the function's result for a value, or `None` for a clamp whose minimum exceeds its
    /// maximum.
    pub(crate) fn of(self, value: f64) -> Option<f64> {
        Some(match self {
            Self::Plain(function) => function(value),
            Self::Round(to) => {
                // As in Prometheus, the value is multiplied by the inverse, so that 0.1 stays 0.1.
                let inverse = 1.0 / to;
                (value * inverse + 0.5).floor() / inverse
            }
            Self::Clamp(min, max) if min > max => return None,
            // This case is separate because `max` and `min` ignore NaN. A limit of the clamp is NaN
            // if it is computed from several series.
            Self::Clamp(min, max) if value.is_nan() || min.is_nan() || max.is_nan() => f64::NAN,
            Self::Clamp(min, max) => min.max(max.min(value)),
            Self::Calendar(part) => calendar_part(part, value),
        })
    }
}

/// Returns the sign of a value. For 0.0, whose `signum` is 1.0, returns the value itself.
fn sign(value: f64) -> f64 {
    if value == 0.0 || value.is_nan() { value } else { value.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each listed function has a value, and that the functions in which mistakes are
    // likely have the correct value.
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
            (Function::Plain(sign), -3.0, -1.0),
            (Function::Plain(sign), 0.0, 0.0),
        ] {
            assert_eq!(function.of(value), Some(expected), "{function:?} {value}");
        }
        assert_eq!(Function::Clamp(2.0, 1.0).of(1.5), None);
        for limits in [(f64::NAN, f64::INFINITY), (f64::NEG_INFINITY, f64::NAN)] {
            assert!(Function::Clamp(limits.0, limits.1).of(1.5).unwrap().is_nan(), "{limits:?}");
        }
        assert!(Function::named("clamp", &[1.0]).is_none());
    }
}
