//! A source of a client. Any thread can push samples to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatcap_stream::short_bytes::copy;

use super::error::PushError;
use super::setup::{ClientSource, SourceSlot};
use super::shared::ClientHandle;
use super::thread_lane::push;

/// A source. A handle of a source is cheap to clone, and any thread may push samples to it.
#[derive(Debug, Clone)]
pub struct PushSource {
    client: Arc<ClientHandle>,
    slot: SourceSlot,
}

impl PushSource {
    pub(crate) fn new(client: Arc<ClientHandle>, slot: SourceSlot) -> Self {
        Self { client, slot }
    }

    /// Pushes a sample with this payload and the current time.
    ///
    /// # Errors
    /// The error is the reason why the sample was dropped. A dropped sample is counted.
    #[inline]
    pub fn push(&self, payload: &[u8]) -> Result<(), PushError> {
        self.push_with(payload.len(), |place| copy(place, payload))
    }

    /// Pushes a sample. The function `fill` writes the payload of `bytes` bytes directly into the
    /// lane. Before the call, the memory has arbitrary content. The memory may have any alignment.
    ///
    /// # Errors
    /// The error is the reason why the sample was dropped. A dropped sample is counted.
    #[inline]
    pub fn push_with(&self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), PushError> {
        let pushed = push(&self.client.shared, &self.slot, bytes, fill);
        if pushed == Err(PushError::Busy) {
            self.count_busy();
        }
        pushed
    }

    #[cold]
    pub(crate) fn count_busy(&self) {
        self.source().inspect(|source| source.count_busy());
    }

    /// Returns the number of samples of this source that were dropped in this process.
    pub fn dropped(&self) -> u64 {
        let busy = self.source().map_or(0, |source| source.busy.load(Ordering::Relaxed));
        self.client.shared.process().registry.dropped(self.slot.number) + busy
    }

    fn source(&self) -> Option<&ClientSource> {
        self.client.shared.setup.sources.get(usize::from(self.slot.number)).and_then(|source| source.get())
    }

    pub(crate) fn slot(&self) -> &SourceSlot {
        &self.slot
    }

    pub(crate) fn client(&self) -> &Arc<ClientHandle> {
        &self.client
    }
}
