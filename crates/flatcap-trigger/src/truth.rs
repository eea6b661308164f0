//! Three-valued logic: what is not known is neither true nor false, and never fires a rule.

/// The result of a condition, after Kleene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// It does not hold.
    False,
    /// It cannot be said: a value is absent, or a window is not filled.
    Unknown,
    /// It holds.
    True,
}

impl Truth {
    /// Returns the result of a comparison of known values.
    pub(crate) fn known(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }

    /// Returns whether both hold.
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

    /// Returns the opposite; of the unknown, the unknown.
    fn not(self) -> Self {
        match self {
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
            Self::True => Self::False,
        }
    }
}
