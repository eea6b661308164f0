//! Errors of pushing. No error stops an application: a push that fails is counted.

use std::fmt;

/// The reason why a sample was not pushed. The sample is counted as dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// There is no recorder, or it takes no samples from this client, source or thread.
    NoRecorder,
    /// The lane is full.
    Full,
    /// The payload is longer than the recorder's limit.
    TooLarge,
    /// The recorder currently takes no samples, because the client exceeds its limits.
    Paused,
    /// The thread is in the middle of another push: a signal handler, or a sample that was begun.
    Busy,
    /// The source of a gauge cannot be set up.
    Setup(SetupError),
}

/// The reason why a client or a source cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// A name is empty, too long, or has control characters.
    Name,
    /// The client has the maximum number of sources.
    TooManySources,
    /// The socket's path is too long.
    Socket,
    /// The unit of a gauge is too long, or has control characters.
    Unit,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setup(error) => return write!(f, "{error}"),
            Self::NoRecorder => "no recorder takes samples of this source",
            Self::Full => "the lane is full: the recorder is slower than this thread",
            Self::TooLarge => "the payload is longer than the recorder takes",
            Self::Paused => "the recorder has paused this client: it is above its limits",
            Self::Busy => "this thread is in the middle of another push",
        })
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => {
                "a name of a client, source or label must have 1 to 64 bytes, a root or a value at most 255, without control characters"
            }
            Self::TooManySources => "a client can have 64 sources",
            Self::Socket => "the path of the push socket must have at most 107 bytes",
            Self::Unit => "the unit of a gauge must have at most 32 bytes, without control characters",
        })
    }
}

impl std::error::Error for PushError {}

impl std::error::Error for SetupError {}
