//! The result of a recovery, and its errors.

use std::io;

use crate::segment::format::damage::Damage;
use crate::segment::format::error::SegmentError;
use crate::segment::format::segment_name::SegmentName;

/// The result of recovering one segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// The name of the sealed segment, or `None` if no part of the segment could be read.
    pub sealed: Option<String>,
    /// Number of samples in the segment.
    pub frames: u64,
    /// Number of samples in the recovered segment that came from the memory of the run.
    pub from_memory: u64,
    /// Number of samples that were begun but are not in the segment.
    pub lost: u64,
    /// Damaged ranges of the segment.
    pub damage: Vec<Damage>,
    /// Names of the files that the recovery has set aside.
    pub set_aside: Vec<String>,
}

/// The reason why a segment cannot be recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The file cannot be read and must not be changed, because a later version wrote it, or
    /// because the storage fails.
    #[error(transparent)]
    Unreadable(#[from] SegmentError),
    /// The storage reported an error in a step. The recovery may be tried again.
    #[error("{name}: cannot {action}: {error}")]
    Storage {
        /// The segment.
        name: String,
        /// The step of the recovery that failed.
        action: &'static str,
        /// The error that the storage reported.
        #[source]
        error: io::Error,
    },
}

impl RecoverError {
    /// Creates the error for the case that the memory of a run cannot be read. `name` is the
    /// segment of the run.
    pub(in crate::segment) fn memory(name: SegmentName, error: io::Error) -> Self {
        RecoveryStep { name }.fails("read the memory of its run")(error)
    }
}

/// Creates errors that contain the name of the segment.
#[derive(Clone, Copy)]
pub(in crate::segment) struct RecoveryStep {
    pub(in crate::segment) name: SegmentName,
}

impl RecoveryStep {
    pub(in crate::segment) fn fails(self, action: &'static str) -> impl FnOnce(io::Error) -> RecoverError {
        move |error| RecoverError::Storage { name: self.name.to_string(), action, error }
    }
}
