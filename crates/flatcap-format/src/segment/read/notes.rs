//! Reads the markers and the gaps of a segment. Skips most samples of the segment.

use std::collections::BTreeSet;

use super::reader::{Advance, SegmentReader};
use crate::segment::format::control_frames::{Gap, Marker};
use crate::segment::format::error::SegmentError;
use crate::segment::format::frame_kind::FrameKind;
use crate::segment::format::index::IndexEntry;

/// Returns the markers of a segment in the order of the file. Skips damaged ranges, and intervals
/// of a sealed segment that contain only samples.
///
/// # Errors
/// `Io`.
pub fn markers(reader: &mut SegmentReader) -> Result<Vec<Marker>, SegmentError> {
    frames_of(reader, FrameKind::Marker, Marker::decode)
}

/// Returns the gaps of a segment in the order of the file. Skips the same ranges as [`markers`].
///
/// # Errors
/// `Io`.
pub fn gaps(reader: &mut SegmentReader) -> Result<Vec<Gap>, SegmentError> {
    frames_of(reader, FrameKind::Gap, Gap::decode)
}

/// Returns the decoded contents of all frames of one kind.
fn frames_of<T>(
    reader: &mut SegmentReader,
    kind: FrameKind,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>, SegmentError> {
    // This call selects no source, because no source has an empty name. Thus the fields of samples
    // in a compressed segment are not decompressed.
    reader.select_sources(&BTreeSet::from([String::new()]));
    let intervals: Vec<(u64, u64, u64)> = match reader.footer() {
        // The first interval begins with the header and the attachments.
        Some(footer) => {
            let intervals = footer.index.iter().enumerate();
            let intervals = intervals.map(|(at, entry)| (at, entry, other_frames(entry)));
            let intervals = intervals.filter(|(at, _, others)| *at == 0 || *others > 1);
            intervals.map(|(_, entry, others)| (entry.offset, entry.end(), others)).collect()
        }
        None => vec![(0, u64::MAX, u64::MAX)],
    };
    let mut found = Vec::new();
    for (offset, end, mut others) in intervals {
        reader.seek(offset);
        // After the last frame that is not a sample, the rest of the interval contains only
        // samples. The blocks that contain only these samples need not be decompressed.
        while others > 0
            && reader.offset() < end
            && let Some(advance) = reader.advance()?
        {
            let Advance::Frame(at) = advance else { continue };
            others -= u64::from(at.kind != FrameKind::Telemetry);
            if at.kind == kind {
                found.extend(decode(reader.payload(at)));
            }
        }
    }
    Ok(found)
}

/// Returns the number of frames of an interval that are not samples. The number includes the Index
/// frame or the header with which the interval begins.
fn other_frames(entry: &IndexEntry) -> u64 {
    entry.frames.saturating_sub(entry.sources.iter().map(|source| source.count).sum())
}
