//! The data directory. This module creates, locks and lists it, and writes, syncs and renames its
//! files.

use std::fs::{File, FileTimes, Permissions, TryLockError};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatcap_format::storage::linux::{Directory, FileAccess, OwnerRights};
use flatcap_format::storage::{
    DiskSpace, FileAttributes, FileEntry, LOCK_NAME, ReadAt, Storage, StorageFile,
};
use rustix::fs::{FallocateFlags, fallocate, fstatfs, fstatvfs};
use rustix::io::Errno;

use super::clock::monotonic_ns;
use super::environment;
use super::wake_event::WakeEvent;

/// Mode of a new data directory, with full access for the owner and read access for the group.
const DIRECTORY_MODE: u32 = 0o750;
/// Mode of a new data file.
const FILE_MODE: u32 = 0o640;
/// Mode bits that can be copied from one file to another. They exclude the set-uid, set-gid and
/// sticky bits.
const PERMISSIONS: u32 = 0o777;
/// Magic numbers of in-memory file systems, tmpfs and ramfs (statfs(2)).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
/// The unit of `st_blocks` (stat(2)), in bytes.
const BLOCK_BYTES: u64 = 512;

/// Returns the default data directory. This is the service's state directory, or else a directory
/// in the working directory, so that a first run needs no privileges.
pub fn default_directory() -> PathBuf {
    environment::directory("STATE_DIRECTORY").unwrap_or_else(|| PathBuf::from("./flatcap-data"))
}

/// A directory of the host's file system, opened and locked. All operations apply to the directory
/// that was opened, even if it is moved.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    directory: Directory,
    lock: Option<File>, // none: others may change it, too
    removes_lock: bool, // the lock file at the end, because there was none before
}

/// An error that makes a data directory unusable for recording.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// The directory cannot be used, because of missing rights, a file in its place, or a read-only
    /// file system. The user must correct the path or its rights.
    #[error("cannot {action} the data directory {}: {error}; check its path and permissions", path.display())]
    Unusable {
        /// The operation that failed.
        action: &'static str,
        /// The directory.
        path: PathBuf,
        /// The system call's error.
        #[source]
        error: io::Error,
    },
    /// Another recorder holds the lock. The user must stop that recorder or record to another
    /// directory.
    #[error(
        "the data directory {} is in use by another recorder, which holds the lock {LOCK_NAME} in it; \
         stop that recorder or name another directory",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

/// Number of times that a failed attempt to lock is repeated. Retries are needed for two reasons. A
/// reader holds the lock for a moment to check whether a recorder runs. At its end, a command
/// removes the lock file that it created.
const LOCK_RETRIES: u32 = 20;
/// Interval between two attempts to lock, in nanoseconds.
const LOCK_RETRY_NS: u64 = 5_000_000;

impl DataDirectory {
    /// Opens the directory, creating it and its parents if missing, and takes its lock.
    ///
    /// # Errors
    /// `Unusable` with the step that failed, or `InUse` while another recorder runs.
    pub fn open(path: &Path) -> Result<Self, DataDirectoryError> {
        match Directory::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::lock(path, Directory::create(path, DIRECTORY_MODE).map_err(unusable("create", path))?)
            }
            opened => Self::lock(path, opened.map_err(unusable("open", path))?),
        }
    }

    /// Opens an existing directory to change its segments, and takes its lock. If the directory has
    /// no lock file, creates one and removes it when this value is dropped.
    ///
    /// # Errors
    /// The same errors as [`open`](Self::open).
    pub fn open_existing(path: &Path) -> Result<Self, DataDirectoryError> {
        let directory = Directory::open(path).map_err(unusable("open", path))?;
        let has_lock = directory.stat(LOCK_NAME).is_ok();
        let mut opened = Self::lock(path, directory)?;
        opened.removes_lock = !has_lock;
        Ok(opened)
    }

    fn lock(path: &Path, directory: Directory) -> Result<Self, DataDirectoryError> {
        let unusable = unusable("lock", path);
        let unusable =
            |error: io::Error| unusable(io::Error::new(error.kind(), format!("{LOCK_NAME}: {error}")));
        for retry in 0..=LOCK_RETRIES {
            if retry > 0 {
                WakeEvent::new().wait_until(monotonic_ns() + LOCK_RETRY_NS);
            }
            let lock = directory.file(LOCK_NAME, FileAccess::Create(FILE_MODE)).map_err(unusable)?;
            match lock.try_lock() {
                // If the file was removed after it was opened, a lock on it excludes no other
                // process.
                Ok(()) if is_lock_file(&directory, &lock).map_err(unusable)? => {
                    return Ok(Self {
                        path: path.to_owned(),
                        directory,
                        lock: Some(lock),
                        removes_lock: false,
                    });
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(unusable(error)),
            }
        }
        Err(DataDirectoryError::InUse { path: path.to_owned() })
    }

    /// Wraps an open directory without a lock. The caller must make sure that no other process
    /// changes the files in the directory.
    pub(super) fn unlocked(path: &Path, directory: Directory) -> Self {
        Self { path: path.to_owned(), directory, lock: None, removes_lock: false }
    }

    /// Returns device and inode of the directory, which identify it even if its path changes.
    pub fn identity(&self) -> (u64, u64) {
        self.directory.identity()
    }

    /// Returns whether the path of this directory still refers to the same directory.
    pub(super) fn is_still_at_path(&self) -> bool {
        rustix::fs::stat(&self.path).is_ok_and(|status| (status.st_dev, status.st_ino) == self.identity())
    }

    /// Returns the path that was used to open the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes `name` in the directory a symbolic link to `target`, replacing an earlier link.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists and is not a link; any error of the underlying system
    /// calls.
    pub fn set_link(&self, name: &str, target: &Path) -> io::Result<()> {
        self.directory.set_link(name, target)
    }

    /// Removes a name if it is a symbolic link.
    ///
    /// # Errors
    /// Any error of the underlying system calls.
    pub fn remove_link(&self, name: &str) -> io::Result<()> {
        self.directory.remove_link(name)
    }

    fn wrap_file(&self, file: File) -> Arc<dyn StorageFile> {
        Arc::new(DiskFile { file, rights: self.directory.rights().cloned() })
    }
}

impl Drop for DataDirectory {
    fn drop(&mut self) {
        // The file is removed while it is still locked. So a process that has already opened the
        // file cannot lock it before the removal, and then finds that the name no longer refers to
        // the file. This is best effort, because a lock file that stays is harmless.
        if self.removes_lock
            && let Some(lock) = &self.lock
            && is_lock_file(&self.directory, lock).unwrap_or(false)
        {
            drop(self.directory.remove(LOCK_NAME));
        }
    }
}

/// Returns whether the name of the lock file still refers to this file.
fn is_lock_file(directory: &Directory, lock: &File) -> io::Result<bool> {
    let locked = lock.metadata()?;
    match directory.stat(LOCK_NAME) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (locked.dev(), locked.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns a function that wraps an I/O error into `Unusable`.
fn unusable(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DataDirectoryError {
    move |error| DataDirectoryError::Unusable { action, path: path.to_owned(), error }
}

impl Storage for DataDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.wrap_file(self.directory.create_file(name, FILE_MODE)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.wrap_file(self.directory.file(name, FileAccess::Append)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.rename(from, to)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.directory.exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.directory.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync()
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        let mut entries = Vec::new();
        for name in self.directory.names()? {
            match self.directory.stat(&name) {
                Ok(status) => {
                    let allocated = u64::try_from(status.st_blocks).unwrap_or_default();
                    let allocated = allocated.saturating_mul(BLOCK_BYTES);
                    entries.push(FileEntry { name, allocated, identity: status.st_ino });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => entries.push(FileEntry { name, allocated: 0, identity: FileEntry::UNKNOWN }),
            }
        }
        Ok(entries)
    }

    fn space(&self) -> io::Result<DiskSpace> {
        let filesystem = fstatvfs(&self.directory)?;
        Ok(DiskSpace {
            total: filesystem.f_blocks.saturating_mul(filesystem.f_frsize),
            available: filesystem.f_bavail.saturating_mul(filesystem.f_frsize),
        })
    }

    fn is_name_of(&self, name: &str, file: &dyn StorageFile) -> io::Result<bool> {
        match rustix::fs::lstat(self.path.join(name)) {
            Ok(status) => Ok((status.st_dev, status.st_ino) == file.identity()?),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn is_in_memory(&self) -> bool {
        fstatfs(&self.directory).is_ok_and(|filesystem| IN_MEMORY.contains(&filesystem.f_type))
    }
}

#[derive(Debug)]
struct DiskFile {
    file: File,
    rights: Option<OwnerRights>, // of the directory's owner, for root in another user's directory
}

impl ReadAt for DiskFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        ReadAt::read_at(&self.file, buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn next_stored(&self, offset: u64) -> io::Result<u64> {
        self.file.next_stored(offset)
    }
}

impl StorageFile for DiskFile {
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.file).write_vectored(slices)
    }

    fn preallocate(&self, end: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, end)?)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks().saturating_mul(BLOCK_BYTES))
    }

    fn attributes(&self) -> io::Result<FileAttributes> {
        let metadata = self.file.metadata()?;
        Ok(FileAttributes {
            owner: metadata.uid(),
            group: metadata.gid(),
            mode: metadata.mode() & PERMISSIONS,
            times: FileTimes::new().set_modified(metadata.modified()?).set_accessed(metadata.accessed()?),
        })
    }

    fn set_attributes(&self, attributes: &FileAttributes) -> io::Result<()> {
        let _assumed = self.rights.as_ref().map(OwnerRights::assume).transpose()?;
        let now = self.attributes()?;
        let other = |wanted: u32, now: u32| (wanted != now).then_some(wanted);
        let (owner, group) = (other(attributes.owner, now.owner), other(attributes.group, now.group));
        if owner.is_some() || group.is_some() {
            // The owner is set before the mode, because chown clears some bits of the mode.
            fchown(&self.file, owner, group)?;
        }
        self.file.set_permissions(Permissions::from_mode(attributes.mode))?;
        self.file.set_times(attributes.times)
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        let metadata = self.file.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use flatcap_format::storage::is_recording;

    use super::*;

    // Proves that a reader that checks whether a recorder runs does not prevent a recorder from
    // starting. Another thread holds the lock for a moment at a time, as such a reader does.
    // Without retries, no attempt would succeed.
    #[test]
    fn a_reader_keeps_no_recorder_out() {
        let folder = tempfile::tempdir().unwrap();
        drop(DataDirectory::open(folder.path()).unwrap());
        let is_opened = || {
            let reader = File::open(folder.path().join(LOCK_NAME)).unwrap();
            reader.lock_shared().unwrap();
            let beside = super::super::thread::spawn("reader", move || {
                WakeEvent::new().wait_until(monotonic_ns() + 3 * LOCK_RETRY_NS);
                drop(reader);
            });
            let opened = DataDirectory::open(folder.path());
            beside.unwrap().join().unwrap();
            opened.is_ok()
        };
        // On a busy machine, the reader may hold the lock longer than all retries take, but not at
        // every attempt.
        assert!((0..50).any(|_| is_opened()));
    }

    // Proves that a directory accepts one recorder at a time, and that readers can see whether a
    // recorder runs.
    #[test]
    fn the_lock_excludes_a_second_recorder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let first = DataDirectory::open(&path).unwrap();
        assert!(is_recording(&path));
        let second = DataDirectory::open(&path).unwrap_err();
        assert!(matches!(second, DataDirectoryError::InUse { .. }), "{second}");
        drop(first);
        // Between fork and exec, a child that another test starts also holds the lock.
        let end_ns = monotonic_ns() + 60_000_000_000;
        while is_recording(&path) {
            assert!(monotonic_ns() < end_ns, "the lock is free within a minute");
            WakeEvent::new().wait_until(monotonic_ns() + LOCK_RETRY_NS);
        }
        DataDirectory::open(&path).unwrap();
    }

    // Proves that a lock file that was created only to change a directory is removed, and that an
    // existing lock file stays. The removal never allows two processes to hold the lock. The
    // threads of the test open the directory repeatedly and count how many of them hold the lock.
    #[test]
    fn a_lock_file_that_was_not_there_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join(LOCK_NAME);
        drop(DataDirectory::open_existing(folder.path()).unwrap());
        assert!(!lock.exists());
        let holders = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (path, holders) = (folder.path().to_owned(), Arc::clone(&holders));
                let run = move || {
                    (0..50)
                        .filter(|_| {
                            let Ok(held) = DataDirectory::open_existing(&path) else { return false };
                            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                            // If another thread held the lock at the same time, the count would
                            // show it.
                            WakeEvent::new().wait_until(monotonic_ns() + 100_000);
                            assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1, "one at a time");
                            drop(held);
                            true
                        })
                        .count()
                };
                super::super::thread::spawn("opener", run).unwrap()
            })
            .collect();
        assert!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>() > 0);
        drop(DataDirectory::open(folder.path()).unwrap());
        assert!(lock.exists(), "of a recorder");
        drop(DataDirectory::open_existing(folder.path()).unwrap());
        assert!(lock.exists());
    }

    // Proves that neither creating nor renaming a file overwrites an existing file.
    #[test]
    fn create_and_rename_replace_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let storage = DataDirectory::open(folder.path()).unwrap();
        storage.create("a").unwrap();
        storage.create("b").unwrap();
        assert_eq!(storage.create("a").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(storage.rename("a", "b").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        storage.rename("a", "c").unwrap();
        let mut names: Vec<String> = storage.entries().unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        assert_eq!(names, ["b", "c", LOCK_NAME]);
    }
    // Proves that an exchange swaps two files and does not recreate a name that was removed, but
    // that a replacement does recreate it.
    #[test]
    fn exchanges_bring_nothing_back() {
        let folder = tempfile::tempdir().unwrap();
        let storage = DataDirectory::open(folder.path()).unwrap();
        let content = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        for name in ["a", "b"] {
            storage.create(name).unwrap().append(&[IoSlice::new(name.as_bytes())]).unwrap();
        }
        storage.exchange("a", "b").unwrap();
        assert_eq!((content("a"), content("b")), (b"b".to_vec(), b"a".to_vec()));
        storage.remove("b").unwrap();
        assert_eq!(storage.exchange("a", "b").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!folder.path().join("b").exists());
        storage.replace("a", "b").unwrap();
        assert_eq!(content("b"), b"b");
    }

    // Proves that the mode and times of one file are copied to another.
    #[test]
    fn attributes_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let storage = DataDirectory::open(folder.path()).unwrap();
        let old = storage.create("like").unwrap();
        let new = storage.create("new").unwrap();
        let like = File::open(folder.path().join("like")).unwrap();
        like.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o604)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 7);
        like.set_times(FileTimes::new().set_modified(time)).unwrap();
        new.set_attributes(&old.attributes().unwrap()).unwrap();
        let kept = std::fs::metadata(folder.path().join("new")).unwrap();
        assert_eq!((kept.mode() & 0o7777, kept.modified().unwrap()), (0o604, time));
    }
}
