//! Whole frames that are not written yet, and what is in them.

use std::io::{self, IoSlice};

use crate::frame::{ENVELOPE_BYTES, Stamp};
use crate::segment::{Frames, SegmentWriter, Span};
use crate::stream::HEADER_BYTES_MAX;

/// So many bytes of frames are collected before they are written; a longer frame is written alone.
const BATCH_BYTES: usize = 256 << 10;

/// Frames that are not written yet.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    length: usize, // of the frames: <= bytes'
    heads: Vec<u8>,
    heads_length: usize, // <= heads'
    count: u64,
    spans: Vec<(u16, u64, Span)>, // consecutive numbers of one source whose wall times do not step back: how many
}

impl Batch {
    pub(super) fn new() -> Self {
        let heads = BATCH_BYTES / ENVELOPE_BYTES * HEADER_BYTES_MAX;
        Self {
            bytes: vec![0; BATCH_BYTES],
            length: 0,
            heads: vec![0; heads],
            heads_length: 0,
            count: 0,
            spans: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn has_room(&self, frame_bytes: usize) -> bool {
        self.length + frame_bytes <= BATCH_BYTES || self.length == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The places of a frame and of a copy of its header, behind the last ones.
    #[inline]
    pub(super) fn place(&mut self, frame_bytes: usize, head_bytes: usize) -> (&mut [u8], &mut [u8]) {
        let (frame_at, head_at) = (self.length, self.heads_length);
        self.length += frame_bytes;
        self.heads_length += head_bytes;
        if self.bytes.len() < self.length {
            self.bytes.resize(self.length, 0);
        }
        let frame = self.bytes.get_mut(frame_at..self.length).unwrap_or_default();
        (frame, self.heads.get_mut(head_at..self.heads_length).unwrap_or_default())
    }

    #[inline]
    pub(super) fn count(&mut self, source: u16, stamp: &Stamp) {
        self.count += 1;
        let Stamp { seq, mono_ns, wall_ns, .. } = *stamp;
        // Few sources take turns, so the open span of this one stands near the end.
        let open = self.spans.iter_mut().rev().take(4).find(|(of, ..)| *of == source);
        if let Some((_, count, span)) = open
            && span.last_seq + 1 == seq
            && span.last_wall_ns <= wall_ns
        {
            *count += 1;
            (span.last_seq, span.last_mono_ns, span.last_wall_ns) = (seq, mono_ns, wall_ns);
            return;
        }
        let span = Span {
            first_seq: seq,
            last_seq: seq,
            first_mono_ns: mono_ns,
            last_mono_ns: mono_ns,
            first_wall_ns: wall_ns,
            last_wall_ns: wall_ns,
        };
        self.spans.push((source, 1, span));
    }

    pub(super) fn write(&self, writer: &mut SegmentWriter) -> io::Result<()> {
        writer.append(Frames {
            pieces: &mut [IoSlice::new(self.bytes.get(..self.length).unwrap_or_default())],
            heads: &[self.heads.get(..self.heads_length).unwrap_or_default()],
            count: self.count,
        })?;
        for (source, count, span) in &self.spans {
            writer.tally(*source, *count, *span);
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        // One long frame does not keep its room for the rest of the import.
        self.bytes.truncate(BATCH_BYTES);
        self.bytes.shrink_to(BATCH_BYTES);
        self.length = 0;
        self.heads_length = 0;
        self.count = 0;
        self.spans.clear();
    }
}
