//! Creates templates of payloads that all have the same shape.

use flatbuffers::{FlatBufferBuilder, WIPOffset};

use super::template::FrameTemplate;

/// Creates a template from the table that `build` builds, with a slot for each field in `paths`
/// (see [`FrameTemplate::with_root`]). `schema` is a binary schema. `root` is the name of the
/// payload's table in this schema.
///
/// # Panics
/// Panics if the schema, the paths and the table do not fit each other, which is a bug of the
/// caller.
pub fn frame_template<T>(
    (schema, root): (&[u8], &str),
    paths: &[&str],
    build: impl FnOnce(&mut FlatBufferBuilder<'static>) -> WIPOffset<T>,
) -> FrameTemplate {
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    let table = build(&mut builder);
    builder.finish_minimal(table);
    FrameTemplate::with_root(builder.finished_data(), (schema, root), paths)
        .expect("the schema and paths fit the payload")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::synthetic::{Point, PointArgs};

    const SCHEMA: (&[u8], &str) =
        (include_bytes!("../../../../generated/synthetic.bfbs"), "flatcap.synthetic.Point");

    // Proves that a patched copy of a template has the same bytes as a built payload, for several
    // values and for a field that does not change.
    #[test]
    fn patched_equals_built() {
        let template = frame_template(SCHEMA, &["counter", "wave"], |builder| {
            Point::create(builder, &PointArgs { noise: 9, ..PointArgs::default() })
        });
        let (counter, wave) =
            (template.field::<u64>("counter").unwrap(), template.field::<f64>("wave").unwrap());
        for (number, fraction) in [(0, 0.0), (u64::MAX, -1.5), (3, f64::NAN)] {
            let mut payload = template.payload().to_vec();
            let mut patch = template.patch(&mut payload);
            patch.set(counter, number);
            patch.set(wave, fraction);
            let mut builder = FlatBufferBuilder::new();
            builder.force_defaults(true);
            let root = Point::create(&mut builder, &PointArgs { counter: number, wave: fraction, noise: 9 });
            builder.finish_minimal(root);
            assert_eq!(payload, builder.finished_data());
        }
    }

    // Proves that a path that names no field causes a panic when the template is created.
    #[test]
    #[should_panic(expected = "fit the payload")]
    fn a_wrong_path_is_noticed() {
        frame_template(SCHEMA, &["count"], |builder| Point::create(builder, &PointArgs::default()));
    }
}
