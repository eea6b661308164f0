//! Reads the values of charts up to a time that advances. Keeps the extrema of each step, and the
//! latest values.

use std::collections::VecDeque;
use std::ops::Range;

use flatcap_format::replay::HostIdentity;
use flatcap_format::segment::Marker;
use flatcap_query::{
    DrawnValue, FeedEvent, OverviewFeed, OverviewRequest, OverviewRow, PixelValues, QueryError, Recording,
    held_ns,
};

use super::catalog::Chart;
use super::error::ViewError;
use super::step_columns::{StepColumn, StepColumns};

/// Maximum number of values kept per chart.
// With this number of values, nothing is read again when the user steps back by some samples.
const RECENT_MAX: usize = 1024;
/// Maximum number of markers kept. Older markers are dropped.
const MARKERS_MAX: usize = 1000;

/// A feed of the values of some charts.
#[derive(Debug)]
pub struct ChartFeed {
    /// A feed whose pixels are one nanosecond long, so that each sample has its own pixel.
    feed: OverviewFeed,
    charts: Vec<Chart>,
    series: Vec<ChartSeries>,
    /// Losses that were already read but begin after the time that the feed has reached.
    losses: Vec<(String, Range<i64>)>,
    markers: VecDeque<Marker>,
    from_ns: i64,
}

/// The values of one chart.
#[derive(Debug)]
pub struct ChartSeries {
    columns: StepColumns,
    /// Times and values, the oldest value first.
    recent: VecDeque<(i64, f64)>,
    /// Whether older values were dropped.
    has_forgotten: bool,
    /// Whether the values are changes since the previous sample.
    is_change: bool,
    is_after_gap: bool,
    held_ns: i64,
}

impl ChartFeed {
    /// Starts to read charts at a wall time, in steps of the given length.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn open(
        recording: &Recording,
        charts: &[Chart],
        host: Option<&HostIdentity>,
        (from_ns, step_ns): (i64, i64),
    ) -> Result<Self, ViewError> {
        let values = charts.iter().map(|chart| DrawnValue::of_formula(&chart.source, &chart.formula));
        let values: Result<_, _> = values.collect();
        // The value that holds at the first step is from an earlier sample. A source without a
        // period may have had its last value long ago, so such a value is not searched for.
        let timed = charts.iter().filter(|chart| chart.period_ns > 0);
        let lead_ns = timed.map(|chart| held_ns(chart.period_ns, false)).max().unwrap_or_default();
        let since_ns = from_ns.saturating_sub_unsigned(lead_ns);
        let request = OverviewRequest {
            values: values.map_err(QueryError::from)?,
            wall_ns: since_ns..since_ns.saturating_add(1),
            pixels: 1,
            is_rate: true,
            host: host.cloned(),
        };
        Ok(Self {
            feed: recording.follow(&request)?,
            charts: charts.to_vec(),
            series: charts.iter().map(|chart| ChartSeries::new(chart, from_ns, step_ns)).collect(),
            losses: Vec::new(),
            markers: VecDeque::new(),
            from_ns,
        })
    }

    /// Reads up to a wall time while `has_time` returns true. Returns whether the feed reached that
    /// time.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn advance(&mut self, until_ns: i64, has_time: &mut dyn FnMut() -> bool) -> Result<bool, ViewError> {
        // The pixel that begins at the requested time is also needed.
        let part = self.feed.advance(until_ns.saturating_add(1), has_time)?;
        for event in part.events {
            match event {
                FeedEvent::Loss(source, lost_ns) => self.losses.push((source, lost_ns)),
                FeedEvent::Marker(marker) => self.markers.push_back(marker),
            }
        }
        self.markers.drain(..self.markers.len().saturating_sub(MARKERS_MAX));
        for (source, lost_ns) in self.losses.extract_if(.., |(_, lost_ns)| lost_ns.start <= until_ns) {
            for (chart, series) in self.charts.iter().zip(&mut self.series) {
                if chart.source == source {
                    // The samples before and after the loss exist, so the steps of these samples
                    // are not marked as lost.
                    series.columns.add_loss(lost_ns.start.saturating_add(1), lost_ns.end.saturating_sub(1));
                }
            }
        }
        for series in part.series {
            let Some(own) = self.series.get_mut(series.column.order.0) else { continue };
            own.held_ns = i64::try_from(series.held_ns).unwrap_or(i64::MAX);
            for row in &series.rows {
                match row {
                    OverviewRow::Gap(_) => own.is_after_gap = true,
                    OverviewRow::Pixel(values) => own.add(values),
                }
            }
        }
        Ok(part.is_complete)
    }

    /// Checks for new segments. New samples are read without this call.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn refresh(&mut self) -> Result<(), ViewError> {
        Ok(self.feed.refresh()?)
    }

    /// Returns whether the values at a wall time are known without reading earlier samples.
    pub fn covers(&self, wall_ns: i64) -> bool {
        let is_known = |series: &ChartSeries| {
            !series.has_forgotten || series.recent.front().is_some_and(|(at, _)| *at <= wall_ns)
        };
        wall_ns >= self.from_ns && self.series.iter().all(is_known)
    }

    /// Returns the values of the charts, in the order of the charts.
    pub fn series(&self) -> &[ChartSeries] {
        &self.series
    }

    /// Returns the value of a chart at a wall time, and the label of the element with this value.
    pub fn value(&self, chart: usize, wall_ns: i64) -> Option<(f64, Option<&str>)> {
        let value = self.series.get(chart)?.at(wall_ns)?;
        Some((value, self.feed.largest_element(chart, wall_ns)))
    }

    /// Returns the newest markers, sorted from the oldest to the newest.
    pub fn markers(&self) -> impl DoubleEndedIterator<Item = &Marker> {
        self.markers.iter()
    }
}

impl ChartSeries {
    fn new(chart: &Chart, from_ns: i64, step_ns: i64) -> Self {
        Self {
            columns: StepColumns::new(step_ns, from_ns),
            recent: VecDeque::new(),
            has_forgotten: false,
            is_change: chart.formula.has_counters(),
            is_after_gap: false,
            held_ns: 0,
        }
    }

    /// Returns the last `count` steps up to the step that contains `until_ns`, the oldest first.
    /// After the newest sample, the value of this sample is shown until it is too old.
    pub fn columns(&self, count: usize, until_ns: i64) -> Vec<StepColumn> {
        let last = self.columns.number(until_ns);
        let held = self.at(until_ns);
        let held_from = self.recent.back().map_or(i64::MAX, |(at, _)| self.columns.number(*at));
        let first = last.saturating_sub(i64::try_from(count).unwrap_or(i64::MAX) - 1);
        let column = |number: i64| {
            let column = self.columns.get(number);
            // A step without a value before the newest value had no sample, so no value is held in
            // this step.
            let is_held = column.extrema.is_none() && number > held_from;
            StepColumn {
                extrema: column.extrema.or(held.filter(|_| is_held).map(|held| (held, held))),
                ..column
            }
        };
        (first..=last).map(column).collect()
    }

    /// Returns the value at a wall time.
    fn at(&self, wall_ns: i64) -> Option<f64> {
        let after = self.recent.partition_point(|(at, _)| *at <= wall_ns);
        let (at, value) = self.recent.get(after.checked_sub(1)?)?;
        (wall_ns.saturating_sub(*at) <= self.held_ns).then_some(*value)
    }

    fn add(&mut self, values: &PixelValues) {
        let (wall_ns, value) = (values.last_ns, values.last);
        let is_after_gap = std::mem::take(&mut self.is_after_gap);
        let before = self.recent.back().copied();
        match before.filter(|(at, _)| !is_after_gap && *at < wall_ns) {
            // A change covers the time since the previous sample.
            Some((at, _)) if self.is_change => self.columns.add(at + 1, wall_ns, value),
            Some((at, held)) => self.columns.add(at, wall_ns - 1, held),
            None => {}
        }
        self.columns.add(wall_ns, wall_ns, values.min);
        self.columns.add(wall_ns, wall_ns, values.max);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
            self.has_forgotten = true;
        }
        self.recent.push_back((wall_ns, value));
    }
}
