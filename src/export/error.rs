//! Why an export cannot go on.

use std::io;
use std::path::PathBuf;

use crate::segment::SegmentError;

/// Why there are no files, or not all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A recording cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A file of that name is there: nothing was written.
    #[error("{} exists already and nothing was exported: export into another directory, or replace it with --force", path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// A file cannot be written: none was.
    #[error("cannot write {}: {error}; nothing was exported", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// A file that is written cannot be given its name.
    #[error("cannot bring {} to the medium under its name: {error}; {done} file(s) before it are there and whole", path.display())]
    Publish {
        /// Which.
        path: PathBuf,
        /// How many were published.
        done: usize,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// More sources than can be files of one export.
    #[error("more than {limit} sources; choose some with --source")]
    Sources {
        /// The most there can be.
        limit: usize,
    },
}
