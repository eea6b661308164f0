//! The data directory: created, locked, listed, and its files written, synced and renamed.
//!
//! A trait, so that a test can hand in a storage that fails or crashes.

use std::fmt::Debug;
use std::fs::{File, FileTimes, Permissions, TryLockError};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::clock::monotonic_ns;
use super::directory::{Access, Directory, open_regular};
use super::environment;
use super::event::Event;
use super::rights::Rights;
use rustix::fs::{FallocateFlags, fallocate, fstatfs, fstatvfs};
use rustix::io::Errno;

/// Access to a new data directory: its owner, and its group for reading.
const DIRECTORY_MODE: u32 = 0o750;
/// Access to a new data file.
const FILE_MODE: u32 = 0o640;
/// Of a file's mode, what another file may take over: nothing that lends rights to whoever runs it.
const PERMISSIONS: u32 = 0o777;
/// File systems in memory (statfs(2)).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
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

    /// Whether a name still leads to an open file, by the directory's path: neither was removed, renamed or replaced.
    ///
    /// # Errors
    /// What the kernel says.
    fn leads_to(&self, _name: &str, _file: &dyn StorageFile) -> io::Result<bool> {
        Ok(true)
    }

    /// Goes on in the directory that is at the path now, if it is another one than before. Returns whether it is.
    ///
    /// # Errors
    /// It cannot be created, opened or locked; everything is as before.
    fn renew(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Whether the medium is memory (tmpfs): what is reserved there is taken from everybody on the host.
    fn is_in_memory(&self) -> bool {
        false
    }
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

impl Entry {
    /// The identity of a file that could not be looked at: it hides no other.
    pub const UNKNOWN: u64 = u64::MAX;
}

/// The room on a medium, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All there is.
    pub total: u64,
    /// What this process may still take.
    pub available: u64,
}

/// Whose a file is, who may use it, and when it was last used and changed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes {
    owner: u32,
    group: u32,
    mode: u32, // permissions alone
    times: FileTimes,
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

    /// Owner, group, mode and times.
    ///
    /// # Errors
    /// What the kernel says.
    fn attributes(&self) -> io::Result<Attributes>;

    /// Takes over owner, group, mode and times of another file.
    ///
    /// # Errors
    /// What the kernel says: `PermissionDenied` where the owner is another one and this process may not give files away.
    fn set_attributes(&self, attributes: &Attributes) -> io::Result<()>;

    /// Which file it is: device and inode.
    ///
    /// # Errors
    /// What the kernel says.
    fn identity(&self) -> io::Result<(u64, u64)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Brings the file's content to the medium (fdatasync).
    ///
    /// # Errors
    /// What the kernel says. After an error, what was written before may be lost: never try again.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the host's file system, held under its lock. All files are those of the directory that was opened, wherever it is
/// moved meanwhile.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    directory: Directory,
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
        match Directory::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::lock(path, Directory::create(path, DIRECTORY_MODE).map_err(unusable("create", path))?)
            }
            opened => Self::lock(path, opened.map_err(unusable("open", path))?),
        }
    }

    /// Takes the lock of a directory that is there, to mend what is in it. One that never was recorded to gets a lock file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_existing(path: &Path) -> Result<Self, DataDirectoryError> {
        Self::lock(path, Directory::open(path).map_err(unusable("open", path))?)
    }

    fn lock(path: &Path, directory: Directory) -> Result<Self, DataDirectoryError> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{LOCK_NAME}: {error}"));
        let unusable = unusable("lock", path);
        let lock = directory.file(LOCK_NAME, Access::Make(FILE_MODE)).map_err(named).map_err(&unusable)?;
        let mut tries = LOCK_TRIES;
        let mut locked = lock.try_lock();
        while matches!(locked, Err(TryLockError::WouldBlock)) && tries > 0 {
            Event::new().wait_until(monotonic_ns() + LOCK_RETRY_NS);
            tries -= 1;
            locked = lock.try_lock();
        }
        match locked {
            Ok(()) => Ok(Self { path: path.to_owned(), directory, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(DataDirectoryError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(unusable(named(error))),
        }
    }

    /// Device and inode: which directory it is, whatever it is called.
    pub fn identity(&self) -> (u64, u64) {
        self.directory.identity()
    }

    /// Whether it is still what its path leads to.
    pub(super) fn is_at_its_path(&self) -> bool {
        rustix::fs::stat(&self.path).is_ok_and(|status| (status.st_dev, status.st_ino) == self.identity())
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn over(&self, file: File) -> Arc<dyn StorageFile> {
        Arc::new(DiskFile { file, rights: self.directory.rights().cloned() })
    }
}

/// Says what cannot be done with a data directory.
fn unusable(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DataDirectoryError {
    move |error| DataDirectoryError::Unusable { action, path: path.to_owned(), error }
}

impl Storage for DataDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.over(self.directory.create_file(name, FILE_MODE)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.over(self.directory.file(name, Access::Append)?))
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

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for name in self.directory.names()? {
            match self.directory.stat(&name) {
                Ok(status) => {
                    let allocated = u64::try_from(status.st_blocks).unwrap_or_default();
                    let allocated = allocated.saturating_mul(BLOCK_BYTES);
                    entries.push(Entry { name, allocated, identity: status.st_ino });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => entries.push(Entry { name, allocated: 0, identity: Entry::UNKNOWN }),
            }
        }
        Ok(entries)
    }

    fn space(&self) -> io::Result<Space> {
        let medium = fstatvfs(&self.directory)?;
        Ok(Space {
            total: medium.f_blocks.saturating_mul(medium.f_frsize),
            available: medium.f_bavail.saturating_mul(medium.f_frsize),
        })
    }

    fn leads_to(&self, name: &str, file: &dyn StorageFile) -> io::Result<bool> {
        match rustix::fs::lstat(self.path.join(name)) {
            Ok(status) => Ok((status.st_dev, status.st_ino) == file.identity()?),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn is_in_memory(&self) -> bool {
        fstatfs(&self.directory).is_ok_and(|medium| IN_MEMORY.contains(&medium.f_type))
    }
}

/// Whether a recorder is at work in this directory: it holds the lock. Reads only.
pub fn is_recording(directory: &Path) -> bool {
    // Asking for a shared lock leaves other readers alone, and the file untouched.
    open_regular(&directory.join(LOCK_NAME))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Names of the files in a directory, in no order; names that are not UTF-8 are not ours and left out.
///
/// # Errors
/// What the kernel says.
pub fn names(directory: &Path) -> io::Result<Vec<String>> {
    Directory::open(directory)?.names()
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
    rights: Option<Rights>, // of the owner of its directory, where root is another user
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
        Ok(self.file.metadata()?.blocks().saturating_mul(BLOCK_BYTES))
    }

    fn attributes(&self) -> io::Result<Attributes> {
        let metadata = self.file.metadata()?;
        Ok(Attributes {
            owner: metadata.uid(),
            group: metadata.gid(),
            mode: metadata.mode() & PERMISSIONS,
            times: FileTimes::new().set_modified(metadata.modified()?).set_accessed(metadata.accessed()?),
        })
    }

    fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
        let _taken = self.rights.as_ref().map(Rights::take).transpose()?;
        let now = self.attributes()?;
        let other = |wanted: u32, now: u32| (wanted != now).then_some(wanted);
        let (owner, group) = (other(attributes.owner, now.owner), other(attributes.group, now.group));
        if owner.is_some() || group.is_some() {
            // Before the mode: it clears some of its bits.
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
    use super::*;

    // Goal: a reader that asks whether a recorder is at work keeps none from starting. Method: another holds the lock as
    // such a reader does, for a moment; a recorder that did not try again would start in none of the attempts.
    #[test]
    fn a_reader_keeps_no_recorder_out() {
        let folder = tempfile::tempdir().unwrap();
        drop(DataDirectory::open(folder.path()).unwrap());
        let is_opened = || {
            let reader = File::open(folder.path().join(LOCK_NAME)).unwrap();
            reader.lock_shared().unwrap();
            let beside = super::super::thread::spawn("reader", move || {
                Event::new().wait_until(monotonic_ns() + 3 * LOCK_RETRY_NS);
                drop(reader);
            });
            let opened = DataDirectory::open(folder.path());
            beside.unwrap().join().unwrap();
            opened.is_ok()
        };
        // On a busy machine the reader may sleep for longer than it means to; not each time.
        assert!((0..50).any(|_| is_opened()));
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
