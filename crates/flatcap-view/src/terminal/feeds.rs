//! The feeds of the current screen. This module opens, advances and replaces the feeds as the
//! displayed time moves.

use flatcap_format::replay::HostIdentity;
use flatcap_query::Recording;

use super::appearance::Appearance;
use super::numbers::compact_cell;
use super::screenful::{ChartRow, Screenful, TableRow};
use super::state::{Screen, ViewState};
use crate::{
    Catalog, Chart, ChartFeed, ColumnValue, ElementShape, ElementTable, ElementValues, TableFeed, ViewError,
};

/// Maximum number of charts shown with a table.
const CHARTS_BESIDE: usize = 3;

/// The feeds of the current screen.
#[derive(Debug)]
pub struct Feeds {
    recording: Recording,
    host: Option<HostIdentity>,
    catalog: Catalog,
    charts: Option<OpenCharts>,
    table: Option<OpenTable>,
}

#[derive(Debug)]
struct OpenCharts {
    charts: Vec<Chart>,
    step_ns: i64,
    steps: usize,
    feed: ChartFeed,
    /// The latest time up to which the charts were read completely.
    reached_ns: i64,
    is_complete: bool,
}

#[derive(Debug)]
struct OpenTable {
    shape: ElementShape,
    step_ns: i64,
    feed: TableFeed,
    is_complete: bool,
}

/// The number of steps and rows that fit on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Number of steps of a chart that fit on the screen.
    pub(super) steps: usize,
    /// Number of rows of the screen's list that fit on the screen.
    pub(super) rows: usize,
}

impl Feeds {
    /// Creates the feeds of a recording. No feed is open yet.
    pub fn new(recording: Recording, host: Option<HostIdentity>) -> Self {
        let catalog = Catalog::of(&recording);
        Self { recording, host, catalog, charts: None, table: None }
    }

    /// Returns the source whose samples the screen steps through. This is the source of the
    /// screen's table, or the fastest source of its charts.
    pub(super) fn leading_source(&self, state: &ViewState) -> Option<String> {
        if let Some(table) = self.table_of(state.screen) {
            return Some(table.source.clone());
        }
        let charts = self.charts.as_ref().map_or(&*self.catalog.charts, |open| &open.charts);
        // A source without a period has no regular samples to step through.
        let timed = charts.iter().filter(|chart| chart.period_ns > 0);
        timed.min_by_key(|chart| chart.period_ns).or(charts.first()).map(|chart| chart.source.clone())
    }

    /// Reads all feeds up to the displayed time, or until the time for reading is used up. Returns
    /// whether all feeds reached that time.
    pub(super) fn read(
        &mut self,
        state: &mut ViewState,
        room: Room,
        has_time: &mut dyn FnMut() -> bool,
    ) -> Result<bool, ViewError> {
        let wanted = self.wanted_charts(state, room);
        self.open_charts(state, wanted, room)?;
        self.open_table(state)?;
        let mut is_complete = true;
        if let Some(open) = &mut self.charts {
            open.is_complete = open.feed.advance(state.at_ns, has_time)?;
            if open.is_complete {
                open.reached_ns = state.at_ns;
            }
            is_complete &= open.is_complete;
        }
        if let Some(open) = &mut self.table {
            open.is_complete = open.feed.advance(state.at_ns, has_time)?;
            is_complete &= open.is_complete;
        }
        Ok(is_complete)
    }

    /// Checks for new segments.
    pub(super) fn refresh(&mut self) -> Result<(), ViewError> {
        if let Some(open) = &mut self.charts {
            open.feed.refresh()?;
        }
        if let Some(open) = &mut self.table {
            open.feed.refresh()?;
        }
        Ok(())
    }

    fn table_of(&self, screen: Screen) -> Option<&ElementTable> {
        match screen {
            Screen::Elements(shape) => self.catalog.table(shape),
            Screen::Overview | Screen::Fields => None,
        }
    }

    /// Returns the charts on the screen, and clamps the selected row to these charts.
    fn wanted_charts(&self, state: &mut ViewState, room: Room) -> Vec<Chart> {
        let filter = state.filter.to_lowercase();
        let is_wanted = |chart: &&Chart| filter.is_empty() || chart.title.to_lowercase().contains(&filter);
        match state.screen {
            Screen::Overview => {
                let charts: Vec<&Chart> = self.catalog.charts.iter().filter(is_wanted).collect();
                state.fit(charts.len(), room.rows);
                charts.into_iter().skip(state.first).take(room.rows).cloned().collect()
            }
            Screen::Fields => {
                let charts: Vec<&Chart> = self.catalog.fields.iter().filter(is_wanted).collect();
                state.fit(charts.len(), room.rows);
                charts.into_iter().skip(state.first).take(room.rows).cloned().collect()
            }
            Screen::Elements(shape) => {
                let own = self.catalog.table(shape).map(|table| table.source.as_str());
                let is_beside = |chart: &&Chart| match shape {
                    ElementShape::Processes => {
                        matches!(chart.title.as_str(), "cpu" | "memory used" | "io pressure")
                    }
                    ElementShape::ControlGroups => chart.title.ends_with("pressure"),
                    ElementShape::Disks | ElementShape::Interfaces => Some(chart.source.as_str()) == own,
                };
                self.catalog.charts.iter().filter(is_beside).take(CHARTS_BESIDE).cloned().collect()
            }
        }
    }

    fn open_charts(&mut self, state: &ViewState, wanted: Vec<Chart>, room: Room) -> Result<(), ViewError> {
        let step_ns = state.step_ns();
        let steps = i64::try_from(room.steps).unwrap_or(i64::MAX);
        let shown_ns = step_ns.saturating_mul(steps);
        // A feed with more steps than the screen shows can also serve a narrower terminal.
        let is_usable = |open: &OpenCharts| {
            open.step_ns == step_ns
                && open.steps >= room.steps
                && open.charts == wanted
                && open.feed.covers(state.at_ns)
                // If the requested time is far ahead, the samples between the reached time and the
                // requested time are skipped.
                && state.at_ns.saturating_sub(open.reached_ns) <= shown_ns
        };
        if self.charts.as_ref().is_some_and(is_usable) {
            return Ok(());
        }
        // The feed is closed before the next feed is opened, so that only one feed takes memory at
        // a time.
        self.charts = None;
        if !wanted.is_empty() {
            let from_ns = state.at_ns.saturating_sub(shown_ns);
            let feed = ChartFeed::open(&self.recording, &wanted, self.host.as_ref(), (from_ns, step_ns))?;
            let (steps, reached_ns) = (room.steps, state.at_ns);
            self.charts =
                Some(OpenCharts { charts: wanted, step_ns, steps, feed, reached_ns, is_complete: false });
        }
        Ok(())
    }

    fn open_table(&mut self, state: &ViewState) -> Result<(), ViewError> {
        let Some(table) = self.table_of(state.screen) else {
            self.table = None;
            return Ok(());
        };
        let is_usable = |open: &OpenTable| {
            open.step_ns == state.step_ns() && open.shape == table.shape && open.feed.covers(state.at_ns)
        };
        if !self.table.as_ref().is_some_and(is_usable) {
            let (shape, step_ns) = (table.shape, state.step_ns());
            let feed = TableFeed::open(&self.recording, table, self.host.as_ref(), (state.at_ns, step_ns))?;
            self.table = Some(OpenTable { shape, step_ns, feed, is_complete: false });
        }
        Ok(())
    }

    /// Returns the content of the screen at the displayed time, and clamps the selected row to this
    /// content.
    pub(super) fn screenful(&self, state: &mut ViewState, room: Room, appearance: Appearance) -> Screenful {
        let mut shown = Screenful::default();
        if let Some(open) = &self.charts {
            shown.is_reading |= !open.is_complete;
            let rows = open.charts.iter().zip(open.feed.series()).enumerate();
            shown.charts = rows
                .map(|(number, (chart, series))| ChartRow {
                    title: appearance.text(&chart.title),
                    value: open
                        .feed
                        .value(number, state.at_ns)
                        .map(|(value, label)| (value, label.map(|label| appearance.text(label)))),
                    unit: chart.formula.unit.clone(),
                    columns: series.columns(room.steps, state.at_ns),
                    meaning: appearance.text(&chart.meaning),
                })
                .collect();
            let markers = open.feed.markers().filter(|marker| marker.wall_ns <= state.at_ns);
            shown.markers = markers.map(|marker| (marker.wall_ns, appearance.text(&marker.text))).collect();
        }
        if let Screen::Elements(shape) = state.screen {
            if let (Some(table), Some(open)) = (self.table_of(state.screen), &self.table) {
                shown.is_reading |= !open.is_complete;
                table_rows(&mut shown, state, (table, open.feed.elements()), room, appearance);
            } else {
                shown.lacks = Some(shape);
                state.fit(0, room.rows);
            }
        }
        shown
    }
}

/// Sorts and filters the elements of a table, and adds the rows that fit on the screen.
fn table_rows(
    shown: &mut Screenful,
    state: &mut ViewState,
    (table, mut elements): (&ElementTable, Vec<ElementValues>),
    room: Room,
    appearance: Appearance,
) {
    let unit = |value: &ColumnValue| match value {
        ColumnValue::Number(formula) => formula.unit.clone(),
        ColumnValue::Text(_) => String::new(),
    };
    shown.columns = table.columns.iter().map(|column| (column.title.clone(), unit(&column.value))).collect();
    let is_number = |column: &usize| {
        table.columns.get(*column).is_some_and(|column| matches!(column.value, ColumnValue::Number(_)))
    };
    let numbers: Vec<usize> = (0..table.columns.len()).filter(is_number).collect();
    let sorting = state.sorting();
    // The index after the last column represents the name.
    shown.sorted_by = numbers.get(sorting.column % (numbers.len() + 1)).copied();
    shown.unfiltered = elements.len();
    let filter = state.filter.to_lowercase();
    if !filter.is_empty() {
        // A number selects the process with this id, not all processes whose id contains the
        // number.
        elements.retain(|element| {
            element.name.to_lowercase().contains(&filter)
                || element.pid.is_some_and(|pid| pid.to_string() == filter)
        });
    }
    let number = |element: &ElementValues| {
        let column = shown.sorted_by?;
        element.numbers.get(column).copied().flatten()
    };
    elements.sort_by(|one, other| {
        let by_number = match (number(one), number(other)) {
            (Some(one), Some(other)) => other.total_cmp(&one),
            (one, other) => other.is_some().cmp(&one.is_some()),
        };
        // Rows with equal values keep their order from frame to frame.
        by_number.then_with(|| (&one.name, one.pid).cmp(&(&other.name, other.pid)))
    });
    if sorting.is_reversed {
        elements.reverse();
    }
    state.fit(elements.len(), room.rows);
    shown.rows = elements
        .into_iter()
        .skip(state.first)
        .take(room.rows)
        .map(|element| {
            let cells = table.columns.iter().enumerate().map(|(at, column)| match &column.value {
                ColumnValue::Text(_) => appearance.text(element.texts.get(at).map_or("", String::as_str)),
                ColumnValue::Number(formula) => (element.numbers.get(at).copied().flatten())
                    .map_or("-".to_owned(), |number| compact_cell(number, &formula.unit)),
            });
            TableRow { cells: cells.collect(), name: appearance.text(&element.name), pid: element.pid }
        })
        .collect();
}
