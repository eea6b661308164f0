//! What may be asked of the running agent, and how does it answer? Requests over HTTP on a Unix socket.
//!
//! Never: changes anything itself. A request goes to the daemon, which alone decides, and its answer goes back.

mod client;
mod exposition;
mod families;
mod place;
mod purse;
mod request;
mod route;
mod server;
mod status;
#[cfg(test)]
mod trials;

pub use client::{Client, ClientError, Found};
pub use exposition::RunLabels;
pub use place::{SocketPlace, is_socket_of_a_run};
pub use request::{Answer, Call, Caller, Calls, Refusal, RefusalKind, Request, calls};
pub use route::{FILTER_BYTES_MAX, MARK_BYTES_MAX};
pub use server::{Server, ServerStop, listen_for_metrics};
pub use status::{
    AgentStatus, FormerStatus, GroupStatus, Latency, QueueStatus, ReloadStatus, SealerStatus, SegmentStatus,
    SourceStatus, Status, StorageStatus,
};
