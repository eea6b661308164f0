//! The outbox of a process. The shipper adds messages to the outbox, and the messenger sends and
//! removes them on another thread.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::error::ShipError;
use crate::outbox::{MessageOutcome, Outbox, UNSENT_MAX};
use crate::outbox_file::OutboxFile;

/// Maximum number of settled messages that the file on the disk still lists as unsent. After a
/// crash, the messages that the file still lists are sent again.
const UNSAVED_MAX: u32 = 64;

/// The message counts of this process, for its state and its metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MessageCounts {
    pub(crate) sent: u64,
    pub(crate) unsent: u64,
    /// Number of manifests that will not be announced, because the outbox was full, the bus refused
    /// the message, or the store no longer has the manifest.
    pub(crate) dropped: u64,
    /// Number of consecutive failed attempts.
    pub(crate) failures: u32,
    /// The error of the last attempt, if it failed.
    pub(crate) error: Option<String>,
}

/// An outbox that two threads share, and its file.
#[derive(Debug)]
pub(crate) struct SharedOutbox {
    state: Mutex<OutboxState>,
    posted: Notify,
}

#[derive(Debug)]
struct OutboxState {
    outbox: Outbox,
    file: OutboxFile,
    /// Number of messages that were settled since the file was last written.
    unsaved: u32,
    /// The error of the last attempt, if it failed.
    error: Option<String>,
    /// A problem that was not reported to the operator yet.
    problem: Option<String>,
}

impl SharedOutbox {
    /// Opens the outbox in a directory. The outbox contains the messages that an earlier process
    /// has left for the store with the URL `store`.
    ///
    /// # Errors
    /// Returns the same errors as [`OutboxFile::open`].
    pub(crate) fn open(folder: &Path, store: &str) -> Result<Self, ShipError> {
        let (file, lines) = OutboxFile::open(folder, store)?;
        let outbox = Outbox::of(lines);
        let state = OutboxState { outbox, file, unsaved: 0, error: None, problem: None };
        Ok(Self { state: Mutex::new(state), posted: Notify::new() })
    }

    /// Records on the disk that a manifest is about to be put. An error is kept as a problem to
    /// report.
    pub(crate) fn prepare(&self, manifest: &str) {
        // Shipping continues after an error. The message is lost only if this process ends before
        // it is sent.
        let mut state = self.lock();
        if state.outbox.prepare(manifest) {
            state.save();
        }
    }

    /// Makes the message of the prepared manifest due, and wakes the messenger.
    pub(crate) fn post(&self, manifest: &str, is_put: bool) {
        let mut state = self.lock();
        if !state.outbox.post(manifest, is_put) {
            let problem = format!("{manifest} is not announced: {UNSENT_MAX} messages are unsent already");
            state.problem = Some(problem);
        }
        // Unlock the state before the messenger wakes, because the messenger locks it at once.
        drop(state);
        self.posted.notify_one();
    }

    /// Waits until a manifest is posted. Returns immediately if a manifest was posted since the
    /// last call.
    pub(crate) async fn posted(&self) {
        self.posted.notified().await;
    }

    /// Returns the manifest whose message is due, with its ticket.
    pub(crate) fn due(&self, now_ns: u64) -> Option<(u64, String)> {
        self.lock().outbox.due(now_ns).map(|(ticket, manifest)| (ticket, manifest.to_owned()))
    }

    /// Returns the time until the next message is due, or `None` if there is no message.
    pub(crate) fn wait(&self, now_ns: u64) -> Option<Duration> {
        self.lock().outbox.wait(now_ns)
    }

    /// Removes a message that needs no further attempt. Returns whether the message will never be
    /// sent.
    pub(crate) fn settle(&self, ticket: u64, outcome: MessageOutcome) -> bool {
        let mut state = self.lock();
        let is_lost = state.outbox.settle(ticket, outcome);
        state.error = None;
        state.unsaved += 1;
        if state.unsaved >= UNSAVED_MAX {
            state.save();
        }
        is_lost
    }

    /// Counts a failed attempt. The next attempt is due after a pause.
    pub(crate) fn fail(&self, now_ns: u64, pause: Duration, error: &str) {
        let mut state = self.lock();
        state.outbox.fail(now_ns, pause);
        state.error = Some(error.to_owned());
    }

    /// Writes the unsent messages to the disk if messages were settled since the last write.
    pub(crate) fn save(&self) {
        let mut state = self.lock();
        if state.unsaved > 0 {
            state.save();
        }
    }

    /// Returns the last problem that was not reported yet.
    pub(crate) fn take_problem(&self) -> Option<String> {
        self.lock().problem.take()
    }

    /// Returns the message counts of this process.
    pub(crate) fn counts(&self) -> MessageCounts {
        let state = self.lock();
        let outbox = &state.outbox;
        MessageCounts {
            sent: outbox.sent(),
            unsent: outbox.unsent(),
            dropped: outbox.dropped(),
            failures: outbox.failures(),
            error: state.error.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        // The state is consistent after each call, so it stays usable if the other thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutboxState {
    fn save(&mut self) {
        match self.file.write(self.outbox.lines()) {
            Ok(()) => self.unsaved = 0,
            Err(error) => self.problem = Some(error.to_string()),
        }
    }
}
