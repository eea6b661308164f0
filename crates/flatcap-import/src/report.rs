//! The result of an import.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::findings::ImportFinding;
use super::run_writer::ImportTotals;

/// Maximum number of flaws that are listed. Further flaws are only counted.
pub(crate) const FLAWS_MAX: usize = 1000;

/// The result of an import. The JSON output of `flatcap import` has these fields in this order.
#[derive(Debug, Default, Serialize)]
pub struct ImportReport {
    /// Totals of the written segments.
    #[serde(flatten)]
    pub totals: ImportTotals,
    /// Bytes of input, decompressed.
    #[serde(rename = "input_bytes")]
    pub bytes: u64,
    /// The kinds of input that were skipped intentionally, such as heartbeats, repeats and other
    /// packets, with their counts.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Properties that were recognized in the input, one line per file.
    pub recognized: Vec<String>,
    /// Assumptions about the input, in the order of files and lines.
    pub findings: Vec<ImportFinding>,
    /// At most `FLAWS_MAX` parts of the input that could not be imported, in the order of the
    /// input.
    pub flaws: Vec<ImportFlaw>,
    /// Number of flaws that are not listed, because there were more than `FLAWS_MAX`.
    pub more_flaws: u64,
    /// Whether the import was stopped before the end of the input.
    pub stopped: bool,
}

/// A part of the input that could not be imported completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportFlaw {
    /// The file.
    pub path: PathBuf,
    /// Offset from the start of the file, in bytes. For a compressed file, the offset refers to the
    /// decompressed content.
    pub offset: u64,
    /// Number of missing messages, rows or frames; `None` if unknown.
    pub count: Option<u64>,
    /// Description of the problem.
    pub what: String,
}

impl ImportReport {
    /// Adds a flaw.
    pub fn add_flaw(&mut self, path: &Path, offset: u64, count: Option<u64>, what: impl Into<String>) {
        if self.flaws.len() < FLAWS_MAX {
            self.flaws.push(ImportFlaw { path: path.to_owned(), offset, count, what: what.into() });
        } else {
            self.more_flaws += 1;
        }
    }

    /// Counts input that is skipped intentionally.
    #[inline]
    pub(crate) fn count_skipped(&mut self, what: &'static str) {
        *self.skipped.entry(what).or_default() += 1;
    }

    /// Returns whether there were no flaws and no findings.
    pub fn is_complete(&self) -> bool {
        self.flaws.is_empty() && self.findings.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that flaws beyond the limit take no memory and are counted.
    #[test]
    fn flaws_beyond_the_limit_are_counted() {
        let mut report = ImportReport::default();
        assert!(report.is_complete());
        for offset in 0..FLAWS_MAX as u64 + 5 {
            report.add_flaw(Path::new("a"), offset, None, "bad");
            report.count_skipped("heartbeats");
        }
        assert_eq!((report.flaws.len(), report.more_flaws), (FLAWS_MAX, 5));
        assert_eq!(report.skipped["heartbeats"], FLAWS_MAX as u64 + 5);
        assert!(!report.is_complete());
    }
}
