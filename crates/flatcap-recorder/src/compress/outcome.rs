//! Results of compressing a segment, and the reasons for leaving one unchanged.

use std::fmt;
use std::io;

use flatcap_format::block::RAW_BYTES_MAX;
use flatcap_format::segment::SegmentName;

/// The result of compressing a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompressOutcome {
    /// The segment is compressed.
    Compressed {
        /// Bytes of the segment as it was recorded.
        raw_bytes: u64,
        /// Bytes of the segment's file now.
        stored_bytes: u64,
    },
    /// The segment is raw again.
    Restored {
        /// Bytes of the segment as it was recorded, and of its file now.
        raw_bytes: u64,
        /// Bytes of the compressed file.
        stored_bytes: u64,
    },
    /// The segment is unchanged.
    Skipped(CompressSkipReason),
    /// Compression was stopped. The segment is unchanged.
    Stopped,
}

/// The reason why a segment is unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompressSkipReason {
    /// The segment is compressed already.
    AlreadyCompressed {
        /// Bytes of the segment as it was recorded.
        raw_bytes: u64,
        /// Bytes of the segment's file.
        stored_bytes: u64,
    },
    /// The segment is not compressed.
    NotCompressed,
    /// Less than a tenth would be saved.
    SavesTooLittle {
        /// Raw bytes compressed in the attempt.
        raw_bytes: u64,
        /// The length of the blocks after compression.
        stored_bytes: u64,
    },
    /// The segment has no footer: it is still being written, or was truncated.
    Unsealed,
    /// Some bytes differ from the bytes that were written.
    Damaged {
        /// Offset of the damage.
        offset: u64,
        /// The fault of the content.
        what: &'static str,
    },
    /// The segment cannot be read as a segment, for this reason.
    Unreadable(String),
    /// The segment has a frame that is too long for a block.
    FrameTooLong {
        /// Offset of the frame.
        offset: u64,
        /// Length of the frame, in bytes.
        bytes: u64,
    },
    /// The segment was removed during the compression.
    Removed,
    /// The segment's name leads to another file than the one that was read, or the file is longer
    /// now.
    Changed,
    /// The file system has too little free space for the compressed file.
    TooLittleSpace {
        /// Free bytes.
        available: u64,
        /// Bytes that must stay free.
        min_free: u64,
    },
    /// The disk has no space left for the compressed file.
    DiskFull,
    /// The file system cannot exchange two names.
    NoExchange,
}

impl CompressSkipReason {
    /// Returns whether the segment itself is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Unreadable(_) | Self::Unsealed)
    }
}

impl fmt::Display for CompressSkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyCompressed { .. } => f.write_str("it is already compressed"),
            Self::NotCompressed => f.write_str("it is not compressed"),
            Self::SavesTooLittle { raw_bytes, stored_bytes } => write!(
                f,
                "compression saves too little: {raw_bytes} bytes became {stored_bytes}; try another codec or layout"
            ),
            Self::Unsealed => {
                f.write_str("it has no footer: it is being written, or was cut off; in that case, run flatcap recover on this file")
            }
            Self::Damaged { offset, what } => write!(
                f,
                "it is damaged at offset {offset}: {what}; flatcap recover on this file rewrites it without the damaged range"
            ),
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            Self::FrameTooLong { offset, bytes } => write!(
                f,
                "a frame of {bytes} bytes at offset {offset} is too long for a block: at most {RAW_BYTES_MAX} bytes"
            ),
            Self::Removed => f.write_str("it was removed meanwhile"),
            Self::Changed => f.write_str("it was changed meanwhile by another program"),
            Self::TooLittleSpace { available, min_free } => write!(
                f,
                "too little free space for its new file: {available} bytes are free, and min_free is {min_free}"
            ),
            Self::DiskFull => f.write_str("no space for its new file: the disk or a quota is full"),
            Self::NoExchange => f.write_str(
                "the file system cannot exchange two file names; run flatcap compress while no recorder is running",
            ),
        }
    }
}

/// Rewriting a segment has failed. The segment is unchanged, or complete in its new form.
#[derive(Debug, thiserror::Error)]
#[error("cannot rewrite {name}: {step}: {error}")]
pub struct CompressError {
    /// The segment.
    pub name: SegmentName,
    /// The step that failed.
    pub step: &'static str,
    /// The error of the storage or the codec.
    #[source]
    pub error: io::Error,
}
