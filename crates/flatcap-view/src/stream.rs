//! Reads fields of a recording forward, up to a moving time.

use std::collections::VecDeque;

use flatcap_format::replay::{HostIdentity, ReplayFilter};
use flatcap_query::{
    ColumnBatch, ElementNames, FieldPath, Query, QueryError, QueryItem, QueryResults, Recording, TableInfo,
};

use super::error::ViewError;

/// The fields, host and start time to read.
#[derive(Debug, Clone)]
pub(super) struct StreamRequest {
    /// Full paths of the fields.
    pub(super) fields: Vec<String>,
    /// The host; `None` if all segments are from one host.
    pub(super) host: Option<HostIdentity>,
    /// Wall time of the first samples, in nanoseconds.
    pub(super) since_ns: i64,
}

/// Receives the items read, ordered by time within each table.
pub(super) trait StreamVisitor {
    /// A new run begins: counters restart.
    fn begin_run(&mut self);
    /// Rows of a batch.
    fn add_rows(&mut self, rows: StreamedRows<'_>);
}

/// Rows of a batch, with the tables and elements that describe them.
#[derive(Clone, Copy)]
pub(super) struct StreamedRows<'s> {
    pub(super) batch: &'s ColumnBatch,
    /// The first row, and one past the last row.
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) tables: &'s [TableInfo],
}

/// The progress of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamState {
    /// Up to the wanted time, or to the end of the recording.
    Reached,
    /// The time limit was reached first.
    Interrupted,
}

/// Reads fields of a recording forward.
#[derive(Debug)]
pub(super) struct SampleStream {
    results: QueryResults,
    /// Items that were read but lie after the wanted time.
    pending: VecDeque<PendingPart>,
    /// Everything before this wall time was read.
    complete_ns: i64,
    /// Wall time minus monotonic time of the last sample.
    offset_ns: Option<i64>,
    /// Wall time of the last sample.
    newest_ns: i64,
    is_at_end: bool,
}

#[derive(Debug)]
enum PendingPart {
    /// A batch, and the first row that was not delivered.
    Rows(Box<ColumnBatch>, usize),
    Run,
}

impl SampleStream {
    pub(super) fn open(recording: &Recording, request: &StreamRequest) -> Result<Self, ViewError> {
        let fields: Result<Vec<FieldPath>, _> = request.fields.iter().map(|path| path.parse()).collect();
        let filter = ReplayFilter {
            since_ns: Some(request.since_ns),
            host: request.host.clone(),
            ..ReplayFilter::default()
        };
        let fields = fields.map_err(QueryError::from)?;
        Ok(Self {
            results: recording.query(&Query { fields, filter, ..Query::default() })?,
            pending: VecDeque::new(),
            complete_ns: i64::MIN,
            offset_ns: None,
            newest_ns: i64::MIN,
            is_at_end: false,
        })
    }

    /// Returns the list elements seen so far.
    pub(super) fn elements(&self) -> &ElementNames {
        self.results.elements()
    }

    /// Checks for new samples of a running recorder. If `wants_segments`, also lists the directory
    /// to find new segments.
    pub(super) fn refresh(&mut self, wants_segments: bool) -> Result<(), ViewError> {
        // The end of a growing recording moves.
        self.is_at_end = false;
        if wants_segments {
            self.results.refresh()?;
        }
        Ok(())
    }

    /// Delivers everything up to a wall time, while there is time.
    pub(super) fn advance(
        &mut self,
        until_ns: i64,
        has_time: &mut dyn FnMut() -> bool,
        visitor: &mut impl StreamVisitor,
    ) -> Result<StreamState, ViewError> {
        loop {
            self.pass_on(until_ns, visitor);
            if self.complete_ns > until_ns || self.is_at_end {
                return Ok(StreamState::Reached);
            }
            if !has_time() {
                return Ok(StreamState::Interrupted);
            }
            match self.results.next()? {
                None => self.is_at_end = true,
                Some(QueryItem::Run(_)) => self.pending.push_back(PendingPart::Run),
                Some(QueryItem::Batch(batch)) => {
                    if let Some((wall_ns, mono_ns)) =
                        batch.times.wall_ns.last().zip(batch.times.mono_ns.last())
                    {
                        self.offset_ns = Some(wall_ns.wrapping_sub_unsigned(*mono_ns));
                        self.newest_ns = self.newest_ns.max(*wall_ns);
                    }
                    self.pending.push_back(PendingPart::Rows(Box::new(batch), 0));
                }
                // The run has ended, and the next one is later.
                Some(QueryItem::Complete(u64::MAX)) => self.complete_ns = self.newest_ns,
                Some(QueryItem::Complete(mono_ns)) => {
                    self.complete_ns = self.offset_ns.unwrap_or(i64::MIN).saturating_add_unsigned(mono_ns);
                }
                Some(QueryItem::Gap(..) | QueryItem::Marker(_) | QueryItem::Notice(_)) => {}
            }
        }
    }

    /// Delivers the pending items up to a wall time.
    fn pass_on(&mut self, until_ns: i64, visitor: &mut impl StreamVisitor) {
        let mut is_waiting = false;
        let mut kept = VecDeque::new();
        while let Some(mut part) = self.pending.pop_front() {
            let is_done = match &mut part {
                PendingPart::Rows(batch, next) => {
                    let end = end_of(batch, *next, until_ns);
                    let rows = StreamedRows { batch, first: *next, end, tables: self.results.tables() };
                    if end > *next {
                        visitor.add_rows(rows);
                    }
                    *next = end;
                    end >= batch.rows()
                }
                // The rows before the run must be delivered first.
                PendingPart::Run if is_waiting => {
                    kept.push_back(part);
                    break;
                }
                PendingPart::Run => {
                    visitor.begin_run();
                    true
                }
            };
            if !is_done {
                is_waiting |= matches!(part, PendingPart::Rows(..));
                kept.push_back(part);
            }
        }
        kept.append(&mut self.pending);
        self.pending = kept;
    }
}

/// Returns one past the last row of a batch that is not after a wall time.
fn end_of(batch: &ColumnBatch, first: usize, until_ns: i64) -> usize {
    let is_past =
        |row: usize| batch.times.wall_ns.get(batch.sample(row)).is_some_and(|wall_ns| *wall_ns <= until_ns);
    (first..batch.rows()).find(|row| !is_past(*row)).unwrap_or(batch.rows())
}
