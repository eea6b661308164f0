//! The fixed layout of a telemetry frame's payload before the source's own payload (docs/FORMAT.md,
//! "Telemetry frame").
//!
//! It is a prefix of fixed size because the code that flatc generates for Rust cannot align a byte
//! vector (it ignores `force_align`) and would copy the payload once more. Writers fill it in;
//! readers compare it and need no verifier if it is equal.

use super::frame::FrameHeader;

// The layout. Each offset is the previous one plus a size.
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
/// Bytes before the source's payload in each telemetry frame.
pub const ENVELOPE_BYTES: usize = PAYLOAD_LENGTH_AT + 4;
/// Bytes of the `FrameHeader`.
pub const HEADER_BYTES: usize = size_of::<FrameHeader>();

// The format is frozen, so a changed `FrameHeader` must not compile. It has fields of 64 bits, for
// which FlatBuffers requires an offset that is a multiple of 8.
const _: () = assert!(HEADER_BYTES == 32);
const _: () = assert!(HEADER_AT.is_multiple_of(8) && ENVELOPE_BYTES == 64);

/// An envelope with a zero header and a zero payload length.
pub const PREFIX: [u8; ENVELOPE_BYTES] = prefix();

#[allow(clippy::cast_possible_truncation, reason = "offsets within ENVELOPE_BYTES")]
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler, which would refuse it")]
const fn prefix() -> [u8; ENVELOPE_BYTES] {
    let mut bytes = [0; ENVELOPE_BYTES];
    bytes[ROOT] = (TABLE - ROOT) as u8;
    // A `for` loop is not allowed in a constant function.
    let mut at = 0;
    while at < 4 {
        bytes[IDENTIFIER + at] = b"FCTF"[at];
        at += 1;
    }
    bytes[VTABLE] = (TABLE - VTABLE) as u8;
    // The table ends after the offset of the vector, so the length is no part of it.
    bytes[VTABLE + 2] = (PAYLOAD_LENGTH_AT - TABLE) as u8;
    bytes[VTABLE + 4] = (HEADER_AT - TABLE) as u8;
    bytes[VTABLE + 6] = (PAYLOAD_OFFSET - TABLE) as u8;
    bytes[TABLE] = (TABLE - VTABLE) as u8;
    bytes[PAYLOAD_OFFSET] = (PAYLOAD_LENGTH_AT - PAYLOAD_OFFSET) as u8;
    bytes
}

/// Splits a telemetry frame's payload into its header and the source's payload if it has exactly
/// this layout. Other layouts may be valid too and need the verifier.
#[inline]
pub fn split(payload: &[u8]) -> Option<(FrameHeader, &[u8])> {
    let (envelope, body) = payload.split_first_chunk::<ENVELOPE_BYTES>()?;
    let (front, rest) = envelope.split_first_chunk::<HEADER_AT>()?;
    let (header, rest) = rest.split_first_chunk::<HEADER_BYTES>()?;
    let (offset, length) = rest.split_first_chunk::<4>()?;
    let (shape_front, shape_rest) = PREFIX.split_first_chunk::<HEADER_AT>()?;
    let shape_offset = shape_rest.get(HEADER_BYTES..)?.first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length.first_chunk()?);
    // The header is not compared: its fields are plain numbers and have no invalid bits. The length
    // must be exact, because bytes after the vector would otherwise be dropped.
    let is_so = front == shape_front && offset == shape_offset && length as usize == body.len();
    is_so.then_some((FrameHeader(*header), body))
}
