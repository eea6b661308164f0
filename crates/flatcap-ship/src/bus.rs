//! A bus that accepts messages: its messages, and the errors after which another attempt makes
//! sense.

use bytes::Bytes;

use crate::lake_error::LakeError;
use crate::names::ObjectGroup;
use crate::nats_settings::host_token;

/// A message about a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BusMessage {
    /// The subject; its last token is the host.
    pub(crate) subject: String,
    /// The id by which the bus recognizes a repeated message: the name of the manifest without
    /// folder.
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

/// The reason why a message is not acknowledged. The texts contain no secrets.
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
    /// Sends a message, and waits a limited time for its acknowledgement. Connects first if there
    /// is no connection. A message whose id the bus already knows is acknowledged, too.
    ///
    /// # Errors
    /// The errors of [`BusError`]. The bus may nevertheless have the message.
    fn send(&mut self, message: &BusMessage) -> Result<(), BusError>;

    /// Ends the connection, if there is one.
    fn close(&mut self);
}
