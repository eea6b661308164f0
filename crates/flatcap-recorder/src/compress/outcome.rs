//! The results of compressing a segment, and the reasons for leaving a segment unchanged.

use std::io;

use flatcap_format::block::RAW_BYTES_MAX;
use flatcap_format::segment::SegmentName;

/// The result of compressing a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompressOutcome {
    /// The segment is compressed.
    Compressed {
        /// Length of the segment as it was recorded, in bytes.
        raw_bytes: u64,
        /// Length of the compressed file, in bytes.
        stored_bytes: u64,
    },
    /// The segment was compressed and is raw again.
    Restored {
        /// Length of the segment as it was recorded, in bytes. The current file has the same
        /// length.
        raw_bytes: u64,
        /// Length of the previous, compressed file, in bytes.
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
        /// Length of the segment as it was recorded, in bytes.
        raw_bytes: u64,
        /// Length of the segment's file, in bytes.
        stored_bytes: u64,
    },
    /// The segment is not compressed.
    #[error("it is not compressed")]
    NotCompressed,
    /// Compression would save less than a tenth of the raw bytes.
    #[error(
        "compression saves too little: {raw_bytes} bytes became {stored_bytes}; try another codec or layout"
    )]
    SavesTooLittle {
        /// Number of raw bytes that were compressed in the attempt.
        raw_bytes: u64,
        /// Length of the compressed blocks, in bytes.
        stored_bytes: u64,
    },
    /// The segment has no footer, because it is still being written or was truncated.
    #[error(
        "it has no footer: it is being written, or was cut off; in that case, run flatcap recover on this file"
    )]
    Unsealed,
    /// Some bytes of the segment differ from the bytes that were written.
    #[error(
        "it is damaged at offset {offset}: {what}; flatcap recover on this file rewrites it without the damaged range"
    )]
    Damaged {
        /// Offset of the damage.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// The file cannot be read as a segment. The string states the reason.
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
    /// The segment's name no longer leads to the file that was read, or the file has become longer.
    #[error("it was changed meanwhile by another program")]
    Changed,
    /// The file system has too little free space for the compressed file.
    #[error("too little free space for its new file: {available} bytes are free, and min_free is {min_free}")]
    TooLittleSpace {
        /// Free space, in bytes.
        available: u64,
        /// Space that must stay free, in bytes.
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
    /// Returns whether the segment is damaged, unreadable or unsealed.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Unreadable(_) | Self::Unsealed)
    }
}

/// The error of a failed rewrite of a segment. The segment is unchanged, or it is complete in its
/// new form.
#[derive(Debug, thiserror::Error)]
#[error("cannot rewrite {name}: {step}: {error}")]
pub struct CompressError {
    /// The name of the segment.
    pub name: SegmentName,
    /// The step that failed.
    pub step: &'static str,
    /// The error of the storage or the codec.
    #[source]
    pub error: io::Error,
}
