//! What a frame shows, as values: made from the feeds at the state's time.

use crate::view::{ElementShape, StepColumn};

/// What a frame shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Screenful {
    /// The host's name.
    pub host: String,
    /// The charts of the overview or of the fields, those that fit; beside a table, the charts that
    /// belong to it.
    pub charts: Vec<ChartRow>,
    /// The elements of the table, sorted and filtered.
    pub rows: Vec<TableRow>,
    /// The titles and units of the table's columns.
    pub columns: Vec<(String, String)>,
    /// Position of the column that sorts; none for the name.
    pub sorted_by: Option<usize>,
    /// Elements before they were filtered.
    pub unfiltered: usize,
    /// Wall times and texts of markers.
    pub markers: Vec<(i64, String)>,
    /// Not everything was read yet.
    pub is_reading: bool,
    /// The elements that the recording lacks for this screen.
    pub lacks: Option<ElementShape>,
    /// What was different at a time; none if nobody asked.
    pub explanation: Option<Vec<String>>,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct ChartRow {
    /// What it shows.
    pub title: String,
    /// The value at the state's time, and the name of the element that has it.
    pub value: Option<(f64, Option<String>)>,
    /// The unit.
    pub unit: String,
    /// The steps up to the state's time, the oldest first.
    pub columns: Vec<StepColumn>,
    /// What the schema says of it.
    pub meaning: String,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRow {
    /// The element's name.
    pub name: String,
    /// Its process id.
    pub pid: Option<u64>,
    /// Its values as texts, by column.
    pub cells: Vec<String>,
}

impl ChartRow {
    /// Returns the name of the element with the largest value; none if all are 0.
    pub(super) fn largest_element(&self) -> Option<&str> {
        let (value, label) = self.value.as_ref()?;
        label.as_deref().filter(|_| value.abs() > 0.0)
    }

    /// Returns the smallest and the largest value of the steps; none without any.
    pub(super) fn extrema(&self) -> Option<(f64, f64)> {
        let known = self.columns.iter().filter_map(|column| column.extrema);
        known.reduce(|(least, most), (low, high)| (least.min(low), most.max(high)))
    }
}
