//! A test rig: 64 fields of f64 (schemas/rig.fbs), all of them noisy and changing in every sample.

use flatbuffers::FlatBufferBuilder;
use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_stream::Framer;

use crate::recording::{CHECKSUM, Recording, Source};
use crate::records::Random;

const SCHEMA: &[u8] = include_bytes!("../generated/rig.bfbs");
const FIELDS: u16 = 64;

/// The kind of a field's values.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Counts of a 16-bit converter times a calibration factor, minus an offset.
    Adc,
    /// Readings with three decimal digits.
    Decimal,
    /// f32 values as f64.
    Single,
    /// A random walk, with every bit of the mantissa in use.
    Walk,
}

/// The state of one field.
struct Channel {
    kind: Kind,
    /// The signal's current value, which drifts.
    at: f64,
    factor: f64,
}

impl Channel {
    fn new(number: u16, kind: Kind, random: &mut Random) -> Self {
        // A factor like those of calibration certificates: six digits, not a power of two.
        let factor = (305.176 * (1.0 + f64::from(number) / 640.0)).round() * 1e-6;
        let at = match kind {
            Kind::Adc => 8000.0 + 400.0 * random.normal(),
            Kind::Decimal => 20.0 + 5.0 * random.normal(),
            Kind::Single => 101.3 + 3.0 * random.normal(),
            Kind::Walk => random.normal(),
        };
        Self { kind, at, factor }
    }

    fn read(&mut self, random: &mut Random) -> f64 {
        match self.kind {
            Kind::Adc => {
                self.at += 2.0 * random.normal();
                (self.at + 6.0 * random.normal()).round().clamp(-32768.0, 32767.0) * self.factor - 1.25
            }
            Kind::Decimal => {
                self.at += 0.002 * random.normal();
                ((self.at + 0.02 * random.normal()) * 1000.0).round() / 1000.0
            }
            Kind::Single => {
                self.at += 0.001 * random.normal();
                f64::from((self.at + 0.05 * random.normal()) as f32)
            }
            Kind::Walk => {
                self.at += 0.01 * random.normal();
                self.at
            }
        }
    }
}

/// Creates samples at 1 kHz of a rig, a quarter of the fields of each kind.
pub fn recording(rows: u64, kinds: [Kind; 4]) -> Recording {
    let mut random = Random(1);
    let channels =
        (0..FIELDS).map(|number| Channel::new(number, kinds[usize::from(number / 16)], &mut random));
    let mut channels: Vec<Channel> = channels.collect();
    let source = Source { name: "rig".to_owned(), root: "rivals.Rig".to_owned(), schema: SCHEMA.to_vec() };
    let mut recording = Recording { frames: Vec::new(), sources: vec![source] };
    let mut builder = FlatBufferBuilder::new();
    let mut place = Vec::new();
    for seq in 0..rows {
        builder.reset();
        let table = builder.start_table();
        for (number, channel) in (0..).zip(&mut channels) {
            builder.push_slot_always(4 + 2 * number, channel.read(&mut random));
        }
        let root = builder.end_table(table);
        builder.finish_minimal(root);
        let payload = builder.finished_data();
        let mono_ns = seq * 1_000_000 + random.below(60_000);
        let duration_ns = 4000 + random.below(1500) as u32;
        let wall_ns = mono_ns as i64 + 1_763_774_000_000_000_000;
        let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns };
        place.resize(ENVELOPE_BYTES + payload.len(), 0);
        Envelope::new(0).write(&mut place, &stamp, payload);
        CHECKSUM.frame_and_write(&mut recording.frames, &place).expect("a vector takes everything");
    }
    recording
}
