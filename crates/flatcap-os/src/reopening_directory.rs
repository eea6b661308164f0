//! Opens the data directory again by its path if it was removed or moved away and then created
//! again.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use flatcap_format::storage::{DiskSpace, FileEntry, Storage, StorageFile};

use super::storage::{DataDirectory, DataDirectoryError};

/// A data directory that is opened again if its path refers to another directory. Files that are
/// already open stay valid.
#[derive(Debug)]
pub struct ReopeningDirectory {
    current: RwLock<Arc<DataDirectory>>,
}

impl ReopeningDirectory {
    /// Opens the data directory and takes its lock. Creates the directory if it is missing.
    ///
    /// # Errors
    /// See [`DataDirectory::open`].
    pub fn open(path: &Path) -> Result<Self, DataDirectoryError> {
        Ok(Self { current: RwLock::new(Arc::new(DataDirectory::open(path)?)) })
    }

    /// Returns the directory that is open now.
    pub fn current(&self) -> Arc<DataDirectory> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Storage for ReopeningDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.current().create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Storage::open(&*self.current(), name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.current().rename(from, to)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.current().exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.current().replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.current().remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.current().sync_directory()
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        self.current().entries()
    }

    fn space(&self) -> io::Result<DiskSpace> {
        self.current().space()
    }

    fn is_name_of(&self, name: &str, file: &dyn StorageFile) -> io::Result<bool> {
        self.current().is_name_of(name, file)
    }

    fn reopen_if_moved(&self) -> io::Result<bool> {
        let before = self.current();
        if before.is_still_at_path() {
            return Ok(false);
        }
        let renewed = DataDirectory::open(before.path()).map_err(io::Error::other)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(renewed);
        Ok(true)
    }

    fn is_in_memory(&self) -> bool {
        self.current().is_in_memory()
    }
}
