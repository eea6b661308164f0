//! The reasons why an expression has no value.

use flatcap_format::segment::SegmentError;
use flatcap_query::QueryError;

/// The reason why an expression has no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromqlError {
    /// The expression is malformed, or uses a part of `PromQL` that is not supported.
    #[error("{0}")]
    Expression(String),
    /// The expression is valid, but cannot be evaluated, because a limit is exceeded or series do
    /// not match.
    #[error("{0}")]
    Evaluation(String),
    /// The recording cannot be queried.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The recording cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

impl PromqlError {
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::Expression(format!("{what} is not supported over recordings"))
    }
}
