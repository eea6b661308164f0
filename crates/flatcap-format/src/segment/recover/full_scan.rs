//! Scans a whole segment for a recovery. The scan determines the counts of the segment, the
//! sequence numbers that its sources have reached, and the end of its intact frames.

use std::io;

use super::leftovers::Leftovers;
use crate::schema::segment::GapCause;
use crate::segment::format::control_frames::Gap;
use crate::segment::format::damage::Damage;
use crate::segment::format::error::SegmentError;
use crate::segment::format::footer::Footer;
use crate::segment::format::footer_totals::SampleSpan;
use crate::segment::format::frame_kind::{FrameKind, FrameLocation, SampleView};
use crate::segment::format::index::IndexFrame;
use crate::segment::format::segment_counts::SegmentCounts;
use crate::segment::open::torn_tail::is_tail_prefix_of_any;
use crate::segment::read::reader::{Advance, SegmentReader};
use crate::segment::read::sequence_progress::{SampleStatus, SequenceProgress};
use crate::segment::verify::digest_check::DigestCheck;
use crate::storage::StorageFile;

/// The result of a full scan.
pub(in crate::segment) struct FullScan {
    pub(in crate::segment) counts: SegmentCounts,
    pub(in crate::segment) progress: SequenceProgress,
    /// Offset of the end of the intact frames, if no range before this offset is damaged.
    pub(in crate::segment) end: u64,
    /// Whether there are bytes other than zeros after `end`.
    pub(in crate::segment) has_tail: bool,
    pub(in crate::segment) is_damaged: bool,
    /// Damaged ranges. If there are too many ranges, the last range covers all further damage.
    pub(in crate::segment) damage: Vec<Damage>,
    /// Number of samples.
    pub(in crate::segment) samples: u64,
}

impl FullScan {
    /// Reads and counts all frames.
    pub(in crate::segment) fn read(
        reader: &mut SegmentReader,
        leftovers: &Leftovers,
    ) -> Result<Self, SegmentError> {
        let mut scan = Self {
            counts: SegmentCounts::new(reader.header()),
            progress: SequenceProgress::of(reader),
            end: 0,
            has_tail: false,
            is_damaged: false,
            damage: Vec::new(),
            samples: 0,
        };
        let mut is_content = false;
        let mut digest_check = DigestCheck::default();
        while let Some(advance) = reader.advance()? {
            let at = match advance {
                Advance::Frame(at) => at,
                Advance::Damage(damage) => {
                    digest_check.add_damage();
                    scan.is_damaged = true;
                    damage.add_to(&mut scan.damage);
                    continue;
                }
            };
            if at.is_repaired {
                scan.add_damage(at.offset, 4, "a damaged length, repaired: the checksum proves the frame");
            }
            if at.kind == FrameKind::Header && at.offset > 0 {
                scan.add_damage(at.offset, 0, "a second header: what follows belongs to another segment");
                break;
            }
            if leftovers.is_counted_later(reader, at) {
                if reader.is_sealed() {
                    // The writer that sealed the segment did not know the sequence numbers of the
                    // next segment.
                    scan.add_damage(at.offset, 0, "samples or losses that the run's next segment counts");
                }
                scan.has_tail = true;
                break;
            }
            if at.kind == FrameKind::Telemetry {
                scan.samples += 1;
            }
            if matches!(at.kind, FrameKind::Footer | FrameKind::Trailer) {
                if let Some(footer) = reader.footer() {
                    let what = digest_check.check_footer(footer).filter(|_| at.kind == FrameKind::Footer);
                    if let Some(what) = what.or_else(|| scan.footer_mismatch(footer)) {
                        scan.add_damage(at.offset, 0, what);
                    }
                    continue;
                }
                // A footer without a trailer is part of the torn tail.
                scan.has_tail = true;
                break;
            }
            if !is_content && !matches!(at.kind, FrameKind::Header | FrameKind::Attachment) {
                is_content = true;
                scan.counts.begin_content();
            }
            if at.kind == FrameKind::Index {
                scan.counts.close_interval(0);
                let what =
                    IndexFrame::decode(reader.payload(at)).and_then(|index| digest_check.check_index(&index));
                if let Some(what) = what {
                    scan.add_damage(at.offset, 0, what);
                }
            }
            digest_check.add_frame(reader.frame_header(at).as_bytes(), at.bytes);
            scan.add_frame(reader, at);
        }
        if let Some(tail) = reader.tail() {
            scan.has_tail = !tail.what.starts_with("empty");
            scan.damage.push(tail);
        }
        Ok(scan)
    }

    /// Ignores the tail of the file if it is the beginning of a frame that is in the run's memory.
    /// If the process ended during a write, the file ends with an incomplete frame. Such an
    /// incomplete frame is not treated as damage, because the memory contains the whole frame.
    pub(in crate::segment) fn ignore_rescued_tail(
        &mut self,
        file: &dyn StorageFile,
        leftovers: &Leftovers,
    ) -> io::Result<()> {
        if self.has_tail
            && !leftovers.has_successor
            && is_tail_prefix_of_any(file, self.end, &leftovers.frames)?
        {
            self.has_tail = false;
            let end = self.end;
            self.damage.pop_if(|damage| damage.offset == end);
        }
        Ok(())
    }

    /// Compares the footer with the frames before the footer. Returns a description of the
    /// mismatch, if there is one.
    fn footer_mismatch(&self, footer: &Footer) -> Option<&'static str> {
        let counted = |id| self.counts.totals().iter().find(|totals| totals.source == id);
        let agree = footer.totals.iter().all(|totals| {
            counted(totals.source).is_some_and(|counted| {
                (counted.recorded, counted.lost, counted.thinned)
                    == (totals.recorded, totals.lost, totals.thinned)
            })
        });
        let is_equal = agree && (footer.frames, footer.bytes) == (self.counts.frames(), self.counts.bytes());
        (!is_equal && !self.is_damaged).then_some("the footer's counts differ from the frames")
    }

    fn add_frame(&mut self, reader: &SegmentReader, at: FrameLocation) {
        self.progress.add_sources(reader.header());
        self.counts.add_frames(reader.frame_header(at).as_bytes(), 1, at.bytes as u64);
        if let Some(what) = self.count_frame(reader, at.kind, reader.payload(at)) {
            self.add_damage(at.offset, 0, what);
        }
        self.end = at.offset + at.bytes as u64;
    }

    fn add_damage(&mut self, offset: u64, length: u64, what: &'static str) {
        self.is_damaged = true;
        Damage { offset, length, what }.add_to(&mut self.damage);
    }

    /// Counts a frame. Returns a description of the error if the sequence numbers in the frame
    /// contradict the numbers in earlier frames.
    fn count_frame(
        &mut self,
        reader: &SegmentReader,
        kind: FrameKind,
        payload: &[u8],
    ) -> Option<&'static str> {
        const REPEATED: &str = "numbers that were passed before: repeated or out of order";
        match kind {
            FrameKind::Telemetry => {
                let sample = SampleView::read(payload)?;
                self.counts.add_samples(
                    sample.source,
                    1,
                    SampleSpan::of(sample.seq, sample.mono_ns, sample.wall_ns),
                );
                match self.progress.add_sample(&sample, GapCause::Damaged) {
                    SampleStatus::Known => Some(REPEATED),
                    SampleStatus::New(gaps) => {
                        (!gaps.is_empty()).then_some("samples are missing before this one")
                    }
                }
            }
            FrameKind::Gap => {
                let gap = Gap::decode(payload)?;
                self.counts.add_gap(&gap);
                (!self.progress.add_gap(&gap)).then_some(REPEATED)
            }
            FrameKind::Descriptor => {
                for source in &reader.header().sources {
                    self.counts.add_source(source.id);
                }
                None
            }
            _ => None,
        }
    }
}
