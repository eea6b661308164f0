//! The message bus, its messages, and its errors. An error shows whether another attempt can
//! succeed.

use bytes::Bytes;

use crate::lake_error::LakeError;
use crate::names::ObjectGroup;
use crate::nats_settings::host_token;

/// A message about a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BusMessage {
    /// The subject of the message. The last token of the subject is the host.
    pub(crate) subject: String,
    /// The id by which the bus recognizes a repeated message. The id is the name of the manifest
    /// without its folder.
    pub(crate) id: String,
    /// The content of the manifest.
    pub(crate) body: Bytes,
}

impl BusMessage {
    /// Creates the message about the manifest of a group. `subject` is the subject without the
    /// host.
    pub(crate) fn new(subject: &str, group: &ObjectGroup, body: Bytes) -> Self {
        let subject = format!("{subject}.{}", host_token(group.partition.host()));
        Self { subject, id: group.stem().to_owned(), body }
    }
}

/// The reason why a message is not acknowledged. The strings contain no secrets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BusError {
    /// The bus did not accept the message, or the bus's response was lost. Another attempt may
    /// succeed.
    #[error("{0}")]
    Failed(String),
    /// The bus accepts other messages, but will never accept this message.
    #[error("{0}")]
    #[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "said by a bus that is built in"))]
    Refused(String),
    /// The stop signal was set.
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
    /// is no connection. A message whose id the bus already knows is acknowledged too.
    ///
    /// # Errors
    /// Any [`BusError`]. The bus may have received the message in spite of the error.
    fn send(&mut self, message: &BusMessage) -> Result<(), BusError>;

    /// Ends the connection, if there is one.
    fn close(&mut self);
}
