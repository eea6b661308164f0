//! Errors that end an export.

use std::io;
use std::path::PathBuf;

use flatcap_format::segment::SegmentError;

/// An error that ends an export. Afterwards, no file or only some of the files have their final
/// names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A recording cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A file with the name of an exported file already exists. Nothing was written.
    #[error("{} exists already, nothing was exported; export into another directory or replace it with --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written. No file has its final name.
    #[error("cannot write {}: {error}; nothing was exported", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system call's error.
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
    /// The recordings have more sources than one export can have files.
    #[error("more than {limit} sources; choose some with --source")]
    Sources {
        /// The maximum number of sources.
        limit: usize,
    },
}
