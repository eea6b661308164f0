//! Findings: what an importer assumed about its input, since the input allows another reading.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// What a finding is about.
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
    /// A word for a cell without a value.
    Absent,
    /// The type of a column.
    Type,
    /// The form of times.
    TimeForm,
    /// A local time that the zone has twice.
    RepeatedHour,
    /// A local time that the zone does not have.
    MissingHour,
    /// A zone that a word names, or fails to name.
    Zone,
    /// Rows whose times fall.
    Order,
    /// Columns that tell devices apart.
    Key,
}

/// A guess about an input: where, how often, what was assumed, and the option that settles it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportFinding {
    /// The file.
    pub path: PathBuf,
    /// What it is about.
    pub kind: FindingKind,
    /// The first line that it concerns.
    pub line: u64,
    /// Rows or cells that it concerns.
    pub count: u64,
    /// What the input has, and what was assumed.
    pub assumed: String,
    /// The option that settles it; none if only another input does.
    pub option: Option<String>,
}

/// The findings of one file.
#[derive(Debug)]
pub(super) struct ImportFindings {
    path: PathBuf,
    found: Vec<ImportFinding>,
}

/// The first line of what occurs several times, and how often it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) line: u64,
    pub(super) count: u64,
}

impl Tally {
    /// Counts an occurrence.
    pub(super) fn add(&mut self, line: u64) {
        self.add_many(Self { line, count: 1 });
    }

    /// Counts the occurrences of another tally.
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

    /// Adds a finding, unless it never occurred.
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

    /// Adds the findings of others.
    pub(super) fn append(&mut self, mut other: Self) {
        self.found.append(&mut other.found);
    }

    /// Returns the findings in the order of their lines.
    pub(super) fn into_sorted(mut self) -> Vec<ImportFinding> {
        self.found.sort_by_key(|finding| (finding.line, finding.kind));
        self.found
    }
}
