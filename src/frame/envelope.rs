//! The bytes in front of a source's payload that make it a `TelemetryFrame` (docs/FORMAT.md, "Telemetry frame").
//!
//! Written by hand, as a prefix of fixed size, because the code that flatc generates for Rust cannot align a byte
//! vector (it ignores `force_align`) and would copy the payload once more. A test reads it with the generated code.

use crate::schema::frame::FrameHeader;

// The layout. Each offset is the one before plus a size.
const ROOT: usize = 0; // u32: offset of the table
const IDENTIFIER: usize = ROOT + 4; // "FCTF"
const PADDING: usize = IDENTIFIER + 4; // 4 zero bytes, so that the header struct is 8-byte aligned
const VTABLE: usize = PADDING + 4; // u16 x 4: its size, the table's size, offsets of the two fields
const TABLE: usize = VTABLE + 8; // i32: back to the vtable
const HEADER: usize = TABLE + 4; // FrameHeader
const PAYLOAD_OFFSET: usize = HEADER + HEADER_BYTES; // u32: offset of the vector
const PAYLOAD_LENGTH: usize = PAYLOAD_OFFSET + 4; // u32: its length
/// Bytes in front of the payload in each telemetry frame.
pub const ENVELOPE_BYTES: usize = PAYLOAD_LENGTH + 4;

const HEADER_BYTES: usize = size_of::<FrameHeader>();
const _: () = assert!(HEADER_BYTES == 32);
const _: () = assert!(HEADER.is_multiple_of(8) && ENVELOPE_BYTES == 64);

/// Bit of [`Stamp::flags`]: something could not be read and is marked absent in the payload.
pub const FLAG_PARTIAL: u16 = 1;

/// When and in which order a reading was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Begin of the reading on `CLOCK_MONOTONIC`, in nanoseconds.
    pub mono_ns: u64,
    /// The same moment in UTC since 1970, in nanoseconds.
    pub wall_ns: i64,
    /// Number of the reading, from 0 for each source and run.
    pub seq: u64,
    /// [`FLAG_PARTIAL`] or 0.
    pub flags: u16,
    /// How long the reading took, in nanoseconds; saturates.
    pub duration_ns: u32,
}

/// The envelope of one source.
#[derive(Debug, Clone)]
pub struct Envelope {
    source: u16,
    prefix: [u8; ENVELOPE_BYTES],
}

impl Envelope {
    /// The envelope of the source with this id.
    pub fn new(source: u16) -> Self {
        const fn offset(value: usize) -> [u8; 4] {
            #[allow(clippy::cast_possible_truncation, reason = "offsets within ENVELOPE_BYTES")]
            (value as u32).to_le_bytes()
        }
        const fn short(value: usize) -> [u8; 2] {
            #[allow(clippy::cast_possible_truncation, reason = "offsets within ENVELOPE_BYTES")]
            (value as u16).to_le_bytes()
        }
        let mut prefix = [0; ENVELOPE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| {
            prefix.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = *byte);
        };
        put(ROOT, &offset(TABLE - ROOT));
        put(IDENTIFIER, b"FCTF");
        put(VTABLE, &short(TABLE - VTABLE));
        put(VTABLE + 2, &short(PAYLOAD_LENGTH - TABLE));
        put(VTABLE + 4, &short(HEADER - TABLE));
        put(VTABLE + 6, &short(PAYLOAD_OFFSET - TABLE));
        put(TABLE, &offset(TABLE - VTABLE));
        put(PAYLOAD_OFFSET, &offset(PAYLOAD_LENGTH - PAYLOAD_OFFSET));
        Self { source, prefix }
    }

    /// The source's id.
    pub fn source(&self) -> u16 {
        self.source
    }

    /// Writes the frame's payload: envelope, then the source's payload.
    ///
    /// # Panics
    /// `frame` is not exactly [`ENVELOPE_BYTES`] longer than `payload`, or `payload` is 4 GiB or longer: mistakes
    /// of the caller, who has met the frame limit before.
    #[inline]
    pub fn write(&self, frame: &mut [u8], stamp: &Stamp, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("the frame limit is a u32");
        let (envelope, body) = frame.split_at_mut(ENVELOPE_BYTES);
        envelope.copy_from_slice(&self.prefix);
        let header = FrameHeader::new(
            stamp.mono_ns,
            stamp.wall_ns,
            stamp.seq,
            self.source,
            stamp.flags,
            stamp.duration_ns,
        );
        let (_, from_header) = envelope.split_at_mut(HEADER);
        let (header_place, from_offset) = from_header.split_at_mut(HEADER_BYTES);
        header_place.copy_from_slice(&header.0);
        let (_, length_place) = from_offset.split_at_mut(PAYLOAD_LENGTH - PAYLOAD_OFFSET);
        length_place.copy_from_slice(&length.to_le_bytes());
        body.copy_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::frame::{
        TelemetryFrame, root_as_telemetry_frame, telemetry_frame_buffer_has_identifier,
    };

    // Goal: the prefix is what flatc's schema says, and the payload is 8-byte aligned within the frame. Method: read
    // it through the verifier and the generated accessors.
    #[test]
    fn generated_code_reads_what_is_written() {
        let stamp = Stamp {
            mono_ns: 0x0102_0304_0506_0708,
            wall_ns: -5,
            seq: u64::MAX - 1,
            flags: FLAG_PARTIAL,
            duration_ns: 77,
        };
        for length in [0, 1, 8, 100] {
            let payload: Vec<u8> = (0..length).collect();
            let mut frame = vec![0xEE; ENVELOPE_BYTES + payload.len()];
            Envelope::new(513).write(&mut frame, &stamp, &payload);
            assert!(telemetry_frame_buffer_has_identifier(&frame));
            let table: TelemetryFrame<'_> = root_as_telemetry_frame(&frame).unwrap();
            let header = table.header();
            assert_eq!(header.mono_ns(), stamp.mono_ns);
            assert_eq!(header.wall_ns(), stamp.wall_ns);
            assert_eq!(header.seq(), stamp.seq);
            assert_eq!(header.source(), 513);
            assert_eq!(header.flags(), stamp.flags);
            assert_eq!(header.duration_ns(), stamp.duration_ns);
            assert_eq!(table.payload().bytes(), payload);
            assert_eq!((table.payload().bytes().as_ptr().addr() - frame.as_ptr().addr()) % 8, 0);
        }
    }
}
