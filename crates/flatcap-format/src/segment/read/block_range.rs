//! Finds the blocks of a compressed segment that may contain samples in a time range.

use std::ops::Range;

use super::reader::SegmentReader;
use crate::segment::format::footer::{BlockEntry, Footer};

impl SegmentReader {
    /// Returns the blocks that may have samples in a range of monotonic time, beginning with the
    /// block at the reader's offset. Also returns the number of all other blocks. A missing block
    /// has `bytes` 0.
    pub fn blocks_in(&self, mono_ns: Option<&Range<u64>>) -> (Vec<BlockEntry>, u64) {
        let Some(compressed) = self.compressed() else { return (Vec::new(), 0) };
        let all = compressed.blocks();
        let raw = self.footer().zip(mono_ns).map_or(0..u64::MAX, |(footer, range)| raw_range(footer, range));
        let is_wanted =
            |entry: &BlockEntry| entry.raw_end() > self.offset().max(raw.start) && entry.raw_offset < raw.end;
        let count = all.len();
        let wanted: Vec<BlockEntry> = all.into_iter().filter(is_wanted).collect();
        let skipped = count - wanted.len();
        (wanted, skipped as u64)
    }
}

/// Returns the range of raw offsets that contains all samples of a time range, according to the
/// index.
fn raw_range(footer: &Footer, mono_ns: &Range<u64>) -> Range<u64> {
    if footer.index.is_empty() {
        return 0..u64::MAX;
    }
    let overlaps = |bounds: crate::segment::format::index::Bounds| {
        bounds.first_mono_ns < mono_ns.end && mono_ns.start <= bounds.last_mono_ns
    };
    let entries = footer.index.iter().filter(|entry| entry.bounds.is_some_and(overlaps));
    let range = entries.fold(None, |range: Option<Range<u64>>, entry| match range {
        Some(range) => Some(range.start.min(entry.offset)..range.end.max(entry.end())),
        None => Some(entry.offset..entry.end()),
    });
    range.unwrap_or(0..0)
}
