//! The properties of an output: its width, and whether it shows colors.

use std::io::{self, IsTerminal};

use comfy_table::Table;
pub(super) use flatcap_format::schema::wrapped;

/// Minimum width to which output is fitted. In narrower output, tables would have no columns left,
/// so a smaller value of COLUMNS is a mistake.
const WIDTH_MIN: usize = 20;

/// Width to which output is fitted if the width of the terminal is not known.
const WIDTH_DEFAULT: usize = 80;

/// The stream on which output is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Stdout,
    Stderr,
}

impl Output {
    /// Returns the width of the lines. The width is the value of COLUMNS, even for a pipe, or else
    /// the width of the terminal. Returns `None` if neither is known.
    pub(super) fn width(self) -> Option<usize> {
        let wanted = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        wanted.filter(|width| *width >= WIDTH_MIN).or_else(|| self.terminal_width())
    }

    /// Returns the width to which lines must be fitted. If the width is not known, returns the
    /// default.
    pub(super) fn width_to_fit(self) -> usize {
        self.width().unwrap_or(WIDTH_DEFAULT)
    }

    /// Returns the width of a terminal; `None` if the stream is not a terminal.
    pub(super) fn terminal_width(self) -> Option<usize> {
        let mut table = Table::new();
        if self == Self::Stderr {
            table.use_stderr();
        }
        // A terminal that does not know its size reports 0.
        table.width().filter(|width| *width > 0).map(usize::from)
    }

    /// Returns whether the stream is a terminal.
    pub(super) fn is_terminal(self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        }
    }

    /// Returns whether the stream is a terminal that supports colors, and `NO_COLOR` is not set.
    pub(super) fn has_colors(self) -> bool {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        self.is_terminal() && !is_unwanted && !is_dumb
    }
}
