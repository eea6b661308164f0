//! How a file is framed, and its two ends: the header in front, the footer that the trailer points to.

use std::io;
use std::path::Path;

use super::error::SegmentError;
use super::footer::{Footer, Trailer};
use super::header::{HEADER_BYTES_MAX, Header, HeaderFault, PACKED_CHECKSUM, VERSION};
use super::header_copy;
use super::kind::{FrameKind, PAYLOAD_BYTES_MIN};
use super::packed_search::has_block;
use super::window::Window;
use crate::stream::{ChecksumKind, KindDeframer, LENGTH_BYTES, SliceDeframer, Step};

/// A header as it stands at a file's start.
pub(super) struct Front {
    pub(super) header: Header,
    /// The frames behind it are blocks.
    pub(super) announces_blocks: bool,
}

/// Both ends of a file, as far as they are intact, and what replaces them where both are damaged.
pub(super) struct Ends {
    pub(super) front: Option<Front>,
    /// The copy of the header within the file.
    pub(super) copy: Option<Header>,
    /// Without any of the others: blocks were found.
    has_blocks: bool,
    /// And where it stands.
    pub(super) footer: Option<(Footer, u64)>,
}

impl Ends {
    /// The header, by whatever has it.
    pub(super) fn header(&self) -> Option<&Header> {
        let front = self.front.as_ref().map(|front| &front.header);
        front.or(self.footer.as_ref().map(|(footer, _)| &footer.header)).or(self.copy.as_ref())
    }

    /// Whether the frames between them are blocks.
    pub(super) fn announce_blocks(&self) -> bool {
        self.has_blocks
            || self.front.as_ref().is_some_and(|front| front.announces_blocks)
            || self.footer.as_ref().is_some_and(|(footer, _)| !footer.blocks.is_empty())
    }
}

/// Finds both ends of a file. Its window is as new then.
pub(super) fn find_ends(path: &Path, window: &mut Window) -> Result<Ends, SegmentError> {
    let io_error = |error| SegmentError::Io { path: path.to_owned(), error };
    let file_bytes = window.file_bytes().map_err(io_error)?;
    if file_bytes == 0 {
        return Err(SegmentError::Empty { path: path.to_owned() });
    }
    let (front, refused) = match find_header(window, file_bytes, path)? {
        Ok(front) => (front, None),
        Err(error) => (None, Some(error)),
    };
    let kinds = match &front {
        Some(front) => &[front.header.checksum][..],
        None => ChecksumKind::ALL,
    };
    let mut footer = None;
    for kind in kinds {
        footer = footer.or(find_footer(window, file_bytes, *kind).map_err(io_error)?);
    }
    // A file may end with a payload that holds another segment's end.
    let footer =
        footer.filter(|(footer, _)| front.as_ref().is_none_or(|front| footer.header.is_of(&front.header)));
    let mut ends = Ends { front, footer, copy: None, has_blocks: false };
    if ends.header().is_none() {
        let mut aside = window.aside();
        ends.copy = header_copy::find(path, &mut aside).map_err(io_error)?;
        ends.has_blocks =
            ends.copy.is_none() && has_block(&mut aside, header_copy::SEARCH_BYTES_MAX).map_err(io_error)?;
    }
    if let Some(error) = refused.filter(|_| ends.header().is_none() && !ends.has_blocks) {
        return Err(error);
    }
    // Seen before the file grew by a footer: it is read again from the start.
    window.forget();
    Ok(ends)
}

/// The header at the file's start, if it is intact under any checksum. The inner error is one that no checksum proves: something
/// else may replace the header.
fn find_header(
    window: &mut Window,
    file_bytes: u64,
    path: &Path,
) -> Result<Result<Option<Front>, SegmentError>, SegmentError> {
    let io_error = |error| SegmentError::Io { path: path.to_owned(), error };
    let mut damaged = false;
    for &kind in ChecksumKind::ALL {
        let deframer = KindDeframer::new(kind).with_max_frame_len(HEADER_BYTES_MAX as usize);
        let least = deframer.header_bytes() + PAYLOAD_BYTES_MIN;
        let front = window.at(0, least).map_err(io_error)?;
        if front.get(least - 4..least) != Some(b"FCSH") {
            continue;
        }
        damaged = true;
        let Some(needed) = header_end(window, deframer, file_bytes).map_err(io_error)? else { continue };
        let whole = window.at(0, needed).map_err(io_error)?;
        let payload = whole.get(deframer.header_bytes()..needed).unwrap_or_default();
        match front_of(payload, kind, path) {
            Ok(None) => {}
            Err(error) if deframer.checksum_bytes() > 0 => return Err(error),
            front => return Ok(front),
        }
    }
    if damaged && find_any_footer(window, file_bytes).map_err(io_error)?.is_none() {
        return Ok(Err(SegmentError::BadHeader {
            path: path.to_owned(),
            what: "nothing that can be trusted: it is damaged or cut short, and neither a footer nor a copy replaces it",
        }));
    }
    Ok(Ok(None))
}

/// What the payload of a header's frame says, which has this checksum; none if it is damaged.
fn front_of(payload: &[u8], kind: ChecksumKind, path: &Path) -> Result<Option<Front>, SegmentError> {
    let path = || path.to_owned();
    let bad = |what| Err(SegmentError::BadHeader { path: path(), what });
    match Header::decode_front(payload) {
        // Without a checksum one flipped bit is enough.
        Ok((_, true)) if kind != PACKED_CHECKSUM => {
            bad("that it holds blocks, under another checksum than files of blocks have")
        }
        Ok((header, announces_blocks)) if header.checksum == kind => {
            Ok(Some(Front { header, announces_blocks }))
        }
        Ok(_) => bad("another checksum kind than its own frame has"),
        Err(HeaderFault::Version(version)) => {
            Err(SegmentError::FutureVersion { path: path(), version, known: VERSION })
        }
        Err(HeaderFault::Features(bits)) => Err(SegmentError::UnknownFeatures { path: path(), bits }),
        Err(HeaderFault::Says(what)) => bad(what),
        Err(HeaderFault::Malformed) => Ok(None),
    }
}

/// Where the frame at the file's start ends, if its checksum proves it: by its length, or by its length with one bit
/// flipped back, where another frame or nothing stands.
fn header_end(window: &mut Window, deframer: KindDeframer, file_bytes: u64) -> io::Result<Option<usize>> {
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
            let behind = window.at(needed as u64, wanted)?.get(header_bytes..wanted);
            if behind.and_then(FrameKind::of).is_none_or(|kind| matches!(kind, FrameKind::Unknown(_))) {
                continue;
            }
        }
        let payload = window.at(0, needed)?.get(header_bytes..needed).unwrap_or_default();
        if deframer.checksum_bytes() == 0 || deframer.is_proven(&head, payload) {
            return Ok(Some(needed));
        }
    }
    Ok(None)
}

fn find_any_footer(window: &mut Window, file_bytes: u64) -> io::Result<Option<(Footer, u64)>> {
    for kind in ChecksumKind::ALL {
        if let Some(footer) = find_footer(window, file_bytes, *kind)? {
            return Ok(Some(footer));
        }
    }
    Ok(None)
}

/// The footer in front of the trailer at the file's end, and where it stands, if both are intact under this checksum. That
/// is where the trailer points to, unless frames were removed or added: the trailer's word for its length is enough.
fn find_footer(
    window: &mut Window,
    file_bytes: u64,
    kind: ChecksumKind,
) -> io::Result<Option<(Footer, u64)>> {
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
    let Some(offset) = trailer_offset.checked_sub(footer_bytes as u64) else { return Ok(None) };
    let footer = match deframer.deframe(window.at(offset, footer_bytes)?) {
        Ok(Step::Frame(frame)) if FrameKind::of(frame.payload()) == Some(FrameKind::Footer) => {
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

/// The footer of a file, by two short reads at its end. None for one that is not sealed.
pub(super) fn footer_of(path: &Path) -> io::Result<Option<Footer>> {
    let mut window = Window::open(path)?.aside();
    let file_bytes = window.file_bytes()?;
    for kind in ChecksumKind::ALL {
        if let Some((footer, _)) = find_footer(&mut window, file_bytes, *kind)? {
            return Ok(Some(footer));
        }
    }
    Ok(None)
}
