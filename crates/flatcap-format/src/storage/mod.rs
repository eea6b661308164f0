//! The storage of segments, which is a directory and the files in it.
//!
//! The directory and the files are traits. A recorder can thus supply a directory with quotas and
//! rights, and a test can supply a directory that fails or crashes.
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

/// A directory to which segments are written.
pub trait Storage: Debug + Send + Sync {
    /// Creates a file and opens it for appending. Fails if the file exists.
    ///
    /// # Errors
    /// Returns `AlreadyExists`, or any error of the underlying system call.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Opens an existing file for reading, appending and truncating.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Renames a file. Fails if a file with the new name exists.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Exchanges the names of two files in one atomic step. Both names always exist, and each name
    /// always refers to one of the two complete files.
    ///
    /// # Errors
    /// Returns `NotFound` if either file is missing, `Unsupported` if the file system cannot
    /// exchange names, or any error of the underlying system call.
    fn exchange(&self, one: &str, other: &str) -> io::Result<()>;

    /// Renames a file. Removes another file that has the new name. Use this method only in a
    /// directory that no other process changes, because the method may recreate a name that another
    /// process has removed. In contrast, [`exchange`](Self::exchange) never replaces a file.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn replace(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Syncs the directory's entries to disk.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn sync_directory(&self) -> io::Result<()>;

    /// Returns the files in the directory, in no particular order. Skips names that are not UTF-8,
    /// because flatcap does not create files with such names.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn entries(&self) -> io::Result<Vec<FileEntry>>;

    /// Returns the total and the available disk space.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn space(&self) -> io::Result<DiskSpace>;

    /// Returns whether `name`, in the directory that is now at the path, still refers to `file`.
    /// Returns false if the directory or the file was removed, renamed or replaced.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn is_name_of(&self, _name: &str, _file: &dyn StorageFile) -> io::Result<bool> {
        Ok(true)
    }

    /// Switches to the directory that is now at the path, if that is not the open directory.
    /// Returns whether the directory has changed.
    ///
    /// # Errors
    /// Fails if the new directory cannot be created, opened or locked. After an error, the open
    /// directory is still in use.
    fn reopen_if_moved(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns whether the storage is in memory (tmpfs). Preallocation in such a storage takes
    /// memory from the whole host.
    fn is_in_memory(&self) -> bool {
        false
    }
}

/// A file in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// The file's name.
    pub name: String,
    /// Disk space that is allocated for the file, in bytes. It includes preallocated space after
    /// the end of the file, and excludes sparse ranges.
    pub allocated: u64,
    /// Inode number. The number identifies the file even after a rename.
    pub identity: u64,
}

impl FileEntry {
    /// The identity of a file whose status could not be read. This identity is not equal to the
    /// identity of any file.
    pub const UNKNOWN: u64 = u64::MAX;
}

/// Disk space, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// The size of the file system.
    pub total: u64,
    /// The space that this process can use.
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
    /// Reads the bytes at `offset` into the buffer. Returns the number of bytes read, which may be
    /// less than the length of the buffer. Returns 0 at the end of the file.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns the current length of the file, in bytes.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn length(&self) -> io::Result<u64>;

    /// Returns the offset of the next byte at or after `offset` that takes disk space. All bytes
    /// from `offset` up to the returned offset are zeros. This helps to skip holes: a sparse file
    /// with a few stored bytes may be 64 GiB long. Returns `offset` if the byte at `offset` takes
    /// disk space, or if the file system does not provide this information.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn next_stored(&self, offset: u64) -> io::Result<u64> {
        Ok(offset)
    }

    /// Fills the buffer from `offset` on, up to the end of the file. Returns the number of bytes
    /// read.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
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

/// A file to which one thread appends, and which another thread syncs.
pub trait StorageFile: ReadAt {
    /// Appends the slices. May write fewer bytes than requested. Returns the number of bytes
    /// written.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Appends all bytes of the slices, and continues after short writes. The slices are changed,
    /// and the caller must not use them afterwards.
    ///
    /// # Errors
    /// Returns `WriteZero` if a write accepts no more bytes, or any error of the underlying system
    /// call. After an error, a part of the bytes may have been written.
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
    /// Returns `Unsupported` if the file system cannot preallocate, or any error of the underlying
    /// system call.
    fn preallocate(&self, end: u64) -> io::Result<()>;

    /// Truncates the file to `length` and frees the preallocated space after `length`.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Returns the allocated disk space, in bytes.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn allocated(&self) -> io::Result<u64>;

    /// Returns the owner, the group, the mode and the times of the file.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn attributes(&self) -> io::Result<FileAttributes>;

    /// Sets the owner, the group, the mode and the times of the file to these values, which are
    /// from another file.
    ///
    /// # Errors
    /// Returns `PermissionDenied` if the owner differs and this process may not change owners, or
    /// any error of the underlying system call.
    fn set_attributes(&self, attributes: &FileAttributes) -> io::Result<()>;

    /// Returns the device number and the inode number.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    fn identity(&self) -> io::Result<(u64, u64)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Syncs the file's content to disk (fdatasync).
    ///
    /// # Errors
    /// Returns any error of the underlying system call. After an error, data of earlier writes may
    /// be lost, so the caller must not sync the file again.
    fn sync(&self) -> io::Result<()>;
}

/// Returns whether a recorder runs in this directory, that is, holds the lock of the directory.
/// Does not write.
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

/// Reads bytes in memory like a file.
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
