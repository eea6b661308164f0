//! A block whose columns are loaded, and the order in which its rows are read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use flatcap_format::block::{
    BlockDecoder, BlockError, BlockGroups, GroupRows, MatrixRows, PayloadRows, ValueRange,
};
use flatcap_format::replay::{WantedTimes, WholeSegment};
use flatcap_format::segment::{FrameKind, Gap, Marker, SampleView};

use super::collector::Collectors;
use super::template::SampleTemplate;
use super::template_pool::TemplatePool;
use crate::columns::batch::{BatchTimes, MONO_NS, WALL_NS};
use crate::names::elements::ElementNames;

/// An open block.
#[derive(Debug)]
pub(super) struct OpenBlock {
    groups: Vec<OpenGroup>,
    /// Rows in the order of the file. There is one queue for each source, and one for frames that
    /// are not samples.
    queues: Vec<RowQueue>,
    newest_ns: u64,
}

/// A group of a block.
#[derive(Debug)]
pub(super) enum OpenGroup {
    /// The rows have one shape. The values are at the offsets of the template. The columns of the
    /// matrix are loaded.
    Columns {
        matrix: MatrixRows,
        template: Box<SampleTemplate>,
        /// For each row, whether it may pass the condition. `None` if all rows may pass.
        passing: Option<Vec<bool>>,
    },
    /// The rows have several shapes. All columns are loaded.
    Rows {
        matrix: MatrixRows,
        /// Buffer for the bytes of one row.
        row: Vec<u8>,
    },
    /// Whole frames.
    Payloads(PayloadRows),
    /// The query requests no row of this group.
    Skipped,
}

/// Rows of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowRun {
    pub(super) group: usize,
    pub(super) rows: Range<usize>,
}

/// The rows of one source. If `source` is `None`, the rows are frames that are not samples.
#[derive(Debug)]
struct RowQueue {
    source: Option<u16>,
    runs: VecDeque<RowRun>,
    /// Time of the next row.
    next_ns: u64,
}

impl OpenBlock {
    /// Loads the groups and columns of a block that the query requests.
    ///
    /// # Errors
    /// The block is malformed, or belongs to a segment with another checksum kind.
    pub(super) fn open(
        payload: &[u8],
        decoder: &mut BlockDecoder,
        sources: &Collectors,
        (names, templates): (&mut ElementNames, &mut TemplatePool),
        segment: &WholeSegment,
    ) -> Result<Self, BlockError> {
        let times = &segment.times;
        let mut parts = decoder.groups(payload)?;
        // A reader would reject every frame that is rebuilt from this block.
        if parts.checksum() != segment.reader.header().checksum {
            return Err(BlockError::Block("has frames with another checksum kind than its segment"));
        }
        let mut groups = Vec::with_capacity(parts.count());
        for number in 0..parts.count() {
            // The group of an unwanted source is not even opened.
            let is_other = parts.source(number).is_some_and(|source| !sources.contains_key(&source));
            let group = if is_other { GroupRows::Other } else { parts.open(number)? };
            groups.push(match group {
                GroupRows::Matrix(matrix) => {
                    open_matrix(matrix, &mut parts, sources, (names, templates), times)?
                }
                GroupRows::Payloads(rows) => OpenGroup::Payloads(rows),
                GroupRows::Other => OpenGroup::Skipped,
            });
        }
        let mut block = Self { groups, queues: Vec::new(), newest_ns: 0 };
        let wanted = block.wanted_rows(sources, times);
        // Reading the order of the frames takes time, so it is only read if a source has rows in
        // several groups.
        if are_in_order_by_groups(&wanted) {
            for (source, run) in wanted {
                block.push(source, run);
            }
        } else {
            block.push_by_frames(&parts.order()?, &wanted);
        }
        for queue in 0..block.queues.len() {
            block.update(queue);
        }
        Ok(block)
    }

    /// Returns the block's templates to the pool.
    pub(super) fn close(self, templates: &mut TemplatePool) {
        for group in self.groups {
            if let OpenGroup::Columns { matrix, template, .. } = group {
                templates.give_back(matrix.source(), *template);
            }
        }
    }

    /// Returns the rows that the query requests, one group after the other.
    fn wanted_rows(&mut self, sources: &Collectors, times: &WantedTimes) -> Vec<(Option<u16>, RowRun)> {
        let mut wanted = Vec::new();
        let mut newest_ns = 0;
        for (group, rows) in self.groups.iter().enumerate() {
            match rows {
                OpenGroup::Columns { matrix, .. } | OpenGroup::Rows { matrix, .. } => {
                    let mono_ns = matrix.values(MONO_NS, 0..matrix.row_count());
                    newest_ns = newest_ns.max(mono_ns.iter().copied().max().unwrap_or_default());
                    let passing = match rows {
                        OpenGroup::Columns { passing, .. } => passing.as_deref(),
                        _ => None,
                    };
                    let runs = wanted_runs(matrix, &mono_ns, times, passing);
                    wanted
                        .extend(runs.into_iter().map(|rows| (Some(matrix.source()), RowRun { group, rows })));
                }
                OpenGroup::Payloads(rows) => {
                    for row in 0..rows.payload_count() {
                        let payload = rows.payload(row);
                        let source = match FrameKind::of(payload) {
                            Some(FrameKind::Telemetry) => {
                                let Some(sample) = SampleView::read(payload) else { continue };
                                // The time is updated before the filters, because even an unwanted
                                // sample shows how far in time the file was read.
                                newest_ns = newest_ns.max(sample.mono_ns);
                                if !sources.contains_key(&sample.source)
                                    || !times.contains(sample.wall_ns, sample.mono_ns)
                                {
                                    continue;
                                }
                                Some(sample.source)
                            }
                            Some(FrameKind::Gap | FrameKind::Marker) => None,
                            _ => continue,
                        };
                        wanted.push((source, RowRun { group, rows: row..row + 1 }));
                    }
                }
                OpenGroup::Skipped => {}
            }
        }
        self.newest_ns = newest_ns;
        wanted
    }

    /// Appends the requested rows to the queues, in the order of the frames in the file.
    fn push_by_frames(&mut self, order: &[u16], wanted: &[(Option<u16>, RowRun)]) {
        let mut by_group: Vec<VecDeque<(Option<u16>, RowRun)>> = Vec::new();
        by_group.resize_with(self.groups.len(), VecDeque::new);
        for (source, run) in wanted {
            if let Some(runs) = by_group.get_mut(run.group) {
                runs.push_back((*source, run.clone()));
            }
        }
        let mut cursors = vec![0_usize; self.groups.len()];
        for group in order.iter().map(|group| usize::from(*group)) {
            let (Some(cursor), Some(runs)) = (cursors.get_mut(group), by_group.get_mut(group)) else {
                continue;
            };
            let row = *cursor;
            *cursor += 1;
            while runs.front().is_some_and(|(_, run)| run.rows.end <= row) {
                runs.pop_front();
            }
            if let Some((source, run)) = runs.front()
                && run.rows.contains(&row)
            {
                let source = *source;
                self.push(source, RowRun { group, rows: row..row + 1 });
            }
        }
    }

    /// Appends rows to the queue of a source.
    fn push(&mut self, source: Option<u16>, run: RowRun) {
        let queue = self.queues.iter().position(|queue| queue.source == source).unwrap_or_else(|| {
            self.queues.push(RowQueue { source, runs: VecDeque::new(), next_ns: 0 });
            self.queues.len() - 1
        });
        let Some(queue) = self.queues.get_mut(queue) else { return };
        match queue.runs.back_mut() {
            Some(last) if last.group == run.group && last.rows.end == run.rows.start => {
                last.rows.end = run.rows.end;
            }
            _ => queue.runs.push_back(run),
        }
    }

    /// Returns the queue whose next row has the earliest time.
    pub(super) fn earliest(&self) -> Option<usize> {
        let open = self.queues.iter().enumerate().filter(|(_, queue)| !queue.runs.is_empty());
        open.min_by_key(|(_, queue)| queue.next_ns).map(|(number, _)| number)
    }

    /// Returns the earliest time among the next rows of all queues.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.queues.get(self.earliest()?).map(|queue| queue.next_ns)
    }

    /// Returns the next rows of a queue, and their source.
    pub(super) fn run(&self, queue: usize) -> Option<(Option<u16>, RowRun)> {
        let queue = self.queues.get(queue)?;
        Some((queue.source, queue.runs.front()?.clone()))
    }

    /// Returns a group.
    pub(super) fn group(&mut self, group: usize) -> Option<&mut OpenGroup> {
        self.groups.get_mut(group)
    }

    /// Removes the first rows of a queue. The removed rows must belong to the first range of
    /// consecutive rows in the queue.
    pub(super) fn advance(&mut self, queue: usize, rows: usize) {
        if let Some(own) = self.queues.get_mut(queue)
            && let Some(run) = own.runs.front_mut()
        {
            run.rows.start += rows;
            if run.rows.is_empty() {
                own.runs.pop_front();
            }
        }
        self.update(queue);
    }

    /// Updates the time of a queue's next row.
    fn update(&mut self, queue: usize) {
        let next_ns = self.run(queue).and_then(|(_, run)| {
            let row = run.rows.start;
            match self.groups.get(run.group)? {
                OpenGroup::Columns { matrix, .. } | OpenGroup::Rows { matrix, .. } => {
                    matrix.values(MONO_NS, row..row + 1).first().copied()
                }
                OpenGroup::Payloads(rows) => time_of(rows.payload(row)),
                OpenGroup::Skipped => None,
            }
        });
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.next_ns = next_ns.unwrap_or_default();
        }
    }

    /// Returns the time of the latest sample.
    pub(super) fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// Returns whether the block has rows that the query requests.
    pub(super) fn is_needed(&self) -> bool {
        self.queues.iter().any(|queue| queue.source.is_some())
    }
}

/// Returns whether all rows of each source are in a single group. In this case, the rows of a
/// source are in the order of that group.
fn are_in_order_by_groups(wanted: &[(Option<u16>, RowRun)]) -> bool {
    let mut groups: BTreeMap<Option<u16>, usize> = BTreeMap::new();
    wanted.iter().all(|(source, run)| *groups.entry(*source).or_insert(run.group) == run.group)
}

/// Returns the monotonic time of a frame.
fn time_of(payload: &[u8]) -> Option<u64> {
    match FrameKind::of(payload)? {
        FrameKind::Telemetry => SampleView::read(payload).map(|sample| sample.mono_ns),
        FrameKind::Gap => Gap::decode(payload).map(|gap| gap.after_mono_ns),
        FrameKind::Marker => Marker::decode(payload).map(|marker| marker.mono_ns),
        _ => None,
    }
}

/// Loads the columns of a matrix that the query requests.
fn open_matrix(
    mut matrix: MatrixRows,
    parts: &mut BlockGroups<'_>,
    sources: &Collectors,
    (names, templates): (&mut ElementNames, &mut TemplatePool),
    times: &WantedTimes,
) -> Result<OpenGroup, BlockError> {
    let Some(collector) = sources.get(&matrix.source()) else { return Ok(OpenGroup::Skipped) };
    // The bounds of the time columns show that no row is wanted, so no value has to be decoded.
    if !times.are_all() && excluding_ranges(times).iter().any(|range| matrix.excludes(range)) {
        return Ok(OpenGroup::Skipped);
    }
    let Some(template) = templates.template(&matrix, &collector.plan, names) else {
        // Without a template the offsets of the fields are not known, so all columns are needed.
        parts.load_all(&mut matrix)?;
        let row = matrix.first().to_vec();
        return Ok(OpenGroup::Rows { matrix, row });
    };
    let mut passing = None;
    // If all rows are kept for rates, loading the compared columns first would not save time.
    if let Some(filter) = collector.filter.as_ref().filter(|filter| !filter.keeps_all) {
        let tables = template.tables();
        if !filter.may_hold(&collector.plan.schema, &matrix, tables) {
            templates.give_back(matrix.source(), template);
            return Ok(OpenGroup::Skipped);
        }
        // At first, only the compared columns are loaded. The other columns are loaded if a row
        // passes.
        let fields = filter.fields(&matrix, tables);
        parts.load(&mut matrix, &fields)?;
        let rows = filter.rows_of(&collector.plan, &matrix, tables);
        if !rows.contains(&true) {
            templates.give_back(matrix.source(), template);
            return Ok(OpenGroup::Skipped);
        }
        passing = Some(rows);
    }
    let mut fields = template.changing_fields(&matrix);
    fields.extend(BatchTimes::FIELDS);
    parts.load(&mut matrix, &fields)?;
    Ok(OpenGroup::Columns { matrix, template: Box::new(template), passing })
}

/// Returns the ranges of the wall time and of the monotonic time that the query requests. A row
/// that the query requests is within all of these ranges.
fn excluding_ranges(times: &WantedTimes) -> [ValueRange; 2] {
    // `ValueRange` includes both of its ends. The maximum value as an end means that the times have
    // no upper limit.
    let last = |end: u64| if end == u64::MAX { end } else { end.saturating_sub(1) };
    let wall_end = times.wall_ns.end;
    let wall_last = if wall_end == i64::MAX { wall_end } else { wall_end.saturating_sub(1) };
    let mono_ns =
        ValueRange { field: MONO_NS, lowest: times.mono_ns.start, highest: last(times.mono_ns.end) };
    let wall_ns = ValueRange {
        field: WALL_NS,
        lowest: times.wall_ns.start.cast_unsigned(),
        highest: wall_last.cast_unsigned(),
    };
    [mono_ns, wall_ns]
}

/// Returns the rows that may pass the condition and whose times the query requests.
fn wanted_runs(
    matrix: &MatrixRows,
    mono_ns: &[u64],
    times: &WantedTimes,
    passing: Option<&[bool]>,
) -> Vec<Range<usize>> {
    let count = matrix.row_count();
    // Without limits, no time needs to be compared.
    if times.are_all() && passing.is_none() {
        return std::iter::once(0..count).collect();
    }
    let wall_ns = matrix.values(WALL_NS, 0..count);
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (row, (mono_ns, wall_ns)) in mono_ns.iter().zip(wall_ns.iter()).enumerate() {
        let passes = passing.is_none_or(|passing| passing.get(row) == Some(&true));
        if passes && times.contains(wall_ns.cast_signed(), *mono_ns) {
            match runs.last_mut() {
                Some(last) if last.end == row => last.end = row + 1,
                _ => runs.push(row..row + 1),
            }
        }
    }
    runs
}
