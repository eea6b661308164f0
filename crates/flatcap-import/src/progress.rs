//! Progress of an import, which is reported to a callback. The callback can stop the import.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use flatcap_os::wake_event::WakeEvent;

use super::error::ImportError;
use super::input::{Input, InputContext};

/// Progress of an import.
#[derive(Debug, Clone, Copy)]
pub struct ProgressUpdate {
    /// Number of bytes read from the files, before decompression.
    pub bytes: u64,
    /// Frames recorded.
    pub frames: u64,
}

/// Opens the files of an import and reports its progress.
pub struct ImportProgress<'w> {
    context: InputContext, // shared with the inputs, which read on this thread
    reported_bytes: u64,
    callback: &'w mut dyn FnMut(ProgressUpdate) -> bool,
}

impl fmt::Debug for ImportProgress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportProgress").field("context", &self.context).finish_non_exhaustive()
    }
}

impl<'w> ImportProgress<'w> {
    /// Creates an `ImportProgress` that calls `watch` about every [`STEP_BYTES`](Self::STEP_BYTES)
    /// bytes. The import stops if `watch` returns false.
    pub fn new(watch: &'w mut dyn FnMut(ProgressUpdate) -> bool) -> Self {
        Self { context: InputContext::default(), reported_bytes: 0, callback: watch }
    }

    /// Sets the event that interrupts a read that is waiting for the writer of a pipe. The import
    /// then stops, as if the callback had returned false.
    #[must_use]
    pub(crate) fn with_stop(mut self, stop: Arc<WakeEvent>) -> Self {
        self.context.stop = stop;
        self
    }

    /// Number of bytes that are read between two reports of progress.
    pub const STEP_BYTES: u64 = 1 << 20;

    /// Opens a file; `-` is standard input. Decompresses gzip, which is detected by the first
    /// bytes.
    ///
    /// # Errors
    /// [`ImportError::Read`], [`ImportError::Stopped`].
    pub fn open(&self, path: &Path) -> Result<Input, ImportError> {
        Input::open(path, self.context())
    }

    /// Returns the context for inputs that are not opened with [`open`](Self::open).
    pub(super) fn context(&self) -> InputContext {
        self.context.clone()
    }

    /// Calls the callback if at least [`STEP_BYTES`](Self::STEP_BYTES) bytes were read since the
    /// last call. Returns whether to continue.
    #[inline]
    pub(crate) fn should_continue(&mut self, frames: u64) -> bool {
        let bytes = self.context.bytes.get();
        if bytes - self.reported_bytes < Self::STEP_BYTES {
            return true;
        }
        self.reported_bytes = bytes;
        (self.callback)(ProgressUpdate { bytes, frames })
    }
}
