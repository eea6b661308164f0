//! Prints the output of `dump`, which is rows of fields or whole samples.

use std::io::{self, Write};
use std::sync::Arc;

use flatcap_format::replay::Notice;
use flatcap_format::schema::DecodeError;
use flatcap_format::segment::SegmentError;
use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_os::signal::SignalWatch;
use flatcap_os::wake_event::{WakeEvent, WakeReason};
use flatcap_query::{
    ELEMENTS_MAX, Query, QueryError, QuerySummary, Recording, RowItem, RowOptions, RowReader, RunInfo,
    SampleReader,
};
use row_request::{Follow, RowOutput, RowRequest};
use row_writer::RowWriter;

use super::error::CliError;
use super::{ExitStatus, human, report_notice};

pub(super) mod digest;
mod missing_element;
mod movement;
pub(super) mod row_cell;
pub(super) mod row_request;
mod row_table;
mod row_writer;
mod sample_lines;
mod sample_writer;
pub(super) mod source_table;

/// Interval at which `--follow` checks a growing recording.
const FOLLOW_INTERVAL_NS: u64 = 50_000_000;

/// Prints the requested rows.
pub(super) fn run(request: &RowRequest<'_>, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    // A source that was added to the open segment may have its own column, and the CSV heading must
    // contain this column.
    let recording = match request.output {
        RowOutput::Csv => Recording::open_with_added_sources(&request.selection.paths)?,
        RowOutput::Jsonl | RowOutput::Table => Recording::open(&request.selection.paths)?,
    };
    let condition = request.args.condition.clone();
    let has_condition = condition.is_some();
    let (fields, filter) = (request.fields.clone(), request.filter.clone());
    let query = Query { fields, filter, condition, ..Query::default() };
    let options = RowOptions {
        is_long: request.is_long,
        is_rate: request.is_rate,
        steps: request.args.every,
        is_growing: request.follow != Follow::No,
    };
    let mut reader = recording.rows(&query, options.clone())?;
    if request.output == RowOutput::Csv && reader.has_elements() {
        if request.follow != Follow::No {
            let why = "--follow: elements that come later would be new columns of csv; use --long, or jsonl";
            return Err(CliError::Usage(why.to_owned()));
        }
        // All rows are read first, because the header must have the elements of all samples.
        while reader.next()?.is_some() {}
        let columns = reader.columns().to_vec();
        if !has_condition && let Some(error) = missing_element::find(&recording, &query, &reader, 1)? {
            return Err(error);
        }
        reader = recording.rows(&query, options.clone())?.with_columns(columns);
    }
    let mut printer = RowPrinter::new(RowWriter::new(request, out)?, request);
    let open = |recording: &Recording| Ok(recording.rows(&query, options.clone())?.into());
    let mut inputs = printer.follow(request, open)?;
    let mut input = RowInput::from(reader);
    if request.follow == Follow::No {
        printer.print(&mut input)?;
    }
    // If the number of rows is limited, the element may occur only after the last requested row.
    if !has_condition
        && request.args.limit != Some(printer.rows)
        && let ItemReader::Rows(reader) = &input.reader
        && let Some(error) = missing_element::find(&recording, &query, reader, printer.rows)?
    {
        printer.writer.flush()?;
        return Err(error);
    }
    inputs.push(input);
    printer.finish(request, &inputs)
}

/// Prints whole samples. `is_table` is true if all samples have the same source.
pub(super) fn samples(
    recording: &Recording,
    request: &RowRequest<'_>,
    is_table: bool,
    out: &mut dyn Write,
) -> Result<ExitStatus, CliError> {
    let open = |recording: &Recording| recording.samples(&request.filter, request.is_rate);
    let mut printer = RowPrinter::new(RowWriter::of_samples(request, is_table, out)?, request);
    if request.output == RowOutput::Csv {
        // All samples are read first, because the header must have the elements of all samples.
        let (mut reader, mut rows) = (open(recording)?, 0);
        while request.args.limit.is_none_or(|limit| rows < limit)
            && let Some(item) = reader.next()?
        {
            if matches!(item, RowItem::Row(_)) {
                rows += 1;
                if let Err(error) = printer.writer.add_columns(&reader) {
                    printer.report_undecodable(&reader, &error)?;
                }
            }
        }
        printer.writer.begin_samples()?;
    }
    let mut inputs = printer.follow(request, |recording| Ok(open(recording)?.into()))?;
    if request.follow == Follow::No {
        let mut input = open(recording)?.into();
        printer.print(&mut input)?;
        inputs.push(input);
    }
    printer.finish(request, &inputs)
}

/// Reports samples that could not be decoded, and elements that could not be distinguished.
pub(super) fn report_summary(summary: QuerySummary, outcome: ExitStatus) -> Result<ExitStatus, CliError> {
    let outcome = if summary.has_more_elements {
        writeln!(
            io::stderr(),
            "flatcap: more than {ELEMENTS_MAX} elements of lists (processes, devices, ...): the later ones are \
             not told apart and all have the name \"?\"; choose a shorter time, fewer sources or some elements"
        )?;
        ExitStatus::DataLoss
    } else {
        outcome
    };
    if summary.undecodable == 0 && summary.malformed_schemas == 0 {
        return Ok(outcome);
    }
    writeln!(
        io::stderr(),
        "flatcap: {} samples do not fit their schema, and {} schemas are malformed; flatcap verify says more",
        summary.undecodable,
        summary.malformed_schemas
    )?;
    Ok(ExitStatus::DataLoss)
}

/// Reads rows of fields, or whole samples.
enum ItemReader {
    Rows(Box<RowReader>),
    Samples(Box<SampleReader>),
}

/// A reader, and the run that it is reading.
struct RowInput {
    reader: ItemReader,
    run: Option<RunInfo>,
}

impl From<RowReader> for RowInput {
    fn from(reader: RowReader) -> Self {
        Self { reader: ItemReader::Rows(Box::new(reader)), run: None }
    }
}

impl From<SampleReader> for RowInput {
    fn from(reader: SampleReader) -> Self {
        Self { reader: ItemReader::Samples(Box::new(reader)), run: None }
    }
}

impl RowInput {
    fn next(&mut self) -> Result<Option<RowItem>, QueryError> {
        match &mut self.reader {
            ItemReader::Rows(reader) => reader.next(),
            ItemReader::Samples(reader) => reader.next(),
        }
    }

    fn refresh(&mut self) -> Result<(), SegmentError> {
        match &mut self.reader {
            ItemReader::Rows(reader) => reader.refresh(),
            ItemReader::Samples(reader) => reader.refresh(),
        }
    }

    fn summary(&self) -> QuerySummary {
        match &self.reader {
            ItemReader::Rows(reader) => reader.summary(),
            ItemReader::Samples(reader) => reader.summary(),
        }
    }
}

/// Prints rows, gaps and markers.
struct RowPrinter<'a> {
    writer: RowWriter<'a>,
    rows: u64,
    limit: Option<u64>,
    outcome: ExitStatus,
    has_runs: bool,
    is_unreadable: bool,
    /// Number of whole samples that do not match their schema.
    undecodable: u64,
}

impl<'a> RowPrinter<'a> {
    fn new(writer: RowWriter<'a>, request: &RowRequest<'_>) -> Self {
        Self {
            writer,
            rows: 0,
            limit: request.args.limit,
            outcome: ExitStatus::Done,
            has_runs: false,
            is_unreadable: false,
            undecodable: 0,
        }
    }

    /// Prints all rows that the reader returns now. Returns false if the maximum number of rows was
    /// reached.
    fn print(&mut self, input: &mut RowInput) -> Result<bool, CliError> {
        // There are several readers, and each follows one path. They may be in runs of different
        // hosts.
        if let Some(run) = &input.run {
            self.writer.begin_run(run);
        }
        if let ItemReader::Rows(reader) = &input.reader {
            self.writer.begin(reader)?;
        }
        while let Some(item) = input.next()? {
            match item {
                RowItem::Run(run) => {
                    self.has_runs = true;
                    self.writer.begin_run(&run);
                    input.run = Some(run);
                }
                RowItem::Row(stamp) => {
                    match &input.reader {
                        ItemReader::Rows(reader) => self.writer.row(&stamp, reader)?,
                        ItemReader::Samples(reader) => {
                            if let Err(error) = self.writer.sample(reader)? {
                                self.report_undecodable(reader, &error)?;
                            }
                        }
                    }
                    self.rows += 1;
                    if self.limit.is_some_and(|limit| self.rows >= limit) {
                        return Ok(false);
                    }
                }
                RowItem::Gap(source, gap) => self.writer.gap(&source, &gap)?,
                RowItem::Marker(marker) => self.writer.marker(&marker)?,
                RowItem::Notice(notice) => {
                    self.is_unreadable |= matches!(notice, Notice::Unreadable(_));
                    self.writer.flush()?;
                    self.outcome = report_notice(&notice)?;
                }
            }
        }
        Ok(true)
    }

    /// Prints all rows. If the recording is followed, continues with new rows until a signal, the
    /// maximum number of rows, or the end time. Returns the readers. Each path has its own reader,
    /// so that a reader that waits for new samples does not delay the others.
    fn follow(
        &mut self,
        request: &RowRequest<'_>,
        open: impl Fn(&Recording) -> Result<RowInput, CliError>,
    ) -> Result<Vec<RowInput>, CliError> {
        if request.follow == Follow::No {
            return Ok(Vec::new());
        }
        let paths = request.selection.paths.iter();
        let opened = paths.map(|path| open(&Recording::open(std::slice::from_ref(path))?));
        let mut readers = opened.collect::<Result<Vec<_>, CliError>>()?;
        let stop = Arc::new(WakeEvent::new());
        let _signals = SignalWatch::stop_only(Arc::clone(&stop))?;
        loop {
            // The clock is read before the files, so that the last check of the files is after the
            // end.
            let is_over = matches!(request.follow, Follow::Until(end_ns) if read_clocks().wall_ns >= end_ns);
            for reader in &mut readers {
                if !self.print(reader)? {
                    self.writer.flush()?;
                    return Ok(readers);
                }
            }
            self.writer.flush()?;
            if is_over || stop.wait_until(monotonic_ns() + FOLLOW_INTERVAL_NS) == WakeReason::Set {
                return Ok(readers);
            }
            for reader in &mut readers {
                reader.refresh()?;
            }
        }
    }

    /// Counts payloads that do not match their schema, and reports the first few of them.
    fn report_undecodable(&mut self, reader: &SampleReader, error: &DecodeError) -> Result<(), CliError> {
        const REPORTED_MAX: u64 = 10;
        self.outcome = ExitStatus::DataLoss;
        self.undecodable += 1;
        if self.undecodable <= REPORTED_MAX {
            let (name, seq) =
                (human::escaped(reader.source()), reader.sample().map_or(0, |sample| sample.seq));
            writeln!(io::stderr(), "flatcap: sample {seq} of {name} does not fit its schema: {error}")?;
        }
        Ok(())
    }

    /// Flushes the output, and reports problems of the data that was read.
    fn finish(mut self, request: &RowRequest<'_>, inputs: &[RowInput]) -> Result<ExitStatus, CliError> {
        self.writer.flush()?;
        if self.is_unreadable && !self.has_runs {
            return Ok(ExitStatus::Failed);
        }
        if self.rows == 0 && request.follow == Follow::No && request.selection.has_times() {
            return Err(request.selection.no_samples(request.zone.clone())?);
        }
        inputs.iter().try_fold(self.outcome, |outcome, input| report_summary(input.summary(), outcome))
    }
}
