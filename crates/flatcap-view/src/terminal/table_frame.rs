//! Draws a table of elements.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::Span;

use super::appearance::Appearance;
use super::chart_frame::shortened;
use super::screenful::Screenful;
use super::state::ViewState;

/// Minimum and maximum width of a name, in characters.
const NAME_MIN: usize = 12;
const NAME_MAX: usize = 48;
/// Minimum width of a number, in characters.
const CELL_MIN: usize = 6;
/// Width of a process id.
// The kernel's largest process id has seven digits.
const PID_WIDTH: usize = 7;

/// Draws the rows of a table below their heading.
pub(super) fn draw_table(buffer: &mut Buffer, area: Rect, (state, shown): (&ViewState, &Screenful)) {
    if area.height == 0 {
        return;
    }
    let has_pid = shown.rows.iter().any(|row| row.pid.is_some());
    let pid_width = if has_pid { PID_WIDTH + 1 } else { 0 };
    let width = usize::from(area.width);
    let cell_width = |column: usize| {
        let title = shown.columns.get(column).map_or(0, |(title, _)| title.chars().count());
        // One character is added for the sort mark.
        (title + usize::from(title > 1)).max(if title > 1 { CELL_MIN } else { 1 })
    };
    let mut free = width.saturating_sub(pid_width + NAME_MIN);
    let mut fitting = 0;
    while fitting < shown.columns.len() && cell_width(fitting) < free {
        free -= cell_width(fitting) + 1;
        fitting += 1;
    }
    let name_width = (NAME_MIN + free).min(NAME_MAX);
    let mut heading = if has_pid { format!("{:>PID_WIDTH$} ", "PID") } else { String::new() };
    heading.push_str(&padded("NAME", name_width));
    for (number, (title, _)) in shown.columns.iter().enumerate().take(fitting) {
        let mark = match (shown.sorted_by == Some(number), state.sorting().is_reversed) {
            (false, _) => "",
            (true, false) => "v",
            (true, true) => "^",
        };
        heading.push_str(&right_aligned(&format!("{title}{mark}"), cell_width(number)));
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    buffer.set_stringn(area.x, area.y, format!("{heading:<width$}"), width, bold);
    for (number, row) in shown.rows.iter().enumerate() {
        let Some(y) = u16::try_from(number + 1).ok().filter(|y| *y < area.height) else { break };
        let mut line = match row.pid {
            Some(pid) => format!("{pid:>PID_WIDTH$} "),
            None => " ".repeat(pid_width),
        };
        // `shortened` counts characters, and some characters take two cells.
        line += &padded(&shortened(&row.name, name_width), name_width);
        for (number, cell) in row.cells.iter().enumerate().take(fitting) {
            let width = cell_width(number);
            line.push_str(&right_aligned(&shortened(cell, width), width));
        }
        let is_selected = state.first + number == state.selected;
        let style = if is_selected { Appearance::selected() } else { Style::new() };
        buffer.set_stringn(area.x, area.y + y, format!("{line:<width$}"), width, style);
    }
}

/// Returns a string right-aligned in a column, with a space before it.
fn right_aligned(text: &str, width: usize) -> String {
    format!(" {text:>width$}")
}

/// Pads or truncates a string to a width in cells. A character may take two cells, or no cell.
fn padded(text: &str, width: usize) -> String {
    let mut text = text.to_owned();
    while Span::raw(text.as_str()).width() > width {
        text.pop();
    }
    let used = Span::raw(text.as_str()).width();
    text + &" ".repeat(width.saturating_sub(used))
}
