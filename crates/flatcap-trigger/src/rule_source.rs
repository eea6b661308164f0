//! A source that rules may name.

use flatcap_format::schema::CompiledSchema;

/// A source that rules may name.
#[derive(Debug, Clone, Copy)]
pub struct RuleSource<'s> {
    /// Its name.
    pub name: &'s str,
    /// Its nominal period, in nanoseconds, or 0 without a period.
    pub period_ns: u64,
    /// Its schema, or `None` if its payloads have no schema.
    pub schema: Option<&'s CompiledSchema>,
}
