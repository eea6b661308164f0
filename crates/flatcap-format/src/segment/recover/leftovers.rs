//! Samples in the memory of a crashed run, which a recovery adds to the segments of the run.

use std::collections::{BTreeMap, BTreeSet};

use crate::segment::format::control_frames::Gap;
use crate::segment::format::footer::Footer;
use crate::segment::format::frame_kind::{FrameKind, FrameLocation};
use crate::segment::format::header::{SegmentHeader, SourceInfo};
use crate::segment::read::reader::SegmentReader;

/// The content of the memory of a crashed run.
#[derive(Debug, Default, Clone)]
pub struct Leftovers {
    /// Complete telemetry frames in the format of the run's segments, in the order of time.
    pub frames: Vec<Vec<u8>>,
    /// The next sequence number of each source of the run. It follows the sequence number of the
    /// source's last sample that was begun.
    pub begun: BTreeMap<u16, u64>,
    /// Sources of the run that the segment may not describe, in the order of their ids.
    pub sources: Vec<SourceInfo>,
    /// Sources for which the recovery has refused a sample from the memory of the run. Sequence
    /// numbers that are missing at the end of such a source are counted as lost, with the cause
    /// damage.
    pub refused: BTreeSet<u16>,
    /// Whether the run has another segment after this segment. If so, `begun` contains the first
    /// sequence numbers of the next segment, and the next segment accounts for all later samples.
    pub has_successor: bool,
}

impl Leftovers {
    /// Creates the leftovers of a segment, given the header of the next segment of the same run.
    pub(in crate::segment) fn from_successor(next: &SegmentHeader) -> Self {
        let begun = next.sources.iter().map(|source| (source.id, source.next_seq)).collect();
        Self { begun, has_successor: true, ..Self::default() }
    }

    /// Returns whether a source has begun more samples than this footer counts, or is not described
    /// in this footer. If so, the leftovers contain samples or descriptors that the sealed segment
    /// lacks.
    pub(in crate::segment) fn exceeds(&self, footer: &Footer) -> bool {
        if self.sources.iter().any(|source| footer.header.source(source.id).is_none()) {
            return true;
        }
        let mut known = self.begun.iter().filter(|(source, _)| footer.header.source(**source).is_some());
        known.any(|(source, begun)| *begun > footer.next_seq(*source))
    }

    /// Returns whether a footer counts all samples that were begun. Returns false if the footer
    /// does not describe a source that has begun samples.
    pub(in crate::segment) fn is_covered_by(&self, footer: &Footer) -> bool {
        self.begun.iter().all(|(source, begun)| *begun <= footer.next_seq(*source))
    }

    /// Returns whether the next segment accounts for the sample in this frame, or for the last
    /// sequence number of the gap in this frame. If so, the recorder had reported the write of the
    /// frame as failed, although the frame reached the file.
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
