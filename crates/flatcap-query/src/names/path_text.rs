//! Names and values in the form in which they are written in paths of fields.

use std::borrow::Cow;

use flatcap_format::schema::is_plain_source_name;

/// Returns the path of a field for people. The path begins with the name of the source, and has the
/// form of a [`FieldPath`](crate::FieldPath). A name that is not [plain](is_plain_source_name) is
/// in double quotes. A field of another source may have the same path, such as `pool.size` of `db`
/// and `size` of `db.pool`.
pub fn source_path(source: &str, path: &str) -> String {
    format!("{}.{path}", quoted_name(source))
}

/// Returns the name of a source in the form in which a path contains it, with the id of the source
/// if there is one. A name such as `orders[3]` is in quotes, so that it does not mean the source
/// with the id 3 and the name `orders`.
pub fn instance_name(source: &str, id: Option<u16>) -> String {
    let source = quoted_name(source);
    match id {
        Some(id) => format!("{source}[{id}]"),
        None => source.into_owned(),
    }
}

/// Returns the path of a field. The path leads to no other source.
pub fn exact_path(source: &str, path: &str) -> String {
    format!("{}.{path}", in_quotes(source))
}

/// Returns a value in quotes, in a form that a [`FieldPath`](crate::FieldPath) and a condition
/// accept.
pub fn quoted_value(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    // Backslashes are doubled only before a quote, because regular expressions contain many
    // backslashes.
    let mut backslashes = 0;
    for character in value.chars() {
        match character {
            '\\' => backslashes += 1,
            '"' => quoted.extend(std::iter::repeat_n('\\', backslashes + 1)),
            _ => {}
        }
        if character != '\\' {
            backslashes = 0;
        }
        quoted.push(character);
    }
    quoted.extend(std::iter::repeat_n('\\', backslashes));
    quoted.push('"');
    quoted
}

/// Reads the part of a quoted value that follows the opening quote. Returns the value, and the
/// length of its quoted form including the closing quote. Returns `None` if there is no closing
/// quote. This function is the inverse of [`quoted_value`].
pub(crate) fn read_quoted_value(text: &str) -> Option<(String, usize)> {
    let (mut value, mut backslashes) = (String::new(), 0_usize);
    for (at, character) in text.char_indices() {
        match character {
            '\\' => {
                backslashes += 1;
                continue;
            }
            '"' => {
                value.extend(std::iter::repeat_n('\\', backslashes / 2));
                if backslashes.is_multiple_of(2) {
                    return Some((value, at + 1));
                }
            }
            _ => value.extend(std::iter::repeat_n('\\', backslashes)),
        }
        backslashes = 0;
        value.push(character);
    }
    None
}

/// Returns the length of the string up to the first character for which `is_end` is true.
/// Characters in brackets, braces and quotes are skipped.
pub(crate) fn length_outside_quotes(text: &str, is_end: impl Fn(char) -> bool) -> usize {
    let (mut closing, mut is_quoted, mut is_escaped) = (None, false, false);
    for (at, character) in text.char_indices() {
        let was_escaped = is_escaped;
        is_escaped = is_quoted && !was_escaped && character == '\\';
        match character {
            '"' => is_quoted = !is_quoted || was_escaped,
            '[' if !is_quoted && closing.is_none() => closing = Some(']'),
            '{' if !is_quoted && closing.is_none() => closing = Some('}'),
            other if !is_quoted && closing == Some(other) => closing = None,
            other if closing.is_none() && !is_quoted && is_end(other) => return at,
            _ => {}
        }
    }
    text.len()
}

/// Returns a name in the form in which it is written in a path.
pub(super) fn quoted_name(name: &str) -> Cow<'_, str> {
    if is_plain_source_name(name) { Cow::Borrowed(name) } else { Cow::Owned(in_quotes(name)) }
}

/// Returns a name in quotes.
pub(super) fn in_quotes(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns a value in the form in which it is written in brackets. The value is quoted if
/// necessary.
pub(crate) fn quoted(value: &str) -> String {
    if is_plain_value(value) { value.to_owned() } else { quoted_value(value) }
}

/// Returns whether a value needs no quotes in brackets.
pub(super) fn is_plain_value(value: &str) -> bool {
    !value.is_empty()
        && value != "*"
        && !value.contains(['[', ']', '=', '!', ',', '"'])
        && value.trim() == value
}
