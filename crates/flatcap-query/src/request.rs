//! A query of a recording.

use flatcap_format::replay::ReplayFilter;
use std::collections::BTreeSet;

use super::language::RowCondition;
use crate::names::path::FieldPath;

/// A query, which consists of the fields, the times and the form of the values.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The requested fields. Empty to request all fields.
    pub fields: Vec<FieldPath>,
    /// The requested sources and times. The `fields` of the filter are not used.
    pub filter: ReplayFilter,
    /// The condition that the returned rows must pass. `None` returns all rows. The condition
    /// applies to the sources that have all fields of the condition. These fields need not be
    /// requested. Rows of other sources are not filtered. Blocks without passing rows are skipped,
    /// unless rates need them.
    pub condition: Option<RowCondition>,
    /// The length of a step of wall time, in nanoseconds. A computed source such as `tasks` has a
    /// sample in each step. With `None`, the source has a sample at the end of each of its periods.
    pub computed_step_ns: Option<u64>,
    /// Lists whose elements need not be distinguished, such as `process.exits`. The rows of these
    /// lists have the element [`NO_ELEMENT`](super::NO_ELEMENT).
    pub unnamed_lists: BTreeSet<String>,
}

impl Query {
    /// Returns whether the query requests the samples of a source. A computed source is requested
    /// only if the query contains its name or one of its fields.
    pub(super) fn wants(&self, source: &str, is_computed: bool) -> bool {
        // The values of a computed source repeat values of another source, so a query of all fields
        // leaves out the computed source.
        let is_any = self.filter.sources.is_empty() && !(is_computed && self.fields.is_empty());
        is_any || self.filter.sources.contains(source)
    }
}
