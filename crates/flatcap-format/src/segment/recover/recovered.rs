//! The result of a recovery, and its errors.

use std::io;

use crate::segment::format::damage::Damage;
use crate::segment::format::error::SegmentError;
use crate::segment::format::segment_name::SegmentName;

/// The result of recovering one segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// The name of the sealed segment, or `None` if nothing in it could be read.
    pub sealed: Option<String>,
    /// Samples in the segment.
    pub frames: u64,
    /// Samples among them that came from the memory of the run.
    pub from_memory: u64,
    /// Samples that were begun and are not in the segment.
    pub lost: u64,
    /// Damaged ranges of the segment.
    pub damage: Vec<Damage>,
    /// Files that were set aside.
    pub set_aside: Vec<String>,
}

/// The reason why a segment cannot be recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// It cannot be read and must not be changed: written by a later version, or the storage fails.
    #[error(transparent)]
    Unreadable(#[from] SegmentError),
    /// A step failed in the storage. It may be tried again.
    #[error("{name}: cannot {action}: {error}")]
    Storage {
        /// The segment.
        name: String,
        /// The step that failed.
        action: &'static str,
        /// The error of the storage.
        #[source]
        error: io::Error,
    },
}

impl RecoverError {
    /// The memory of the segment's run cannot be read.
    pub(in crate::segment) fn memory(name: SegmentName, error: io::Error) -> Self {
        RecoveryStep { name }.fails("read the memory of its run")(error)
    }
}

/// Creates errors that name the segment.
#[derive(Clone, Copy)]
pub(in crate::segment) struct RecoveryStep {
    pub(in crate::segment) name: SegmentName,
}

impl RecoveryStep {
    pub(in crate::segment) fn fails(self, action: &'static str) -> impl FnOnce(io::Error) -> RecoverError {
        move |error| RecoverError::Storage { name: self.name.to_string(), action, error }
    }
}
