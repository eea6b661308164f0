//! A question to a recording.

use std::collections::BTreeSet;

use super::condition::RowCondition;
use super::path::FieldPath;
use crate::replay::ReplayFilter;

/// A question: which fields, of which time, in which rows.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The fields; empty for all.
    pub fields: Vec<FieldPath>,
    /// The sources and times; its `fields` are not used.
    pub filter: ReplayFilter,
    /// The rows for which it holds; `None` for all. It applies to the sources that have all of its
    /// fields, which need not be among the asked ones; rows of other sources are returned as
    /// without it. Blocks without such rows are skipped, unless rates need them.
    pub condition: Option<RowCondition>,
    /// The steps of wall time, in nanoseconds, of which computed sources such as `tasks` have a
    /// sample each, in the step itself; `None` for samples at the end of each of their periods.
    pub computed_step_ns: Option<u64>,
    /// Lists whose elements need not be told apart, as `process.exits`: rows of them have
    /// [`NO_ELEMENT`](super::NO_ELEMENT).
    pub unnamed_lists: BTreeSet<String>,
}

impl Query {
    /// Returns whether it asks a source. A computed one is asked by name or for its fields: it
    /// repeats another source.
    pub(super) fn wants(&self, source: &str, is_computed: bool) -> bool {
        let is_any = self.filter.sources.is_empty() && !(is_computed && self.fields.is_empty());
        is_any || self.filter.sources.contains(source)
    }
}
