//! Hints of messages about a name that does not exist.

use std::fmt;

use super::expected_value::listed;

/// The hint about an unknown name: what to write instead.
pub(super) struct NameHint<'a> {
    /// The name that was probably meant.
    pub(super) near: &'a Option<String>,
    /// Another table that has a key of this name.
    pub(super) elsewhere: &'a Option<String>,
    /// All names that are allowed there.
    pub(super) known: &'a [String],
    /// The words that introduce the names.
    pub(super) what: &'static str,
}

impl fmt::Display for NameHint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.near, self.elsewhere) {
            (Some(near), _) => write!(f, "did you mean {near}?"),
            (None, Some(table)) => write!(f, "it belongs in [{table}]"),
            (None, None) if self.known.is_empty() => {
                f.write_str("keys belong in a table, such as [recorder]")
            }
            (None, None) => write!(f, "{} {}", self.what, listed(self.known, "and")),
        }
    }
}
