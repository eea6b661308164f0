//! `synthetic`: generated values. The generated values are a function of the sequence number, so
//! that a reader can verify them.

use std::io::ErrorKind;
use std::time::Duration;

use flatcap_format::frame::{FrameTemplate, TemplateField, TemplateList, frame_template};
use flatcap_schemas::synthetic as wire;

use super::{OWN_SCHEMA, OpenContext, OwnKeys, SourceOpener, SourceSpec, Unavailable};
use crate::{FixedSampler, Incomplete, OpenedSampler, OwnSettings, ReadError, SyntheticLayout};

/// Full name of the root table of three scalars.
pub const POINT_ROOT: &str = "flatcap.synthetic.Point";
/// Full name of the root table of many values.
pub const WIDE_ROOT: &str = "flatcap.synthetic.Wide";
/// Binary schema of both root tables.
pub const SCHEMA: &[u8] = include_bytes!("../../../../generated/synthetic.bfbs");

/// Returns the full name of the root table of a shape.
pub fn root(shape: SyntheticLayout) -> &'static str {
    match shape {
        SyntheticLayout::Point => POINT_ROOT,
        SyntheticLayout::Wide { .. } => WIDE_ROOT,
    }
}

/// There is nothing to select with `include` and `exclude`. The root table belongs to the shape
/// `point`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "synthetic",
    about: "Generated values, to measure what flatcap and this host can do.",
    root: POINT_ROOT,
    schema: SCHEMA,
    // The default is a load that is worth measuring, which is 1,000 frames a second.
    period: Duration::from_millis(1),
    refresh: "at each sample",
    keys: OwnKeys::Synthetic,
    opener: SourceOpener::Synthetic(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let OwnSettings::Synthetic(settings) = context.settings.own else {
        return Err(Unavailable::of(ErrorKind::InvalidInput.into()));
    };
    Ok(OpenedSampler::fixed(match settings.shape {
        SyntheticLayout::Point => SyntheticSampler::point(settings.seed),
        SyntheticLayout::Wide { fields, payload_bytes } => {
            SyntheticSampler::wide(settings.seed, fields, payload_bytes)
        }
    }))
}

/// The increment of splitmix64, which is 2^64 divided by the golden ratio, rounded to an odd
/// number.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Number of samples in one period of the triangle wave.
const WAVE_SAMPLES: u64 = 1000;

/// The values of one sample of the point shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PointValues {
    /// The sequence number.
    pub counter: u64,
    /// A triangle wave between 0 and 1.
    pub wave: f64,
    /// The result of `value(seed, seq, 0)`.
    pub noise: u64,
}

/// Returns the values of the point shape at `seq`.
pub fn point(seed: u64, seq: u64) -> PointValues {
    const HALF: u64 = WAVE_SAMPLES / 2;
    #[allow(clippy::cast_precision_loss, reason = "at most 500")]
    let wave = (seq % WAVE_SAMPLES).abs_diff(HALF) as f64 / HALF as f64;
    PointValues { counter: seq, wave, noise: value(seed, seq, 0) }
}

/// Returns the value of field `index` at `seq`. The file schemas/synthetic.fbs has the formula.
pub fn value(seed: u64, seq: u64, index: u64) -> u64 {
    let row = mix(seed.wrapping_add(seq.wrapping_mul(GOLDEN)));
    mix(row.wrapping_add(index.wrapping_mul(GOLDEN)))
}

/// Computes the output function of splitmix64 (Steele, Lea, Flood 2014).
fn mix(z: u64) -> u64 {
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// The sampler of `synthetic`.
#[derive(Debug)]
pub struct SyntheticSampler {
    seed: u64,
    template: FrameTemplate,
    shape: SyntheticShape,
}

#[derive(Debug)]
enum SyntheticShape {
    Point { counter: TemplateField<u64>, wave: TemplateField<f64>, noise: TemplateField<u64> },
    Wide { values: TemplateList, padding: TemplateList },
}

impl SyntheticSampler {
    /// Creates a source of three scalars per sample.
    ///
    /// # Panics
    /// Never panics, because schema and paths are flatcap's own.
    pub fn point(seed: u64) -> Self {
        let template = frame_template((SCHEMA, POINT_ROOT), &["counter", "wave", "noise"], |builder| {
            wire::Point::create(builder, &wire::PointArgs::default())
        });
        let shape = SyntheticShape::Point {
            counter: template.field("counter").expect(OWN_SCHEMA),
            wave: template.field("wave").expect(OWN_SCHEMA),
            noise: template.field("noise").expect(OWN_SCHEMA),
        };
        Self { seed, template, shape }
    }

    /// Creates a source of `fields` values and `padding` bytes per sample.
    ///
    /// # Panics
    /// Never panics, because schema and paths are flatcap's own.
    pub fn wide(seed: u64, fields: u32, padding: u32) -> Self {
        let template = frame_template((SCHEMA, WIDE_ROOT), &["values[]", "padding[]"], |builder| {
            let padding = builder.create_vector(&vec![0_u8; padding as usize]);
            let values = builder.create_vector(&vec![0_u64; fields as usize]);
            wire::Wide::create(builder, &wire::WideArgs { values: Some(values), padding: Some(padding) })
        });
        let shape = SyntheticShape::Wide {
            values: template.list("values[]").expect(OWN_SCHEMA),
            padding: template.list("padding[]").expect(OWN_SCHEMA),
        };
        Self { seed, template, shape }
    }
}

impl FixedSampler for SyntheticSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        Ok(())
    }

    fn template(&self) -> &FrameTemplate {
        &self.template
    }

    fn patch(&mut self, seq: u64, payload: &mut [u8]) -> Incomplete {
        match &self.shape {
            SyntheticShape::Point { counter, wave, noise } => {
                let values = point(self.seed, seq);
                let mut patch = self.template.patch(payload);
                patch.set(*counter, values.counter);
                patch.set(*wave, values.wave);
                patch.set(*noise, values.noise);
            }
            SyntheticShape::Wide { values, padding } => {
                let (places, _) = self.template.patch(payload).elements(values).as_chunks_mut();
                for (place, index) in places.iter_mut().zip(0..) {
                    *place = value(self.seed, seq, index).to_le_bytes();
                }
                for (place, index) in self.template.patch(payload).elements(padding).iter_mut().zip(0..) {
                    [*place, ..] = value(self.seed, seq, index).to_le_bytes();
                }
            }
        }
        Incomplete::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the generator is splitmix64, by its published first outputs for the seed 1234567.
    #[test]
    fn known_answers_of_splitmix64() {
        let outputs = [1, 2, 3].map(|step: u64| mix(1_234_567_u64.wrapping_add(step.wrapping_mul(GOLDEN))));
        assert_eq!(
            outputs,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    // Proves that samples have the values that `point` and `value` return, in both shapes.
    #[test]
    fn samples_hold_the_values() {
        let (mut narrow, mut wide) = (SyntheticSampler::point(7), SyntheticSampler::wide(7, 3, 5));
        for seq in [0, 1, 499, 500, 1_000_000] {
            let mut payload = narrow.template().payload().to_vec();
            narrow.patch(seq, &mut payload);
            let read = flatbuffers::root::<wire::Point<'_>>(&payload).unwrap();
            let expected = point(7, seq);
            assert_eq!((read.counter(), read.noise()), (seq, expected.noise));
            assert_eq!(read.wave().to_bits(), expected.wave.to_bits());
            let mut payload = wide.template().payload().to_vec();
            wide.patch(seq, &mut payload);
            let read = flatbuffers::root::<wire::Wide<'_>>(&payload).unwrap();
            let values: Vec<u64> = read.values().iter().collect();
            assert_eq!(values, [0, 1, 2].map(|index| value(7, seq, index)));
            assert_eq!(
                read.padding().bytes(),
                [0, 1, 2, 3, 4].map(|index| value(7, seq, index).to_le_bytes()[0])
            );
        }
    }
}
