//! Three-valued logic (Kleene). In three-valued logic, a result can also be unknown, which is
//! neither true nor false.

/// The result of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// The condition does not hold.
    False,
    /// The result is unknown, because a value is absent, or because a window is not filled.
    Unknown,
    /// The condition holds.
    True,
}

/// Conditions joined by `and`, `or` and `not`.
#[derive(Debug, Clone)]
pub enum Logic<L> {
    /// True if all parts are true, false if at least one part is false, and otherwise unknown.
    All(Box<[Self]>),
    /// True if at least one part is true, false if all parts are false, and otherwise unknown.
    Any(Box<[Self]>),
    /// The negation. The negation of unknown is unknown.
    Not(Box<Self>),
    /// A single condition without `and`, `or` and `not`.
    Leaf(L),
}

impl Truth {
    /// Returns the result of a condition whose values are all known.
    pub fn known(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }

    /// Joins results. If `is_every` is true, the condition holds if all results are true.
    /// Otherwise, the condition holds if at least one result is true.
    pub(super) fn joined(results: impl Iterator<Item = Self>, is_every: bool) -> Self {
        let decisive = Self::known(!is_every);
        let mut joined = Self::known(is_every);
        for result in results {
            if result == decisive {
                return decisive;
            }
            if result == Self::Unknown {
                joined = result;
            }
        }
        joined
    }
}

impl std::ops::Not for Truth {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
            Self::True => Self::False,
        }
    }
}

impl<L> Logic<L> {
    /// Evaluates the condition, given the result of each leaf.
    pub fn evaluate(&self, leaf: &impl Fn(&L) -> Truth) -> Truth {
        match self {
            Self::All(parts) => Truth::joined(parts.iter().map(|part| part.evaluate(leaf)), true),
            Self::Any(parts) => Truth::joined(parts.iter().map(|part| part.evaluate(leaf)), false),
            Self::Not(part) => !part.evaluate(leaf),
            Self::Leaf(own) => leaf(own),
        }
    }

    /// Visits the leaves in the order in which they are written.
    pub fn visit<'l>(&'l self, leaf: &mut impl FnMut(&'l L)) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.visit(leaf)),
            Self::Not(part) => part.visit(leaf),
            Self::Leaf(own) => leaf(own),
        }
    }

    /// Replaces the leaves by the results of `leaf`. Returns the first error of `leaf`, if any.
    pub(super) fn try_map<M, E>(&self, leaf: &mut impl FnMut(&L) -> Result<M, E>) -> Result<Logic<M>, E> {
        let mut mapped = |parts: &[Self]| -> Result<Box<[Logic<M>]>, E> {
            parts.iter().map(|part| part.try_map(leaf)).collect()
        };
        Ok(match self {
            Self::All(parts) => Logic::All(mapped(parts)?),
            Self::Any(parts) => Logic::Any(mapped(parts)?),
            Self::Not(part) => Logic::Not(Box::new(part.try_map(leaf)?)),
            Self::Leaf(own) => Logic::Leaf(leaf(own)?),
        })
    }
}
