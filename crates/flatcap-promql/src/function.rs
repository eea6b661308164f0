//! Functions of one value.

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
}

/// The functions without parameters, by name.
const NAMED: [(&str, Function); 9] = [
    ("abs", Function::Absolute),
    ("ceil", Function::Ceil),
    ("floor", Function::Floor),
    ("sqrt", Function::SquareRoot),
    ("exp", Function::Exponential),
    ("ln", Function::NaturalLogarithm),
    ("log2", Function::BinaryLogarithm),
    ("log10", Function::DecimalLogarithm),
    ("sgn", Function::Sign),
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
            Self::Sign if value == 0.0 || value.is_nan() => value,
            Self::Sign => value.signum(),
            Self::Round(to) => {
                // Uses the inverse, as Prometheus does, so that 0.1 stays 0.1.
                let inverse = 1.0 / to;
                (value * inverse + 0.5).floor() / inverse
            }
            Self::Clamp(min, max) if min > max => return None,
            Self::Clamp(..) if value.is_nan() => value,
            Self::Clamp(min, max) => min.max(max.min(value)),
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
        assert_eq!(Function::named("clamp", &[1.0]), None);
    }
}
