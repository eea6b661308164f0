//! The bytes in front of a source's payload that make it a `TelemetryFrame` (docs/FORMAT.md, "Telemetry frame"): their
//! shape is `schema::envelope`, filled in here. A test reads them with the generated code.

use super::Shortfall;
use crate::schema::envelope::{HEADER_AT, PAYLOAD_LENGTH_AT, PREFIX};
use crate::stream::copy;

pub use crate::schema::envelope::ENVELOPE_BYTES;

/// When and in which order a reading was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Begin of the reading on `CLOCK_MONOTONIC`, in nanoseconds.
    pub mono_ns: u64,
    /// The same moment in UTC since 1970, in nanoseconds.
    pub wall_ns: i64,
    /// Number of the reading, from 0 for each source and run.
    pub seq: u64,
    /// What the sample lacks.
    pub shortfall: Shortfall,
    /// How long the reading took, in nanoseconds; saturates.
    pub duration_ns: u32,
}

/// The envelope of one source.
#[derive(Debug, Clone)]
pub struct Envelope {
    source: u16,
}

impl Envelope {
    /// The envelope of the source with this id.
    pub fn new(source: u16) -> Self {
        Self { source }
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
        let (envelope, body) = frame.split_at_mut(ENVELOPE_BYTES);
        self.begin(envelope, payload.len(), stamp);
        copy(body, payload);
    }

    /// Writes the envelope of a payload of `payload_bytes` that is written behind it.
    ///
    /// # Panics
    /// `envelope` is not exactly [`ENVELOPE_BYTES`] long, or the payload 4 GiB or longer: mistakes of the caller.
    #[inline]
    pub fn begin(&self, envelope: &mut [u8], payload_bytes: usize, stamp: &Stamp) {
        envelope.copy_from_slice(&PREFIX);
        let length = u32::try_from(payload_bytes).expect("the frame limit is a u32");
        put(envelope, PAYLOAD_LENGTH_AT, length.to_le_bytes());
        self.stamp(envelope, stamp);
    }

    /// A frame's payload with everything in it but the stamp, to be copied and patched.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn around(&self, payload: &[u8]) -> Box<[u8]> {
        let mut frame = vec![0; ENVELOPE_BYTES + payload.len()];
        let stamp = Stamp { mono_ns: 0, wall_ns: 0, seq: 0, shortfall: Shortfall::NONE, duration_ns: 0 };
        self.write(&mut frame, &stamp, payload);
        frame.into()
    }

    /// Copies what [`around`](Self::around) has made to where a frame will stand: its envelope, to be stamped, and its payload, to
    /// be patched.
    ///
    /// # Panics
    /// The two differ in length: a mistake of the caller.
    #[inline]
    pub fn copy<'f>(frame: &'f mut [u8], around: &[u8]) -> (&'f mut [u8], &'f mut [u8]) {
        let (envelope, payload) = frame.split_at_mut(ENVELOPE_BYTES);
        let (own, model) = around.split_at(ENVELOPE_BYTES);
        // The first of a length that the compiler knows, the second of one that is mostly short.
        envelope.copy_from_slice(own);
        copy(payload, model);
        (envelope, payload)
    }

    /// Writes the stamp into an envelope. Value by value, as the checksum reads them next: a processor waits for what it reads in
    /// larger pieces than it has just written.
    #[inline]
    pub fn stamp(&self, envelope: &mut [u8], stamp: &Stamp) {
        put(envelope, HEADER_AT, stamp.mono_ns.to_le_bytes());
        put(envelope, HEADER_AT + 8, stamp.wall_ns.to_le_bytes());
        put(envelope, HEADER_AT + 16, stamp.seq.to_le_bytes());
        let last = u64::from(self.source)
            | u64::from(stamp.shortfall.flags()) << 16
            | u64::from(stamp.duration_ns) << 32;
        put(envelope, HEADER_AT + 24, last.to_le_bytes());
    }
}

#[inline]
fn put<const N: usize>(envelope: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = envelope.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = bytes;
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
            shortfall: Shortfall::MISSING,
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
            assert_eq!(header.flags(), stamp.shortfall.flags());
            assert_eq!(header.duration_ns(), stamp.duration_ns);
            assert_eq!(table.payload().bytes(), payload);
            assert_eq!((table.payload().bytes().as_ptr().addr() - frame.as_ptr().addr()) % 8, 0);
            let (header, body) = crate::schema::envelope::split(&frame).unwrap();
            assert_eq!((header, body), (*table.header(), &payload[..]), "the short way reads the same");

            let mut around = Envelope::new(513).around(&payload);
            Envelope::new(513).stamp(&mut around, &stamp);
            assert_eq!(*around, *frame, "a stamped model is the same frame");
        }
    }
}
