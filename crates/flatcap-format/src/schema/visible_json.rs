//! JSON and text without control characters and invisible characters, so that printing on a
//! terminal is safe. The meaning of the JSON does not change.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;

use super::plain_name::is_invisible;

/// Returns a value as JSON in one line.
///
/// # Errors
/// Fails if the value cannot be serialized, or if a map has keys that are not strings.
pub fn to_visible_json<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
    serde_json::to_string(value).map(visible_json)
}

/// Returns a value as indented JSON, for people.
///
/// # Errors
/// Returns the same errors as [`to_visible_json`].
pub fn to_visible_json_lines<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(visible_json)
}

/// Escapes the invisible characters in the strings of a JSON text. The JSON text must be valid.
/// Outside of strings, only white space can be invisible. Outside of strings, each invisible
/// character except a line feed becomes a space.
pub fn visible_json(json: String) -> String {
    let is_hidden = |character: char| character != '\n' && is_invisible(character);
    if !json.contains(is_hidden) {
        return json;
    }
    let mut visible = String::with_capacity(json.len() + 16);
    let (mut is_string, mut is_escaped) = (false, false);
    for character in json.chars() {
        is_string ^= character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        if !is_hidden(character) {
            visible.push(character);
        } else if is_string {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                // Writing to a String does not fail.
                let _written = write!(visible, "\\u{unit:04x}");
            }
        } else {
            visible.push(' ');
        }
    }
    visible
}

/// Returns a string in which [unsafe](is_terminal_unsafe) characters are escaped as in Rust
/// (`\u{1b}`, `\n`).
pub fn visible_text(text: &str) -> Cow<'_, str> {
    if !text.contains(is_terminal_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_terminal_unsafe(character) {
            visible.extend(character.escape_default());
        } else {
            visible.push(character);
        }
    }
    Cow::Owned(visible)
}

/// Returns whether a character must not reach a terminal. Control characters could move the cursor,
/// set the title or forge a line. Some other characters change the writing direction.
pub fn is_terminal_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Proves that any string can be read back unchanged, also as a key, and that no character
        // of the JSON is invisible or moves a cursor.
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

        // Proves that any JSON text keeps its meaning and becomes visible, also if it contains
        // escaped quotes, backslashes and white space between its parts. Proves that a visible text
        // is unchanged.
        #[test]
        fn any_json_text_keeps_its_meaning(
            parts in prop::collection::vec(prop::sample::select(vec![
                "\"", "\\", "\u{9b}", "\u{202e}", "\u{1b}", "a", "\u{7f}", "\\u001b", "\t", "{",
            ]), 0..12),
            space in prop::sample::select(vec!["", " ", "\t", "\r\n", "\n"]),
        ) {
            let value = vec![parts.concat(), "b".to_owned()];
            let json = format!(
                "{space}[{space}{}{space},{space}{}{space}]{space}",
                serde_json::to_string(&value[0]).unwrap(),
                serde_json::to_string(&value[1]).unwrap(),
            );
            let shown = visible_json(json);
            prop_assert!(shown.chars().all(|c| c == '\n' || !is_invisible(c)), "{shown:?}");
            prop_assert_eq!(&serde_json::from_str::<Vec<String>>(&shown).unwrap(), &value);
            prop_assert_eq!(visible_json(shown.clone()), shown);
        }
    }

    // Proves that no name can move a terminal's cursor or forge a line, and that harmless names are
    // unchanged.
    #[test]
    fn names_are_fit_for_a_terminal() {
        assert_eq!(visible_text("\x1b]0;x\x07\r\n\u{9b}2J"), "\\u{1b}]0;x\\u{7}\\r\\n\\u{9b}2J");
        assert_eq!(visible_text("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(visible_text("a\u{61c}b"), "a\\u{61c}b");
        for harmless in ["cpu", "tick \u{e4}\u{4e2d}", "file.a-b", "a\\b"] {
            assert!(matches!(visible_text(harmless), Cow::Borrowed(text) if text == harmless), "{harmless}");
        }
    }
}
