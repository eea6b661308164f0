//! Scales values to base units.

/// A factor that converts a value to base units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// The value is already in base units.
    One,
    /// The value is multiplied by this factor.
    Times(f64),
    /// The value is divided by this whole number. Division by this number gives an exact result
    /// more often than multiplication by the reciprocal. [`CommonUnit`](super::CommonUnit) divides
    /// in the same way.
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
