//! The control server and its client. The client sends HTTP requests to the running recorder over a
//! Unix socket.
//!
//! The server changes nothing itself. It passes requests for the status or for a change to the
//! daemon, and returns the daemon's answer.

mod client;
mod connections;
mod exposition;
mod request;
mod route;
mod server;
mod socket_path;
mod status;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientError, FoundRecorder};
pub use connections::{FirstDone, ListenerState, SilentConnection, first};
pub use exposition::RunLabels;
pub use request::{Answer, Call, Caller, Calls, ControlRequest, Refusal, RefusalKind, SnapshotWindow, calls};
pub use route::{FILTER_BYTES_MAX, MARK_BYTES_MAX};
pub use server::{ListenerBudget, Server, ServerStop, listen_for_metrics};
pub use socket_path::{SocketPath, is_socket_of_a_run};
pub use status::{
    CompressorStatus, Forecast, FormerStatus, GroupStatus, LatencyStatus, ProcessStatus, PushStatus,
    QueueStatus, ReloadStatus, RingStatus, RuleStatus, SegmentStatus, SenderStatus, SourceStatus, Status,
    StorageStatus, ratio,
};
