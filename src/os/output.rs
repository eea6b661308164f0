//! Files for whoever asked for them: each appears under its name when it is whole, and not before.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{Access, Directory};
use super::host::random_u64;

/// Access to a new directory: its owner, and its group for reading, as to recordings.
const DIRECTORY_MODE: u32 = 0o750;
/// Access to a new file, likewise.
const FILE_MODE: u32 = 0o640;
/// Access to a new file that may hold secrets: its owner alone.
const PRIVATE_FILE_MODE: u32 = 0o600;
/// Longest name that is made of another one, in bytes: room for an ending within the 255 of a file system.
const NAME_BYTES_MAX: usize = 128;

/// A directory that files are written to.
#[derive(Debug, Clone)]
pub struct OutputDirectory {
    path: PathBuf,
    directory: Arc<Directory>,
}

impl OutputDirectory {
    /// Opens a directory, and creates it where it is missing, with parents.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let directory = Directory::create(path, DIRECTORY_MODE)?;
        Ok(Self { path: path.to_owned(), directory: Arc::new(directory) })
    }

    /// Where a file of this name is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether something has this name.
    pub fn contains(&self, name: &str) -> bool {
        self.directory.stat(name).is_ok()
    }

    /// Begins a file that shall have this name, which need not be there. Holds no descriptor, so that there may be many.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn begin(&self, name: String) -> io::Result<PendingFile> {
        self.begin_with(name, FILE_MODE)
    }

    /// The same for a file that only its owner may read.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn begin_private(&self, name: String) -> io::Result<PendingFile> {
        self.begin_with(name, PRIVATE_FILE_MODE)
    }

    fn begin_with(&self, name: String, mode: u32) -> io::Result<PendingFile> {
        let directory = Arc::clone(&self.directory);
        let temporary = format!(".flatcap-{:016x}.partial", random_u64()?);
        let identity = identity(&directory.create_file(&temporary, mode)?)?;
        Ok(PendingFile { directory, temporary, identity, name, is_published: false })
    }

    /// Brings its names to the disk.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn sync(&self) -> io::Result<()> {
        self.directory.sync()
    }
}

/// A file that is being written, under a temporary name beside the final one. Given up, it is removed.
#[derive(Debug)]
pub struct PendingFile {
    directory: Arc<Directory>,
    temporary: String,
    identity: (u64, u64), // of the file that was created
    name: String,
    is_published: bool,
}

impl PendingFile {
    /// Appends bytes.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` where another file has been put in its place.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all(bytes)
    }

    /// Brings it to the disk under its final name.
    ///
    /// # Errors
    /// `AlreadyExists` where there is such a file and it `replaces` none; what the kernel says.
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
        let file = self.directory.file(&self.temporary, Access::Append)?;
        if identity(&file)? != self.identity {
            let why = format!("another file has been put in the place of {}", self.temporary);
            return Err(io::Error::new(ErrorKind::NotFound, why));
        }
        Ok(file)
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.is_published {
            // Best effort: it says by its name that it is not whole.
            drop(self.directory.remove(&self.temporary));
        }
    }
}

/// Device and inode.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A name that can be a file's and an argument, whatever it is made of: letters, digits, `.`, `_` and `-`, of which neither `.` nor `-`
/// comes first; `_` stands for all else. Cut at 128 bytes; empty for an empty one.
pub fn plain_name(name: &str) -> String {
    let plain = |(at, c): (usize, char)| match c {
        '_' => c,
        '.' | '-' if at > 0 => c,
        _ if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    name.char_indices().map(plain).take(NAME_BYTES_MAX).collect()
}

/// The name, or with the first number behind it that makes it one for which `is_free`: `a`, `a-2`, `a-3`.
pub fn numbered(name: &str, mut is_free: impl FnMut(&str) -> bool) -> String {
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

    // Goal: a file appears whole or not at all, and replaces another only where that is wanted. Method: given up, published, published over
    // one that is there.
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

    // Goal: bytes go into the file that was created and no other. Method: its temporary name is given to a link, another file and a
    // directory while it is written.
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

    // Goal: no name leads out of a directory or hides, and each is another one. Method: hostile ones.
    #[test]
    fn names_are_plain() {
        let made = ["cpu", "../../etc/passwd", "..", "-rf", "a b\n", "\u{e9}t\u{e9}", "", "disk.sda_1"]
            .map(plain_name);
        assert_eq!(made, ["cpu", "_._.._etc_passwd", "_.", "_rf", "a_b_", "_t_", "", "disk.sda_1"]);
        assert_eq!(plain_name(&"x".repeat(500)).len(), NAME_BYTES_MAX);
        let mut taken = std::collections::BTreeSet::new();
        let names: Vec<_> =
            ["a", "a-2", "a", "a"].map(|name| numbered(name, |name| taken.insert(name.to_owned()))).into();
        assert_eq!(names, ["a", "a-2", "a-3", "a-4"]);
    }
}
