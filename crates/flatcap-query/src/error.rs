//! Errors of queries.

use flatcap_format::segment::SegmentError;
use flatcap_tasks::schema::TASKS_NAME;

/// A path that is not well formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field path {text:?}, byte {at}: {what}")]
pub struct PathError {
    pub(super) text: String,
    pub(super) at: usize,
    pub(super) what: &'static str,
}

/// A condition that is not well formed, or that does not fit the fields that it compares.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// A path in the condition is not well formed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The condition is not well formed for another reason.
    #[error("condition {text:?}, byte {at}: {what}")]
    Syntax {
        /// The condition.
        text: String,
        /// The position of the mistake, in bytes from the start of the condition.
        at: usize,
        /// The mistake, or what is expected at the position.
        what: String,
    },
    /// The string is too long.
    #[error("condition of {bytes} bytes, more than {bytes_max}; split it into several")]
    TooLong {
        /// The length of the string, in bytes.
        bytes: usize,
        /// The maximum length, in bytes.
        bytes_max: usize,
    },
    /// A comparison of values that cannot be compared, or a transform that cannot be applied to its
    /// field.
    #[error("{part:?}: {what}")]
    Mismatch {
        /// The part of the condition with the mistake.
        part: String,
        /// The mistake, and what to write instead.
        what: String,
    },
    /// A path leads to no field, or does not match the schema.
    #[error("{0}")]
    Field(String),
    /// A path leads to several fields.
    #[error("condition: {path:?} is {count} fields; name one of them: {fields}")]
    Several {
        /// The path.
        path: String,
        /// The number of fields.
        count: usize,
        /// The first few of the fields to which the path leads.
        fields: String,
    },
    /// The fields of the condition belong to several sources.
    #[error("condition {text:?}: no source has all of its fields; compare fields of one source")]
    NoSource {
        /// The condition.
        text: String,
    },
}

/// A query that cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// A path that is not well formed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No source has the field.
    #[error("no field {path:?} in these recordings{}", suggestion(path, .nearest))]
    NoField {
        /// The path as given.
        path: String,
        /// Paths that are similar to the given path.
        nearest: Vec<String>,
    },
    /// Several fields have a path that ends with this path.
    #[error("{path:?} is the end of {count} paths: {}", list(.fields))]
    Ambiguous {
        /// The path as given.
        path: String,
        /// The number of fields.
        count: usize,
        /// The first few of the fields whose path ends with this path.
        fields: Vec<String>,
    },
    /// An index or a test of an element is written after a field that is not a list.
    #[error("{path:?}: {field} is no list, so it has no element [{pick}]")]
    NoList {
        /// The path as given.
        path: String,
        /// The field before the brackets.
        field: String,
        /// The string in the brackets.
        pick: String,
    },
    /// The field contains no values that a column can hold.
    #[error("{path:?} is a table inside itself, which has no columns; name its fields")]
    NoColumn {
        /// The path as given.
        path: String,
    },
    /// The rows should be elements of one list, but the fields are in several lists, or in no list.
    #[error("a row per element needs fields of one list{}", lists_text(.lists))]
    NotOneList {
        /// The lists that contain the fields.
        lists: Vec<String>,
    },
    /// A condition that does not fit its fields.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// A segment that cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

fn suggestion(path: &str, nearest: &[String]) -> String {
    // The computed source exists only in recordings with samples of the source `sched`.
    let (source, nearest_source) =
        (path.split('.').next(), nearest.first().and_then(|path| path.split('.').next()));
    if source == Some(TASKS_NAME) && nearest_source != source {
        return format!(": {TASKS_NAME} is computed from the source sched, which they do not have");
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the error for a missing computed field names the source from which the field is
    // computed, instead of a similar field of another source.
    #[test]
    fn computed_fields_need_their_source() {
        let error = |path: &str, nearest: &str| {
            QueryError::NoField { path: path.to_owned(), nearest: vec![nearest.to_owned()] }.to_string()
        };
        let other = error("tasks.processes[*].run_delay", "process.processes[*].run_time");
        assert!(other.contains("source sched") && !other.contains("did you mean"), "{other}");
        let same = error("tasks.processes[*].on_cpus", "tasks.processes[*].on_cpu");
        assert!(same.ends_with("did you mean tasks.processes[*].on_cpu?"), "{same}");
    }
}
