//! Three-valued logic: an unknown result is neither true nor false, and never fires a rule.

/// The result of a condition, in Kleene's logic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// The condition does not hold.
    False,
    /// The result is unknown: a value is absent, or a window is not filled.
    Unknown,
    /// The condition holds.
    True,
}

impl Truth {
    /// Returns the result of a comparison of known values.
    pub(crate) fn known(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }

    /// Returns the conjunction.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::True, Self::True) => Self::True,
            _ => Self::Unknown,
        }
    }
}

impl std::ops::Not for Truth {
    type Output = Self;

    /// Returns the negation; the negation of unknown is unknown.
    fn not(self) -> Self {
        match self {
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
            Self::True => Self::False,
        }
    }
}
