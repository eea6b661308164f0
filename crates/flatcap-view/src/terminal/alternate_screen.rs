//! A ratatui backend for the terminal, which converts cells to escape sequences.

use std::io::{self, Stdout, Write, stdout};

use crossterm::cursor::{Hide, MoveTo, Show, position};
use crossterm::style::{Attribute, Color as TerminalColor, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    Clear, ClearType as TerminalClear, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size, window_size,
};
use crossterm::{execute, queue};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};

/// The modifiers that [`Appearance`](super::appearance::Appearance) uses, with their escape
/// sequences.
const ATTRIBUTES: [(Modifier, Attribute); 3] = [
    (Modifier::BOLD, Attribute::Bold),
    (Modifier::UNDERLINED, Attribute::Underlined),
    (Modifier::REVERSED, Attribute::Reverse),
];

/// The alternate screen in raw mode. Restores the terminal on drop, and before the message of a
/// panic.
#[derive(Debug)]
pub(super) struct AlternateScreen<W: Write> {
    terminal: W,
}

impl AlternateScreen<Stdout> {
    /// Switches the terminal at standard output to the alternate screen.
    pub(super) fn open() -> io::Result<Self> {
        // The value is created first, so that an initialization that fails halfway is also undone.
        let mut screen = Self { terminal: stdout() };
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore(&mut stdout());
            report(panic);
        }));
        enable_raw_mode()?;
        execute!(screen.terminal, EnterAlternateScreen)?;
        Ok(screen)
    }
}

impl<W: Write> Drop for AlternateScreen<W> {
    fn drop(&mut self) {
        restore(&mut self.terminal);
    }
}

fn restore(terminal: &mut impl Write) {
    // If the terminal is gone, there is nothing to restore.
    let _gone = disable_raw_mode();
    let _gone = execute!(terminal, Show, LeaveAlternateScreen);
}

impl<W: Write> Backend for AlternateScreen<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, cells: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut style = (Color::Reset, Modifier::empty());
        // The position of the cursor after the last written cell.
        let mut cursor = None;
        for (x, y, cell) in cells {
            if cursor != Some((x, y)) {
                queue!(self.terminal, MoveTo(x, y))?;
            }
            cursor = Some((x + 1, y));
            if style != (cell.fg, cell.modifier) {
                style = (cell.fg, cell.modifier);
                queue!(self.terminal, SetAttribute(Attribute::Reset))?;
                // With NO_COLOR, crossterm writes a reset instead of a color, so attributes are
                // written after the color.
                if cell.fg != Color::Reset {
                    queue!(self.terminal, SetForegroundColor(terminal_color(cell.fg)))?;
                }
                for (_, attribute) in
                    ATTRIBUTES.iter().filter(|(modifier, _)| cell.modifier.contains(*modifier))
                {
                    queue!(self.terminal, SetAttribute(*attribute))?;
                }
            }
            queue!(self.terminal, Print(cell.symbol()))?;
        }
        queue!(self.terminal, SetAttribute(Attribute::Reset))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        execute!(self.terminal, Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        execute!(self.terminal, Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        position().map(Position::from)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        execute!(self.terminal, MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        execute!(
            self.terminal,
            Clear(match region {
                ClearType::All => TerminalClear::All,
                ClearType::AfterCursor => TerminalClear::FromCursorDown,
                ClearType::BeforeCursor => TerminalClear::FromCursorUp,
                ClearType::CurrentLine => TerminalClear::CurrentLine,
                ClearType::UntilNewLine => TerminalClear::UntilNewLine,
            })
        )
    }

    fn size(&self) -> io::Result<Size> {
        size().map(Size::from)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let size = window_size()?;
        Ok(WindowSize {
            columns_rows: Size::new(size.columns, size.rows),
            pixels: Size::new(size.width, size.height),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.terminal.flush()
    }
}

/// Converts the colors that [`Appearance`](super::appearance::Appearance) uses. Other colors become
/// the default.
fn terminal_color(color: Color) -> TerminalColor {
    match color {
        Color::Red => TerminalColor::DarkRed,
        Color::Green => TerminalColor::DarkGreen,
        Color::Yellow => TerminalColor::DarkYellow,
        Color::Blue => TerminalColor::DarkBlue,
        Color::Cyan => TerminalColor::DarkCyan,
        Color::DarkGray => TerminalColor::DarkGrey,
        _ => TerminalColor::Reset,
    }
}

#[cfg(test)]
mod tests {
    use ratatui_core::buffer::Buffer;
    use ratatui_core::layout::Rect;
    use ratatui_core::style::Style;

    use super::super::appearance::Appearance;
    use super::*;

    /// Proves that text, styles and positions reach the terminal. Adjacent cells of the same style
    /// are written with one sequence, and the style does not affect the following cells.
    #[test]
    fn cells_become_escape_sequences() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 3));
        buffer.set_string(1, 0, "ab", Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        buffer.set_string(3, 0, "c", Style::new());
        buffer.set_string(5, 2, "d", Style::new().add_modifier(Modifier::REVERSED));
        let drawn = [(1, 0), (2, 0), (3, 0), (5, 2)].map(|at| (at.0, at.1, buffer.cell(at).unwrap()));
        let mut screen = AlternateScreen { terminal: Vec::new() };
        screen.draw(drawn.into_iter()).unwrap();
        let written = String::from_utf8(std::mem::take(&mut screen.terminal)).unwrap();
        assert_eq!(written, "\x1b[1;2H\x1b[0m\x1b[38;5;1m\x1b[1mab\x1b[0mc\x1b[3;6H\x1b[0m\x1b[7md\x1b[0m");
    }

    /// Proves that this backend supports all colors and modifiers of the view, so that every style
    /// reaches the terminal. Without colors, the attributes remain.
    #[test]
    fn every_style_is_known() {
        for is_plain in [false, true] {
            let look = Appearance { is_ascii: false, is_plain };
            let title = look.title().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
            for style in [
                look.title(),
                look.quiet(),
                look.steady(),
                look.moving(),
                look.alarm(),
                look.notice(),
                Appearance::selected(),
                title,
            ] {
                let known = ATTRIBUTES.iter().fold(Modifier::empty(), |all, (modifier, _)| all | *modifier);
                assert!(known.contains(style.add_modifier) && style.sub_modifier.is_empty(), "{style:?}");
                assert_eq!(style.bg, None);
                let color = style.fg.unwrap_or(Color::Reset);
                let is_known = terminal_color(color) != TerminalColor::Reset || color == Color::Reset;
                assert!(is_known, "{style:?}");
                assert!(!is_plain || style.fg.is_none(), "{style:?}");
            }
        }
    }
}
