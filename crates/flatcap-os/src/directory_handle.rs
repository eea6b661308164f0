//! Handles for thousands of directories and small files of the host. An open directory needs a
//! descriptor but no buffer, and a file is read with one call into a shared buffer.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, fstat, openat, seek, statat};
use rustix::io::pread;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// An open directory. The handle refers to the same directory even if its path changes.
#[derive(Debug)]
pub struct DirectoryHandle {
    directory: OwnedFd,
}

/// An open file that is read with one call. This is possible for the kernel's small files.
#[derive(Debug)]
pub struct FileHandle {
    file: OwnedFd,
}

/// Owner and inode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// User ID of the owner.
    pub user: u32,
    /// Inode number.
    pub inode: u64,
}

impl DirectoryHandle {
    /// Opens a directory.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { directory: openat(CWD, path, DIRECTORY, Mode::empty())? })
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn open_directory(&self, path: &CStr) -> io::Result<Self> {
        Ok(Self { directory: openat(&self.directory, path, DIRECTORY, Mode::empty())? })
    }

    /// Opens a file in or below this directory.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn open_file(&self, path: &CStr) -> io::Result<FileHandle> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        Ok(FileHandle { file: openat(&self.directory, path, flags, Mode::empty())? })
    }

    /// Returns owner and inode of this directory.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn ownership(&self) -> io::Result<Ownership> {
        let found = fstat(&self.directory)?;
        Ok(Ownership { user: found.st_uid, inode: found.st_ino })
    }

    /// Returns owner and inode of the file that `path` refers to now. Does not follow a link.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn ownership_of(&self, path: &CStr) -> io::Result<Ownership> {
        let found = statat(&self.directory, path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Ownership { user: found.st_uid, inode: found.st_ino })
    }

    /// Calls `directory` with name and inode of each subdirectory, in the kernel's order. Does not
    /// allocate, because entries are read into `buffer` in batches. The buffer must hold at least
    /// one entry.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn for_each_directory(
        &self,
        buffer: &mut [MaybeUninit<u8>],
        mut directory: impl FnMut(&CStr, u64),
    ) -> io::Result<()> {
        seek(&self.directory, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&self.directory, buffer);
        while let Some(next) = entries.next() {
            let next = next?;
            let is_directory = next.file_type() == FileType::Directory;
            if is_directory && !matches!(next.file_name().to_bytes(), b"." | b"..") {
                directory(next.file_name(), next.ino());
            }
        }
        Ok(())
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);

impl FileHandle {
    /// Reads the file from its start with one call. If the call fills `buffer` completely, the file
    /// may have more content.
    ///
    /// # Errors
    /// `ESRCH` for a process that is gone, `ENODEV` for a control group that is gone, or any error
    /// of the underlying system call.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(pread(&self.file, buffer, 0)?)
    }
}

/// Raises the limit on open files of this process to `wanted`, or to the permitted maximum if that
/// is lower. Never lowers the limit. Returns the new limit.
pub fn raise_open_files_limit(wanted: usize) -> usize {
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        let new_maximum = maximum.map(|maximum| maximum.max(wanted));
        let raised = Rlimit { current: new_maximum.map(|most| most.min(wanted)), maximum: new_maximum };
        // Raising the hard limit needs CAP_SYS_RESOURCE; any process may raise its soft limit up to
        // the hard limit.
        if setrlimit(Resource::Nofile, raised).is_err() {
            let within = Rlimit { current: maximum.map(|maximum| maximum.min(wanted)), maximum };
            // If this fails too, the limit is unchanged; the value read below shows that.
            let _refused = setrlimit(Resource::Nofile, within);
        }
    }
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(allowed).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that an open directory stays the same after its name was given to another directory,
    // and that files in it are read completely.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a directory of the host gets another name")]
    fn a_handle_keeps_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("f"), b"old\n").unwrap();
        let root = DirectoryHandle::open(folder.path()).unwrap();
        let node = root.open_directory(c"a").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(node.open_file(c"f").unwrap().read(&mut buffer).unwrap(), 4);
        assert_eq!(node.ownership().unwrap(), root.ownership_of(c"a").unwrap());
        std::fs::rename(&path, folder.path().join("b")).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_ne!(node.ownership().unwrap().inode, root.ownership_of(c"a").unwrap().inode);
        let mut names = Vec::new();
        let mut entries = [MaybeUninit::uninit(); 1024];
        root.for_each_directory(&mut entries, |name, _| names.push(name.to_owned())).unwrap();
        names.sort();
        assert_eq!(names, [c"a".to_owned(), c"b".to_owned()]);
        assert!(root.open_file(c"nothing").is_err());
    }

    // Proves that the limit on open files never falls, and that the returned limit is in force.
    #[test]
    fn the_limit_on_files_rises() {
        let before = raise_open_files_limit(0);
        let after = raise_open_files_limit(before.saturating_add(1));
        assert!(after >= before && after == raise_open_files_limit(1));
    }
}
