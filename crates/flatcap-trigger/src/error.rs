//! Errors of rules.

use flatcap_query::{ConditionError, PathError, QueryError};

use crate::limits;

/// The reason why a condition is rejected. Each message is one line that says what to write
/// instead.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// A condition that is not well formed, or that does not fit the fields that it compares.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// No source has a field with this path.
    #[error("no field {path:?}{}", suggestion(.nearest))]
    NoField {
        /// The path.
        path: String,
        /// Paths that are similar to the missing path.
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
        /// Names of sources that are similar to the missing name.
        nearest: Vec<String>,
    },
    /// There are more rules than [`RULES_MAX`](limits::RULES_MAX).
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
    /// The key of the condition with the error, which is `when` or `clear`.
    pub key: &'static str,
    /// The error.
    #[source]
    pub error: RuleError,
}

impl RuleError {
    pub(crate) fn mismatch(part: &str, what: impl Into<String>) -> Self {
        Self::Condition(ConditionError::Mismatch { part: part.to_owned(), what: what.into() })
    }
}

impl From<QueryError> for RuleError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::NoField { path, nearest } => Self::NoField { path, nearest },
            QueryError::Condition(error) => Self::Condition(error),
            other => Self::Field(other.to_string()),
        }
    }
}

impl From<PathError> for RuleError {
    fn from(error: PathError) -> Self {
        Self::Condition(error.into())
    }
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}
