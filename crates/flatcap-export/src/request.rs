//! The request for an export, and its result.

use std::path::PathBuf;

use flatcap_format::replay::{ReplayFilter, recording_span};
use flatcap_format::segment::SegmentError;
use flatcap_query::FieldPath;
use jiff::Timestamp;

use crate::error::ColumnarError;

/// The request for an export, which states the input and the output.
#[derive(Debug, Clone)]
pub(crate) struct ColumnarRequest {
    /// Paths of segments, and of directories of segments.
    pub(crate) paths: Vec<PathBuf>,
    /// The selection of sources and times.
    pub(crate) filter: ReplayFilter,
    /// The selected fields; empty to select all fields.
    pub(crate) fields: Vec<FieldPath>,
    /// Keeps only the first sample of each source in each step of this length, in nanoseconds.
    /// `None` keeps all samples.
    pub(crate) step_ns: Option<u64>,
    /// Whether existing files with the same names are replaced.
    pub(crate) should_replace: bool,
}

impl ColumnarRequest {
    /// Returns the error for a selected time without samples, or `None` if all times are selected.
    pub(crate) fn no_samples(&self) -> Result<Option<ColumnarError>, SegmentError> {
        let ReplayFilter { since_ns, until_ns, elapsed, host, .. } = &self.filter;
        if since_ns.is_none() && until_ns.is_none() && elapsed.is_none() {
            return Ok(None);
        }
        let time = |wall_ns: &i64| Timestamp::from_nanosecond(i128::from(*wall_ns)).unwrap_or_default();
        let span = match recording_span(&self.paths, host.as_ref())? {
            Some(span) => format!("the recording spans {:.6} to {:.6}", time(span.start()), time(span.end())),
            None => "the recording has none at all".to_owned(),
        };
        Ok(Some(ColumnarError::NoSamples(span)))
    }
}

/// The result of an export.
#[derive(Debug, Default)]
pub(crate) struct ColumnarReport {
    /// The files, ordered by the names of their sources.
    pub(crate) files: Vec<ColumnarFile>,
    /// Number of samples that do not fit their schema or whose schema is malformed. These samples
    /// are not exported.
    pub(crate) undecodable: u64,
    /// Whether some elements of lists inside lists have no name, because there are too many of
    /// them.
    pub(crate) has_unnamed_elements: bool,
    /// Lines about fields with values that are too large for their column, one line per field. The
    /// cells of these values are empty.
    pub(crate) large_values: Vec<String>,
    /// Remarks on the contents for the user, one line each.
    pub(crate) remarks: Vec<String>,
}

/// An exported file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct ColumnarFile {
    /// Name of the source; `None` for a file of gaps, marks or sources.
    pub(crate) source: Option<String>,
    /// Path of the file.
    pub(crate) path: PathBuf,
    /// Number of rows in the file.
    pub(crate) rows: u64,
    /// Length of the file, in bytes.
    pub(crate) bytes: u64,
}
