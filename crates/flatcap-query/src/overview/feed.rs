//! Follows an overview of a recording that grows. Returns each pixel of the overview exactly once.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use flatcap_format::replay::ReplayFilter;
use flatcap_format::segment::{Marker, SegmentError};

use super::drawn_value::DrawnFields;
use super::pixel::{OverviewRow, PixelGrid};
use super::range_overview::{OverviewRequest, SERIES_MAX, reach_ns};
use super::segment_overview::RunFold;
use super::series_cells::SeriesCells;
use super::series_rows::{OverviewSeries, SeriesKey};
use super::table_fold::SegmentRequest;
use crate::error::QueryError;
use crate::read_progress::ReadProgress;
use crate::recording::Recording;
use crate::request::Query;
use crate::results::{QueryItem, QueryResults, RunInfo};

/// Follows an overview. The query stays open, so that it reads only new data. The feed keeps all
/// elements that have occurred. If elements come and go, the caller should open a new feed every
/// few minutes.
#[derive(Debug)]
pub struct OverviewFeed {
    results: QueryResults,
    request: SegmentRequest,
    run: Option<RunFold>,
    /// Series of runs that have ended.
    ended: Vec<OverviewSeries>,
    events: Vec<FeedEvent>,
    rows: FeedRows,
    progress: ReadProgress,
}

/// An event between values.
#[derive(Debug)]
pub enum FeedEvent {
    /// Samples of a source were lost. The range is in wall nanoseconds, and reaches from the last
    /// sample before the loss to the first sample after the loss.
    Loss(String, Range<i64>),
    /// A note at a point in time.
    Marker(Marker),
}

/// New pixels of a feed.
#[derive(Debug, Default)]
pub struct FeedPart {
    /// The series that have new pixels, in the order of the request. A series that occurs in two
    /// runs is returned twice, with the earlier run first.
    pub series: Vec<OverviewSeries>,
    /// The events that were read. Some events may be later than the returned pixels.
    pub events: Vec<FeedEvent>,
    /// Whether all pixels up to the requested time, or up to the end of the recording, were
    /// returned.
    pub is_complete: bool,
}

/// Converts cells to rows.
#[derive(Debug)]
struct FeedRows {
    /// Index of the first requested pixel.
    first: i64,
    /// Run and wall time of the last value of each series.
    last: HashMap<SeriesKey, (u64, i64)>,
}

impl Recording {
    /// Follows values while the recording grows. The feed returns the pixels of an
    /// [`overview`](Self::overview) of the request. After the end of the requested range, the feed
    /// continues with pixels of the same length. The feed returns a pixel only after the end of the
    /// pixel.
    ///
    /// # Errors
    /// The same errors as [`query`](Self::query).
    pub fn follow(&self, request: &OverviewRequest) -> Result<OverviewFeed, QueryError> {
        let grid = PixelGrid::of(&request.wall_ns, request.pixels);
        let (bits, first) = grid.map_or((0, request.wall_ns.start), |grid| (grid.bits, grid.first));
        let fields = Arc::new(DrawnFields::new(&request.values));
        let periods = Arc::new(self.periods(&fields.paths()));
        let filter = ReplayFilter {
            // The first rates and gaps of the range depend on earlier samples.
            since_ns: Some((first << bits).saturating_sub_unsigned(reach_ns(&periods))),
            host: request.host.clone(),
            ..ReplayFilter::default()
        };
        let query = Query { fields: fields.paths(), filter, ..Query::default() };
        let series_max = SERIES_MAX.saturating_mul(request.values.len());
        Ok(OverviewFeed {
            results: self.query(&query)?,
            request: SegmentRequest { fields, is_rate: request.is_rate, bits, series_max, periods },
            run: None,
            ended: Vec::new(),
            events: Vec::new(),
            rows: FeedRows { first, last: HashMap::new() },
            progress: ReadProgress::default(),
        })
    }
}

impl OverviewFeed {
    /// Looks for new segments, and lists the directories for this purpose. New data in the last
    /// segment is read without this call.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub fn refresh(&mut self) -> Result<(), SegmentError> {
        self.results.refresh()
    }

    /// Reads new data while `has_time` returns true. Returns the pixels that ended at or before a
    /// wall time, with the gaps before these pixels. Does not return a pixel twice. Reads little
    /// more data than these pixels need.
    ///
    /// If a sample was written after its pixel was returned, the sample is returned in a second
    /// pixel of the same time.
    ///
    /// # Errors
    /// The same errors as [`QueryResults::next`].
    pub fn advance(
        &mut self,
        until_ns: i64,
        has_time: &mut dyn FnMut() -> bool,
    ) -> Result<FeedPart, QueryError> {
        let mut reached_ns = until_ns;
        while self.progress.complete_ns() < until_ns {
            let Some(item) = self.results.next()? else { break };
            self.progress.observe(&item);
            self.add(item);
            if !has_time() {
                reached_ns = until_ns.min(self.progress.complete_ns());
                break;
            }
        }
        let mut series = std::mem::take(&mut self.ended);
        if let Some(run) = &mut self.run {
            series.extend(self.rows.take(run, reached_ns >> self.request.bits, &self.results));
        }
        // The sort is stable, so the series of an earlier run stay before the series of a later
        // run.
        series.sort_by_key(|series| series.column.order);
        let is_complete = reached_ns == until_ns;
        Ok(FeedPart { series, events: std::mem::take(&mut self.events), is_complete })
    }

    fn add(&mut self, item: QueryItem) {
        match (item, &mut self.run) {
            (QueryItem::Run(run), _) => self.begin_run(run),
            (QueryItem::Batch(batch), Some(run)) => {
                run.add(&batch, self.results.tables(), self.results.elements());
            }
            (QueryItem::Gap(source, gap), Some(run)) => {
                run.add_gap(&source, &gap);
                if !gap.is_thinned() {
                    let wall_ns = |mono_ns: u64| self.progress.wall_ns(mono_ns);
                    let lost_ns = wall_ns(gap.after_mono_ns)..wall_ns(gap.before_mono_ns);
                    self.events.push(FeedEvent::Loss(source, lost_ns));
                }
            }
            (QueryItem::Marker(marker), _) => self.events.push(FeedEvent::Marker(marker)),
            _ => {}
        }
    }

    /// Returns the label of the element with the largest value of a formula at a wall time. Returns
    /// `None` if the formula's fields are not in a list. The feed retains only the latest few of
    /// these elements.
    pub fn largest_element(&self, value: usize, wall_ns: i64) -> Option<&str> {
        let name = self.run.as_ref()?.largest_element(value, wall_ns)?;
        Some(self.results.elements().label(name))
    }

    /// Returns a lower bound on the number of series of the run that are left out. Series are left
    /// out if there are too many elements.
    pub fn left_out(&self) -> u64 {
        self.run.as_ref().map_or(0, RunFold::left_out)
    }

    fn begin_run(&mut self, run: RunInfo) {
        // The run has ended, so its last pixels are complete, too.
        if let Some(mut before) = self.run.replace(RunFold::new(&self.request, run)) {
            self.ended.extend(self.rows.take(&mut before, i64::MAX, &self.results));
        }
    }
}

impl FeedRows {
    /// Removes the cells of a run that have an index below a limit. Returns the series that have
    /// new rows.
    fn take(&mut self, run: &mut RunFold, number: i64, results: &QueryResults) -> Vec<OverviewSeries> {
        let taken = run.take_before(number, results.tables(), results.elements());
        taken.into_iter().filter_map(|series| self.rows(run, series)).collect()
    }

    fn rows(&mut self, run: &RunFold, series: SeriesCells) -> Option<OverviewSeries> {
        let SeriesCells { field, column, element, label, identity, limits, cells, .. } = series;
        let host = run.host.clone();
        let last = self.last.entry((host.clone(), field, element)).or_insert((run.run_id, i64::MAX));
        let mut rows = Vec::new();
        for cell in cells {
            let first_ns = cell.values.first_ns;
            let (before_id, before_ns) = std::mem::replace(last, (run.run_id, cell.values.last_ns));
            // Cells before the first requested pixel are read only to find the last value before
            // the range.
            if cell.number < self.first {
                continue;
            }
            // After the clock was set back, the end of a gap would be before its start, so no gap
            // is added.
            if (cell.is_after_hole || before_id != run.run_id) && before_ns < first_ns {
                rows.push(OverviewRow::Gap(before_ns..first_ns));
            }
            rows.push(OverviewRow::Pixel(cell.values));
        }
        (!rows.is_empty()).then_some(OverviewSeries {
            host,
            column,
            label,
            identity,
            held_ns: limits.series_ns(),
            rows,
        })
    }
}
