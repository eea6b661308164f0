//! The data directory that is at a path now: where it was removed or moved away and made anew, work goes on in the new one.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use super::storage::{DataDirectory, DataDirectoryError, Entry, Space, Storage, StorageFile};

/// A data directory that is followed by its path. Files that are open stay what they are.
#[derive(Debug)]
pub struct CurrentDirectory {
    current: RwLock<Arc<DataDirectory>>,
}

impl CurrentDirectory {
    /// Creates the directory where it is missing, and takes its lock.
    ///
    /// # Errors
    /// As [`DataDirectory::open`].
    pub fn open(path: &Path) -> Result<Self, DataDirectoryError> {
        Ok(Self { current: RwLock::new(Arc::new(DataDirectory::open(path)?)) })
    }

    /// The directory as it is now.
    pub fn now(&self) -> Arc<DataDirectory> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Storage for CurrentDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.now().create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Storage::open(&*self.now(), name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.now().rename(from, to)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.now().exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.now().replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.now().remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.now().sync_directory()
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        self.now().entries()
    }

    fn space(&self) -> io::Result<Space> {
        self.now().space()
    }

    fn leads_to(&self, name: &str, file: &dyn StorageFile) -> io::Result<bool> {
        self.now().leads_to(name, file)
    }

    fn renew(&self) -> io::Result<bool> {
        let before = self.now();
        if before.is_at_its_path() {
            return Ok(false);
        }
        let renewed = DataDirectory::open(before.path()).map_err(io::Error::other)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(renewed);
        Ok(true)
    }

    fn is_in_memory(&self) -> bool {
        self.now().is_in_memory()
    }
}
