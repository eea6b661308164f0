//! Why a run could not begin, or did not end as it should.

use std::io;

use super::sources::SourceError;
use crate::os::storage::DataDirectoryError;

/// Why a run could not begin, or did not end as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The data directory cannot be recorded to.
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    /// There is nothing to sample.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The first segment cannot be created, or the kernel refuses a thread or a signal handler.
    #[error("cannot start {what}: {error}")]
    Start {
        /// What could not be started.
        what: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// A thread ended before it was told to: our own mistake, reported above by its panic. What was sampled until
    /// then is recorded.
    #[error("the thread {name} ended by a panic; what was sampled before is recorded")]
    ThreadEnded {
        /// Which one.
        name: String,
    },
    /// A thread did not end in time.
    #[error("the thread {name} did not end within {seconds} s of the stop; it is left behind")]
    ThreadStuck {
        /// Which one.
        name: String,
        /// How long it was waited for.
        seconds: u64,
    },
}

/// Names what the kernel refused at the start.
pub(super) fn start(what: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |error| DaemonError::Start { what, error }
}
