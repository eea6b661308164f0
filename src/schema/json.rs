//! How does a payload look as JSON? Objects nested as in the schema, in the order of the field ids.

use serde::Serialize;

use super::value::{Place, Value, Visitor};

/// Appends a payload to a buffer as one JSON object, without a tree in between.
///
/// Integers of 64 bits are JSON numbers; what is absent, not a number or infinite is null.
#[derive(Debug)]
pub struct JsonWriter<'o> {
    output: &'o mut Vec<u8>,
}

impl<'o> JsonWriter<'o> {
    /// A writer that begins where the buffer ends.
    pub fn new(output: &'o mut Vec<u8>) -> Self {
        Self { output }
    }

    fn lead(&mut self, place: Place<'_>) {
        match place {
            Place::Root | Place::Element(_, 0) => {}
            Place::Field(field) => {
                // Only the brace of an object that was just begun has no field before this one.
                if self.output.last() != Some(&b'{') {
                    self.output.push(b',');
                }
                // A plan has no name that would need escapes.
                self.output.push(b'"');
                self.output.extend_from_slice(field.name().as_bytes());
                self.output.extend_from_slice(b"\":");
            }
            Place::Element(..) => self.output.push(b','),
        }
    }
}

impl Visitor for JsonWriter<'_> {
    fn begin_object(&mut self, place: Place<'_>) {
        self.lead(place);
        self.output.push(b'{');
    }

    fn end_object(&mut self) {
        self.output.push(b'}');
    }

    fn begin_list(&mut self, place: Place<'_>, _length: usize) {
        self.lead(place);
        self.output.push(b'[');
    }

    fn end_list(&mut self) {
        self.output.push(b']');
    }

    fn value(&mut self, place: Place<'_>, value: Value<'_>) {
        self.lead(place);
        append_json_value(value, self.output);
    }
}

/// Appends one value as JSON has it.
pub fn append_json_value(value: Value<'_>, output: &mut Vec<u8>) {
    match value {
        Value::Unsigned(number) => append(&number, output),
        Value::Signed(number) => append(&number, output),
        Value::Float32(number) => append(&number, output),
        Value::Float(number) => append(&number, output),
        Value::Bool(truth) => append(&truth, output),
        Value::Text(text) => append(text, output),
        Value::Absent => output.extend_from_slice(b"null"),
    }
}

fn append<T: Serialize + ?Sized>(value: &T, output: &mut Vec<u8>) {
    serde_json::to_writer(output, value).expect("a vector takes every byte, and a scalar always serializes");
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::Value as Tree;

    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_JUDGED, SHAPES_PAYLOAD, json, marked, shapes};
    use super::*;

    /// flatc leaves out what is absent.
    fn without_nulls(tree: Tree) -> Tree {
        match tree {
            Tree::Array(elements) => Tree::Array(elements.into_iter().map(without_nulls).collect()),
            Tree::Object(fields) => {
                let there = fields.into_iter().filter(|(_, value)| !value.is_null());
                Tree::Object(there.map(|(name, value)| (name, without_nulls(value))).collect())
            }
            other => other,
        }
    }

    #[test]
    fn every_shape_reads_as_flatc_reads_it() {
        // Goal: all shapes decode right. Method: the JSON that flatc made of the same payload, kept as a file.
        let ours: Tree = serde_json::from_str(&json(&shapes(), SHAPES_PAYLOAD)).unwrap();
        let judged: Tree = serde_json::from_str(SHAPES_JUDGED).unwrap();
        assert_eq!(without_nulls(ours), without_nulls(judged));
    }

    #[test]
    fn the_flatc_at_hand_agrees() {
        // Goal: the kept judgement is no accident of its day. Method: the flatc of this machine, if any, judges
        // a payload whose floats and numbers were changed.
        let mut payload = SHAPES_PAYLOAD.to_vec();
        for (old, new) in [(0.3_f32, 1.5_f32), (0.1, -7.25)] {
            let at = payload.windows(4).position(|window| window == old.to_le_bytes()).unwrap();
            payload[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("changed.bin"), &payload).unwrap();
        let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/schema/shapes.fbs");
        let run = Command::new("flatc")
            .args(["--json", "--strict-json", "--defaults-json", "--raw-binary", schema, "--", "changed.bin"])
            .current_dir(folder.path())
            .status();
        let Ok(status) = run else {
            println!("skipped: flatc is not in PATH");
            return;
        };
        assert!(status.success());
        let judged = std::fs::read_to_string(folder.path().join("changed.json")).unwrap();
        let judged: Tree = serde_json::from_str(&judged).unwrap();
        let ours: Tree = serde_json::from_str(&json(&shapes(), &payload)).unwrap();
        assert_eq!(without_nulls(ours), without_nulls(judged));
    }

    #[test]
    fn marked_fields_read_as_marked() {
        // Goal: absent values are null, text is text, combined bits are a number. Method: the whole line.
        let expected = concat!(
            r#"{"total":{"user":10,"system":null},"#,
            r#""cores":[{"id":0,"times":{"user":1,"system":2},"states":["On",null,9]},"#,
            r#"{"id":1,"times":null,"states":null}],"#,
            r#""causes":3,"unit":{"name":"eth0","heat":null,"small":254},"#,
            r#""note":"hi","raw":[104,105],"load":0.25,"state":"On","odd":-1}"#
        );
        assert_eq!(json(&marked(), MARKED_PAYLOAD), expected);
    }

    #[test]
    fn values_print_short_and_strictly() {
        // Goal: numbers keep their meaning and text cannot break the line. Method: the values at the edges.
        let cases = [
            (Value::Float32(0.1), "0.1"),
            (Value::Float(0.1), "0.1"),
            (Value::Float(-0.0), "-0.0"),
            (Value::Float32(16_777_216.0), "16777216.0"),
            (Value::Float(f64::NAN), "null"),
            (Value::Float32(f32::INFINITY), "null"),
            (Value::Float(f64::NEG_INFINITY), "null"),
            (Value::Unsigned(u64::MAX), "18446744073709551615"),
            (Value::Signed(i64::MIN), "-9223372036854775808"),
            (Value::Bool(false), "false"),
            (Value::Absent, "null"),
            (Value::Text("\"\\\n\u{1}\u{1f600}/"), "\"\\\"\\\\\\n\\u0001\u{1f600}/\""),
        ];
        for (value, expected) in cases {
            let mut output = Vec::new();
            append_json_value(value, &mut output);
            assert_eq!(String::from_utf8(output).unwrap(), expected);
        }
    }

    #[test]
    fn a_damaged_payload_leaves_the_output_as_it_was() {
        // Goal: no half object reaches a file. Method: a payload without its end, behind a good one.
        let mut output = b"before".to_vec();
        let cut = &SHAPES_PAYLOAD[..SHAPES_PAYLOAD.len() - 64];
        assert!(shapes().append_json(cut, &mut output).is_err());
        assert_eq!(output, b"before");
    }
}
