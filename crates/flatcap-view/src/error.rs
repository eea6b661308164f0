//! Reasons why a recording cannot be shown.

use std::io;
use std::net::SocketAddr;

use flatcap_format::segment::SegmentError;
use flatcap_query::QueryError;

/// A reason why a recording cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The recording cannot be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The recording cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The recording has no samples.
    #[error("the recording has no samples yet; wait for the recorder, or name another PATH")]
    NoSamples,
    /// The recording has no context switches.
    #[error("the recording has no source with switches; record the source sched to see who ran")]
    NoSwitches,
    /// The output is a file or a pipe, not a terminal.
    #[error(
        "view needs a terminal, and {0} is not one; flatcap dump, spikes and explain print the same for a file or a pipe"
    )]
    NoTerminal(&'static str),
    /// The address of the page can be reached from other hosts.
    #[error(
        "--listen {0}: a page is for this host alone; use 127.0.0.1:PORT, and from elsewhere ssh -L PORT:127.0.0.1:PORT HOST"
    )]
    NotLoopback(SocketAddr),
    /// The address of the page cannot be bound.
    #[error("--listen {address}: {error}; name another port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The kernel does not provide a resource that the page needs.
    #[error("the page cannot be served: {0}")]
    Page(#[source] io::Error),
    /// The terminal failed.
    #[error("the terminal failed: {0}")]
    Terminal(#[from] io::Error),
}
