//! The storage of segments: a directory, and the files in it.
//!
//! These are traits, so that a recorder can supply a directory with quotas and rights, and a test
//! can supply one that fails or crashes.
//!
//! Storage never interprets the contents of files.

use std::fmt::Debug;
use std::fs::{File, FileTimes, TryLockError};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

#[cfg(target_os = "linux")]
pub mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

#[cfg(target_os = "linux")]
pub use linux::{file_names, open_regular};
#[cfg(not(target_os = "linux"))]
pub use portable::{file_names, open_regular};

/// Name of the lock file in a data directory.
pub const LOCK_NAME: &str = "flatcap.lock";

/// A directory that segments are written to.
pub trait Storage: Debug + Send + Sync {
    /// Creates a file that must not exist, for appending.
    ///
    /// # Errors
    /// `AlreadyExists`, or any error of the underlying system call.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Opens an existing file for reading, appending and truncating.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Renames a file. Does not replace another file.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Exchanges the names of two files atomically: at no time is one of the names missing or
    /// incomplete.
    ///
    /// # Errors
    /// `NotFound` if either is missing; `Unsupported` if the file system cannot exchange names; or
    /// any error of the underlying system call.
    fn exchange(&self, one: &str, other: &str) -> io::Result<()>;

    /// Renames a file over another one, which is removed. Only for a directory that no other
    /// process changes: this method may recreate a name that another process has removed.
    /// [`exchange`](Self::exchange) never replaces a file.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn replace(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Syncs the directory's entries to disk.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn sync_directory(&self) -> io::Result<()>;

    /// Returns the files in the directory, in no particular order. Skips names that are not UTF-8;
    /// they are not ours.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn entries(&self) -> io::Result<Vec<FileEntry>>;

    /// Returns total and available disk space.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn space(&self) -> io::Result<DiskSpace>;

    /// Returns whether `name` in the directory's path still refers to an open file: neither was
    /// removed, renamed or replaced.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn is_name_of(&self, _name: &str, _file: &dyn StorageFile) -> io::Result<bool> {
        Ok(true)
    }

    /// Switches to the directory that is now at the path, if it is another directory. Returns
    /// whether the directory has changed.
    ///
    /// # Errors
    /// The new directory cannot be created, opened or locked. After an error, nothing has changed.
    fn reopen_if_moved(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns whether the storage is memory (tmpfs), where a reservation takes memory from the
    /// whole host.
    fn is_in_memory(&self) -> bool {
        false
    }
}

/// A file in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Name.
    pub name: String,
    /// Allocated space on disk, in bytes: includes preallocation after the end of the file,
    /// excludes sparse ranges.
    pub allocated: u64,
    /// Inode number. The number identifies the file even after a rename.
    pub identity: u64,
}

impl FileEntry {
    /// The identity of a file that could not be queried. This identity matches no other file.
    pub const UNKNOWN: u64 = u64::MAX;
}

/// Disk space, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Total.
    pub total: u64,
    /// Available to this process.
    pub available: u64,
}

/// Owner, permissions and times of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileAttributes {
    /// User ID of the owner.
    pub owner: u32,
    /// Group ID.
    pub group: u32,
    /// Permission bits, without set-uid, set-gid and sticky bit.
    pub mode: u32,
    /// Times of the last change and access.
    pub times: FileTimes,
}

/// A file that can be read at any offset.
pub trait ReadAt: Debug + Send + Sync {
    /// Reads up to the length of the buffer from `offset` on; may return less. Returns 0 at the
    /// end.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns the current length, in bytes.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn length(&self) -> io::Result<u64>;

    /// Returns the offset of the next byte at or after `offset` that takes disk space. The bytes
    /// before it are zeros: a file of a few stored bytes may be 64 GiB long. Returns `offset` if
    /// its byte takes space, or if the file system does not report it.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn next_stored(&self, offset: u64) -> io::Result<u64> {
        Ok(offset)
    }

    /// Fills the buffer from `offset` on, up to the end of the file. Returns the number of bytes
    /// read.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn read_all_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(free) = buffer.get_mut(filled..).filter(|free| !free.is_empty()) {
            match self.read_at(free, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// A file that one thread appends to and another one syncs.
pub trait StorageFile: ReadAt {
    /// Appends the slices; may write only a part. Returns the number of bytes written.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Appends all bytes of the slices, and continues after short writes. Consumes the slices.
    ///
    /// # Errors
    /// `WriteZero` if nothing more is written, or any error of the underlying system call. A part
    /// may have been written.
    fn append_all(&self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match self.append(slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut slices, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Preallocates disk space up to `end` without changing the file's length.
    ///
    /// # Errors
    /// `Unsupported` if the file system cannot preallocate, or any error of the underlying system
    /// call.
    fn preallocate(&self, end: u64) -> io::Result<()>;

    /// Truncates the file to `length` and frees any preallocation after it.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Returns the allocated disk space, in bytes.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn allocated(&self) -> io::Result<u64>;

    /// Returns owner, group, mode and times.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn attributes(&self) -> io::Result<FileAttributes>;

    /// Sets owner, group, mode and times to the values of another file.
    ///
    /// # Errors
    /// `PermissionDenied` if the owner differs and this process may not change owners, or any error
    /// of the underlying system call.
    fn set_attributes(&self, attributes: &FileAttributes) -> io::Result<()>;

    /// Returns device and inode.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn identity(&self) -> io::Result<(u64, u64)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Syncs the file's content to disk (fdatasync).
    ///
    /// # Errors
    /// Any error of the underlying system call. After an error, earlier writes may be lost: never
    /// retry.
    fn sync(&self) -> io::Result<()>;
}

/// Returns whether a recorder runs in this directory, that is, holds its lock. Does not write.
pub fn is_recording(directory: &Path) -> bool {
    // A shared lock does not disturb other readers and leaves the file unchanged.
    open_regular(&directory.join(LOCK_NAME))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

impl ReadAt for File {
    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buffer, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    #[cfg(target_os = "linux")]
    fn next_stored(&self, offset: u64) -> io::Result<u64> {
        linux::next_stored(self, offset)
    }
}

/// Bytes in memory.
impl ReadAt for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.get(from..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}
