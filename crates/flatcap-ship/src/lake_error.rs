//! Errors of the store.

use std::error::Error as _;
use std::io;

use object_store::Error;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LakeError {
    /// There is no store for this URL.
    #[error("{url}: {what}")]
    Url { url: String, what: String },
    /// The directory of a store cannot be created or used.
    #[error("{url}: the directory cannot be used: {error}")]
    Directory {
        url: String,
        #[source]
        error: io::Error,
    },
    /// A request failed in all of its attempts.
    #[error("{name}: {}", with_causes(error))]
    Request {
        name: String,
        #[source]
        error: Error,
    },
    /// All attempts of a request ended without a response.
    #[error("{name}: no answer within {seconds} s")]
    Timeout { name: String, seconds: u64 },
    /// There are more objects than a list may contain.
    #[error("{name}: more than {limit} objects; run `flatcap-ship compact`")]
    TooMany { name: String, limit: usize },
    /// A file that is being uploaded cannot be read.
    #[error("{name}: cannot read the file: {error}")]
    File {
        name: String,
        #[source]
        error: io::Error,
    },
    /// The stop signal was set.
    #[error("stopped by a signal")]
    Stopped,
    /// The runtime that makes the requests cannot be started.
    #[error("cannot start the runtime of requests: {0}")]
    Runtime(#[from] io::Error),
}

/// Returns the message of an error. The messages of its causes follow, unless the first message
/// contains them. For example, the reason that a URL is not allowed is the third cause in the
/// chain.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let own = error.to_string();
        if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error whose message does not repeat the message of its cause, like the errors of the HTTP
    /// client.
    #[derive(Debug, thiserror::Error)]
    #[error("builder error")]
    struct Hidden(#[source] io::Error);

    // Proves that the innermost cause is named, and that no message occurs twice.
    #[test]
    fn causes_are_named() {
        let source = Box::new(Hidden(io::Error::other("URL scheme is not allowed")));
        let error = Error::Generic { store: "S3", source };
        let text = LakeError::Request { name: "x".to_owned(), error }.to_string();
        assert_eq!(text, "x: Generic S3 error: builder error: URL scheme is not allowed");
    }
}
