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
