//! Errors that end an import.

use std::io;
use std::path::{Path, PathBuf};

use flatcap_os::stoppable_input;

/// An error that ends an import. Damaged content is not an error, but is listed in the
/// [`ImportReport`](super::ImportReport).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file cannot be opened or read. The user must correct the path or the access rights.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system call's error.
        #[source]
        error: io::Error,
    },
    /// The input has an unknown format, or a format other than the given one.
    #[error("{}: {what}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// The detected format, and the advice for the user.
        what: String,
    },
    /// Options that contradict each other or the input.
    #[error("{0}")]
    Options(String),
    /// The segments cannot be written. The segments that were sealed and renamed before the error
    /// are complete.
    #[error(
        "cannot write segments to the data directory: {0}; segments written so far are kept; to import again from the start, use another directory"
    )]
    Write(#[source] io::Error),
    /// A stop was requested. The importers report a stop as
    /// [`ImportReport::stopped`](super::ImportReport), not as an error.
    #[error("stopped while waiting for input")]
    Stopped,
    /// The input has more sources than a recording can have.
    #[error("more than {limit} sources in one import; import fewer files at once")]
    Sources {
        /// The maximum.
        limit: usize,
    },
}

impl ImportError {
    /// Returns a function for `map_err` that wraps an I/O error into `Read`. If the error is due to
    /// a stop, it is wrapped into `Stopped`.
    pub(super) fn read(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| {
            if stoppable_input::is_stop(&error) {
                Self::Stopped
            } else {
                Self::Read { path: path.clone(), error }
            }
        }
    }
}
