//! `dump`: rows, decoded by the schema in the file and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::error::CliError;
use super::selection::Selection;
use super::{Outcome, notice, text};
use crate::os::clock::monotonic_ns;
use crate::os::event::{Event, Woken};
use crate::os::signal::SignalWatch;
use crate::replay::{Filter, Item, MergedReader, Notice};
use crate::schema::{
    Columns, DecodeError, JsonWriter, Plan, Rates, Row, SchemaError, Value, append_json_value,
};
use crate::segment::{Header, Telemetry};

/// How often a recording at work is looked at again.
const FOLLOW_INTERVAL_NS: u64 = 50_000_000;
/// Narrowest column of a table: room for most values, so that rows line up.
const COLUMN_WIDTH_MIN: usize = 10;

/// Print samples as rows, decoded by the schema in the file.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Only these fields: dotted paths, separated by commas (total.user,cores.times.user).
    #[arg(long, value_name = "A,B.C", value_delimiter = ',')]
    fields: Vec<String>,
    /// table: for people; jsonl: one object a sample; csv: exactly one source, one header line.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Counters as what they grew by a second since the sample before.
    #[arg(long)]
    rate: bool,
    /// Go on as the recording grows, until a signal.
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Table,
    Jsonl,
    Csv,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let filter = args.selection.filter()?;
    let mut columns = Columns::new();
    if args.format == Format::Csv {
        if args.follow {
            let why = "--follow: the columns of csv must be known before the first row; use jsonl";
            return Err(CliError::Usage(why.to_owned()));
        }
        one_source(&args.selection, filter.sources.len())?;
        let mut widths = Dump::new(args, &filter, Printer::Widths(&mut columns));
        widths.read(&mut MergedReader::open(&args.selection.paths, filter.clone())?)?;
    }
    let zone = if io::stdout().is_terminal() { TimeZone::system() } else { TimeZone::UTC };
    let printer = match args.format {
        Format::Jsonl => Printer::Jsonl { out, line: Vec::new() },
        Format::Csv => {
            Printer::Csv { writer: csv::Writer::from_writer(out), columns: &columns, cell: Vec::new() }
        }
        Format::Table => Printer::Table { out, zone, heading: None },
    };
    let mut dump = Dump::new(args, &filter, printer);
    dump.printer.begin()?;
    let mut reader = MergedReader::open(&args.selection.paths, filter)?;
    dump.read(&mut reader)?;
    if args.follow {
        dump.follow(&mut reader)?;
    }
    dump.printer.flush()?;
    if !dump.seen_header && dump.unreadable > 0 {
        return Ok(Outcome::Failed);
    }
    Ok(dump.outcome)
}

/// CSV has the columns of one source.
fn one_source(selection: &Selection, selected: usize) -> Result<(), CliError> {
    let known = selection.known_sources()?;
    if selected == 1 || (selected == 0 && known.len() <= 1) {
        return Ok(());
    }
    let known = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(CliError::Usage(format!(
        "csv holds exactly one source: name it with --source; these recordings have {known}"
    )))
}

/// One pass over the recordings.
struct Dump<'a> {
    fields: Vec<&'a str>,
    wanted: BTreeSet<String>, // names of sources; empty for all
    rate: bool,
    printer: Printer<'a>,
    sources: BTreeMap<u16, Decoder>, // of the current header
    outcome: Outcome,
    seen_header: bool,
    unreadable: u64,
    undecodable: u64, // samples whose payload does not fit its schema
}

/// How one source's payloads are decoded.
struct Decoder {
    name: String,
    plan: Plan,
    rates: Rates,
    row: Row, // reused
}

impl<'a> Dump<'a> {
    fn new(args: &'a Args, filter: &Filter, printer: Printer<'a>) -> Self {
        Self {
            wanted: filter.sources.clone(),
            fields: args.fields.iter().map(String::as_str).collect(),
            rate: args.rate,
            printer,
            sources: BTreeMap::new(),
            outcome: Outcome::Done,
            seen_header: false,
            unreadable: 0,
            undecodable: 0,
        }
    }

    /// Prints what there is.
    fn read(&mut self, reader: &mut MergedReader) -> Result<(), CliError> {
        while let Some(item) = reader.next()? {
            match item {
                Item::Header(header, _) => self.begin(header)?,
                Item::Sample(sample) => self.sample(&sample.telemetry)?,
                Item::Gap(..) => {}
                Item::Notice(what) => {
                    self.unreadable += u64::from(matches!(what, Notice::Unreadable(_)));
                    if !matches!(self.printer, Printer::Widths(_)) {
                        self.outcome = notice(&what)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Prints what comes, until a signal.
    fn follow(&mut self, reader: &mut MergedReader) -> Result<(), CliError> {
        let stop = Arc::new(Event::new());
        let _signals = SignalWatch::start(Arc::clone(&stop), || {})?;
        loop {
            self.printer.flush()?;
            if stop.wait_until(monotonic_ns() + FOLLOW_INTERVAL_NS) == Woken::Set {
                return Ok(());
            }
            reader.refresh()?;
            self.read(reader)?;
        }
    }

    /// Compiles the plans of a run's sources. A field that only some sources have selects among those.
    fn begin(&mut self, header: &Header) -> Result<(), CliError> {
        self.seen_header = true;
        self.sources.clear();
        let mut unknown: Vec<Option<SchemaError>> = Vec::new(); // one a field, none once a source has it
        unknown.resize_with(self.fields.len(), || None);
        let mut known = vec![false; self.fields.len()];
        for source in header
            .sources
            .iter()
            .filter(|source| self.wanted.is_empty() || self.wanted.contains(&source.name))
        {
            let plan = match Plan::compile(&source.schema, &source.root) {
                Ok(plan) => plan,
                Err(error) => {
                    self.outcome = Outcome::DataLoss;
                    tracing::error!(source = %source.name, "cannot be decoded: {error}");
                    continue;
                }
            };
            let mut own = Vec::new();
            for ((field, known), unknown) in self.fields.iter().zip(&mut known).zip(&mut unknown) {
                match plan.select(&[field]) {
                    Ok(_) => {
                        *known = true;
                        own.push(*field);
                    }
                    // The source that has at least the field's first name knows best what was meant.
                    Err(error) if unknown.is_none() || has_first_name(&plan, field) => *unknown = Some(error),
                    Err(_) => {}
                }
            }
            let plan = match own.as_slice() {
                [] if self.fields.is_empty() => plan,
                [] => continue,
                own => plan.select(own).map_err(|error| unknown_field(&error))?,
            };
            let decoder =
                Decoder { name: source.name.clone(), plan, rates: Rates::default(), row: Row::new() };
            self.sources.insert(source.id, decoder);
        }
        match known.iter().zip(unknown).find(|(known, error)| !**known && error.is_some()) {
            Some((_, Some(error))) => Err(unknown_field(&error)),
            _ => Ok(()),
        }
    }

    fn sample(&mut self, sample: &Telemetry<'_>) -> Result<(), CliError> {
        let Some(decoder) = self.sources.get_mut(&sample.source) else { return Ok(()) };
        if self.rate
            && let Err(error) = decoder.rates.observe(&decoder.plan, sample.mono_ns, sample.payload)
        {
            return self.undecodable(sample, &error);
        }
        match self.printer.print(decoder, sample, self.rate) {
            Err(Unprinted::Output(error)) => Err(error.into()),
            Err(Unprinted::Payload(error)) => self.undecodable(sample, &error),
            Ok(()) => Ok(()),
        }
    }

    /// A payload that does not fit its schema: said for the first few, counted for all.
    fn undecodable(&mut self, sample: &Telemetry<'_>, error: &DecodeError) -> Result<(), CliError> {
        const SAID_MAX: u64 = 10;
        self.outcome = Outcome::DataLoss;
        self.undecodable += 1;
        if self.undecodable <= SAID_MAX {
            let name = self.sources.get(&sample.source).map_or("?", |decoder| decoder.name.as_str());
            writeln!(
                io::stderr(),
                "flatcap: sample {} of {name} does not fit its schema: {error}",
                sample.seq
            )?;
        }
        Ok(())
    }
}

fn has_first_name(plan: &Plan, path: &str) -> bool {
    path.split('.').next().is_some_and(|first| plan.select(&[first]).is_ok())
}

fn unknown_field(error: &SchemaError) -> CliError {
    CliError::Usage(format!("--fields: {error}"))
}

/// Where rows go.
#[allow(clippy::large_enum_variant, reason = "there is one, for the whole program")]
enum Printer<'a> {
    /// Nowhere: only the columns are wanted.
    Widths(&'a mut Columns),
    Jsonl {
        out: &'a mut dyn Write,
        line: Vec<u8>,
    },
    Csv {
        writer: csv::Writer<&'a mut dyn Write>,
        columns: &'a Columns,
        cell: Vec<u8>,
    },
    Table {
        out: &'a mut dyn Write,
        zone: TimeZone,
        heading: Option<Heading>,
    },
}

/// The heading of the table so far, to be printed again where it changes.
struct Heading {
    source: String,
    columns: Columns,
}

enum Unprinted {
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
    fn begin(&mut self) -> Result<(), CliError> {
        if let Self::Csv { writer, columns, .. } = self {
            let stamps = ["source", "seq", "mono_ns", "wall_ns", "duration_ns", "flags"];
            let names = stamps.into_iter().chain(columns.as_slice().iter().map(crate::schema::Column::path));
            writer.write_record(names).map_err(csv_error)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Widths(_) => Ok(()),
            Self::Jsonl { out, .. } | Self::Table { out, .. } => out.flush(),
            Self::Csv { writer, .. } => writer.flush(),
        }
    }

    fn print(&mut self, decoder: &mut Decoder, sample: &Telemetry<'_>, rate: bool) -> Result<(), Unprinted> {
        if let Self::Jsonl { out, line } = self {
            return json_line(out, line, decoder, sample, rate);
        }
        fill(decoder, sample, rate)?;
        match self {
            Self::Widths(columns) => columns.add(&decoder.plan, &decoder.row)?,
            Self::Csv { writer, columns, cell } => csv_row(writer, columns, cell, decoder, sample)?,
            Self::Table { out, zone, heading } => table_row(*out, zone, heading, decoder, sample)?,
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
    line.clear();
    line.extend_from_slice(b"{\"source\":");
    append_json_value(Value::Text(&decoder.name), line);
    let Telemetry { seq, mono_ns, wall_ns, duration_ns, flags, .. } = *sample;
    write!(
        line,
        ",\"seq\":{seq},\"mono_ns\":{mono_ns},\"wall_ns\":{wall_ns},\"duration_ns\":{duration_ns},\"flags\":{flags},\"data\":"
    )?;
    if rate {
        let mut json = JsonWriter::new(line);
        decoder.plan.walk(sample.payload, &mut decoder.rates.in_place_of_counters(&mut json))?;
    } else {
        decoder.plan.append_json(sample.payload, line)?;
    }
    line.extend_from_slice(b"}\n");
    Ok(out.write_all(line)?)
}

fn csv_row(
    writer: &mut csv::Writer<&mut dyn Write>,
    columns: &Columns,
    cell: &mut Vec<u8>,
    decoder: &Decoder,
    sample: &Telemetry<'_>,
) -> io::Result<()> {
    writer.write_field(&decoder.name).map_err(csv_error)?;
    let stamps = [
        Value::Unsigned(sample.seq),
        Value::Unsigned(sample.mono_ns),
        Value::Signed(sample.wall_ns),
        Value::Unsigned(sample.duration_ns.into()),
        Value::Unsigned(sample.flags.into()),
    ];
    for value in stamps.into_iter().chain(columns.align(&decoder.row)) {
        print_plain(value, cell);
        writer.write_field(&cell).map_err(csv_error)?;
    }
    writer.write_record(None::<&[u8]>).map_err(csv_error)
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
    write!(out, "{:<26} {:<10} {:>8}", text::local(sample.wall_ns, zone), decoder.name, sample.seq)?;
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

fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
