//! Parsed conditions of rules, such as `pressure.io_some.total:rate(100ms) > 20%`.

use std::cmp::Ordering;
use std::fmt::{self, Display};
use std::sync::Arc;

use regex::Regex;

use super::decimal::Decimal;
use super::dimension::Dimension;
use super::logic::Logic;
use super::transform::Transform;
use crate::names::path::FieldPath;

/// A parsed condition on samples.
///
/// ```text
/// condition  = all { "or" all }
/// all        = single { "and" single }
/// single     = "not" single | "(" condition ")" | comparison
///            | ("any" | "all") "(" condition ")"
///            | "changed" "(" path ")" | "absent" "(" SOURCE "," duration ")"
///            | "exited" "(" [ test { "," test } ] ")" | "mark" "(" "\"" expression "\"" ")"
/// comparison = value operator (value | text | "true" | "false")
///            | path "=~" text
/// operator   = "=" | "==" | "!=" | "<" | "<=" | ">" | ">="
/// value      = product { ("+" | "-") product }
/// product    = factor { ("*" | "/") factor }
/// factor     = number [unit] | path { transform } | "lateness" "(" SOURCE ")" | "(" value ")"
/// transform  = ":" name [ "(" [share ","] duration ")" ]
/// ```
///
/// Paths are written as in queries, and strings in double quotes. The operator `-` after a path
/// must be surrounded by spaces. A comparison is unknown if a value is absent, a window is not
/// filled, or a divisor is zero. An unknown condition never fires a rule.
#[derive(Debug, Clone)]
pub struct SampleCondition {
    pub(super) text: Box<str>,
    pub(super) root: Logic<Test>,
    /// The fields of the condition, in the order in which they are written.
    pub operands: Vec<FieldOperand>,
    /// The position of the first part of the condition that needs more than one sample.
    pub(super) needs_samples: Option<usize>,
}

/// A field and its transforms.
#[derive(Debug, Clone)]
pub struct FieldOperand {
    /// The field.
    pub path: FieldPath,
    /// The transforms, in the order in which they are written.
    pub transforms: Vec<Transform>,
    /// Whether the operand is an alias for the same field of all elements. An alias needs no `any`.
    pub(super) is_alias: bool,
    /// The operand as the user wrote it, with its transforms.
    pub text: Box<str>,
}

/// A part of a condition that contains no `and`, `or` and `not`.
#[derive(Debug, Clone)]
pub(super) enum Test {
    Compare(CompareClause),
    /// A condition on the elements of one list. The condition must hold for each element, or for at
    /// least one element.
    Elements {
        is_every: bool,
        inner: Box<Logic<Test>>,
        text: Box<str>,
    },
    Changed {
        operand: usize,
        text: Arc<str>,
    },
    Rule(RuleTest),
}

/// A test that only rules have, because it needs more than one sample.
#[derive(Debug, Clone)]
pub enum RuleTest {
    /// A source has had no sample for this duration.
    Absent {
        /// The source's name.
        source: Box<str>,
        /// The duration without a sample, in nanoseconds.
        limit_ns: u64,
    },
    /// A process ended.
    Exited(ExitTests),
    /// A marker matches.
    Mark {
        /// The regular expression that the entire text of the marker must match.
        expression: Regex,
        /// The test as the user wrote it.
        text: Arc<str>,
    },
}

/// A comparison.
#[derive(Debug, Clone)]
pub(super) struct CompareClause {
    pub(super) text: Arc<str>,
    pub(super) left: ValueTerm,
    pub(super) operator: CompareSign,
    pub(super) right: RightSide,
}

/// The right side of a comparison.
#[derive(Debug, Clone)]
pub(super) enum RightSide {
    Value(ValueTerm),
    Text(Box<str>),
    Expression(Regex),
    Truth(bool),
}

/// The operator of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompareSign {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Matches,
}

/// A value computed from numbers and fields.
#[derive(Debug, Clone)]
pub(super) enum ValueTerm {
    Number(NumberTerm),
    Field(usize),
    Lateness(Box<str>),
    Pair(Arithmetic, Box<(ValueTerm, ValueTerm)>),
}

/// A number as the user wrote it, with its unit.
#[derive(Debug, Clone)]
pub(super) struct NumberTerm {
    /// The number, converted to base units.
    pub(super) amount: Decimal,
    /// The dimension of the unit. `None` if the number has no unit.
    pub(super) dimension: Option<Dimension>,
    pub(super) text: Box<str>,
}

/// An operation on two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// Selects the process ends for which a rule fires.
#[derive(Debug, Clone)]
pub struct ExitTests {
    /// The path to the process ids of the selected processes. `None` selects any process.
    pub processes: Option<FieldPath>,
    /// The path to the process ids of the selected ends in the list of ended processes.
    pub exits: FieldPath,
    /// Whether a test refers to how the process ended.
    pub needs_events: bool,
    /// The test as the user wrote it.
    pub text: Arc<str>,
}

impl CompareSign {
    // Longer operators come first, because `<` is a prefix of `<=`.
    pub(super) const ALL: [(&'static str, Self); 8] = [
        ("<=", Self::LessOrEqual),
        (">=", Self::GreaterOrEqual),
        ("!=", Self::NotEqual),
        ("==", Self::Equal),
        ("=~", Self::Matches),
        ("=", Self::Equal),
        ("<", Self::Less),
        (">", Self::Greater),
    ];

    pub(super) fn spelled(self) -> &'static str {
        Self::ALL.iter().rfind(|(_, operator)| *operator == self).map_or("", |(text, _)| text)
    }

    /// Returns the operator that is equivalent if the two sides are exchanged.
    pub(super) fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            other => other,
        }
    }

    /// Returns whether the comparison holds if the left value has this order relative to the right
    /// value.
    #[inline]
    pub(super) fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Equal | Self::Matches => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    /// Returns whether the operator is `<`, `<=`, `>` or `>=`.
    pub(super) fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual)
    }
}

impl SampleCondition {
    /// Returns the condition as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Display for SampleCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl PartialEq for SampleCondition {
    /// Conditions are equal if they are written in the same way.
    fn eq(&self, other: &Self) -> bool {
        // Compiled expressions cannot be compared, and the string determines all other parts.
        self.text == other.text
    }
}

impl Eq for SampleCondition {}
