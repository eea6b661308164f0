//! Parses TOML: returns the tree, or reports every line with a syntax error.

use std::collections::BTreeMap;

use toml::de::{DeTable, Error};

use super::diagnostics::{At, Diagnostics};
use super::merge::shifted;

/// The parser's message for a duplicate key or table; the tree keeps the first one.
// The parser gives errors no kind, so they are known by their messages.
const DUPLICATE: &str = "duplicate key";
/// The problem of a key or a table that occurs twice.
pub(super) const GIVEN_TWICE: &str = "given twice; keep one";
/// After an error with one of these messages, the parser skips the values that follow.
const HIDING_ERRORS: [&str; 2] = ["key with no value", "unclosed table"];
/// Maximum number of parses: each one blanks the lines that hid errors from the one before. Errors
/// that five parses miss are reported by the next call of the program.
const PARSES_MAX: usize = 5;

/// Parses a text that starts at offset `start` of the concatenated texts; spans are relative to
/// those. Returns `None` if the text is not TOML. Errors are reported to `walk`, one per line,
/// because further errors on the same line mostly follow from the first.
pub(super) fn parse<'t>(walk: &mut Diagnostics<'t>, start: usize, text: &'t str) -> Option<DeTable<'t>> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    // Except for duplicates the tree is whole, so its other mistakes can be reported as well.
    if errors.iter().all(|error| error.message() == DUPLICATE) {
        for error in &errors {
            let span = error.span().unwrap_or_default();
            walk.reject(At::Name(start + span.start..start + span.end), GIVEN_TWICE.to_owned());
        }
        return Some(shifted(tree.into_inner(), start));
    }
    let mut broken = BTreeMap::new();
    note(&mut broken, text, errors);
    let mut rest = text.as_bytes().to_vec();
    for _ in 1..PARSES_MAX {
        let known = broken.len();
        for (line_start, (_, message)) in &broken {
            if HIDING_ERRORS.iter().any(|start| message.starts_with(start)) {
                blank(&mut rest, *line_start);
            }
        }
        // Whole lines were overwritten, so this is still UTF-8.
        let (_, errors) = DeTable::parse_recoverable(std::str::from_utf8(&rest).unwrap_or_default());
        note(&mut broken, text, errors);
        if broken.len() == known {
            break;
        }
    }
    for (offset, message) in broken.into_values() {
        walk.reject(At::Offset(start + offset), format!("not TOML: {message}"));
    }
    None
}

/// Adds the first error of each line that has none yet. The key is the offset of the line.
fn note(broken: &mut BTreeMap<usize, (usize, String)>, text: &str, mut errors: Vec<Error>) {
    // After a broken table header, keys of two tables may look like duplicates in one.
    errors.retain(|error| error.message() != DUPLICATE);
    errors.sort_by_key(|error| error.span().unwrap_or_default().start);
    for error in errors {
        let offset = error.span().unwrap_or_default().start;
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        // The first error of a line wins, also over errors of a later parse of changed lines.
        broken.entry(line_start).or_insert_with(|| (offset, error.message().to_owned()));
    }
}

/// Overwrites a line with spaces, so that all other offsets stay the same.
fn blank(text: &mut [u8], line_start: usize) {
    let line = text.get_mut(line_start..).unwrap_or_default();
    line.iter_mut().take_while(|byte| !matches!(**byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::input_texts::InputTexts;

    fn errors(text: &str) -> String {
        let texts = InputTexts::of_file("f.toml", text);
        let mut walk = Diagnostics::new(&texts);
        let tree = parse(&mut walk, 0, text);
        let findings = walk.into_local();
        assert!(tree.is_some() || !findings.is_empty());
        if findings.is_empty() {
            "no error".to_owned()
        } else {
            findings.into_errors(&texts, Vec::new()).to_string()
        }
    }

    #[test]
    fn every_broken_line_is_reported() {
        // Proves that no broken line hides those below it, and that each is reported once.
        assert_eq!(
            errors("[agent\na = \nb c d\n[x]\ne = 10ms\nf = \"abc\n[y]\ng = tru\n"),
            "f.toml:1:7: not TOML: unclosed table, expected `]`\n\
             f.toml:2:5: not TOML: string values must be quoted, expected literal string\n\
             f.toml:3:3: not TOML: key with no value, expected `=`\n\
             f.toml:5:5: not TOML: string values must be quoted, expected literal string\n\
             f.toml:6:9: not TOML: invalid basic string, expected `\"`\n\
             f.toml:8:5: not TOML: invalid boolean, expected `true`"
        );
        assert_eq!(errors("a = [1, 2\n"), "f.toml:1:10: not TOML: unclosed array, expected `]`");
    }

    #[test]
    fn a_repeated_name_is_no_broken_line() {
        // Proves that duplicates still give a tree, and are reported only if there is one.
        assert_eq!(errors("a = 1\na = 2"), "f.toml:2:1: a: given twice; keep one");
        assert_eq!(errors("a = 1\na = 2\nb"), "f.toml:3:2: not TOML: key with no value, expected `=`");
        assert_eq!(errors("a = 1\r\n[b]\r\n"), "no error");
    }
}
