//! Parsed conditions of rules, such as `pressure.io_some.total:rate(100ms) > 20%`.

use std::fmt::{self, Display};
use std::sync::Arc;

use flatcap_query::FieldPath;
use regex::Regex;

use crate::transform::Transform;

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
/// Paths are written as in queries, and strings in double quotes. An operator `-` after a path
/// needs spaces around it. An absent value, a window that is not filled, or a division by zero
/// makes a comparison unknown, and an unknown condition never fires a rule.
#[derive(Debug, Clone)]
pub struct TriggerCondition {
    text: Box<str>,
    pub(crate) root: Clause,
    pub(crate) operands: Vec<FieldOperand>,
}

/// A field with its transforms.
#[derive(Debug, Clone)]
pub(crate) struct FieldOperand {
    pub(crate) path: FieldPath,
    pub(crate) transforms: Vec<Transform>,
    /// Whether it is an alias for the same field of all elements, which needs no `any`.
    pub(crate) is_alias: bool,
    /// The operand as written, with transforms.
    pub(crate) text: Box<str>,
}

/// A part of a condition.
#[derive(Debug, Clone)]
pub(crate) enum Clause {
    All(Vec<Clause>),
    Any(Vec<Clause>),
    Not(Box<Clause>),
    Compare(CompareClause),
    /// A condition on the elements of one list: on each of them, or on any of them.
    Elements {
        is_every: bool,
        inner: Box<Clause>,
        text: Box<str>,
    },
    Changed {
        operand: usize,
        text: Arc<str>,
    },
    Absent {
        source: Box<str>,
        limit_ns: u64,
    },
    Exited(ExitTests),
    Mark(Regex),
}

/// A comparison.
#[derive(Debug, Clone)]
pub(crate) struct CompareClause {
    pub(crate) text: Arc<str>,
    pub(crate) left: ValueTerm,
    pub(crate) operator: CompareSign,
    pub(crate) right: RightSide,
}

/// The right side of a comparison.
#[derive(Debug, Clone)]
pub(crate) enum RightSide {
    Value(ValueTerm),
    Text(Box<str>),
    Expression(Regex),
    Truth(bool),
}

/// The operator of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompareSign {
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
pub(crate) enum ValueTerm {
    Number { value: f64, unit: Option<Box<str>>, text: Box<str> },
    Field(usize),
    Lateness(Box<str>),
    Pair(Arithmetic, Box<(ValueTerm, ValueTerm)>),
}

/// An operation on two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// Selects ends of processes.
#[derive(Debug, Clone)]
pub(crate) struct ExitTests {
    /// The processes, as a path to their ids; `None` for any process.
    pub(crate) processes: Option<FieldPath>,
    /// The ends, as a path to the ids of ended processes.
    pub(crate) exits: FieldPath,
    /// Whether a test refers to how the process ended.
    pub(crate) needs_events: bool,
    pub(crate) text: Arc<str>,
}

impl CompareSign {
    // Longer operators first, because `<` is a prefix of `<=`.
    pub(crate) const ALL: [(&'static str, Self); 8] = [
        ("<=", Self::LessOrEqual),
        (">=", Self::GreaterOrEqual),
        ("!=", Self::NotEqual),
        ("==", Self::Equal),
        ("=~", Self::Matches),
        ("=", Self::Equal),
        ("<", Self::Less),
        (">", Self::Greater),
    ];

    /// Returns whether the operator compares by order.
    pub(crate) fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual)
    }

    /// Returns whether the comparison of two known numbers is true.
    #[inline]
    #[allow(clippy::float_cmp, reason = "the operator that was asked for")]
    pub(crate) fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal | Self::Matches => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

impl TriggerCondition {
    /// Creates a condition from its parsed parts.
    pub(crate) fn new(text: &str, root: Clause, operands: Vec<FieldOperand>) -> Self {
        Self { text: text.into(), root, operands }
    }

    /// Returns the condition as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Display for TriggerCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl PartialEq for TriggerCondition {
    /// Conditions are equal if their text is equal.
    fn eq(&self, other: &Self) -> bool {
        // Compiled expressions have no equality, and the text determines all other parts.
        self.text == other.text
    }
}

impl Eq for TriggerCondition {}
