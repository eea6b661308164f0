//! Overviews. An overview contains the values of fields, aggregated over time (a rollup), to draw a
//! range of time.
//!
//! An overview reads every value. Reading only the bounds of columns would be far faster (0.15 s
//! for a day at 1 kHz, 2026-11-23), but the bounds contain neither last values nor rates. Moreover,
//! a block can be as long as half a pixel, so its bounds would not fit the pixels.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use flatcap_format::replay::{HostIdentity, ReplayFilter};
use flatcap_format::segment::{ListedSegment, SealState, SelectedSegment, list, select};

use super::cache::{OverviewCache, SummaryKey};
use super::drawn_value::{DrawnFields, DrawnValue};
use super::pixel::PixelGrid;
use super::segment_overview::SegmentOverview;
use super::series_cells::HoleLimits;
use super::series_rows::{OverviewRows, OverviewSeries};
use super::table_fold::SegmentRequest;
use crate::error::QueryError;
use crate::names::path::FieldPath;
use crate::recording::{RecordedSource, Recording};
use crate::request::Query;

/// Sealed segments are summarized in cells of 2^30 ns, which is about 1.1 s.
// Pixels of this length or longer consist of cells. Shorter pixels cover so little time that the
// segments are read again.
const CELL_BITS: u32 = 30;
/// Maximum number of rows of an overview. The limit keeps the series below about 20 MB.
const ROWS_MAX: usize = 1 << 18;
/// Maximum number of series of an overview.
pub(super) const SERIES_MAX: usize = 512;

/// A request for an overview.
#[derive(Debug, Clone)]
pub struct OverviewRequest {
    /// The values to draw.
    pub values: Vec<DrawnValue>,
    /// The range of time to draw, in wall nanoseconds.
    pub wall_ns: Range<i64>,
    /// The number of pixels, at most 16,384.
    pub pixels: u32,
    /// Whether counters are drawn as their change per second. Counters in formulas are always drawn
    /// as their change per second.
    pub is_rate: bool,
    /// The host. `None` for all hosts.
    pub host: Option<HostIdentity>,
}

/// The values of fields in each pixel. A pixel contains the samples whose wall time is in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    /// The range that was drawn, which is the requested range extended to whole pixels.
    pub wall_ns: Range<i64>,
    /// Length of a pixel, in nanoseconds. The length is the smallest power of two that results in
    /// at most the requested number of pixels, plus one pixel at the edge. Because lengths are
    /// powers of two, a pixel of one overview consists of whole pixels of an overview with shorter
    /// pixels.
    pub pixel_ns: u64,
    /// The series that have values, in the order of the request.
    pub series: Vec<OverviewSeries>,
    /// Lower bound on the number of series that were left out because one overview cannot contain
    /// so many series.
    pub left_out: u64,
    /// Number of damaged ranges, of segments that cannot be read, and of samples that do not fit
    /// their schema.
    pub unreadable: u64,
    /// Whether the whole range was read. Otherwise the series end earlier, and another call
    /// continues the reading.
    pub is_complete: bool,
}

impl Recording {
    /// Summarizes values pixel by pixel. The summary is exact, because the smallest and the largest
    /// value of a pixel include every sample, even a spike that lasts one sample.
    ///
    /// The rate of a counter covers the time since the previous sample that contains the counter's
    /// element. The rate belongs to the later of the two samples. The rate has no value at the
    /// first sample of a run, at a sample where the counter decreased, and after a long time
    /// without a value. The maximum time without a value is three seconds or four periods,
    /// whichever is longer.
    ///
    /// A gap is an interval in which samples were lost, the recorder did not run, or a value was
    /// missing for more than four periods. For an element of a list, a value must be missing for at
    /// least three seconds. A gap between two pixels is a separate row. The duration of a gap
    /// within a pixel is added to the pixel's `missing_ns`.
    ///
    /// # Errors
    /// The same errors as [`query`](Self::query).
    pub fn overview(
        &self,
        request: &OverviewRequest,
        cache: &mut OverviewCache,
    ) -> Result<Overview, QueryError> {
        self.overview_until(request, cache, &mut || false)
    }

    /// Summarizes values like [`overview`](Self::overview), but may end early. Calls `is_due`
    /// before each sealed segment whose summary is not in the cache, except before the first such
    /// segment. If `is_due` returns true, the result covers only the earlier segments. If the cache
    /// is too small for the range, ignores `is_due` and reads the whole range.
    ///
    /// # Errors
    /// The same errors as [`query`](Self::query).
    pub fn overview_until(
        &self,
        request: &OverviewRequest,
        cache: &mut OverviewCache,
        is_due: &mut dyn FnMut() -> bool,
    ) -> Result<Overview, QueryError> {
        let filter = ReplayFilter { host: request.host.clone(), ..ReplayFilter::default() };
        let fields = Arc::new(DrawnFields::new(&request.values));
        let whole = Query { fields: fields.paths(), filter, ..Query::default() };
        self.check(&whole)?;
        let Some(grid) = PixelGrid::of(&request.wall_ns, request.pixels) else {
            return Ok(Overview::empty(request.wall_ns.clone()));
        };
        let wall_ns = grid.wall_ns();
        let periods = Arc::new(self.periods(&whole.fields));
        // The first rates and gaps of the range depend on earlier samples.
        let (since_ns, until_ns) = (wall_ns.start.saturating_sub_unsigned(reach_ns(&periods)), wall_ns.end);
        let mut part = whole.clone();
        (part.filter.since_ns, part.filter.until_ns) = (Some(since_ns), Some(until_ns));
        let question = request.question(&periods);
        let series_max = (ROWS_MAX / grid.count).clamp(1, SERIES_MAX);
        let mut rows = OverviewRows::new(grid, series_max);
        // At least one segment is summarized in each call, so that repeated calls reach the end.
        let (mut unreadable, mut summarized, mut is_complete) = (0, 0, true);
        // If the cache has no memory for all summaries, repeated calls would never reach the end.
        let dropped = cache.dropped();
        let listings = list(self.paths())?;
        for segment in select(listings.clone(), Some(since_ns), Some(until_ns), None) {
            let (is_rate, periods, fields) = (request.is_rate, Arc::clone(&periods), Arc::clone(&fields));
            // An open segment grows, so its summary is valid only for this call.
            let is_cached = is_sealed(&segment) && grid.bits >= CELL_BITS;
            let summary = if is_cached {
                // A later request with fewer pixels may show more series than this request, so the
                // summary keeps the maximum number of series.
                let (bits, series_max) = (CELL_BITS, SERIES_MAX);
                let reading = SegmentRequest { fields, is_rate, bits, series_max, periods };
                let key = SummaryKey::new(&segment.listing.path, &question);
                if let Some(known) = cache.get(&key) {
                    known
                } else if summarized > 0 && cache.dropped() == dropped && is_due() {
                    is_complete = false;
                    break;
                } else {
                    summarized += 1;
                    // The summary covers the whole segment, so that it serves all later ranges.
                    let segment = SelectedSegment { mono_ns: None, ..segment };
                    let parts = (lead(&segment, &listings, &reading), segment);
                    let summary =
                        Arc::new(SegmentOverview::read(parts, (&whole, self.namesakes()), &reading)?);
                    cache.insert(key, &summary);
                    summary
                }
            } else {
                let reading = SegmentRequest { fields, is_rate, bits: grid.bits, series_max, periods };
                let parts = (lead(&segment, &listings, &reading), segment);
                Arc::new(SegmentOverview::read(parts, (&part, self.namesakes()), &reading)?)
            };
            unreadable += summary.unreadable;
            summary.runs.iter().for_each(|run| rows.add(run));
        }
        let (series, left_out) = rows.finish();
        Ok(Overview { wall_ns, pixel_ns: 1 << grid.bits, series, left_out, unreadable, is_complete })
    }

    /// For each source that may have one of these fields, returns its longest period.
    pub(super) fn periods(&self, fields: &[FieldPath]) -> BTreeMap<String, u64> {
        let mut periods = BTreeMap::new();
        let is_wanted = |source: &&RecordedSource| fields.iter().any(|path| path.may_be_of(&source.name));
        for source in self.sources().iter().filter(is_wanted) {
            let known: &mut u64 = periods.entry(source.name.clone()).or_default();
            *known = (*known).max(source.period_ns);
        }
        periods
    }
}

impl OverviewRequest {
    /// Returns all parameters on which summaries of segments depend, as a string.
    fn question(&self, periods: &BTreeMap<String, u64>) -> Arc<str> {
        // Periods are included, because they determine gaps and may change with a reload.
        format!("{:?} {} {:?} {periods:?}", self.values, self.is_rate, self.host).into()
    }
}

impl Overview {
    fn empty(wall_ns: Range<i64>) -> Self {
        Self { wall_ns, pixel_ns: 1, series: Vec::new(), left_out: 0, unreadable: 0, is_complete: true }
    }
}

/// Returns whether a segment is sealed. A sealed segment does not change.
fn is_sealed(segment: &SelectedSegment) -> bool {
    segment.listing.name.is_some_and(|name| name.state == SealState::Sealed)
}

/// Selects the last part of the previous segments of the same run. The selected part is as long as
/// the time on which values in this segment depend.
fn lead(
    segment: &SelectedSegment,
    listings: &[ListedSegment],
    reading: &SegmentRequest,
) -> Vec<SelectedSegment> {
    let mut leads = Vec::new();
    let (Some(mut name), true) = (segment.listing.name, reading.fields.has_changes()) else { return leads };
    let header = |listing: &ListedSegment| Some(listing.open_without_index().ok()??.header().clone());
    let Some(own) = header(&segment.listing) else { return leads };
    // A sample may be older than the file into which it is written.
    let begin_ns = own.clocks.mono_ns.saturating_sub(own.reorder_window_ns);
    let begin_ns = begin_ns.saturating_sub(reach_ns(&reading.periods));
    let folder = segment.listing.path.parent();
    let is_of_run = |listing: &&ListedSegment| {
        listing.path.parent() == folder && listing.name.is_some_and(|other| other.run_id == name.run_id)
    };
    let run: Vec<&ListedSegment> = listings.iter().filter(is_of_run).collect();
    while let Some(number) = name.number.checked_sub(1)
        && let Some(before) = run.iter().find(|own| own.name.is_some_and(|own| own.number == number))
        && let Some(header) = header(before)
    {
        leads.insert(0, SelectedSegment { listing: (*before).clone(), mono_ns: Some(begin_ns..u64::MAX) });
        if header.clocks.mono_ns <= begin_ns {
            break;
        }
        name.number = number;
    }
    leads
}

/// Returns how long before a range a sample may be and still affect values in the range, in
/// nanoseconds.
pub(super) fn reach_ns(periods: &BTreeMap<String, u64>) -> u64 {
    let reaches = periods.values().map(|period_ns| HoleLimits::of(*period_ns, true).reach_ns());
    // Monotonic time and wall time drift by less than one second.
    reaches.max().unwrap_or_default().saturating_add(1_000_000_000)
}
