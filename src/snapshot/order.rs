//! The order of a snapshot, and the handle by which any thread gives one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};

use serde::{Deserialize, Serialize};

use crate::os::host_log::HostLog;
use crate::os::wake_event::WakeEvent;

/// Most orders and extensions that wait for the snapshot thread, which takes them within
/// milliseconds; more are refused.
const REQUESTS_MAX: usize = 64;

/// What a snapshot shall hold, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotOrder {
    /// Ends the name of the directory, after the time: the name of the rule, or what a person
    /// wrote. Characters that do not belong in a file name are replaced.
    pub name: String,
    /// The rule that fired, or `None` if a person or a signal ordered it.
    pub rule: Option<String>,
    /// The user whose application fired it, or `None` if a rule, a person or a signal did. Orders
    /// of users are not joined with others, so that each keeps its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Why, for people: the condition, or the text of `--reason`.
    pub reason: String,
    /// What the rule saw: expressions and their values, as text.
    pub values: Vec<(String, String)>,
    /// Logs of the host that the snapshot gets for its window.
    pub capture: Vec<HostLog>,
    /// When it was ordered or the rule fired, in monotonic nanoseconds.
    pub fired_mono_ns: u64,
    /// Begin of the window, included, in monotonic nanoseconds.
    pub first_mono_ns: u64,
    /// End of the window, included, in monotonic nanoseconds; may be in the future.
    pub last_mono_ns: u64,
}

/// Identifies an order of this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub(super) u64);

/// Why an order was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Too many orders wait.
    #[error(
        "{REQUESTS_MAX} snapshot orders are waiting already, the storage may be stalled; try again later"
    )]
    Busy,
    /// The run ends.
    #[error("the recorder is stopping; nothing more is kept")]
    Ending,
    /// The order is not on the disk; it is tried again at the end of its window, but a kill until
    /// then loses it.
    #[error("cannot begin the directory of a snapshot, which is tried again at the end of its window: {0}")]
    NotWritten(String),
}

/// Gets the name of the snapshot once the order is on disk, on the snapshot thread.
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

/// What the handle asks of the snapshot thread.
#[derive(Debug)]
pub(super) enum SnapshotRequest {
    Order(OrderId, SnapshotOrder, OrderReply),
    Extend(OrderId, u64),
    CompleteInterrupted,
    KeepRun(u64),
}

/// Gives orders from any thread; never waits.
#[derive(Debug, Clone)]
pub struct SnapshotHandle {
    requests: Sender<SnapshotRequest>,
    next_id: Arc<AtomicU64>,
    wake: Arc<WakeEvent>,
}

/// The end of the snapshot thread.
#[derive(Debug)]
pub struct SnapshotRequests {
    pub(super) receiver: Receiver<SnapshotRequest>,
    pub(super) wake: Arc<WakeEvent>,
}

/// Creates both ends.
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
    /// Orders a snapshot. If its window overlaps the window of an unfinished snapshot of the same
    /// user, that snapshot becomes longer. `reply` gets the name of the snapshot when the order is
    /// on disk, so that a kill no longer loses it; or the error, at once if the order is refused.
    /// It is called on the snapshot thread.
    ///
    /// # Errors
    /// `Busy` or `Ending`: nothing is kept.
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

    /// Moves the end of an order's window to a later time, in monotonic nanoseconds. Without effect
    /// once the window has ended.
    ///
    /// # Errors
    /// `Busy` or `Ending`: the end stays.
    pub fn extend(&self, id: OrderId, last_mono_ns: u64) -> Result<(), OrderError> {
        self.send(SnapshotRequest::Extend(id, last_mono_ns))
    }

    /// Asks for the snapshots that earlier runs were killed in to be completed. What these runs
    /// have left in the ring must be recovered.
    ///
    /// # Errors
    /// `Busy` or `Ending`: the next start completes them.
    pub fn complete_interrupted(&self) -> Result<(), OrderError> {
        self.send(SnapshotRequest::CompleteInterrupted)
    }

    /// Asks for all that the ring has of an earlier run, which a crash has ended, to be kept. What
    /// it has left in the ring must be recovered.
    ///
    /// # Errors
    /// `Busy` or `Ending`: the ring keeps it for its window.
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
