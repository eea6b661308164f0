//! The data directory: created, locked, listed, and its files written, synced and renamed.
//!
//! A trait, so that a test can hand in a storage that fails or crashes.

use std::fmt::Debug;
use std::fs::{DirBuilder, File, FileTimes, Metadata, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::clock::monotonic_ns;
use super::environment;
use super::event::Event;
use rustix::fs::{FallocateFlags, RenameFlags, fallocate, renameat_with, statvfs};
use rustix::io::Errno;

/// Access to a new data directory: its owner, and its group for reading.
const DIRECTORY_MODE: u32 = 0o750;
/// Access to a new data file.
const FILE_MODE: u32 = 0o640;
/// The unit in which the kernel counts what a file occupies (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Where segments go if nobody says otherwise: the service's state directory, else one beside the caller, so that a first run
/// needs no rights.
pub fn default_directory() -> PathBuf {
    environment::directory("STATE_DIRECTORY").unwrap_or_else(|| PathBuf::from("./flatcap-data"))
}

/// One directory that segments are written to.
pub trait Storage: Debug + Send + Sync {
    /// Creates a file that must not exist yet, for appending.
    ///
    /// # Errors
    /// `AlreadyExists`, or what the kernel says.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Opens a file that exists, for reading, appending and cutting.
    ///
    /// # Errors
    /// What the kernel says.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Gives a file another name; replaces nothing.
    ///
    /// # Errors
    /// What the kernel says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives two files each other's names, at once: at no time is one of the names missing or half.
    ///
    /// # Errors
    /// `NotFound` where one of the two is not there; `Unsupported` where the file system cannot; what the kernel says.
    fn exchange(&self, one: &str, other: &str) -> io::Result<()>;

    /// Gives a file the name of another one, which goes. Only where nobody else changes the directory: [`exchange`](Self::exchange) brings
    /// nothing back that was removed meanwhile.
    ///
    /// # Errors
    /// What the kernel says.
    fn replace(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file owner, group, mode and times of another one.
    ///
    /// # Errors
    /// What the kernel says: `PermissionDenied` where the owner is another one and this process may not give files away.
    fn keep_attributes(&self, of: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the kernel says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Brings the directory's entries to the medium.
    ///
    /// # Errors
    /// What the kernel says.
    fn sync_directory(&self) -> io::Result<()>;

    /// The files in the directory, in no order; names that are not UTF-8 are not ours and left out.
    ///
    /// # Errors
    /// What the kernel says.
    fn entries(&self) -> io::Result<Vec<Entry>>;

    /// The room on the medium.
    ///
    /// # Errors
    /// What the kernel says.
    fn space(&self) -> io::Result<Space>;
}

/// A file in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it occupies on the medium, in bytes: what is reserved behind its end counts, a hole does not.
    pub allocated: u64,
    /// Which file it is, whatever it is called: its inode's number.
    pub identity: u64,
}

/// The room on a medium, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All there is.
    pub total: u64,
    /// What this process may still take.
    pub available: u64,
}

/// A file that can be read at any place.
pub trait ReadAt: Debug + Send + Sync {
    /// Reads as much as the kernel gives from `offset` on; 0 bytes at the end.
    ///
    /// # Errors
    /// What the kernel says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// The file's length now, in bytes.
    ///
    /// # Errors
    /// What the kernel says.
    fn length(&self) -> io::Result<u64>;

    /// Fills the buffer from `offset` on as far as the file goes. Returns how much that was, in bytes.
    ///
    /// # Errors
    /// What the kernel says.
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

/// A file that is appended to by one thread and synced by another.
pub trait StorageFile: ReadAt {
    /// Appends as much as the kernel takes of the slices; returns how many bytes that was.
    ///
    /// # Errors
    /// What the kernel says.
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Reserves room on the medium up to `end` without changing the file's size.
    ///
    /// # Errors
    /// What the kernel says; `Unsupported` where the file system cannot.
    fn preallocate(&self, end: u64) -> io::Result<()>;

    /// Cuts the file at `length` and gives back what is reserved behind it.
    ///
    /// # Errors
    /// What the kernel says.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// What the file occupies on the medium, in bytes.
    ///
    /// # Errors
    /// What the kernel says.
    fn allocated(&self) -> io::Result<u64>;

    /// Brings the file's content to the medium (fdatasync).
    ///
    /// # Errors
    /// What the kernel says. After an error, what was written before may be lost: never try again.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the host's file system, held under its lock.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    directory: File,
    identity: (u64, u64),
    _lock: File,
}

/// Why a data directory cannot be recorded to.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// Missing rights, a file in its place, a read-only file system: mend the path or its rights.
    #[error("cannot {action} the data directory {}: {error}", path.display())]
    Unusable {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Another recorder holds the lock: end it or record to another directory.
    #[error(
        "the data directory {} is in use by another recorder, which holds the lock {LOCK_NAME} in it; \
         stop that recorder or choose another directory with --data-dir",
        path.display()
    )]
    InUse {
        /// Where.
        path: PathBuf,
    },
}

/// Name of the lock file in a data directory.
pub const LOCK_NAME: &str = "flatcap.lock";

/// A reader that asks whether a recorder is at work holds the lock for a moment: it is tried again so many times...
const LOCK_TRIES: u32 = 20;
/// ...after so long.
const LOCK_RETRY_NS: u64 = 5_000_000;

impl DataDirectory {
    /// Creates the directory where it is missing (with parents), and takes its lock.
    ///
    /// # Errors
    /// `Unusable` with the step that failed, `InUse` while another recorder runs.
    pub fn open(path: &Path) -> Result<Self, DataDirectoryError> {
        let unusable =
            |action| move |error| DataDirectoryError::Unusable { action, path: path.to_owned(), error };
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path).map_err(unusable("create"))?;
        let directory = File::open(path).map_err(unusable("open"))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE_MODE)
            .open(path.join(LOCK_NAME))
            .map_err(unusable("write to"))?;
        let mut tries = LOCK_TRIES;
        let mut locked = lock.try_lock();
        while matches!(locked, Err(TryLockError::WouldBlock)) && tries > 0 {
            Event::new().wait_until(monotonic_ns() + LOCK_RETRY_NS);
            tries -= 1;
            locked = lock.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DataDirectoryError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(unusable("lock")(error)),
        }
        let metadata = directory.metadata().map_err(unusable("read"))?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Self { path: path.to_owned(), directory, identity, _lock: lock })
    }

    /// Takes the lock of a directory that is there, to mend what is in it. One that never was recorded to gets a lock file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_existing(path: &Path) -> Result<Self, DataDirectoryError> {
        let unusable = |error| DataDirectoryError::Unusable { action: "open", path: path.to_owned(), error };
        if !std::fs::metadata(path).map_err(unusable)?.is_dir() {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        Self::open(path)
    }

    /// Device and inode: which directory it is, whatever it is called.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Storage for DataDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut options = OpenOptions::new();
        options.create_new(true).read(true).append(true).mode(FILE_MODE);
        Ok(Arc::new(DiskFile { file: options.open(self.path.join(name))? }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = OpenOptions::new().read(true).append(true).open(self.path.join(name))?;
        Ok(Arc::new(DiskFile { file }))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let target = self.path.join(to);
        if target.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        std::fs::rename(self.path.join(from), target)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        let directory = &self.directory;
        match renameat_with(directory, one, directory, other, RenameFlags::EXCHANGE) {
            // renameat2(2): the file system does not know the flag, or the kernel not the call.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
            result => Ok(result?),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn keep_attributes(&self, of: &str, to: &str) -> io::Result<()> {
        let (like, path) = (std::fs::metadata(self.path.join(of))?, self.path.join(to));
        let file = OpenOptions::new().append(true).open(&path)?;
        let now = file.metadata()?;
        let other = |like: u32, now: u32| (like != now).then_some(like);
        let (owner, group) = (other(like.uid(), now.uid()), other(like.gid(), now.gid()));
        if owner.is_some() || group.is_some() {
            // Before the mode: it clears some of its bits.
            fchown(&file, owner, group)?;
        }
        file.set_permissions(like.permissions())?;
        let times = FileTimes::new().set_modified(like.modified()?).set_accessed(like.accessed()?);
        file.set_times(times)
    }

    #[allow(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(metadata) => {
                    entries.push(Entry { name, allocated: allocated(&metadata), identity: metadata.ino() });
                }
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn space(&self) -> io::Result<Space> {
        let medium = statvfs(&self.path)?;
        Ok(Space {
            total: medium.f_blocks.saturating_mul(medium.f_frsize),
            available: medium.f_bavail.saturating_mul(medium.f_frsize),
        })
    }
}

/// Whether a recorder is at work in this directory: it holds the lock. Reads only.
pub fn is_recording(directory: &Path) -> bool {
    // Asking for a shared lock leaves other readers alone, and the file untouched.
    File::open(directory.join(LOCK_NAME))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Names of the files in a directory, in no order; names that are not UTF-8 are not ours and left out.
///
/// # Errors
/// What the kernel says.
pub fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

fn allocated(metadata: &Metadata) -> u64 {
    metadata.blocks().saturating_mul(BLOCK_BYTES)
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

#[derive(Debug)]
struct DiskFile {
    file: File,
}

impl ReadAt for DiskFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        ReadAt::read_at(&self.file, buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
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
        Ok(allocated(&self.file.metadata()?))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a reader that asks whether a recorder is at work keeps none from starting. Method: another holds the lock as
    // such a reader does, for a moment.
    #[test]
    fn a_reader_keeps_no_recorder_out() {
        let folder = tempfile::tempdir().unwrap();
        drop(DataDirectory::open(folder.path()).unwrap());
        let reader = File::open(folder.path().join(LOCK_NAME)).unwrap();
        reader.lock_shared().unwrap();
        let beside = super::super::thread::spawn("reader", move || {
            Event::new().wait_until(monotonic_ns() + 3 * LOCK_RETRY_NS);
            drop(reader);
        });
        DataDirectory::open(folder.path()).unwrap();
        beside.unwrap().join().unwrap();
    }

    // Goal: one recorder a directory, and readers can tell that it runs. Method: open twice, then let go.
    #[test]
    fn the_lock_excludes_a_second_recorder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let first = DataDirectory::open(&path).unwrap();
        assert!(is_recording(&path));
        let second = DataDirectory::open(&path).unwrap_err();
        assert!(matches!(second, DataDirectoryError::InUse { .. }), "{second}");
        drop(first);
        assert!(!is_recording(&path));
        DataDirectory::open(&path).unwrap();
    }

    // Goal: nothing that exists is ever overwritten. Method: create and rename onto existing names.
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
    // Goal: an exchange swaps what names lead to, and brings nothing back that is gone; a replacement does. Method: each, with and without
    // the second file.
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

    // Goal: a file that takes another one's place looks like it. Method: a mode and a time that no new file has.
    #[test]
    fn attributes_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let storage = DataDirectory::open(folder.path()).unwrap();
        storage.create("like").unwrap();
        storage.create("new").unwrap();
        let like = File::open(folder.path().join("like")).unwrap();
        like.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o604)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 7);
        like.set_times(FileTimes::new().set_modified(time)).unwrap();
        storage.keep_attributes("like", "new").unwrap();
        let kept = std::fs::metadata(folder.path().join("new")).unwrap();
        assert_eq!((kept.mode() & 0o7777, kept.modified().unwrap()), (0o604, time));
    }
}
