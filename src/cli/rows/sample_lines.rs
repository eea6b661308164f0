//! Writes whole samples in human-readable form, as a table or as lines of name=value.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flatcap_format::schema::{DecodeError, FieldValue, FlatColumn, FlatColumns, FlatRow, MetricKind};
use flatcap_query::SampleReader;
use flatcap_text::human;

use super::row_cell::print_plain;
use flatcap_text::time_printer::TimePrinter;

/// Minimum width of a table column. Most values fit into this width, so that rows line up.
const COLUMN_WIDTH_MIN: usize = 10;

/// Writer of human-readable lines for whole samples.
pub(super) struct SampleLines<'a> {
    out: &'a mut dyn Write,
    /// Whether all samples have the same source, so that they share columns. Otherwise, each value
    /// is printed with its name.
    is_table: bool,
    is_rate: bool,
    /// The source and the host that the current heading names.
    shown: Option<(String, String)>,
    /// The columns of each source.
    columns: BTreeMap<String, FlatColumns>,
}

impl<'a> SampleLines<'a> {
    pub(super) fn new(is_table: bool, is_rate: bool, out: &'a mut dyn Write) -> Self {
        Self { out, is_table, is_rate, shown: None, columns: BTreeMap::new() }
    }

    pub(super) fn remark(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "-- {text}")
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints one line, and a heading before it if the source or its columns change.
    pub(super) fn print(
        &mut self,
        (reader, row): (&SampleReader, &FlatRow),
        host: Option<&str>,
        times: &mut TimePrinter,
    ) -> io::Result<Result<(), DecodeError>> {
        let (Some(sample), Some(schema)) = (reader.sample(), reader.schema()) else { return Ok(Ok(())) };
        let source = reader.source();
        let origin = (source.to_owned(), host.unwrap_or_default().to_owned());
        if self.is_table && self.shown.as_ref() != Some(&origin) {
            self.columns.clear();
            self.shown = Some(origin);
        }
        let columns = self.columns.entry(source.to_owned()).or_default();
        let known = columns.as_slice().len();
        if let Err(error) = columns.add(schema, row) {
            return Ok(Err(error));
        }
        let (time, source, host) =
            (times.microseconds(sample.wall_ns), human::escaped(source), host.map(human::escaped));
        let (columns, values, mut cell) = (columns.as_slice(), columns.align(row), Vec::new());
        let values = columns.iter().zip(values);
        if !self.is_table {
            let host = host.map(|host| format!(" {host}")).unwrap_or_default();
            write!(self.out, "{time}{host} {source} seq={}", sample.seq)?;
            for (column, value) in values {
                print_for_people(value, self.is_rate, column, &mut cell);
                if !cell.is_empty() {
                    write!(self.out, " {}={}", column.path(), String::from_utf8_lossy(&cell))?;
                }
            }
            return writeln!(self.out).map(Ok);
        }
        let stamps = |time: &str, host: Option<&str>, source: &str, seq: &str| {
            let host = host.map(|host| format!(" {host:<COLUMN_WIDTH_MIN$}")).unwrap_or_default();
            format!("{time:<0$}{host} {source:<COLUMN_WIDTH_MIN$} {seq:>8}", times.width())
        };
        if columns.len() != known {
            write!(self.out, "{}", stamps("time", host.as_ref().map(|_| "host"), "source", "seq"))?;
            for column in columns {
                write!(self.out, "  {:>COLUMN_WIDTH_MIN$}", column.path())?;
            }
            writeln!(self.out)?;
        }
        write!(self.out, "{}", stamps(&time, host.as_deref(), &source, &sample.seq.to_string()))?;
        for (column, value) in values {
            print_for_people(value, self.is_rate, column, &mut cell);
            let text = if cell.is_empty() { "-".into() } else { String::from_utf8_lossy(&cell) };
            write!(self.out, "  {text:>0$}", column.path().len().max(COLUMN_WIDTH_MIN))?;
        }
        writeln!(self.out).map(Ok)
    }
}

/// Writes a value as plain text. A rate has three significant digits.
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
