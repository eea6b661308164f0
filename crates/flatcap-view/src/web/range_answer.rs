//! Encodes the data of a chart as a JSON header, followed by columns of eight-byte numbers.

use flatcap_query::{CommonUnit, Overview, OverviewRow, OverviewSeries};
use serde::Serialize;

/// Maximum number of rows in an answer.
// A row has 56 bytes, so an answer with this many rows and its header stays below 1 MiB.
const ROWS_MAX: usize = 16_384;
/// Maximum number of series in an answer.
// Nobody can distinguish more lines in one chart.
const SERIES_MAX: usize = 24;
/// Size in bytes of the length field, which precedes the header. The field contains the header's
/// length.
const LENGTH_BYTES: usize = 4;

/// The data of a chart. The encoding starts with a length field (4 bytes) and the header. The
/// header is padded with spaces, so that the length of both together is a multiple of eight bytes.
/// After the header, each series has seven columns with one little-endian number per row. The
/// columns are: first and last time (i64), smallest, largest, first and last value (f64), number of
/// values (u64). A row without values is a gap.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RangeAnswer {
    pub(super) pixel_ns: u64,
    /// Whether all data was read. If false, the client repeats the request, and the server
    /// continues to read.
    pub(super) is_complete: bool,
    /// At least this many series were left out.
    pub(super) left_out: u64,
    /// Number of damaged ranges and unreadable segments.
    pub(super) unreadable: u64,
    pub(super) series: Vec<RangeSeries>,
}

/// A line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RangeSeries {
    /// The element's label; `None` if the field is in no list.
    pub(super) label: Option<String>,
    /// Path of the field; empty if the value combines several fields.
    pub(super) path: String,
    pub(super) unit: String,
    pub(super) rows: Vec<RangeRow>,
}

/// The values of a series in one pixel, or a gap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RangeRow {
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) first: f64,
    pub(super) last: f64,
    /// Number of values; 0 for a gap.
    pub(super) count: u64,
}

#[derive(Serialize)]
struct RangeHeader<'a> {
    /// Length of a pixel, in nanoseconds.
    // This is a string, because a JavaScript number has only 53 bits of integer precision.
    pixel_ns: String,
    is_complete: bool,
    left_out: u64,
    unreadable: u64,
    series: Vec<SeriesHeader<'a>>,
}

#[derive(Serialize)]
struct SeriesHeader<'a> {
    label: Option<&'a str>,
    path: &'a str,
    unit: &'a str,
    rows: usize,
}

impl RangeRow {
    /// Returns a gap between two times: the time of the last value before the gap, and the time of
    /// the first value after it.
    pub(super) fn gap(first_ns: i64, last_ns: i64) -> Self {
        let none = f64::NAN;
        Self { first_ns, last_ns, min: none, max: none, first: none, last: none, count: 0 }
    }
}

impl RangeAnswer {
    /// Converts an overview to human-readable units.
    pub(super) fn of_overview(overview: Overview) -> Self {
        Self {
            pixel_ns: overview.pixel_ns,
            is_complete: overview.is_complete,
            left_out: overview.left_out,
            unreadable: overview.unreadable,
            series: overview.series.into_iter().map(RangeSeries::of_overview).collect(),
        }
    }

    /// Removes the series that exceed the limit.
    pub(super) fn limit(&mut self) {
        self.left_out += keep_largest(&mut self.series);
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let series = self.series.iter().map(|series| SeriesHeader {
            label: series.label.as_deref(),
            path: &series.path,
            unit: &series.unit,
            rows: series.rows.len(),
        });
        let header = RangeHeader {
            pixel_ns: self.pixel_ns.to_string(),
            is_complete: self.is_complete,
            left_out: self.left_out,
            unreadable: self.unreadable,
            series: series.collect(),
        };
        // Serialization cannot fail, because the header has only numbers and strings.
        let mut header = serde_json::to_string(&header).unwrap_or_default();
        // The page reads the columns as arrays of numbers, which must be aligned.
        while !(header.len() + LENGTH_BYTES).is_multiple_of(8) {
            header.push(' ');
        }
        let mut bytes = u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        for series in &self.series {
            let rows = || series.rows.iter();
            bytes.extend(rows().flat_map(|row| row.first_ns.to_le_bytes()));
            bytes.extend(rows().flat_map(|row| row.last_ns.to_le_bytes()));
            let values: [fn(&RangeRow) -> f64; 4] =
                [|row| row.min, |row| row.max, |row| row.first, |row| row.last];
            for value in values {
                bytes.extend(rows().flat_map(|row| value(row).to_le_bytes()));
            }
            bytes.extend(rows().flat_map(|row| row.count.to_le_bytes()));
        }
        bytes
    }
}

/// Keeps the series with the largest values, up to the maximum number of series. Returns the number
/// of removed series.
pub(super) fn keep_largest(series: &mut Vec<RangeSeries>) -> u64 {
    let largest = |series: &RangeSeries| {
        let values = series.rows.iter().filter(|row| row.count > 0);
        values.map(|row| row.max).fold(f64::NEG_INFINITY, f64::max)
    };
    series.sort_by(|one, other| largest(other).total_cmp(&largest(one)));
    let mut rows = 0;
    let fitting = series.iter().take(SERIES_MAX).take_while(|series| {
        rows += series.rows.len();
        rows <= ROWS_MAX
    });
    let (all, kept) = (series.len(), fitting.count());
    series.truncate(kept);
    (all - kept) as u64
}

impl RangeSeries {
    /// Returns a series without values, for a formula.
    pub(super) fn empty(unit: &str) -> Self {
        Self { label: None, path: String::new(), unit: unit.to_owned(), rows: Vec::new() }
    }

    /// Converts the series of an overview to human-readable units.
    pub(super) fn of_overview(series: OverviewSeries) -> Self {
        let unit = CommonUnit::of(series.column.unit.as_deref(), series.column.is_rate);
        let row = |row: &OverviewRow| match row {
            OverviewRow::Gap(time) => RangeRow::gap(time.start, time.end),
            OverviewRow::Pixel(pixel) => RangeRow {
                first_ns: pixel.first_ns,
                last_ns: pixel.last_ns,
                min: unit.convert(pixel.min),
                max: unit.convert(pixel.max),
                first: unit.convert(pixel.first),
                last: unit.convert(pixel.last),
                count: pixel.count,
            },
        };
        Self {
            rows: series.rows.iter().map(row).collect(),
            label: series.label.map(Into::into),
            path: series.column.name,
            unit: unit.name,
        }
    }
}
