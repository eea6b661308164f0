//! Checks whether the bytes at an offset are a frame that can belong to the segment. If the bytes
//! are not such a frame, the result describes the damage.

use std::io;

use flatcap_stream::{DeframeStatus, KindDeframer, LENGTH_BYTES, SliceDeframer};

use crate::segment::format::control_frames::{Attachment, ClockSync, Gap, Marker};
use crate::segment::format::footer::{Footer, Trailer};
use crate::segment::format::frame_kind::{FrameKind, FrameLocation, SampleView};
use crate::segment::format::header::{SegmentHeader, SourceInfo};
use crate::segment::format::index::IndexFrame;
use crate::segment::open::file_window::FileWindow;

/// Description of a frame that has changed since it was written.
pub(in crate::segment) const CHECKSUM_MISMATCH: &str = "a frame whose checksum is wrong";
/// Description of a frame that is incomplete because it was cut off or is still being written.
pub(in crate::segment) const BEYOND_FILE_END: &str = "a frame that ends beyond the file";

/// The result of checking whether a frame begins at an offset.
pub(in crate::segment) enum FrameProbe {
    Frame(FrameLocation),
    End,
    Damaged(&'static str),
}

/// Checks whether a frame begins at `offset`. Reads the file through a window.
#[inline]
pub(in crate::segment) fn probe_frame(
    window: &mut FileWindow,
    deframer: &KindDeframer,
    header: &SegmentHeader,
    offset: u64,
) -> io::Result<FrameProbe> {
    let mut wanted = deframer.header_bytes();
    loop {
        let rest = window.at(offset, wanted)?;
        if rest.is_empty() {
            return Ok(FrameProbe::End);
        }
        match deframer.deframe(rest) {
            Ok(DeframeStatus::Frame(frame)) => {
                let (payload, bytes) = (frame.payload(), frame.bytes().len());
                return Ok(match payload_kind(header, payload) {
                    Ok(kind) => FrameProbe::Frame(FrameLocation { offset, bytes, kind, is_repaired: false }),
                    Err(what) => FrameProbe::Damaged(what),
                });
            }
            Ok(DeframeStatus::Incomplete { needed }) if rest.len() >= wanted && needed > wanted => {
                if offset.saturating_add(needed as u64) > window.file_bytes()? {
                    return Ok(FrameProbe::Damaged(BEYOND_FILE_END));
                }
                wanted = needed;
            }
            Ok(DeframeStatus::Incomplete { .. }) => return Ok(FrameProbe::Damaged(BEYOND_FILE_END)),
            Err(error) if error.is_checksum_mismatch() => {
                return Ok(FrameProbe::Damaged(CHECKSUM_MISMATCH));
            }
            Err(_) => return Ok(FrameProbe::Damaged("a frame longer than the limit")),
        }
    }
}

/// Returns the kind of a payload whose checksum is correct, or an error if the payload cannot
/// belong to this segment.
#[inline]
pub(in crate::segment) fn payload_kind(
    header: &SegmentHeader,
    payload: &[u8],
) -> Result<FrameKind, &'static str> {
    let kind = FrameKind::of(payload).ok_or("a frame too short for a segment")?;
    let is_possible = match kind {
        FrameKind::Telemetry => {
            SampleView::read(payload).is_some_and(|sample| header.source(sample.source).is_some())
        }
        FrameKind::Descriptor => {
            SourceInfo::decode(payload).is_some_and(|source| header.can_add_source(&source))
        }
        FrameKind::Gap => Gap::decode(payload).is_some_and(|gap| header.source(gap.source).is_some()),
        FrameKind::ClockSync => ClockSync::decode(payload).is_some(),
        FrameKind::Marker => Marker::decode(payload).is_some(),
        FrameKind::Attachment => Attachment::decode(payload).is_some(),
        FrameKind::Index => IndexFrame::decode(payload).is_some(),
        FrameKind::Header => {
            SegmentHeader::decode(payload).is_ok_and(|other| other.checksum == header.checksum)
        }
        FrameKind::Footer => Footer::decode(payload).is_ok(),
        FrameKind::Trailer => Trailer::decode(payload).is_some(),
        FrameKind::Unknown(identifier) => identifier.iter().all(u8::is_ascii_graphic),
    };
    if is_possible { Ok(kind) } else { Err("a frame whose content is malformed") }
}

/// Returns the end of the frame at `offset`, computed from the frame's length field.
pub(in crate::segment) fn declared_end(offset: u64, header_bytes: usize, head: &[u8]) -> Option<u64> {
    let length = head.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length))?;
    offset.checked_add(header_bytes as u64 + u64::from(length))
}
