//! A segment read from end to end: what it holds, how far its sources have got, where its intact frames end.

use std::io;

use super::control::Gap;
use super::error::SegmentError;
use super::footer::Footer;
use super::index::Index;
use super::kind::{FrameAt, FrameKind, Telemetry};
use super::leftovers::Leftovers;
use super::progress::{Progress, Taken};
use super::proof::Proof;
use super::reader::{Advance, Damage, SegmentReader};
use super::tail::is_beginning_of_any;
use super::tally::Tally;
use super::totals::Span;
use crate::os::storage::StorageFile;
use crate::schema::segment::GapCause;

/// What a walk through the file has come to.
pub(super) struct Walk {
    pub(super) tally: Tally,
    pub(super) progress: Progress,
    /// Where the intact frames end, if nothing is damaged in front of it.
    pub(super) end: u64,
    /// Bytes behind it that are not empty.
    pub(super) has_tail: bool,
    pub(super) is_damaged: bool,
    /// What is wrong with it; of very many places the last one stands for the rest.
    pub(super) damage: Vec<Damage>,
    /// Samples in it.
    pub(super) samples: u64,
}

impl Walk {
    /// Reads everything, and counts it.
    pub(super) fn through(reader: &mut SegmentReader, leftovers: &Leftovers) -> Result<Self, SegmentError> {
        let mut walk = Self {
            tally: Tally::new(reader.header()),
            progress: Progress::of(reader),
            end: 0,
            has_tail: false,
            is_damaged: false,
            damage: Vec::new(),
            samples: 0,
        };
        let mut is_content = false;
        let mut proof = Proof::default();
        while let Some(advance) = reader.advance()? {
            let at = match advance {
                Advance::Frame(at) => at,
                Advance::Damage(damage) => {
                    proof.damage();
                    walk.is_damaged = true;
                    damage.add_to(&mut walk.damage);
                    continue;
                }
            };
            if at.is_repaired {
                walk.found(at.offset, 4, "a damaged length, repaired: the checksum proves the frame");
            }
            if at.kind == FrameKind::Header && at.offset > 0 {
                walk.found(at.offset, 0, "a second header: what follows belongs to another segment");
                break;
            }
            let sample = reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry);
            if sample.is_some_and(|sample| leftovers.was_given_up(sample.source, sample.seq)) {
                if reader.is_sealed() {
                    // It was completed without a look at the next one.
                    walk.found(at.offset, 0, "samples that the run's next segment counts as lost");
                }
                walk.has_tail = true;
                break;
            }
            if at.kind == FrameKind::Telemetry {
                walk.samples += 1;
            }
            if matches!(at.kind, FrameKind::Footer | FrameKind::Trailer) {
                if let Some(footer) = reader.footer() {
                    let what = proof.footer(footer).filter(|_| at.kind == FrameKind::Footer);
                    if let Some(what) = what.or_else(|| walk.disagrees(footer)) {
                        walk.found(at.offset, 0, what);
                    }
                    continue;
                }
                // A footer whose trailer never came: it belongs to the tail.
                walk.has_tail = true;
                break;
            }
            if !is_content && !matches!(at.kind, FrameKind::Header | FrameKind::Attachment) {
                is_content = true;
                walk.tally.begin_content();
            }
            if at.kind == FrameKind::Index {
                walk.tally.close_interval(0);
                let what = Index::decode(reader.payload(at)).and_then(|index| proof.index(&index));
                if let Some(what) = what {
                    walk.found(at.offset, 0, what);
                }
            }
            proof.frame(reader.head(at).as_bytes(), at.bytes);
            walk.take(reader, at);
        }
        if let Some(tail) = reader.tail() {
            walk.has_tail = !tail.what.starts_with("empty");
            walk.damage.push(tail);
        }
        Ok(walk)
    }

    /// What the end of a process cut short is no damage where its memory has the whole of it: passes over a tail that is the beginning of a frame there.
    pub(super) fn pass_over_tail(&mut self, file: &dyn StorageFile, leftovers: &Leftovers) -> io::Result<()> {
        if self.has_tail && !leftovers.is_followed && is_beginning_of_any(file, self.end, &leftovers.frames)?
        {
            self.has_tail = false;
            let end = self.end;
            self.damage.pop_if(|damage| damage.offset == end);
        }
        Ok(())
    }

    /// What a footer says that is not what stands in front of it.
    fn disagrees(&self, footer: &Footer) -> Option<&'static str> {
        let counted = |id| self.tally.totals().iter().find(|totals| totals.source == id);
        let agree = footer.totals.iter().all(|said| {
            counted(said.source)
                .is_some_and(|counted| (counted.recorded, counted.lost) == (said.recorded, said.lost))
        });
        let is_so = agree && (footer.frames, footer.bytes) == (self.tally.frames(), self.tally.bytes());
        (!is_so && !self.is_damaged).then_some("the footer counts other frames than there are")
    }

    fn take(&mut self, reader: &SegmentReader, at: FrameAt) {
        self.progress.describe(reader.header());
        self.tally.add(reader.head(at).as_bytes(), 1, at.bytes as u64);
        if let Some(what) = self.count(reader, at.kind, reader.payload(at)) {
            self.found(at.offset, 0, what);
        }
        self.end = at.offset + at.bytes as u64;
    }

    fn found(&mut self, offset: u64, length: u64, what: &'static str) {
        self.is_damaged = true;
        Damage { offset, length, what }.add_to(&mut self.damage);
    }

    /// Counts a frame. What is wrong with its place among the others.
    fn count(&mut self, reader: &SegmentReader, kind: FrameKind, payload: &[u8]) -> Option<&'static str> {
        const PASSED: &str = "numbers that were passed before: repeated or out of order";
        match kind {
            FrameKind::Telemetry => {
                let sample = Telemetry::read(payload)?;
                self.tally.samples(sample.source, 1, span_of(&sample));
                match self.progress.sample(&sample, GapCause::Damaged) {
                    Taken::Known => Some(PASSED),
                    Taken::New(gaps) => {
                        (!gaps.is_empty()).then_some("readings are missing in front of this one")
                    }
                }
            }
            FrameKind::Gap => {
                let gap = Gap::decode(payload)?;
                self.tally.gap(&gap);
                (!self.progress.gap(&gap)).then_some(PASSED)
            }
            FrameKind::Descriptor => {
                for source in &reader.header().sources {
                    self.tally.add_source(source.id);
                }
                None
            }
            _ => None,
        }
    }
}

pub(super) fn span_of(sample: &Telemetry<'_>) -> Span {
    Span {
        first_seq: sample.seq,
        last_seq: sample.seq,
        first_mono_ns: sample.mono_ns,
        last_mono_ns: sample.mono_ns,
        first_wall_ns: sample.wall_ns,
        last_wall_ns: sample.wall_ns,
    }
}
