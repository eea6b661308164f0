//! Items that a reader of recordings returns.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::filter::WantedTimes;
use crate::segment::{
    Damage, FrameKind, Gap, Marker, SampleView, SegmentError, SegmentHeader, SegmentReader, SourceInfo,
};

/// The next part of a recording. The bytes of a frame are the same as in the file.
#[derive(Debug)]
pub enum ReplayItem<'a> {
    /// The header that describes the samples after it, and the frame of the header.
    Header(&'a SegmentHeader, &'a [u8]),
    /// A source that the header of the same run does not contain, and the frame of the source's
    /// descriptor.
    Source(&'a SourceInfo, &'a [u8]),
    /// A sample.
    Sample(ReplaySample<'a>),
    /// A gap, which counts lost samples, and the gap's frame.
    Gap(Gap, &'a [u8]),
    /// A note at a point in time, and the note's frame.
    Marker(Marker, &'a [u8]),
    /// The kind and the frame of a clock sync or an attachment.
    Other(FrameKind, &'a [u8]),
    /// A problem with a file, for the user.
    Notice(Notice),
}

/// A sample with its frame.
#[derive(Debug)]
pub struct ReplaySample<'a> {
    /// The decoded envelope of the frame.
    pub telemetry: SampleView<'a>,
    /// The whole frame as in the file.
    pub frame: &'a [u8],
}

/// A problem with a file. Reading continues after the problem.
#[derive(Debug, thiserror::Error)]
pub enum Notice {
    /// Damaged bytes.
    #[error(
        "{}: damage at offset {}, {} bytes: {}; reading continues after it",
        .0.display(), .1.offset, .1.length, .1.what
    )]
    Damaged(PathBuf, Damage),
    /// An unsealed segment ends within a frame.
    #[error(
        "{}: ends in the middle of a write, at offset {} ({} bytes)",
        .0.display(), .1.offset, .1.length
    )]
    Torn(PathBuf, Damage),
    /// A file that cannot be read at all.
    #[error(transparent)]
    Unreadable(SegmentError),
    /// The segment belongs to a killed run, and the reader stopped waiting for the recovery of the
    /// run. If a later recovery adds frames to the segment, the reader does not read these frames.
    #[error(
        "{}: its run was killed and was not recovered within 5 s; continuing with the next segment, \
         without the samples that recovery adds",
        .0.display()
    )]
    Unrecovered(PathBuf),
    /// The recorder undid an incomplete write. The reader has already returned data at or after
    /// this offset. The file no longer contains this data.
    #[error(
        "{}: the recorder undid an incomplete write: samples already output from offset {} on are not \
         in the file",
        .0.display(), .1
    )]
    Truncated(PathBuf, u64),
}

impl Notice {
    /// Returns the path of the file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Damaged(path, _)
            | Self::Torn(path, _)
            | Self::Unrecovered(path)
            | Self::Truncated(path, _) => Some(path),
            Self::Unreadable(_) => None,
        }
    }
}

/// A part of a recording, for a caller that accepts sealed segments as a whole.
#[derive(Debug)]
pub enum ReplayPart<'a> {
    /// An item of a segment whose frames are read, or a header.
    Item(ReplayItem<'a>),
    /// A sealed segment whose frames were not read.
    Segment(Box<WholeSegment>),
}

/// A sealed segment of one run. The header of the segment was already returned.
#[derive(Debug)]
pub struct WholeSegment {
    /// A reader that is positioned at the first selected frame.
    pub reader: SegmentReader,
    /// The selected times.
    pub times: WantedTimes,
    /// The selected range of monotonic time. Nothing outside of the range is selected.
    pub mono_ns: Option<Range<u64>>,
    /// The file offset from which on all samples have times at or after the end of `mono_ns`.
    pub end_offset: u64,
    /// Maximum amount by which a frame is older than a preceding frame of another source, in
    /// nanoseconds.
    pub window_ns: u64,
}
