//! Errors of the store.

use std::io;

use object_store::Error;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LakeError {
    /// No store has this URL.
    #[error("{url}: {what}")]
    Url { url: String, what: String },
    /// A request failed, as often as it was tried.
    #[error("{name}: {error}")]
    Request {
        name: String,
        #[source]
        error: Error,
    },
    /// No answer, as often as it was tried.
    #[error("{name}: no answer within {seconds} s")]
    Timeout { name: String, seconds: u64 },
    /// More objects than are listed.
    #[error("{name}: more than {limit} objects; run `flatcap-ship compact`")]
    TooMany { name: String, limit: usize },
    /// A file that is uploaded cannot be read.
    #[error("{name}: cannot read the file: {error}")]
    File {
        name: String,
        #[source]
        error: io::Error,
    },
    /// The stop signal.
    #[error("stopped by a signal")]
    Stopped,
    /// The runtime of requests cannot be started.
    #[error("cannot start the runtime of requests: {0}")]
    Runtime(#[from] io::Error),
}
