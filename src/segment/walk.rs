//! A segment read from end to end: what it holds, how far its sources have got, where its intact frames end.

use super::control::Gap;
use super::error::SegmentError;
use super::kind::{FrameKind, Telemetry};
use super::progress::Progress;
use super::reader::{Advance, Damage, SegmentReader};
use super::recover::Leftovers;
use super::tally::Tally;
use super::totals::Span;
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
    /// What is wrong with it.
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
        while let Some(advance) = reader.advance()? {
            let at = match advance {
                Advance::Frame(at) => at,
                Advance::Damage(damage) => {
                    walk.is_damaged = true;
                    walk.damage.push(damage);
                    continue;
                }
            };
            if at.is_repaired {
                walk.is_damaged = true;
                let what = "a damaged length, repaired: the checksum proves the frame";
                walk.damage.push(Damage { offset: at.offset, length: 4, what });
            }
            let sample = reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry);
            if sample.is_some_and(|sample| leftovers.was_given_up(sample.source, sample.seq)) {
                walk.has_tail = true;
                break;
            }
            if at.kind == FrameKind::Telemetry {
                walk.samples += 1;
            }
            if matches!(at.kind, FrameKind::Footer | FrameKind::Trailer) {
                if reader.is_sealed() {
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
            }
            walk.tally.add(reader.head(at).as_bytes(), 1, at.bytes as u64);
            walk.count(reader, at.kind, reader.payload(at));
            walk.end = at.offset + at.bytes as u64;
        }
        if let Some(tail) = reader.tail() {
            walk.has_tail = !tail.what.starts_with("empty");
            walk.damage.push(tail);
        }
        Ok(walk)
    }

    fn count(&mut self, reader: &SegmentReader, kind: FrameKind, payload: &[u8]) {
        match kind {
            FrameKind::Telemetry => {
                let Some(sample) = Telemetry::read(payload) else { return };
                self.tally.samples(sample.source, 1, span_of(&sample));
                self.progress.sample(&sample, GapCause::Damaged);
            }
            FrameKind::Gap => {
                let Some(gap) = Gap::decode(payload) else { return };
                self.tally.gap(&gap);
                self.progress.gap(&gap);
            }
            FrameKind::Descriptor => {
                for source in &reader.header().sources {
                    self.tally.add_source(source.id);
                }
            }
            _ => {}
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
