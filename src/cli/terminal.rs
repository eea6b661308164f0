//! The abilities of the reader of an output: its width, and whether it shows colors. Breaks lines
//! to that width.

use std::io::{self, IsTerminal};

use comfy_table::Table;

/// Narrower output is not fitted: tables would have no columns left. A value of COLUMNS below it is
/// a mistake.
const WIDTH_MIN: usize = 20;

/// Width of output that is made to fit, if nothing says how wide that is.
const WIDTH_DEFAULT: usize = 80;

/// The stream that is printed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Stdout,
    Stderr,
}

impl Output {
    /// Returns the width of the lines: COLUMNS, also for a pipe, else the width of the terminal.
    /// Returns `None` if neither is known.
    pub(super) fn width(self) -> Option<usize> {
        let wanted = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        wanted.filter(|width| *width >= WIDTH_MIN).or_else(|| self.terminal_width())
    }

    /// Returns the width of lines that must fit somewhere.
    pub(super) fn width_to_fit(self) -> usize {
        self.width().unwrap_or(WIDTH_DEFAULT)
    }

    /// Returns the width of a terminal; `None` if the stream is no terminal.
    pub(super) fn terminal_width(self) -> Option<usize> {
        let mut table = Table::new();
        if self == Self::Stderr {
            table.use_stderr();
        }
        // A terminal without a size reports 0.
        table.width().filter(|width| *width > 0).map(usize::from)
    }

    /// Returns whether the stream is a terminal.
    pub(super) fn is_terminal(self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        }
    }

    /// Returns whether the stream is a terminal with colors, and `NO_COLOR` is not set.
    pub(super) fn has_colors(self) -> bool {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        self.is_terminal() && !is_unwanted && !is_dumb
    }
}

/// Breaks a line at spaces where it exceeds the width, and indents what follows. A word that is
/// longer, such as a path, stays whole. Color codes take no width.
pub(super) fn wrapped(line: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width.filter(|width| shown_width(line) > *width) else { return line.to_owned() };
    let (mut text, mut used) = (String::new(), 0);
    // Spaces belong to the word after them, so that columns of the first line stay.
    let mut rest = line;
    while !rest.is_empty() {
        let word_at = rest.find(|c: char| c != ' ').unwrap_or(rest.len());
        let end = rest.get(word_at..).and_then(|word| word.find(' ')).map_or(rest.len(), |end| word_at + end);
        let (word, after) = rest.split_at(end);
        let needed = shown_width(word);
        if used > indent && used + needed > width {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            text.push_str(word.trim_start());
            used = indent + shown_width(word.trim_start());
        } else {
            text.push_str(word);
            used += needed;
        }
        rest = after;
    }
    text
}

/// Returns the number of characters that a terminal shows: without color codes.
fn shown_width(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let first = parts.next().map_or(0, |part| part.chars().count());
    let after_codes = parts.map(|part| part.split_once('m').map_or(0, |(_, shown)| shown.chars().count()));
    first + after_codes.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that lines are broken at spaces only, indented, and never wider than asked for unless
    // a word is; and that color codes take no width.
    #[test]
    fn lines_are_broken_at_spaces() {
        let line = "disk     95 B of 100 B (95.0%), 10 B free; /a/very/long/path/of/a/directory end";
        assert_eq!(wrapped(line, None, 9), line);
        assert_eq!(wrapped(line, Some(line.len()), 9), line);
        let broken = wrapped(line, Some(30), 9);
        let expected = "disk     95 B of 100 B\n         (95.0%), 10 B free;\n         \
                        /a/very/long/path/of/a/directory\n         end";
        assert_eq!(broken, expected);
        assert_eq!(wrapped("\x1b[33mab cd\x1b[0m ef", Some(8), 2), "\x1b[33mab cd\x1b[0m ef");
        assert_eq!(wrapped("\x1b[33mab cd\x1b[0m ef", Some(7), 2), "\x1b[33mab cd\x1b[0m\n  ef");
    }
}
