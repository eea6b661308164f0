//! Rows of selected fields: the part of `dump` that asks for fields instead of whole samples.

use std::io::{self, Write};
use std::sync::Arc;

use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_os::signal::SignalWatch;
use flatcap_os::wake_event::{WakeEvent, WakeReason};
use flatcap_query::{ELEMENTS_MAX, Query, QuerySummary, Recording, RowItem, RowOptions, RowReader};
use row_request::{Follow, RowOutput, RowRequest};
use row_writer::RowWriter;

use super::error::CliError;
use super::{ExitStatus, report_notice};

pub(super) mod digest;
mod missing_element;
mod movement;
mod row_cell;
pub(super) mod row_request;
mod row_table;
mod row_writer;
pub(super) mod source_table;

/// Interval at which `--follow` checks a growing recording.
const FOLLOW_INTERVAL_NS: u64 = 50_000_000;

/// Prints the rows that are asked for.
pub(super) fn run(request: &RowRequest<'_>, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    // A source that was added to the open segment may have a column of its own, which must be in
    // the heading of csv.
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
        // The header has the elements of all samples.
        while reader.next()?.is_some() {}
        let columns = reader.columns().to_vec();
        if !has_condition && let Some(error) = missing_element::find(&recording, &query, &reader, 1)? {
            return Err(error);
        }
        reader = recording.rows(&query, options.clone())?.with_columns(columns);
    }
    let writer = RowWriter::new(request, out)?;
    let mut printer = RowPrinter { writer, rows: 0, limit: request.args.limit, outcome: ExitStatus::Done };
    match request.follow {
        Follow::No => {
            printer.print(&mut reader)?;
            printer.writer.flush()?;
        }
        Follow::ToSignal | Follow::Until(_) => {
            let paths = &request.selection.paths;
            let readers: Result<Vec<RowReader>, CliError> = paths
                .iter()
                .map(|path| Ok(Recording::open(std::slice::from_ref(path))?.rows(&query, options.clone())?))
                .collect();
            printer.follow(readers?, request.follow)?;
        }
    }
    // An element may come after the last row that was asked for.
    if !has_condition
        && request.args.limit != Some(printer.rows)
        && let Some(error) = missing_element::find(&recording, &query, &reader, printer.rows)?
    {
        return Err(error);
    }
    if printer.rows == 0 && request.follow == Follow::No && request.selection.has_times() {
        return Err(request.selection.no_samples(request.zone.clone())?);
    }
    report_summary(reader.summary(), printer.outcome)
}

/// Reports samples that could not be decoded, and elements that could not be told apart.
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

/// Prints rows, gaps and markers.
struct RowPrinter<'a> {
    writer: RowWriter<'a>,
    rows: u64,
    limit: Option<u64>,
    outcome: ExitStatus,
}

impl RowPrinter<'_> {
    /// Prints all rows that the reader returns now. Returns false if the limit was reached.
    fn print(&mut self, reader: &mut RowReader) -> Result<bool, CliError> {
        self.writer.begin(reader)?;
        while let Some(item) = reader.next()? {
            match item {
                RowItem::Run(run) => self.writer.begin_run(&run),
                RowItem::Row(stamp) => {
                    self.writer.row(&stamp, reader)?;
                    self.rows += 1;
                    if self.limit.is_some_and(|limit| self.rows >= limit) {
                        return Ok(false);
                    }
                }
                RowItem::Gap(source, gap) => self.writer.gap(&source, &gap)?,
                RowItem::Marker(marker) => self.writer.marker(&marker)?,
                RowItem::Notice(notice) => {
                    self.writer.flush()?;
                    self.outcome = report_notice(&notice)?;
                }
            }
        }
        Ok(true)
    }

    /// Prints all rows, and continues with new ones until a signal, the limit or the end.
    fn follow(&mut self, mut readers: Vec<RowReader>, follow: Follow) -> Result<(), CliError> {
        let stop = Arc::new(WakeEvent::new());
        let _signals = SignalWatch::stop_only(Arc::clone(&stop))?;
        loop {
            // Read before the files are, so that the last look at them is after the end.
            let is_over = matches!(follow, Follow::Until(end_ns) if read_clocks().wall_ns >= end_ns);
            for reader in &mut readers {
                if !self.print(reader)? {
                    return Ok(self.writer.flush()?);
                }
            }
            self.writer.flush()?;
            if is_over || stop.wait_until(monotonic_ns() + FOLLOW_INTERVAL_NS) == WakeReason::Set {
                return Ok(());
            }
            for reader in &mut readers {
                reader.refresh()?;
            }
        }
    }
}
