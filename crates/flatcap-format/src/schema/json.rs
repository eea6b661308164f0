//! Writes payloads as JSON. The objects are nested as in the schema, and the fields are in the
//! order of their ids.

use serde::Serialize;

use super::compiled::CompiledSchema;
use super::error::DecodeError;
use super::value::FieldValue;
use super::visible_json::to_visible_json;
use super::visitor::{PathStep, Visitor};

impl CompiledSchema {
    /// Appends one payload as a JSON object. If there is an error, the output is unchanged.
    ///
    /// # Errors
    /// Returns the same errors as [`walk`](Self::walk).
    pub fn append_json(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), DecodeError> {
        let length = output.len();
        let walked = self.walk(payload, &mut JsonWriter::new(output));
        // The visitor has already written the values that come before the error.
        if walked.is_err() {
            output.truncate(length);
        }
        walked
    }
}

/// A visitor that appends a payload to a buffer as one JSON object, without an intermediate tree.
///
/// 64-bit integers are JSON numbers. Absent values, NaN and infinity are null.
#[derive(Debug)]
pub struct JsonWriter<'o> {
    output: &'o mut Vec<u8>,
}

impl<'o> JsonWriter<'o> {
    /// Creates a writer that appends to `output`.
    pub fn new(output: &'o mut Vec<u8>) -> Self {
        Self { output }
    }

    fn write_prefix(&mut self, step: PathStep<'_>) {
        match step {
            PathStep::Root | PathStep::Element(_, 0) => {}
            PathStep::Field(field) => {
                // No comma follows the opening brace of an object. If a string ends with a brace,
                // the last byte is the closing quote, so the brace is not mistaken for an opening
                // brace.
                if self.output.last() != Some(&b'{') {
                    self.output.push(b',');
                }
                // The name is not escaped, because a compiled schema has no names that need
                // escapes.
                self.output.push(b'"');
                self.output.extend_from_slice(field.name().as_bytes());
                self.output.extend_from_slice(b"\":");
            }
            PathStep::Element(..) => self.output.push(b','),
        }
    }
}

impl Visitor for JsonWriter<'_> {
    fn begin_object(&mut self, step: PathStep<'_>) {
        self.write_prefix(step);
        self.output.push(b'{');
    }

    fn end_object(&mut self) {
        self.output.push(b'}');
    }

    fn begin_list(&mut self, step: PathStep<'_>, _length: usize) {
        self.write_prefix(step);
        self.output.push(b'[');
    }

    fn end_list(&mut self) {
        self.output.push(b']');
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        self.write_prefix(step);
        append_json_value(value, self.output);
    }
}

/// Appends one value as JSON.
pub fn append_json_value(value: FieldValue<'_>, output: &mut Vec<u8>) {
    match value {
        FieldValue::Unsigned(number) => append(&number, output),
        FieldValue::Signed(number) => append(&number, output),
        FieldValue::Float32(number) => append(&number, output),
        // JSON has no NaN and no infinity, so serde_json writes them as null.
        FieldValue::Float(number) => append(&number, output),
        FieldValue::Bool(truth) => append(&truth, output),
        FieldValue::Text(text) => append_text(text, output),
        FieldValue::Absent => output.extend_from_slice(b"null"),
    }
}

/// Appends a string, with the escapes that JSON or a terminal needs.
fn append_text(text: &str, output: &mut Vec<u8>) {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
        output.push(b'"');
        output.extend_from_slice(text.as_bytes());
        output.push(b'"');
    } else if let Ok(json) = to_visible_json(text) {
        output.extend_from_slice(json.as_bytes());
    }
}

fn append<T: Serialize + ?Sized>(value: &T, output: &mut Vec<u8>) {
    serde_json::to_writer(output, value).expect("a vector takes every byte, and a scalar always serializes");
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::Value as Tree;

    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_FLATC_JSON, SHAPES_PAYLOAD, json, marked, shapes};
    use super::*;

    /// Removes nulls, because flatc omits absent values.
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
        // Proves that values of all types are decoded in the same way as by flatc. The test
        // compares the output with flatc's JSON of the same payload.
        let ours: Tree = serde_json::from_str(&json(&shapes(), SHAPES_PAYLOAD)).unwrap();
        let expected: Tree = serde_json::from_str(SHAPES_FLATC_JSON).unwrap();
        assert_eq!(without_nulls(ours), without_nulls(expected));
    }

    #[test]
    fn the_installed_flatc_agrees() {
        // Proves that the installed flatc, if any, gives the same result for a payload with changed
        // numbers.
        let mut payload = SHAPES_PAYLOAD.to_vec();
        for (old, new) in [(0.3_f32, 1.5_f32), (0.1, -7.25)] {
            let at = payload.windows(4).position(|window| window == old.to_le_bytes()).unwrap();
            payload[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("changed.bin"), &payload).unwrap();
        let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/schema/shapes.fbs");
        let run = Command::new("flatc")
            .args(["--json", "--strict-json", "--defaults-json", "--raw-binary", schema, "--", "changed.bin"])
            .current_dir(folder.path())
            .status();
        // Under qemu-user, starting a missing program succeeds, and the process then ends with
        // status 127.
        let Some(status) = run.ok().filter(|status| status.code() != Some(127)) else {
            println!("skipped: flatc is not in PATH");
            return;
        };
        assert!(status.success());
        let judged = std::fs::read_to_string(folder.path().join("changed.json")).unwrap();
        let expected: Tree = serde_json::from_str(&judged).unwrap();
        let ours: Tree = serde_json::from_str(&json(&shapes(), &payload)).unwrap();
        assert_eq!(without_nulls(ours), without_nulls(expected));
    }

    #[test]
    fn marked_fields_read_as_marked() {
        // Proves that absent values are null, that bytes with text are strings, and that combined
        // bit flags are a number.
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
        // Proves that numbers at the limits of their types keep their value and that text is
        // escaped.
        let cases = [
            (FieldValue::Float32(0.1), "0.1"),
            (FieldValue::Float(0.1), "0.1"),
            (FieldValue::Float(-0.0), "-0.0"),
            (FieldValue::Float32(16_777_216.0), "16777216.0"),
            (FieldValue::Float(f64::NAN), "null"),
            (FieldValue::Float32(f32::INFINITY), "null"),
            (FieldValue::Float(f64::NEG_INFINITY), "null"),
            (FieldValue::Unsigned(u64::MAX), "18446744073709551615"),
            (FieldValue::Signed(i64::MIN), "-9223372036854775808"),
            (FieldValue::Bool(false), "false"),
            (FieldValue::Absent, "null"),
            (FieldValue::Text("\"\\\n\u{1}\u{1f600}/"), "\"\\\"\\\\\\n\\u0001\u{1f600}/\""),
        ];
        for (value, expected) in cases {
            let mut output = Vec::new();
            append_json_value(value, &mut output);
            assert_eq!(String::from_utf8(output).unwrap(), expected);
        }
    }

    #[test]
    fn a_damaged_payload_leaves_the_output_as_it_was() {
        // Proves that the output is unchanged if decoding a payload fails.
        let mut output = b"before".to_vec();
        let cut = &SHAPES_PAYLOAD[..SHAPES_PAYLOAD.len() - 64];
        assert!(shapes().append_json(cut, &mut output).is_err());
        assert_eq!(output, b"before");
    }
}
