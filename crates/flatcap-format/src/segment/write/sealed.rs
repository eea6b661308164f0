//! A complete segment that is not yet synced and published.

use std::io;
use std::sync::Arc;

use crate::segment::format::segment_name::SegmentName;
use crate::storage::{Storage, StorageFile};

/// A segment with footer and trailer, to be published.
#[derive(Debug)]
pub struct SealedSegment {
    name: SegmentName,
    file: Arc<dyn StorageFile>,
    bytes: u64,
}

impl SealedSegment {
    /// Creates the value for a complete file that still has its active name.
    pub(in crate::segment) fn new(name: SegmentName, file: Arc<dyn StorageFile>, bytes: u64) -> Self {
        Self { name, file, bytes }
    }

    /// Truncates unused space and syncs the file.
    ///
    /// # Errors
    /// The error of the storage.
    pub(in crate::segment) fn sync(&self) -> io::Result<()> {
        self.file.truncate(self.bytes)?;
        self.file.sync()
    }

    /// Truncates unused space, syncs the file, and then gives it its final name. A segment with
    /// that name is therefore complete, even after a power cut.
    ///
    /// # Errors
    /// The error of the storage. After an error, the segment keeps its `.active` name.
    pub fn publish(&self, storage: &dyn Storage) -> io::Result<()> {
        self.sync()?;
        let (from, to) = (self.name.to_string(), self.name.sealed().to_string());
        if from != to {
            storage.rename(&from, &to)?;
        }
        storage.sync_directory()
    }

    /// Length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// The final name.
    pub fn name(&self) -> SegmentName {
        self.name.sealed()
    }
}
