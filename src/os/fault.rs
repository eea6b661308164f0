//! What may go wrong in a simulated storage: operations fail, processes and hosts end.

use std::io;

/// What ends a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashKind {
    /// The process alone: all that the kernel has taken is there.
    ProcessKilled,
    /// The kernel with it: what was not synced may or may not be there.
    PowerCut,
}

/// When in an operation the crash happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Nothing of it has happened.
    Before,
    /// It may have happened, an append in part; nobody is told.
    Within,
    /// It has happened, and its caller knows.
    After,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Kind(io::ErrorKind),
    /// The kernel's number, such as 5 for EIO.
    Code(i32),
}

impl From<io::ErrorKind> for Failure {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Kind(kind)
    }
}

impl From<i32> for Failure {
    fn from(code: i32) -> Self {
        Self::Code(code)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Kind(kind) => kind.into(),
            Failure::Code(code) => Self::from_raw_os_error(code),
        }
    }
}
