//! A sealed segment that is being read, either block by block or frame by frame.

use flatcap_format::replay::WholeSegment;
use flatcap_format::segment::SegmentError;

use super::block_scan::BlockScan;
use super::collector::Collectors;
use super::frame_scan::FrameScan;
use super::step::ScanStep;
use crate::names::elements::ElementNames;
use crate::summary::QuerySummary;

/// A sealed segment that is being read.
#[derive(Debug)]
pub(crate) enum SegmentScan {
    Blocks(Box<BlockScan>),
    Frames(FrameScan),
}

impl SegmentScan {
    pub(crate) fn new(segment: Box<WholeSegment>, summary: &mut QuerySummary) -> Self {
        if segment.reader.compressed().is_some() {
            Self::Blocks(Box::new(BlockScan::new(segment, summary)))
        } else {
            Self::Frames(FrameScan::new(segment))
        }
    }

    /// Reads a part of the segment.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn step(
        &mut self,
        sources: &mut Collectors,
        names: &mut ElementNames,
        summary: &mut QuerySummary,
    ) -> Result<ScanStep, SegmentError> {
        match self {
            Self::Blocks(scan) => scan.step(sources, names, summary),
            Self::Frames(scan) => scan.step(sources, names, summary),
        }
    }

    /// Returns a monotonic time. No later row has a time before the returned time.
    pub(crate) fn complete_ns(&self, sources: usize) -> u64 {
        match self {
            Self::Blocks(scan) => scan.complete_ns(sources),
            Self::Frames(scan) => scan.complete_ns(sources),
        }
    }
}
