//! Writes rows as CSV, JSON lines or a table.

use std::io::{self, Write};

use flatcap_format::replay::RecordedHosts;
use flatcap_format::schema::{
    FieldValue, FlatColumns, FlatRow, GapCauseNames, append_json_value, to_visible_json,
};
use flatcap_format::segment::{Gap, Marker, list};
use flatcap_query::{CommonUnit, HeldValue, RowColumn, RowReader, RowStamp, RunInfo};
use flatcap_text::human::printable;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::row_cell::{TextRule, UnitMode, print_data, unit_of, write_value};
use super::row_request::{RowOutput, RowRequest};
use super::row_table::RowTable;
use super::sample_lines::SampleLines;
use crate::cli::csv_line::CsvLine;
use crate::cli::error::CliError;
use crate::cli::marks::MarkRow;
use crate::cli::terminal::Output;
use flatcap_text::time_printer::TimePrinter;

/// Writes rows of fields, or whole samples.
pub(super) struct RowWriter<'a> {
    pub(super) format: RowFormat<'a>,
    pub(super) times: TimePrinter,
    mode: UnitMode,
    has_units: bool,
    has_time: bool, // readable, in CSV and JSON lines
    hosts: RecordedHosts,
    /// The name of the host of the current run.
    pub(super) host: String,
    pub(super) has_host_column: bool,
    columns: Vec<WrittenColumn>,
    pub(super) cell: Vec<u8>,
    /// The values of a whole sample.
    pub(super) sample_row: FlatRow,
    /// The columns of whole samples in CSV.
    pub(super) sample_columns: FlatColumns,
}

#[allow(clippy::large_enum_variant, reason = "there is only one in the program")]
pub(super) enum RowFormat<'a> {
    Csv {
        out: &'a mut dyn Write,
        line: CsvLine,
        has_header: bool,
        text_rule: TextRule,
    },
    Jsonl {
        out: &'a mut dyn Write,
        line: Vec<u8>,
    },
    Table(RowTable<'a>),
    /// Lines of whole samples.
    Lines(SampleLines<'a>),
}

/// A column in the order of the output.
struct WrittenColumn {
    /// The position of the column in a row of the reader.
    place: usize,
    name: String,
    unit: CommonUnit,
}

impl<'a> RowWriter<'a> {
    /// Creates a writer of rows of fields.
    pub(super) fn new(request: &RowRequest<'_>, out: &'a mut dyn Write) -> Result<Self, CliError> {
        let width = if request.is_turned { Some(0) } else { Output::Stdout.width() };
        Self::with(request, out, |out| RowFormat::Table(RowTable::new(width, out)))
    }

    /// Creates a writer of whole samples. `is_table` is true if all samples have the same source.
    pub(super) fn of_samples(
        request: &RowRequest<'_>,
        is_table: bool,
        out: &'a mut dyn Write,
    ) -> Result<Self, CliError> {
        Self::with(request, out, |out| RowFormat::Lines(SampleLines::new(is_table, request.is_rate, out)))
    }

    fn with(
        request: &RowRequest<'_>,
        out: &'a mut dyn Write,
        for_people: impl FnOnce(&'a mut dyn Write) -> RowFormat<'a>,
    ) -> Result<Self, CliError> {
        let output = request.output;
        // The output for programs has the same text in every time zone.
        let zone = if output == RowOutput::Table { request.zone.clone() } else { TimeZone::UTC };
        let format = match output {
            RowOutput::Csv => {
                let text_rule = request.args.text_rule();
                RowFormat::Csv { out, line: CsvLine::default(), has_header: false, text_rule }
            }
            RowOutput::Jsonl => RowFormat::Jsonl { out, line: Vec::new() },
            RowOutput::Table => for_people(out),
        };
        let hosts = RecordedHosts::of(&list(&request.selection.paths)?);
        Ok(Self {
            format,
            times: TimePrinter::new(zone),
            mode: request.unit_mode(),
            has_units: request.args.units,
            has_time: !request.args.no_time,
            has_host_column: hosts.are_several() && !request.selection.has_host(),
            hosts,
            host: String::new(),
            columns: Vec::new(),
            cell: Vec::new(),
            sample_row: FlatRow::default(),
            sample_columns: FlatColumns::default(),
        })
    }

    /// Begins a run.
    pub(super) fn begin_run(&mut self, run: &RunInfo) {
        self.host = match self.hosts.name_of(run.run_id) {
            "" => run.host.name.clone(),
            name => name.to_owned(),
        };
    }

    /// Writes the heading, if the format has one.
    pub(super) fn begin(&mut self, reader: &RowReader) -> io::Result<()> {
        self.set_columns(reader.columns());
        let is_long = reader.is_long();
        match &mut self.format {
            RowFormat::Csv { out, line, has_header, .. } if !*has_header => {
                *has_header = true;
                let host = self.has_host_column.then_some("host");
                let time = self.has_time.then_some("time");
                let stamps =
                    time.into_iter().chain(["wall_ns"]).chain(host).chain(is_long.then_some("element"));
                let names = stamps.chain(self.columns.iter().map(|column| &*column.name));
                line.clear();
                names.for_each(|name| line.push_text(name.as_bytes()));
                out.write_all(line.end())
            }
            RowFormat::Table(table) => {
                let host = self.has_host_column.then_some("host");
                let names = ["time"].into_iter().chain(host).chain(is_long.then_some("element"));
                let names = names.map(str::to_owned);
                let stamps = 1 + usize::from(is_long) + usize::from(self.has_host_column);
                let units = self.columns.iter().map(|column| column.unit.name.clone());
                let units = vec![String::new(); stamps].into_iter().chain(units).collect();
                let names = names.chain(self.columns.iter().map(|column| column.name.clone())).collect();
                table.head(names, self.has_units.then_some(units))
            }
            RowFormat::Csv { .. } | RowFormat::Jsonl { .. } | RowFormat::Lines(_) => Ok(()),
        }
    }

    /// Writes the row that the reader returned last.
    #[allow(clippy::too_many_lines, reason = "one format after the other")]
    pub(super) fn row(&mut self, stamp: &RowStamp, reader: &RowReader) -> io::Result<()> {
        if self.columns.len() != reader.columns().len() {
            self.begin(reader)?;
        }
        let label = stamp.element.map(|element| reader.label(element));
        let Self { format, times, mode, columns, cell, host, has_host_column, has_time, .. } = self;
        let row = reader.values();
        let values = columns.iter().map(|column| (column, row.get(column.place)));
        match format {
            RowFormat::Csv { out, line, text_rule, .. } => {
                line.clear();
                if *has_time {
                    line.push_plain(|bytes| times.push_nanoseconds(stamp.wall_ns, bytes));
                }
                line.push_number(stamp.wall_ns);
                for text in has_host_column.then_some(&**host).into_iter().chain(label) {
                    print_data(FieldValue::Text(text), *text_rule, cell);
                    line.push_text(cell);
                }
                for (column, value) in values {
                    cell.clear();
                    write_data(value, (&column.unit, *mode, *text_rule), cell);
                    if value.is_some_and(|value| value.number().is_some()) {
                        line.push_plain(|bytes| bytes.extend_from_slice(cell));
                    } else {
                        line.push_text(cell);
                    }
                }
                out.write_all(line.end())
            }
            RowFormat::Jsonl { out, line } => {
                line.clear();
                write!(line, "{{\"mono_ns\":{},\"wall_ns\":{}", stamp.mono_ns, stamp.wall_ns)?;
                if *has_time {
                    line.extend_from_slice(b",\"time\":\"");
                    times.push_nanoseconds(stamp.wall_ns, line);
                    line.push(b'"');
                }
                line.extend_from_slice(b",\"host\":");
                append_json_value(FieldValue::Text(host), line);
                if let Some(label) = label {
                    line.extend_from_slice(b",\"element\":");
                    append_json_value(FieldValue::Text(label), line);
                }
                for (column, value) in values {
                    line.push(b',');
                    append_json_value(FieldValue::Text(&column.name), line);
                    line.push(b':');
                    match value.map(|value| (value, value.number())) {
                        Some((_, Some(number))) if *mode == UnitMode::Common && !column.is_own() => {
                            append_json_value(FieldValue::Float(column.unit.convert(number)), line);
                        }
                        Some((value, _)) => append_json_value(value.get(), line),
                        None => append_json_value(FieldValue::Absent, line),
                    }
                }
                line.extend_from_slice(b"}\n");
                out.write_all(line)
            }
            RowFormat::Table(table) => {
                let stamps = [times.microseconds(stamp.wall_ns)].into_iter();
                let host_cell = has_host_column.then(|| printable(host));
                let stamps = stamps.chain(host_cell).chain(label.map(printable));
                let texts = values.map(|(column, value)| {
                    cell.clear();
                    if let Some(value) = value {
                        write_value(value, &column.unit, *mode, cell);
                    }
                    if cell.is_empty() { "-".to_owned() } else { printable(&String::from_utf8_lossy(cell)) }
                });
                table.row(stamps.chain(texts).collect())
            }
            RowFormat::Lines(_) => Ok(()),
        }
    }

    /// Writes a gap, if the format can contain one.
    pub(super) fn gap(&mut self, source: &str, gap: &Gap) -> io::Result<()> {
        match &mut self.format {
            RowFormat::Csv { .. } => Ok(()),
            RowFormat::Jsonl { out, .. } => print_object(*out, "gap", &GapRow::new(gap, source, &self.host)),
            RowFormat::Table(table) => table.remark(gap_text(gap, source)),
            RowFormat::Lines(lines) => lines.remark(&gap_text(gap, source)),
        }
    }

    /// Writes a marker between the rows. If the format cannot contain a marker, writes it to
    /// standard error.
    pub(super) fn marker(&mut self, marker: &Marker) -> io::Result<()> {
        let time = self.times.microseconds(marker.wall_ns);
        let text = printable(&marker.text);
        match &mut self.format {
            RowFormat::Csv { .. } => writeln!(io::stderr(), "flatcap: {time} {text}"),
            RowFormat::Jsonl { out, .. } => print_object(*out, "marker", &MarkRow::new(marker, &self.host)),
            RowFormat::Table(table) => table.remark(format!("mark: {time} {text}")),
            RowFormat::Lines(lines) => lines.remark(&format!("mark: {time} {text}")),
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.format {
            RowFormat::Csv { out, .. } | RowFormat::Jsonl { out, .. } => out.flush(),
            RowFormat::Table(table) => table.flush(),
            RowFormat::Lines(lines) => lines.flush(),
        }
    }

    /// Sorts the columns in the order of the query.
    fn set_columns(&mut self, columns: &[RowColumn]) {
        let mut places: Vec<usize> = (0..columns.len()).collect();
        places.sort_by_key(|place| columns.get(*place).map(|column| column.order));
        let written = places.into_iter().filter_map(|place| Some((place, columns.get(place)?)));
        self.columns = written
            .map(|(place, column)| {
                let unit = unit_of(column, self.mode);
                let is_named = self.has_units && !unit.name.is_empty();
                let in_name = is_named && !matches!(self.format, RowFormat::Table(_));
                let suffix = if in_name { format!(" ({})", unit.name) } else { String::new() };
                WrittenColumn { place, name: printable(&format!("{}{suffix}", column.name)), unit }
            })
            .collect();
    }
}

impl WrittenColumn {
    fn is_own(&self) -> bool {
        (self.unit.factor - 1.0).abs() < f64::EPSILON
    }
}

/// Lost samples of a source, as JSON.
#[derive(Debug, Serialize)]
struct GapRow<'a> {
    source: &'a str,
    host: &'a str,
    first: u64,
    count: u64,
    causes: String,
    after_mono_ns: u64,
    before_mono_ns: u64,
}

impl<'a> GapRow<'a> {
    fn new(gap: &Gap, source: &'a str, host: &'a str) -> Self {
        let causes = GapCauseNames(gap.causes).to_string();
        let Gap { first, count, after_mono_ns, before_mono_ns, .. } = *gap;
        Self { source, host, first, count, causes, after_mono_ns, before_mono_ns }
    }
}

/// Returns the text with which a table reports lost samples.
fn gap_text(gap: &Gap, source: &str) -> String {
    let (source, count, causes) = (printable(source), gap.count, GapCauseNames(gap.causes));
    let samples = if count == 1 { "sample" } else { "samples" };
    if gap.is_thinned() {
        return format!("gap: {count} {samples} of {source} thinned");
    }
    format!("gap: {count} {samples} of {source} lost ({causes})")
}

/// Prints a JSON object on a line. The only member of the object has the given name.
fn print_object(out: &mut dyn Write, name: &str, row: &impl Serialize) -> io::Result<()> {
    writeln!(out, "{{\"{name}\":{}}}", to_visible_json(row).map_err(io::Error::from)?)
}

/// Writes a value as a cell of CSV. Writes nothing for an absent value.
fn write_data(
    value: Option<&HeldValue>,
    (unit, mode, text_rule): (&CommonUnit, UnitMode, TextRule),
    cell: &mut Vec<u8>,
) {
    match value {
        Some(HeldValue::Text(text)) => print_data(FieldValue::Text(text), text_rule, cell),
        Some(value) => write_value(value, unit, mode, cell),
        None => {}
    }
}
