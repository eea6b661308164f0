//! Output files. Each appears under its final name only once all are complete.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatcap_format::storage::linux::{open_path, open_safely};
use rustix::fs::{
    AtFlags, CWD, FileType, OFlags, RenameFlags, fsync, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Mode of a new directory: full access for the owner, read access for the group, as for
/// recordings.
const DIRECTORY_MODE: u32 = 0o750;
/// Mode of a new file: the same, without execute.
const FILE_MODE: u32 = 0o640;
/// A directory for output files. Its path is resolved once: files are created and renamed relative
/// to the open directory, so nobody who changes the path redirects them.
#[derive(Debug, Clone)]
pub(crate) struct TargetDirectory {
    path: PathBuf,
    directory: Arc<OwnedFd>,
}

/// A file under a temporary name beside the final one. Removed if dropped before it is published.
#[derive(Debug)]
pub(crate) struct UnpublishedFile {
    directory: Arc<OwnedFd>,
    temporary: String,
    name: String,
    file: File,
    is_published: bool,
}

impl TargetDirectory {
    /// Opens a directory. Creates it and its parents if missing.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
        Self::open(path)
    }

    /// Opens an existing directory.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let directory = open_path(CWD, path, FileType::Directory)?;
        Ok(Self { path: path.to_owned(), directory: Arc::new(directory) })
    }

    /// Returns the path of a file with this name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns whether the name exists.
    pub(crate) fn contains(&self, name: &str) -> bool {
        statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Creates a file that will get the name `name`.
    pub(crate) fn begin(&self, name: &str) -> io::Result<UnpublishedFile> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let temporary = format!(".flatcap-{:016x}.partial", u64::from_le_bytes(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = open_safely(self.directory.as_fd(), Path::new(&temporary), (flags, FILE_MODE))?;
        Ok(UnpublishedFile {
            directory: Arc::clone(&self.directory),
            temporary,
            name: name.to_owned(),
            file: File::from(file),
            is_published: false,
        })
    }

    /// Syncs the directory's entries to disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.directory)?)
    }
}

impl UnpublishedFile {
    /// Syncs the file to disk. Returns its length.
    pub(crate) fn sync(&self) -> io::Result<u64> {
        self.file.sync_all()?;
        Ok(self.file.metadata()?.len())
    }

    /// Renames the file to its final name.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists and `replaces` is false, or any error of the system call.
    pub(crate) fn publish(mut self, replaces: bool) -> io::Result<()> {
        let Self { directory, temporary, name, .. } = &self;
        if replaces {
            renameat(directory, temporary, directory, name)?;
        } else {
            match renameat_with(directory, temporary, directory, name, RenameFlags::NOREPLACE) {
                // NFS and some FUSE file systems: two programs that do this at the same time can
                // still replace each other's file.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    if statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                        return Err(ErrorKind::AlreadyExists.into());
                    }
                    renameat(directory, temporary, directory, name)?;
                }
                renamed => renamed?,
            }
        }
        self.is_published = true;
        Ok(())
    }
}

impl Seek for UnpublishedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Write for UnpublishedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[expect(clippy::disallowed_methods, reason = "forwards to the file; the caller handles the count")]
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for UnpublishedFile {
    fn drop(&mut self) {
        if !self.is_published {
            // Best effort: the temporary name shows that the file is incomplete.
            let _left = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a file appears complete or not at all, leaves nothing if it is given up, and
    // replaces another one only on request.
    #[test]
    fn files_appear_whole() {
        let folder = tempfile::tempdir().unwrap();
        let output = TargetDirectory::create(&folder.path().join("a/b")).unwrap();
        let target = output.path("a.parquet");
        let names = || std::fs::read_dir(target.parent().unwrap()).unwrap().count();
        let write = |bytes: &[u8]| {
            let mut file = output.begin("a.parquet").unwrap();
            file.write_all(bytes).unwrap();
            assert_eq!(file.sync().unwrap(), bytes.len() as u64);
            file
        };
        drop(write(b"given up"));
        assert!(names() == 0 && !output.contains("a.parquet"));
        write(b"one").publish(false).unwrap();
        let refused = write(b"two").publish(false).unwrap_err();
        assert_eq!((refused.kind(), names()), (ErrorKind::AlreadyExists, 1));
        assert_eq!(std::fs::read(&target).unwrap(), b"one");
        write(b"three").publish(true).unwrap();
        assert_eq!((std::fs::read(&target).unwrap().as_slice(), names()), (&b"three"[..], 1));
    }
}
