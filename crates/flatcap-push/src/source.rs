//! A source of a client, pushed by any thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatcap_stream::short_bytes::copy;

use super::error::PushError;
use super::setup::{ClientSource, OnFullLane};
use super::shared::ClientHandle;
use super::thread_lane::with_lane;

/// A source. Cheap to clone; any thread may push.
#[derive(Debug, Clone)]
pub struct PushSource {
    client: Arc<ClientHandle>,
    slot: u8,
    on_full: OnFullLane,
}

impl PushSource {
    pub(crate) fn new(client: Arc<ClientHandle>, slot: u8, on_full: OnFullLane) -> Self {
        Self { client, slot, on_full }
    }

    /// Pushes a sample with this payload, stamped now.
    ///
    /// # Errors
    /// Why it was dropped. It is counted.
    #[inline]
    pub fn push(&self, payload: &[u8]) -> Result<(), PushError> {
        self.push_with(payload.len(), |place| copy(place, payload))
    }

    /// Pushes a sample; `fill` writes its payload of `bytes` in place. The place has any content
    /// and alignment.
    ///
    /// # Errors
    /// Why it was dropped. It is counted.
    #[inline]
    pub fn push_with(&self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), PushError> {
        let pushed = with_lane(&self.client.shared, |lane| lane.push(self.slot, self.on_full, bytes, fill));
        if pushed == Err(PushError::Busy) {
            self.count_busy();
        }
        pushed
    }

    #[cold]
    pub(crate) fn count_busy(&self) {
        self.source().inspect(|source| source.count_busy());
    }

    /// Returns how many samples of this source were dropped in this process.
    pub fn dropped(&self) -> u64 {
        let busy = self.source().map_or(0, |source| source.busy.load(Ordering::Relaxed));
        self.client.shared.process().registry.dropped(self.slot) + busy
    }

    fn source(&self) -> Option<&ClientSource> {
        self.client.shared.setup.sources.get(usize::from(self.slot)).and_then(|source| source.get())
    }

    pub(crate) fn slot(&self) -> u8 {
        self.slot
    }

    pub(crate) fn on_full(&self) -> OnFullLane {
        self.on_full
    }

    pub(crate) fn client(&self) -> &Arc<ClientHandle> {
        &self.client
    }
}
