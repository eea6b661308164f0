//! Files for whoever asked for them: each appears under its name when it is whole, and not before.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{Builder, TempPath};

/// Access to a new directory: its owner, and its group for reading, as to recordings.
const DIRECTORY_MODE: u32 = 0o750;
/// Access to a new file, likewise.
const FILE_MODE: u32 = 0o640;
/// Access to a new file that may hold secrets: its owner alone.
const PRIVATE_FILE_MODE: u32 = 0o600;
/// Longest name that is made of another one, in bytes: room for an ending within the 255 of a file system.
const NAME_BYTES_MAX: usize = 128;

/// A file that is being written, under a temporary name beside the final one. Given up, it is removed.
#[derive(Debug)]
pub struct PendingFile {
    temporary: TempPath,
    target: PathBuf,
}

impl PendingFile {
    /// Begins a file that shall become `target`, which need not be there. Holds no descriptor, so that there may be many.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create(target: PathBuf) -> io::Result<Self> {
        Self::with_mode(target, FILE_MODE)
    }

    /// The same for a file that only its owner may read.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create_private(target: PathBuf) -> io::Result<Self> {
        Self::with_mode(target, PRIVATE_FILE_MODE)
    }

    fn with_mode(target: PathBuf, mode: u32) -> io::Result<Self> {
        let mut builder = Builder::new();
        builder.prefix(".flatcap-").suffix(".partial").permissions(Permissions::from_mode(mode));
        let temporary = builder.tempfile_in(folder_of(&target))?.into_temp_path();
        Ok(Self { temporary, target })
    }

    /// What it shall become.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(&self.temporary)?.write_all(bytes)
    }

    /// Brings it to the medium under its final name.
    ///
    /// # Errors
    /// `AlreadyExists` where there is such a file and it `replaces` none; what the kernel says.
    pub fn publish(self, replaces: bool) -> io::Result<()> {
        File::open(&self.temporary)?.sync_all()?;
        let Self { temporary, target } = self;
        let renamed = if replaces { temporary.persist(target) } else { temporary.persist_noclobber(target) };
        renamed.map_err(|error| error.error)
    }
}

/// The directory that a file is in, or is to be in.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a directory where it is missing, with parents.
///
/// # Errors
/// What the kernel says.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Brings a directory's entries to the medium.
///
/// # Errors
/// What the kernel says.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
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
        let target = folder.path().join("a.bin");
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let write = |bytes: &[u8]| {
            let file = PendingFile::create(target.clone()).unwrap();
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
        assert_eq!((refused.kind(), names()), (io::ErrorKind::AlreadyExists, 1));
        assert_eq!(std::fs::read(&target).unwrap(), b"one!");
        write(b"three").publish(true).unwrap();
        assert_eq!((std::fs::read(&target).unwrap().as_slice(), names()), (&b"three!"[..], 1));
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
