//! Draws a frame from the state and the content of the feeds.

use jiff::tz::TimeZone;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::terminal::Frame;

use super::appearance::Appearance;
use super::chart_frame::{ChartColumns, draw_charts, shortened};
use super::feeds::Room;
use super::help_text::HELP;
use super::numbers::compact;
use super::screenful::Screenful;
use super::state::{InputKind, Movement, Panel, Screen, ViewState};
use super::table_frame::draw_table;
use super::times::{date_and_time, length, time_of_day};
use crate::ElementShape;

/// Minimum width of the terminal. The next constant is its minimum height.
const WIDTH_MIN: u16 = 60;
const HEIGHT_MIN: u16 = 20;
/// Number of lines above the body of the screen (time, screen names). The next constant is the
/// number of lines below the body (selection, keys).
const LINES_ABOVE: u16 = 2;
const LINES_BELOW: u16 = 2;
/// Widths of chart titles on the overview, on the overview of a wide screen, and on the screen of
/// fields.
const TITLE_WIDTH: usize = 16;
const WIDE_TITLE_WIDTH: usize = 24;
const FIELD_WIDTH: usize = 48;
/// Minimum screen widths at which the overview and the fields show element names.
const LABELS_FROM: u16 = 76;
const FIELD_LABELS_FROM: u16 = 110;
/// Minimum width at which an explanation is shown to the right of the screen.
const BESIDE_FROM: u16 = 124;
/// Maximum width of an explanation to the right of the screen: 80 columns of text and a margin.
const BESIDE_WIDTH_MAX: u16 = 82;
/// Minimum height at which charts are shown above a table.
const CHARTS_ABOVE_FROM: u16 = 24;

/// Returns the number of steps and rows of a screen that fit into an area.
pub(super) fn room_of(area: Rect, state: &ViewState) -> Room {
    let body = body_of(screen_of(area, state));
    let charts = chart_columns(body, state.screen);
    let rows = match state.screen {
        // The heading and the axis take two lines.
        Screen::Overview | Screen::Fields => body.height.saturating_sub(2),
        Screen::Elements(_) => body.height.saturating_sub(1 + charts_above(body)),
    };
    Room { steps: charts.steps, rows: usize::from(rows) }
}

fn chart_columns(body: Rect, screen: Screen) -> ChartColumns {
    if screen == Screen::Fields {
        ChartColumns::new(body.width, FIELD_WIDTH, body.width >= FIELD_LABELS_FROM)
    } else {
        let title = if body.width >= FIELD_LABELS_FROM { WIDE_TITLE_WIDTH } else { TITLE_WIDTH };
        ChartColumns::new(body.width, title, body.width >= LABELS_FROM)
    }
}

/// Returns the width of an explanation to the right of the screen. Returns `None` if there is no
/// space on the right. The explanation then covers the screen.
fn beside_width(screen_width: u16) -> Option<u16> {
    (screen_width >= BESIDE_FROM).then(|| (screen_width - WIDTH_MIN).min(BESIDE_WIDTH_MAX))
}

/// Returns the line width of an explanation on a terminal.
pub(super) fn explanation_width(screen_width: u16) -> usize {
    // A panel has a blank column at its left, and another blank column at its right if the screen
    // is visible.
    let width = beside_width(screen_width).map_or(screen_width.saturating_sub(1), |width| width - 2);
    usize::from(width)
}

/// Returns the area of the terminal without the part that is reserved for an explanation.
fn screen_of(area: Rect, state: &ViewState) -> Rect {
    match beside_width(area.width) {
        Some(width) if state.panel == Some(Panel::Explanation) => Rect { width: area.width - width, ..area },
        _ => area,
    }
}

fn body_of(area: Rect) -> Rect {
    Rect { y: area.y + LINES_ABOVE, height: area.height.saturating_sub(LINES_ABOVE + LINES_BELOW), ..area }
}

/// Returns the height of the charts above a table: three charts of one to three rows each, a
/// heading and an axis.
fn charts_above(body: Rect) -> u16 {
    match body.height {
        ..CHARTS_ABOVE_FROM if body.height + LINES_ABOVE + LINES_BELOW < CHARTS_ABOVE_FROM => 0,
        ..36 => 5,
        _ => 11,
    }
}

/// Draws a frame.
pub fn draw(
    frame: &mut Frame<'_>,
    state: &ViewState,
    shown: &Screenful,
    appearance: Appearance,
    zone: &TimeZone,
) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text = format!("{} x {}: needs {WIDTH_MIN} x {HEIGHT_MIN}; q ends", area.width, area.height);
        buffer.set_stringn(area.x, area.y, text, usize::from(area.width), Style::new());
        return;
    }
    let screen = screen_of(area, state);
    draw_header(buffer, area, (state, shown), appearance, zone);
    draw_screen(buffer, screen, (state, shown), appearance, zone);
    draw_selection(buffer, Rect { y: area.height - 2, height: 1, ..area }, (state, shown), appearance, zone);
    draw_keys(buffer, Rect { y: area.height - 1, height: 1, ..area }, state, appearance);
    match state.panel {
        Some(Panel::Help) => {
            let lines: Vec<String> = HELP.iter().map(|line| (*line).to_owned()).collect();
            draw_panel(buffer, body_of(area), "keys", &lines, (state.panel_first, appearance));
        }
        Some(Panel::Explanation) => {
            let body = body_of(area);
            let width = beside_width(area.width).unwrap_or(area.width);
            let panel = Rect { x: area.width - width, width, ..body };
            let empty = Vec::new();
            let lines = shown.explanation.as_ref().unwrap_or(&empty);
            draw_panel(buffer, panel, "what was different", lines, (state.panel_first, appearance));
        }
        None => {}
    }
}

fn draw_header(
    buffer: &mut Buffer,
    area: Rect,
    (state, shown): (&ViewState, &Screenful),
    appearance: Appearance,
    zone: &TimeZone,
) {
    let width = usize::from(area.width);
    let is_wide = width >= 80;
    let host = shortened(&appearance.text(&shown.host), if is_wide { 24 } else { 10 });
    let movement = match state.movement {
        Movement::Live => "LIVE".to_owned(),
        Movement::Paused => "PAUSED".to_owned(),
        Movement::Playing => "PLAYING".to_owned(),
    };
    let at = date_and_time(state.at_ns, zone, is_wide);
    let step = format!("step {}", length(state.step_ns()));
    let text = format!(" {host}  {at}  {movement}  {step}");
    buffer.set_stringn(area.x, area.y, format!("{text:<width$}"), width, Appearance::selected());
    let mut x = area.x;
    for (number, screen) in Screen::ALL.into_iter().enumerate() {
        let style = if screen == state.screen {
            appearance.title().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        } else {
            Style::new()
        };
        let text = format!("{} {}", number + 1, screen.name());
        let room = usize::from(area.width.saturating_sub(x));
        (x, _) = buffer.set_stringn(x, area.y + 1, text, room, style);
        x += 1;
    }
}

fn draw_screen(
    buffer: &mut Buffer,
    area: Rect,
    (state, shown): (&ViewState, &Screenful),
    appearance: Appearance,
    zone: &TimeZone,
) {
    let body = body_of(area);
    let columns = chart_columns(body, state.screen);
    match state.screen {
        Screen::Overview | Screen::Fields if shown.charts.is_empty() => {
            let text = match (state.filter.is_empty(), shown.is_reading) {
                (_, true) => "reading",
                (false, _) => "nothing has this text in its name; Esc shows all",
                (true, _) => "the recording has no numeric fields",
            };
            buffer.set_stringn(body.x, body.y + 1, text, usize::from(body.width), appearance.notice());
        }
        Screen::Overview | Screen::Fields => {
            draw_charts(buffer, body, columns, (state, shown), (appearance, zone, true));
        }
        Screen::Elements(_) => {
            let above = charts_above(body);
            let charts = Rect { height: above, ..body };
            draw_charts(buffer, charts, columns, (state, shown), (appearance, zone, false));
            let table = Rect { y: body.y + above, height: body.height - above, ..body };
            if let Some(shape) = shown.lacks {
                buffer.set_stringn(
                    table.x,
                    table.y + 1,
                    lacking(shape),
                    usize::from(table.width),
                    appearance.notice(),
                );
            } else {
                draw_table(buffer, table, (state, shown));
            }
        }
    }
}

/// Returns a message that names the source missing from the recording.
fn lacking(shape: ElementShape) -> &'static str {
    match shape {
        ElementShape::Processes => "no processes in this recording: enable the source process",
        ElementShape::ControlGroups => "no control groups in this recording: enable the source cgroup",
        ElementShape::Disks => "no disks in this recording: enable the source disk",
        ElementShape::Interfaces => "no interfaces in this recording: enable the source network",
    }
}

/// Draws the line that describes the selected row and the last marker.
fn draw_selection(
    buffer: &mut Buffer,
    area: Rect,
    (state, shown): (&ViewState, &Screenful),
    appearance: Appearance,
    zone: &TimeZone,
) {
    let selected = shown.charts.get(state.selected.wrapping_sub(state.first));
    let text = match (state.screen, selected) {
        (Screen::Elements(_), _) if shown.lacks.is_some() => String::new(),
        (Screen::Elements(_), _) => {
            let count = if state.rows == shown.unfiltered {
                format!("{} rows", state.rows)
            } else {
                format!("{} of {} rows", state.rows, shown.unfiltered)
            };
            let sorted = shown.sorted_by.and_then(|column| shown.columns.get(column));
            format!("{count}, by {}", sorted.map_or("NAME", |(title, _)| title))
        }
        (_, Some(chart)) => {
            let range = chart.extrema().map_or("no samples here".to_owned(), |(least, most)| {
                format!("{} to {}", compact(least, &chart.unit), compact(most, &chart.unit))
            });
            let of = chart.largest_element();
            let of = of.map(|label| format!(", now {label}")).unwrap_or_default();
            let meaning = chart.meaning.lines().next().unwrap_or_default();
            format!("{}: {range}{of}  {meaning}", chart.title)
        }
        _ => String::new(),
    };
    let filter = if state.filter.is_empty() { String::new() } else { format!("  /{}", state.filter) };
    let reading = if shown.is_reading { "  reading" } else { "" };
    let text = appearance.text(&format!("{text}{filter}{reading}"));
    buffer.set_stringn(area.x, area.y, &text, usize::from(area.width), appearance.quiet());
    if let Some((wall_ns, marker)) = shown.markers.last() {
        let marker = format!("  {} {} {marker}", appearance.flag(), time_of_day(*wall_ns, zone));
        let marker = shortened(&marker, usize::from(area.width) / 2);
        let width = u16::try_from(marker.chars().count()).unwrap_or(area.width).min(area.width);
        let x = area.x + area.width - width;
        buffer.set_stringn(x, area.y, &marker, usize::from(width), appearance.notice());
    }
}

/// Draws the last line: the typed input, a message, or the keys.
fn draw_keys(buffer: &mut Buffer, area: Rect, state: &ViewState, appearance: Appearance) {
    let width = usize::from(area.width);
    if let Some((kind, text)) = &state.input {
        let prompt = match kind {
            InputKind::Filter => "show only names with: ",
            InputKind::Jump => "jump to (14:03:07, -5m, +10s): ",
            InputKind::Mark => "mark: ",
        };
        // The end of a long input is shown, because the user types there.
        let room = width.saturating_sub(prompt.len() + 1);
        let text = appearance.text(text);
        let hidden = text.chars().count().saturating_sub(room);
        let text: String = text.chars().skip(hidden).collect();
        buffer.set_stringn(area.x, area.y, format!("{prompt}{text}_"), width, appearance.notice());
    } else if let Some(message) = &state.message {
        buffer.set_stringn(area.x, area.y, appearance.text(message), width, appearance.notice());
    } else {
        let keys = "t/T sample  arrows  +/- step  space play  j jump  / filter  s sort  e explain  m mark  ? help  q end";
        let short = "t/T sample  space play  j jump  / filter  e explain  ? help";
        let text = if width >= keys.len() { keys } else { short };
        buffer.set_stringn(area.x, area.y, text, width, appearance.quiet());
    }
}

/// Draws a panel over a part of the screen.
fn draw_panel(
    buffer: &mut Buffer,
    area: Rect,
    title: &str,
    lines: &[String],
    (first, appearance): (usize, Appearance),
) {
    for at in area.intersection(buffer.area).positions() {
        buffer[at].reset();
    }
    let width = usize::from(area.width);
    let room = usize::from(area.height).saturating_sub(1);
    let first = first.min(lines.len().saturating_sub(room));
    let more = if lines.len() > room { "  Up and Down show more" } else { "" };
    let line: String = std::iter::repeat_n(appearance.line(), width).collect();
    buffer.set_stringn(area.x, area.y, line, width, appearance.quiet());
    let title = format!(" {title}, Esc closes{more} ");
    buffer.set_stringn(area.x + 1, area.y, title, width.saturating_sub(1), appearance.title());
    for (line, y) in lines.iter().skip(first).take(room).zip(area.y + 1..) {
        buffer.set_stringn(area.x + 1, y, line, width.saturating_sub(1), Style::new());
    }
}
