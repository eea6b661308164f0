//! Hints for messages about names that do not exist.

use super::expected_value::listed;

/// Returns a hint about what to write instead of an unknown name. The hint is `near`, the name that
/// the user probably meant. If `near` is `None`, the hint is the list of `known` names, which
/// `what` introduces.
pub(super) fn name_hint(near: Option<&str>, known: &[String], what: &str) -> String {
    match near {
        Some(near) => format!("did you mean {near}?"),
        None if known.is_empty() => "keys belong in a table, such as [recorder]".to_owned(),
        None => format!("{what} {}", listed(known, "and")),
    }
}
