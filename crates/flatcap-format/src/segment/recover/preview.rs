//! Computes the result of a recovery for a dry run, without writing anything.

use super::segment_recovery::SegmentRecovery;
use crate::schema::segment::GapCause;
use crate::segment::format::control_frames::Gap;
use crate::segment::format::control_frames::lost_samples;
use crate::segment::format::error::SegmentError;
use crate::segment::format::frame_kind::{FrameKind, SampleView};
use crate::segment::read::reader::{Advance, SegmentReader};
use crate::segment::read::sequence_progress::{SampleStatus, SequenceProgress};

impl SegmentRecovery<'_> {
    /// Computes the result that completing the segment would have.
    pub(in crate::segment) fn preview(&mut self, mut progress: SequenceProgress) {
        for frame in &self.leftovers.frames {
            let sample = (4..=12).step_by(4).find_map(|head| SampleView::read(frame.get(head..)?));
            let taken = sample.map(|sample| progress.add_sample(&sample, GapCause::Crash));
            let Some(SampleStatus::New(gaps)) = taken else { continue };
            self.result.lost += lost_samples(&gaps);
            self.result.frames += 1;
            self.result.from_memory += 1;
        }
        for source in progress.sources() {
            let begun = self.leftovers.begun.get(&source).copied().unwrap_or(0);
            self.result.lost += lost_samples(&progress.missing(source, begun, GapCause::Crash));
        }
        self.result.sealed = Some(self.name.sealed().to_string());
    }

    /// Computes the result that rewriting the segment would have.
    pub(in crate::segment) fn preview_rewrite(
        &mut self,
        mut reader: SegmentReader,
    ) -> Result<(), SegmentError> {
        let mut progress = SequenceProgress::of(&reader);
        while let Some(advance) = reader.advance()? {
            let Advance::Frame(at) = advance else { continue };
            if self.leftovers.is_counted_later(&reader, at) {
                break;
            }
            progress.add_sources(reader.header());
            if let Some(sample) = reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry) {
                if let SampleStatus::New(gaps) = progress.add_sample(&sample, GapCause::Damaged) {
                    self.result.lost += lost_samples(&gaps);
                    self.result.frames += 1;
                }
            } else if let Some(gap) = Gap::decode(reader.payload(at)).filter(|_| at.kind == FrameKind::Gap) {
                self.result.lost += if progress.add_gap(&gap) { lost_samples(&[gap]) } else { 0 };
            }
        }
        self.preview(progress);
        Ok(())
    }
}
