//! A bus that takes messages: what is sent, and which errors are worth another attempt.

use bytes::Bytes;

use crate::lake_error::LakeError;
use crate::names::ObjectGroup;
use crate::nats_settings::host_token;

/// A message about a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BusMessage {
    /// Where it goes; the last token is the host.
    pub(crate) subject: String,
    /// By what the bus knows it again: the name of the manifest without folder.
    pub(crate) id: String,
    /// The manifest.
    pub(crate) body: Bytes,
}

impl BusMessage {
    /// The message about the manifest of a group, below a subject.
    pub(crate) fn new(subject: &str, group: &ObjectGroup, body: Bytes) -> Self {
        let subject = format!("{subject}.{}", host_token(group.partition.host()));
        Self { subject, id: group.stem().to_owned(), body }
    }
}

/// Why a message is not acknowledged. The texts have no secrets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BusError {
    /// The bus did not take it, or its answer is lost. Another attempt may succeed.
    #[error("{0}")]
    Failed(String),
    /// The bus takes other messages, but never this one.
    #[error("{0}")]
    #[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "said by a bus that is built in"))]
    Refused(String),
    /// The stop signal.
    #[error("stopped by a signal")]
    Stopped,
}

impl From<LakeError> for BusError {
    fn from(error: LakeError) -> Self {
        match error {
            LakeError::Stopped => Self::Stopped,
            error => Self::Failed(error.to_string()),
        }
    }
}

/// A connection to a bus.
pub(crate) trait MessageBus: Send {
    /// Sends a message, and waits for its acknowledgement, but for a bounded time. Connects first
    /// if there is no connection. A message that the bus knows by its id is acknowledged, too.
    ///
    /// # Errors
    /// Those of [`BusError`]. The bus may nevertheless have the message.
    fn send(&mut self, message: &BusMessage) -> Result<(), BusError>;

    /// Ends the connection, if there is one.
    fn close(&mut self);
}
