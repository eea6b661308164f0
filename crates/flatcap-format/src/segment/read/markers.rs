//! Reads the markers of a segment, without most of its samples.

use std::collections::BTreeSet;

use super::reader::{Advance, SegmentReader};
use crate::segment::format::control_frames::Marker;
use crate::segment::format::error::SegmentError;
use crate::segment::format::frame_kind::FrameKind;
use crate::segment::format::index::IndexEntry;

/// Returns the markers of a segment in their order. Skips the intervals of a sealed segment that
/// hold nothing but samples; damaged ranges, too.
///
/// # Errors
/// `Io`.
pub fn markers(reader: &mut SegmentReader) -> Result<Vec<Marker>, SegmentError> {
    // No source has this name, so that no payload of a compressed segment is decompressed.
    reader.project_fields(&BTreeSet::from([String::new()]), &[]);
    let intervals: Vec<(u64, u64)> = match reader.footer() {
        // The first interval begins with the header and attachments.
        Some(footer) => {
            let intervals = footer.index.iter().enumerate();
            let intervals = intervals.filter(|(at, entry)| *at == 0 || has_other_frames(entry));
            intervals.map(|(_, entry)| (entry.offset, entry.end())).collect()
        }
        None => vec![(0, u64::MAX)],
    };
    let mut markers = Vec::new();
    for (offset, end) in intervals {
        reader.seek(offset);
        while reader.offset() < end
            && let Some(advance) = reader.advance()?
        {
            if let Advance::Frame(at) = advance
                && at.kind == FrameKind::Marker
            {
                markers.extend(Marker::decode(reader.payload(at)));
            }
        }
    }
    Ok(markers)
}

/// Returns whether an interval has frames besides samples and the Index frame that it begins with.
fn has_other_frames(entry: &IndexEntry) -> bool {
    entry.frames > entry.sources.iter().map(|source| source.count).sum::<u64>() + 1
}
