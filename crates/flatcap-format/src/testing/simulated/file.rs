//! Implements a file of the simulated storage. The disk decides whether an operation on the file
//! succeeds, fails or crashes.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::{InjectedFailure, InjectedResult, Operation, SimulatedDisk, SimulatedStorage};
use crate::storage::{FileAttributes, ReadAt, StorageFile};

#[derive(Debug)]
pub(super) struct SimulatedFile {
    pub(super) storage: SimulatedStorage,
    pub(super) inode: usize,
    pub(super) _open: Arc<()>,
}

impl ReadAt for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let disk = self.storage.lock_disk()?;
        Ok(usize::try_from(offset).map_or(0, |offset| disk.inodes[self.inode].read(buffer, offset)))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.storage.lock_disk()?.inodes[self.inode].length() as u64)
    }
}

impl StorageFile for SimulatedFile {
    /// Appends the slices. A failing append may still write a part of its bytes. An append that
    /// does not fit on the disk is short, and fails if no byte fits.
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut disk = self.storage.disk();
        let fate = disk.begin()?;
        let mut bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let offset = disk.inodes[self.inode].length() as u64;
        let (reach, code) = disk.max_length(self.inode);
        let fitting = usize::try_from(reach.saturating_sub(offset)).unwrap_or(usize::MAX);
        let is_full = fitting == 0 && !bytes.is_empty();
        bytes.truncate(fitting);
        if !matches!(fate, InjectedResult::Succeeds | InjectedResult::Fails(InjectedFailure::Late(_))) {
            let part = disk.random.below(bytes.len() + 1);
            bytes.truncate(part);
        }
        disk.inodes[self.inode].append(&bytes);
        let result = match fate.result() {
            Ok(()) if is_full => Err(io::Error::from_raw_os_error(code)),
            told => told.map(|()| bytes.len()),
        };
        disk.end(Some(self.inode), Operation::Append { offset, bytes: bytes.len() as u64 }, result)
    }

    /// If there is too little space, allocates the available space before it reports the error.
    fn preallocate(&self, end: u64) -> io::Result<()> {
        let mut disk = self.storage.disk();
        let fate = disk.begin()?;
        let (reach, code) = disk.max_length(self.inode);
        if matches!(fate, InjectedResult::Succeeds) {
            let inode = &mut disk.inodes[self.inode];
            inode.reserved = inode.reserved.max(end.min(reach));
        }
        let result = match fate.result() {
            Ok(()) if end > reach => Err(io::Error::from_raw_os_error(code)),
            told => told,
        };
        disk.end(Some(self.inode), Operation::Preallocate { end }, result)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let operation = Operation::Truncate { length };
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let inode = self.inode;
        self.storage.run_operation(
            |_| Some(inode),
            operation,
            |_| Ok(()),
            |disk| disk.inodes[inode].truncate(length),
        )
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((0, self.inode as u64))
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(self.storage.lock_disk()?.inodes[self.inode].allocated())
    }

    /// Returns default attributes, because a simulated file has only a name and content.
    fn attributes(&self) -> io::Result<FileAttributes> {
        self.storage.lock_disk().map(|_| FileAttributes::default())
    }

    fn set_attributes(&self, _attributes: &FileAttributes) -> io::Result<()> {
        self.storage.lock_disk().map(drop)
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.storage.disk();
        let fate = disk.begin()?;
        let SimulatedDisk { inodes, random, .. } = &mut *disk;
        let inode = &mut inodes[self.inode];
        match fate {
            InjectedResult::Succeeds => inode.sync(),
            InjectedResult::Fails(_) => inode.fail_sync(random),
            InjectedResult::Crashes => {} // even without a sync, anything may have reached the disk
        }
        let length = inode.length() as u64;
        disk.end(Some(self.inode), Operation::Sync { length }, fate.result())
    }
}
