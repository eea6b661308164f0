//! `dump`: prints samples as rows, decoded with the schema in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use flatcap_format::replay::{MergedReader, Notice, RecordedHosts, ReplayFilter, ReplayItem};
use flatcap_format::schema::{CompiledSchema, DecodeError, FlatColumns, FlatRow, Rates};
use flatcap_format::segment::{SampleView, SegmentHeader, SourceInfo, list};
use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_os::signal::SignalWatch;
use flatcap_os::wake_event::{WakeEvent, WakeReason};
use flatcap_query::Recording;
use jiff::tz::TimeZone;

use super::error::CliError;
use super::row_printer::{PrintError, Printer, RowDecoder, SampleOrigin};
use super::rows;
use super::rows::row_request::{Follow, RowArgs, RowOutput, RowRequest};
use super::selection::{RecordingSelection, known_sources};
use super::time_printer::TimePrinter;
use super::{ExitStatus, human, report_notice};

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
    #[command(flatten)]
    rows: RowArgs,
    /// table: for people; jsonl: one object per row; csv: with a header line. Without --fields,
    /// jsonl has whole samples, csv those of one source, and a table without --source is a digest
    /// of the recording.
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
pub(super) enum RowFormat {
    Table,
    Jsonl,
    Csv,
}

impl Args {
    /// Returns the arguments that print a selection in a format for programs.
    pub(super) fn of_selection(selection: RecordingSelection, rows: RowArgs, format: RowFormat) -> Self {
        Self { selection, rows, format, rate: false, follow: false }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.selection.zone.zone()?;
    let filter = args.selection.filter(&zone)?;
    let recording = Recording::open_with_added_sources(&args.selection.paths)?;
    let has_schema =
        |name: &str| recording.sources().iter().any(|source| source.name == name && source.has_schema());
    // The samples of a computed source are in no file.
    let is_computed =
        |name: &String| recording.sources().iter().any(|source| source.name == *name && source.is_computed);
    let are_fields_asked = args.rows.are_given()
        || (args.format != RowFormat::Table && filter.sources.iter().any(is_computed))
        || (args.format == RowFormat::Csv && filter.sources.len() > 1);
    // Without a segment that can be read, the samples are read to say why. Payloads without a
    // schema have one field.
    let have_no_schema = recording.sources().iter().all(|source| !source.has_schema());
    if recording.sources().is_empty() || (have_no_schema && !args.rows.are_given()) {
        return whole_samples(args, filter, zone, out);
    }
    let request = || RowRequest {
        selection: &args.selection,
        filter: filter.clone(),
        zone: zone.clone(),
        args: &args.rows,
        fields: args.rows.fields.clone().map(|list| list.0).unwrap_or_default(),
        output: args.format.into(),
        is_rate: args.rate,
        is_long: args.rows.long,
        is_turned: false,
        follow: match (args.follow, follow_end_ns(&filter)) {
            (false, _) => Follow::No,
            (true, None) => Follow::ToSignal,
            (true, Some(end_ns)) => Follow::Until(end_ns),
        },
    };
    if are_fields_asked {
        return rows::run(&request(), out);
    }
    if args.format != RowFormat::Table || args.follow {
        return whole_samples(args, filter, zone, out);
    }
    let mut named = filter.sources.iter();
    match (named.next(), named.next()) {
        (Some(one), None) if has_schema(one) => rows::source_table::print(request(), one, out),
        (Some(_), None) => whole_samples(args, filter, zone, out),
        _ => rows::digest::print(&request(), out),
    }
}

/// Prints whole samples.
fn whole_samples(
    args: &Args,
    filter: ReplayFilter,
    zone: TimeZone,
    out: &mut dyn Write,
) -> Result<ExitStatus, CliError> {
    let hosts = RecordedHosts::of(&list(&args.selection.paths)?);
    let has_host_column = hosts.are_several() && !args.selection.has_host();
    let mut columns = FlatColumns::new();
    if args.format == RowFormat::Csv {
        if args.follow {
            let why =
                "--follow: the columns of csv must be known before the first row; use jsonl, or --fields";
            return Err(CliError::Usage(why.to_owned()));
        }
        if !has_one_source(&args.selection, filter.sources.len())? {
            let known = known_sources(&args.selection.paths)?;
            let known = human::escaped_list(&known);
            let why = format!(
                "csv needs sources or fields: name them with --source or --fields; these recordings have {known}"
            );
            return Err(CliError::Usage(why));
        }
        let mut widths = Dump::new(args, &filter, Printer::Widths(&mut columns));
        widths.read(&mut MergedReader::open(&args.selection.paths, filter.clone())?)?;
    }
    let times = TimePrinter::new(zone.clone());
    let printer = match args.format {
        // For programs: the same text in every zone.
        RowFormat::Jsonl => Printer::Jsonl { out, times: TimePrinter::new(TimeZone::UTC), line: Vec::new() },
        RowFormat::Csv => Printer::Csv {
            writer: csv::Writer::from_writer(out),
            columns: &columns,
            times: TimePrinter::new(TimeZone::UTC),
            has_host_column,
            text_rule: args.rows.text_rule(),
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

impl From<RowFormat> for RowOutput {
    fn from(format: RowFormat) -> Self {
        match format {
            RowFormat::Table => Self::Table,
            RowFormat::Jsonl => Self::Jsonl,
            RowFormat::Csv => Self::Csv,
        }
    }
}

/// Returns whether all rows are of one source, and so have the same columns.
fn has_one_source(selection: &RecordingSelection, selected: usize) -> Result<bool, CliError> {
    Ok(selected == 1 || (selected == 0 && !selection.have_several_sources()?))
}

/// One pass over the recordings.
struct Dump<'a> {
    selected: BTreeSet<String>, // names of sources; empty for all
    rate: bool,
    limit: u64,
    printer: Printer<'a>,
    host: CurrentHost,
    sources: BTreeMap<u16, RowDecoder>, // of the current header
    outcome: ExitStatus,
    seen_header: bool,
    samples: u64,
    unreadable: u64,
    undecodable: u64, // samples whose payload does not fit its schema
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

impl<'a> Dump<'a> {
    fn new(args: &Args, filter: &ReplayFilter, printer: Printer<'a>) -> Self {
        Self {
            selected: filter.sources.clone(),
            rate: args.rate,
            limit: args.rows.limit.unwrap_or(u64::MAX),
            printer,
            host: CurrentHost::default(),
            sources: BTreeMap::new(),
            outcome: ExitStatus::Done,
            seen_header: false,
            samples: 0,
            unreadable: 0,
            undecodable: 0,
        }
    }

    /// Prints all samples that the reader returns now.
    fn read(&mut self, reader: &mut MergedReader) -> Result<(), CliError> {
        while self.samples < self.limit
            && let Some(item) = reader.next()?
        {
            match item {
                ReplayItem::Header(header, _) => self.begin_run(header),
                ReplayItem::Sample(sample) => self.sample(&sample.telemetry)?,
                ReplayItem::Source(source, _) => self.add_source(source),
                ReplayItem::Marker(marker, _) => {
                    self.printer.print_marker(&marker, self.host.name())?;
                }
                ReplayItem::Gap(gap, _) => {
                    if let Some(source) = self.sources.get(&gap.source) {
                        self.printer.print_gap(&gap, &source.origin)?;
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
    /// Each path has its own reader, so that a reader that waits for its recording does not
    /// delay the others.
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
            if is_over
                || self.samples >= self.limit
                || stop.wait_until(monotonic_ns() + FOLLOW_INTERVAL_NS) == WakeReason::Set
            {
                return Ok(());
            }
            for (reader, _) in &mut readers {
                reader.refresh()?;
            }
        }
    }

    /// Compiles the schemas of a run's sources.
    fn begin_run(&mut self, header: &SegmentHeader) {
        self.seen_header = true;
        self.host.run_id = header.run_id;
        // Of a run that began after the first look, too.
        self.host.hosts.add_run(header);
        self.sources.clear();
        header.sources.iter().for_each(|source| self.add_source(source));
    }

    /// Compiles the schema of a source if it is wanted.
    fn add_source(&mut self, source: &SourceInfo) {
        if (self.selected.is_empty() || self.selected.contains(&source.name))
            && let Some(plan) = self.compile_schema(source)
        {
            self.add_decoder(source, plan);
        }
    }

    /// Compiles the schema of a source. Returns `None` for an invalid schema, which is logged.
    fn compile_schema(&mut self, source: &SourceInfo) -> Option<CompiledSchema> {
        match CompiledSchema::of_source(&source.schema, &source.root) {
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
        let decoder =
            RowDecoder { origin, plan, rates: Rates::default(), has_rates: self.rate, row: FlatRow::new() };
        self.sources.insert(source.id, decoder);
    }

    fn sample(&mut self, sample: &SampleView<'_>) -> Result<(), CliError> {
        self.samples += 1;
        let Some(decoder) = self.sources.get_mut(&sample.source) else { return Ok(()) };
        if self.rate
            && let Err(error) =
                decoder.rates.observe(&decoder.plan, (sample.mono_ns, sample.flags), sample.payload)
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
                self.sources.get(&sample.source).map_or("?", |source| source.origin.source.as_str()),
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
