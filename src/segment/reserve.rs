//! Room on the medium for a file that grows: taken ahead of the writing, with what will end the file always kept.

use std::io;

use crate::os::storage::StorageFile;

/// The step in which space is reserved where no other is asked for: each step is a call.
const RESERVE_STEP: u64 = 1 << 20;
/// The smallest step: a small disk has small segments.
const RESERVE_STEP_MIN: u64 = 64 << 10;

/// Room on the medium, taken in steps ahead of the writing.
#[derive(Debug)]
pub(super) struct Reserve {
    step: u64,
    end: u64,
    is_supported: bool,
}

impl Reserve {
    /// Nothing is reserved yet. `step` is that in which it will be, in bytes; 0 for the usual one.
    pub(super) fn new(step: u64) -> Self {
        let step = if step == 0 { RESERVE_STEP } else { step.max(RESERVE_STEP_MIN) };
        Self { step, end: 0, is_supported: true }
    }

    /// The file was cut: what was reserved went with it.
    pub(super) fn forget(&mut self) {
        self.end = 0;
    }

    /// Sees to room up to `end`, and for what will seal the segment behind it, before anything is written. A storage that
    /// cannot reserve is not asked again.
    pub(super) fn ahead_of(&mut self, end: u64, seal_bytes: u64, file: &dyn StorageFile) -> io::Result<()> {
        let least = end + seal_bytes;
        if !self.is_supported || least <= self.end {
            return Ok(());
        }
        let wanted = least.next_multiple_of(self.step);
        // Near the end of the medium less than a whole step may be left.
        let result = file.preallocate(wanted).map(|()| wanted).or_else(|error| {
            if is_full(&error) { file.preallocate(least).map(|()| least) } else { Err(error) }
        });
        match result {
            Ok(end) => self.end = end,
            Err(error) if is_full(&error) => return Err(full(error)),
            Err(_) => self.is_supported = false,
        }
        Ok(())
    }
}

/// The error, under the one kind that says that there is no room.
pub(super) fn full(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::StorageFull {
        error
    } else {
        io::Error::new(io::ErrorKind::StorageFull, error)
    }
}

/// Whether an error says that there is no room: on the medium, within a quota, or below the largest file size.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
