//! A storage in memory that never fails.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::{DiskSpace, FileAttributes, FileEntry, ReadAt, Storage, StorageFile};

/// A storage in memory that never fails. Holds the files by name.
#[derive(Debug, Default)]
pub struct MemoryStorage(Mutex<BTreeMap<String, Arc<MemoryFile>>>);

#[derive(Debug, Default)]
struct MemoryFile(Mutex<Vec<u8>>);

impl MemoryStorage {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Arc<MemoryFile>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, name: &str, content: &[u8]) {
        self.files().insert(name.to_owned(), Arc::new(MemoryFile(Mutex::new(content.to_vec()))));
    }

    pub fn names(&self) -> Vec<String> {
        self.files().keys().cloned().collect()
    }
}

impl MemoryFile {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for MemoryStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.put(name, &[]);
        self.open(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.files().get(name).map(Arc::clone).ok_or(io::ErrorKind::NotFound)?;
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        let mut files = self.files();
        let (first, second) = (files.get(one).cloned(), files.get(other).cloned());
        let (first, second) = first.zip(second).ok_or(io::ErrorKind::NotFound)?;
        files.insert(one.to_owned(), second);
        files.insert(other.to_owned(), first);
        Ok(())
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        Ok(self
            .names()
            .into_iter()
            .zip(0..)
            .map(|(name, identity)| FileEntry { name, allocated: 0, identity })
            .collect())
    }

    fn space(&self) -> io::Result<DiskSpace> {
        Ok(DiskSpace { total: u64::MAX, available: u64::MAX })
    }
}

impl ReadAt for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.bytes().read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }
}

impl StorageFile for MemoryFile {
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut bytes = self.bytes();
        let before = bytes.len();
        for slice in slices {
            bytes.extend_from_slice(slice);
        }
        Ok(bytes.len() - before)
    }

    fn preallocate(&self, _end: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.bytes().truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn allocated(&self) -> io::Result<u64> {
        self.length()
    }

    fn attributes(&self) -> io::Result<FileAttributes> {
        Ok(FileAttributes::default())
    }

    fn set_attributes(&self, _attributes: &FileAttributes) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
