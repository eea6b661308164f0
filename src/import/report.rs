//! What an import has come to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::recording::Written;

/// Most flaws that are told one by one; those beyond are counted.
pub const FLAWS_MAX: usize = 1000;

/// What an import has come to.
#[derive(Debug, Default)]
pub struct Report {
    /// What was written.
    pub written: Written,
    /// Bytes of input, unpacked.
    pub bytes: u64,
    /// What could not be imported, in the order of the input; at most [`FLAWS_MAX`].
    pub flaws: Vec<Flaw>,
    /// How many more there were.
    pub more_flaws: u64,
    /// What was passed over on purpose and how often, by what it is: heartbeats, repeats, packets of others.
    pub passed_over: BTreeMap<&'static str, u64>,
    /// It was told to stop before the end of the input.
    pub stopped: bool,
}

/// A place of the input that could not be imported, or not as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// In which file.
    pub path: PathBuf,
    /// Where, in bytes from its start; where the file is packed, from the start of what is in it.
    pub offset: u64,
    /// How many messages, rows or frames are missing by it; none where nobody can say.
    pub count: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl Report {
    /// Notes a flaw.
    pub fn flaw(&mut self, path: &Path, offset: u64, count: Option<u64>, what: impl Into<String>) {
        if self.flaws.len() < FLAWS_MAX {
            self.flaws.push(Flaw { path: path.to_owned(), offset, count, what: what.into() });
        } else {
            self.more_flaws += 1;
        }
    }

    /// Counts what is passed over on purpose.
    #[inline]
    pub fn pass_over(&mut self, what: &'static str) {
        *self.passed_over.entry(what).or_default() += 1;
    }

    /// Whether everything was whole.
    pub fn is_whole(&self) -> bool {
        self.flaws.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: an input that is all damage is told in bounded memory, and nothing goes uncounted. Method: more flaws than are kept.
    #[test]
    fn flaws_beyond_the_limit_are_counted() {
        let mut report = Report::default();
        assert!(report.is_whole());
        for offset in 0..FLAWS_MAX as u64 + 5 {
            report.flaw(Path::new("a"), offset, None, "bad");
            report.pass_over("heartbeats");
        }
        assert_eq!((report.flaws.len(), report.more_flaws), (FLAWS_MAX, 5));
        assert_eq!(report.passed_over["heartbeats"], FLAWS_MAX as u64 + 5);
        assert!(!report.is_whole());
    }
}
