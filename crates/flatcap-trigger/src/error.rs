//! Errors of rules.

use flatcap_query::{PathError, QueryError};

use crate::limits;

/// The reason why a condition is refused. Each message is one line that says what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// The text is longer than [`CONDITION_BYTES_MAX`](limits::CONDITION_BYTES_MAX).
    #[error(
        "condition of {bytes} bytes, more than {}; split it into several rules",
        limits::CONDITION_BYTES_MAX
    )]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// A syntax error.
    #[error("condition {text:?}, byte {at}: {what}")]
    Syntax {
        /// The condition.
        text: String,
        /// The position, in bytes.
        at: usize,
        /// The mistake, or what is expected at the position.
        what: String,
    },
    /// A field path has a syntax error.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No source has a field with this path.
    #[error("no field {path:?}{}", suggestion(.nearest))]
    NoField {
        /// The path.
        path: String,
        /// Similar paths.
        nearest: Vec<String>,
    },
    /// A path matches several fields, or does not match the schema.
    #[error("{0}")]
    Field(String),
    /// No source has this name.
    #[error("no source {name:?}{}", suggestion(.nearest))]
    NoSource {
        /// The name.
        name: String,
        /// Similar names.
        nearest: Vec<String>,
    },
    /// A comparison of incomparable values, or a transform that does not apply.
    #[error("{part:?}: {what}")]
    Mismatch {
        /// The part of the condition.
        part: String,
        /// The mistake, and what to write instead.
        what: String,
    },
    /// More rules than [`RULES_MAX`](limits::RULES_MAX).
    #[error("{count} rules, more than {}; remove some", limits::RULES_MAX)]
    TooManyRules {
        /// The number of rules.
        count: usize,
    },
}

/// An error in a rule.
#[derive(Debug, thiserror::Error)]
#[error("rule {rule}, {key}: {error}")]
pub struct RuleProblem {
    /// The rule's name.
    pub rule: String,
    /// The condition with the error: `when` or `clear`.
    pub key: &'static str,
    /// The error.
    #[source]
    pub error: RuleError,
}

impl RuleError {
    pub(crate) fn mismatch(part: &str, what: impl Into<String>) -> Self {
        Self::Mismatch { part: part.to_owned(), what: what.into() }
    }
}

impl From<QueryError> for RuleError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::NoField { path, nearest } => Self::NoField { path, nearest },
            QueryError::Path(error) => Self::Path(error),
            other => Self::Field(other.to_string()),
        }
    }
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}
