//! The rules of other programs for names, in one place. Exports, importers and queries make their
//! names with these functions.
//!
//! - Names of columns, and names of fields of imports, must not differ only in case (Spark,
//!   `DuckDB`, Hive, Trino).
//! - Names of files do not begin with `_` or `.`, because such files are hidden (Spark, Hive,
//!   Trino, Athena).
//! - Names of files must not differ only in case (file systems of macOS and Windows).
//! - Each source of each host has its own topic, because readers merge the messages of a topic
//!   (MCAP).
//! - Names of metrics and labels consist of ASCII letters, digits and `_`, and do not begin with a
//!   digit (Prometheus).
//! - Names of counters end with `_total`. The name of any other metric ends with `_total` only if
//!   the name of its field does (Prometheus).
//!
//! This module never reads a recording.

use std::collections::BTreeSet;

/// Maximum length of a file name without its extension, in bytes. This leaves space for a suffix
/// within the 255 bytes that a file system allows.
const FILE_BYTES_MAX: usize = 128;

/// Names that differ even if case is ignored.
#[derive(Debug, Clone, Default)]
pub struct DistinctNames {
    /// The names in use, in lower case.
    taken: BTreeSet<String>,
}

impl DistinctNames {
    /// Reserves a name and returns it. If the wanted name is taken, a number is appended to make it
    /// distinct, for example `a-2` with the separator `-`.
    pub fn take(&mut self, wanted: &str, separator: char) -> String {
        let mut name = wanted.to_owned();
        let mut number = 1_u64;
        while !self.taken.insert(name.to_lowercase()) {
            number += 1;
            name = format!("{wanted}{separator}{number}");
        }
        name
    }
}

/// Converts any string to the name of a file. The name consists of ASCII letters, digits, `.`, `_`
/// and `-`. It begins with a letter or a digit, so that no reader hides the file and no program
/// mistakes the name for an option. Other characters become `_`, or `x` if they are the first
/// character. The name has at most 128 bytes. For an empty string, the name is `x`.
pub fn file_stem(text: &str) -> String {
    let plain = |(at, c): (usize, char)| match c {
        '.' | '-' | '_' if at > 0 => c,
        _ if c.is_ascii_alphanumeric() => c,
        _ if at == 0 => 'x',
        _ => '_',
    };
    let name: String = text.char_indices().map(plain).take(FILE_BYTES_MAX).collect();
    if name.is_empty() { "x".to_owned() } else { name }
}

/// Returns the topic of a source. This is the name of the source. If the recording has several
/// hosts, the name of the host comes first.
pub fn topic(source: &str, host: Option<&str>) -> String {
    host.map_or_else(|| source.to_owned(), |host| format!("{host}/{source}"))
}

/// Converts any string to the name of a Prometheus label.
pub fn label_name(text: &str) -> String {
    let prefix = if text.starts_with(|first: char| first.is_ascii_digit()) { "_" } else { "" };
    format!("{prefix}{}", metric_part(text))
}

/// Converts any string to a part of the name of a Prometheus metric.
pub fn metric_part(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Returns whether a string is already a valid name of a Prometheus metric or label.
pub fn is_metric_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Proves the rules for any names. Reserved names differ without regard to case, files are
        // never hidden, and labels have only the characters that Prometheus allows.
        #[test]
        fn names_follow_the_rules(texts in prop::collection::vec("[aAbB_.\\-1 \u{e4}\u{c4}]{0,4}", 0..24)) {
            let mut names = DistinctNames::default();
            let taken: Vec<String> = texts.iter().map(|text| names.take(text, '-')).collect();
            let folded: BTreeSet<String> = taken.iter().map(|name| name.to_lowercase()).collect();
            prop_assert_eq!(folded.len(), texts.len());
            for text in &texts {
                let stem = file_stem(text);
                prop_assert!(stem.starts_with(|first: char| first.is_ascii_alphanumeric()), "{}", stem);
                prop_assert!(stem.len() <= FILE_BYTES_MAX);
                prop_assert!(text.is_empty() || is_metric_name(&label_name(text)), "{}", text);
            }
        }
    }

    // Proves that a name is unchanged if the rules allow it.
    #[test]
    fn names_stay_if_they_can() {
        let mut names = DistinctNames::default();
        let taken = ["a", "a-2", "a", "A", "b"].map(|name| names.take(name, '-'));
        assert_eq!(taken, ["a", "a-2", "a-3", "A-4", "b"]);
        let stems = ["cpu", "../../etc/passwd", "_gaps", "-rf", "a b\n", "", "disk.sda_1"].map(file_stem);
        assert_eq!(stems, ["cpu", "x._.._etc_passwd", "xgaps", "xrf", "a_b_", "x", "disk.sda_1"]);
        assert_eq!((topic("cpu", None), topic("cpu", Some("db1"))), ("cpu".into(), "db1/cpu".into()));
        assert!(is_metric_name("node_cpu:rate5m") && !is_metric_name("5m") && !is_metric_name("a-b"));
    }
}
