//! Wraps the lines of a manual page. Each sentence starts on a new line, and no line is wider than
//! a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Maximum length of a line of text, in bytes. Tags and examples are not wrapped.
const LINE_BYTES_MAX: usize = 78;

/// Breaks lines of text after sentences and at the maximum length. Text between `.nf` and `.fi`,
/// the tag after `.TP`, the NAME line (which indexers read) and commands with an effect are not
/// changed. Commands without effect are removed.
pub(super) fn wrap(text: &str) -> String {
    let mut filled: Vec<Cow<'_, str>> = Vec::new();
    let (mut is_verbatim, mut is_kept) = (false, false);
    for line in text.lines() {
        if line.starts_with(['.', '\'']) {
            is_verbatim = line.starts_with(".nf") || is_verbatim && !line.starts_with(".fi");
            is_kept = line == ".TP" || line == ".SH NAME";
            let before = filled.last().map_or("", AsRef::as_ref);
            let is_redundant = line == ".PP" && (before.starts_with(".SS") || before.starts_with(".SH"))
                || line == ".br" && before == ".br";
            if !is_redundant {
                filled.push(line.trim_end().into());
            }
        } else if is_verbatim || is_kept {
            is_kept = false;
            filled.push(line.into());
        } else if !line.trim().is_empty() {
            filled.push(wrap_line(line).into());
        }
    }
    filled.push("".into());
    filled.join("\n")
}

fn wrap_line(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 8);
    let mut length = 0;
    let mut is_end_of_sentence = false;
    for word in line.split_whitespace() {
        let begins_one = word.starts_with(|first: char| first.is_ascii_uppercase());
        if length > 0 && (length + 1 + word.len() > LINE_BYTES_MAX || is_end_of_sentence && begins_one) {
            out.push('\n');
            length = 0;
        } else if length > 0 {
            out.push(' ');
            length += 1;
        }
        // At the start of a line, these characters would turn the line into a command.
        let guard = if length == 0 && word.starts_with(['.', '\'']) { "\\&" } else { "" };
        let _never_fails = write!(out, "{guard}{word}");
        length += guard.len() + word.len();
        is_end_of_sentence = word.ends_with(['.', '?', '!']);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::wrap;

    // Proves that text is wrapped, and that everything else is unchanged.
    #[test]
    fn only_text_is_broken() {
        let tag = "x".repeat(90);
        let code = format!("  {} y", "x ".repeat(60));
        let text = format!(".TP\n{tag} a\nOne. Two {} three\n.nf\n{code}\n.fi\n", "w".repeat(72));
        let expected = format!(".TP\n{tag} a\nOne.\nTwo {}\nthree\n.nf\n{code}\n.fi\n", "w".repeat(72));
        assert_eq!(wrap(&text), expected);
    }

    // Proves that a word with a leading dot never becomes a command at the start of a line.
    #[test]
    fn a_leading_point_is_no_command() {
        assert_eq!(wrap(&format!("{} .toml", "w".repeat(78))), format!("{}\n\\&.toml\n", "w".repeat(78)));
    }
}
