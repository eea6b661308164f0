//! Collects the findings of a reading in addition to rows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flatcap_format::replay::Notice;
use flatcap_query::QuerySummary;

/// Maximum number of messages that are kept; all are counted.
const TEXTS_MAX: usize = 100;

/// The findings of the last reading, shared by the thread that reads and the one that queries them.
#[derive(Debug, Default)]
pub(crate) struct ReadReport(Mutex<Findings>);

/// Problems of files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    /// Their number, with samples and schemas that are malformed.
    pub(crate) count: u64,
    /// The first of them, for people.
    pub(crate) texts: Vec<String>,
    undecodable: u64,
}

impl ReadReport {
    /// Forgets what an earlier reading found.
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

    /// Sets what the reading says at its end.
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
        // Counters are valid whatever a panic interrupted.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
