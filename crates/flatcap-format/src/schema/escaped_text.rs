//! The printed form of strings that are not UTF-8.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns the bytes as a string. If the bytes are not UTF-8, the string is escaped. In an escaped
/// string, each byte that is not part of a character becomes an escape such as `\xc3`, and a
/// backslash becomes `\\`. So two different strings that are not UTF-8 never have the same printed
/// form.
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::new();
    for chunk in bytes.utf8_chunks() {
        escaped.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _infallible = write!(escaped, "\\x{byte:02x}");
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes of an escaped string.
    fn unescaped(text: &str) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('\\') {
            bytes.extend_from_slice(before.as_bytes());
            rest = if let Some(hex) = after.strip_prefix('x') {
                bytes.push(u8::from_str_radix(&hex[..2], 16).unwrap());
                &hex[2..]
            } else {
                bytes.push(b'\\');
                after.strip_prefix('\\').unwrap()
            };
        }
        bytes.extend_from_slice(rest.as_bytes());
        bytes
    }

    proptest! {
        // Proves that UTF-8 is unchanged, and that the escaped form of any other string represents
        // all of its bytes.
        #[test]
        fn no_text_is_lost(
            bytes in prop::collection::vec(
                prop::sample::select(vec![b'a', b'x', b'c', b'3', b'\\', 0xc3, 0xa4, 0xff, 0xe2, 0x82]),
                0..12,
            ),
        ) {
            let text = text_of(&bytes);
            if let Ok(same) = str::from_utf8(&bytes) {
                prop_assert_eq!(text, same);
            } else {
                prop_assert_eq!(unescaped(&text), bytes);
            }
        }
    }

    #[test]
    fn invalid_bytes_and_backslashes_are_escaped() {
        // Proves that the escaped form is the form that FORMAT.md states.
        assert_eq!(text_of(b"process-name-t\xc3"), "process-name-t\\xc3");
        assert_eq!(text_of("a\\xc3 \u{e4}".as_bytes()), "a\\xc3 \u{e4}");
        assert_eq!(text_of(b"a\\xc3 \xc3\xa4 \xff"), "a\\\\xc3 \u{e4} \\xff");
    }
}
