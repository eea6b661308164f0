//! What a frame in a segment is, where it stands, and what a sample says.

use crate::schema::envelope;
use crate::schema::frame::{FrameHeader, root_as_telemetry_frame};
use crate::stream::HEADER_BYTES_MAX as HEAD_BYTES_MAX;

/// Where a FlatBuffer's identifier stands in its payload.
pub(super) const IDENTIFIER_AT: usize = 4;
/// Shortest payload of a segment: root offset and identifier. Under most checksums a run of zeros is a row of empty
/// frames, so a shorter payload is damage.
pub(super) const PAYLOAD_BYTES_MIN: usize = 8;

/// What a frame is, by its identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// `FCSH`, the header.
    Header,
    /// `FCTF`, one sample.
    Telemetry,
    /// `FCSD`, a source that appeared after the header was written.
    Descriptor,
    /// `FCGP`, a known loss.
    Gap,
    /// `FCCS`, a new pairing of the clocks.
    ClockSync,
    /// `FCMK`, a note at a point in time.
    Marker,
    /// `FCAT`, a named file.
    Attachment,
    /// `FCIX`, the end of an interval.
    Index,
    /// `FCFT`, the footer.
    Footer,
    /// `FCTR`, the trailer.
    Trailer,
    /// An identifier this build does not know: skipped and counted.
    Unknown([u8; 4]),
}

impl FrameKind {
    /// The kind that these four bytes identify.
    pub(super) fn of_identifier(identifier: [u8; 4]) -> Self {
        match &identifier {
            b"FCSH" => Self::Header,
            b"FCTF" => Self::Telemetry,
            b"FCSD" => Self::Descriptor,
            b"FCGP" => Self::Gap,
            b"FCCS" => Self::ClockSync,
            b"FCMK" => Self::Marker,
            b"FCAT" => Self::Attachment,
            b"FCIX" => Self::Index,
            b"FCFT" => Self::Footer,
            b"FCTR" => Self::Trailer,
            _ => Self::Unknown(identifier),
        }
    }

    /// The kind of a payload; none for one too short to have an identifier.
    pub(super) fn of(payload: &[u8]) -> Option<Self> {
        payload.get(IDENTIFIER_AT..)?.first_chunk().map(|identifier| Self::of_identifier(*identifier))
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
    /// Its length was damaged, and is known again: its checksum proves it. The first four bytes are not what was written.
    pub is_repaired: bool,
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
    #[inline]
    pub fn read(payload: &'a [u8]) -> Option<Self> {
        match envelope::split(payload) {
            Some((header, body)) => Some(Self::new(&header, body)),
            None => Self::read_verified(payload),
        }
    }

    #[cold]
    fn read_verified(payload: &'a [u8]) -> Option<Self> {
        let frame = root_as_telemetry_frame(payload).ok()?;
        Some(Self::new(frame.header(), frame.payload().bytes()))
    }

    #[inline]
    pub(super) fn new(header: &FrameHeader, payload: &'a [u8]) -> Self {
        Self {
            source: header.source(),
            seq: header.seq(),
            mono_ns: header.mono_ns(),
            wall_ns: header.wall_ns(),
            flags: header.flags(),
            duration_ns: header.duration_ns(),
            payload,
        }
    }
}

/// A frame's header: length and stored checksum.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    pub(super) bytes: [u8; HEAD_BYTES_MAX],
    pub(super) length: usize, // <= HEAD_BYTES_MAX
}

impl Head {
    /// Its bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Head {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}
