//! The numbers and booleans of a JSON document, identified by their paths, such as `a.b.0.c`. No
//! tree is built. The parser (`serde_json`) allocates only for strings with escapes and for errors.

use std::fmt::{self, Write};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::named_series::{FoundSeries, SeriesKind};
use super::skipped_values::{SkipReason, SkippedValues};
use crate::Incomplete;

/// In the log line of a parse error, this many bytes before the error are shown.
const BYTES_BEFORE_ERROR: usize = 40;

/// Parses documents, and reuses its buffer.
#[derive(Debug, Default)]
pub(super) struct JsonParser {
    path: String,
}

impl JsonParser {
    /// Calls `add` with each number and bool of a document, in the order of the document. If the
    /// whole document is one number, its name is `default_name`. Strings and nulls are counted as
    /// skipped but do not make the sample incomplete. If a document is truncated or is not JSON,
    /// this function finds the values before the first error.
    pub(super) fn parse(
        &mut self,
        content: &[u8],
        default_name: &str,
        skipped: &mut SkippedValues,
        add: impl FnMut(FoundSeries<'_>, &mut SkippedValues),
    ) -> Incomplete {
        self.path.clear();
        let mut json = serde_json::Deserializer::from_slice(content);
        let mut walk = JsonWalk { path: &mut self.path, default_name, skipped: &mut *skipped, add };
        let walked = walk.deserialize(&mut json).and_then(|()| json.end());
        let Err(error) = walked else { return Incomplete::NONE };
        if error.is_eof() {
            return Incomplete::CUT;
        }
        let (line, column) = (error.line(), error.column());
        let text = content.split(|byte| *byte == b'\n').nth(line.saturating_sub(1)).unwrap_or_default();
        let text = text.get(column.saturating_sub(BYTES_BEFORE_ERROR)..).unwrap_or_default();
        skipped.add(SkipReason::NotJson { line, column }, text);
        Incomplete::NONE
    }
}

/// Visits the values of a document, and keeps the path of the current value.
struct JsonWalk<'w, F> {
    path: &'w mut String,
    default_name: &'w str,
    skipped: &'w mut SkippedValues,
    add: F,
}

impl<F: FnMut(FoundSeries<'_>, &mut SkippedValues)> JsonWalk<'_, F> {
    fn found(&mut self, value: f64) {
        let name = if self.path.is_empty() { self.default_name } else { self.path.as_str() };
        (self.add)(FoundSeries { kind: SeriesKind::Gauge, name, labels: "", value }, self.skipped);
    }
}

impl<'de, F: FnMut(FoundSeries<'_>, &mut SkippedValues)> DeserializeSeed<'de> for &mut JsonWalk<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

#[allow(clippy::cast_precision_loss, reason = "the schema says: to the nearest number of this type")]
impl<'de, F: FnMut(FoundSeries<'_>, &mut SkippedValues)> Visitor<'de> for &mut JsonWalk<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.found(f64::from(u8::from(value)));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.found(value as f64);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.found(value as f64);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.found(value);
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.skipped.add_expected();
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.skipped.add_expected();
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let length = self.path.len();
        for index in 0_usize.. {
            let dot = if length == 0 { "" } else { "." };
            // Formatting into a string cannot fail.
            let _infallible = write!(self.path, "{dot}{index}");
            let element = elements.next_element_seed(&mut *self)?;
            self.path.truncate(length);
            if element.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let length = self.path.len();
        while fields.next_key_seed(PathStep(self.path))?.is_some() {
            fields.next_value_seed(&mut *self)?;
            self.path.truncate(length);
        }
        Ok(())
    }
}

/// Appends a key of an object to the path.
struct PathStep<'w>(&'w mut String);

impl<'de> DeserializeSeed<'de> for PathStep<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<(), D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for PathStep<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<(), E> {
        if !self.0.is_empty() {
            self.0.push('.');
        }
        self.0.push_str(key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::sources::tests::assert_damage_is_marked;

    /// Returns paths and values, the number of values that were skipped, and the reasons why the
    /// sample is incomplete.
    fn parsed(text: &[u8]) -> (Vec<(String, f64)>, u64, Incomplete) {
        let mut skipped = SkippedValues::new("file.x".to_owned(), "json");
        let mut found = Vec::new();
        let cut = JsonParser::default().parse(text, "x", &mut skipped, |series, _| {
            assert_eq!((series.kind, series.labels), (SeriesKind::Gauge, ""));
            found.push((series.name.to_owned(), series.value));
        });
        (found, skipped.count(), cut | skipped.incomplete())
    }

    /// Flattens a tree as a naive reader does. Collects paths and values in `found`, and returns
    /// the number of other values.
    fn flattened(value: &Value, path: &str, found: &mut Vec<(String, f64)>) -> u64 {
        let below = |step: &str| if path.is_empty() { step.to_owned() } else { format!("{path}.{step}") };
        match value {
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| flattened(value, &below(key), found)).sum()
            }
            Value::Array(elements) => elements
                .iter()
                .enumerate()
                .map(|(index, value)| flattened(value, &below(&index.to_string()), found))
                .sum(),
            Value::Number(number) => {
                found.push((below("").trim_end_matches('.').to_owned(), number.as_f64().unwrap()));
                0
            }
            Value::Bool(truth) => {
                found.push((below("").trim_end_matches('.').to_owned(), f64::from(u8::from(*truth))));
                0
            }
            Value::String(_) | Value::Null => 1,
        }
    }

    // Proves that numbers and bools are found by their paths, and that all other values are counted
    // without making the sample incomplete.
    #[test]
    fn values_have_paths() {
        let text = br#"{"a": {"b": [{"c": 1.5}, -2]}, "on": true, "s": "9", "n": null, "\u00e4": 18446744073709551615}"#;
        let expected: [(&str, f64); 4] =
            [("a.b.0.c", 1.5), ("a.b.1", -2.0), ("on", 1.0), ("\u{e4}", 18_446_744_073_709_551_615.0)];
        let expected = expected.map(|(path, value)| (path.to_owned(), value)).to_vec();
        assert_eq!(parsed(text), (expected, 2, Incomplete::NONE));
        assert_eq!(parsed(b" 7\n"), (vec![("x".to_owned(), 7.0)], 0, Incomplete::NONE));
        assert_eq!(parsed(b"[[1]]"), (vec![("0.0".to_owned(), 1.0)], 0, Incomplete::NONE));
    }

    // Proves that a truncated or damaged document gives the values before the damage and is marked,
    // and that deep nesting is limited.
    #[test]
    fn damaged_documents_are_marked() {
        let one = vec![("a".to_owned(), 1.0)];
        assert_eq!(parsed(br#"{"a": 1, "b": "#), (one.clone(), 0, Incomplete::CUT));
        assert_eq!(parsed(br#"{"a": 1, b: 2}"#), (one.clone(), 1, Incomplete::UNREADABLE));
        assert_eq!(parsed(br#"{"a": 1} {}"#), (one.clone(), 1, Incomplete::UNREADABLE));
        assert_eq!(parsed(br#"{"a": 1, "b": 1e999}"#), (one, 1, Incomplete::UNREADABLE));
        assert_eq!(parsed(b"").2, Incomplete::CUT);
        assert_eq!(parsed("[".repeat(100_000).as_bytes()), (Vec::new(), 1, Incomplete::UNREADABLE));
        assert_damage_is_marked(b"{\"a\":[1,2],\"b\":{\"c\":true}}", |text| {
            let (found, skipped, incomplete) = parsed(text);
            incomplete.is_none() && skipped == 0 && found.len() == 3
        });
    }

    proptest! {
        // Proves that no input causes a panic, and that there are no more values than bytes.
        #[test]
        fn no_bytes_panic(text in prop::collection::vec(
            prop_oneof![prop::sample::select(b"{}[]\":,019.eE-truefalsn\\u \n".to_vec()), any::<u8>()], 0..200)) {
            let (found, skipped, _) = parsed(&text);
            prop_assert!(found.len() as u64 + skipped <= text.len() as u64 + 1);
        }

        // Proves that, for any document, the parser finds the same values as a naive reader of the
        // document's tree.
        #[test]
        fn agrees_with_a_naive_reader(seed in prop::collection::vec(any::<u8>(), 1..60)) {
            let mut bytes = seed.iter().copied();
            let document = Value::Object([("r".to_owned(), tree(&mut bytes, 4))].into_iter().collect());
            let mut expected = Vec::new();
            let others = flattened(&document, "", &mut expected);
            let text = serde_json::to_vec(&document).unwrap();
            prop_assert_eq!(parsed(&text), (expected, others, Incomplete::NONE));
        }
    }

    /// Returns a JSON tree that is determined by `bytes`.
    fn tree(bytes: &mut impl Iterator<Item = u8>, depth: usize) -> Value {
        let next = bytes.next().unwrap_or(0);
        let below = usize::from(next >> 4) % 5;
        match next % 7 {
            0 => Value::Null,
            1 => Value::Bool(next > 100),
            2 => Value::from(f64::from(next) / 8.0),
            3 => Value::from(u64::MAX - u64::from(next)),
            4 => Value::String("1".to_owned()),
            5 if depth > 0 => Value::Array((0..below).map(|_| tree(bytes, depth - 1)).collect()),
            6 if depth > 0 => {
                Value::Object((0..below).map(|key| (format!("k{key}"), tree(bytes, depth - 1))).collect())
            }
            _ => Value::from(-i64::from(next)),
        }
    }
}
