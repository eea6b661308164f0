//! Checks whether names need quotes in paths of fields.

/// The rule that [`is_plain_source_name`] checks, as text for error messages.
pub const PLAIN_NAME_RULE: &str = "parts separated by dots, each with a character that is not a digit, without spaces at its ends, \
     control or invisible characters, and without any of []\"=,!~<>*(){};\\'`; the first one without - at its begin";

/// Characters that have a special meaning in paths, conditions and lists of names.
const SPECIAL: [char; 18] =
    ['[', ']', '"', '=', ',', '!', '~', '<', '>', '*', '(', ')', '{', '}', ';', '\\', '\'', '`'];

/// Returns whether a source's name follows [`PLAIN_NAME_RULE`]. A path can contain such a name
/// without quotes. No other name looks the same. No command mistakes a path with such a name for an
/// option.
pub fn is_plain_source_name(name: &str) -> bool {
    !name.starts_with('-') && name.split('.').all(is_plain_field_name)
}

/// Returns whether a path can contain this field name without quotes. Such a name follows the rule
/// for one part of a source's name.
pub fn is_plain_field_name(name: &str) -> bool {
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    // This first condition accepts most names without the Unicode tables that the rest of the rule
    // needs.
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        || !name.contains('.')
            && name.trim() == name
            && !name.chars().any(|character| SPECIAL.contains(&character) || is_invisible(character))
}

/// Returns whether a character is a control character, is invisible, or changes the writing
/// direction of other characters.
pub(super) fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that ordinary names are plain. Proves that a name is not plain if it could be mistaken
    // for something else in a path or by a person.
    #[test]
    fn ordinary_names_are_plain() {
        for name in
            ["orders", "file.raid", "my source", "\u{e4}\u{f6}", "a-b/c", "x1", "1x", "a:b", "@x", "net#1"]
        {
            assert!(is_plain_source_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a..b",
            "a.",
            "orders[1]",
            "a,b",
            "a\"b",
            " cpu",
            "cpu ",
            "a. b",
            "7",
            "a.7",
            "a=b",
            "a\\",
            "a\nb",
            "a\u{202e}b",
            "a\u{200b}",
            "<img>",
            "a*",
            "a!",
            "-a",
        ] {
            assert!(!is_plain_source_name(name), "{name:?}");
        }
        assert!(is_plain_field_name("load1") && !is_plain_field_name("a.b"));
    }
}
