//! Parses TOML. Returns the tree, or reports every line with a syntax error.

use std::collections::BTreeMap;

use toml::de::{DeTable, Error};

use super::diagnostics::{At, Diagnostics};
use super::merge::shifted;

/// The parser's message for a duplicate key or table. In that case the tree keeps the first of the
/// two.
// The errors of the parser have no kind, so they are recognized by their messages.
const DUPLICATE: &str = "duplicate key";
/// The problem of a key or a table that occurs twice.
pub(super) const GIVEN_TWICE: &str = "given twice; keep one";
/// After an error with one of these messages, the parser skips the values that follow, so errors in
/// them stay hidden.
const HIDING_ERRORS: [&str; 2] = ["key with no value", "unclosed table"];
/// Maximum number of times that a text is parsed. Before each further parse, the lines that hid
/// errors are blanked. If errors are still hidden after five parses, the next call of the program
/// reports them.
const PARSES_MAX: usize = 5;

/// Parses an input that starts at offset `start` of the concatenated inputs. The spans of the tree
/// are spans of the concatenated inputs. Returns `None` if the text is not TOML. Errors are
/// reported to `walk`, one per line, because further errors on the same line mostly follow from the
/// first.
pub(super) fn parse<'t>(walk: &mut Diagnostics<'t>, start: usize, text: &'t str) -> Option<DeTable<'t>> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    // If all errors are duplicates, the tree is complete, so that the other mistakes in it can be
    // reported as well.
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
        // Only whole lines were overwritten, so the text is still UTF-8.
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

/// Adds the first error of each line for which no error is known yet. The key of the map is the
/// offset of the line.
fn note(broken: &mut BTreeMap<usize, (usize, String)>, text: &str, mut errors: Vec<Error>) {
    // After a broken table header, keys of two tables may look like duplicates in one.
    errors.retain(|error| error.message() != DUPLICATE);
    errors.sort_by_key(|error| error.span().unwrap_or_default().start);
    for error in errors {
        let offset = error.span().unwrap_or_default().start;
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        // The first error of a line is kept, also if a later parse of the changed text finds
        // another error there.
        broken.entry(line_start).or_insert_with(|| (offset, error.message().to_owned()));
    }
}

/// Overwrites a line with spaces, so that the offsets of all other lines stay the same.
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
        // Proves that no broken line hides the broken lines below it, and that each is reported
        // exactly once.
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
        // Proves that a text with duplicates still gives a tree, and that duplicates are reported
        // only if there is a tree.
        assert_eq!(errors("a = 1\na = 2"), "f.toml:2:1: a: given twice; keep one");
        assert_eq!(errors("a = 1\na = 2\nb"), "f.toml:3:2: not TOML: key with no value, expected `=`");
        assert_eq!(errors("a = 1\r\n[b]\r\n"), "no error");
    }
}
