//! The capabilities of the terminal: colors, and characters beyond ASCII.

use ratatui_core::style::{Color, Modifier, Style};

/// The capabilities of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appearance {
    /// Whether only ASCII is used.
    pub is_ascii: bool,
    /// Whether colors are off.
    pub is_plain: bool,
}

/// Characters for the fill levels of a chart cell, from the lowest level to the highest.
const BLOCKS: [char; 8] =
    ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
const ASCII_LEVELS: [char; 8] = ['.', ':', '-', '=', '+', '*', '#', '@'];

impl Appearance {
    /// Returns the character of a fill level from 1 to 8.
    pub(super) fn level(self, level: usize) -> char {
        let levels = if self.is_ascii { &ASCII_LEVELS } else { &BLOCKS };
        levels.get(level.clamp(1, levels.len()) - 1).copied().unwrap_or('#')
    }

    /// Returns the character that marks a step whose data was not read yet.
    pub(super) fn unread(self) -> char {
        if self.is_ascii { '~' } else { '\u{2591}' }
    }

    /// Returns the flag of a marker.
    pub(super) fn flag(self) -> char {
        if self.is_ascii { '^' } else { '\u{25b2}' }
    }

    /// Returns the character of a horizontal line.
    pub(super) fn line(self) -> char {
        if self.is_ascii { '-' } else { '\u{2500}' }
    }

    /// Returns the style of titles and names.
    pub(super) fn title(self) -> Style {
        self.colored(Color::Cyan)
    }

    /// Returns the style of secondary text.
    pub(super) fn quiet(self) -> Style {
        if self.is_plain { Style::new() } else { Style::new().fg(Color::DarkGray) }
    }

    /// Returns the style of a value that stayed constant during a step.
    pub(super) fn steady(self) -> Style {
        self.colored(Color::Blue)
    }

    /// Returns the style of the range of values in a step.
    pub(super) fn moving(self) -> Style {
        self.colored(Color::Green)
    }

    /// Returns the style of errors and losses.
    pub(super) fn alarm(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Returns the style of notices.
    pub(super) fn notice(self) -> Style {
        self.colored(Color::Yellow)
    }

    /// Returns the style of the selection.
    pub(super) fn selected() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn colored(self, color: Color) -> Style {
        if self.is_plain { Style::new() } else { Style::new().fg(color) }
    }

    /// Returns a string from a recording in a form that is safe to print. Control characters are
    /// escaped, and characters that the terminal cannot show become question marks.
    pub(super) fn text(self, text: &str) -> String {
        // Control characters in a recording could change the terminal.
        let text = flatcap_text::human::printable(text);
        if self.is_ascii { text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect() } else { text }
    }
}
