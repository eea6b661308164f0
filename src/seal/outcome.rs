//! What has become of a segment, and why?

use std::fmt;
use std::io;

use crate::block::RAW_BYTES_MAX;
use crate::segment::SegmentName;

/// What has become of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is packed.
    Packed {
        /// Bytes as it was recorded.
        raw_bytes: u64,
        /// Bytes of its file now.
        stored_bytes: u64,
    },
    /// It is as it was.
    Left(Left),
    /// The same, since packing was told to stop.
    Stopped,
}

/// Why a segment is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// It is packed already.
    Packed {
        /// Bytes as it was recorded.
        raw_bytes: u64,
        /// Bytes of its file.
        stored_bytes: u64,
    },
    /// It would not become smaller than nine tenths of itself.
    DoesNotPay {
        /// Bytes that were packed by way of trial.
        raw_bytes: u64,
        /// What they became.
        stored_bytes: u64,
    },
    /// It has no footer: it is being written, or was cut off.
    Unsealed,
    /// Bytes of it are not what was written.
    Damaged {
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// It cannot be read as a segment, as this says.
    Unreadable(String),
    /// A frame of it fits into no block.
    FrameTooLong {
        /// Where it stands.
        offset: u64,
        /// Its length, in bytes.
        bytes: u64,
    },
    /// It was removed meanwhile.
    Gone,
    /// The file system has too little room for the packed file beside it.
    NoRoom {
        /// Bytes that are free.
        available: u64,
        /// Bytes that shall stay free.
        keep_free: u64,
    },
    /// The medium has no room at all for the packed file beside it.
    MediumFull,
    /// The file system cannot exchange two files' names.
    NoExchange,
}

impl Left {
    /// Whether something is wrong with the segment itself.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Unreadable(_) | Self::Unsealed)
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packed { .. } => f.write_str("it is packed already"),
            Self::DoesNotPay { raw_bytes, stored_bytes } => write!(
                f,
                "packing does not pay: {raw_bytes} bytes of it became {stored_bytes}; another codec or layout may do more"
            ),
            Self::Unsealed => {
                f.write_str("it has no footer: it is being written, or flatcap recover has to complete it")
            }
            Self::Damaged { offset, what } => write!(
                f,
                "it is damaged at offset {offset}: {what}; flatcap recover makes it whole without what is damaged"
            ),
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            Self::FrameTooLong { offset, bytes } => write!(
                f,
                "a frame of {bytes} bytes at offset {offset} fits into no block, which holds {RAW_BYTES_MAX}"
            ),
            Self::Gone => f.write_str("it was removed meanwhile"),
            Self::NoRoom { available, keep_free } => write!(
                f,
                "there is no room for its packed file: {available} bytes are free and {keep_free} shall stay so (keep_free)"
            ),
            Self::MediumFull => f.write_str("there is no room for its packed file: the medium, or a quota on it, is full"),
            Self::NoExchange => f.write_str(
                "the file system cannot exchange two files' names; flatcap seal can do without while no recorder is at work",
            ),
        }
    }
}

/// Why packing a segment has failed. The segment is as it was, or packed and whole.
#[derive(Debug, thiserror::Error)]
#[error("cannot pack {name}: {step}: {error}")]
pub struct SealError {
    /// The segment.
    pub name: SegmentName,
    /// What was tried.
    pub step: &'static str,
    /// What the storage or the codec said.
    #[source]
    pub error: io::Error,
}
