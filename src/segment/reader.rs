//! One segment, frame by frame, reading on behind damage.

use std::io;
use std::path::{Path, PathBuf};

use super::control::{Footer, Gap, Trailer};
use super::error::SegmentError;
use super::header::{HEADER_BYTES_MAX, Header, HeaderFault, VERSION};
use super::window::Window;
use crate::schema::frame::root_as_telemetry_frame;
use crate::stream::{ChecksumKind, Frame, KindDeframer, LENGTH_BYTES, SliceDeframer, Step};

/// Shortest payload of a segment: root offset and identifier. Under most checksums a run of zeros is a row of empty
/// frames, so a shorter payload is damage.
const PAYLOAD_BYTES_MIN: usize = 8;
/// Where a FlatBuffer's identifier stands in its payload.
const IDENTIFIER_AT: usize = 4;
/// How much is searched at once for the next intact frame.
const SEARCH_BYTES: usize = 64 << 10;
/// Bytes that one search may hash beyond those it passes: bounds the work on hostile input, where landmarks stand
/// everywhere and claim long frames.
const SEARCH_HASHED_BYTES_MAX: u64 = 256 << 20;

/// What a frame is, by its identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// `FCSH`, the header.
    Header,
    /// `FCTF`, one sample.
    Telemetry,
    /// `FCGP`, a known loss.
    Gap,
    /// `FCFT`, the footer.
    Footer,
    /// `FCTR`, the trailer.
    Trailer,
    /// An identifier this build does not know: skipped and counted.
    Unknown([u8; 4]),
}

impl FrameKind {
    fn of(payload: &[u8]) -> Option<Self> {
        let identifier = payload.get(IDENTIFIER_AT..PAYLOAD_BYTES_MIN)?;
        Some(match identifier {
            b"FCSH" => Self::Header,
            b"FCTF" => Self::Telemetry,
            b"FCGP" => Self::Gap,
            b"FCFT" => Self::Footer,
            b"FCTR" => Self::Trailer,
            other => Self::Unknown(other.try_into().ok()?),
        })
    }
}

/// Where a frame stands. Its bytes are the reader's until it advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameAt {
    /// Offset in the file.
    pub offset: u64,
    /// Length with header.
    pub bytes: usize,
    /// What it is.
    pub kind: FrameKind,
}

/// Bytes that are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// How many bytes, up to the next intact frame or the end.
    pub length: u64,
    /// What is wrong, in a few words.
    pub what: &'static str,
}

/// What stands next in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// An intact frame.
    Frame(FrameAt),
    /// A hole; reading goes on behind it.
    Damage(Damage),
}

/// A sample, as it stands in its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Telemetry<'a> {
    /// The source's id.
    pub source: u16,
    /// Number of the reading.
    pub seq: u64,
    /// Begin of the reading, in monotonic nanoseconds.
    pub mono_ns: u64,
    /// Begin of the reading, in wall nanoseconds.
    pub wall_ns: i64,
    /// Flags of the frame.
    pub flags: u16,
    /// How long the reading took, in nanoseconds.
    pub duration_ns: u32,
    /// The source's own FlatBuffer.
    pub payload: &'a [u8],
}

impl<'a> Telemetry<'a> {
    /// Reads a telemetry frame's payload; none if the verifier refuses it.
    pub fn read(payload: &'a [u8]) -> Option<Self> {
        let frame = root_as_telemetry_frame(payload).ok()?;
        let header = frame.header();
        Some(Self {
            source: header.source(),
            seq: header.seq(),
            mono_ns: header.mono_ns(),
            wall_ns: header.wall_ns(),
            flags: header.flags(),
            duration_ns: header.duration_ns(),
            payload: frame.payload().bytes(),
        })
    }
}

/// Reads one segment, sealed or not, from its header on. Takes memory for one frame.
#[derive(Debug)]
pub struct SegmentReader {
    path: PathBuf,
    window: Window,
    header: Header,
    deframer: KindDeframer,
    footer: Option<Footer>,
    offset: u64,
    tail: Option<Damage>,
}

impl SegmentReader {
    /// Opens a file and finds out how it is framed: by its header, or by the footer where the header is damaged.
    ///
    /// # Errors
    /// Every kind of [`SegmentError`].
    pub fn open(path: &Path) -> Result<Self, SegmentError> {
        let io_error = |error| SegmentError::Io { path: path.to_owned(), error };
        let mut window = Window::open(path).map_err(io_error)?;
        let file_bytes = window.file_bytes().map_err(io_error)?;
        if file_bytes == 0 {
            return Err(SegmentError::Empty { path: path.to_owned() });
        }
        let front = find_header(&mut window, file_bytes, path)?;
        let kinds = match &front {
            Some(header) => &[header.checksum][..],
            None => ChecksumKind::ALL,
        };
        let mut footer = None;
        for kind in kinds {
            footer = footer.or(find_footer(&mut window, file_bytes, *kind).map_err(io_error)?);
        }
        // Seen before the file grew by a footer: it is read again from the start.
        window.forget();
        let header = front.or_else(|| footer.as_ref().map(|footer| footer.header.clone()));
        let header = header.ok_or_else(|| SegmentError::NotASegment { path: path.to_owned() })?;
        let deframer = KindDeframer::new(header.checksum)
            .with_max_frame_len(header.frame_max.max(HEADER_BYTES_MAX) as usize);
        Ok(Self { path: path.to_owned(), window, header, deframer, footer, offset: 0, tail: None })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The footer of a sealed segment.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// Whether it has footer and trailer.
    pub fn is_sealed(&self) -> bool {
        self.footer.is_some()
    }

    /// Offset of what comes next.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What follows the last frame of an unsealed segment once [`advance`](Self::advance) has said that there is
    /// nothing more: a write in progress, or one that was cut off.
    pub fn tail(&self) -> Option<Damage> {
        self.tail
    }

    /// The next frame or hole; none at the end. For an unsealed segment the question may be asked again when it has
    /// grown.
    ///
    /// # Errors
    /// `Io`.
    pub fn advance(&mut self) -> Result<Option<Advance>, SegmentError> {
        self.try_advance().map_err(|error| SegmentError::Io { path: self.path.clone(), error })
    }

    /// A frame's bytes, with its header. Empty once the reader has advanced.
    pub fn bytes(&self, at: FrameAt) -> &[u8] {
        self.window.cached(at.offset).get(..at.bytes).unwrap_or_default()
    }

    /// A frame's payload. Empty once the reader has advanced.
    pub fn payload(&self, at: FrameAt) -> &[u8] {
        self.bytes(at).get(self.deframer.header_bytes()..).unwrap_or_default()
    }

    /// A telemetry frame's content. None once the reader has advanced, or if it is none.
    pub fn telemetry(&self, at: FrameAt) -> Option<Telemetry<'_>> {
        Telemetry::read(self.payload(at))
    }

    fn try_advance(&mut self) -> io::Result<Option<Advance>> {
        self.tail = None;
        let what = match self.examine(self.offset)? {
            Found::Frame(at) => {
                self.offset += at.bytes as u64;
                if at.kind == FrameKind::Header
                    && let Ok(header) = Header::decode(self.payload(at))
                {
                    // A replay of several runs is one stream: each begins with its own header.
                    self.header = header;
                }
                return Ok(Some(Advance::Frame(at)));
            }
            Found::End => return Ok(None),
            Found::Nothing(what) => what,
        };
        let next = self.search(self.offset + 1)?;
        let end = match next {
            Some(next) => next,
            None => self.window.file_bytes()?.max(self.offset),
        };
        let damage = Damage { offset: self.offset, length: end - self.offset, what };
        if next.is_none() && self.footer.is_none() {
            // Nothing intact follows and nothing says that the file is complete. Seen again when it has grown.
            self.window.forget();
            self.tail = Some(damage);
            return Ok(None);
        }
        self.offset = end;
        Ok(Some(Advance::Damage(damage)))
    }

    /// What stands at `offset`.
    fn examine(&mut self, offset: u64) -> io::Result<Found> {
        let mut wanted = self.deframer.header_bytes();
        loop {
            let rest = self.window.at(offset, wanted)?;
            if rest.is_empty() {
                return Ok(Found::End);
            }
            match self.deframer.deframe(rest) {
                Ok(Step::Frame(frame)) => return Ok(found(&self.header, offset, frame)),
                Ok(Step::Incomplete { needed }) if rest.len() >= wanted && needed > wanted => {
                    if offset.saturating_add(needed as u64) > self.window.file_bytes()? {
                        return Ok(Found::Nothing("a frame that ends beyond the file"));
                    }
                    wanted = needed;
                }
                Ok(Step::Incomplete { .. }) => {
                    return Ok(Found::Nothing("a frame that ends beyond the file"));
                }
                Err(error) if error.is_checksum_mismatch() => {
                    return Ok(Found::Nothing("a frame whose checksum is wrong"));
                }
                Err(_) => return Ok(Found::Nothing("a frame longer than the limit")),
            }
        }
    }

    /// Offset of the next intact frame from `from` on.
    fn search(&mut self, mut from: u64) -> io::Result<Option<u64>> {
        let header_bytes = self.deframer.header_bytes();
        let mut hashable = SEARCH_HASHED_BYTES_MAX;
        loop {
            let stretch = self.window.at(from, SEARCH_BYTES)?;
            if stretch.len() < header_bytes + PAYLOAD_BYTES_MIN {
                return Ok(None);
            }
            let Some((at, claimed)) = find_landmark(stretch, header_bytes) else {
                from += (stretch.len() - header_bytes - PAYLOAD_BYTES_MIN + 1) as u64;
                continue;
            };
            let candidate = from + at as u64;
            if u64::from(claimed) <= hashable {
                hashable -= u64::from(claimed);
                if matches!(self.examine(candidate)?, Found::Frame(_)) {
                    return Ok(Some(candidate));
                }
            }
            from = candidate + 1;
        }
    }
}

enum Found {
    Frame(FrameAt),
    End,
    Nothing(&'static str),
}

/// Takes a frame whose checksum is right, if it can belong to this segment: an inner frame of a payload, or one
/// that no checksum protects, is not believed for its framing alone.
fn found(header: &Header, offset: u64, frame: Frame<'_>) -> Found {
    let payload = frame.payload();
    let Some(kind) = FrameKind::of(payload) else {
        return Found::Nothing("a frame too short for a segment");
    };
    let possible = match kind {
        FrameKind::Telemetry => {
            Telemetry::read(payload).is_some_and(|sample| header.source(sample.source).is_some())
        }
        FrameKind::Gap => Gap::decode(payload).is_some_and(|gap| header.source(gap.source).is_some()),
        FrameKind::Header => Header::decode(payload).is_ok_and(|other| other.checksum == header.checksum),
        FrameKind::Footer => Footer::decode(payload).is_ok(),
        FrameKind::Trailer => Trailer::decode(payload).is_some(),
        FrameKind::Unknown(identifier) => identifier.iter().all(u8::is_ascii_graphic),
    };
    if possible {
        Found::Frame(FrameAt { offset, bytes: frame.bytes().len(), kind })
    } else {
        Found::Nothing("a frame whose content is malformed")
    }
}

/// Where in `stretch` a frame may start whose payload has one of our identifiers, and the length it claims.
fn find_landmark(stretch: &[u8], header_bytes: usize) -> Option<(usize, u32)> {
    let identifier_at = header_bytes + IDENTIFIER_AT;
    stretch.windows(header_bytes + PAYLOAD_BYTES_MIN).enumerate().find_map(|(at, frame)| {
        let identifier = frame.get(identifier_at..)?;
        if !matches!(identifier, b"FCTF" | b"FCGP" | b"FCFT" | b"FCTR" | b"FCSH") {
            return None;
        }
        let length = frame.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length))?;
        Some((at, length))
    })
}

/// The header at the file's start, if it is intact under any checksum.
fn find_header(window: &mut Window, file_bytes: u64, path: &Path) -> Result<Option<Header>, SegmentError> {
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
fn find_footer(window: &mut Window, file_bytes: u64, kind: ChecksumKind) -> io::Result<Option<Footer>> {
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
