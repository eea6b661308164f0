//! A request on its way to the daemon, and the answer on its way back.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use tokio::sync::oneshot;

use crate::os::event::Event;

/// Requests that may wait for the daemon; more are refused as [`RefusalKind::Busy`].
const CALLS_MAX: usize = 64;
/// The daemon answers within this, or the caller is told that it does not.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What may be asked of the running agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// How it is.
    Status,
    /// Seal the open segment and begin the next one.
    Rotate,
    /// Write a line into the recording, with the time.
    Mark(String),
    /// Read the configuration again, and change what has changed.
    Reload,
    /// Hand over, write and sync what has been sampled.
    Flush,
    /// Log by this filter from now on, written as in `FLATCAP_LOG`.
    Log(String),
}

/// What comes back when it was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The agent's state, as JSON.
    Status(String),
    /// One line that says what was done.
    Done(String),
}

/// Why it was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Whose matter it is.
    pub kind: RefusalKind,
    /// One line, or one a mistake, that says what to do.
    pub message: String,
}

/// Whose matter a refusal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// What was asked makes no sense: a text that is too long, a configuration with mistakes.
    Invalid,
    /// Too much is asked at once, or the agent is ending; it may be asked again.
    Busy,
    /// The storage or the kernel did not let it be done.
    Failed,
}

/// A request that waits for its answer.
#[derive(Debug)]
#[must_use = "who asked waits for an answer"]
pub struct Call {
    /// What is asked.
    pub request: Request,
    reply: oneshot::Sender<Result<Answer, Refusal>>,
}

impl Call {
    /// Answers. One who no longer waits is no matter.
    pub fn answer(self, result: Result<Answer, Refusal>) {
        drop(self.reply.send(result));
    }
}

/// The end that asks; each connection has one.
#[derive(Debug, Clone)]
pub struct Caller {
    to: Sender<Call>,
    bell: Arc<Event>,
}

/// The end that answers: the daemon's.
#[derive(Debug)]
pub struct Calls {
    from: Receiver<Call>,
}

/// Both ends. `bell` is set whenever there is a call to take.
pub fn calls(bell: Arc<Event>) -> (Caller, Calls) {
    let (to, from) = bounded(CALLS_MAX);
    (Caller { to, bell }, Calls { from })
}

impl Caller {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the daemon refuses; `Busy` where it has too many requests already, ends, or does not answer.
    pub async fn ask(&self, request: Request) -> Result<Answer, Refusal> {
        let busy = |message: &str| Refusal { kind: RefusalKind::Busy, message: message.to_owned() };
        let (reply, answer) = oneshot::channel();
        self.to
            .try_send(Call { request, reply })
            .map_err(|_| busy("the agent has too many requests to answer, or is ending; ask again"))?;
        self.bell.set();
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_dropped)) => Err(busy("the agent is ending")),
            Err(_elapsed) => {
                let seconds = ANSWER_MAX.as_secs();
                Err(busy(&format!("the agent has not answered for {seconds} s; its storage may be stalled")))
            }
        }
    }
}

impl Calls {
    /// The oldest call that waits.
    pub fn next(&self) -> Option<Call> {
        self.from.try_recv().ok()
    }
}
