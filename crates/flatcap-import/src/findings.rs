//! Findings, which are the assumptions of an importer about ambiguous input.

use std::path::{Path, PathBuf};

use flatcap_text::human::shell_word;
use serde::Serialize;

/// The subject of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The encoding of the text.
    Encoding,
    /// The character between cells.
    Delimiter,
    /// Lines before the header.
    Header,
    /// The decimal mark of numbers.
    Decimal,
    /// A word that stands for a missing value.
    Absent,
    /// The type of a column.
    Type,
    /// The time format.
    TimeForm,
    /// A local time that occurs twice in the zone.
    RepeatedHour,
    /// A local time that does not exist in the zone.
    MissingHour,
    /// A word that names no time zone, or names several time zones.
    Zone,
    /// Rows whose time is before the time of the row above.
    Order,
    /// Key columns.
    Key,
}

/// An assumption about a property of an input, with the option that sets this property explicitly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportFinding {
    /// The file.
    pub path: PathBuf,
    /// The subject.
    pub kind: FindingKind,
    /// The first line for which the assumption was made.
    pub line: u64,
    /// Number of rows or cells for which the assumption was made.
    pub count: u64,
    /// The ambiguity and the assumption.
    pub assumed: String,
    /// The option that sets the property, or `None` if only a change of the input can set it.
    pub option: Option<String>,
}

/// The findings of one file.
#[derive(Debug)]
pub(super) struct ImportFindings {
    path: PathBuf,
    found: Vec<ImportFinding>,
}

/// The number of occurrences of an assumption, and the line of the first occurrence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) line: u64,
    pub(super) count: u64,
}

/// Returns an option with its value. The value is quoted for a shell if necessary.
pub(super) fn option_with(option: &str, value: &str) -> String {
    format!("{option} {}", shell_word(value))
}

impl Tally {
    /// Counts an occurrence.
    pub(super) fn add(&mut self, line: u64) {
        self.add_many(Self { line, count: 1 });
    }

    /// Adds the occurrences of another tally.
    pub(super) fn add_many(&mut self, other: Self) {
        if self.count == 0 {
            self.line = other.line;
        }
        self.count += other.count;
    }
}

impl ImportFindings {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), found: Vec::new() }
    }

    /// Adds a finding, unless its tally is empty.
    pub(super) fn add(
        &mut self,
        kind: FindingKind,
        of: Tally,
        assumed: impl Into<String>,
        option: Option<String>,
    ) {
        if of.count > 0 {
            let (path, assumed) = (self.path.clone(), assumed.into());
            self.found.push(ImportFinding { path, kind, line: of.line, count: of.count, assumed, option });
        }
    }

    /// Adds the findings of another list.
    pub(super) fn append(&mut self, mut other: Self) {
        self.found.append(&mut other.found);
    }

    /// Returns the findings in the order of their lines.
    pub(super) fn into_sorted(mut self) -> Vec<ImportFinding> {
        self.found.sort_by_key(|finding| (finding.line, finding.kind));
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a shell reads each quoted word unchanged, whatever characters it contains.
    #[test]
    fn words_survive_a_shell() {
        assert_eq!(option_with("--type", "user=float"), "--type user=float");
        for text in ["", "user %", "a'b", "$(x) `y` \"z\"", "a;b|c>d", "*?[~]", "\u{fc}", "two\nlines"] {
            let command = format!("printf %s {}", shell_word(text));
            let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text, "{command}");
        }
    }
}
