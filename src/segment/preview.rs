//! What a recovery would bring, without writing anything.

use super::control::Gap;
use super::control::count_of;
use super::error::SegmentError;
use super::kind::{FrameKind, Telemetry};
use super::progress::{Progress, Taken};
use super::reader::{Advance, SegmentReader};
use super::recover::Recovery;
use crate::schema::segment::GapCause;

impl Recovery<'_> {
    /// What filling up would bring.
    pub(super) fn preview(&mut self, mut progress: Progress) {
        for frame in &self.leftovers.frames {
            let sample = (4..=12).step_by(4).find_map(|head| Telemetry::read(frame.get(head..)?));
            let taken = sample.map(|sample| progress.sample(&sample, GapCause::Crash));
            let Some(Taken::New(gaps)) = taken else { continue };
            self.result.lost += count_of(&gaps);
            self.result.frames += 1;
            self.result.rescued += 1;
        }
        for source in progress.sources() {
            let begun = self.leftovers.begun.get(&source).copied().unwrap_or(0);
            self.result.lost += count_of(&progress.missing(source, begun));
        }
        self.result.sealed = Some(self.name.sealed().to_string());
    }

    /// What rewriting would bring.
    pub(super) fn preview_rewrite(&mut self, mut reader: SegmentReader) -> Result<(), SegmentError> {
        let mut progress = Progress::of(&reader);
        while let Some(advance) = reader.advance()? {
            let Advance::Frame(at) = advance else { continue };
            progress.describe(reader.header());
            if let Some(sample) = reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry) {
                if let Taken::New(gaps) = progress.sample(&sample, GapCause::Damaged) {
                    self.result.lost += count_of(&gaps);
                    self.result.frames += 1;
                }
            } else if let Some(gap) = Gap::decode(reader.payload(at)).filter(|_| at.kind == FrameKind::Gap) {
                self.result.lost += if progress.gap(&gap) { gap.count } else { 0 };
            }
        }
        self.preview(progress);
        Ok(())
    }
}
