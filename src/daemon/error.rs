//! Why a run could not begin, or did not end as it should.

use std::io;
use std::path::{Path, PathBuf};

use super::sources::SourceError;
use crate::os::environment;
use crate::os::storage::DataDirectoryError;

/// Why a run could not begin, or did not end as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The data directory cannot be recorded to.
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    /// The data directory lies outside of what the service manager lets the service write to.
    #[error("{error}; {}", state_directory_only(path, state))]
    OutsideTheService {
        /// What the kernel said.
        #[source]
        error: DataDirectoryError,
        /// The data directory.
        path: PathBuf,
        /// The service's own.
        state: PathBuf,
    },
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

/// Why a data directory outside of the service's own cannot be written to, and what to do about it.
pub fn state_directory_only(data_dir: &Path, state: &Path) -> String {
    format!(
        "the service may write to {} alone: give {} to its account and name it in a drop-in of the unit, ReadWritePaths={}; \
         flatcap-service(8), RECORDINGS ELSEWHERE, has the commands",
        state.display(),
        data_dir.display(),
        data_dir.display()
    )
}

/// A data directory that cannot be used; under a service manager with the reason that its sandbox is.
pub(super) fn unusable(path: &Path) -> impl FnOnce(DataDirectoryError) -> DaemonError {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    move |error| match (&error, environment::directory("STATE_DIRECTORY")) {
        (DataDirectoryError::Unusable { error: kernel, .. }, Some(state))
            if is_refusal(kernel.kind()) && !path.starts_with(&state) =>
        {
            DaemonError::OutsideTheService { error, path, state }
        }
        _ => error.into(),
    }
}

fn is_refusal(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// Names what the kernel refused at the start.
pub(super) fn start(what: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |error| DaemonError::Start { what, error }
}
