//! Compares templates with the schema-driven decoder: only the patched values change.

use flatcap_format::frame::{FrameTemplate, TemplateError, TemplatePatch};
use flatcap_format::schema::CompiledSchema;
use serde_json::Value;

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/data/schema/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn shapes() -> (Vec<u8>, Vec<u8>) {
    (fixture("shapes.bin"), fixture("shapes.bfbs"))
}

fn template(paths: &[&str]) -> Result<FrameTemplate, TemplateError> {
    let (payload, schema) = shapes();
    FrameTemplate::new(&payload, &schema, paths)
}

fn decoded(payload: &[u8]) -> Value {
    let plan = CompiledSchema::compile(&fixture("shapes.bfbs"), "flatcap.test.Shapes").unwrap();
    let mut json = Vec::new();
    plan.append_json(payload, &mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

// Proves that a patch changes the value at its path and no other. Method: a buffer of every shape,
// made by flatc, patched at one path of each kind and decoded before and after.
#[test]
fn a_patch_changes_its_path_alone() {
    type Set = fn(&FrameTemplate, &str, &mut TemplatePatch<'_>);
    let cases: [(&str, &str, Set, &str); 13] = [
        ("scalars.u64", "/scalars/u64", |t, p, patch| patch.set(t.field(p).unwrap(), 77_u64), "77"),
        ("scalars.i8", "/scalars/i8", |t, p, patch| patch.set(t.field(p).unwrap(), -3_i8), "-3"),
        ("scalars.f64", "/scalars/f64", |t, p, patch| patch.set(t.field(p).unwrap(), 0.5_f64), "0.5"),
        ("flags[0]", "/flags/0", |t, p, patch| patch.set(t.field(p).unwrap(), false), "false"),
        ("scalars.mood", "/scalars/mood", |t, p, patch| patch.set(t.field(p).unwrap(), 7_i8), "\"High\""),
        ("point.y", "/point/y", |t, p, patch| patch.set(t.field(p).unwrap(), 9.5_f64), "9.5"),
        ("grid.cells[2]", "/grid/cells/2", |t, p, patch| patch.set(t.field(p).unwrap(), 8_u16), "8"),
        ("grid.corners[1].x", "/grid/corners/1/x", |t, p, patch| patch.set(t.field(p).unwrap(), 6_i32), "6"),
        ("numbers[1]", "/numbers/1", |t, p, patch| patch.set(t.field(p).unwrap(), 5_u64), "5"),
        ("ratios[0]", "/ratios/0", |t, p, patch| patch.set(t.field(p).unwrap(), 0.25_f32), "0.25"),
        ("points[1].x", "/points/1/x", |t, p, patch| patch.set(t.field(p).unwrap(), -1_i32), "-1"),
        (
            "leaves[0].path[0].y",
            "/leaves/0/path/0/y",
            |t, p, patch| patch.set(t.field(p).unwrap(), 3.5_f64),
            "3.5",
        ),
        ("last", "/last", |t, p, patch| patch.set(t.field(p).unwrap(), 43_u64), "43"),
    ];
    let original = decoded(&shapes().0);
    for (path, pointer, set, expected) in cases {
        let template = template(&[path]).unwrap();
        let mut payload = vec![0; template.payload_bytes()];
        set(&template, path, &mut template.fill(&mut payload));
        let mut changed = original.clone();
        *changed.pointer_mut(pointer).unwrap() = serde_json::from_str(expected).unwrap();
        assert_ne!(changed, original, "{path}");
        assert_eq!(decoded(&payload), changed, "{path}");
        assert!(template.view(&payload).is_some());
    }
}

// Proves that a whole struct is patched and read as its bytes: a point of 16 bytes, one at an
// index.
#[test]
fn a_struct_is_patched_as_its_bytes() {
    let template = template(&["point", "points[0]"]).unwrap();
    let (point, first) =
        (template.field::<[u8; 16]>("point").unwrap(), template.field::<[u8; 16]>("points[0]").unwrap());
    let model = shapes().0;
    let view = template.view(&model).unwrap();
    let (a, b) = (view.get(point), view.get(first));
    let mut payload = vec![0; template.payload_bytes()];
    let mut patch = template.fill(&mut payload);
    patch.set(point, b);
    patch.set(first, a);
    let decoded = decoded(&payload);
    assert_eq!(decoded["point"], serde_json::json!({"x": 3, "y": 4.0}));
    assert_eq!(decoded["points"][0], serde_json::json!({"x": -5, "y": 0.125}));
}

// Proves that a payload of another shape is never accepted. Method: every bit of the payload
// flipped, and other lengths.
#[test]
fn another_shape_is_refused() {
    let template = template(&["numbers[1]", "last"]).unwrap();
    let slots = (template.field::<u64>("numbers[1]").unwrap(), template.field::<u64>("last").unwrap());
    let model = shapes().0;
    let mut changeable = 0;
    for bit in 0..model.len() * 8 {
        let mut payload = model.clone();
        payload[bit / 8] ^= 1 << (bit % 8);
        if let Some(view) = template.view(&payload) {
            changeable += 1;
            assert!(view.get(slots.0) != 1 || view.get(slots.1) != 42);
        }
    }
    assert_eq!(changeable, 128, "two values of 64 bits may differ, and nothing else");
    assert!(template.view(&model[1..]).is_none());
    assert!(template.view(&[&model[..], &[0]].concat()).is_none());
}

// Proves that every path that cannot be patched is refused with the reason and a remedy.
#[test]
fn unpatchable_paths_are_refused() {
    let refused = [
        ("", "has no field ``"),
        ("nothing", "`flatcap.test.Shapes` has no field `nothing`; its fields are: "),
        ("text", "`text` is a String, not a scalar or a struct"),
        ("numbers", "`numbers` is a Vector, not a scalar or a struct"),
        ("scalars", "`scalars` is a Obj, not a scalar or a struct"),
        ("maybe", "`maybe` is not present in the buffer; build it with `force_defaults(true)`"),
        ("leaf.weight", "`weight` is not present"),
        ("numbers[3]", "`numbers` has 3 elements in the buffer, indexed from 0"),
        ("grid.cells[3]", "`cells` has 3 elements"),
        ("last[0]", "`last` is not a vector"),
        ("numbers[x]", "is not an index; write `numbers[0]`"),
        ("numbers[0", "is not an index"),
        ("last.more", "`last` has no fields of its own"),
        ("leaves[2].name", "`name` is not present"),
        ("words[1]", "is a String"),
    ];
    for (path, reason) in refused {
        let error = template(&[path]).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains(&format!("`{path}`")), "{path}: {error}");
    }
    let template = template(&["last"]).unwrap();
    let error = template.field::<u32>("last").unwrap_err().to_string();
    assert_eq!(error, "template path `last`: type is ULong of 8 bytes, not u32");
    assert!(template.field::<u64>("point.x").unwrap_err().to_string().contains("its paths are: last"));
    let schema = shapes().1;
    assert!(
        FrameTemplate::new(b"", &schema, &["last"])
            .unwrap_err()
            .to_string()
            .contains("past the end of the buffer")
    );
    assert!(
        FrameTemplate::new(b"1234", &schema[4..], &[])
            .unwrap_err()
            .to_string()
            .contains("not a binary schema")
    );
}

// Proves that a union's type cannot be patched, since it determines how other bytes are read.
#[test]
fn the_type_of_a_union_is_refused() {
    let schema = fixture("recursive.bfbs");
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let start = builder.start_table();
    builder.push_slot_always(4, 1_i32);
    let root = builder.end_table(start);
    builder.finish_minimal(root);
    assert!(FrameTemplate::new(builder.finished_data(), &schema, &["value"]).is_ok());
    for path in ["left", "children", "left.value"] {
        assert!(FrameTemplate::new(builder.finished_data(), &schema, &[path]).is_err(), "{path}");
    }
}

// Proves that a hostile buffer or schema causes an error, never a panic or an offset beyond the
// buffer. Method: every byte of both damaged in several ways, and every cut.
#[test]
fn hostile_bytes_make_errors() {
    let (payload, schema) = shapes();
    let paths = ["grid.corners[1].x", "leaves[0].path[0].y", "numbers[1]", "scalars.u64"];
    let mut made = 0;
    let mut attempt = |payload: &[u8], schema: &[u8]| {
        if let Ok(template) = FrameTemplate::new(payload, schema, &paths) {
            made += 1;
            let mut buffer = vec![0; payload.len()];
            let mut patch = template.fill(&mut buffer);
            for path in paths {
                template.field::<u64>(path).into_iter().for_each(|slot| patch.set(slot, u64::MAX));
            }
        }
    };
    for at in 0..payload.len() {
        for value in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut damaged = payload.clone();
            damaged[at] = value;
            attempt(&damaged, &schema);
        }
        attempt(&payload[..at], &schema);
    }
    for at in 0..schema.len() {
        let mut damaged = schema.clone();
        damaged[at] ^= 0xFF;
        attempt(&payload, &damaged);
    }
    assert!(made > 0);
}
