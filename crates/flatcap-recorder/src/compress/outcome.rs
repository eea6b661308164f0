//! Results of compressing a segment, and the reasons for leaving one unchanged.

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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompressSkipReason {
    /// The segment is compressed already.
    #[error("it is already compressed")]
    AlreadyCompressed {
        /// Bytes of the segment as it was recorded.
        raw_bytes: u64,
        /// Bytes of the segment's file.
        stored_bytes: u64,
    },
    /// The segment is not compressed.
    #[error("it is not compressed")]
    NotCompressed,
    /// Less than a tenth would be saved.
    #[error(
        "compression saves too little: {raw_bytes} bytes became {stored_bytes}; try another codec or layout"
    )]
    SavesTooLittle {
        /// Raw bytes compressed in the attempt.
        raw_bytes: u64,
        /// The length of the blocks after compression.
        stored_bytes: u64,
    },
    /// The segment has no footer: it is still being written, or was truncated.
    #[error(
        "it has no footer: it is being written, or was cut off; in that case, run flatcap recover on this file"
    )]
    Unsealed,
    /// Some bytes differ from the bytes that were written.
    #[error(
        "it is damaged at offset {offset}: {what}; flatcap recover on this file rewrites it without the damaged range"
    )]
    Damaged {
        /// Offset of the damage.
        offset: u64,
        /// The fault of the content.
        what: &'static str,
    },
    /// The segment cannot be read as a segment, for this reason.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The segment has a frame that is too long for a block.
    #[error(
        "a frame of {bytes} bytes at offset {offset} is too long for a block: at most {RAW_BYTES_MAX} bytes"
    )]
    FrameTooLong {
        /// Offset of the frame.
        offset: u64,
        /// Length of the frame, in bytes.
        bytes: u64,
    },
    /// The segment was removed during the compression.
    #[error("it was removed meanwhile")]
    Removed,
    /// The segment's name leads to another file than the one that was read, or the file is longer
    /// now.
    #[error("it was changed meanwhile by another program")]
    Changed,
    /// The file system has too little free space for the compressed file.
    #[error("too little free space for its new file: {available} bytes are free, and min_free is {min_free}")]
    TooLittleSpace {
        /// Free bytes.
        available: u64,
        /// Bytes that must stay free.
        min_free: u64,
    },
    /// The disk has no space left for the compressed file.
    #[error("no space for its new file: the disk or a quota is full")]
    DiskFull,
    /// The file system cannot exchange two names.
    #[error(
        "the file system cannot exchange two file names; run flatcap compress while no recorder is running"
    )]
    NoExchange,
}

impl CompressSkipReason {
    /// Returns whether the segment itself is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Unreadable(_) | Self::Unsealed)
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
