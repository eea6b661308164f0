//! What a reader of recordings gives.

use std::path::{Path, PathBuf};

use crate::segment::{Damage, FrameKind, Gap, Header, Marker, SegmentError, SourceInfo, Telemetry};

/// What comes next in a recording.
#[derive(Debug)]
pub enum Item<'a> {
    /// The samples that follow are described by this header; its frame as it stands in the file.
    Header(&'a Header, &'a [u8]),
    /// A source of the same run that was not in the header; its descriptor's frame.
    Source(&'a SourceInfo, &'a [u8]),
    /// A sample.
    Sample(Sample<'a>),
    /// Known losses; the frame as it stands in the file.
    Gap(Gap, &'a [u8]),
    /// A note at a point in time; the frame as it stands in the file.
    Marker(Marker, &'a [u8]),
    /// A pairing of the clocks, an attachment; the frame as it stands in the file.
    Other(FrameKind, &'a [u8]),
    /// Something about the files, for the user to know.
    Notice(Notice),
}

/// A sample with the frame it stands in.
#[derive(Debug)]
pub struct Sample<'a> {
    /// What the frame says.
    pub telemetry: Telemetry<'a>,
    /// The whole frame as it stands in the file.
    pub frame: &'a [u8],
}

/// What is wrong with a file, while reading goes on.
#[derive(Debug)]
pub enum Notice {
    /// Bytes that are not what was written.
    Damaged(PathBuf, Damage),
    /// An unsealed segment ends within a frame.
    Torn(PathBuf, Damage),
    /// A file that cannot be read at all.
    Unreadable(SegmentError),
    /// The segment of a killed run that was not completed while it was waited for: what a recovery adds to it is not given.
    PassedOver(PathBuf),
    /// What was given of a segment from this offset on is not in it any more: the recorder took a write back that it could not complete.
    TakenBack(PathBuf, u64),
}

impl Notice {
    /// The file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Damaged(path, _)
            | Self::Torn(path, _)
            | Self::PassedOver(path)
            | Self::TakenBack(path, _) => Some(path),
            Self::Unreadable(_) => None,
        }
    }
}
