//! A source that rules may name.

use flatcap_format::schema::CompiledSchema;

/// A source that rules may name.
#[derive(Debug, Clone, Copy)]
pub struct RuleSource<'s> {
    /// The source's name.
    pub name: &'s str,
    /// The source's nominal period, in nanoseconds. 0 if there is no nominal period.
    pub period_ns: u64,
    /// The source's schema, or `None` if its payloads have no schema.
    pub schema: Option<&'s CompiledSchema>,
}
