//! Errors of queries.

use crate::segment::SegmentError;

/// A path that is not well formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field path {text:?}, byte {at}: {what}")]
pub struct PathError {
    pub(super) text: String,
    pub(super) at: usize,
    pub(super) what: &'static str,
}

/// A query that cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// A path that is not well formed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No source has the field.
    #[error("no field {path:?} in these recordings{}", suggestion(.nearest))]
    NoField {
        /// The path as given.
        path: String,
        /// Similar paths.
        nearest: Vec<String>,
    },
    /// The last part of a path that several fields end with.
    #[error("{path:?} is the end of {count} paths: {}", list(.fields))]
    Ambiguous {
        /// The path as given.
        path: String,
        /// The number of fields.
        count: usize,
        /// The first of them.
        fields: Vec<String>,
    },
    /// An index or test of an element where there is no list.
    #[error("{path:?}: {field} is no list, so it has no element [{pick}]")]
    NoList {
        /// The path as given.
        path: String,
        /// The field before the brackets.
        field: String,
        /// The text in the brackets.
        pick: String,
    },
    /// The field holds no values that a column can have.
    #[error("{path:?} is a table inside itself, which has no columns; name its fields")]
    NoColumn {
        /// The path as given.
        path: String,
    },
    /// Rows should be the elements of one list, and the fields are of several lists, or of none.
    #[error("a row per element needs fields of one list{}", lists_text(.lists))]
    NotOneList {
        /// The lists of the fields.
        lists: Vec<String>,
    },
    /// A segment that cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", list(nearest)) }
}

fn lists_text(lists: &[String]) -> String {
    if lists.is_empty() {
        ", and these are of none".to_owned()
    } else {
        format!("; these are of {}", list(lists))
    }
}

fn list(fields: &[String]) -> String {
    fields.join(", ")
}
