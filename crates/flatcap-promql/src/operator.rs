//! Operators between two numbers.

use std::ops::{Add as _, Div as _, Mul as _, Rem as _, Sub as _};

/// An operator between two numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operator {
    Arithmetic(fn(f64, f64) -> f64),
    /// The angle of a point in polar coordinates (`atan2`).
    Angle,
    Comparison(fn(&f64, &f64) -> bool),
}

/// An operator between two sets of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOperator {
    And,
    Or,
    Unless,
}

impl Operator {
    /// Returns the operator that a token denotes.
    pub(crate) fn of(token: &str) -> Option<Self> {
        Some(match token {
            "+" => Self::Arithmetic(f64::add),
            "-" => Self::Arithmetic(f64::sub),
            "*" => Self::Arithmetic(f64::mul),
            "/" => Self::Arithmetic(f64::div),
            "%" => Self::Arithmetic(f64::rem),
            "^" => Self::Arithmetic(f64::powf),
            "atan2" => Self::Angle,
            "==" => Self::Comparison(f64::eq),
            "!=" => Self::Comparison(f64::ne),
            "<" => Self::Comparison(f64::lt),
            "<=" => Self::Comparison(f64::le),
            ">" => Self::Comparison(f64::gt),
            ">=" => Self::Comparison(f64::ge),
            _ => return None,
        })
    }

    /// Returns whether the operator is a comparison.
    pub(crate) fn is_comparison(self) -> bool {
        matches!(self, Self::Comparison(_))
    }

    /// Returns the result of an arithmetic operator. A comparison returns 1 if it is true, else 0.
    pub(crate) fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Arithmetic(operation) => operation(left, right),
            Self::Angle => left.atan2(right),
            Self::Comparison(holds) => f64::from(u8::from(holds(&left, &right))),
        }
    }

    /// Returns whether a comparison holds, or `None` for an arithmetic operator.
    pub(crate) fn compare(self, left: f64, right: f64) -> Option<bool> {
        match self {
            Self::Comparison(holds) => Some(holds(&left, &right)),
            Self::Arithmetic(_) | Self::Angle => None,
        }
    }
}

impl SetOperator {
    /// Returns the operator that a token denotes.
    pub(crate) fn of(token: &str) -> Option<Self> {
        Some(match token {
            "and" => Self::And,
            "or" => Self::Or,
            "unless" => Self::Unless,
            _ => return None,
        })
    }
}
