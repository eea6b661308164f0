//! Stores the names of unsent messages on the disk for the next process. The names are in one file
//! in the directory of the outbox.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use flatcap_format::storage::linux::Directory;
use flatcap_format::storage::open_regular;

use crate::error::ShipError;
use crate::names::ObjectGroup;
use crate::outbox::{UNSENT_MAX, manifest_of};

/// Name of the file in the directory. The file has a line for each manifest.
const FILE: &str = "unsent";
/// Name of the file with the URL of the store that has the manifests.
const STORE: &str = "store";
/// Mode of the directory, and mode of the files in it.
const MODES: (u32, u32) = (0o750, 0o640);
/// Maximum size of a file that is read, in bytes.
// The name of a manifest has at most about 500 bytes.
const FILE_BYTES_MAX: u64 = 1024 * UNSENT_MAX as u64;

/// The names of unsent messages on the disk. The directory is locked while this value exists.
#[derive(Debug)]
pub(crate) struct OutboxFile {
    folder: PathBuf,
    directory: Directory,
    lock: File, // of the directory: the file itself is replaced
}

impl OutboxFile {
    /// Opens a directory, and creates it if it is missing. Reads the lines that an earlier process
    /// has left. Lines that are not names of manifests are skipped.
    ///
    /// # Errors
    /// Fails with `File` if the directory cannot be created, if another process uses it, or if it
    /// has unsent messages about another store than `store`. Fails with `Directory` if the
    /// directory cannot be read.
    pub(crate) fn open(folder: &Path, store: &str) -> Result<(Self, Vec<String>), ShipError> {
        let failed = |error| ShipError::File { path: folder.to_owned(), error };
        let directory = Directory::create(folder, MODES.0).map_err(failed)?;
        let lock = File::from(directory.as_fd().try_clone_to_owned().map_err(failed)?);
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => failed(io::Error::new(
                ErrorKind::WouldBlock,
                "another flatcap-ship uses it; stop that one, or name another directory as `outbox`",
            )),
            TryLockError::Error(error) => failed(error),
        })?;
        let path = folder.join(FILE);
        let text = read(&path).map_err(|error| ShipError::Directory { path, error })?;
        let is_name = |line: &&str| ObjectGroup::parse_manifest(manifest_of(line)).is_some();
        let lines: Vec<String> = text.lines().filter(is_name).map(str::to_owned).collect();
        let file = Self { folder: folder.to_owned(), directory, lock };
        file.set_store(store, lines.len()).map_err(failed)?;
        Ok((file, lines))
    }

    /// Writes the URL of the store to its file.
    fn set_store(&self, store: &str, unsent: usize) -> io::Result<()> {
        let path = self.folder.join(STORE);
        let before = read(&path)?;
        if before == store {
            return Ok(());
        }
        // Messages about another store would find no manifest in this store.
        if unsent > 0 && !before.is_empty() {
            return Err(io::Error::other(format!(
                "it has {unsent} unsent messages about {before}: ship there again until they are sent, or name another \
                 directory as `outbox`"
            )));
        }
        self.directory.put(STORE, store.as_bytes(), MODES.1)
    }

    /// Replaces the lines. When this function returns, the lines are synced to the disk.
    ///
    /// # Errors
    /// `File`. After an error, the file still has the previous lines.
    pub(crate) fn write(&self, lines: impl Iterator<Item = String>) -> Result<(), ShipError> {
        let text: String = lines.flat_map(|line| [line, "\n".to_owned()]).collect();
        let put = self.directory.put(FILE, text.as_bytes(), MODES.1);
        put.map_err(|error| ShipError::File { path: self.folder.join(FILE), error })
    }
}

impl Drop for OutboxFile {
    /// Unlocks the directory immediately.
    fn drop(&mut self) {
        // It is not enough to close the file, because a process that is being started has a copy of
        // it until it executes its program.
        drop(self.lock.unlock());
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = match open_regular(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(text),
        file => file?,
    };
    let length = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)? as u64;
    if length > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("more than {FILE_BYTES_MAX} bytes: no list of manifests")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "v1/_segments/date=2023-11-14/host=web-1/00000000000000ab-0000000042.json";

    // Proves that the next process reads the names back. A second process is refused only while the
    // first process holds the lock, even if a child has a copy of the locked file. Damaged lines
    // and an interrupted write do not affect the other lines. Messages about another store are not
    // sent for the current store.
    #[test]
    fn names_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/outbox");
        let open = || OutboxFile::open(&path, "s3://lake");
        let (file, found) = open().unwrap();
        assert!(found.is_empty());
        let other = format!("?{}", NAME.replace("42", "43"));
        file.write([NAME.to_owned(), other.clone()].into_iter()).unwrap();
        let refused = open().unwrap_err().to_string();
        assert!(refused.contains("a/outbox: another flatcap-ship uses it"), "{refused}");
        let _of_child = file.lock.try_clone().unwrap();
        drop(file);
        std::fs::write(path.join("unsent.partial"), "v1/_seg").unwrap();
        assert_eq!(open().unwrap().1, [NAME, other.as_str()]);
        std::fs::write(path.join(FILE), format!("../x\n{NAME}\n\n{}", &other[..30])).unwrap();
        let refused = OutboxFile::open(&path, "s3://mistyped").unwrap_err().to_string();
        assert!(refused.contains("outbox: it has 1 unsent messages about s3://lake: "), "{refused}");
        let (file, found) = open().unwrap();
        assert_eq!(found, [NAME]);
        file.write(std::iter::empty()).unwrap();
        assert_eq!(std::fs::read(path.join(FILE)).unwrap(), b"");
        drop(file);
        assert!(OutboxFile::open(&path, "s3://other").is_ok(), "nothing is left about the first store");
    }

    // Proves that an unusable directory is reported with its path, and is not changed.
    #[test]
    fn unusable_directories_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let error = OutboxFile::open(&path, "s3://lake").unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains("/file: "), "{error}");
        let path = folder.path().join("outbox");
        std::fs::create_dir(&path).unwrap();
        let long = "x".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1);
        for content in [long.as_bytes(), b"\xff"] {
            std::fs::write(path.join(FILE), content).unwrap();
            let error = OutboxFile::open(&path, "s3://lake").unwrap_err().to_string();
            assert!(error.contains("cannot read") && error.contains("outbox/unsent: "), "{error}");
            assert_eq!(std::fs::read(path.join(FILE)).unwrap(), content);
        }
    }
}
