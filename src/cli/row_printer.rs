//! Prints samples as JSON lines, CSV, a table, or lines of name=value.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flatcap_format::consumer_names::DistinctNames;
use flatcap_format::schema::{
    CompiledSchema, DecodeError, FieldValue, FlatColumn, FlatColumns, FlatRow, JsonWriter, MetricKind, Rates,
    append_json_value, is_terminal_unsafe, to_visible_json,
};
use flatcap_format::segment::{Gap, Marker, SampleView};
use flatcap_slab::Causes;
use flatcap_text::human;
use serde::Serialize;

use super::error::CliError;
use super::marks::MarkRow;
use super::time_printer::TimePrinter;

/// Smallest width of a table column. Most values fit, so that rows line up.
const COLUMN_WIDTH_MIN: usize = 10;

/// The origin of samples.
#[derive(Debug, Clone)]
pub(super) struct SampleOrigin {
    pub(super) source: String,
    pub(super) host: String,
    /// Whether tables and CSV show the host.
    pub(super) has_host_column: bool,
}

/// Decodes the payloads of one source.
pub(super) struct RowDecoder {
    pub(super) origin: SampleOrigin,
    pub(super) plan: CompiledSchema,
    pub(super) rates: Rates,
    /// Whether rates are printed instead of counters.
    pub(super) has_rates: bool,
    pub(super) row: FlatRow, // reused
}

/// The output format and its destination.
#[allow(clippy::large_enum_variant, reason = "there is only one in the program")]
pub(super) enum Printer<'a> {
    /// No output: only collects the columns.
    Widths(&'a mut FlatColumns),
    Jsonl {
        out: &'a mut dyn Write,
        times: TimePrinter,
        line: Vec<u8>,
    },
    Csv {
        writer: csv::Writer<&'a mut dyn Write>,
        columns: &'a FlatColumns,
        times: TimePrinter,
        has_host_column: bool,
        text_rule: TextRule,
        cell: Vec<u8>,
    },
    Table {
        out: &'a mut dyn Write,
        times: TimePrinter,
        heading: Option<TableHeading>,
    },
    /// Rows of several sources, which share no columns.
    Pairs {
        out: &'a mut dyn Write,
        times: TimePrinter,
        columns: BTreeMap<String, FlatColumns>,
    },
}

/// The treatment of strings from recordings in cells of CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextRule {
    /// Values as recorded, for programs.
    Unchanged,
    /// With `?` for what a terminal might obey.
    ForTerminal,
}

/// The current table heading, which is printed again when it changes.
pub(super) struct TableHeading {
    pub(super) source: String,
    pub(super) host: String,
    pub(super) columns: FlatColumns,
}

/// The reason why a sample was not printed.
pub(super) enum PrintError {
    Output(io::Error),
    Payload(DecodeError),
}

impl From<io::Error> for PrintError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<DecodeError> for PrintError {
    fn from(error: DecodeError) -> Self {
        Self::Payload(error)
    }
}

impl Printer<'_> {
    /// Prints the header line, if the format has one.
    pub(super) fn print_header(&mut self) -> Result<(), CliError> {
        if let Self::Csv { writer, columns, has_host_column, .. } = self {
            let stamps = ["seq", "mono_ns", "wall_ns", "time", "duration_ns", "flags"];
            let names = std::iter::once("source").chain(has_host_column.then_some("host")).chain(stamps);
            let names = names.chain(columns.as_slice().iter().map(FlatColumn::path));
            let mut distinct = DistinctNames::default();
            writer.write_record(names.map(|name| distinct.take(name, '-'))).map_err(csv_error)?;
        }
        Ok(())
    }

    /// Flushes the output.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Widths(_) => Ok(()),
            Self::Jsonl { out, .. } | Self::Table { out, .. } | Self::Pairs { out, .. } => out.flush(),
            Self::Csv { writer, .. } => writer.flush(),
        }
    }

    /// Prints one sample.
    pub(super) fn print(
        &mut self,
        decoder: &mut RowDecoder,
        sample: &SampleView<'_>,
        rate: bool,
    ) -> Result<(), PrintError> {
        if let Self::Jsonl { out, times, line } = self {
            begin_json(line, &decoder.origin, sample, times)?;
            return json_line(out, line, decoder, sample, rate);
        }
        decode_row(decoder, sample, rate)?;
        match self {
            Self::Widths(columns) => columns.add(&decoder.plan, &decoder.row)?,
            Self::Csv { writer, columns, cell, times, text_rule, .. } => {
                write_csv_fields(
                    writer,
                    &decoder.origin,
                    sample,
                    columns.align(&decoder.row),
                    (times, *text_rule, cell),
                )?;
                writer.write_record(None::<&[u8]>).map_err(csv_error)?;
            }
            Self::Table { out, times, heading } => table_row(*out, times, heading, decoder, sample)?,
            Self::Pairs { out, times, columns } => pairs_row(*out, times, columns, decoder, sample)?,
            Self::Jsonl { .. } => {}
        }
        Ok(())
    }
}

/// Lost samples of a source, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct GapRow<'a> {
    source: &'a str,
    host: &'a str,
    first: u64,
    count: u64,
    causes: String,
    after_mono_ns: u64,
    before_mono_ns: u64,
}

impl<'a> GapRow<'a> {
    pub(super) fn new(gap: &Gap, source: &'a str, host: &'a str) -> Self {
        let causes = Causes::from_bits(gap.causes).to_string();
        let Gap { first, count, after_mono_ns, before_mono_ns, .. } = *gap;
        Self { source, host, first, count, causes, after_mono_ns, before_mono_ns }
    }
}

/// Returns what a table says of lost samples.
pub(super) fn gap_text(gap: &Gap, source: &str) -> String {
    let (source, count, causes) = (human::escaped(source), gap.count, Causes::from_bits(gap.causes));
    let samples = if count == 1 { "sample" } else { "samples" };
    if gap.is_thinned() {
        return format!("gap: {count} {samples} of {source} thinned");
    }
    format!("gap: {count} {samples} of {source} lost ({causes})")
}

impl Printer<'_> {
    /// Prints a marker among the samples; on standard error if the format has no place for it.
    pub(super) fn print_marker(&mut self, marker: &Marker, host: &str) -> io::Result<()> {
        match self {
            Self::Widths(_) => Ok(()),
            Self::Jsonl { out, .. } => print_object(*out, "marker", &MarkRow::new(marker, host)),
            Self::Csv { times, .. } => {
                let time = times.microseconds(marker.wall_ns);
                writeln!(io::stderr(), "flatcap: {time} {}", human::escaped(&marker.text))
            }
            Self::Table { out, times, .. } | Self::Pairs { out, times, .. } => {
                let time = times.microseconds(marker.wall_ns);
                writeln!(out, "-- mark: {time} {}", human::escaped(&marker.text))
            }
        }
    }

    /// Prints lost samples among the others, if the format has a place for them.
    pub(super) fn print_gap(&mut self, gap: &Gap, origin: &SampleOrigin) -> io::Result<()> {
        match self {
            Self::Widths(_) | Self::Csv { .. } => Ok(()),
            Self::Jsonl { out, .. } => {
                print_object(*out, "gap", &GapRow::new(gap, &origin.source, &origin.host))
            }
            Self::Table { out, .. } | Self::Pairs { out, .. } => {
                writeln!(out, "-- {}", gap_text(gap, &origin.source))
            }
        }
    }
}

/// Prints a line with one object, which its only member names.
pub(super) fn print_object(out: &mut dyn Write, name: &str, row: &impl Serialize) -> io::Result<()> {
    write!(out, "{{\"{name}\":")?;
    write!(out, "{}", to_visible_json(row).map_err(io::Error::from)?)?;
    writeln!(out, "}}")
}

impl TableHeading {
    fn new(origin: &SampleOrigin) -> Self {
        let SampleOrigin { source, host, .. } = origin.clone();
        Self { source, host, columns: FlatColumns::new() }
    }

    fn is_of(&self, origin: &SampleOrigin) -> bool {
        (&self.source, &self.host) == (&origin.source, &origin.host)
    }
}

/// Decodes a payload into its source's row.
fn decode_row(decoder: &mut RowDecoder, sample: &SampleView<'_>, rate: bool) -> Result<(), DecodeError> {
    let RowDecoder { plan, rates, row, .. } = decoder;
    if rate {
        plan.walk(sample.payload, &mut rates.replace_counters(row))
    } else {
        row.fill(plan, sample.payload)
    }
}

fn json_line(
    out: &mut dyn Write,
    line: &mut Vec<u8>,
    decoder: &mut RowDecoder,
    sample: &SampleView<'_>,
    rate: bool,
) -> Result<(), PrintError> {
    if rate {
        let mut json = JsonWriter::new(line);
        decoder.plan.walk(sample.payload, &mut decoder.rates.replace_counters(&mut json))?;
    } else {
        decoder.plan.append_json(sample.payload, line)?;
    }
    line.extend_from_slice(b"}\n");
    Ok(out.write_all(line)?)
}

/// Writes the start of a JSON line, up to its data.
fn begin_json(
    line: &mut Vec<u8>,
    origin: &SampleOrigin,
    sample: &SampleView<'_>,
    times: &mut TimePrinter,
) -> io::Result<()> {
    line.clear();
    line.extend_from_slice(b"{\"source\":");
    append_json_value(FieldValue::Text(&origin.source), line);
    line.extend_from_slice(b",\"host\":");
    append_json_value(FieldValue::Text(&origin.host), line);
    let SampleView { seq, mono_ns, wall_ns, duration_ns, flags, .. } = *sample;
    write!(line, ",\"seq\":{seq},\"mono_ns\":{mono_ns},\"wall_ns\":{wall_ns},\"time\":\"")?;
    times.push_nanoseconds(wall_ns, line);
    write!(line, "\",\"duration_ns\":{duration_ns},\"flags\":{flags},\"data\":")
}

/// Writes the fields of a CSV row: stamps and values.
fn write_csv_fields<'v>(
    writer: &mut csv::Writer<&mut dyn Write>,
    origin: &SampleOrigin,
    sample: &SampleView<'_>,
    values: impl Iterator<Item = FieldValue<'v>>,
    (times, text_rule, cell): (&mut TimePrinter, TextRule, &mut Vec<u8>),
) -> io::Result<()> {
    let source = [Some(&origin.source), Some(&origin.host).filter(|_| origin.has_host_column)];
    let source = source.into_iter().flatten().map(|text| FieldValue::Text(text));
    let stamps = [
        FieldValue::Unsigned(sample.seq),
        FieldValue::Unsigned(sample.mono_ns),
        FieldValue::Signed(sample.wall_ns),
    ];
    for value in source.chain(stamps) {
        print_data(value, text_rule, cell);
        writer.write_field(&cell).map_err(csv_error)?;
    }
    cell.clear();
    times.push_nanoseconds(sample.wall_ns, cell);
    writer.write_field(&cell).map_err(csv_error)?;
    let stamps = [FieldValue::Unsigned(sample.duration_ns.into()), FieldValue::Unsigned(sample.flags.into())];
    for value in stamps.into_iter().chain(values) {
        print_data(value, text_rule, cell);
        writer.write_field(&cell).map_err(csv_error)?;
    }
    Ok(())
}

/// Writes a value as a cell of CSV; nothing for an absent one.
pub(super) fn print_data(value: FieldValue<'_>, text_rule: TextRule, cell: &mut Vec<u8>) {
    match value {
        FieldValue::Text(text) if text_rule == TextRule::Unchanged => {
            cell.clear();
            cell.extend_from_slice(text.as_bytes());
        }
        other => print_plain(other, cell),
    }
}

/// Prints one line per sample, and a heading when the source or its columns change.
fn table_row(
    out: &mut dyn Write,
    times: &mut TimePrinter,
    heading: &mut Option<TableHeading>,
    decoder: &RowDecoder,
    sample: &SampleView<'_>,
) -> Result<(), PrintError> {
    let same = heading.as_ref().filter(|heading| heading.is_of(&decoder.origin));
    let known = same.map_or(0, |heading| heading.columns.as_slice().len());
    if same.is_none() {
        *heading = Some(TableHeading::new(&decoder.origin));
    }
    let Some(TableHeading { columns, .. }) = heading else { return Ok(()) };
    columns.add(&decoder.plan, &decoder.row)?;
    if columns.as_slice().len() != known {
        begin_heading(out, times, &decoder.origin)?;
        for column in columns.as_slice() {
            write!(out, "  {:>COLUMN_WIDTH_MIN$}", column.path())?;
        }
        writeln!(out)?;
    }
    begin_row(out, times, &decoder.origin, sample)?;
    let mut cell = Vec::new();
    for (column, value) in columns.as_slice().iter().zip(columns.align(&decoder.row)) {
        print_for_people(value, decoder.has_rates, column, &mut cell);
        if cell.is_empty() {
            cell.push(b'-');
        }
        let width = column.path().len().max(COLUMN_WIDTH_MIN);
        write!(out, "  {:>width$}", String::from_utf8_lossy(&cell))?;
    }
    Ok(writeln!(out)?)
}

/// Writes the names of the columns that every table has.
fn begin_heading(out: &mut dyn Write, times: &TimePrinter, origin: &SampleOrigin) -> io::Result<()> {
    let width = times.width();
    let host = if origin.has_host_column { format!(" {:<COLUMN_WIDTH_MIN$}", "host") } else { String::new() };
    write!(out, "{:<width$}{host} {:<COLUMN_WIDTH_MIN$} {:>8}", "time", "source", "seq")
}

/// Writes the values of the columns that every table has.
fn begin_row(
    out: &mut dyn Write,
    times: &mut TimePrinter,
    origin: &SampleOrigin,
    sample: &SampleView<'_>,
) -> io::Result<()> {
    let (width, time) = (times.width(), times.microseconds(sample.wall_ns));
    write!(out, "{time:<width$}")?;
    if origin.has_host_column {
        write!(out, " {:<COLUMN_WIDTH_MIN$}", human::escaped(&origin.host))?;
    }
    write!(out, " {:<COLUMN_WIDTH_MIN$} {:>8}", human::escaped(&origin.source), sample.seq)
}

/// Writes time, host and source of a line of name=value.
fn begin_pairs(
    out: &mut dyn Write,
    times: &mut TimePrinter,
    origin: &SampleOrigin,
    sample: &SampleView<'_>,
) -> io::Result<()> {
    write!(out, "{}", times.microseconds(sample.wall_ns))?;
    if origin.has_host_column {
        write!(out, " {}", human::escaped(&origin.host))?;
    }
    write!(out, " {} seq={}", human::escaped(&origin.source), sample.seq)
}

/// Prints one line per sample of name=value; absent values are skipped.
fn pairs_row(
    out: &mut dyn Write,
    times: &mut TimePrinter,
    columns: &mut BTreeMap<String, FlatColumns>,
    decoder: &RowDecoder,
    sample: &SampleView<'_>,
) -> Result<(), PrintError> {
    if !columns.contains_key(&decoder.origin.source) {
        columns.insert(decoder.origin.source.clone(), FlatColumns::new());
    }
    let Some(columns) = columns.get_mut(&decoder.origin.source) else { return Ok(()) };
    columns.add(&decoder.plan, &decoder.row)?;
    begin_pairs(out, times, &decoder.origin, sample)?;
    let mut cell = Vec::new();
    for (column, value) in columns.as_slice().iter().zip(columns.align(&decoder.row)) {
        print_for_people(value, decoder.has_rates, column, &mut cell);
        if !cell.is_empty() {
            write!(out, " {}={}", column.path(), String::from_utf8_lossy(&cell))?;
        }
    }
    Ok(writeln!(out)?)
}

/// Writes a value as plain text, a rate with three significant digits.
fn print_for_people(value: FieldValue<'_>, has_rates: bool, column: &FlatColumn, cell: &mut Vec<u8>) {
    match value {
        FieldValue::Float(rate)
            if has_rates && column.metric_kind() == MetricKind::Counter && rate.is_finite() =>
        {
            cell.clear();
            cell.extend_from_slice(human::significant(rate).as_bytes());
        }
        other => print_plain(other, cell),
    }
}

/// Writes a value as plain text; nothing for an absent one.
pub(super) fn print_plain(value: FieldValue<'_>, cell: &mut Vec<u8>) {
    cell.clear();
    match value {
        FieldValue::Absent => {}
        FieldValue::Text(text) => {
            let plain: String = text.chars().map(|c| if is_terminal_unsafe(c) { '?' } else { c }).collect();
            cell.extend_from_slice(plain.as_bytes());
        }
        FieldValue::Float(number) if !number.is_finite() => {}
        FieldValue::Float32(number) if !number.is_finite() => {}
        other => append_json_value(other, cell),
    }
}

pub(super) fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
