//! How a file is framed, and its two ends: the header in front, the footer that the trailer points to.

use std::io;
use std::path::Path;

use super::error::SegmentError;
use super::footer::{Footer, Trailer};
use super::header::{HEADER_BYTES_MAX, Header, HeaderFault, VERSION};
use super::kind::{FrameKind, PAYLOAD_BYTES_MIN};
use super::window::Window;
use crate::stream::{ChecksumKind, KindDeframer, SliceDeframer, Step};

/// The header at the file's start, if it is intact under any checksum.
pub(super) fn find_header(
    window: &mut Window,
    file_bytes: u64,
    path: &Path,
) -> Result<Option<Header>, SegmentError> {
    let path = || path.to_owned();
    let io_error = |error| SegmentError::Io { path: path(), error };
    let mut damaged = false;
    for &kind in ChecksumKind::ALL {
        let deframer = KindDeframer::new(kind).with_max_frame_len(HEADER_BYTES_MAX as usize);
        let least = deframer.header_bytes() + PAYLOAD_BYTES_MIN;
        let front = window.at(0, least).map_err(io_error)?;
        if front.get(least - 4..least) != Some(b"FCSH") {
            continue;
        }
        damaged = true;
        let Ok(step) = deframer.deframe(front) else { continue };
        let needed = match step {
            Step::Frame(frame) => frame.bytes().len(),
            Step::Incomplete { needed } => needed,
        };
        if needed as u64 > file_bytes {
            continue;
        }
        let Ok(Step::Frame(frame)) = deframer.deframe(window.at(0, needed).map_err(io_error)?) else {
            continue;
        };
        match Header::decode(frame.payload()) {
            Ok(header) if header.checksum == kind => return Ok(Some(header)),
            Ok(_) => {
                return Err(SegmentError::BadHeader {
                    path: path(),
                    what: "another checksum kind than its own frame has",
                });
            }
            Err(HeaderFault::Version(version)) => {
                return Err(SegmentError::FutureVersion { path: path(), version, known: VERSION });
            }
            Err(HeaderFault::Features(bits)) => {
                return Err(SegmentError::UnknownFeatures { path: path(), bits });
            }
            Err(HeaderFault::Says(what)) => return Err(SegmentError::BadHeader { path: path(), what }),
            Err(HeaderFault::Malformed) => {}
        }
    }
    if damaged && find_any_footer(window, file_bytes).map_err(io_error)?.is_none() {
        return Err(SegmentError::BadHeader {
            path: path(),
            what: "nothing that can be trusted: it is damaged or cut short, and there is no footer to replace it",
        });
    }
    Ok(None)
}

fn find_any_footer(window: &mut Window, file_bytes: u64) -> io::Result<Option<Footer>> {
    for kind in ChecksumKind::ALL {
        if let Some(footer) = find_footer(window, file_bytes, *kind)? {
            return Ok(Some(footer));
        }
    }
    Ok(None)
}

/// The footer that the trailer at the file's end points to, if both are intact under this checksum.
pub(super) fn find_footer(
    window: &mut Window,
    file_bytes: u64,
    kind: ChecksumKind,
) -> io::Result<Option<Footer>> {
    let deframer = KindDeframer::new(kind).with_max_frame_len(HEADER_BYTES_MAX as usize);
    let trailer_bytes = kind.frame_bytes(Trailer::PAYLOAD_BYTES);
    let Some(trailer_offset) = file_bytes.checked_sub(trailer_bytes as u64) else { return Ok(None) };
    let trailer = match deframer.deframe(window.at(trailer_offset, trailer_bytes)?) {
        Ok(Step::Frame(frame)) if FrameKind::of(frame.payload()) == Some(FrameKind::Trailer) => {
            Trailer::decode(frame.payload())
        }
        _ => None,
    };
    let Some(trailer) = trailer.filter(|trailer| trailer.footer_length <= HEADER_BYTES_MAX) else {
        return Ok(None);
    };
    let footer_bytes = kind.frame_bytes(trailer.footer_length as usize);
    if trailer.footer_offset.checked_add(footer_bytes as u64) != Some(trailer_offset) {
        return Ok(None);
    }
    Ok(match deframer.deframe(window.at(trailer.footer_offset, footer_bytes)?) {
        Ok(Step::Frame(frame)) if FrameKind::of(frame.payload()) == Some(FrameKind::Footer) => {
            Footer::decode(frame.payload()).ok().filter(|footer| footer.header.checksum == kind)
        }
        _ => None,
    })
}
