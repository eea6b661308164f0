//! Metrics of the frames that applications push.

use super::counter::Counter;

/// Counters of pushed frames. Zeros if applications may not push.
#[derive(Debug, Default)]
pub struct PushMetrics {
    /// 1 while the push socket is open. Written by the thread that reads lanes, as are the counters
    /// up to `triggers`.
    pub is_open: Counter,
    /// Connections accepted.
    pub connections: Counter,
    /// Clients: connections that have sent their name.
    pub clients: Counter,
    /// Lanes being read.
    pub lanes: Counter,
    /// Lanes of killed runs that clients have handed over and that are not rescued yet.
    pub lanes_waiting: Counter,
    /// Memory of the lanes and of the state of pushed sources, in bytes.
    pub memory_bytes: Counter,
    /// Maximum of that memory (`[push] memory_max`); 0 if applications may not push. Written by the
    /// daemon.
    pub memory_bytes_max: Counter,
    /// CPU time that pushes may use (`[push] cpu_budget`), in basis points of a core. Written by
    /// the daemon.
    pub cpu_basis_points_max: Counter,
    /// Frames that a user may push per second; 0: unlimited. Written by the daemon.
    pub user_frames_max: Counter,
    /// Bytes that a user may push per second; 0: unlimited. Written by the daemon.
    pub user_bytes_max: Counter,
    /// Bytes that the descriptions of pushed sources take in each segment.
    pub description_bytes: Counter,
    /// Maximum of the bytes of descriptions. Written by the daemon.
    pub description_bytes_max: Counter,
    /// Refused requests of users who may not push; included in `refused`.
    pub denied: Counter,
    /// Requests refused because a limit was reached; included in `refused`.
    pub limited: Counter,
    /// Requests refused, for any reason.
    pub refused: Counter,
    /// Lanes ended because the client violated the protocol or its schema.
    pub lanes_refused: Counter,
    /// Number of times a lane was not read because its user has pushed too much.
    pub waits: Counter,
    /// Turns of the thread that were postponed because pushes had used up their CPU budget.
    pub cpu_waits: Counter,
    /// Pauses in accepting connections because new connections had used up their CPU budget.
    pub accept_waits: Counter,
    /// CPU time used for pushes, by the thread and by the recorders for pushed frames.
    pub cpu_ns: Counter,
    /// Triggers fired by clients.
    pub triggers: Counter,
    /// CPU time that this recorder has used for pushed frames. Each recorder writes its own.
    pub recorder_ns: Counter,
    /// Sources that were pushed in this run. Written by the daemon, as are the following.
    pub sources: Counter,
    /// The number of pushed samples begun.
    pub begun: Counter,
    /// The number of pushed frames passed to the kernel.
    pub recorded: Counter,
    /// Bytes of the pushed frames.
    pub bytes: Counter,
    /// The number of pushed samples covered by Gap frames.
    pub lost: Counter,
}
