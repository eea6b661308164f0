//! The progress of a host in shipping its segments. The status consists of the files that are not
//! in the store yet, and of the state that the service writes.

use std::path::Path;

use serde::Serialize;

use crate::backlog::{UnshippedFiles, sealed_files};
use crate::error::ShipError;
use crate::service::ShipState;
use crate::shared_outbox::MessageCounts;
use crate::shipper::Shipper;

/// The backlog of a host, and the newest segment in the store.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ShipStatus {
    pub(crate) store: String,
    #[serde(flatten)]
    pub(crate) backlog: UnshippedFiles,
    /// File name of the newest segment that the store has.
    pub(crate) last_segment: Option<String>,
    /// Files that cannot be read.
    pub(crate) unreadable: Vec<String>,
    /// The state that the service reports, or `None` if it writes no state.
    pub(crate) service: Option<ShipState>,
}

impl ShipStatus {
    /// Compares a data directory with the store. Writes nothing.
    ///
    /// # Errors
    /// Fails if the directory cannot be read, or if the store fails.
    pub(crate) fn of(
        shipper: &mut Shipper<'_>,
        data_dir: &Path,
        status_file: Option<&Path>,
    ) -> Result<Self, ShipError> {
        let mut status = Self::default();
        for file in sealed_files(data_dir)? {
            match shipper.is_shipped(&file) {
                Ok(true) if file.snapshot.is_none() => status.last_segment = Some(file.name.to_string()),
                Ok(true) => {}
                Ok(false) => status.backlog.add(&file),
                // Retention has removed the file after the listing.
                Err(error) if error.is_gone() => {}
                Err(error) if error.is_of_segment() => status.unreadable.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        status.service = status_file.and_then(|path| ShipState::read(path).ok());
        Ok(status)
    }

    /// Returns the state as lines for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("store         {}", self.store)];
        let backlog = &self.backlog;
        let oldest = backlog.oldest().map(|time| format!(", the oldest of {time}")).unwrap_or_default();
        lines.push(format!(
            "backlog       {} segments, {} of them snapshots, {} bytes{oldest}",
            backlog.segments, backlog.snapshots, backlog.bytes
        ));
        lines.push(format!("last shipped  {}", self.last_segment.as_deref().unwrap_or("none")));
        lines.extend(self.unreadable.iter().map(|error| format!("unreadable    {error}")));
        if let Some(service) = &self.service {
            lines.push(format!(
                "service       {} segments and {} bytes since its start, as of {}",
                service.segments, service.bytes, service.updated
            ));
            if let Some(error) = &service.error {
                lines.push(format!("error         {error} ({} attempts)", service.failures));
            }
            if let Some(messages) = &service.messages {
                lines.push(format!(
                    "messages      {} sent since its start, {} unsent, {} dropped",
                    messages.sent, messages.unsent, messages.dropped
                ));
                if let Some(error) = &messages.error {
                    lines.push(format!("bus           {error} ({} attempts)", messages.failures));
                }
            }
            if service.gone > 0 {
                lines.push(format!(
                    "removed       {} segments by retention, before they were shipped",
                    service.gone
                ));
            }
            let refused = service.refused.iter();
            lines.extend(refused.map(|(path, error)| format!("refused       {}: {error}", path.display())));
        }
        lines
    }

    /// Returns whether the status shows a problem that needs attention.
    pub(crate) fn has_problems(&self) -> bool {
        let service = self.service.as_ref();
        !self.unreadable.is_empty()
            || service.is_some_and(|service| {
                let has_lost = |messages: &MessageCounts| messages.error.is_some() || messages.dropped > 0;
                service.error.is_some()
                    || service.has_losses()
                    || service.messages.as_ref().is_some_and(has_lost)
            })
    }
}
