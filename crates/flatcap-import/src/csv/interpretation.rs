//! The interpretation of a file, such as its time format and the types of its columns. The first
//! pass decides the interpretation, and the second pass applies it.

use serde::Serialize;

use super::cells::Cells;
use super::column_census::ColumnReading;
use super::columns::{CsvColumn, CsvHeader};
use super::csv_type::CsvType;
use super::layout::CsvLayout;
use super::numeral::DecimalMark;
use super::text_encoding::TextEncoding;
use super::time_form::{CellTime, TimeForm};
use crate::local_clock::LocalZone;
use crate::payload::PayloadValue;
use crate::row_times::{LongStep, RowOrder, RowTimes};

/// The properties of a file that determine how its rows are parsed.
#[derive(Debug)]
pub(super) struct Interpretation {
    pub(super) encoding: TextEncoding,
    pub(super) layout: CsvLayout,
    pub(super) header: CsvHeader,
    pub(super) decimal: DecimalMark,
    /// The interpretation of each column in the header.
    pub(super) readings: Vec<ColumnReading>,
    pub(super) time_form: TimeForm,
    /// Whether the unit of numeric times was derived from their number of digits. If this field is
    /// true, times with another number of digits are not read.
    pub(super) by_digits: bool,
    pub(super) zone: LocalZone,
    /// Whether any time is local, so that the zone affects the result.
    pub(super) uses_zone: bool,
    pub(super) order: RowOrder,
    /// Whether the newest row is first in the file. The rows may nevertheless be imported in order
    /// of time.
    pub(super) is_newest_first: bool,
    /// Positions of the key columns.
    pub(super) keys: Vec<usize>,
    /// Words for missing values that options state.
    pub(super) absent: Vec<String>,
}

/// The interpretation of a file and a summary of its rows, for people and programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CsvCheck {
    /// The file.
    pub file: String,
    /// The encoding.
    pub encoding: &'static str,
    /// The delimiter between cells.
    pub delimiter: char,
    /// The decimal mark, which is `point` or `comma`.
    pub decimal: &'static str,
    /// The line number of the header.
    pub header_line: u64,
    /// The time.
    pub time: TimeCheck,
    /// All columns except the time columns.
    pub columns: Vec<ColumnCheck>,
    /// Titles of the key columns.
    pub keys: Vec<String>,
    /// The order of the rows, which is the order of the file or of time.
    pub order: RowOrder,
    /// Number of rows with a time.
    pub rows: u64,
    /// Number of rows that an import would skip.
    pub skipped_rows: u64,
}

/// The time columns of a file, with a summary of the times in its rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeCheck {
    /// Titles of the time columns.
    pub columns: Vec<String>,
    /// The time format.
    pub form: String,
    /// The zone of times without an offset, and the origin of the zone. `None` if no time needs a
    /// zone.
    pub zone: Option<String>,
    /// The earliest time, in nanoseconds since 1970.
    pub first_ns: Option<i64>,
    /// The latest time, in nanoseconds since 1970.
    pub last_ns: Option<i64>,
    /// The most frequent step between two rows, in nanoseconds.
    pub usual_step_ns: Option<i64>,
    /// The longest steps between successive rows. Each of them is at least three times as long as
    /// the usual step.
    pub gaps: Vec<GapCheck>,
}

/// A long step between two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GapCheck {
    /// The line number of the row after the step.
    pub line: u64,
    /// The length of the step, in nanoseconds.
    pub step_ns: i64,
}

/// A column of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnCheck {
    /// The column's title.
    pub title: String,
    /// The column's field name.
    pub name: String,
    /// The column's type.
    #[serde(rename = "type")]
    pub csv_type: &'static str,
    /// The column's unit.
    pub unit: Option<String>,
    /// Whether the column is a counter.
    pub counter: bool,
    /// Words for missing values that occur in the column.
    pub absent: Vec<String>,
    /// Number of cells whose value has the type of the column.
    pub values: u64,
}

impl Interpretation {
    /// Parses the time of a row. Returns `None` if the time has another format.
    pub(super) fn time<'c>(&self, text: &'c str) -> Option<CellTime<'c>> {
        if self.by_digits { self.time_form.read_by_digits(text) } else { self.time_form.read(text) }
    }

    /// Returns the value of a cell, or `None` if it is missing.
    ///
    /// # Errors
    /// The type of the cell differs from the type of its column, or the cell is not UTF-8.
    pub(super) fn value<'c>(
        &self,
        cells: &'c Cells,
        column: &CsvColumn,
        reading: &ColumnReading,
    ) -> Result<Option<PayloadValue<'c>>, ()> {
        let bytes = cells.get(column.position).unwrap_or_default();
        let text = std::str::from_utf8(bytes).map_err(|_| ())?;
        let trimmed = text.trim();
        if self.is_absent(trimmed) || reading.absent.iter().any(|word| word == trimmed) {
            return Ok(None);
        }
        let cell = if reading.csv_type == CsvType::Text { text } else { trimmed };
        reading.csv_type.value(cell, self.decimal, reading.unit.as_deref()).map(Some).ok_or(())
    }

    fn is_absent(&self, cell: &str) -> bool {
        cell.is_empty() || self.absent.iter().any(|absent| absent == cell)
    }

    /// Describes the interpretation, for example `time is column 1 (ISO 8601); other columns: 2
    /// float, 1 text`.
    pub(super) fn described(&self) -> String {
        let count = |wanted: CsvType| self.readings.iter().filter(|own| own.csv_type == wanted).count();
        let all = [CsvType::Bool, CsvType::Unsigned, CsvType::Signed, CsvType::Float, CsvType::Text];
        let counted = all.map(|kind| (count(kind), kind.as_str()));
        let types = counted.iter().filter(|(count, _)| *count > 0);
        let types: Vec<String> = types.map(|(count, name)| format!("{count} {name}")).collect();
        let places: Vec<String> = self.header.time.iter().map(|at| (at + 1).to_string()).collect();
        let column = if places.len() > 1 { "columns" } else { "column" };
        let zone = if self.uses_zone { format!(", {}", self.zone.described()) } else { String::new() };
        let mut what = Vec::new();
        if self.encoding != TextEncoding::Utf8 {
            what.push(format!("the text is {}", self.encoding.name()));
        }
        if self.layout.delimiter != b',' {
            what.push(format!("cells are between {:?}", char::from(self.layout.delimiter)));
        }
        if self.decimal == DecimalMark::Comma {
            what.push("the decimal mark is a comma".to_owned());
        }
        if self.is_newest_first {
            let sorted = if self.order == RowOrder::Time { ", rows are sorted" } else { "" };
            what.push(format!("the newest row is first{sorted}"));
        }
        if !self.keys.is_empty() {
            what.push(format!("devices are told apart by {}", self.key_titles().join(", ")));
        }
        what.push(format!("time is {column} {} ({}{zone})", places.join(" and "), self.time_form.name()));
        what.push(format!("other columns: {}", types.join(", ")));
        what.join("; ")
    }

    pub(super) fn key_titles(&self) -> Vec<String> {
        self.keys.iter().map(|at| self.header.title(*at).to_owned()).collect()
    }

    /// Returns the result of a check, after the first pass.
    pub(super) fn check(&self, file: String, times: &RowTimes, values: &[u64], rows: (u64, u64)) -> CsvCheck {
        let typed = self.header.columns.iter().zip(&self.readings).zip(values);
        let columns = typed.map(|((column, reading), values)| ColumnCheck {
            title: column.title.clone(),
            name: column.name.clone(),
            csv_type: reading.csv_type.as_str(),
            unit: column.unit(reading),
            counter: column.is_counter(),
            absent: reading.absent.clone(),
            values: *values,
        });
        let gap = |long: LongStep| GapCheck { line: long.line, step_ns: long.step_ns };
        CsvCheck {
            file,
            encoding: self.encoding.name(),
            delimiter: char::from(self.layout.delimiter),
            decimal: self.decimal.name(),
            header_line: self.layout.header_line,
            time: TimeCheck {
                columns: self.header.time.iter().map(|at| self.header.title(*at).to_owned()).collect(),
                form: self.time_form.name().into_owned(),
                zone: self.uses_zone.then(|| self.zone.described()),
                first_ns: times.earliest_ns,
                last_ns: times.latest_ns,
                usual_step_ns: times.usual_step_ns(),
                gaps: times.gaps().into_iter().map(gap).collect(),
            },
            columns: columns.collect(),
            keys: self.key_titles(),
            order: self.order,
            rows: rows.0,
            skipped_rows: rows.1,
        }
    }
}
