//! Requests to the daemon and their answers.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use flatcap_os::wake_event::WakeEvent;
use tokio::sync::oneshot;

/// Maximum number of requests that wait for the daemon. Further requests are refused as
/// [`RefusalKind::Busy`].
const CALLS_MAX: usize = 64;
/// Time limit for the daemon's answer. After this time the caller gets an error.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A request to the running recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlRequest {
    /// Return the status.
    Status,
    /// Seal the open segment and begin the next one.
    Rotate,
    /// Write a mark with the current time into the recording.
    Mark(String),
    /// Reload the configuration and apply the changes.
    Reload,
    /// Queue, write and sync all samples taken so far.
    Flush,
    /// Keep the content of the ring as a snapshot.
    Snapshot(SnapshotWindow),
    /// Set the log filter, which has the syntax of `FLATCAP_LOG`.
    Log(String),
}

/// The part of the ring to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotWindow {
    /// The length of the time before the request that the snapshot covers.
    pub last: Duration,
    /// The length of the time after the request that the snapshot covers.
    pub after: Duration,
    /// The user's reason for the snapshot. It is empty if the user gave no reason.
    pub reason: String,
}

/// The answer to a successful request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The recorder's status, as JSON.
    Status(String),
    /// One line with the result.
    Done(String),
}

/// The answer to a refused or failed request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of the refusal.
    pub kind: RefusalKind,
    /// One line that says what to do, or one line per mistake.
    pub message: String,
}

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request is invalid. For example, a text is too long, or the configuration has mistakes.
    Invalid,
    /// Too many requests are waiting, or the recorder is stopping; the client may try again.
    Busy,
    /// The storage or the kernel failed.
    Failed,
}

/// A request that waits for its answer.
#[derive(Debug)]
#[must_use = "the caller waits for an answer"]
pub struct Call {
    /// The request.
    pub request: ControlRequest,
    reply: oneshot::Sender<Result<Answer, Refusal>>,
}

impl Call {
    /// Sends the answer. The answer is dropped if the caller no longer waits.
    pub fn answer(self, result: Result<Answer, Refusal>) {
        drop(self.reply.send(result));
    }
}

/// The sending side of the queue of requests to the daemon. Each connection has a clone.
#[derive(Debug, Clone)]
pub struct Caller {
    sender: Sender<Call>,
    wake: Arc<WakeEvent>,
}

/// The receiving side of the queue of requests to the daemon. It also answers the requests. The
/// daemon owns it.
#[derive(Debug)]
pub struct Calls {
    receiver: Receiver<Call>,
}

/// Creates both ends. `wake` is set whenever a call is sent.
pub fn calls(wake: Arc<WakeEvent>) -> (Caller, Calls) {
    let (to, from) = bounded(CALLS_MAX);
    (Caller { sender: to, wake }, Calls { receiver: from })
}

impl Caller {
    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// The error is the daemon's refusal. It is `Busy` if the daemon has too many requests, is
    /// stopping or does not answer.
    pub async fn ask(&self, request: ControlRequest) -> Result<Answer, Refusal> {
        let busy = |message: &str| Refusal { kind: RefusalKind::Busy, message: message.to_owned() };
        let (reply, answer) = oneshot::channel();
        self.sender
            .try_send(Call { request, reply })
            .map_err(|_| busy("the recorder has too many pending requests, or is stopping; try again"))?;
        self.wake.set();
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_dropped)) => Err(busy("the recorder is stopping")),
            Err(_elapsed) => {
                let seconds = ANSWER_MAX.as_secs();
                Err(busy(&format!(
                    "the recorder has not answered within {seconds} s; its storage may be stalled"
                )))
            }
        }
    }
}

impl Calls {
    /// Returns the oldest waiting call.
    pub fn next(&self) -> Option<Call> {
        self.receiver.try_recv().ok()
    }
}
