//! Writes the envelope, which precedes a source's payload in a frame. The envelope and the payload
//! form a `TelemetryFrame` (docs/FORMAT.md, "Telemetry frame"). `schema::envelope` defines the
//! layout of the envelope, and this module fills in the values. A test reads the written bytes with
//! the generated code.

use flatcap_stream::short_bytes::copy;

use super::Incomplete;
use crate::schema::envelope::{HEADER_AT, PAYLOAD_LENGTH_AT, PREFIX};

pub use crate::schema::envelope::ENVELOPE_BYTES;

/// The time, the sequence number and the completeness of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Start time of the sample on `CLOCK_MONOTONIC`, in nanoseconds.
    pub mono_ns: u64,
    /// Start time of the sample in UTC, in nanoseconds since 1970.
    pub wall_ns: i64,
    /// Sequence number of the sample, counted from 0 for each source and run.
    pub seq: u64,
    /// The reasons why values are absent.
    pub incomplete: Incomplete,
    /// Duration of reading, in nanoseconds. Longer durations saturate.
    pub duration_ns: u32,
}

/// The envelope of one source.
#[derive(Debug, Clone)]
pub struct Envelope {
    source: u16,
}

impl Envelope {
    /// Creates the envelope of the source with this id.
    pub fn new(source: u16) -> Self {
        Self { source }
    }

    /// Returns the source's id.
    pub fn source(&self) -> u16 {
        self.source
    }

    /// Writes the frame's payload, which consists of the envelope and the source's payload.
    ///
    /// # Panics
    /// Panics if `frame` is not exactly [`ENVELOPE_BYTES`] longer than `payload`, or if `payload`
    /// is 4 GiB or longer. The caller must have checked the length limit of frames before.
    #[inline]
    pub fn write(&self, frame: &mut [u8], stamp: &Stamp, payload: &[u8]) {
        let (envelope, body) = frame.split_at_mut(ENVELOPE_BYTES);
        self.begin(envelope, payload.len(), stamp);
        copy(body, payload);
    }

    /// Writes the envelope for a payload of `payload_bytes` that follows it.
    ///
    /// # Panics
    /// Panics if `envelope` is not exactly [`ENVELOPE_BYTES`] long, or if the payload is 4 GiB or
    /// longer. Both are bugs of the caller.
    #[inline]
    pub fn begin(&self, envelope: &mut [u8], payload_bytes: usize, stamp: &Stamp) {
        envelope.copy_from_slice(&PREFIX);
        let length = u32::try_from(payload_bytes).expect("the frame limit is a u32");
        put(envelope, PAYLOAD_LENGTH_AT, length.to_le_bytes());
        self.stamp(envelope, stamp);
    }

    /// Returns the complete content of a frame except for the stamp. Callers copy this payload and
    /// patch the copy.
    ///
    /// # Panics
    /// Panics in the same cases as [`write`](Self::write).
    pub fn prefilled(&self, payload: &[u8]) -> Box<[u8]> {
        let mut frame = vec![0; ENVELOPE_BYTES + payload.len()];
        let stamp = Stamp { mono_ns: 0, wall_ns: 0, seq: 0, incomplete: Incomplete::NONE, duration_ns: 0 };
        self.write(&mut frame, &stamp, payload);
        frame.into()
    }

    /// Copies the result of [`prefilled`](Self::prefilled) to `frame`. Returns the envelope of the
    /// copy, which the caller stamps, and the payload of the copy, which the caller patches.
    ///
    /// # Panics
    /// Panics if `frame` and `prefilled` differ in length, which is a bug of the caller.
    #[inline]
    pub fn copy<'f>(frame: &'f mut [u8], prefilled: &[u8]) -> (&'f mut [u8], &'f mut [u8]) {
        let (envelope, payload) = frame.split_at_mut(ENVELOPE_BYTES);
        let (own, template) = prefilled.split_at(ENVELOPE_BYTES);
        // Envelope and payload are copied separately, because the envelope has a constant length
        // and the payload is mostly short.
        copy(envelope, own);
        copy(payload, template);
        (envelope, payload)
    }

    /// Writes the stamp into an envelope. The checksum then reads the envelope in words of eight
    /// bytes, so this function writes it in words of eight bytes. A processor stalls if a load is
    /// larger than a preceding store to the same bytes.
    #[inline]
    pub fn stamp(&self, envelope: &mut [u8], stamp: &Stamp) {
        put(envelope, HEADER_AT, stamp.mono_ns.to_le_bytes());
        put(envelope, HEADER_AT + 8, stamp.wall_ns.to_le_bytes());
        put(envelope, HEADER_AT + 16, stamp.seq.to_le_bytes());
        let last = u64::from(self.source)
            | u64::from(stamp.incomplete.flags()) << 16
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
    use flatcap_lane::envelope::SampleHeader;

    use super::*;
    use crate::schema::frame::{
        TelemetryFrame, root_as_telemetry_frame, telemetry_frame_buffer_has_identifier,
    };

    // Proves that the generated code reads the envelope as written, and that the payload is 8-byte
    // aligned within the frame.
    #[test]
    fn generated_code_reads_what_is_written() {
        let stamp = Stamp {
            mono_ns: 0x0102_0304_0506_0708,
            wall_ns: -5,
            seq: u64::MAX - 1,
            incomplete: Incomplete::MISSING,
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
            assert_eq!(header.flags(), stamp.incomplete.flags());
            assert_eq!(header.duration_ns(), stamp.duration_ns);
            assert_eq!(table.payload().bytes(), payload);
            assert_eq!((table.payload().bytes().as_ptr().addr() - frame.as_ptr().addr()) % 8, 0);
            let (header, body) = crate::schema::envelope::split(&frame).unwrap();
            assert_eq!((header, body), (*table.header(), &payload[..]), "`split` reads the same");

            let sample = SampleHeader {
                mono_ns: stamp.mono_ns,
                wall_ns: stamp.wall_ns,
                seq: stamp.seq,
                source: 513,
                flags: stamp.incomplete.flags(),
                duration_ns: stamp.duration_ns,
            };
            let mut envelope = [0; ENVELOPE_BYTES];
            sample.write_envelope(&mut envelope, length.into());
            assert_eq!(envelope, frame[..ENVELOPE_BYTES], "a lane has the same envelope");
            assert_eq!(SampleHeader::parse(&header.0), sample);

            let mut prefilled = Envelope::new(513).prefilled(&payload);
            Envelope::new(513).stamp(&mut prefilled, &stamp);
            assert_eq!(*prefilled, *frame, "a stamped template is the same frame");
        }
    }
}
