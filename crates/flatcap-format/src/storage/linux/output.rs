//! Writes the output files of a command. Each file gets its final name only after it is complete.
//!
//! Root writes into another user's directory with that user's rights, so the files belong to that
//! user. Links of other users are not followed.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};

use super::directory::{Directory, FileAccess};

/// Mode of a new directory. Directories of recordings have the same mode: full access for the
/// owner, and read access for the group.
const DIRECTORY_MODE: u32 = 0o750;
/// Mode of a new file. This mode equals the mode of a new directory without the execute
/// permissions.
const FILE_MODE: u32 = 0o640;
/// Mode of a new file that may contain secrets. Only the owner has access.
const PRIVATE_FILE_MODE: u32 = 0o600;
/// Modes of a new directory and of a new file that everyone can read.
const PUBLIC_DIRECTORY_MODE: u32 = 0o755;
const PUBLIC_FILE_MODE: u32 = 0o644;

/// A directory for output files.
#[derive(Debug, Clone)]
pub struct OutputDirectory {
    path: PathBuf,
    directory: Arc<Directory>,
}

impl OutputDirectory {
    /// Opens a directory. Creates the directory and its parents if they are missing.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_with(path, DIRECTORY_MODE)
    }

    /// Opens a directory like [`create`](Self::create), but everyone can read a directory that this
    /// call creates.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn create_public(path: &Path) -> io::Result<Self> {
        Self::create_with(path, PUBLIC_DIRECTORY_MODE)
    }

    fn create_with(path: &Path, mode: u32) -> io::Result<Self> {
        let directory = Directory::create(path, mode)?;
        Ok(Self { path: path.to_owned(), directory: Arc::new(directory) })
    }

    /// Returns the path of a file with this name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns whether a file with this name exists.
    pub fn contains(&self, name: &str) -> bool {
        self.directory.stat(name).is_ok()
    }

    /// Creates a pending file that gets the name `name` when it is published. A pending file holds
    /// no descriptor, so that many files can be pending at the same time.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn begin(&self, name: String) -> io::Result<PendingFile> {
        self.begin_with(name, FILE_MODE)
    }

    /// Creates a pending file like [`begin`](Self::begin), but only the owner can read the file.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn begin_private(&self, name: String) -> io::Result<PendingFile> {
        self.begin_with(name, PRIVATE_FILE_MODE)
    }

    /// Creates a pending file like [`begin`](Self::begin), but everyone can read the file.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn begin_public(&self, name: String) -> io::Result<PendingFile> {
        self.begin_with(name, PUBLIC_FILE_MODE)
    }

    /// Creates a pending file like [`begin`](Self::begin), but the file stays open, for writing at
    /// any offset.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn begin_open(&self, name: String) -> io::Result<OpenPendingFile> {
        let (pending, file) = self.create_pending(name, FILE_MODE)?;
        Ok(OpenPendingFile { pending, file })
    }

    fn begin_with(&self, name: String, mode: u32) -> io::Result<PendingFile> {
        Ok(self.create_pending(name, mode)?.0)
    }

    fn create_pending(&self, name: String, mode: u32) -> io::Result<(PendingFile, File)> {
        let directory = Arc::clone(&self.directory);
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let temporary = format!(".flatcap-{:016x}.partial", u64::from_le_bytes(random));
        let file = directory.create_seekable(&temporary, mode)?;
        let identity = identity(&file)?;
        Ok((PendingFile { directory, temporary, identity, name, is_published: false }, file))
    }

    /// Syncs the directory's entries to disk.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn sync(&self) -> io::Result<()> {
        self.directory.sync()
    }
}

/// A file that is written under a temporary name in the directory of its final name. If this value
/// is dropped before the file is published, the file is removed.
#[derive(Debug)]
pub struct PendingFile {
    directory: Arc<Directory>,
    temporary: String,
    identity: (u64, u64), // device and inode numbers of the created file
    name: String,
    is_published: bool,
}

impl PendingFile {
    /// Appends bytes.
    ///
    /// # Errors
    /// Returns `NotFound` if another file has replaced the temporary file, or any error of the
    /// underlying system call.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all(bytes)
    }

    /// Syncs the file and renames it to its final name.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if a file has the final name and `replaces` is false, or any error
    /// of the underlying system call.
    pub fn publish(mut self, replaces: bool) -> io::Result<()> {
        self.file()?.sync_all()?;
        if replaces {
            self.directory.replace(&self.temporary, &self.name)?;
        } else {
            self.directory.rename(&self.temporary, &self.name)?;
        }
        self.is_published = true;
        Ok(())
    }

    fn file(&self) -> io::Result<File> {
        let file = self.directory.file(&self.temporary, FileAccess::Append)?;
        if identity(&file)? != self.identity {
            let why = format!("another file has replaced {} while it was being written", self.temporary);
            return Err(io::Error::new(ErrorKind::NotFound, why));
        }
        Ok(file)
    }
}

/// A [`PendingFile`] that stays open.
#[derive(Debug)]
pub struct OpenPendingFile {
    pending: PendingFile,
    file: File,
}

impl OpenPendingFile {
    /// Syncs the file to disk. Returns its length.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub fn sync(&self) -> io::Result<u64> {
        self.file.sync_all()?;
        Ok(self.file.metadata()?.len())
    }

    /// Syncs the file and renames it to its final name.
    ///
    /// # Errors
    /// Returns the same errors as [`PendingFile::publish`].
    pub fn publish(self, replaces: bool) -> io::Result<()> {
        self.pending.publish(replaces)
    }
}

impl Seek for OpenPendingFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Write for OpenPendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[expect(clippy::disallowed_methods, reason = "forwards to the file; the caller handles the count")]
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.is_published {
            // An error is ignored, because the temporary name shows that the file is incomplete.
            drop(self.directory.remove(&self.temporary));
        }
    }
}

/// Returns the device number and the inode number.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a file appears complete or not at all, and replaces an existing file only on
    // request.
    #[test]
    fn files_appear_whole() {
        let folder = tempfile::tempdir().unwrap();
        let output = OutputDirectory::create(&folder.path().join("a/b")).unwrap();
        let target = output.path("a.bin");
        let names = || std::fs::read_dir(target.parent().unwrap()).unwrap().count();
        let write = |bytes: &[u8]| {
            let file = output.begin("a.bin".to_owned()).unwrap();
            file.append(bytes).unwrap();
            file.append(b"!").unwrap();
            assert!(!target.exists() || std::fs::read(&target).unwrap() != bytes);
            file
        };
        drop(write(b"given up"));
        assert_eq!(names(), 0);
        write(b"one").publish(false).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"one!");
        let refused = write(b"two").publish(false).unwrap_err();
        assert_eq!((refused.kind(), names()), (ErrorKind::AlreadyExists, 1));
        assert_eq!(std::fs::read(&target).unwrap(), b"one!");
        write(b"three").publish(true).unwrap();
        assert_eq!((std::fs::read(&target).unwrap().as_slice(), names()), (&b"three!"[..], 1));
    }

    // Proves that a file that stays open can be written at any offset, and that the file appears
    // complete or not at all.
    #[test]
    fn open_files_appear_whole() {
        let folder = tempfile::tempdir().unwrap();
        let output = OutputDirectory::create(&folder.path().join("a/b")).unwrap();
        let target = output.path("a.mcap");
        let write = |bytes: &[u8]| {
            let mut file = output.begin_open("a.mcap".to_owned()).unwrap();
            file.write_all(b"....").unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.write_all(bytes).unwrap();
            assert_eq!(file.sync().unwrap(), 4);
            file
        };
        drop(write(b"up"));
        assert!(!output.contains("a.mcap"));
        write(b"one").publish(false).unwrap();
        assert_eq!(write(b"two").publish(false).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&target).unwrap(), b"one.");
        write(b"last").publish(true).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"last");
        assert_eq!(std::fs::read_dir(target.parent().unwrap()).unwrap().count(), 1);
    }

    // Proves that bytes are written only to the created file, even if a link, another file or a
    // directory takes over the temporary name of the created file.
    #[test]
    fn nothing_else_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("victim"), "victim").unwrap();
        let output = OutputDirectory::create(folder.path()).unwrap();
        let put: [&dyn Fn(&Path); 3] = [
            &|path| std::os::unix::fs::symlink("victim", path).unwrap(),
            &|path| std::fs::write(path, "another").unwrap(),
            &|path| std::fs::create_dir(path).unwrap(),
        ];
        for put in put {
            let file = output.begin("a.bin".to_owned()).unwrap();
            file.append(b"first").unwrap();
            rustix::fs::rename(path(&file.temporary), path("stolen")).unwrap();
            put(&path(&file.temporary));
            assert!(file.append(b"second").is_err() && file.publish(true).is_err());
            assert_eq!(std::fs::read(path("stolen")).unwrap(), b"first");
            assert_eq!(std::fs::read(path("victim")).unwrap(), b"victim");
            assert!(!path("a.bin").exists());
        }
    }
}
