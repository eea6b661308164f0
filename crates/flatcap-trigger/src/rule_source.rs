//! A source that rules may name.

use flatcap_format::schema::CompiledSchema;

/// A source that rules may name.
#[derive(Debug, Clone, Copy)]
pub struct RuleSource<'s> {
    /// Its name.
    pub name: &'s str,
    /// Its nominal period, in nanoseconds; 0 if it has none.
    pub period_ns: u64,
    /// Its schema; none if its payloads have none.
    pub schema: Option<&'s CompiledSchema>,
}

impl RuleSource<'_> {
    /// Returns whether samples may leave out elements of a list that exist. `list` is its path in
    /// the root table, with the elements that are picked.
    pub(crate) fn leaves_out_elements(&self, list: &str) -> bool {
        let outer = list.split(['[', '.']).next();
        self.schema.zip(outer).is_some_and(|(schema, outer)| schema.leaves_out_elements(outer))
    }
}
