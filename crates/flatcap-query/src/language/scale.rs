//! Scales values to base units.

/// The factor that converts a value to base units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// The value is in base units.
    One,
    /// Multiplication.
    Times(f64),
    /// Division by a whole number: more often exact than multiplication by its reciprocal, as in
    /// [`CommonUnit`](super::CommonUnit).
    Over(f64),
}

impl Scale {
    /// Returns the scale of a positive factor. A factor below 1 must be the reciprocal of a whole
    /// number.
    pub fn of(factor: f64) -> Self {
        if factor < 1.0 {
            Self::Over((1.0 / factor).round())
        } else if factor > 1.0 {
            Self::Times(factor)
        } else {
            Self::One
        }
    }

    /// Converts a value to base units.
    #[inline]
    pub fn apply(self, value: f64) -> f64 {
        match self {
            Self::One => value,
            Self::Times(factor) => value * factor,
            Self::Over(divisor) => value / divisor,
        }
    }
}
