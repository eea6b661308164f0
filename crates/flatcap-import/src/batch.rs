//! A batch of frames that are not written yet, with the metadata of their samples.

use std::io::{self, IoSlice};

use flatcap_format::frame::{ENVELOPE_BYTES, Stamp};
use flatcap_format::segment::{Frames, SampleSpan, SegmentWriter};
use flatcap_stream::HEADER_BYTES_MAX;

/// Maximum total size of the frames that are collected before a write, in bytes. A longer frame is
/// written alone.
const BATCH_BYTES: usize = 256 << 10;

/// A batch of frames that are not written yet.
#[derive(Debug)]
pub(super) struct FrameBatch {
    bytes: Vec<u8>,
    length: usize, // of the frames: <= bytes.len()
    headers: Vec<u8>,
    headers_length: usize, // <= headers.len()
    count: u64,
    // Each entry has the source, count and span of consecutive samples whose wall times never
    // decrease.
    spans: Vec<(u16, u64, SampleSpan)>,
}

impl FrameBatch {
    pub(super) fn new() -> Self {
        let heads = BATCH_BYTES / ENVELOPE_BYTES * HEADER_BYTES_MAX;
        Self {
            bytes: vec![0; BATCH_BYTES],
            length: 0,
            headers: vec![0; heads],
            headers_length: 0,
            count: 0,
            spans: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn fits(&self, frame_bytes: usize) -> bool {
        self.length + frame_bytes <= BATCH_BYTES || self.length == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reserves space for a frame after the batch's last frame, and for a copy of its header after
    /// the last header.
    #[inline]
    pub(super) fn reserve(&mut self, frame_bytes: usize, head_bytes: usize) -> (&mut [u8], &mut [u8]) {
        let (frame_at, head_at) = (self.length, self.headers_length);
        self.length += frame_bytes;
        self.headers_length += head_bytes;
        if self.bytes.len() < self.length {
            self.bytes.resize(self.length, 0);
        }
        let frame = self.bytes.get_mut(frame_at..self.length).unwrap_or_default();
        (frame, self.headers.get_mut(head_at..self.headers_length).unwrap_or_default())
    }

    #[inline]
    pub(super) fn count(&mut self, source: u16, stamp: &Stamp) {
        self.count += 1;
        let Stamp { seq, mono_ns, wall_ns, .. } = *stamp;
        // Consecutive samples mostly come from a few alternating sources, so the open span of this
        // source is near the end.
        let open = self.spans.iter_mut().rev().take(4).find(|(of, ..)| *of == source);
        if let Some((_, count, span)) = open
            && span.last_seq + 1 == seq
            && span.last_wall_ns <= wall_ns
        {
            *count += 1;
            (span.last_seq, span.last_mono_ns, span.last_wall_ns) = (seq, mono_ns, wall_ns);
            return;
        }
        let span = SampleSpan::of(seq, mono_ns, wall_ns);
        self.spans.push((source, 1, span));
    }

    pub(super) fn write(&self, writer: &mut SegmentWriter) -> io::Result<()> {
        writer.append(Frames {
            pieces: &mut [IoSlice::new(self.bytes.get(..self.length).unwrap_or_default())],
            headers: &[self.headers.get(..self.headers_length).unwrap_or_default()],
            count: self.count,
        })?;
        for (source, count, span) in &self.spans {
            writer.count_samples(*source, *count, *span);
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        // Release the memory of a long frame, so that it is not held for the rest of the import.
        self.bytes.truncate(BATCH_BYTES);
        self.bytes.shrink_to(BATCH_BYTES);
        self.length = 0;
        self.headers_length = 0;
        self.count = 0;
        self.spans.clear();
    }
}
