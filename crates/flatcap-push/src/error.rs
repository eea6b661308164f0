//! Errors of pushing. No error stops an application, because a push that fails is only counted.

/// The reason why a sample was not pushed. The sample is counted as dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// There is no recorder, or the recorder accepts no samples from this client, source or thread.
    #[error("no recorder takes samples of this source")]
    NoRecorder,
    /// The lane is full.
    #[error("the lane is full: the recorder is slower than this thread")]
    Full,
    /// The payload is longer than the recorder's limit.
    #[error("the payload is longer than the recorder takes")]
    TooLarge,
    /// The recorder currently accepts no samples, because the client exceeds its limits.
    #[error("the recorder has paused this client: it is above its limits")]
    Paused,
    /// The thread is in the middle of another push. The caller is a signal handler, or the thread
    /// has begun another sample.
    #[error("this thread is in the middle of another push")]
    Busy,
    /// The source of a gauge cannot be set up.
    #[error("{0}")]
    Setup(SetupError),
}

/// The reason why a client or a source cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A name is empty, too long, or has control characters.
    #[error(
        "a name of a client, source or label must have 1 to 64 bytes, a root or a value at most 255, without control characters"
    )]
    Name,
    /// The client has the maximum number of sources.
    #[error("a client can have 64 sources")]
    TooManySources,
    /// The socket's path is too long.
    #[error("the path of the push socket must have at most 107 bytes")]
    Socket,
    /// The unit of a gauge is too long, or has control characters.
    #[error("the unit of a gauge must have at most 32 bytes, without control characters")]
    Unit,
}
