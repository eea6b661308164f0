//! Makes names of fields from titles in imported data.

use flatcap_format::consumer_names::DistinctNames;
use flatcap_format::schema::NAME_BYTES_MAX;

/// Maximum number of characters of a name. The limit leaves space for a number that makes the name
/// unique.
const CHARS_MAX: usize = NAME_BYTES_MAX - 8;

/// Returns a field name for each title. A field name consists of letters, digits and underscores.
/// The names differ even if case is ignored.
pub(super) fn field_names(titles: &[String]) -> Vec<String> {
    let mut taken = DistinctNames::default();
    let mut names = Vec::with_capacity(titles.len());
    for (position, title) in titles.iter().enumerate() {
        let plain = field_name(title);
        let plain = if plain.is_empty() { format!("column_{}", position + 1) } else { plain };
        names.push(taken.take(&plain, '_'));
    }
    names
}

/// Converts a title to the name of a field. For example, `CPU %user` becomes `CPU_user`. The name
/// is empty if the title has no letter or digit.
pub(super) fn field_name(title: &str) -> String {
    let mut name = String::new();
    for character in title.chars() {
        if character.is_ascii_alphanumeric() {
            name.push(character);
        } else if !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
    }
    name.truncate(CHARS_MAX);
    let name = name.trim_end_matches('_');
    // In programming languages, names of fields must not begin with a digit.
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("_{name}") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that titles become names of fields, and that all names are unique.
    #[test]
    fn titles_become_names() {
        let all = ["CPU %user", "cpu.user", "cpu user", "", "%", "5min", "tps", "caf\u{e9}"];
        let names = field_names(&all.map(str::to_owned));
        assert_eq!(
            names,
            ["CPU_user", "cpu_user_2", "cpu_user_3", "column_4", "column_5", "_5min", "tps", "caf"]
        );
        assert!(field_name(&"x".repeat(400)).len() <= CHARS_MAX);
    }
}
