//! The content of a frame as plain values, taken from the feeds at the displayed time.

use crate::{ElementShape, StepColumn};

/// The content of a frame.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Screenful {
    /// The host's name.
    pub host: String,
    /// The visible charts of the overview or of the fields. On a table screen, these are the charts
    /// above the table.
    pub charts: Vec<ChartRow>,
    /// The elements of the table, sorted and filtered.
    pub rows: Vec<TableRow>,
    /// The titles and units of the table's columns.
    pub columns: Vec<(String, String)>,
    /// Index of the column by which the rows are sorted, or `None` if the rows are sorted by name.
    pub sorted_by: Option<usize>,
    /// Number of elements before filtering.
    pub unfiltered: usize,
    /// Wall time and text of each marker.
    pub markers: Vec<(i64, String)>,
    /// Whether data for this frame is still to be read.
    pub is_reading: bool,
    /// The kind of elements that this screen needs and the recording lacks.
    pub lacks: Option<ElementShape>,
    /// The lines of an explanation; `None` if the user did not request an explanation.
    pub explanation: Option<Vec<String>>,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct ChartRow {
    /// Title of the chart.
    pub title: String,
    /// The value at the displayed time, and the name of the element that has this value.
    pub value: Option<(f64, Option<String>)>,
    /// The unit.
    pub unit: String,
    /// The steps up to the displayed time, the oldest first.
    pub columns: Vec<StepColumn>,
    /// The field's description in the schema.
    pub meaning: String,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRow {
    /// The element's name.
    pub name: String,
    /// The process id of the row's process.
    pub pid: Option<u64>,
    /// The row's values as strings, by column.
    pub cells: Vec<String>,
}

impl ChartRow {
    /// Returns the name of the element with the largest value, or `None` if all values are 0.
    pub(super) fn largest_element(&self) -> Option<&str> {
        let (value, label) = self.value.as_ref()?;
        label.as_deref().filter(|_| value.abs() > 0.0)
    }

    /// Returns the smallest and the largest value of all steps, or `None` if no step has a value.
    pub(super) fn extrema(&self) -> Option<(f64, f64)> {
        let known = self.columns.iter().filter_map(|column| column.extrema);
        known.reduce(|(least, most), (low, high)| (least.min(low), most.max(high)))
    }
}
