//! A file of a storage with a quota. Such a file requests space before it grows.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flatcap_format::storage::{FileAttributes, ReadAt, StorageFile};

use super::quota_core::{BLOCK_BYTES, OVERHEAD_BYTES, QuotaCore};
use super::retention::RetentionLimits;

#[derive(Debug)]
pub(super) struct QuotaFile {
    file: Arc<dyn StorageFile>,
    shared: Arc<QuotaCore>,
    name: String, // when created or opened
    length: AtomicU64,
    granted: AtomicU64, // space was found up to here
}

impl QuotaFile {
    /// Creates the wrapper that applies the limits to an open file.
    pub(super) fn new(file: Arc<dyn StorageFile>, shared: Arc<QuotaCore>, name: &str) -> io::Result<Self> {
        let length = file.length()?;
        Ok(Self {
            file,
            shared,
            name: name.to_owned(),
            length: AtomicU64::new(length),
            granted: AtomicU64::new(length.next_multiple_of(BLOCK_BYTES)),
        })
    }

    /// Runs an operation that extends the file to `end`, after making space for it.
    fn grow<T>(&self, end: u64, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        if end <= self.granted.load(Ordering::Relaxed)
            || self.shared.lock_usage().limits == RetentionLimits::NONE
        {
            return act();
        }
        let wanted = end.next_multiple_of(BLOCK_BYTES).saturating_add(OVERHEAD_BYTES);
        // If the allocated size cannot be read, the file is assumed to use all granted bytes.
        let occupied = self.file.allocated().unwrap_or_else(|_| self.granted.load(Ordering::Relaxed));
        let more = wanted.saturating_sub(occupied);
        let act = || {
            let done = act();
            let taken = self.file.allocated().map_or(more, |now| now.saturating_sub(occupied));
            (done, taken)
        };
        let done = match self.shared.within_limits(&self.name, more, act) {
            // The file system refuses space that it has reported as available.
            Err(error) if is_refusal(&error) => {
                let mut books = self.shared.lock_usage();
                if self.shared.make_refused_space(&mut books, more).is_err() {
                    return Err(error);
                }
                self.shared.with_grant(books, &self.name, more, act)?
            }
            done => done?,
        };
        self.granted.fetch_max(end, Ordering::Relaxed);
        Ok(done)
    }
}

/// Returns whether the file system has refused space because it is full or a quota is used up.
fn is_refusal(error: &io::Error) -> bool {
    error.raw_os_error().is_some()
        && matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl ReadAt for QuotaFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn next_stored(&self, offset: u64) -> io::Result<u64> {
        self.file.next_stored(offset)
    }
}

impl StorageFile for QuotaFile {
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        let end = self.length.load(Ordering::Relaxed).saturating_add(bytes);
        let taken = self.grow(end, || self.file.append(slices))?;
        self.length.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }

    fn preallocate(&self, end: u64) -> io::Result<()> {
        self.grow(end, || self.file.preallocate(end))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)?;
        self.length.store(length, Ordering::Relaxed);
        self.granted.store(length.next_multiple_of(BLOCK_BYTES), Ordering::Relaxed);
        Ok(())
    }

    fn allocated(&self) -> io::Result<u64> {
        self.file.allocated()
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        self.file.identity()
    }

    fn attributes(&self) -> io::Result<FileAttributes> {
        self.file.attributes()
    }

    fn set_attributes(&self, attributes: &FileAttributes) -> io::Result<()> {
        self.file.set_attributes(attributes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
