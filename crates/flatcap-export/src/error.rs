//! Errors that end an export.

use std::io;
use std::path::PathBuf;

use arrow_schema::ArrowError;
use flatcap_arrow::BatchError;
use flatcap_format::segment::SegmentError;
use flatcap_query::QueryError;

/// Maximum number of sources that an error names, so that a line stays readable.
const NAMED_MAX: usize = 8;

/// An error that ends an export. After an error, either no file has its final name, or only some
/// files have it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnarError {
    /// A recording cannot be read.
    #[error(transparent)]
    Segment(SegmentError),
    /// The recording does not contain the fields.
    #[error("--fields: {0}")]
    Fields(QueryError),
    /// Arguments that are invalid or conflict.
    #[error("{0}")]
    Usage(String),
    /// A signal ended the export.
    #[error("stopped by a signal: nothing was exported")]
    Stopped,
    /// No file could be read; the notices state the reasons.
    #[error("no file could be read")]
    NothingRead,
    /// There is no sample in the selected time.
    #[error("no samples in the selected time; {0}")]
    NoSamples(String),
    /// A file with this name exists; no file was written.
    #[error("{} exists already, nothing was exported; export to another place or replace it with --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// An integer is too large for the type of its column.
    #[error("{0}; export with --unsigned, or leave the field out with --fields")]
    TooLarge(BatchError),
    /// Values cannot be converted to a column. This is a bug of the program.
    #[error("cannot encode the values: {0}; nothing was exported; please report it as a defect")]
    Encode(String),
    /// The export would have more files than the maximum.
    #[error("more than {limit} files; choose some sources with --source")]
    Files {
        /// The maximum number of files.
        limit: usize,
    },
    /// A file cannot be written. No file has its final name.
    #[error("cannot write {}: {error}; nothing was exported", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system call, or of the encoder.
        #[source]
        error: io::Error,
    },
    /// A complete file cannot be renamed to its final name.
    #[error("cannot sync and rename {}: {error}; {done} file(s) before it are complete", path.display())]
    Publish {
        /// The file.
        path: PathBuf,
        /// Number of files that were renamed to their final names before the error.
        done: usize,
        /// The system call's error.
        #[source]
        error: io::Error,
    },
    /// Standard output or standard error cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl From<SegmentError> for ColumnarError {
    fn from(error: SegmentError) -> Self {
        Self::Segment(error)
    }
}

impl From<QueryError> for ColumnarError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Segment(error) => Self::Segment(error),
            other => Self::Fields(other),
        }
    }
}

impl From<BatchError> for ColumnarError {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Query(error) => error.into(),
            error @ BatchError::TooLarge { .. } => Self::TooLarge(error),
            BatchError::SeveralSources { one, other } => several_sources(&[&one, &other]),
            BatchError::Encode(what) => Self::Encode(what),
            other => Self::Usage(other.to_string()),
        }
    }
}

/// Returns the error for several sources if the format can contain only one source.
pub(crate) fn several_sources(names: &[&str]) -> ColumnarError {
    let listed = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > NAMED_MAX { ", ..." } else { "" };
    ColumnarError::Usage(format!(
        "arrow has one source in a file: choose one of {listed}{more} with --source, or name a directory without --fields"
    ))
}

/// Returns the error for an array that cannot be created.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn encoding_error(error: ArrowError) -> ColumnarError {
    ColumnarError::Encode(error.to_string())
}
