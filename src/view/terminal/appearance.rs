//! What the terminal can show: colors, and characters beyond ASCII.

use ratatui::style::{Color, Modifier, Style};

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appearance {
    /// Only ASCII.
    pub is_ascii: bool,
    /// No colors.
    pub is_plain: bool,
}

/// Levels of a cell of a chart, from the lowest.
const BLOCKS: [char; 8] =
    ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
const ASCII_LEVELS: [char; 8] = ['.', ':', '-', '=', '+', '*', '#', '@'];

impl Appearance {
    /// Returns the character of a level from 1 to 8.
    pub(super) fn level(self, level: usize) -> char {
        let levels = if self.is_ascii { &ASCII_LEVELS } else { &BLOCKS };
        levels.get(level.clamp(1, levels.len()) - 1).copied().unwrap_or('#')
    }

    /// The character of a step that was not read yet.
    pub(super) fn unread(self) -> char {
        if self.is_ascii { '~' } else { '\u{2591}' }
    }

    /// The flag of a marker.
    pub(super) fn flag(self) -> char {
        if self.is_ascii { '^' } else { '\u{25b2}' }
    }

    /// A horizontal line.
    pub(super) fn line(self) -> char {
        if self.is_ascii { '-' } else { '\u{2500}' }
    }

    /// Titles and names.
    pub(super) fn title(self) -> Style {
        self.colored(Color::Cyan)
    }

    /// What matters least.
    pub(super) fn quiet(self) -> Style {
        if self.is_plain { Style::new() } else { Style::new().fg(Color::DarkGray) }
    }

    /// What held during a whole step.
    pub(super) fn steady(self) -> Style {
        self.colored(Color::Blue)
    }

    /// The range of a step.
    pub(super) fn moving(self) -> Style {
        self.colored(Color::Green)
    }

    /// What went wrong.
    pub(super) fn alarm(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// A note.
    pub(super) fn notice(self) -> Style {
        self.colored(Color::Yellow)
    }

    /// What is selected.
    pub(super) fn selected() -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn colored(self, color: Color) -> Style {
        if self.is_plain { Style::new() } else { Style::new().fg(color) }
    }

    /// Returns a text from a recording, fit for this terminal: without control characters, and
    /// with question marks for what it cannot show.
    pub(super) fn text(self, text: &str) -> String {
        let text = crate::human::printable(text);
        if self.is_ascii { text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect() } else { text }
    }
}
