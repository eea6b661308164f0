//! Output files of a command. Each file appears under its final name only once it is complete.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{Directory, FileAccess};
use super::host::random_u64;

/// Mode of a new directory: full access for the owner, read access for the group, as for
/// recordings.
const DIRECTORY_MODE: u32 = 0o750;
/// Mode of a new file: the same, without execute.
const FILE_MODE: u32 = 0o640;
/// Mode of a new file that may hold secrets: owner only.
const PRIVATE_FILE_MODE: u32 = 0o600;
/// Modes of a new directory and a new file for everyone.
const PUBLIC_DIRECTORY_MODE: u32 = 0o755;
const PUBLIC_FILE_MODE: u32 = 0o644;
/// Maximum length of a derived file name, in bytes: leaves space for a suffix within the 255 bytes
/// of a file system.
const NAME_BYTES_MAX: usize = 128;

/// A directory for output files.
#[derive(Debug, Clone)]
pub struct OutputDirectory {
    path: PathBuf,
    directory: Arc<Directory>,
}

impl OutputDirectory {
    /// Opens a directory. Creates it and its parents if missing.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_with(path, DIRECTORY_MODE)
    }

    /// Like [`create`](Self::create), but everyone can read a new directory.
    ///
    /// # Errors
    /// Any error of the underlying system call.
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

    /// Returns whether the name exists.
    pub fn contains(&self, name: &str) -> bool {
        self.directory.stat(name).is_ok()
    }

    /// Creates a pending file that will get the name `name`. Holds no descriptor, so that many
    /// files can be pending.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn begin(&self, name: String) -> io::Result<PendingFile> {
        self.begin_with(name, FILE_MODE)
    }

    /// Like [`begin`](Self::begin), but only the owner can read the file.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn begin_private(&self, name: String) -> io::Result<PendingFile> {
        self.begin_with(name, PRIVATE_FILE_MODE)
    }

    /// Like [`begin`](Self::begin), but everyone can read the file.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn begin_public(&self, name: String) -> io::Result<PendingFile> {
        self.begin_with(name, PUBLIC_FILE_MODE)
    }

    fn begin_with(&self, name: String, mode: u32) -> io::Result<PendingFile> {
        let directory = Arc::clone(&self.directory);
        let temporary = format!(".flatcap-{:016x}.partial", random_u64()?);
        let identity = identity(&directory.create_file(&temporary, mode)?)?;
        Ok(PendingFile { directory, temporary, identity, name, is_published: false })
    }

    /// Syncs the directory's entries to disk.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn sync(&self) -> io::Result<()> {
        self.directory.sync()
    }
}

/// A file that is written under a temporary name next to the final one. Removed if dropped before
/// it is published.
#[derive(Debug)]
pub struct PendingFile {
    directory: Arc<Directory>,
    temporary: String,
    identity: (u64, u64), // device and inode of the created file
    name: String,
    is_published: bool,
}

impl PendingFile {
    /// Appends bytes.
    ///
    /// # Errors
    /// `NotFound` if another file has replaced the temporary file, or any error of the underlying
    /// system call.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all(bytes)
    }

    /// Syncs the file and renames it to its final name.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists and `replaces` is false, or any error of the underlying
    /// system call.
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

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.is_published {
            // Best effort: the temporary name shows that the file is incomplete.
            drop(self.directory.remove(&self.temporary));
        }
    }
}

/// Returns device and inode.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Turns any text into a name that is safe as a file name and as an argument: letters, digits, `.`,
/// `_` and `-`, not starting with `.` or `-`. Other characters become `_`. Truncated to 128 bytes;
/// empty for an empty name.
pub fn sanitized_name(name: &str) -> String {
    let replaced = |(at, c): (usize, char)| match c {
        '_' => c,
        '.' | '-' if at > 0 => c,
        _ if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    name.char_indices().map(replaced).take(NAME_BYTES_MAX).collect()
}

/// Returns `name`, or `name` with the first numeric suffix for which `is_free` returns true: `a`,
/// `a-2`, `a-3`.
pub fn unique_name(name: &str, mut is_free: impl FnMut(&str) -> bool) -> String {
    let mut numbered = name.to_owned();
    let mut number = 1_u64;
    while !is_free(&numbered) {
        number += 1;
        numbered = format!("{name}-{number}");
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a file appears complete or not at all, and replaces an existing one only on
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

    // Proves that bytes go only to the created file, even if a link, another file or a directory
    // takes over its temporary name.
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

    // Proves that hostile names stay inside the directory, are not hidden, and stay distinct.
    #[test]
    fn names_are_plain() {
        let made = ["cpu", "../../etc/passwd", "..", "-rf", "a b\n", "\u{e9}t\u{e9}", "", "disk.sda_1"]
            .map(sanitized_name);
        assert_eq!(made, ["cpu", "_._.._etc_passwd", "_.", "_rf", "a_b_", "_t_", "", "disk.sda_1"]);
        assert_eq!(sanitized_name(&"x".repeat(500)).len(), NAME_BYTES_MAX);
        let mut taken = std::collections::BTreeSet::new();
        let names: Vec<_> =
            ["a", "a-2", "a", "a"].map(|name| unique_name(name, |name| taken.insert(name.to_owned()))).into();
        assert_eq!(names, ["a", "a-2", "a-3", "a-4"]);
    }
}
