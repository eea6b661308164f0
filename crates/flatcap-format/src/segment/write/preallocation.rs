//! Preallocates disk space for a growing file. The space is preallocated before the writes, and
//! always includes space for the end of the file.

use std::io;

use crate::storage::StorageFile;

/// Default step of preallocation, in bytes. A large step saves time, because each step is a system
/// call.
const RESERVE_STEP: u64 = 1 << 20;
/// Minimum step of preallocation, in bytes. A small step is useful on small disks, because their
/// segments are small.
const RESERVE_STEP_MIN: u64 = 64 << 10;

/// Disk space of a file, preallocated in steps ahead of the writes.
#[derive(Debug)]
pub(in crate::segment) struct Preallocation {
    step: u64,
    end: u64,
    is_supported: bool,
}

impl Preallocation {
    /// Creates the state of a file that has no preallocated space. `step` is in bytes. The value 0
    /// selects the default step.
    pub(in crate::segment) fn new(step: u64) -> Self {
        let step = if step == 0 { RESERVE_STEP } else { step.max(RESERVE_STEP_MIN) };
        Self { step, end: 0, is_supported: true }
    }

    /// Records that the file was truncated, which also frees the preallocated space.
    pub(in crate::segment) fn reset(&mut self) {
        self.end = 0;
    }

    /// Preallocates space up to `end`, and `seal_bytes` after it for sealing the segment. The
    /// writer calls this function before each write. If the storage does not support preallocation,
    /// later calls have no effect.
    pub(in crate::segment) fn ensure(
        &mut self,
        end: u64,
        seal_bytes: u64,
        file: &dyn StorageFile,
    ) -> io::Result<()> {
        let least = end + seal_bytes;
        if !self.is_supported || least <= self.end {
            return Ok(());
        }
        let wanted = least.next_multiple_of(self.step);
        // If the disk is nearly full, less than a whole step may be available.
        let result = file.preallocate(wanted).map(|()| wanted).or_else(|error| {
            if is_storage_full(&error) { file.preallocate(least).map(|()| least) } else { Err(error) }
        });
        match result {
            Ok(end) => self.end = end,
            Err(error) if is_storage_full(&error) => return Err(into_storage_full(error)),
            Err(_) => self.is_supported = false,
        }
        Ok(())
    }
}

/// Converts the error to the kind `StorageFull`.
pub(in crate::segment) fn into_storage_full(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::StorageFull {
        error
    } else {
        io::Error::new(io::ErrorKind::StorageFull, error)
    }
}

/// Returns whether an error means that no space is available. This is the case if the disk is full,
/// a quota is exhausted, or the file has reached the maximum size.
pub(in crate::segment) fn is_storage_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
