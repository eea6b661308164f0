//! How far an import is, for whoever watches, and whether it shall go on.

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::rc::Rc;

use super::error::ImportError;
use super::input::Input;

/// How far an import is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes of the files that have been read, as they lie on the disk.
    pub bytes: u64,
    /// Frames recorded.
    pub frames: u64,
}

/// Opens the files of an import and tells how far it is.
pub struct Course<'w> {
    bytes: Rc<Cell<u64>>, // shared with the inputs, which read on this thread
    told: u64,
    watch: &'w mut dyn FnMut(Progress) -> bool,
}

impl fmt::Debug for Course<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Course").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<'w> Course<'w> {
    /// A watcher is told about every [`STEP_BYTES`](Self::STEP_BYTES), and says whether to go on.
    pub fn new(watch: &'w mut dyn FnMut(Progress) -> bool) -> Self {
        Self { bytes: Rc::default(), told: 0, watch }
    }

    /// After how many bytes of the files the watcher is told again.
    pub const STEP_BYTES: u64 = 1 << 20;

    /// Opens a file; it may be packed by gzip, which its first bytes tell. `-` is standard input.
    ///
    /// # Errors
    /// [`ImportError::Read`].
    pub fn open(&self, path: &Path) -> Result<Input, ImportError> {
        Input::open(path, Rc::clone(&self.bytes))
    }

    /// What counts the bytes that are read, for inputs that are opened otherwise.
    pub(super) fn counter(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.bytes)
    }

    /// Tells the watcher if there is something to tell. Returns whether to go on.
    #[inline]
    pub fn goes_on(&mut self, frames: u64) -> bool {
        let bytes = self.bytes.get();
        if bytes - self.told < Self::STEP_BYTES {
            return true;
        }
        self.told = bytes;
        (self.watch)(Progress { bytes, frames })
    }
}
