//! The errors of a run, which say why the run could not start or ended abnormally.

use std::io;
use std::path::{Path, PathBuf};

use flatcap_os::environment;
use flatcap_os::storage::DataDirectoryError;

use super::sources::SourceError;

/// The reason why a run could not start or ended abnormally.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    /// The service manager does not allow the service to write to the data directory.
    #[error("{error}; {}", state_directory_only(path, state))]
    OutsideTheService {
        /// The kernel's error.
        #[source]
        error: DataDirectoryError,
        /// The data directory.
        path: PathBuf,
        /// The service's state directory.
        state: PathBuf,
    },
    /// There is no source to sample.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The first segment cannot be created, or the kernel refuses to create a thread or to install
    /// a signal handler.
    #[error("cannot start {what}: {error}")]
    Start {
        /// The part that could not be started.
        what: &'static str,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// A thread panicked, which is a bug. The panic hook has reported the panic. Samples that were
    /// taken before the panic are recorded.
    #[error("thread {name} panicked; samples taken before are recorded")]
    ThreadEnded {
        /// The name of the thread.
        name: String,
    },
    /// A thread did not end in time.
    #[error(
        "thread {name} did not end within {seconds} s of the stop, since a read or write of it hangs; it is abandoned: \
         the next record, or flatcap recover, completes its segment"
    )]
    ThreadStuck {
        /// The name of the thread.
        name: String,
        /// Time that the daemon waited for the thread, in seconds.
        seconds: u64,
    },
}

/// Returns a message that states why the service cannot write to a data directory outside of its
/// own directories, and what to do.
pub fn state_directory_only(data_dir: &Path, state: &Path) -> String {
    format!(
        "the service may write only to {}: give {} to its account and name it in a drop-in of the unit, ReadWritePaths={}; \
         flatcap-service(8), RECORDINGS ELSEWHERE, has the commands",
        state.display(),
        data_dir.display(),
        data_dir.display()
    )
}

/// Converts the error of an unusable data directory. If a service manager's sandbox is the cause,
/// adds this reason.
pub(super) fn unusable(path: &Path) -> impl FnOnce(DataDirectoryError) -> DaemonError {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    move |error| match (&error, environment::directory("STATE_DIRECTORY")) {
        (DataDirectoryError::Unusable { error: kernel, .. }, Some(state))
            if is_denied(kernel.kind()) && !path.starts_with(&state) =>
        {
            DaemonError::OutsideTheService { error, path, state }
        }
        _ => error.into(),
    }
}

fn is_denied(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// Returns a function that adds the name of the part that could not be started to an error.
pub(super) fn cannot_start(what: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |error| DaemonError::Start { what, error }
}
