//! How samples look: JSON lines, CSV, a table, lines of name=value.

use std::collections::BTreeMap;
use std::io::{self, Write};

use jiff::tz::TimeZone;

use super::error::CliError;
use super::{opaque, text};
use crate::schema::{Column, Columns, DecodeError, JsonWriter, Plan, Rates, Row, Value, append_json_value};
use crate::segment::Telemetry;

/// Narrowest column of a table: room for most values, so that rows line up.
const COLUMN_WIDTH_MIN: usize = 10;

/// How one source's payloads are decoded.
pub(super) struct Decoder {
    pub(super) name: String,
    pub(super) plan: Plan,
    pub(super) rates: Rates,
    pub(super) row: Row, // reused
}

/// Where rows go.
#[allow(clippy::large_enum_variant, reason = "there is one, for the whole program")]
pub(super) enum Printer<'a> {
    /// Nowhere: only the columns are wanted.
    Widths(&'a mut Columns),
    Jsonl {
        out: &'a mut dyn Write,
        line: Vec<u8>,
    },
    Csv {
        writer: csv::Writer<&'a mut dyn Write>,
        columns: &'a Columns,
        has_opaque: bool, // so there is one column more, for bytes that nobody described
        cell: Vec<u8>,
    },
    Table {
        out: &'a mut dyn Write,
        zone: TimeZone,
        heading: Option<Heading>,
    },
    /// Rows of several sources, which share no columns.
    Pairs {
        out: &'a mut dyn Write,
        zone: TimeZone,
        columns: BTreeMap<String, Columns>,
    },
}

/// The heading of the table so far, to be printed again where it changes.
pub(super) struct Heading {
    pub(super) source: String,
    pub(super) columns: Columns,
}

/// Why a sample was not printed.
pub(super) enum Unprinted {
    Output(io::Error),
    Payload(DecodeError),
}

impl From<io::Error> for Unprinted {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<DecodeError> for Unprinted {
    fn from(error: DecodeError) -> Self {
        Self::Payload(error)
    }
}

impl Printer<'_> {
    /// Prints what stands in front of all rows.
    pub(super) fn begin(&mut self) -> Result<(), CliError> {
        if let Self::Csv { writer, columns, has_opaque, .. } = self {
            let stamps = ["source", "seq", "mono_ns", "wall_ns", "duration_ns", "flags"];
            let names = stamps.into_iter().chain(columns.as_slice().iter().map(Column::path));
            let names = names.chain(has_opaque.then_some(opaque::COLUMN));
            writer.write_record(names).map_err(csv_error)?;
        }
        Ok(())
    }

    /// Sends what is buffered.
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
        decoder: &mut Decoder,
        sample: &Telemetry<'_>,
        rate: bool,
    ) -> Result<(), Unprinted> {
        if let Self::Jsonl { out, line } = self {
            return json_line(out, line, decoder, sample, rate);
        }
        fill(decoder, sample, rate)?;
        match self {
            Self::Widths(columns) => columns.add(&decoder.plan, &decoder.row)?,
            Self::Csv { writer, columns, has_opaque, cell } => {
                let bytes = has_opaque.then_some(Value::Absent);
                stamped(writer, &decoder.name, sample, columns.align(&decoder.row).chain(bytes), cell)?;
                writer.write_record(None::<&[u8]>).map_err(csv_error)?;
            }
            Self::Table { out, zone, heading } => table_row(*out, zone, heading, decoder, sample)?,
            Self::Pairs { out, zone, columns } => pairs_row(*out, zone, columns, decoder, sample)?,
            Self::Jsonl { .. } => {}
        }
        Ok(())
    }
}

/// Decodes a payload into its source's row.
fn fill(decoder: &mut Decoder, sample: &Telemetry<'_>, rate: bool) -> Result<(), DecodeError> {
    let Decoder { plan, rates, row, .. } = decoder;
    if rate {
        plan.walk(sample.payload, &mut rates.in_place_of_counters(row))
    } else {
        row.fill(plan, sample.payload)
    }
}

fn json_line(
    out: &mut dyn Write,
    line: &mut Vec<u8>,
    decoder: &mut Decoder,
    sample: &Telemetry<'_>,
    rate: bool,
) -> Result<(), Unprinted> {
    begin_json(line, &decoder.name, sample)?;
    if rate {
        let mut json = JsonWriter::new(line);
        decoder.plan.walk(sample.payload, &mut decoder.rates.in_place_of_counters(&mut json))?;
    } else {
        decoder.plan.append_json(sample.payload, line)?;
    }
    line.extend_from_slice(b"}\n");
    Ok(out.write_all(line)?)
}

/// The begin of a JSON line, up to its data.
pub(super) fn begin_json(line: &mut Vec<u8>, name: &str, sample: &Telemetry<'_>) -> io::Result<()> {
    line.clear();
    line.extend_from_slice(b"{\"source\":");
    append_json_value(Value::Text(name), line);
    let Telemetry { seq, mono_ns, wall_ns, duration_ns, flags, .. } = *sample;
    write!(
        line,
        ",\"seq\":{seq},\"mono_ns\":{mono_ns},\"wall_ns\":{wall_ns},\"duration_ns\":{duration_ns},\"flags\":{flags},\"data\":"
    )
}

/// The begin of a CSV row: stamps and values.
pub(super) fn stamped<'v>(
    writer: &mut csv::Writer<&mut dyn Write>,
    name: &str,
    sample: &Telemetry<'_>,
    values: impl Iterator<Item = Value<'v>>,
    cell: &mut Vec<u8>,
) -> io::Result<()> {
    writer.write_field(&*text::plain(name)).map_err(csv_error)?;
    let stamps = [
        Value::Unsigned(sample.seq),
        Value::Unsigned(sample.mono_ns),
        Value::Signed(sample.wall_ns),
        Value::Unsigned(sample.duration_ns.into()),
        Value::Unsigned(sample.flags.into()),
    ];
    for value in stamps.into_iter().chain(values) {
        print_plain(value, cell);
        writer.write_field(&cell).map_err(csv_error)?;
    }
    Ok(())
}

/// One line a sample; a heading where the source or its columns change.
fn table_row(
    out: &mut dyn Write,
    zone: &TimeZone,
    heading: &mut Option<Heading>,
    decoder: &Decoder,
    sample: &Telemetry<'_>,
) -> Result<(), Unprinted> {
    let same = heading.as_ref().filter(|heading| heading.source == decoder.name);
    let known = same.map_or(0, |heading| heading.columns.as_slice().len());
    if same.is_none() {
        *heading = Some(Heading { source: decoder.name.clone(), columns: Columns::new() });
    }
    let Some(Heading { columns, .. }) = heading else { return Ok(()) };
    columns.add(&decoder.plan, &decoder.row)?;
    if columns.as_slice().len() != known {
        write!(out, "{:<26} {:<10} {:>8}", "time", "source", "seq")?;
        for column in columns.as_slice() {
            write!(out, "  {:>COLUMN_WIDTH_MIN$}", column.path())?;
        }
        writeln!(out)?;
    }
    let (time, name) = (text::local(sample.wall_ns, zone), text::plain(&decoder.name));
    write!(out, "{time:<26} {name:<10} {:>8}", sample.seq)?;
    let mut cell = Vec::new();
    for (column, value) in columns.as_slice().iter().zip(columns.align(&decoder.row)) {
        print_plain(value, &mut cell);
        if cell.is_empty() {
            cell.push(b'-');
        }
        let width = column.path().len().max(COLUMN_WIDTH_MIN);
        write!(out, "  {:>width$}", String::from_utf8_lossy(&cell))?;
    }
    Ok(writeln!(out)?)
}

/// One line a sample, each value behind its name; what is absent is left out.
fn pairs_row(
    out: &mut dyn Write,
    zone: &TimeZone,
    columns: &mut BTreeMap<String, Columns>,
    decoder: &Decoder,
    sample: &Telemetry<'_>,
) -> Result<(), Unprinted> {
    if !columns.contains_key(&decoder.name) {
        columns.insert(decoder.name.clone(), Columns::new());
    }
    let Some(columns) = columns.get_mut(&decoder.name) else { return Ok(()) };
    columns.add(&decoder.plan, &decoder.row)?;
    let (time, name) = (text::local(sample.wall_ns, zone), text::plain(&decoder.name));
    write!(out, "{time} {name} seq={}", sample.seq)?;
    let mut cell = Vec::new();
    for (column, value) in columns.as_slice().iter().zip(columns.align(&decoder.row)) {
        print_plain(value, &mut cell);
        if !cell.is_empty() {
            write!(out, " {}={}", column.path(), String::from_utf8_lossy(&cell))?;
        }
    }
    Ok(writeln!(out)?)
}

/// A value as plain text; nothing for one that is not there.
fn print_plain(value: Value<'_>, cell: &mut Vec<u8>) {
    cell.clear();
    match value {
        Value::Absent => {}
        // Control characters from a file must not reach a terminal.
        Value::Text(text) => {
            cell.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b'?' } else { byte }));
        }
        Value::Float(number) if !number.is_finite() => {}
        Value::Float32(number) if !number.is_finite() => {}
        other => append_json_value(other, cell),
    }
}

pub(super) fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
