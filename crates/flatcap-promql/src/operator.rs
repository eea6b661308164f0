//! Operators between two numbers.

/// An operator between two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    /// The angle of a point.
    Angle,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An operator between two sets of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOperator {
    And,
    Or,
    Unless,
}

impl Operator {
    /// Returns the operator of a token.
    pub(crate) fn of(token: &str) -> Option<Self> {
        Some(match token {
            "+" => Self::Add,
            "-" => Self::Subtract,
            "*" => Self::Multiply,
            "/" => Self::Divide,
            "%" => Self::Remainder,
            "^" => Self::Power,
            "atan2" => Self::Angle,
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    /// Returns whether the operator compares.
    pub(crate) fn is_comparison(self) -> bool {
        self.compare(0.0, 0.0).is_some()
    }

    /// Returns the result of an arithmetic operator. A comparison returns 1 if it is true, else 0.
    pub(crate) fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Remainder => left % right,
            Self::Power => left.powf(right),
            Self::Angle => left.atan2(right),
            _ => f64::from(u8::from(self.compare(left, right) == Some(true))),
        }
    }

    /// Returns whether a comparison holds, or `None` for an arithmetic operator.
    #[allow(clippy::float_cmp, reason = "the comparison that was asked for")]
    pub(crate) fn compare(self, left: f64, right: f64) -> Option<bool> {
        Some(match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            _ => return None,
        })
    }
}

impl SetOperator {
    /// Returns the operator of a token.
    pub(crate) fn of(token: &str) -> Option<Self> {
        Some(match token {
            "and" => Self::And,
            "or" => Self::Or,
            "unless" => Self::Unless,
            _ => return None,
        })
    }
}
