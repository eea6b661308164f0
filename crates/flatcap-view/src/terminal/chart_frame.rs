//! Draws charts, in which each step is a bar from its smallest to its largest value.

use jiff::tz::TimeZone;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::appearance::Appearance;
use super::numbers::compact;
use super::screenful::{ChartRow, Screenful};
use super::state::ViewState;
use super::times::{length, time_of_day};

/// Width of a value, in cells.
const VALUE_WIDTH: usize = 9;
/// Number of fill levels of a cell.
const LEVELS: usize = 8;
/// Width of the names of elements on wide screens, in cells.
const LABEL_WIDTH: usize = 12;
/// Maximum number of rows of a chart.
const CHART_ROWS_MAX: usize = 4;

/// Positions and widths of the parts of a chart row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChartColumns {
    title: usize,
    label: usize,
    /// Column of the first step.
    pub(super) steps_at: u16,
    pub(super) steps: usize,
}

impl ChartColumns {
    /// Returns the columns for a width; `title` is the preferred width of titles.
    pub(super) fn new(width: u16, title: usize, has_labels: bool) -> Self {
        let label = if has_labels { LABEL_WIDTH + 1 } else { 0 };
        let values = 2 * (VALUE_WIDTH + 1) + label;
        // The steps get at least a quarter of the remaining width.
        let title = title.min((usize::from(width).saturating_sub(values)) * 3 / 4);
        let used = title + values + 1;
        Self {
            title,
            label,
            steps_at: u16::try_from(used).unwrap_or(u16::MAX).min(width),
            steps: usize::from(width).saturating_sub(used),
        }
    }
}

/// Draws the charts in an area, and the time axis below them.
pub(super) fn draw_charts(
    buffer: &mut Buffer,
    area: Rect,
    columns: ChartColumns,
    (state, shown): (&ViewState, &Screenful),
    (appearance, zone, is_list): (Appearance, &TimeZone, bool),
) {
    if area.height < 2 || shown.charts.is_empty() {
        return;
    }
    let heading = format!(
        "{:<title$} {:>VALUE_WIDTH$} {:>VALUE_WIDTH$} {}",
        "",
        "now",
        "max",
        if columns.label > 0 { "of" } else { "" },
        title = columns.title
    );
    buffer.set_stringn(area.x, area.y, &heading, usize::from(area.width), appearance.quiet());
    let room = usize::from(area.height) - 2;
    let (rows, more) = (room / shown.charts.len(), room % shown.charts.len());
    let mut y = area.y + 1;
    let end = area.y + area.height - 1;
    for (number, chart) in shown.charts.iter().enumerate() {
        // The first charts each get one of the remaining rows.
        let rows = (rows + usize::from(number < more)).clamp(1, CHART_ROWS_MAX);
        let height = u16::try_from(rows).unwrap_or(1).min(end.saturating_sub(y));
        if height == 0 {
            break;
        }
        let is_selected = is_list && state.first + number == state.selected;
        draw_chart(
            buffer,
            Rect { y, height, ..area },
            columns,
            chart,
            (appearance, is_selected, shown.is_reading),
        );
        y += height;
    }
    draw_axis(buffer, Rect { y, height: 1, ..area }, columns, (state, shown), (appearance, zone));
}

fn draw_chart(
    buffer: &mut Buffer,
    area: Rect,
    columns: ChartColumns,
    chart: &ChartRow,
    (appearance, is_selected, is_reading): (Appearance, bool, bool),
) {
    let style = if is_selected { Appearance::selected() } else { appearance.title() };
    let title = shortened(&chart.title, columns.title);
    buffer.set_stringn(
        area.x,
        area.y,
        format!("{title:<width$}", width = columns.title),
        columns.title,
        style,
    );
    let value = chart.value.as_ref().map_or("-".to_owned(), |(value, _)| compact(*value, &chart.unit));
    let extrema = chart.extrema();
    let most = extrema.map_or("-".to_owned(), |(_, most)| compact(most, &chart.unit));
    let label = chart.largest_element().unwrap_or_default();
    let label = shortened(label, columns.label.saturating_sub(1));
    let text = format!(" {value:>VALUE_WIDTH$} {most:>VALUE_WIDTH$} {label}");
    let at = area.x + u16::try_from(columns.title).unwrap_or(0);
    buffer.set_stringn(
        at,
        area.y,
        &text,
        usize::from(columns.steps_at).saturating_sub(columns.title),
        Style::new(),
    );
    let (least, most) = extrema.unwrap_or_default();
    // The scale always includes 0, so that the heights of two steps can be compared.
    let (bottom, top) = (-round_top(-least), round_top(most));
    let levels = usize::from(area.height) * LEVELS;
    let level = |value: f64| level_of(value, bottom, top, levels);
    // Steps after the last step that was read are unknown.
    let last_known = chart.columns.iter().rposition(|column| column.extrema.is_some() || column.is_lost);
    for (number, column) in chart.columns.iter().enumerate() {
        let x = area.x + columns.steps_at + u16::try_from(number).unwrap_or(u16::MAX);
        let lowest = area.y + area.height - 1;
        match column.extrema {
            Some((low, high)) => {
                let (low, high) = (level(low), level(high));
                for row in 0..usize::from(area.height) {
                    let filled = high.saturating_sub(row * LEVELS);
                    let y = lowest - u16::try_from(row).unwrap_or(0);
                    if filled == 0 {
                        if row == 0 {
                            put(buffer, (x, y), '_', appearance.quiet());
                        }
                        break;
                    }
                    let is_steady = low >= row * LEVELS + filled.min(LEVELS);
                    let style = if is_steady { appearance.steady() } else { appearance.moving() };
                    put(buffer, (x, y), appearance.level(filled), style);
                }
            }
            None if column.is_lost => put(buffer, (x, lowest), 'x', appearance.alarm()),
            None if is_reading && last_known.is_none_or(|last| number > last) => {
                put(buffer, (x, lowest), appearance.unread(), appearance.quiet());
            }
            None => {}
        }
    }
}

/// Returns the top of a chart's scale: the next larger of 1, 2, 5, 10, ..., or 0 if no value is
/// positive.
fn round_top(value: f64) -> f64 {
    if value.is_nan() || value <= 0.0 {
        return 0.0;
    }
    let power = 10.0_f64.powf(value.log10().floor());
    // A rounding error of the logarithm must not move a value of exactly 5 to the next top.
    let digits = [1.0, 2.0, 5.0].into_iter().find(|digits| digits * power >= value * (1.0 - 1e-9));
    digits.unwrap_or(10.0) * power
}

/// Returns the fill level of a value: 0 for the bottom, and at least 1 for any larger value.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a level between 0 and the number of levels"
)]
fn level_of(value: f64, bottom: f64, top: f64, levels: usize) -> usize {
    let share = (value - bottom) / (top - bottom);
    if share.is_finite() && share > 0.0 {
        ((share * levels as f64).ceil() as usize).clamp(1, levels)
    } else {
        0
    }
}

/// Draws the time axis, with a flag at each marker and an x at each loss.
fn draw_axis(
    buffer: &mut Buffer,
    area: Rect,
    columns: ChartColumns,
    (state, shown): (&ViewState, &Screenful),
    (appearance, zone): (Appearance, &TimeZone),
) {
    if columns.steps == 0 {
        return;
    }
    let steps = i64::try_from(columns.steps).unwrap_or(i64::MAX);
    let span_ns = state.step_ns().saturating_mul(steps);
    let start = format!("-{}", length(span_ns));
    let end = time_of_day(state.at_ns, zone);
    let width = columns.steps;
    let line: String = std::iter::repeat_n(appearance.line(), width).collect();
    let at = area.x + columns.steps_at;
    buffer.set_stringn(at, area.y, line, width, appearance.quiet());
    let mut flags: Vec<(usize, char, Style)> = (0..width)
        .filter(|number| {
            let is_lost = |chart: &ChartRow| chart.columns.get(*number).is_some_and(|column| column.is_lost);
            shown.charts.iter().any(is_lost)
        })
        .map(|number| (number, 'x', appearance.alarm()))
        .collect();
    let step_of = |wall_ns: i64| wall_ns.div_euclid(state.step_ns());
    flags.extend(shown.markers.iter().filter_map(|(wall_ns, _)| {
        let before = usize::try_from(step_of(state.at_ns).saturating_sub(step_of(*wall_ns))).ok()?;
        Some(((width - 1).checked_sub(before)?, appearance.flag(), appearance.notice()))
    }));
    // A flag replaces a label, because the header also shows the times.
    for (label_at, label) in [(0, &start), (width.saturating_sub(end.len()), &end)] {
        let place = label_at..label_at + label.len();
        let is_free = !flags.iter().any(|(number, ..)| place.contains(number));
        if is_free && width >= start.len() + end.len() + 3 {
            let x = at + u16::try_from(label_at).unwrap_or(0);
            buffer.set_stringn(x, area.y, label, label.len(), appearance.quiet());
        }
    }
    for (number, flag, style) in flags {
        put(buffer, (at + u16::try_from(number).unwrap_or(0), area.y), flag, style);
    }
}

fn put(buffer: &mut Buffer, (x, y): (u16, u16), character: char, style: Style) {
    if let Some(cell) = buffer.cell_mut((x, y)) {
        cell.set_char(character).set_style(style);
    }
}

/// Shortens a string that is longer than a width to this width, by replacing its middle with two
/// dots.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    // Names mostly differ at their ends, so the middle is removed.
    let kept = width.saturating_sub(2);
    let head: String = text.chars().take(kept / 2).collect();
    let tail: String = text.chars().skip(length - (kept - kept / 2)).collect();
    format!("{head}..{tail}").chars().take(width).collect()
}
