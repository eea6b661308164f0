//! A query of a recording.

use flatcap_format::replay::ReplayFilter;
use std::collections::BTreeSet;

use super::language::RowCondition;
use super::path::FieldPath;

/// A query: the fields, the times and the form of the values.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The fields. Empty for all fields.
    pub fields: Vec<FieldPath>,
    /// The sources and times; its `fields` are not used.
    pub filter: ReplayFilter,
    /// The condition that rows must pass; `None` for all rows. The condition applies to the sources
    /// that have all of its fields. The fields of the condition need not be requested fields. Rows
    /// of other sources are not filtered. Blocks without passing rows are skipped, unless rates
    /// need them.
    pub condition: Option<RowCondition>,
    /// The steps of wall time, in nanoseconds, in each of which a computed source such as `tasks`
    /// has a sample. `None` for samples at the end of each of its periods.
    pub computed_step_ns: Option<u64>,
    /// Lists whose elements need not be distinguished, such as `process.exits`: their rows have
    /// [`NO_ELEMENT`](super::NO_ELEMENT).
    pub unnamed_lists: BTreeSet<String>,
}

impl Query {
    /// Returns whether the query wants a source. A computed source must be requested by name or by
    /// its fields.
    pub(super) fn wants(&self, source: &str, is_computed: bool) -> bool {
        // A computed source repeats another source.
        let is_any = self.filter.sources.is_empty() && !(is_computed && self.fields.is_empty());
        is_any || self.filter.sources.contains(source)
    }
}
