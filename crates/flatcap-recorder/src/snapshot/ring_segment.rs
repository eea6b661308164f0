//! Segment files of the ring that are held open. These segments can be read even after the ring has
//! removed them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use flatcap_format::segment::{SealState, SegmentName, SegmentReader};
use flatcap_format::storage::{ReadAt, Storage, StorageFile};

/// Maximum number of attempts to list the ring while segments are renamed. The attempts suffice
/// because a segment is sealed only every few seconds.
const LISTINGS_MAX: usize = 4;
/// A segment of the ring whose file is held open, so that it can be read even after the ring has
/// removed the segment.
#[derive(Debug, Clone)]
pub(super) struct RingSegment {
    pub(super) name: SegmentName,
    pub(super) file: Arc<dyn StorageFile>,
    /// The segment's creation time, in monotonic nanoseconds.
    pub(super) created_ns: u64,
}

/// Opens a segment for reading.
pub(super) fn open(segment: &RingSegment) -> io::Result<SegmentReader> {
    let file = Arc::clone(&segment.file) as Arc<dyn ReadAt>;
    SegmentReader::over(Path::new(&segment.name.to_string()), file).map_err(io::Error::other)
}

/// Returns the begin time of the last sample of a sealed segment, or `None` if the segment has no
/// samples.
pub(super) fn last_sample_ns(reader: &SegmentReader) -> Option<u64> {
    let totals = &reader.footer()?.totals;
    totals.iter().filter_map(|totals| totals.span.map(|span| span.last_mono_ns)).max()
}

/// Merges two lists of segments, and sorts the result by segment number. If both lists contain the
/// same number, the segment of the second list is used, because this segment may have been sealed
/// after the first list was made.
pub(super) fn merged(held: Vec<RingSegment>, now: Vec<RingSegment>) -> Vec<RingSegment> {
    let all = held.into_iter().chain(now).map(|segment| (segment.name.number, segment));
    all.collect::<BTreeMap<u64, RingSegment>>().into_values().collect()
}

/// Returns whether the segment numbers are consecutive. A segment may be missing, because the ring
/// may have removed it before the end of a long window.
pub(super) fn follow_each_other(segments: &[RingSegment]) -> bool {
    let mut pairs = segments.iter().zip(segments.iter().skip(1));
    pairs.all(|(before, next)| next.name.number == before.name.number + 1)
}

/// Opens all segments of a run in the ring, in the order of their numbers.
pub(super) fn ring_segments(ring: &dyn Storage, run_id: u64) -> io::Result<Vec<RingSegment>> {
    let mut listings = 1;
    loop {
        let entries = ring.entries()?;
        let names = entries.iter().filter_map(|entry| SegmentName::parse(&entry.name));
        let mut names: Vec<SegmentName> = names.filter(|name| name.run_id == run_id).collect();
        names.sort_unstable_by_key(|name| (name.number, name.state == SealState::Active));
        names.dedup_by_key(|name| name.number);
        let mut segments = Vec::new();
        let mut has_missing = false;
        for name in names {
            let file = match ring.open(&name.to_string()) {
                Ok(file) => file,
                // The segment was sealed or removed after the listing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    has_missing = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let segment = RingSegment { name, file, created_ns: 0 };
            // A segment that is being created has no header yet.
            let Ok(reader) = open(&segment) else { continue };
            segments.push(RingSegment { created_ns: reader.header().clocks.mono_ns, ..segment });
        }
        if !has_missing || listings == LISTINGS_MAX {
            return Ok(segments);
        }
        listings += 1;
    }
}
