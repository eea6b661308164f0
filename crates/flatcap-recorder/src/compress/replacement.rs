//! Replaces the file of a segment with a file that has the same content in another form. At any
//! time, the segment's name leads to a complete file.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::path::Path;
use std::sync::Arc;

use flatcap_format::segment::{SegmentError, SegmentName, SegmentReader, SideFile};
use flatcap_format::storage::{ReadAt, Storage, StorageFile};

use super::outcome::{CompressError, CompressOutcome, CompressSkipReason};

/// The parameters for replacing segments.
#[allow(missing_debug_implementations, reason = "a closure: nothing to show")]
pub struct ReplaceJob<'a> {
    /// The directory of the segment.
    pub storage: &'a dyn Storage,
    /// Number of bytes that must stay free in the file system.
    pub min_free: u64,
    /// The way in which the new file replaces the old one.
    pub replace_mode: ReplaceMode,
    /// Called after each slice of work. Returns false to stop.
    pub after_slice: &'a mut dyn FnMut(WorkSlice) -> bool,
}

/// The way in which a new file replaces an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceMode {
    /// Exchange the two names. Exchange the names of the two files. This is safe even if other
    /// programs remove segments at the same time.
    Exchange,
    /// Exchange the names of the two files. If the file system does not support this, rename the
    /// new file over the old one. The rename is only safe if no other program removes segments at
    /// the same time.
    ExchangeOrReplace,
}

/// A finished slice of work. Each byte of a segment is processed twice: one time when it is written
/// and one time when it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkSlice {
    /// Number of processed bytes of the segment.
    pub raw_bytes: u64,
    /// Number of bytes read and written.
    pub io_bytes: u64,
}

/// The reason why the work ends early.
#[derive(Debug)]
pub(super) enum Halt {
    Skipped(CompressSkipReason),
    Stopped,
    Failed(&'static str, io::Error),
    /// The work failed after the names were changed. In this case no file is removed, because a
    /// crash may restore the old names.
    FailedAfterRename(&'static str, io::Error),
}

/// Returns the name of the temporary file.
pub(super) fn aside_name(name: SegmentName) -> String {
    name.side_file(SideFile::Compressing)
}

/// Converts the result of the work to the result for the caller, and removes the temporary file.
pub(super) fn conclude(
    storage: &dyn Storage,
    name: SegmentName,
    result: Result<CompressOutcome, Halt>,
) -> Result<CompressOutcome, CompressError> {
    let halt = match result {
        Ok(outcome) => return Ok(outcome),
        Err(halt) => halt,
    };
    if !matches!(halt, Halt::FailedAfterRename(..)) {
        // If the removal also fails, the next start of the daemon removes the file.
        let _removed = storage.remove(&aside_name(name));
    }
    match halt {
        Halt::Skipped(left) => Ok(CompressOutcome::Skipped(left)),
        Halt::Stopped => Ok(CompressOutcome::Stopped),
        Halt::Failed(step, error) | Halt::FailedAfterRename(step, error) => {
            Err(CompressError { name, step, error })
        }
    }
}

/// Opens the file of a segment.
pub(super) fn open_segment(
    storage: &dyn Storage,
    name: SegmentName,
) -> Result<(Arc<dyn StorageFile>, SegmentReader), Halt> {
    let path = name.to_string();
    let file = match storage.open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Halt::Skipped(CompressSkipReason::Removed));
        }
        // The name leads to something other than a regular file, or to another user's file. The
        // next attempt would fail in the same way.
        Err(error) if is_foreign_file(&error) => {
            return Err(Halt::Skipped(CompressSkipReason::Unreadable(error.to_string())));
        }
        opened => opened.map_err(failed("opening it"))?,
    };
    let reader = SegmentReader::over(Path::new(&path), Arc::clone(&file) as Arc<dyn ReadAt>);
    let reader = reader.map_err(|error| match error {
        SegmentError::Io { error, .. } => Halt::Failed(READING, error),
        // The caller adds the name of the segment to the error.
        error => {
            Halt::Skipped(CompressSkipReason::Unreadable(error.to_string().replace(&format!("{path}: "), "")))
        }
    })?;
    Ok((file, reader))
}

fn is_foreign_file(error: &io::Error) -> bool {
    use ErrorKind::{InvalidInput, IsADirectory, PermissionDenied};
    matches!(error.kind(), InvalidInput | IsADirectory | PermissionDenied)
}

/// Creates the temporary file, and replaces a temporary file that an earlier attempt left.
pub(super) fn create_aside(storage: &dyn Storage, name: SegmentName) -> Result<Arc<dyn StorageFile>, Halt> {
    let aside = aside_name(name);
    match storage.remove(&aside) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        removed => removed.map_err(failed("removing an earlier temporary file"))?,
    }
    storage.create(&aside).map_err(failed("creating the new file"))
}

impl ReplaceJob<'_> {
    /// Checks that the file system has space for `bytes` more bytes.
    pub(super) fn check_space(&self, bytes: u64) -> Result<(), Halt> {
        let available = self.storage.space().map_err(failed("reading the free space"))?.available;
        if available < self.min_free.saturating_add(bytes) {
            let min_free = self.min_free;
            return Err(Halt::Skipped(CompressSkipReason::TooLittleSpace { available, min_free }));
        }
        Ok(())
    }

    /// Reports a finished slice of work to the caller.
    pub(super) fn end_slice(&mut self, slice: WorkSlice) -> Result<(), Halt> {
        if (self.after_slice)(slice) { Ok(()) } else { Err(Halt::Stopped) }
    }

    /// Copies the attributes of the old file to the new file, syncs the new file, and then replaces
    /// the old file. `old_bytes` is the length of `old` when it was read.
    ///
    /// A sealed segment does not change. Another program may nevertheless have changed or replaced
    /// the file, so the file that now has the name is compared with the file that was read. No
    /// storage can compare and exchange files in one atomic step. The comparison is therefore made
    /// before the exchange and again after it.
    pub(super) fn replace(
        &self,
        name: SegmentName,
        (old, old_bytes): (&dyn StorageFile, u64),
        new: &dyn StorageFile,
    ) -> Result<(), Halt> {
        let (path, aside, storage) = (name.to_string(), aside_name(name), self.storage);
        let attributes = old.attributes().and_then(|attributes| new.set_attributes(&attributes));
        attributes.map_err(failed("setting owner, mode and times of the new file"))?;
        let gone = |error: io::Error, step| match error.kind() {
            ErrorKind::NotFound => Halt::Skipped(CompressSkipReason::Removed),
            _ => Halt::Failed(step, error),
        };
        new.sync().map_err(failed("syncing the new file"))?;
        let step = "replacing the old file";
        let is_old = |name: &str| is_file(storage, name, (old, old_bytes));
        if !is_old(&path).map_err(|error| gone(error, step))? {
            return Err(Halt::Skipped(CompressSkipReason::Changed));
        }
        let is_exchanged = match storage.exchange(&path, &aside) {
            Err(error) if error.kind() == ErrorKind::Unsupported => match self.replace_mode {
                ReplaceMode::Exchange => return Err(Halt::Skipped(CompressSkipReason::NoExchange)),
                ReplaceMode::ExchangeOrReplace => {
                    storage.replace(&aside, &path).map_err(|error| gone(error, step))?;
                    false
                }
            },
            exchanged => exchanged.map(|()| true).map_err(|error| gone(error, step))?,
        };
        let was_old = match is_old(&aside) {
            _ if !is_exchanged => Ok(true),
            // Retention removes the temporary file of a segment together with the segment.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            was_old => was_old,
        };
        if !was_old.map_err(|error| Halt::FailedAfterRename(step, error))? {
            let undone = storage.exchange(&path, &aside).and_then(|()| storage.sync_directory());
            undone.map_err(|error| Halt::FailedAfterRename("undoing the exchange", error))?;
            return Err(Halt::Skipped(CompressSkipReason::Changed));
        }
        // The sync must precede the removal of the old file, because until the sync the disk may
        // have the old names.
        let synced = storage.sync_directory();
        synced.map_err(|error| Halt::FailedAfterRename("syncing the directory", error))?;
        if is_exchanged && let Err(error) = storage.remove(&aside) {
            // Retention removes the temporary file of a segment together with the segment.
            if error.kind() != ErrorKind::NotFound {
                return Err(Halt::FailedAfterRename("removing the old file", error));
            }
        }
        Ok(())
    }
}

/// Returns whether a name leads to the file that was read, and the file still has the same length.
fn is_file(storage: &dyn Storage, name: &str, (file, bytes): (&dyn StorageFile, u64)) -> io::Result<bool> {
    let found = storage.open(name)?;
    let is_same = match (found.identity(), file.identity()) {
        // The storage has no file identities, so compare only the lengths.
        (Err(error), _) if error.kind() == ErrorKind::Unsupported => true,
        (found, file) => found? == file?,
    };
    Ok(is_same && found.length()? == bytes)
}

pub(super) const READING: &str = "reading it";
pub(super) const WRITING: &str = "writing the new file";

pub(super) fn failed(step: &'static str) -> impl Fn(io::Error) -> Halt {
    move |error| match error.kind() {
        // Other programs have filled the disk.
        ErrorKind::StorageFull => Halt::Skipped(CompressSkipReason::DiskFull),
        _ => Halt::Failed(step, error),
    }
}

/// Adapts a storage file, so that a writer can write to it.
#[derive(Debug)]
pub(super) struct StorageOutput(pub(super) Arc<dyn StorageFile>);

impl Write for StorageOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(&[IoSlice::new(bytes)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
