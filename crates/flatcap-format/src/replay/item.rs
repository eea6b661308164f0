//! Items that a reader of recordings returns.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::filter::WantedTimes;
use crate::segment::{
    Damage, FrameKind, Gap, Marker, SampleView, SegmentError, SegmentHeader, SegmentReader, SourceInfo,
};

/// The next part of a recording. Frames have the bytes of the file.
#[derive(Debug)]
pub enum ReplayItem<'a> {
    /// The header that describes the samples after it, and its frame.
    Header(&'a SegmentHeader, &'a [u8]),
    /// A source of the same run that was not in the header, and its descriptor's frame.
    Source(&'a SourceInfo, &'a [u8]),
    /// A sample.
    Sample(ReplaySample<'a>),
    /// Known losses, with their frame.
    Gap(Gap, &'a [u8]),
    /// A note at a point in time, and its frame.
    Marker(Marker, &'a [u8]),
    /// A clock sync or an attachment: kind and frame.
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
    /// A segment of a killed run that was not recovered in time. A later recovery adds frames to it
    /// that are not read.
    #[error(
        "{}: its run was killed and was not recovered within 5 s; continuing with the next segment, \
         without the samples that recovery adds",
        .0.display()
    )]
    Unrecovered(PathBuf),
    /// The recorder took back an incomplete write: data returned from this offset on is no longer
    /// in the file.
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

/// A part of a recording, for a reader that takes sealed segments as a whole.
#[derive(Debug)]
pub enum ReplayPart<'a> {
    /// An item of an open segment, or a header.
    Item(ReplayItem<'a>),
    /// A sealed segment, unread.
    Segment(Box<WholeSegment>),
}

/// A sealed segment of one run. The header of the segment was returned.
#[derive(Debug)]
pub struct WholeSegment {
    /// A reader at the first wanted frame.
    pub reader: SegmentReader,
    /// The times that are wanted.
    pub times: WantedTimes,
    /// The range of monotonic time outside of which nothing is wanted.
    pub mono_ns: Option<Range<u64>>,
    /// From this offset on, every sample is at or after the end of that range.
    pub end_offset: u64,
    /// Frames of different sources step back in time by at most this, in nanoseconds.
    pub window_ns: u64,
}
