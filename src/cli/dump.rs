//! `dump`: prints samples as rows, decoded with the schema in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use flatcap_format::replay::{MergedReader, Notice, ReplayFilter, ReplayItem};
use flatcap_format::schema::{CompiledSchema, DecodeError, FlatColumns, FlatRow, Rates, SchemaError};
use flatcap_format::segment::{SampleView, SegmentHeader, SourceInfo};
use jiff::tz::TimeZone;

use super::error::CliError;
use super::human::local_time;
use super::row_printer::{PrintError, Printer, RowDecoder};
use super::selection::RecordingSelection;
use super::{ExitStatus, human, report_notice};
use crate::os::clock::monotonic_ns;
use crate::os::signal::SignalWatch;
use crate::os::wake_event::{WakeEvent, WakeReason};

/// Interval at which `--follow` checks a growing recording.
const FOLLOW_INTERVAL_NS: u64 = 50_000_000;

/// Print samples as rows, decoded with the schema in the file.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: RecordingSelection,
    /// Print only these fields: dotted paths, separated by commas (total.user,cores.times.user).
    #[arg(long, value_name = "A,B.C", value_delimiter = ',')]
    fields: Vec<String>,
    /// table: for people (with several sources: lines of name=value); jsonl: one object per sample;
    /// csv: exactly one source, with a header line.
    #[arg(long, value_enum, default_value_t = RowFormat::Table)]
    format: RowFormat,
    /// Show counters as change per second since the previous sample.
    #[arg(long)]
    rate: bool,
    /// Continue while the recording grows, until a signal.
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RowFormat {
    Table,
    Jsonl,
    Csv,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let filter = ReplayFilter { fields: args.fields.clone(), ..args.selection.filter()? };
    let (mut columns, mut has_opaque) = (FlatColumns::new(), false);
    if args.format == RowFormat::Csv {
        if args.follow {
            let why = "--follow: the columns of csv must be known before the first row; use jsonl";
            return Err(CliError::Usage(why.to_owned()));
        }
        if !has_one_source(&args.selection, filter.sources.len())? {
            let known = args.selection.known_sources()?;
            let known = human::escaped_list(&known);
            let why =
                format!("csv needs exactly one source: name it with --source; these recordings have {known}");
            return Err(CliError::Usage(why));
        }
        let mut widths = Dump::new(args, &filter, Printer::Widths(&mut columns));
        widths.read(&mut MergedReader::open(&args.selection.paths, filter.clone())?)?;
        has_opaque = widths.has_opaque;
    }
    let zone = if io::stdout().is_terminal() { TimeZone::system() } else { TimeZone::UTC };
    let printer = match args.format {
        RowFormat::Jsonl => Printer::Jsonl { out, line: Vec::new() },
        RowFormat::Csv => Printer::Csv {
            writer: csv::Writer::from_writer(out),
            columns: &columns,
            has_opaque,
            cell: Vec::new(),
        },
        RowFormat::Table if has_one_source(&args.selection, filter.sources.len())? => {
            Printer::Table { out, zone, heading: None }
        }
        RowFormat::Table => Printer::Pairs { out, zone, columns: BTreeMap::new() },
    };
    let mut dump = Dump::new(args, &filter, printer);
    dump.printer.print_header()?;
    if args.follow {
        dump.follow(&args.selection.paths, &filter)?;
    } else {
        dump.read(&mut MergedReader::open(&args.selection.paths, filter)?)?;
    }
    dump.printer.flush()?;
    if !dump.seen_header && dump.unreadable > 0 {
        return Ok(ExitStatus::Failed);
    }
    Ok(dump.outcome)
}

/// Returns whether all rows are of one source, and so have the same columns.
fn has_one_source(selection: &RecordingSelection, selected: usize) -> Result<bool, CliError> {
    Ok(selected == 1 || (selected == 0 && !selection.have_several_sources()?))
}

/// One pass over the recordings.
struct Dump<'a> {
    fields: Vec<&'a str>,
    selected: BTreeSet<String>, // names of sources; empty for all
    rate: bool,
    printer: Printer<'a>,
    sources: BTreeMap<u16, DumpSource>, // of the current header
    outcome: ExitStatus,
    seen_header: bool,
    unreadable: u64,
    undecodable: u64, // samples whose payload does not fit its schema
    has_opaque: bool,
}

/// A source whose samples are printed.
enum DumpSource {
    Typed(Box<RowDecoder>),
    /// The name of a source without a schema.
    Opaque(String),
}

impl DumpSource {
    fn name(&self) -> &str {
        match self {
            Self::Typed(decoder) => &decoder.name,
            Self::Opaque(name) => name,
        }
    }
}

impl<'a> Dump<'a> {
    fn new(args: &'a Args, filter: &ReplayFilter, printer: Printer<'a>) -> Self {
        Self {
            selected: filter.sources.clone(),
            fields: args.fields.iter().map(String::as_str).collect(),
            rate: args.rate,
            printer,
            sources: BTreeMap::new(),
            outcome: ExitStatus::Done,
            seen_header: false,
            unreadable: 0,
            undecodable: 0,
            has_opaque: false,
        }
    }

    /// Prints all samples that the reader returns now.
    fn read(&mut self, reader: &mut MergedReader) -> Result<(), CliError> {
        while let Some(item) = reader.next()? {
            match item {
                ReplayItem::Header(header, _) => self.begin_run(header)?,
                ReplayItem::Sample(sample) => self.sample(&sample.telemetry)?,
                ReplayItem::Source(source, _) => self.add_source(source)?,
                ReplayItem::Marker(marker, _) if !matches!(self.printer, Printer::Widths(_)) => {
                    let when = local_time(marker.wall_ns, &TimeZone::UTC);
                    writeln!(io::stderr(), "flatcap: {when} {}", marker.text.escape_debug())?;
                }
                ReplayItem::Gap(..) | ReplayItem::Marker(..) | ReplayItem::Other(..) => {}
                ReplayItem::Notice(what) => {
                    self.unreadable += u64::from(matches!(what, Notice::Unreadable(_)));
                    if !matches!(self.printer, Printer::Widths(_)) {
                        self.outcome = report_notice(&what)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Prints all samples and continues with new ones until a signal. Each path has its own reader,
    /// so that one that waits for its recording does not delay the others.
    fn follow(&mut self, paths: &[PathBuf], filter: &ReplayFilter) -> Result<(), CliError> {
        let stop = Arc::new(WakeEvent::new());
        let _signals = SignalWatch::stop_only(Arc::clone(&stop))?;
        let open = |path| MergedReader::open(std::slice::from_ref(path), filter.clone());
        let readers: Result<Vec<_>, _> = paths.iter().map(open).collect();
        // Each with the sources of the run that it reads.
        let mut readers: Vec<_> = readers?.into_iter().map(|reader| (reader, BTreeMap::new())).collect();
        loop {
            for (reader, sources) in &mut readers {
                std::mem::swap(&mut self.sources, sources);
                self.read(reader)?;
                std::mem::swap(&mut self.sources, sources);
            }
            self.printer.flush()?;
            if stop.wait_until(monotonic_ns() + FOLLOW_INTERVAL_NS) == WakeReason::Set {
                return Ok(());
            }
            for (reader, _) in &mut readers {
                reader.refresh()?;
            }
        }
    }

    /// Compiles the schemas of a run's sources. A field that only some sources have selects those
    /// sources.
    fn begin_run(&mut self, header: &SegmentHeader) -> Result<(), CliError> {
        self.seen_header = true;
        self.sources.clear();
        // Per field; `None` once a source has it.
        let mut unknown: Vec<Option<SchemaError>> = Vec::new();
        unknown.resize_with(self.fields.len(), || None);
        let mut known = vec![false; self.fields.len()];
        let mut wanted: Vec<_> = header.sources.iter().collect();
        wanted.retain(|source| self.selected.is_empty() || self.selected.contains(&source.name));
        if !self.fields.is_empty()
            && let Some(opaque) = wanted.first()
            && wanted.iter().all(|source| source.is_opaque())
        {
            return Err(CliError::Usage(format!(
                "--fields: {} has no fields: its payloads have no schema; without --fields they are printed as bytes",
                human::escaped(&opaque.name)
            )));
        }
        for source in wanted {
            let Some(plan) = self.compile_schema(source) else { continue };
            let mut own = Vec::new();
            for ((field, known), unknown) in self.fields.iter().zip(&mut known).zip(&mut unknown) {
                match plan.select(&[field]) {
                    Ok(_) => {
                        *known = true;
                        own.push(*field);
                    }
                    // The error of a source that has the first name of the path is the most useful
                    // one.
                    Err(error) if unknown.is_none() || has_first_name(&plan, field) => *unknown = Some(error),
                    Err(_) => {}
                }
            }
            let plan = match own.as_slice() {
                [] if self.fields.is_empty() => plan,
                [] => continue,
                own => plan.select(own).map_err(|error| unknown_field(&error))?,
            };
            self.add_decoder(source, plan);
        }
        match known.iter().zip(unknown).find(|(known, error)| !**known && error.is_some()) {
            Some((_, Some(error))) => Err(unknown_field(&error)),
            _ => Ok(()),
        }
    }

    /// Compiles the schema of a source that was added later. Fields that it lacks belong to other
    /// sources.
    fn add_source(&mut self, source: &SourceInfo) -> Result<(), CliError> {
        if !self.selected.is_empty() && !self.selected.contains(&source.name) {
            return Ok(());
        }
        let Some(plan) = self.compile_schema(source) else { return Ok(()) };
        let own: Vec<&str> =
            self.fields.iter().copied().filter(|field| plan.select(&[field]).is_ok()).collect();
        let plan = match own.as_slice() {
            [] if self.fields.is_empty() => plan,
            [] => return Ok(()),
            own => plan.select(own).map_err(|error| unknown_field(&error))?,
        };
        self.add_decoder(source, plan);
        Ok(())
    }

    /// Compiles the schema of a source. Returns `None` for an opaque source, which is then
    /// registered, and for an invalid schema, which is logged.
    fn compile_schema(&mut self, source: &SourceInfo) -> Option<CompiledSchema> {
        if source.is_opaque() {
            // With --fields, only sources with a schema are printed.
            if self.fields.is_empty() {
                self.has_opaque = true;
                self.sources.insert(source.id, DumpSource::Opaque(source.name.clone()));
            }
            return None;
        }
        match CompiledSchema::compile(&source.schema, &source.root) {
            Ok(plan) => Some(plan),
            Err(error) => {
                self.outcome = ExitStatus::DataLoss;
                tracing::error!(source = &*human::escaped(&source.name), "cannot be decoded: {error}");
                None
            }
        }
    }

    fn add_decoder(&mut self, source: &SourceInfo, plan: CompiledSchema) {
        let name = source.name.clone();
        let decoder = RowDecoder { name, plan, rates: Rates::default(), row: FlatRow::new() };
        self.sources.insert(source.id, DumpSource::Typed(Box::new(decoder)));
    }

    fn sample(&mut self, sample: &SampleView<'_>) -> Result<(), CliError> {
        let decoder = match self.sources.get_mut(&sample.source) {
            None => return Ok(()),
            Some(DumpSource::Opaque(name)) => return Ok(self.printer.print_opaque(name, sample)?),
            Some(DumpSource::Typed(decoder)) => decoder,
        };
        if self.rate
            && let Err(error) = decoder.rates.observe(&decoder.plan, sample.mono_ns, sample.payload)
        {
            return self.report_undecodable(sample, &error);
        }
        match self.printer.print(decoder, sample, self.rate) {
            Err(PrintError::Output(error)) => Err(error.into()),
            Err(PrintError::Payload(error)) => self.report_undecodable(sample, &error),
            Ok(()) => Ok(()),
        }
    }

    /// Counts a payload that does not fit its schema, and reports the first few.
    fn report_undecodable(&mut self, sample: &SampleView<'_>, error: &DecodeError) -> Result<(), CliError> {
        const REPORTED_MAX: u64 = 10;
        self.outcome = ExitStatus::DataLoss;
        self.undecodable += 1;
        if self.undecodable <= REPORTED_MAX {
            let name = human::escaped(self.sources.get(&sample.source).map_or("?", DumpSource::name));
            writeln!(
                io::stderr(),
                "flatcap: sample {} of {name} does not fit its schema: {error}",
                sample.seq
            )?;
        }
        Ok(())
    }
}

fn has_first_name(plan: &CompiledSchema, path: &str) -> bool {
    path.split('.').next().is_some_and(|first| plan.select(&[first]).is_ok())
}

fn unknown_field(error: &SchemaError) -> CliError {
    CliError::Usage(format!("--fields: {}", human::escaped(&error.to_string())))
}
