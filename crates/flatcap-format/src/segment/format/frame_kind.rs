//! The kind and the location of a frame in a segment, and the content of a sample.

use flatcap_stream::HEADER_BYTES_MAX as HEAD_BYTES_MAX;

use crate::schema::envelope;
use crate::schema::frame::{FrameHeader, root_as_telemetry_frame};

/// Offset of the FlatBuffers identifier in a payload.
pub(in crate::segment) const IDENTIFIER_AT: usize = 4;
/// Minimum length of a payload in a segment, in bytes. Such a payload contains only the root offset
/// and the identifier. A shorter payload is treated as damage. Without this rule, zeros would be
/// read as a sequence of empty frames under most checksum kinds.
pub(in crate::segment) const PAYLOAD_BYTES_MIN: usize = 8;

/// Kind of a frame, which the identifier of the frame determines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// `FCSH`, the header.
    Header,
    /// `FCTF`, one sample.
    Telemetry,
    /// `FCSD`, the descriptor of a source that was added after the header was written.
    Descriptor,
    /// `FCGP`, a gap, that is, a range of samples that are known to be lost or thinned.
    Gap,
    /// `FCCS`, a new clock pairing.
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
    /// A frame with an identifier that this build does not know. Such frames are skipped and
    /// counted.
    Unknown([u8; 4]),
}

impl FrameKind {
    /// Returns the kind of a frame with this identifier.
    pub(in crate::segment) fn of_identifier(identifier: [u8; 4]) -> Self {
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

    /// Returns the kind of a payload, or `None` if the payload is too short to have an identifier.
    pub fn of(payload: &[u8]) -> Option<Self> {
        payload.get(IDENTIFIER_AT..)?.first_chunk().map(|identifier| Self::of_identifier(*identifier))
    }
}

/// Location and kind of a frame. The reader keeps the bytes of the frame until the reader advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLocation {
    /// Offset of the frame in the file.
    pub offset: u64,
    /// Length of the frame in bytes, including its header.
    pub bytes: usize,
    /// The frame's kind.
    pub kind: FrameKind,
    /// Whether the length field of the frame was damaged and the reader has repaired it. The
    /// checksum confirms the frame, although its length field in the file differs from the length
    /// that was written.
    pub is_repaired: bool,
}

/// A sample, decoded from its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleView<'a> {
    /// The source's id.
    pub source: u16,
    /// Sequence number of the sample.
    pub seq: u64,
    /// Time at which reading the source began, in monotonic nanoseconds.
    pub mono_ns: u64,
    /// Time at which reading the source began, in wall nanoseconds.
    pub wall_ns: i64,
    /// Flags of the frame.
    pub flags: u16,
    /// Duration of reading the source, in nanoseconds.
    pub duration_ns: u32,
    /// The FlatBuffer of the source.
    pub payload: &'a [u8],
}

impl<'a> SampleView<'a> {
    /// Reads the payload of a telemetry frame. Returns `None` if the verifier rejects the payload.
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
    pub(in crate::segment) fn new(header: &FrameHeader, payload: &'a [u8]) -> Self {
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

/// The bytes of a frame's header, which consists of the length and the stored checksum.
#[derive(Debug, Clone, Copy)]
pub struct RawFrameHeader {
    pub(in crate::segment) bytes: [u8; HEAD_BYTES_MAX],
    pub(in crate::segment) length: usize, // <= HEAD_BYTES_MAX
}

impl RawFrameHeader {
    /// Returns the bytes of the header.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl AsRef<[u8]> for RawFrameHeader {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}
