//! Finds the header at the start of a file, and the footer before the trailer at the end of the
//! file. The header and the footer determine the checksum kind of the frames.

use std::io;
use std::path::Path;

use flatcap_stream::{ChecksumKind, DeframeStatus, KindDeframer, LENGTH_BYTES, SliceDeframer};

use super::block_search::has_block;
use super::file_window::FileWindow;
use super::header_copy::{self, HeaderCopy};
use crate::block::BlockFeatures;
use crate::segment::format::error::SegmentError;
use crate::segment::format::footer::{Footer, Trailer};
use crate::segment::format::frame_kind::{FrameKind, PAYLOAD_BYTES_MIN};
use crate::segment::format::header::{COMPRESSED_CHECKSUM, HeaderError, SegmentHeader, VERSION};
use crate::segment::format::payload_codec::HEADER_BYTES_MAX;

/// A header found at a file's start.
pub(in crate::segment) struct LeadingHeader {
    pub(in crate::segment) header: SegmentHeader,
    /// The features of the blocks after the header. Empty if the frames after the header are not
    /// blocks.
    pub(in crate::segment) features: BlockFeatures,
}

/// The header and the footer of a file, if they are intact. If both are damaged, a copy of the
/// header is used in their place.
pub(in crate::segment) struct HeaderAndFooter {
    pub(in crate::segment) leading: Option<LeadingHeader>,
    /// The copy of the header that was found within the file. The file is searched for this copy
    /// only if both the header and the footer are damaged.
    pub(in crate::segment) copy: Option<HeaderCopy>,
    /// Whether a search has found blocks, in a file whose header, footer and header copy are
    /// damaged or missing.
    found_blocks: bool,
    /// The footer and the footer's offset.
    pub(in crate::segment) footer: Option<(Footer, u64)>,
}

impl HeaderAndFooter {
    /// Creates the value for a segment with an intact header and an intact footer.
    pub(in crate::segment) fn new(leading: LeadingHeader, footer: (Footer, u64)) -> Self {
        Self { leading: Some(leading), copy: None, found_blocks: false, footer: Some(footer) }
    }

    /// Returns the header at the start of the file. If this header is damaged, returns the header
    /// in the footer, or the copy of the header.
    pub(in crate::segment) fn header(&self) -> Option<&SegmentHeader> {
        let leading = self.leading.as_ref().map(|leading| &leading.header);
        let footer = self.footer.as_ref().map(|(footer, _)| &footer.header);
        leading.or(footer).or(self.copy.as_ref().map(|copy| &copy.header))
    }

    /// Returns whether the frames between header and footer are blocks.
    pub(in crate::segment) fn holds_blocks(&self) -> bool {
        self.found_blocks
            || self.leading.as_ref().is_some_and(|leading| leading.features != BlockFeatures::NONE)
            || self.footer.as_ref().is_some_and(|(footer, _)| !footer.blocks.is_empty())
    }
}

/// Finds header and footer of a file. Afterwards the window is empty.
pub(in crate::segment) fn find_header_and_footer(
    path: &Path,
    window: &mut FileWindow,
) -> Result<HeaderAndFooter, SegmentError> {
    let io_error = |error| SegmentError::Io { path: path.to_owned(), error };
    let file_bytes = window.file_bytes().map_err(io_error)?;
    if file_bytes == 0 {
        return Err(SegmentError::Empty { path: path.to_owned() });
    }
    let (leading, refused) = match find_header(window, file_bytes, path)? {
        Ok(leading) => (leading, None),
        Err(error) => (None, Some(error)),
    };
    let kinds = match &leading {
        Some(leading) => &[leading.header.checksum][..],
        None => ChecksumKind::ALL,
    };
    let mut footer = None;
    for kind in kinds {
        footer = footer.or(find_footer(window, file_bytes, *kind).map_err(io_error)?);
    }
    // Check that the footer belongs to this segment, because a payload at the end of a file may
    // contain the end of another segment.
    let footer = footer.filter(|(footer, _)| {
        leading.as_ref().is_none_or(|leading| footer.header.is_same_segment(&leading.header))
    });
    let mut ends = HeaderAndFooter { leading, footer, copy: None, found_blocks: false };
    if ends.header().is_none() {
        let mut probe_window = window.probe_window();
        ends.copy = header_copy::find(path, &mut probe_window).map_err(io_error)?;
        ends.found_blocks = ends.copy.is_none()
            && has_block(&mut probe_window, header_copy::SEARCH_BYTES_MAX).map_err(io_error)?;
    }
    if let Some(error) = refused.filter(|_| ends.header().is_none() && !ends.found_blocks) {
        return Err(error);
    }
    // The file may have grown since it was read, so later calls read it again.
    window.forget();
    Ok(ends)
}

/// Finds the header at the file's start. Returns `None` if the header is damaged.
///
/// # Errors
/// `Io`.
pub(in crate::segment) fn find_leading_header(
    path: &Path,
    window: &mut FileWindow,
) -> Result<Option<LeadingHeader>, SegmentError> {
    let file_bytes =
        window.file_bytes().map_err(|error| SegmentError::Io { path: path.to_owned(), error })?;
    Ok(find_header(window, file_bytes, path)?.ok().flatten())
}

/// Finds the header at the file's start, if the header is intact under any checksum kind. The inner
/// error means that the header is damaged or has no checksum, so that a footer or a copy of the
/// header may replace it.
fn find_header(
    window: &mut FileWindow,
    file_bytes: u64,
    path: &Path,
) -> Result<Result<Option<LeadingHeader>, SegmentError>, SegmentError> {
    let io_error = |error| SegmentError::Io { path: path.to_owned(), error };
    let mut damaged = false;
    for &kind in ChecksumKind::ALL {
        let deframer = KindDeframer::new(kind).with_max_frame_len(HEADER_BYTES_MAX as usize);
        let least = deframer.header_bytes() + PAYLOAD_BYTES_MIN;
        let start = window.at(0, least).map_err(io_error)?;
        if start.get(least - 4..least) != Some(b"FCSH") {
            continue;
        }
        damaged = true;
        let Some(needed) = header_end(window, deframer, file_bytes).map_err(io_error)? else { continue };
        let whole = window.at(0, needed).map_err(io_error)?;
        let payload = whole.get(deframer.header_bytes()..needed).unwrap_or_default();
        match parse_leading_header(payload, kind, path) {
            Ok(None) => {}
            Err(error) if deframer.checksum_bytes() > 0 => return Err(error),
            front => return Ok(front),
        }
    }
    if damaged && find_any_footer(window, file_bytes).map_err(io_error)?.is_none() {
        return Ok(Err(SegmentError::BadHeader {
            path: path.to_owned(),
            what: "damaged or cut short, and neither a footer nor a copy of the header was found",
        }));
    }
    Ok(Ok(None))
}

/// Reads the payload of a header frame with this checksum kind. Returns `None` if the payload is
/// damaged.
fn parse_leading_header(
    payload: &[u8],
    kind: ChecksumKind,
    path: &Path,
) -> Result<Option<LeadingHeader>, SegmentError> {
    let path = || path.to_owned();
    let bad = |what| Err(SegmentError::BadHeader { path: path(), what });
    match SegmentHeader::decode_first(payload) {
        // If the header has no checksum, one flipped bit is enough to reach this branch.
        Ok((_, features)) if features != BlockFeatures::NONE && kind != COMPRESSED_CHECKSUM => {
            bad("it announces blocks, but its checksum is not that of compressed segments")
        }
        Ok((header, features)) if header.checksum == kind => Ok(Some(LeadingHeader { header, features })),
        Ok(_) => bad("its checksum kind is not that of its own frame"),
        Err(HeaderError::Version(version)) => {
            Err(SegmentError::FutureVersion { path: path(), version, known: VERSION })
        }
        Err(HeaderError::Features(bits)) => Err(SegmentError::UnknownFeatures { path: path(), bits }),
        Err(HeaderError::Invalid(what)) => bad(what),
        Err(HeaderError::Malformed) => Ok(None),
    }
}

/// Returns the end of the frame at the file's start if the frame's checksum proves this end. The
/// frame has the stored length, or the stored length with one bit flipped back. A length with a bit
/// flipped back is accepted only if a frame of a known kind or the end of the file follows.
fn header_end(window: &mut FileWindow, deframer: KindDeframer, file_bytes: u64) -> io::Result<Option<usize>> {
    let header_bytes = deframer.header_bytes();
    let head = window.at(0, header_bytes)?.get(..header_bytes).unwrap_or_default().to_vec();
    let Some(stored) = head.first_chunk::<LENGTH_BYTES>().map(|stored| u32::from_le_bytes(*stored)) else {
        return Ok(None);
    };
    let flips = if deframer.checksum_bytes() == 0 { 0 } else { u32::BITS };
    for flip in std::iter::once(0).chain((0..flips).map(|bit| 1 << bit)) {
        let length = stored ^ flip;
        let needed = header_bytes + length as usize;
        if length > HEADER_BYTES_MAX || needed as u64 > file_bytes {
            continue;
        }
        if flip != 0 && (needed as u64) < file_bytes {
            let wanted = header_bytes + PAYLOAD_BYTES_MIN;
            let next = window.at(needed as u64, wanted)?.get(header_bytes..wanted);
            if next.and_then(FrameKind::of).is_none_or(|kind| matches!(kind, FrameKind::Unknown(_))) {
                continue;
            }
        }
        let payload = window.at(0, needed)?.get(header_bytes..needed).unwrap_or_default();
        if deframer.checksum_bytes() == 0 || deframer.checksum_matches(&head, payload) {
            return Ok(Some(needed));
        }
    }
    Ok(None)
}

fn find_any_footer(window: &mut FileWindow, file_bytes: u64) -> io::Result<Option<(Footer, u64)>> {
    for kind in ChecksumKind::ALL {
        if let Some(footer) = find_footer(window, file_bytes, *kind)? {
            return Ok(Some(footer));
        }
    }
    Ok(None)
}

/// Returns the footer before the trailer at the end of the file, and the footer's offset. Both
/// frames must be intact under this checksum kind. This function uses the footer's length from the
/// trailer but not the footer's offset, because the offset is wrong if frames were removed or
/// added.
fn find_footer(
    window: &mut FileWindow,
    file_bytes: u64,
    kind: ChecksumKind,
) -> io::Result<Option<(Footer, u64)>> {
    let deframer = KindDeframer::new(kind).with_max_frame_len(HEADER_BYTES_MAX as usize);
    let trailer_bytes = kind.frame_bytes(Trailer::PAYLOAD_BYTES);
    let Some(trailer_offset) = file_bytes.checked_sub(trailer_bytes as u64) else { return Ok(None) };
    let trailer = match deframer.deframe(window.at(trailer_offset, trailer_bytes)?) {
        Ok(DeframeStatus::Frame(frame)) if FrameKind::of(frame.payload()) == Some(FrameKind::Trailer) => {
            Trailer::decode(frame.payload())
        }
        _ => None,
    };
    let Some(trailer) = trailer.filter(|trailer| trailer.footer_length <= HEADER_BYTES_MAX) else {
        return Ok(None);
    };
    let footer_bytes = kind.frame_bytes(trailer.footer_length as usize);
    let Some(offset) = trailer_offset.checked_sub(footer_bytes as u64) else { return Ok(None) };
    let footer = match deframer.deframe(window.at(offset, footer_bytes)?) {
        Ok(DeframeStatus::Frame(frame)) if FrameKind::of(frame.payload()) == Some(FrameKind::Footer) => {
            Footer::decode(frame.payload()).ok()
        }
        _ => None,
    };
    Ok(footer
        .filter(|footer| {
            let header = &footer.header;
            (header.checksum, header.run_id, header.segment) == (kind, trailer.run_id, trailer.segment)
                && footer.bytes == trailer.footer_offset
        })
        .map(|footer| (footer, offset)))
}

/// Reads the footer of a file with two short reads at the end of the file. Returns `None` if the
/// file is not sealed.
pub(in crate::segment) fn read_footer(path: &Path) -> io::Result<Option<Footer>> {
    let mut window = FileWindow::open(path)?.probe_window();
    let file_bytes = window.file_bytes()?;
    for kind in ChecksumKind::ALL {
        if let Some((footer, _)) = find_footer(&mut window, file_bytes, *kind)? {
            return Ok(Some(footer));
        }
    }
    Ok(None)
}
