//! JSON with escapes for control and invisible characters in strings. It is safe to print on a
//! terminal and has the same meaning.

use std::fmt::Write as _;

use serde::Serialize;

use super::plain_name::is_invisible;

/// Returns a value as JSON in one line.
///
/// # Errors
/// The value cannot be serialized, or a map has keys that are not strings.
pub fn to_visible_json<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
    serde_json::to_string(value).map(visible)
}

/// Returns a value as indented JSON, for people.
///
/// # Errors
/// As [`to_visible_json`].
pub fn to_visible_json_lines<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(visible)
}

/// Escapes the invisible characters of JSON, except line feeds. All of them are in strings: outside
/// of strings, the only invisible characters are line feeds.
fn visible(json: String) -> String {
    let is_hidden = |character: char| character != '\n' && is_invisible(character);
    if json.is_ascii() && !json.contains('\x7f') || !json.contains(is_hidden) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_hidden(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                // Writing to a String does not fail.
                let _written = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Proves that any string is read back unchanged, also as a key, and that no character of
        // the JSON is invisible or moves a cursor.
        #[test]
        fn any_text_is_read_back(text: String, mark in prop::sample::select(vec![
            '\u{9b}', '\u{7f}', '\u{202e}', '\u{200b}', '\u{e0001}', '\u{1b}', '\n', 'a',
        ])) {
            let text = format!("{text}{mark}");
            let value = std::collections::BTreeMap::from([(text.clone(), vec![text])]);
            for json in [to_visible_json(&value).unwrap(), to_visible_json_lines(&value).unwrap()] {
                prop_assert!(json.chars().all(|c| c == '\n' || !is_invisible(c)), "{json:?}");
                prop_assert_eq!(&serde_json::from_str::<std::collections::BTreeMap<String, Vec<String>>>(&json).unwrap(), &value);
            }
        }
    }
}
