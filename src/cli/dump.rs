//! `dump`: rows, decoded by the schema in the file and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::error::CliError;
use super::rows::{Decoder, Printer, Unprinted};
use super::selection::Selection;
use super::text::local;
use super::{Outcome, notice, text};
use crate::os::clock::monotonic_ns;
use crate::os::event::{Event, Woken};
use crate::os::signal::SignalWatch;
use crate::replay::{Filter, Item, MergedReader, Notice};
use crate::schema::{Columns, DecodeError, Plan, Rates, Row, SchemaError};
use crate::segment::{Header, SourceInfo, Telemetry};

/// How often a recording at work is looked at again.
const FOLLOW_INTERVAL_NS: u64 = 50_000_000;

/// Print samples as rows, decoded by the schema in the file.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Only these fields: dotted paths, separated by commas (total.user,cores.times.user).
    #[arg(long, value_name = "A,B.C", value_delimiter = ',')]
    fields: Vec<String>,
    /// table: for people (of several sources: lines of name=value); jsonl: one object a sample; csv: exactly one source, one header line.
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
    let filter = Filter { fields: args.fields.clone(), ..args.selection.filter()? };
    let (mut columns, mut has_opaque) = (Columns::new(), false);
    if args.format == Format::Csv {
        if args.follow {
            let why = "--follow: the columns of csv must be known before the first row; use jsonl";
            return Err(CliError::Usage(why.to_owned()));
        }
        if !has_one_source(&args.selection, filter.sources.len())? {
            let known = args.selection.known_sources()?;
            let known = text::list(&known);
            let why =
                format!("csv holds exactly one source: name it with --source; these recordings have {known}");
            return Err(CliError::Usage(why));
        }
        let mut widths = Dump::new(args, &filter, Printer::Widths(&mut columns));
        widths.read(&mut MergedReader::open(&args.selection.paths, filter.clone())?)?;
        has_opaque = widths.has_opaque;
    }
    let zone = if io::stdout().is_terminal() { TimeZone::system() } else { TimeZone::UTC };
    let printer = match args.format {
        Format::Jsonl => Printer::Jsonl { out, line: Vec::new() },
        Format::Csv => Printer::Csv {
            writer: csv::Writer::from_writer(out),
            columns: &columns,
            has_opaque,
            cell: Vec::new(),
        },
        Format::Table if has_one_source(&args.selection, filter.sources.len())? => {
            Printer::Table { out, zone, heading: None }
        }
        Format::Table => Printer::Pairs { out, zone, columns: BTreeMap::new() },
    };
    let mut dump = Dump::new(args, &filter, printer);
    dump.printer.begin()?;
    if args.follow {
        dump.follow(&args.selection.paths, &filter)?;
    } else {
        dump.read(&mut MergedReader::open(&args.selection.paths, filter)?)?;
    }
    dump.printer.flush()?;
    if !dump.seen_header && dump.unreadable > 0 {
        return Ok(Outcome::Failed);
    }
    Ok(dump.outcome)
}

/// Whether all rows will be of one source, and so have the same columns.
fn has_one_source(selection: &Selection, selected: usize) -> Result<bool, CliError> {
    Ok(selected == 1 || (selected == 0 && !selection.have_several_sources()?))
}

/// One pass over the recordings.
struct Dump<'a> {
    fields: Vec<&'a str>,
    wanted: BTreeSet<String>, // names of sources; empty for all
    rate: bool,
    printer: Printer<'a>,
    sources: BTreeMap<u16, Known>, // of the current header
    outcome: Outcome,
    seen_header: bool,
    unreadable: u64,
    undecodable: u64, // samples whose payload does not fit its schema
    has_opaque: bool,
}

/// A source that rows are printed of.
enum Known {
    Described(Box<Decoder>),
    /// Its name: nobody described its payloads.
    Opaque(String),
}

impl Known {
    fn name(&self) -> &str {
        match self {
            Self::Described(decoder) => &decoder.name,
            Self::Opaque(name) => name,
        }
    }
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
            has_opaque: false,
        }
    }

    /// Prints what there is.
    fn read(&mut self, reader: &mut MergedReader) -> Result<(), CliError> {
        while let Some(item) = reader.next()? {
            match item {
                Item::Header(header, _) => self.begin(header)?,
                Item::Sample(sample) => self.sample(&sample.telemetry)?,
                Item::Source(source, _) => self.join(source)?,
                Item::Marker(marker, _) if !matches!(self.printer, Printer::Widths(_)) => {
                    let when = local(marker.wall_ns, &TimeZone::UTC);
                    writeln!(io::stderr(), "flatcap: {when} {}", marker.text.escape_debug())?;
                }
                Item::Gap(..) | Item::Marker(..) | Item::Other(..) => {}
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

    /// Prints what there is and what comes, until a signal. Each path has a reader of its own: one that waits for its recording to go on holds up
    /// no other.
    fn follow(&mut self, paths: &[PathBuf], filter: &Filter) -> Result<(), CliError> {
        let stop = Arc::new(Event::new());
        let _signals = SignalWatch::stop(Arc::clone(&stop))?;
        let open = |path| MergedReader::open(std::slice::from_ref(path), filter.clone());
        let readers: Result<Vec<_>, _> = paths.iter().map(open).collect();
        // With the sources of the run that each of them reads.
        let mut readers: Vec<_> = readers?.into_iter().map(|reader| (reader, BTreeMap::new())).collect();
        loop {
            for (reader, sources) in &mut readers {
                std::mem::swap(&mut self.sources, sources);
                self.read(reader)?;
                std::mem::swap(&mut self.sources, sources);
            }
            self.printer.flush()?;
            if stop.wait_until(monotonic_ns() + FOLLOW_INTERVAL_NS) == Woken::Set {
                return Ok(());
            }
            for (reader, _) in &mut readers {
                reader.refresh()?;
            }
        }
    }

    /// Compiles the plans of a run's sources. A field that only some sources have selects among those.
    fn begin(&mut self, header: &Header) -> Result<(), CliError> {
        self.seen_header = true;
        self.sources.clear();
        let mut unknown: Vec<Option<SchemaError>> = Vec::new(); // one a field, none once a source has it
        unknown.resize_with(self.fields.len(), || None);
        let mut known = vec![false; self.fields.len()];
        let mut wanted: Vec<_> = header.sources.iter().collect();
        wanted.retain(|source| self.wanted.is_empty() || self.wanted.contains(&source.name));
        if !self.fields.is_empty()
            && let Some(opaque) = wanted.first()
            && wanted.iter().all(|source| source.is_opaque())
        {
            return Err(CliError::Usage(format!(
                "--fields: {} has no fields: nobody described its payloads, which are printed as bytes without --fields",
                text::plain(&opaque.name)
            )));
        }
        for source in wanted {
            let Some(plan) = self.plan(source) else { continue };
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
            self.describe(source, plan);
        }
        match known.iter().zip(unknown).find(|(known, error)| !**known && error.is_some()) {
            Some((_, Some(error))) => Err(unknown_field(&error)),
            _ => Ok(()),
        }
    }

    /// Compiles the plan of a source that has come later. Fields that it has not are other sources'.
    fn join(&mut self, source: &SourceInfo) -> Result<(), CliError> {
        if !self.wanted.is_empty() && !self.wanted.contains(&source.name) {
            return Ok(());
        }
        let Some(plan) = self.plan(source) else { return Ok(()) };
        let own: Vec<&str> =
            self.fields.iter().copied().filter(|field| plan.select(&[field]).is_ok()).collect();
        let plan = match own.as_slice() {
            [] if self.fields.is_empty() => plan,
            [] => return Ok(()),
            own => plan.select(own).map_err(|error| unknown_field(&error))?,
        };
        self.describe(source, plan);
        Ok(())
    }

    /// The way to read a source's payloads; none for an opaque source, which is known then, and for one whose schema is no good.
    fn plan(&mut self, source: &SourceInfo) -> Option<Plan> {
        if source.is_opaque() {
            // Fields are other sources'.
            if self.fields.is_empty() {
                self.has_opaque = true;
                self.sources.insert(source.id, Known::Opaque(source.name.clone()));
            }
            return None;
        }
        match Plan::compile(&source.schema, &source.root) {
            Ok(plan) => Some(plan),
            Err(error) => {
                self.outcome = Outcome::DataLoss;
                tracing::error!(source = &*text::plain(&source.name), "cannot be decoded: {error}");
                None
            }
        }
    }

    fn describe(&mut self, source: &SourceInfo, plan: Plan) {
        let name = source.name.clone();
        let decoder = Decoder { name, plan, rates: Rates::default(), row: Row::new() };
        self.sources.insert(source.id, Known::Described(Box::new(decoder)));
    }

    fn sample(&mut self, sample: &Telemetry<'_>) -> Result<(), CliError> {
        let decoder = match self.sources.get_mut(&sample.source) {
            None => return Ok(()),
            Some(Known::Opaque(name)) => return Ok(self.printer.print_opaque(name, sample)?),
            Some(Known::Described(decoder)) => decoder,
        };
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
            let name = text::plain(self.sources.get(&sample.source).map_or("?", Known::name));
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
    CliError::Usage(format!("--fields: {}", text::plain(&error.to_string())))
}
