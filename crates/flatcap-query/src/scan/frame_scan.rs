//! Reads a raw segment frame by frame. The frames of a source are in time order, so the scan does
//! not have to reorder frames.

use flatcap_format::replay::{Notice, WholeSegment};
use flatcap_format::segment::{Advance, FrameKind, FrameLocation, SegmentError};

use super::collector::Collectors;
use super::step::ScanStep;
use crate::names::elements::ElementNames;
use crate::summary::QuerySummary;

/// A raw segment being read.
#[derive(Debug)]
pub(crate) struct FrameScan {
    segment: Box<WholeSegment>,
    /// Time of the latest sample that was read so far.
    newest_ns: u64,
    has_ended: bool,
}

impl FrameScan {
    pub(super) fn new(segment: Box<WholeSegment>) -> Self {
        Self { segment, newest_ns: 0, has_ended: false }
    }

    /// Reads the next frame.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn step(
        &mut self,
        sources: &mut Collectors,
        names: &mut ElementNames,
        summary: &mut QuerySummary,
    ) -> Result<ScanStep, SegmentError> {
        if self.has_ended {
            return Ok(ScanStep::End);
        }
        let path = |segment: &WholeSegment| segment.reader.path().to_owned();
        let at = match self.segment.reader.advance()? {
            Some(Advance::Frame(at)) => at,
            Some(Advance::Damage(damage)) => {
                return Ok(ScanStep::Notice(Notice::Damaged(path(&self.segment), damage)));
            }
            None => {
                // The notice about the torn end of the file is returned only one time.
                self.has_ended = true;
                let torn = self.segment.reader.tail();
                return Ok(torn.map_or(ScanStep::End, |tail| {
                    ScanStep::Notice(Notice::Torn(path(&self.segment), tail))
                }));
            }
        };
        if at.kind == FrameKind::Telemetry {
            self.sample(at, sources, names, summary);
            return Ok(ScanStep::Continue);
        }
        Ok(ScanStep::of_frame(self.segment.reader.payload(at), &self.segment))
    }

    fn sample(
        &mut self,
        at: FrameLocation,
        sources: &mut Collectors,
        names: &mut ElementNames,
        summary: &mut QuerySummary,
    ) {
        let Some(sample) = self.segment.reader.sample(at) else { return };
        self.newest_ns = self.newest_ns.max(sample.mono_ns);
        let end_ns = self.segment.mono_ns.as_ref().map_or(u64::MAX, |range| range.end);
        // All intervals that may contain wanted samples were read, and the time of this sample is
        // after the requested times.
        self.has_ended = at.offset >= self.segment.end_offset && sample.mono_ns >= end_ns;
        let is_wanted = self.segment.times.contains(sample.wall_ns, sample.mono_ns);
        if let Some(collector) = sources.get_mut(&sample.source).filter(|_| is_wanted) {
            summary.add(collector.add(&sample, names).is_ok());
        }
    }

    /// Returns a monotonic time. No later row has a time before the returned time.
    pub(super) fn complete_ns(&self, sources: usize) -> u64 {
        // The frames of each source are in the order of time. Between successive samples of
        // different sources, the time may decrease by at most the length of the window.
        let window_ns = if sources > 1 { self.segment.window_ns } else { 0 };
        self.newest_ns.saturating_sub(window_ns)
    }
}
