//! Announces shipped segments. The messenger sends a message for each manifest in the outbox.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::bus::{BusError, BusMessage, MessageBus};
use crate::environment::monotonic_ns;
use crate::lake::{Lake, Patience};
use crate::lake_error::LakeError;
use crate::manifest::MANIFEST_BYTES_MAX;
use crate::names::ObjectGroup;
use crate::outbox::MessageOutcome;
use crate::shared_outbox::SharedOutbox;

/// An event that is reported to the log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MessageEvent<'e> {
    /// An attempt failed. The messenger repeats a failed attempt later.
    Failed { unsent: u64, error: &'e str },
    /// The message of a manifest will never be sent, because the bus does not accept it or the
    /// store has lost the manifest.
    Refused { manifest: &'e str, error: &'e str },
    /// The outbox has a problem.
    Problem(&'e str),
}

/// The function that receives the events.
pub(crate) type MessageWatch<'w> = dyn FnMut(MessageEvent<'_>) + 'w;

/// Sends the messages of an outbox.
pub(crate) struct Messenger {
    outbox: Arc<SharedOutbox>,
    /// The store of the manifests. The content of a message is the manifest in the store, whichever
    /// process has put it.
    lake: Lake,
    bus: Box<dyn MessageBus>,
    subject: String,
    patience: Patience,
}

impl fmt::Debug for Messenger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messenger").field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl Messenger {
    pub(crate) fn new(
        outbox: SharedOutbox,
        lake: Lake,
        bus: Box<dyn MessageBus>,
        subject: &str,
        patience: Patience,
    ) -> Self {
        Self { outbox: Arc::new(outbox), lake, bus, subject: subject.to_owned(), patience }
    }

    /// Returns the outbox, for the shipper.
    pub(crate) fn outbox(&self) -> Arc<SharedOutbox> {
        Arc::clone(&self.outbox)
    }

    /// Sends the messages on another thread until the stop signal is set.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn start(
        mut self,
        mut watch: impl FnMut(MessageEvent<'_>) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let run = move || while self.send_due(&mut watch).is_ok() && self.wait().is_ok() {};
        Builder::new().name("messages".to_owned()).spawn(run)
    }

    /// Sends all messages. Gives up after `attempts` consecutive failed attempts.
    ///
    /// # Errors
    /// Fails with `Stopped` if the stop signal was set.
    pub(crate) fn send_all(&mut self, attempts: u32, watch: &mut MessageWatch<'_>) -> Result<(), LakeError> {
        loop {
            self.send_due(watch)?;
            let Some(wait) = self.outbox.wait(monotonic_ns()) else { return Ok(()) };
            if self.outbox.counts().failures >= attempts {
                return Ok(());
            }
            self.lake.pause(wait)?;
        }
    }

    /// Sends the due messages one after the other, until no message is due or an attempt fails.
    fn send_due(&mut self, watch: &mut MessageWatch<'_>) -> Result<(), LakeError> {
        let result = loop {
            let Some((ticket, manifest)) = self.outbox.due(monotonic_ns()) else { break Ok(()) };
            let outcome = match self.send(&manifest) {
                Ok(outcome) => outcome,
                Err(BusError::Refused(error)) => {
                    watch(MessageEvent::Refused { manifest: &manifest, error: &error });
                    MessageOutcome::Refused
                }
                Err(BusError::Failed(error)) => {
                    let pause = self.patience.pause(self.outbox.counts().failures);
                    self.outbox.fail(monotonic_ns(), pause, &error);
                    watch(MessageEvent::Failed { unsent: self.outbox.counts().unsent, error: &error });
                    continue;
                }
                Err(BusError::Stopped) => break Err(LakeError::Stopped),
            };
            let is_lost = self.outbox.settle(ticket, outcome);
            if is_lost && outcome == MessageOutcome::NoManifest {
                let error = "the store no longer has it";
                watch(MessageEvent::Refused { manifest: &manifest, error });
            }
        };
        // Close the connection. Segments are sealed minutes apart, and an idle connection would
        // only cost keep-alives.
        self.bus.close();
        // Write the file once for all messages of this round.
        self.outbox.save();
        if let Some(problem) = self.outbox.take_problem() {
            watch(MessageEvent::Problem(&problem));
        }
        result
    }

    fn send(&mut self, manifest: &str) -> Result<MessageOutcome, BusError> {
        let Some(group) = ObjectGroup::parse_manifest(manifest) else {
            return Ok(MessageOutcome::NoManifest);
        };
        let Some(body) = self.lake.read(manifest, MANIFEST_BYTES_MAX)? else {
            return Ok(MessageOutcome::NoManifest);
        };
        self.bus.send(&BusMessage::new(&self.subject, &group, body))?;
        Ok(MessageOutcome::Acknowledged)
    }

    /// Waits until a message is due or a new one is posted.
    fn wait(&self) -> Result<(), LakeError> {
        let at_most = self.outbox.wait(monotonic_ns());
        self.lake.wait_for(self.outbox.posted(), at_most)
    }
}
