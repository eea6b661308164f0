//! What a recovery has made of a segment, or why it could not.

use std::io;

use super::error::SegmentError;
use super::name::SegmentName;
use super::reader::Damage;

/// What has become of one segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// The name under which it is sealed; none if nothing in it could be read.
    pub sealed: Option<String>,
    /// Samples in it.
    pub frames: u64,
    /// Those of them that came from the memory of the run.
    pub rescued: u64,
    /// Readings that were begun and are not in it.
    pub lost: u64,
    /// What was wrong with it.
    pub damage: Vec<Damage>,
    /// Files that were set aside.
    pub set_aside: Vec<String>,
}

/// Why a segment cannot be recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// It cannot be read, and must not be touched: written by a later version, or the storage fails.
    #[error(transparent)]
    Unreadable(#[from] SegmentError),
    /// The storage refuses a step. It may be tried again.
    #[error("{name}: cannot {action}: {error}")]
    Storage {
        /// Which segment.
        name: String,
        /// What was tried.
        action: &'static str,
        /// What the storage said.
        #[source]
        error: io::Error,
    },
}

impl RecoverError {
    /// The memory of the segment's run cannot be read.
    pub(super) fn memory(name: SegmentName, error: io::Error) -> Self {
        Step { name }.fails("read the memory of its run")(error)
    }
}

/// Names the segment in errors.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) name: SegmentName,
}

impl Step {
    pub(super) fn fails(self, action: &'static str) -> impl FnOnce(io::Error) -> RecoverError {
        move |error| RecoverError::Storage { name: self.name.to_string(), action, error }
    }
}
