//! Samples that the memory of a crashed run adds to its segments.

use std::collections::{BTreeMap, BTreeSet};

use crate::segment::format::control_frames::Gap;
use crate::segment::format::footer::Footer;
use crate::segment::format::frame_kind::{FrameKind, FrameLocation};
use crate::segment::format::header::{SegmentHeader, SourceInfo};
use crate::segment::read::reader::SegmentReader;

/// The content of a crashed run's memory.
#[derive(Debug, Default, Clone)]
pub struct Leftovers {
    /// Whole telemetry frames in the format of the run's segments, in the order of time.
    pub frames: Vec<Vec<u8>>,
    /// The next sequence number of each source, after all samples that were begun.
    pub begun: BTreeMap<u16, u64>,
    /// Sources of the run that the segment may not describe, in the order of their ids.
    pub sources: Vec<SourceInfo>,
    /// Sources with refused samples. Numbers that are missing at the end of such a source count as
    /// lost, with the cause damage.
    pub refused: BTreeSet<u16>,
    /// Whether another segment of the run follows. Then `begun` has the first numbers of that
    /// segment, which accounts for all later samples.
    pub has_successor: bool,
}

impl Leftovers {
    /// Creates the leftovers of a segment that is followed by a segment of its run with this
    /// header.
    pub(in crate::segment) fn from_successor(next: &SegmentHeader) -> Self {
        let begun = next.sources.iter().map(|source| (source.id, source.next_seq)).collect();
        Self { begun, has_successor: true, ..Self::default() }
    }

    /// Returns whether a source has begun more samples than this footer counts, or is not described
    /// in it, so that a recovery can add to the sealed segment.
    pub(in crate::segment) fn exceeds(&self, footer: &Footer) -> bool {
        if self.sources.iter().any(|source| footer.header.source(source.id).is_none()) {
            return true;
        }
        let mut known = self.begun.iter().filter(|(source, _)| footer.header.source(**source).is_some());
        known.any(|(source, begun)| *begun > footer.next_seq(*source))
    }

    /// Returns whether a footer counts all samples begun, including samples of sources unknown to
    /// it.
    pub(in crate::segment) fn is_covered_by(&self, footer: &Footer) -> bool {
        self.begun.iter().all(|(source, begun)| *begun <= footer.next_seq(*source))
    }

    /// Returns whether the next segment accounts for this frame of a source: for the sample, or for
    /// a number of the gap. Then the write of the frame was reported as failed, although the frame
    /// reached the file.
    pub(in crate::segment) fn is_counted_later(&self, reader: &SegmentReader, at: FrameLocation) -> bool {
        let last = match at.kind {
            FrameKind::Telemetry => reader.sample(at).map(|sample| (sample.source, sample.seq)),
            FrameKind::Gap => Gap::decode(reader.payload(at))
                .map(|gap| (gap.source, gap.first.saturating_add(gap.count).saturating_sub(1))),
            _ => None,
        };
        let begun = |source| self.begun.get(&source).filter(|_| self.has_successor);
        last.is_some_and(|(source, seq)| begun(source).is_some_and(|begun| seq >= *begun))
    }
}
