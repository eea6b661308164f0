//! The request for a snapshot, and the handle with which any thread can request one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use flatcap_os::host_log::HostLog;
use flatcap_os::wake_event::WakeEvent;
use serde::{Deserialize, Serialize};

/// Maximum number of requests and extensions queued for the snapshot thread. The thread takes
/// queued requests within milliseconds. Further requests are refused.
const REQUESTS_MAX: usize = 64;

/// A request for a snapshot, with the content and the reason of the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotOrder {
    /// The name of the request, which becomes the second part of the directory's name. The first
    /// part is the time. Characters that are unsuitable for a file name are replaced.
    pub name: String,
    /// The rule that fired, or `None` if a person or a signal requested the snapshot.
    pub rule: Option<String>,
    /// The user whose application requested the snapshot, or `None` if the request came from a
    /// rule, a person or a signal. A request of a user is joined only with requests of the same
    /// user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The reason, in a form intended for people. The reason is the condition of the rule, or the
    /// text of `--reason`.
    pub reason: String,
    /// The expressions of the rule and their values, as strings.
    pub values: Vec<(String, String)>,
    /// The host's logs whose entries in the window are attached to the snapshot.
    pub capture: Vec<HostLog>,
    /// The time at which the snapshot was requested or the rule fired, in monotonic nanoseconds.
    pub fired_mono_ns: u64,
    /// Begin of the window (inclusive), in monotonic nanoseconds.
    pub first_mono_ns: u64,
    /// End of the window (inclusive), in monotonic nanoseconds. The end may be in the future.
    pub last_mono_ns: u64,
}

/// The id of a snapshot request in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub(super) u64);

/// The reason why a request was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Too many requests are queued.
    #[error(
        "{REQUESTS_MAX} snapshot orders are waiting already, the storage may be stalled; try again later"
    )]
    Busy,
    /// The run is ending.
    #[error("the recorder is stopping; nothing more is kept")]
    Ending,
    /// The request could not be written to disk. At the end of the window, the thread tries again
    /// to take the snapshot. If the process is killed before then, the snapshot is lost.
    #[error("cannot begin the directory of a snapshot, which is tried again at the end of its window: {0}")]
    NotWritten(String),
}

/// The callback that receives the name of the snapshot once the request is on disk. The callback is
/// called on the snapshot thread.
pub(super) struct OrderReply(Box<OrderCallback>);

type OrderCallback = dyn FnOnce(Result<String, OrderError>) + Send;

impl OrderReply {
    pub(super) fn send(self, result: Result<String, OrderError>) {
        (self.0)(result);
    }
}

impl fmt::Debug for OrderReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderReply").finish_non_exhaustive()
    }
}

/// A message to the snapshot thread.
#[derive(Debug)]
pub(super) enum SnapshotRequest {
    Order(OrderId, SnapshotOrder, OrderReply),
    Extend(OrderId, u64),
    CompleteInterrupted,
    KeepRun(u64),
}

/// The handle with which any thread requests snapshots. The handle never waits.
#[derive(Debug, Clone)]
pub struct SnapshotHandle {
    requests: Sender<SnapshotRequest>,
    next_id: Arc<AtomicU64>,
    wake: Arc<WakeEvent>,
}

/// The receiving end of the queue, for the snapshot thread.
#[derive(Debug)]
pub struct SnapshotRequests {
    pub(super) receiver: Receiver<SnapshotRequest>,
    pub(super) wake: Arc<WakeEvent>,
}

/// Creates both ends of the queue.
pub fn snapshot_requests() -> (SnapshotHandle, SnapshotRequests) {
    let (requests, receiver) = bounded(REQUESTS_MAX);
    let wake = Arc::new(WakeEvent::new());
    let next_id = Arc::new(AtomicU64::new(0));
    (SnapshotHandle { requests, next_id, wake: Arc::clone(&wake) }, SnapshotRequests { receiver, wake })
}

impl SnapshotRequests {
    /// Returns the event on which the thread sleeps.
    pub fn wake(&self) -> Arc<WakeEvent> {
        Arc::clone(&self.wake)
    }
}

impl SnapshotHandle {
    /// Requests a snapshot. If the window of the request overlaps the window of an unfinished
    /// snapshot of the same user, that snapshot is extended instead. `reply` receives the name of
    /// the snapshot once the request is on disk and survives a kill. On failure `reply` receives
    /// the error. `reply` is called on the snapshot thread, or at once if the request is refused.
    ///
    /// # Errors
    /// `Busy` or `Ending`. No snapshot is taken.
    pub fn order(
        &self,
        order: SnapshotOrder,
        reply: impl FnOnce(Result<String, OrderError>) + Send + 'static,
    ) -> Result<OrderId, OrderError> {
        let id = OrderId(self.next_id.fetch_add(1, Ordering::Relaxed));
        match self.requests.try_send(SnapshotRequest::Order(id, order, OrderReply(Box::new(reply)))) {
            Ok(()) => {
                self.wake.set();
                Ok(id)
            }
            Err(refused) => {
                let error = if refused.is_full() { OrderError::Busy } else { OrderError::Ending };
                if let SnapshotRequest::Order(_, _, reply) = refused.into_inner() {
                    reply.send(Err(error.clone()));
                }
                Err(error)
            }
        }
    }

    /// Moves the end of a request's window to a later time, in monotonic nanoseconds. Has no effect
    /// if the window has already ended.
    ///
    /// # Errors
    /// `Busy` or `Ending`. The end of the window is unchanged.
    pub fn extend(&self, id: OrderId, last_mono_ns: u64) -> Result<(), OrderError> {
        self.send(SnapshotRequest::Extend(id, last_mono_ns))
    }

    /// Requests the completion of the snapshots that were interrupted when earlier runs were
    /// killed. The caller must have recovered the segments of these runs in the ring.
    ///
    /// # Errors
    /// `Busy` or `Ending`. In both cases, the next start of the recorder completes the snapshots.
    pub fn complete_interrupted(&self) -> Result<(), OrderError> {
        self.send(SnapshotRequest::CompleteInterrupted)
    }

    /// Requests a snapshot of all samples of an earlier, crashed run that the ring contains. The
    /// caller must have recovered the run's segments in the ring.
    ///
    /// # Errors
    /// `Busy` or `Ending`. The samples of that run stay in the ring only until they are older than
    /// the ring's window.
    pub fn keep_run(&self, run_id: u64) -> Result<(), OrderError> {
        self.send(SnapshotRequest::KeepRun(run_id))
    }

    fn send(&self, request: SnapshotRequest) -> Result<(), OrderError> {
        self.requests
            .try_send(request)
            .map_err(|error| if error.is_full() { OrderError::Busy } else { OrderError::Ending })?;
        self.wake.set();
        Ok(())
    }
}
