//! A storage that calls a hook before its operations, for tests and benches.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use flatcap_format::storage::{DiskSpace, FileAttributes, FileEntry, ReadAt, Storage, StorageFile};

/// The kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Appending, truncating, syncing; creating, opening, renaming and removing files.
    Change,
    /// Preallocating.
    Preallocate,
    /// Attributes of a file and the list of files.
    Metadata,
}

type Hook = Arc<dyn Fn(OperationKind) + Send + Sync>;

/// Forwards all operations to another storage. Reads, lengths and space call no hook.
pub struct HookedStorage {
    inner: Arc<dyn Storage>,
    hook: Hook,
}

struct HookedFile {
    inner: Arc<dyn StorageFile>,
    hook: Hook,
}

impl HookedStorage {
    pub fn new(inner: Arc<dyn Storage>, hook: impl Fn(OperationKind) + Send + Sync + 'static) -> Self {
        Self { inner, hook: Arc::new(hook) }
    }

    fn before(&self, kind: OperationKind) -> &dyn Storage {
        (self.hook)(kind);
        &*self.inner
    }

    fn wrap(&self, inner: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(HookedFile { inner, hook: Arc::clone(&self.hook) })
    }
}

impl HookedFile {
    fn before(&self, kind: OperationKind) -> &dyn StorageFile {
        (self.hook)(kind);
        &*self.inner
    }
}

impl fmt::Debug for HookedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Storage for HookedStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.wrap(self.before(OperationKind::Change).create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.wrap(self.before(OperationKind::Change).open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.before(OperationKind::Change).rename(from, to)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.before(OperationKind::Change).exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.before(OperationKind::Change).replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.before(OperationKind::Change).remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.before(OperationKind::Change).sync_directory()
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        self.before(OperationKind::Metadata).entries()
    }

    fn space(&self) -> io::Result<DiskSpace> {
        self.inner.space()
    }
}

impl ReadAt for HookedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }
}

impl StorageFile for HookedFile {
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.before(OperationKind::Change).append(slices)
    }

    fn preallocate(&self, end: u64) -> io::Result<()> {
        self.before(OperationKind::Preallocate).preallocate(end)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.before(OperationKind::Change).truncate(length)
    }

    fn allocated(&self) -> io::Result<u64> {
        self.inner.allocated()
    }

    fn attributes(&self) -> io::Result<FileAttributes> {
        self.before(OperationKind::Metadata).attributes()
    }

    fn set_attributes(&self, attributes: &FileAttributes) -> io::Result<()> {
        self.before(OperationKind::Metadata).set_attributes(attributes)
    }

    fn sync(&self) -> io::Result<()> {
        self.before(OperationKind::Change).sync()
    }
}
