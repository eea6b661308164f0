//! Writes whole samples as JSON lines, CSV, a table, or lines of name=value.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flatcap_format::consumer_names::DistinctNames;
use flatcap_format::query::SampleReader;
use flatcap_format::schema::{
    DecodeError, FieldValue, FlatColumn, FlatColumns, JsonWriter, MetricKind, append_json_value,
};
use flatcap_format::segment::SampleView;

use super::row_cell::{print_data, print_plain};
use super::row_writer::{RowFormat, RowWriter};
use crate::human;

/// Smallest width of a table column. Most values fit, so that rows line up.
const COLUMN_WIDTH_MIN: usize = 10;

/// Lines of whole samples for people.
pub(super) struct SampleLines<'a> {
    out: &'a mut dyn Write,
    /// Whether all samples have one source, so that they share columns. Otherwise, each value has
    /// its name.
    is_table: bool,
    /// The source and host of the heading.
    shown: Option<(String, String)>,
    /// The columns of each source.
    columns: BTreeMap<String, FlatColumns>,
}

impl<'a> SampleLines<'a> {
    pub(super) fn new(is_table: bool, out: &'a mut dyn Write) -> Self {
        Self { out, is_table, shown: None, columns: BTreeMap::new() }
    }

    pub(super) fn remark(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "-- {text}")
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl RowWriter<'_> {
    /// Adds the columns of a whole sample to the heading of CSV. Skips a sample that cannot be
    /// decoded.
    pub(super) fn add_columns(&mut self, reader: &SampleReader) -> Result<(), DecodeError> {
        match (reader.walk(&mut self.sample_row), reader.schema()) {
            (Ok(()), Some(schema)) => self.sample_columns.add(schema, &self.sample_row),
            _ => Ok(()),
        }
    }

    /// Writes the heading of whole samples in CSV.
    pub(super) fn begin_samples(&mut self) -> io::Result<()> {
        let RowFormat::Csv { out, line, .. } = &mut self.format else { return Ok(()) };
        let stamps = ["seq", "mono_ns", "wall_ns", "time", "duration_ns", "flags"];
        let names = ["source"].into_iter().chain(self.has_host_column.then_some("host")).chain(stamps);
        let names = names.chain(self.sample_columns.as_slice().iter().map(FlatColumn::path));
        let mut distinct = DistinctNames::default();
        line.clear();
        names.for_each(|name| line.push_text(distinct.take(name, '-').as_bytes()));
        out.write_all(line.end())
    }

    /// Writes the sample that the reader returned last. Returns an error if the sample cannot be
    /// decoded, and then writes nothing.
    pub(super) fn sample(&mut self, reader: &SampleReader) -> io::Result<Result<(), DecodeError>> {
        let (Some(sample), Some(schema)) = (reader.sample(), reader.schema()) else { return Ok(Ok(())) };
        let SampleView { seq, mono_ns, wall_ns, duration_ns, flags, .. } = sample;
        let Self { format, times, host, has_host_column, cell, sample_row: row, .. } = self;
        if let RowFormat::Jsonl { out, line } = format {
            line.clear();
            line.extend_from_slice(b"{\"source\":");
            append_json_value(FieldValue::Text(reader.source()), line);
            line.extend_from_slice(b",\"host\":");
            append_json_value(FieldValue::Text(host), line);
            write!(line, ",\"seq\":{seq},\"mono_ns\":{mono_ns},\"wall_ns\":{wall_ns},\"time\":\"")?;
            times.push_nanoseconds(wall_ns, line);
            write!(line, "\",\"duration_ns\":{duration_ns},\"flags\":{flags},\"data\":")?;
            if let Err(error) = reader.walk(&mut JsonWriter::new(line)) {
                return Ok(Err(error));
            }
            line.extend_from_slice(b"}\n");
            return out.write_all(line).map(Ok);
        }
        if let Err(error) = reader.walk(row) {
            return Ok(Err(error));
        }
        let host = has_host_column.then_some(host.as_str());
        match format {
            RowFormat::Csv { out, line, text_rule, .. } => {
                line.clear();
                for text in [reader.source()].into_iter().chain(host) {
                    print_data(FieldValue::Text(text), *text_rule, cell);
                    line.push_text(cell);
                }
                for stamp in [seq.into(), mono_ns.into(), i128::from(wall_ns)] {
                    line.push_plain(|bytes| {
                        bytes.extend_from_slice(itoa::Buffer::new().format(stamp).as_bytes())
                    });
                }
                line.push_plain(|bytes| times.push_nanoseconds(wall_ns, bytes));
                for stamp in [duration_ns, flags.into()] {
                    line.push_plain(|bytes| {
                        bytes.extend_from_slice(itoa::Buffer::new().format(stamp).as_bytes())
                    });
                }
                for value in self.sample_columns.align(row) {
                    print_data(value, *text_rule, cell);
                    match value {
                        FieldValue::Text(_) => line.push_text(cell),
                        _ => line.push_plain(|bytes| bytes.extend_from_slice(cell)),
                    }
                }
                out.write_all(line.end()).map(Ok)
            }
            RowFormat::Lines(lines) => {
                let source = reader.source();
                let origin = (source.to_owned(), host.unwrap_or_default().to_owned());
                if lines.is_table && lines.shown.as_ref() != Some(&origin) {
                    lines.columns.clear();
                    lines.shown = Some(origin);
                }
                let columns = lines.columns.entry(source.to_owned()).or_default();
                let known = columns.as_slice().len();
                if let Err(error) = columns.add(schema, row) {
                    return Ok(Err(error));
                }
                let (out, time, width) = (&mut *lines.out, times.microseconds(wall_ns), times.width());
                let (source, host) = (human::escaped(source), host.map(human::escaped));
                if !lines.is_table {
                    let host = host.map(|host| format!(" {host}")).unwrap_or_default();
                    write!(out, "{time}{host} {source} seq={seq}")?;
                    for (column, value) in columns.as_slice().iter().zip(columns.align(row)) {
                        print_for_people(value, self.is_rate, column, cell);
                        if !cell.is_empty() {
                            write!(out, " {}={}", column.path(), String::from_utf8_lossy(cell))?;
                        }
                    }
                    return writeln!(out).map(Ok);
                }
                let stamps = |time: &str, host: Option<&str>, source: &str, seq: &str| {
                    let host = host.map(|host| format!(" {host:<COLUMN_WIDTH_MIN$}")).unwrap_or_default();
                    format!("{time:<width$}{host} {source:<COLUMN_WIDTH_MIN$} {seq:>8}")
                };
                if columns.as_slice().len() != known {
                    write!(out, "{}", stamps("time", host.as_ref().map(|_| "host"), "source", "seq"))?;
                    for column in columns.as_slice() {
                        write!(out, "  {:>COLUMN_WIDTH_MIN$}", column.path())?;
                    }
                    writeln!(out)?;
                }
                write!(out, "{}", stamps(&time, host.as_deref(), &source, &seq.to_string()))?;
                for (column, value) in columns.as_slice().iter().zip(columns.align(row)) {
                    print_for_people(value, self.is_rate, column, cell);
                    if cell.is_empty() {
                        cell.push(b'-');
                    }
                    let width = column.path().len().max(COLUMN_WIDTH_MIN);
                    write!(out, "  {:>width$}", String::from_utf8_lossy(cell))?;
                }
                writeln!(out).map(Ok)
            }
            RowFormat::Jsonl { .. } | RowFormat::Table(_) => Ok(Ok(())),
        }
    }
}

/// Writes a value as plain text, a rate with three significant digits.
fn print_for_people(value: FieldValue<'_>, is_rate: bool, column: &FlatColumn, cell: &mut Vec<u8>) {
    match value {
        FieldValue::Float(rate)
            if is_rate && column.metric_kind() == MetricKind::Counter && rate.is_finite() =>
        {
            cell.clear();
            cell.extend_from_slice(human::significant(rate).as_bytes());
        }
        other => print_plain(other, cell),
    }
}
