//! `dump`: prints samples as rows, decoded with the schema in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use flatcap_format::replay::{MergedReader, Notice, ReplayFilter, ReplayItem};
use flatcap_format::schema::{CompiledSchema, DecodeError, FlatColumns, FlatRow, Rates, SchemaError};
use flatcap_format::segment::{SampleView, SegmentHeader, SourceInfo, list};
use jiff::tz::TimeZone;

use super::error::CliError;
use super::hosts::RecordedHosts;
use super::row_printer::{PrintError, Printer, RowDecoder, SampleOrigin};
use super::selection::RecordingSelection;
use super::time_printer::TimePrinter;
use super::{ExitStatus, human, report_notice};
use crate::os::clock::{monotonic_ns, read_clocks};
use crate::os::signal::SignalWatch;
use crate::os::wake_event::{WakeEvent, WakeReason};

/// Interval at which `--follow` checks a growing recording.
const FOLLOW_INTERVAL_NS: u64 = 50_000_000;

/// Time after --until at which `--follow` ends, for samples that are written late: by default a
/// sample is in the file after 15 ms, and a read of a blocking source may take a second.
const LATE_SAMPLES_NS: i64 = 2_000_000_000;

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
    /// Continue while the recording grows, until a signal; with --until, up to 2 s after that time,
    /// for samples that are written late.
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
    let zone = args.selection.zone.zone()?;
    let hosts = RecordedHosts::of(&list(&args.selection.paths)?);
    let has_host_column = hosts.are_several() && !args.selection.has_host();
    let filter = ReplayFilter { fields: args.fields.clone(), ..args.selection.filter(&zone)? };
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
    let times = TimePrinter::new(zone.clone());
    let printer = match args.format {
        // For programs: the same text in every zone.
        RowFormat::Jsonl => Printer::Jsonl { out, times: TimePrinter::new(TimeZone::UTC), line: Vec::new() },
        RowFormat::Csv => Printer::Csv {
            writer: csv::Writer::from_writer(out),
            columns: &columns,
            times,
            has_host_column,
            has_opaque,
            cell: Vec::new(),
        },
        RowFormat::Table if has_one_source(&args.selection, filter.sources.len())? => {
            Printer::Table { out, times, heading: None }
        }
        RowFormat::Table => Printer::Pairs { out, times, columns: BTreeMap::new() },
    };
    let mut dump = Dump::new(args, &filter, printer);
    dump.host = CurrentHost { hosts, run_id: 0, has_column: has_host_column };
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
    if dump.samples == 0 && !args.follow && args.selection.has_times() {
        return Err(args.selection.no_samples(zone)?);
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
    host: CurrentHost,
    sources: BTreeMap<u16, DumpSource>, // of the current header
    outcome: ExitStatus,
    seen_header: bool,
    samples: u64,
    unreadable: u64,
    undecodable: u64, // samples whose payload does not fit its schema
    has_opaque: bool,
}

/// The host of the current run.
#[derive(Default)]
struct CurrentHost {
    hosts: RecordedHosts,
    run_id: u64,
    has_column: bool, // in tables and CSV
}

impl CurrentHost {
    fn name(&self) -> &str {
        self.hosts.name_of(self.run_id)
    }
}

/// A source whose samples are printed.
enum DumpSource {
    Typed(Box<RowDecoder>),
    /// A source without a schema.
    Opaque(SampleOrigin),
}

impl DumpSource {
    fn origin(&self) -> &SampleOrigin {
        match self {
            Self::Typed(decoder) => &decoder.origin,
            Self::Opaque(origin) => origin,
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
            host: CurrentHost::default(),
            sources: BTreeMap::new(),
            outcome: ExitStatus::Done,
            seen_header: false,
            samples: 0,
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
                ReplayItem::Marker(marker, _) => {
                    self.printer.print_marker(&marker, self.host.name())?;
                }
                ReplayItem::Gap(gap, _) => {
                    if let Some(source) = self.sources.get(&gap.source) {
                        self.printer.print_gap(&gap, source.origin())?;
                    }
                }
                ReplayItem::Other(..) => {}
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

    /// Prints all samples and continues with new ones until a signal or the end of the wanted time.
    /// Each path has its own reader, so that one that waits for its recording does not delay the
    /// others.
    fn follow(&mut self, paths: &[PathBuf], filter: &ReplayFilter) -> Result<(), CliError> {
        let stop = Arc::new(WakeEvent::new());
        let _signals = SignalWatch::stop_only(Arc::clone(&stop))?;
        let open = |path| MergedReader::open(std::slice::from_ref(path), filter.clone());
        let readers: Result<Vec<_>, _> = paths.iter().map(open).collect();
        // Each with the sources of the run that it reads.
        let mut readers: Vec<_> = readers?.into_iter().map(|reader| (reader, (0, BTreeMap::new()))).collect();
        let end_ns = follow_end_ns(filter);
        loop {
            // Read before the files are, so that the last look at them is after the end.
            let is_over = end_ns.is_some_and(|end_ns| read_clocks().wall_ns >= end_ns);
            for (reader, (run_id, sources)) in &mut readers {
                std::mem::swap(&mut self.sources, sources);
                self.host.run_id = *run_id;
                self.read(reader)?;
                *run_id = self.host.run_id;
                std::mem::swap(&mut self.sources, sources);
            }
            self.printer.flush()?;
            if is_over || stop.wait_until(monotonic_ns() + FOLLOW_INTERVAL_NS) == WakeReason::Set {
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
        self.host.run_id = header.run_id;
        // Of a run that began after the first look, too.
        self.host.hosts.add_run(header);
        self.sources.clear();
        // Per field, why sources do not have it.
        let mut unknown: Vec<Option<UnknownField>> = Vec::new();
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
        let are_several = wanted.len() > 1;
        for source in wanted {
            let Some(plan) = self.compile_schema(source) else { continue };
            let mut own = Vec::new();
            for ((field, known), unknown) in self.fields.iter().zip(&mut known).zip(&mut unknown) {
                match plan.select(&[field]) {
                    Ok(_) => {
                        *known = true;
                        own.push(*field);
                    }
                    Err(error) => {
                        *unknown = unknown.take().max(Some(UnknownField::new(&plan, field, &error)));
                    }
                }
            }
            let plan = match own.as_slice() {
                [] if self.fields.is_empty() => plan,
                [] => continue,
                own => plan.select(own).map_err(|error| unknown_field(&error))?,
            };
            self.add_decoder(source, plan);
        }
        let mut unknown = self.fields.iter().zip(known.iter().zip(unknown));
        match unknown.find_map(|(field, (known, unknown))| Some((field, unknown.filter(|_| !known)?))) {
            Some((field, UnknownField { usefulness: 0, .. })) if are_several => Err(unknown_field(&format!(
                "{field:?}: no source has this field; to see the fields of one, add --source NAME"
            ))),
            Some((_, unknown)) => Err(unknown_field(&unknown.reason)),
            None => Ok(()),
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
                let origin = self.origin_of(source);
                self.sources.insert(source.id, DumpSource::Opaque(origin));
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

    fn origin_of(&self, source: &SourceInfo) -> SampleOrigin {
        SampleOrigin {
            source: source.name.clone(),
            host: self.host.name().to_owned(),
            has_host_column: self.host.has_column,
        }
    }

    fn add_decoder(&mut self, source: &SourceInfo, plan: CompiledSchema) {
        let origin = self.origin_of(source);
        let decoder = RowDecoder { origin, plan, rates: Rates::default(), row: FlatRow::new() };
        self.sources.insert(source.id, DumpSource::Typed(Box::new(decoder)));
    }

    fn sample(&mut self, sample: &SampleView<'_>) -> Result<(), CliError> {
        self.samples += 1;
        let decoder = match self.sources.get_mut(&sample.source) {
            None => return Ok(()),
            Some(DumpSource::Opaque(origin)) => return Ok(self.printer.print_opaque(origin, sample)?),
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
            let name = human::escaped(
                self.sources.get(&sample.source).map_or("?", |source| source.origin().source.as_str()),
            );
            writeln!(
                io::stderr(),
                "flatcap: sample {} of {name} does not fit its schema: {error}",
                sample.seq
            )?;
        }
        Ok(())
    }
}

/// Returns the wall time at which `--follow` ends; `None` if only a signal ends it.
fn follow_end_ns(filter: &ReplayFilter) -> Option<i64> {
    let from_start = filter.elapsed.as_ref().filter(|elapsed| elapsed.ns.end < u64::MAX);
    let from_start = from_start.map(|elapsed| elapsed.start.wall_ns.saturating_add_unsigned(elapsed.ns.end));
    filter.until_ns.or(from_start).map(|until_ns| until_ns.saturating_add(LATE_SAMPLES_NS))
}

/// The reason why a source does not have a field. Of several sources, the greatest is the most
/// useful one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UnknownField {
    /// 2 if the source has a field of this name elsewhere, 1 if it has the first name of the path,
    /// else 0.
    usefulness: u8,
    reason: String,
}

impl UnknownField {
    fn new(plan: &CompiledSchema, path: &str, error: &SchemaError) -> Self {
        let elsewhere = plan.fields().find(|leaf| leaf.path.rsplit('.').next() == Some(path));
        if let Some(leaf) = elsewhere {
            let reason = format!("{path:?}: no such path; did you mean {:?}?", leaf.path);
            return Self { usefulness: 2, reason };
        }
        let has_first_name = path.split('.').next().is_some_and(|first| plan.select(&[first]).is_ok());
        Self { usefulness: u8::from(has_first_name), reason: error.to_string() }
    }
}

fn unknown_field(reason: &dyn Display) -> CliError {
    CliError::Usage(format!("--fields: {}", human::escaped(&reason.to_string())))
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::{Elapsed, RecordingStart};

    use super::*;

    // Proves that a following dump ends after --until, given by the clock or from the start of the
    // recording, and only by a signal without it.
    #[test]
    fn following_ends_after_the_wanted_time() {
        let start = RecordingStart { run_id: 1, boot_id: None, mono_ns: 5, wall_ns: 1_000 };
        let elapsed = |end| Some(Elapsed { start: start.clone(), ns: 0..end });
        let all = ReplayFilter::default();
        assert_eq!(follow_end_ns(&ReplayFilter { since_ns: Some(7), ..all.clone() }), None);
        assert_eq!(follow_end_ns(&ReplayFilter { elapsed: elapsed(u64::MAX), ..all.clone() }), None);
        let until = ReplayFilter { until_ns: Some(500), ..all.clone() };
        assert_eq!(follow_end_ns(&until), Some(500 + LATE_SAMPLES_NS));
        let until = ReplayFilter { elapsed: elapsed(30), ..all };
        assert_eq!(follow_end_ns(&until), Some(1_030 + LATE_SAMPLES_NS));
    }
}
