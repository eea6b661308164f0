//! Why an import cannot go on.

use std::io;
use std::path::{Path, PathBuf};

/// Why nothing more could be imported. What is wrong with the input's content is no error: it is in the [`Report`](super::Report).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file cannot be opened or read: mend the path or its rights.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// The input is of another kind than was said, or of none.
    #[error("{}: {what}", path.display())]
    Kind {
        /// Which.
        path: PathBuf,
        /// What is there, and what to do.
        what: String,
    },
    /// Options that do not fit each other or the input.
    #[error("{0}")]
    Options(String),
    /// The segments cannot be written. What was published before is whole.
    #[error(
        "cannot write segments to the data directory: {0}; what was imported before is kept, and an import from the start may follow into another directory"
    )]
    Write(#[source] io::Error),
    /// More sources than a recording can have.
    #[error("more than {limit} sources in one import; import fewer files at once")]
    Sources {
        /// The most there can be.
        limit: usize,
    },
}

impl ImportError {
    /// For `map_err`: a file could not be read.
    pub(super) fn read(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| Self::Read { path: path.clone(), error }
    }
}
