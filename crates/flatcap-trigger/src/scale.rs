//! How values become base units.

/// What values are multiplied by or divided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// They are in base units.
    One,
    Times(f64),
    /// By a whole number: exact more often than a multiplication with its reciprocal, as in
    /// [`CommonUnit`](flatcap_format::query::CommonUnit).
    Over(f64),
}

impl Scale {
    /// Returns the scale of a positive factor; one below 1 is the reciprocal of a whole number.
    pub(crate) fn of(factor: f64) -> Self {
        if factor < 1.0 {
            Self::Over((1.0 / factor).round())
        } else if factor > 1.0 {
            Self::Times(factor)
        } else {
            Self::One
        }
    }

    /// Returns a value in base units.
    #[inline]
    pub(crate) fn apply(self, value: f64) -> f64 {
        match self {
            Self::One => value,
            Self::Times(factor) => value * factor,
            Self::Over(divisor) => value / divisor,
        }
    }
}
