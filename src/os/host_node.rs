//! Places in the host's trees by the thousand: directories that cost a descriptor and no buffer, and short files that are read
//! at one stroke into a buffer that they share.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, fstat, openat, seek, statat};
use rustix::io::pread;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A directory that stays open: it remains the same one whatever is called so later.
#[derive(Debug)]
pub struct HostNode {
    directory: OwnedFd,
}

/// A file that one read brings as a whole, as the kernel's short files are.
#[derive(Debug)]
pub struct ShortFile {
    file: OwnedFd,
}

/// Whose something is, and which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The owner's number.
    pub user: u32,
    /// The inode.
    pub inode: u64,
}

impl HostNode {
    /// Opens a directory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { directory: openat(CWD, path, DIRECTORY, Mode::empty())? })
    }

    /// Opens a directory beneath.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn node(&self, path: &CStr) -> io::Result<Self> {
        Ok(Self { directory: openat(&self.directory, path, DIRECTORY, Mode::empty())? })
    }

    /// Opens a file beneath.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn file(&self, path: &CStr) -> io::Result<ShortFile> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        Ok(ShortFile { file: openat(&self.directory, path, flags, Mode::empty())? })
    }

    /// Whose this directory is, and which.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ownership(&self) -> io::Result<Ownership> {
        let found = fstat(&self.directory)?;
        Ok(Ownership { user: found.st_uid, inode: found.st_ino })
    }

    /// Whose something beneath is, and which, as it is called now.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ownership_of(&self, path: &CStr) -> io::Result<Ownership> {
        let found = statat(&self.directory, path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Ownership { user: found.st_uid, inode: found.st_ino })
    }

    /// Tells name and inode of each directory beneath, in the kernel's order. Allocates nothing; `buffer` takes the entries in
    /// portions, and must hold at least one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn directories(
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

impl ShortFile {
    /// Reads the file from its start by one call. Content that fills the whole of `buffer` may go on.
    ///
    /// # Errors
    /// What the kernel says; of a process that is gone `ESRCH`, of a control group `ENODEV`.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(pread(&self.file, buffer, 0)?)
    }
}

/// Lets this process have `wanted` files open at once, or as many as it may. Returns how many that are.
pub fn allow_open_files(wanted: usize) -> usize {
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        let most = maximum.map(|maximum| maximum.max(wanted));
        let raised = Rlimit { current: most.map(|most| most.min(wanted)), maximum: most };
        // The upper limit takes a capability to raise (CAP_SYS_RESOURCE); up to it anybody may go.
        if setrlimit(Resource::Nofile, raised).is_err() {
            let within = Rlimit { current: maximum.map(|maximum| maximum.min(wanted)), maximum };
            // Where even that is refused the limit stays, and is told below.
            let _refused = setrlimit(Resource::Nofile, within);
        }
    }
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(allowed).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a directory that stays open is the same one after its name went to another, and files beneath are read whole.
    // Method: remove and make again.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a directory of the host gets another name")]
    fn a_node_stays_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("f"), b"old\n").unwrap();
        let root = HostNode::open(folder.path()).unwrap();
        let node = root.node(c"a").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(node.file(c"f").unwrap().read(&mut buffer).unwrap(), 4);
        assert_eq!(node.ownership().unwrap(), root.ownership_of(c"a").unwrap());
        std::fs::rename(&path, folder.path().join("b")).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_ne!(node.ownership().unwrap().inode, root.ownership_of(c"a").unwrap().inode);
        let mut names = Vec::new();
        let mut entries = [MaybeUninit::uninit(); 1024];
        root.directories(&mut entries, |name, _| names.push(name.to_owned())).unwrap();
        names.sort();
        assert_eq!(names, [c"a".to_owned(), c"b".to_owned()]);
        assert!(root.file(c"nothing").is_err());
    }

    // Goal: the limit on open files only rises, and what is told is so. Method: less than there is, then a little more.
    #[test]
    fn the_limit_on_files_rises() {
        let before = allow_open_files(0);
        let after = allow_open_files(before.saturating_add(1));
        assert!(after >= before && after == allow_open_files(1));
    }
}
