//! Defines faults of a simulated storage: failures of operations, and crashes of the process or the
//! host.

use std::io;

/// The kind of a crash, which determines the changes that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashKind {
    /// Only the process is killed. All changes that the kernel has accepted are kept.
    ProcessKilled,
    /// The whole host loses power. Changes that were not synced may be lost.
    PowerCut,
}

/// The moment of the crash relative to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// The crash happens before the operation has any effect.
    Before,
    /// The crash happens within the operation. The operation may have had an effect, and an append
    /// may have written a part of its bytes. The caller gets no result.
    Within,
    /// The crash happens after the operation has taken effect and has returned its result to the
    /// caller.
    After,
}

/// The error with which an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFailure {
    Kind(io::ErrorKind),
    /// An errno, for example 5 for EIO.
    Code(i32),
    /// An errno that an append returns although it has written all of its bytes. Other operations
    /// fail as usual.
    Late(i32),
}

impl From<io::ErrorKind> for InjectedFailure {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Kind(kind)
    }
}

impl From<i32> for InjectedFailure {
    fn from(code: i32) -> Self {
        Self::Code(code)
    }
}

impl From<InjectedFailure> for io::Error {
    fn from(failure: InjectedFailure) -> Self {
        match failure {
            InjectedFailure::Kind(kind) => kind.into(),
            InjectedFailure::Code(code) | InjectedFailure::Late(code) => Self::from_raw_os_error(code),
        }
    }
}
