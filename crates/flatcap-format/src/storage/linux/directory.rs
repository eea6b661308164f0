//! An open directory. Its methods create, open, list and rename files by name, relative to the
//! descriptor of the directory.
//!
//! The path of the directory is resolved only once. If the path later leads to another directory,
//! all operations still apply to the directory that was opened. If a name is a symbolic link, the
//! operations do not follow it. Operations never wait. If a file is not regular, they fail with an
//! error that states the kind of the file. In another user's directory, root acts with that user's
//! rights.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, fstat, mkdirat, renameat, renameat_with, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::owner_rights::OwnerRights;
use super::{check_kind, names, open_path, open_safely, require_kind};

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    file: File,
    status: Stat,
    rights: Option<OwnerRights>, // `None`: the rights of this process
}

/// The purpose for which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Reading.
    Read,
    /// Reading and appending.
    Append,
    /// Writing. A missing file is created with this mode.
    Create(u32),
}

impl Directory {
    /// Opens an existing directory. Follows a symbolic link in the path only if the link belongs to
    /// this user or to root.
    ///
    /// # Errors
    /// Returns `PermissionDenied` for a link of another user, `NotADirectory`, or any error of the
    /// underlying system call.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::from_descriptor(open_path(CWD, path, FileType::Directory)?)
    }

    /// Opens a directory. Creates the directory and its parents if they are missing. If root
    /// creates a directory, the new directory belongs to the owner of its parent.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Self::open).
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened,
        }
        let Some(parent) = path.parent() else { return Err(ErrorKind::NotFound.into()) };
        let parent = Self::create(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }, mode)?;
        let Some(name) = path.file_name() else { return Self::open(path) };
        match parent.as_owner(|| Ok(mkdirat(&parent.file, name, Mode::from_raw_mode(mode))?)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        Self::from_descriptor(open_path(parent.file.as_fd(), Path::new(name), FileType::Directory)?)
    }

    fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        let status = fstat(&descriptor)?;
        Ok(Self { rights: OwnerRights::of_owner(&status)?, file: File::from(descriptor), status })
    }

    /// Returns the device number and the inode number.
    pub fn identity(&self) -> (u64, u64) {
        (self.status.st_dev, self.status.st_ino)
    }

    /// Returns the user ID of the directory's owner.
    pub fn owner(&self) -> u32 {
        self.status.st_uid
    }

    /// Returns the mode that the directory had when it was opened.
    pub fn mode(&self) -> u32 {
        self.status.st_mode
    }

    /// Returns the rights that operations assume, or `None` if operations use the rights of this
    /// process.
    pub fn rights(&self) -> Option<&OwnerRights> {
        self.rights.as_ref()
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// The file is of another kind, or any error of the underlying system call.
    pub fn file(&self, name: &str, access: FileAccess) -> io::Result<File> {
        let (flags, mode) = match access {
            FileAccess::Read => (OFlags::RDONLY, 0),
            FileAccess::Append => (OFlags::RDWR | OFlags::APPEND, 0),
            FileAccess::Create(mode) => (OFlags::WRONLY | OFlags::CREATE, mode),
        };
        check_name(name)?;
        let known = match self.stat(name) {
            Err(error) if error.kind() == ErrorKind::NotFound && matches!(access, FileAccess::Create(_)) => {
                None
            }
            known => Some(known?),
        };
        if let Some(known) = &known {
            check_kind(known, FileType::RegularFile)?;
        }
        let opened = self.as_owner(|| open_safely(self.file.as_fd(), Path::new(name), (flags, mode)));
        opened.and_then(|file| require_kind(file, FileType::RegularFile)).map(File::from).map_err(|error| {
            let (directory, file) = (self.status.st_uid, known.map(|known| known.st_uid));
            match file.filter(|file| error.kind() == ErrorKind::PermissionDenied && *file != directory) {
                Some(file) => io::Error::new(
                    error.kind(),
                    format!("{error}: it belongs to user {file}, and its directory to user {directory}; change its owner with chown {directory}"),
                ),
                None => error,
            }
        })
    }

    /// Creates a file and opens it for reading and appending. Fails if the file exists.
    ///
    /// # Errors
    /// Returns `AlreadyExists`, or any error of the underlying system call.
    pub fn create_file(&self, name: &str, mode: u32) -> io::Result<File> {
        self.create_with(name, OFlags::RDWR | OFlags::APPEND, mode)
    }

    /// Creates a file and opens it for writing at any offset. Fails if the file exists.
    ///
    /// # Errors
    /// Returns the errors of [`create_file`](Self::create_file).
    pub(crate) fn create_seekable(&self, name: &str, mode: u32) -> io::Result<File> {
        self.create_with(name, OFlags::RDWR, mode)
    }

    fn create_with(&self, name: &str, access: OFlags, mode: u32) -> io::Result<File> {
        check_name(name)?;
        let flags = access | OFlags::CREATE | OFlags::EXCL;
        self.as_owner(|| open_safely(self.file.as_fd(), Path::new(name), (flags, mode))).map(File::from)
    }

    /// Replaces a file, either completely or not at all. Writes the bytes to the file
    /// `NAME.partial`, syncs this file, renames it to `NAME`, and syncs the directory. If a file
    /// `NAME.partial` exists already, it is replaced.
    ///
    /// # Errors
    /// Returns any error of the underlying system calls. After an error, the name refers either to
    /// the earlier file or to the complete new file.
    pub fn put(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let partial = format!("{name}.partial");
        match self.remove(&partial) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = self.create_file(&partial, mode)?;
        file.write_all(bytes)?;
        // Without the sync, a power failure after the rename could leave an empty file.
        file.sync_all()?;
        self.replace(&partial, name)?;
        self.sync()
    }

    /// Renames a file. Fails if a file with the new name exists.
    ///
    /// # Errors
    /// Returns `AlreadyExists`, or any error of the underlying system call.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match self.rename_with(from, to, RenameFlags::NOREPLACE) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            renamed => return renamed,
        }
        // NFS and some FUSE file systems do not support such a rename. With this replacement, two
        // processes that rename at the same time can still replace each other's file.
        match self.stat(to) {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => self.replace(from, to),
            Err(error) => Err(error),
        }
    }

    /// Exchanges the names of two files in one atomic step.
    ///
    /// # Errors
    /// Returns `NotFound` if either file is missing, `Unsupported` if the file system cannot
    /// exchange names, or any error of the underlying system call.
    pub fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.rename_with(one, other, RenameFlags::EXCHANGE)
    }

    /// Renames a file. Removes another file that has the new name.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.as_owner(|| Ok(renameat(&self.file, from, &self.file, to)?))
    }

    fn rename_with(&self, from: &str, to: &str, flags: RenameFlags) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.as_owner(|| match renameat_with(&self.file, from, &self.file, to, flags) {
            // These errors of renameat2(2) mean that the file system does not support the flag, or
            // that the kernel does not have the call.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Err(ErrorKind::Unsupported.into()),
            renamed => Ok(renamed?),
        })
    }

    /// Removes a file. Does not remove a directory.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.as_owner(|| Ok(unlinkat(&self.file, name, AtFlags::empty())?))
    }

    /// Creates a directory in this directory. Fails if the name is already in use.
    ///
    /// # Errors
    /// Returns `AlreadyExists`, or any error of the underlying system call.
    pub fn create_directory(&self, name: &str, mode: u32) -> io::Result<()> {
        check_name(name)?;
        self.as_owner(|| Ok(mkdirat(&self.file, name, Mode::from_raw_mode(mode))?))
    }

    /// Opens a directory in this directory.
    ///
    /// # Errors
    /// Returns `NotADirectory`, even for a link to a directory, or any error of the underlying
    /// system call.
    pub fn directory(&self, name: &str) -> io::Result<Self> {
        check_name(name)?;
        check_kind(&self.stat(name)?, FileType::Directory)?;
        Self::from_descriptor(open_path(self.file.as_fd(), Path::new(name), FileType::Directory)?)
    }

    /// Removes an empty directory in this directory.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn remove_directory(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.as_owner(|| Ok(unlinkat(&self.file, name, AtFlags::REMOVEDIR)?))
    }

    /// Creates a symbolic link with this name to `target`. If a link has this name already, it is
    /// replaced.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if a file other than a link has this name, or any error of the
    /// underlying system calls.
    pub fn set_link(&self, name: &str, target: &Path) -> io::Result<()> {
        check_name(name)?;
        match self.stat(name) {
            Ok(status) if FileType::from_raw_mode(status.st_mode) == FileType::Symlink => {
                self.remove(name)?;
            }
            Ok(_) => return Err(ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.as_owner(|| Ok(symlinkat(target, &self.file, name)?))
    }

    /// Removes a symbolic link. Does nothing if the name is not a link.
    ///
    /// # Errors
    /// Returns any error of the underlying system calls.
    pub fn remove_link(&self, name: &str) -> io::Result<()> {
        match self.stat(name) {
            Ok(status) if FileType::from_raw_mode(status.st_mode) == FileType::Symlink => self.remove(name),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Syncs the directory's entries to disk.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Returns all names, in no particular order. Skips names that are not UTF-8.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn names(&self) -> io::Result<Vec<String>> {
        self.as_owner(|| names(&self.file))
    }

    /// Returns the status (stat(2)) of the file with this name. Does not follow a link.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn stat(&self, name: &str) -> io::Result<Stat> {
        self.as_owner(|| Ok(statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Calls `act` with the rights of the directory's owner if this process is root and root is not
    /// the owner.
    fn as_owner<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _assumed = self.rights.as_ref().map(OwnerRights::assume).transpose()?;
        act()
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Rejects names that refer to something outside the directory.
fn check_name(name: &str) -> io::Result<()> {
    if name.contains('/') || ["", ".", ".."].contains(&name) {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("{name:?} is not the name of a file")));
    }
    Ok(())
}

#[cfg(test)]
pub(super) use tests::foreign_folder;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
    use std::os::unix::net::UnixListener;

    use rustix::process::geteuid;

    use super::super::open_regular;
    use super::*;

    /// The user ID and the group ID of the account "nobody". Any account except root could be used.
    const NOBODY: u32 = 65_534;

    /// Creates a directory of another user. If the test does not run as root, prints that it needs
    /// root, and returns `None`.
    pub(in crate::storage::linux) fn foreign_folder() -> Option<tempfile::TempDir> {
        if !geteuid().is_root() {
            println!("skipped: only root can give a directory to another user");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        Some(folder)
    }

    /// Creates one file of each kind other than regular files. Returns the names and the kinds of
    /// the files.
    fn create_special_files(folder: &Path) -> Vec<(&'static str, &'static str)> {
        symlink("/etc/passwd", folder.join("link")).unwrap();
        symlink("missing", folder.join("dangling")).unwrap();
        std::fs::create_dir(folder.join("folder")).unwrap();
        rustix::fs::mknodat(CWD, folder.join("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
        drop(UnixListener::bind(folder.join("socket")).unwrap());
        let (link, others) = ("is a symbolic link", [("folder", "is a directory"), ("pipe", "is a FIFO")]);
        [("link", link), ("dangling", link), ("socket", "is a socket")].into_iter().chain(others).collect()
    }

    // Proves that an operation never opens, creates or waits for a file of another kind, and that
    // the error names the kind of the file.
    #[test]
    fn other_kinds_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let others = create_special_files(folder.path());
        let directory = Directory::open(folder.path()).unwrap();
        for (name, kind) in others {
            for access in [FileAccess::Read, FileAccess::Append, FileAccess::Create(0o600)] {
                let error = directory.file(name, access).unwrap_err().to_string();
                assert_eq!(error, format!("{kind}, not a regular file"), "{name} {access:?}");
            }
            let error = directory.create_file(name, 0o600).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{name}");
            if !kind.contains("link") {
                let error = open_regular(&folder.path().join(name)).unwrap_err().to_string();
                assert_eq!(error, format!("{kind}, not a regular file"));
            }
            if name != "folder" {
                let error = Directory::open(&folder.path().join(name)).unwrap_err();
                assert!(name == "dangling" || error.kind() == ErrorKind::NotADirectory, "{name}: {error}");
            }
        }
        assert!(!folder.path().join("missing").exists(), "no link was followed");
        for name in ["", ".", "..", "../a", "/etc/passwd", "folder/a"] {
            assert!(directory.create_file(name, 0o600).is_err(), "{name:?} leads out of the directory");
        }
    }

    // Proves that a link at the end of a path is followed if this user or root owns the link, and
    // is rejected if another user owns it. This holds even if the path ends with a slash.
    #[test]
    fn links_of_others_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("real")).unwrap();
        std::fs::write(path("real/file"), "content").unwrap();
        symlink("real", path("one")).unwrap();
        symlink("one/", path("two")).unwrap();
        symlink(path("two/file"), path("three")).unwrap();
        symlink("circle", path("circle")).unwrap();
        let real = Directory::open(&path("real")).unwrap().identity();
        for name in ["one", "two", "two/", "two/.", "real/..//one/"] {
            assert_eq!(Directory::open(&path(name)).unwrap().identity(), real, "{name}");
        }
        assert_eq!(io::read_to_string(open_regular(&path("three")).unwrap()).unwrap(), "content");
        let error = Directory::open(&path("circle")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        if geteuid().is_root() {
            lchown(path("one"), Some(NOBODY), None).unwrap();
            for name in ["one", "one/", "two"] {
                let error = Directory::open(&path(name)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}");
                assert!(
                    error
                        .to_string()
                        .contains(&format!("one is a symbolic link that belongs to user {NOBODY}")),
                    "{error}"
                );
            }
            lchown(path("three"), Some(NOBODY), None).unwrap();
            assert!(open_regular(&path("three")).is_err());
        } else {
            println!("skipped: only root can give a link to another user");
        }
    }

    // Proves that a link is never followed without a check, even if another process creates and
    // removes the link in quick succession. Needs root.
    #[test]
    fn a_link_that_comes_and_goes_is_not_followed() {
        const EXCHANGES: u32 = 3000;
        let Some(folder) = foreign_folder() else { return };
        let path = |name: &str| folder.path().join(name);
        for name in ["real", "other"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        symlink("other", path("link")).unwrap();
        lchown(path("link"), Some(NOBODY), None).unwrap();
        let other = Directory::open(&path("other")).unwrap().identity();
        std::thread::scope(|scope| {
            let exchanger = scope.spawn(|| {
                for _ in 0..EXCHANGES {
                    let (one, two) = (path("real"), path("link"));
                    renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE).unwrap();
                }
            });
            while !exchanger.is_finished() {
                let opened = Directory::open(&path("real"));
                assert!(opened.is_err() || opened.is_ok_and(|opened| opened.identity() != other));
            }
        });
    }

    // Proves that operations apply to the directory that was opened, even after this directory was
    // moved and another directory is at its path.
    #[test]
    fn a_moved_directory_keeps_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("data"), folder.path().join("moved"));
        let directory = Directory::create(&path, 0o750).unwrap();
        directory.create_file("a", 0o640).unwrap();
        renameat(CWD, &path, CWD, &moved).unwrap();
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("a"), "another").unwrap();
        directory.create_file("b", 0o640).unwrap();
        directory.rename("b", "c").unwrap();
        directory.remove("a").unwrap();
        assert_eq!(directory.names().unwrap(), ["c"]);
        assert_eq!(std::fs::read_dir(&moved).unwrap().count(), 1);
        assert_eq!(std::fs::read(path.join("a")).unwrap(), b"another");
    }

    // Proves that a rename never replaces anything, not even a dangling link.
    #[test]
    fn a_rename_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let others = create_special_files(folder.path());
        let directory = Directory::open(folder.path()).unwrap();
        directory.create_file("a", 0o640).unwrap();
        for (name, _) in others {
            assert_eq!(directory.rename("a", name).unwrap_err().kind(), ErrorKind::AlreadyExists, "{name}");
        }
        directory.rename("a", "b").unwrap();
    }

    // Proves that a file is replaced completely, and that nothing is written through a link. Cases:
    // an earlier process or another user has left a file, a link or a directory that has the
    // temporary name.
    #[test]
    fn put_replaces_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("victim"), "victim").unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        directory.put("a", b"one", 0o640).unwrap();
        std::fs::write(path("a.partial"), "of a process that was killed").unwrap();
        directory.put("a", b"two", 0o640).unwrap();
        symlink("victim", path("a.partial")).unwrap();
        directory.put("a", b"three", 0o640).unwrap();
        std::fs::hard_link(path("victim"), path("a.partial")).unwrap();
        directory.put("a", b"four", 0o640).unwrap();
        std::fs::create_dir(path("a.partial")).unwrap();
        assert_eq!(directory.put("a", b"five", 0o640).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(std::fs::read(path("a")).unwrap(), b"four");
        assert_eq!(std::fs::read(path("victim")).unwrap(), b"victim");
    }

    // Proves that root has the owner's rights in another user's directory, so that new files belong
    // to that user, and root cannot open files that the user cannot open. Needs root.
    #[test]
    fn root_acts_as_the_owner() {
        let Some(folder) = foreign_folder() else { return };
        let made = folder.path().join("new/data");
        let directory = Directory::create(&made, 0o750).unwrap();
        directory.create_file("a", 0o640).unwrap();
        directory.file("lock", FileAccess::Create(0o640)).unwrap();
        for name in ["new", "new/data", "new/data/a", "new/data/lock"] {
            let status = std::fs::metadata(folder.path().join(name)).unwrap();
            assert_eq!((status.uid(), status.gid()), (NOBODY, NOBODY), "{name}");
        }
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::hard_link(secret.path(), made.join("segment")).unwrap();
        let error = directory.file("segment", FileAccess::Append).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(
            error.to_string().contains("it belongs to user 0, and its directory to user 65534"),
            "{error}"
        );
        std::fs::set_permissions(&made, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
        assert_eq!(directory.create_file("b", 0o640).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(directory.remove("a").unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
