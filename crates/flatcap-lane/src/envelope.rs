//! The fixed layout of the envelope, which is the part of a telemetry frame's payload before the
//! source's payload (docs/FORMAT.md, "Telemetry frame"). Segments and lanes share this module, so
//! it uses no generated code.

// The layout. Each offset is the previous offset plus a size.
const ROOT: usize = 0; // u32: offset of the table
const IDENTIFIER: usize = ROOT + 4; // "FCTF"
const PADDING: usize = IDENTIFIER + 4; // 4 zero bytes, so that the header struct is 8-byte aligned
const VTABLE: usize = PADDING + 4; // u16 x 4: its size, the table's size, offsets of the two fields
const TABLE: usize = VTABLE + 8; // i32: back to the vtable
/// Offset of the `FrameHeader`.
pub const HEADER_AT: usize = TABLE + 4;
const PAYLOAD_OFFSET: usize = HEADER_AT + HEADER_BYTES; // u32: offset of the vector
/// Offset of the length of the source's payload, a u32.
pub const PAYLOAD_LENGTH_AT: usize = PAYLOAD_OFFSET + 4;
/// Number of bytes before the source's payload in each telemetry frame.
pub const ENVELOPE_BYTES: usize = PAYLOAD_LENGTH_AT + 4;
/// Length of the `FrameHeader`, in bytes.
pub const HEADER_BYTES: usize = 32;
/// The defined flags of a telemetry frame.
pub(crate) const KNOWN_FLAGS: u16 = 0x3F;

// The format is frozen. The header has fields of 64 bits, for which FlatBuffers requires an offset
// that is a multiple of 8.
const _: () = assert!(HEADER_AT.is_multiple_of(8) && ENVELOPE_BYTES == 64);

/// An envelope with a zero header and a zero payload length.
pub const PREFIX: [u8; ENVELOPE_BYTES] = prefix();

#[allow(clippy::cast_possible_truncation, reason = "offsets within ENVELOPE_BYTES")]
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler, which would refuse it")]
const fn prefix() -> [u8; ENVELOPE_BYTES] {
    let mut bytes = [0; ENVELOPE_BYTES];
    bytes[ROOT] = (TABLE - ROOT) as u8;
    // A `for` loop is not allowed in a `const fn`.
    let mut at = 0;
    while at < 4 {
        bytes[IDENTIFIER + at] = b"FCTF"[at];
        at += 1;
    }
    bytes[VTABLE] = (TABLE - VTABLE) as u8;
    // The table ends after the offset of the vector, so the length of the vector is not a part of
    // the table.
    bytes[VTABLE + 2] = (PAYLOAD_LENGTH_AT - TABLE) as u8;
    bytes[VTABLE + 4] = (HEADER_AT - TABLE) as u8;
    bytes[VTABLE + 6] = (PAYLOAD_OFFSET - TABLE) as u8;
    bytes[TABLE] = (TABLE - VTABLE) as u8;
    bytes[PAYLOAD_OFFSET] = (PAYLOAD_LENGTH_AT - PAYLOAD_OFFSET) as u8;
    bytes
}

/// The parts of a telemetry frame's payload. The parts are the header's bytes, and the source's
/// payload after the envelope.
#[derive(Debug, Clone, Copy)]
pub struct EnvelopeParts<'a> {
    /// The `FrameHeader`.
    pub header: &'a [u8; HEADER_BYTES],
    /// The source's payload.
    pub body: &'a [u8],
}

/// Splits a telemetry frame's payload. Returns `None` if the payload does not have exactly this
/// layout. Payloads with another layout may also be valid, but only the FlatBuffers verifier can
/// check them.
#[inline]
pub fn split(payload: &[u8]) -> Option<EnvelopeParts<'_>> {
    let (envelope, body) = payload.split_first_chunk::<ENVELOPE_BYTES>()?;
    let (front, rest) = envelope.split_first_chunk::<HEADER_AT>()?;
    let (header, rest) = rest.split_first_chunk::<HEADER_BYTES>()?;
    let (offset, length) = rest.split_first_chunk::<4>()?;
    let (shape_front, shape_rest) = PREFIX.split_first_chunk::<HEADER_AT>()?;
    let shape_offset = shape_rest.get(HEADER_BYTES..)?.first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length.first_chunk()?);
    // The header is not compared, because its fields are plain numbers without invalid bits. The
    // length must be exact, because otherwise the bytes after the vector would be dropped.
    let is_so = front == shape_front && offset == shape_offset && length as usize == body.len();
    is_so.then_some(EnvelopeParts { header, body })
}

/// The `FrameHeader` of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleHeader {
    /// `CLOCK_MONOTONIC` time at which the sample began, in nanoseconds.
    pub mono_ns: u64,
    /// UTC time at which the sample began, in nanoseconds since 1970.
    pub wall_ns: i64,
    /// The sample's number.
    pub seq: u64,
    /// The source's id.
    pub source: u16,
    /// The flags. The flags state whether the sample is incomplete, and why.
    pub flags: u16,
    /// Time that it took to read the source, in nanoseconds.
    pub duration_ns: u32,
}

impl SampleHeader {
    /// Reads a header.
    #[inline]
    pub fn parse(header: &[u8; HEADER_BYTES]) -> Self {
        let word =
            |index: usize| header.as_chunks::<8>().0.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        let last = word(3);
        #[allow(clippy::cast_possible_truncation, reason = "the fields of the word, by their widths")]
        let (source, flags, duration_ns) = (last as u16, (last >> 16) as u16, (last >> 32) as u32);
        Self { mono_ns: word(0), wall_ns: word(1).cast_signed(), seq: word(2), source, flags, duration_ns }
    }

    /// Writes the envelope of a sample with a payload of `payload_bytes` bytes. The envelope is
    /// written in words of eight bytes, because the checksum then reads words of this size. A
    /// processor stalls if it reads a larger word than it has just written.
    #[inline]
    pub fn write_envelope(&self, envelope: &mut [u8; ENVELOPE_BYTES], payload_bytes: u32) {
        let shape = PREFIX.as_chunks::<8>().0;
        let [front, vtable, table, .., vector] = shape else { return };
        let last = u64::from(self.source) | u64::from(self.flags) << 16 | u64::from(self.duration_ns) << 32;
        let vector = u64::from_le_bytes(*vector) | u64::from(payload_bytes) << 32;
        let words = [
            *front,
            *vtable,
            *table,
            self.mono_ns.to_le_bytes(),
            self.wall_ns.to_le_bytes(),
            self.seq.to_le_bytes(),
            last.to_le_bytes(),
            vector.to_le_bytes(),
        ];
        for (place, word) in envelope.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word;
        }
    }
}
