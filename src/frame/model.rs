//! The model of payloads that all have one shape.

use flatbuffers::{FlatBufferBuilder, WIPOffset};

use crate::stream::FrameTemplate;

/// A model from what `build` builds, with every field that `paths` name (as [`FrameTemplate::new`] reads them) in it: those are what
/// may be patched. `schema` is a binary schema, `root` the name of the payload's table in it.
///
/// # Panics
/// They do not fit each other: mistakes of the caller, to whom all of them belong.
pub fn model<T>(
    (schema, root): (&[u8], &str),
    paths: &[&str],
    build: impl FnOnce(&mut FlatBufferBuilder<'static>) -> WIPOffset<T>,
) -> FrameTemplate {
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    let table = build(&mut builder);
    builder.finish_minimal(table);
    FrameTemplate::of_root(builder.finished_data(), (schema, root), paths)
        .expect("a payload, its schema and its paths, all the caller's own")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::synthetic::{Point, PointArgs};

    const SCHEMA: (&[u8], &str) =
        (include_bytes!("../../generated/synthetic.bfbs"), "flatcap.synthetic.Point");

    // Goal: a patched copy of the model has the bytes that building gives. Method: several values in turn, and one that stays as the
    // model has it.
    #[test]
    fn patched_equals_built() {
        let model = model(SCHEMA, &["counter", "wave"], |builder| {
            Point::create(builder, &PointArgs { noise: 9, ..PointArgs::default() })
        });
        let (counter, wave) = (model.slot::<u64>("counter").unwrap(), model.slot::<f64>("wave").unwrap());
        for (number, fraction) in [(0, 0.0), (u64::MAX, -1.5), (3, f64::NAN)] {
            let mut payload = model.payload().to_vec();
            let mut patch = model.patch(&mut payload);
            patch.set(counter, number);
            patch.set(wave, fraction);
            let mut builder = FlatBufferBuilder::new();
            builder.force_defaults(true);
            let root = Point::create(&mut builder, &PointArgs { counter: number, wave: fraction, noise: 9 });
            builder.finish_minimal(root);
            assert_eq!(payload, builder.finished_data());
        }
    }

    // Goal: a mistake in our own paths is noticed at once. Method: a path of no field.
    #[test]
    #[should_panic(expected = "all the caller's own")]
    fn a_wrong_path_is_noticed() {
        model(SCHEMA, &["count"], |builder| Point::create(builder, &PointArgs::default()));
    }
}
