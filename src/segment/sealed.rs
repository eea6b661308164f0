//! A segment that is whole, on its way to the medium and to its final name.

use std::io;
use std::sync::Arc;

use super::name::SegmentName;
use crate::os::storage::{Storage, StorageFile};

/// A segment with footer and trailer, to be published.
#[derive(Debug)]
pub struct SealedSegment {
    name: SegmentName,
    file: Arc<dyn StorageFile>,
    bytes: u64,
}

impl SealedSegment {
    /// A file that is complete, under a name that does not say so yet.
    pub(super) fn new(name: SegmentName, file: Arc<dyn StorageFile>, bytes: u64) -> Self {
        Self { name, file, bytes }
    }

    /// Gives unused room back, and brings the file to the medium.
    ///
    /// # Errors
    /// What the storage says.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.truncate(self.bytes)?;
        self.file.sync()
    }

    /// Gives unused room back, brings the file to the medium and then gives it its final name: whoever sees the name
    /// sees a whole segment, even after a power cut.
    ///
    /// # Errors
    /// What the storage says. The segment then keeps its `.active` name.
    pub fn publish(&self, storage: &dyn Storage) -> io::Result<()> {
        self.sync()?;
        let (from, to) = (self.name.to_string(), self.name.sealed().to_string());
        if from != to {
            storage.rename(&from, &to)?;
        }
        storage.sync_directory()
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// The name it gets.
    pub fn name(&self) -> SegmentName {
        self.name.sealed()
    }
}
