//! Plausibility rules, which decide whether a frame can follow the frames read before. After
//! damage, bytes that look like a frame may be part of a payload. A reader accepts such bytes as a
//! frame only if the rules allow it (docs/FORMAT.md, "Damage"). The rules refer to the last samples
//! before the damaged range, not to samples that were read in resync.
//!
//! - A sample: `seq` is above the `seq` of the last sample of its source, and `mono_ns` is not
//!   below the `mono_ns` of that sample. `seq` is also at least `next_seq`, and within the footer's
//!   range from `first_seq` to `last_seq`.
//! - A Gap: `first` is above the `seq` of the last sample of its source, and at least `next_seq`.
//! - An Index: it is at the end of the interval that it describes.
//! - A `SourceDescriptor` or `ClockSync`: if there is a footer, the footer contains the same
//!   descriptor or pairing. A footer with 1,024 pairings is full, so it need not contain the
//!   pairing.
//! - A Footer or Trailer: it belongs to this segment and is at the correct offset.
//! - A Header: the segment has no footer, and the header belongs to another run.
//! - A Marker or Attachment: it can follow any frame.
//!
//! Directly after an intact frame, a reader in resync also accepts Index frames and frames of
//! unknown kinds that do not meet these rules.

use crate::segment::format::control_frames::{ClockSync, Gap};
use crate::segment::format::footer::{Footer, Trailer};
use crate::segment::format::frame_kind::{FrameKind, SampleView};
use crate::segment::format::header::{CLOCKS_MAX, SegmentHeader, SourceInfo};
use crate::segment::format::index::IndexFrame;

/// The state of reading a segment, which consists of the header, the footer, and the latest sample
/// of each source.
#[derive(Debug)]
pub(in crate::segment) struct ReadState {
    /// The header, with the descriptors and clock pairings that were read after it.
    pub(in crate::segment) header: SegmentHeader,
    pub(in crate::segment) footer: Option<Footer>,
    /// Offset of the footer in this file. It differs from the offset in the trailer if frames were
    /// removed.
    pub(in crate::segment) footer_offset: Option<u64>,
    latest: Vec<LatestSample>,
}

/// The last intact sample of a source, if no damage precedes it in its interval.
#[derive(Debug, Clone, Copy)]
pub(in crate::segment) struct LatestSample {
    pub(in crate::segment) source: u16,
    pub(in crate::segment) seq: u64,
    pub(in crate::segment) mono_ns: u64,
}

impl ReadState {
    /// Creates the state from the header, and from the footer and its offset if the segment is
    /// sealed.
    pub(in crate::segment) fn new(header: SegmentHeader, footer: Option<(Footer, u64)>) -> Self {
        let (footer, footer_offset) = footer.unzip();
        Self { header, footer, footer_offset, latest: Vec::new() }
    }

    /// Sets the latest sample of a source.
    #[inline]
    pub(in crate::segment) fn set_latest(&mut self, latest: LatestSample) {
        match self.latest.iter_mut().find(|known| known.source == latest.source) {
            Some(known) => *known = latest,
            None => self.latest.push(latest),
        }
    }

    /// Forgets the latest samples, because the next frames may contain earlier samples.
    pub(in crate::segment) fn forget_latest(&mut self) {
        self.latest.clear();
    }

    /// Returns whether a frame that a search has found at `offset` can follow the frames read
    /// before. This check is needed because a payload may contain frames.
    pub(in crate::segment) fn can_follow(&self, offset: u64, payload: &[u8]) -> bool {
        let footer = self.footer.as_ref();
        match FrameKind::of(payload) {
            Some(FrameKind::Telemetry) => {
                SampleView::read(payload).is_some_and(|sample| self.sample_can_follow(&sample))
            }
            Some(FrameKind::Gap) => Gap::decode(payload).is_some_and(|gap| {
                let latest = self.latest.iter().find(|latest| latest.source == gap.source);
                latest.is_none_or(|latest| gap.first > latest.seq) && gap.first >= self.next_seq(gap.source)
            }),
            Some(FrameKind::Index) => {
                IndexFrame::decode(payload).is_some_and(|index| index.entry.end() == offset)
            }
            Some(FrameKind::Header) => {
                // Only an unsealed file can contain another header. It comes from a replay of
                // several runs, which writes one stream that is never sealed.
                footer.is_none()
                    && SegmentHeader::decode(payload).is_ok_and(|header| header.run_id != self.header.run_id)
            }
            Some(FrameKind::Footer) if footer.is_some() => Some(offset) == self.footer_offset,
            Some(FrameKind::Footer) => Footer::decode(payload)
                .is_ok_and(|footer| footer.bytes == offset && footer.header.is_same_segment(&self.header)),
            Some(FrameKind::Trailer) => Trailer::decode(payload).is_some_and(|trailer| {
                let header_bytes = self.header.checksum.frame_bytes(0) as u64;
                let footer_bytes = header_bytes + u64::from(trailer.footer_length);
                let footer_offset = self.footer_offset.unwrap_or(trailer.footer_offset);
                trailer.run_id == self.header.run_id
                    && trailer.segment == self.header.segment
                    && footer_offset.checked_add(footer_bytes) == Some(offset)
            }),
            Some(FrameKind::Descriptor) => footer.is_none_or(|footer| {
                SourceInfo::decode(payload)
                    .is_some_and(|source| footer.header.source(source.id) == Some(&source))
            }),
            Some(FrameKind::ClockSync) => footer.is_none_or(|footer| {
                let table = &footer.header.clock_table;
                table.len() >= CLOCKS_MAX
                    || ClockSync::decode(payload).is_some_and(|sync| table.contains(&sync.clocks))
            }),
            Some(FrameKind::Marker | FrameKind::Attachment) => true,
            Some(FrameKind::Unknown(_)) | None => false,
        }
    }

    /// Returns whether a sample has a higher sequence number than the last sample of its source,
    /// and not an earlier time. The sequence number must also be at least `next_seq`, and within
    /// the range in the footer.
    fn sample_can_follow(&self, sample: &SampleView<'_>) -> bool {
        let latest = self.latest.iter().find(|latest| latest.source == sample.source);
        let follows_latest =
            latest.is_none_or(|latest| sample.seq > latest.seq && sample.mono_ns >= latest.mono_ns);
        let totals = self
            .footer
            .as_ref()
            .and_then(|footer| footer.totals.iter().find(|totals| totals.source == sample.source));
        let is_counted = totals.is_none_or(|totals| {
            totals.span.is_some_and(|span| (span.first_seq..=span.last_seq).contains(&sample.seq))
        });
        follows_latest && is_counted && sample.seq >= self.next_seq(sample.source)
    }

    fn next_seq(&self, source: u16) -> u64 {
        self.header.source(source).map_or(0, |source| source.next_seq)
    }
}
