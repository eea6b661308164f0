//! What stands at a place of a file: a frame that can belong to the segment, or why there is none.

use std::io;

use super::control::{Attachment, ClockSync, Gap, Marker};
use super::footer::{Footer, Trailer};
use super::header::{Header, SourceInfo};
use super::index::Index;
use super::kind::{FrameAt, FrameKind, Telemetry};
use super::window::Window;
use crate::stream::{KindDeframer, LENGTH_BYTES, SliceDeframer, Step};

/// Said of a frame that is not what was written.
pub(super) const WRONG: &str = "a frame whose checksum is wrong";
/// Said of a frame that is cut off, or still being written.
pub(super) const BEYOND: &str = "a frame that ends beyond the file";

/// What stands at a place.
pub(super) enum Found {
    Frame(FrameAt),
    End,
    Nothing(&'static str),
}

/// What stands at `offset`, through a window.
#[inline]
pub(super) fn examine_in(
    window: &mut Window,
    deframer: &KindDeframer,
    header: &Header,
    offset: u64,
) -> io::Result<Found> {
    let mut wanted = deframer.header_bytes();
    loop {
        let rest = window.at(offset, wanted)?;
        if rest.is_empty() {
            return Ok(Found::End);
        }
        match deframer.deframe(rest) {
            Ok(Step::Frame(frame)) => {
                let (payload, bytes) = (frame.payload(), frame.bytes().len());
                return Ok(match kind_of(header, payload) {
                    Ok(kind) => Found::Frame(FrameAt { offset, bytes, kind, is_repaired: false }),
                    Err(what) => Found::Nothing(what),
                });
            }
            Ok(Step::Incomplete { needed }) if rest.len() >= wanted && needed > wanted => {
                if offset.saturating_add(needed as u64) > window.file_bytes()? {
                    return Ok(Found::Nothing(BEYOND));
                }
                wanted = needed;
            }
            Ok(Step::Incomplete { .. }) => return Ok(Found::Nothing(BEYOND)),
            Err(error) if error.is_checksum_mismatch() => {
                return Ok(Found::Nothing(WRONG));
            }
            Err(_) => return Ok(Found::Nothing("a frame longer than the limit")),
        }
    }
}

/// The kind of a payload whose checksum is right, if it can belong to this segment.
#[inline]
pub(super) fn kind_of(header: &Header, payload: &[u8]) -> Result<FrameKind, &'static str> {
    let kind = FrameKind::of(payload).ok_or("a frame too short for a segment")?;
    let is_possible = match kind {
        FrameKind::Telemetry => {
            Telemetry::read(payload).is_some_and(|sample| header.source(sample.source).is_some())
        }
        FrameKind::Descriptor => {
            SourceInfo::decode(payload).is_some_and(|source| header.takes_source(&source))
        }
        FrameKind::Gap => Gap::decode(payload).is_some_and(|gap| header.source(gap.source).is_some()),
        FrameKind::ClockSync => ClockSync::decode(payload).is_some(),
        FrameKind::Marker => Marker::decode(payload).is_some(),
        FrameKind::Attachment => Attachment::decode(payload).is_some(),
        FrameKind::Index => Index::decode(payload).is_some(),
        FrameKind::Header => Header::decode(payload).is_ok_and(|other| other.checksum == header.checksum),
        FrameKind::Footer => Footer::decode(payload).is_ok(),
        FrameKind::Trailer => Trailer::decode(payload).is_some(),
        FrameKind::Unknown(identifier) => identifier.iter().all(u8::is_ascii_graphic),
    };
    if is_possible { Ok(kind) } else { Err("a frame whose content is malformed") }
}

/// Where the frame at `offset` ends by its own length.
pub(super) fn claimed_end(offset: u64, header_bytes: usize, head: &[u8]) -> Option<u64> {
    let length = head.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length))?;
    offset.checked_add(header_bytes as u64 + u64::from(length))
}
