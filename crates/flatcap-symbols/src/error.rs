//! The reasons why a file gives no names.

use std::io;
use std::path::PathBuf;

use crate::build_id::BuildId;

/// The reason why a file gives no names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system call, or an error that states that the file is not a regular
        /// file.
        #[source]
        error: io::Error,
    },
    /// The file is not a valid ELF file, or is a text file with a wrong format.
    #[error("{} is malformed: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The mistake.
        what: &'static str,
    },
    /// A part of the file is larger than its limit.
    #[error("{}: {what} has {bytes} bytes, the limit is {limit}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The part.
        what: &'static str,
        /// The part's length in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The code in the file differs from the code in the recorded file.
    #[error(
        "{} has the build id {found}, recorded is {recorded}: it was replaced since; a copy of the old one, or its \
         debug file, can be passed by --symbols DIR",
        path.display()
    )]
    OtherBuildId {
        /// The file.
        path: PathBuf,
        /// Build id of the file.
        found: BuildId,
        /// Build id in the recording.
        recorded: BuildId,
    },
    /// The file has no build id, and its size or modification time differs from the recorded value.
    #[error(
        "{} was modified since, and has no build id: a copy of the old one can be passed by --symbols DIR",
        path.display()
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
    },
    /// The map file with the functions of a process may belong to another user or to another
    /// process.
    #[error("{} is not used: {why}; a copy can be passed by --symbols DIR", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// The file has no build id, or the recording does not contain the file's build id.
    #[error("{}: no build id in the {missing_in}, so it may be another file than the recorded one", path.display())]
    NoBuildId {
        /// The file.
        path: PathBuf,
        /// The place where the build id is missing, which is `file` or `recording`.
        missing_in: &'static str,
    },
    /// The file has no names of functions.
    #[error("{} is stripped: --symbols DIR can name a directory with its debug file", path.display())]
    Stripped {
        /// The file.
        path: PathBuf,
    },
    /// The kernel hides its addresses.
    #[error("{} hides addresses from this user: run as root", path.display())]
    HiddenAddresses {
        /// The file.
        path: PathBuf,
    },
    /// The recorded kernel is not the running kernel.
    #[error("the recorded kernel is not the running one: --symbols DIR can have its vmlinux or System.map")]
    OtherKernel,
}
