//! Collects the findings of a read, in addition to the rows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flatcap_format::replay::Notice;
use flatcap_query::QuerySummary;

/// Maximum number of messages that are kept. All messages are counted.
const TEXTS_MAX: usize = 100;

/// The findings of the last read. The thread that reads and the thread that queries the findings
/// share them.
#[derive(Debug, Default)]
pub(crate) struct ReadReport(Mutex<Findings>);

/// Problems of files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    /// Number of problems, including malformed samples and schemas.
    pub(crate) count: u64,
    /// Messages about the first problems, for people.
    pub(crate) texts: Vec<String>,
    undecodable: u64,
}

impl ReadReport {
    /// Removes the findings of an earlier read.
    pub(crate) fn clear(&self) {
        *self.lock() = Findings::default();
    }

    /// Adds a problem with a file.
    pub(crate) fn add(&self, notice: &Notice) {
        let mut findings = self.lock();
        findings.count += 1;
        if findings.texts.len() < TEXTS_MAX {
            findings.texts.push(notice.to_string());
        }
    }

    /// Adds the findings that the read reports at its end.
    pub(crate) fn finish(&self, summary: QuerySummary) {
        let undecodable = summary.undecodable + summary.malformed_schemas;
        let mut findings = self.lock();
        let new = undecodable.saturating_sub(findings.undecodable);
        findings.undecodable = undecodable;
        findings.count += new;
        if new > 0 {
            findings
                .texts
                .push(format!("{undecodable} samples or schemas are malformed; flatcap verify says more"));
        }
        if summary.has_more_elements {
            findings.texts.push("too many elements of lists: the later ones have the name \"?\"".to_owned());
        }
    }

    pub(crate) fn findings(&self) -> Findings {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Findings> {
        // The counters are valid even after a panic, whatever the panic interrupted.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
