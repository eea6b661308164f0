//! Conditions of rules as users write them, parsed: `pressure.io_some.total:rate(100ms) > 20%`.

use std::fmt::{self, Display};
use std::sync::Arc;

use flatcap_format::query::FieldPath;
use regex::Regex;

use crate::transform::Transform;

/// A condition on samples, parsed.
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
/// Paths are those of queries, texts stand in double quotes, and an operator `-` after a path
/// between spaces. What is not known - a value that is absent, a window that is not filled, a
/// division by zero - makes a comparison unknown, and a rule never fires by it.
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
    /// A name for the same field of all elements, which need no `any`.
    pub(crate) is_alias: bool,
    /// As written, with transforms.
    pub(crate) text: Box<str>,
}

/// A part of a condition.
#[derive(Debug, Clone)]
pub(crate) enum Clause {
    All(Vec<Clause>),
    Any(Vec<Clause>),
    Not(Box<Clause>),
    Compare(CompareClause),
    /// About the elements of one list: of each of them, or of one.
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

/// What a value is compared with.
#[derive(Debug, Clone)]
pub(crate) enum RightSide {
    Value(ValueTerm),
    Text(Box<str>),
    Expression(Regex),
    Truth(bool),
}

/// How a comparison compares.
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

/// A value computed of numbers and fields.
#[derive(Debug, Clone)]
pub(crate) enum ValueTerm {
    Number { value: f64, unit: Option<Box<str>>, text: Box<str> },
    Field(usize),
    Lateness(Box<str>),
    Pair(Arithmetic, Box<(ValueTerm, ValueTerm)>),
}

/// How two values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// Which ends of processes count.
#[derive(Debug, Clone)]
pub(crate) struct ExitTests {
    /// The processes, as a path to their ids; none: any process.
    pub(crate) processes: Option<FieldPath>,
    /// Their ends, as a path to the ids of ended processes.
    pub(crate) exits: FieldPath,
    /// A test is about how the process ended.
    pub(crate) needs_events: bool,
    pub(crate) text: Arc<str>,
}

impl CompareSign {
    /// The longer ones first: `<` begins `<=`.
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

    /// Returns whether it compares by size.
    pub(crate) fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual)
    }

    /// Returns whether two known numbers compare so.
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
    /// Creates a condition of what was parsed.
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
    /// Conditions are equal if they are written equally.
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for TriggerCondition {}
