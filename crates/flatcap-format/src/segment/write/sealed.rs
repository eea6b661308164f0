//! Represents a complete segment that is not synced yet and does not have its final name yet.

use std::io;
use std::sync::Arc;

use crate::segment::format::segment_name::SegmentName;
use crate::storage::{Storage, StorageFile};

/// A segment with a footer and a trailer, which is ready to be synced and renamed to its final
/// name.
#[derive(Debug)]
pub struct SealedSegment {
    name: SegmentName,
    file: Arc<dyn StorageFile>,
    bytes: u64,
}

impl SealedSegment {
    /// Creates the value for a complete file that still has its `.active` name.
    pub(in crate::segment) fn new(name: SegmentName, file: Arc<dyn StorageFile>, bytes: u64) -> Self {
        Self { name, file, bytes }
    }

    /// Cuts off unused space at the end of the file, and syncs the file.
    ///
    /// # Errors
    /// Returns any error of the storage.
    pub(in crate::segment) fn sync(&self) -> io::Result<()> {
        self.file.truncate(self.bytes)?;
        self.file.sync()
    }

    /// Cuts off unused space at the end of the file, syncs the file, and then renames it to its
    /// final name. Therefore a segment with the final name is complete, even after a power cut.
    ///
    /// # Errors
    /// Returns any error of the storage. After an error, the segment keeps its `.active` name.
    pub fn publish(&self, storage: &dyn Storage) -> io::Result<()> {
        self.sync()?;
        let (from, to) = (self.name.to_string(), self.name.sealed().to_string());
        if from != to {
            storage.rename(&from, &to)?;
        }
        storage.sync_directory()
    }

    /// Returns the length of the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the file.
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// Returns the final name.
    pub fn name(&self) -> SegmentName {
        self.name.sealed()
    }
}
