//! Reads the values of charts up to a moving time: extrema of each step, and the latest values.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use flatcap_format::replay::HostIdentity;
use flatcap_format::segment::Marker;
use flatcap_query::{ChangeTime, ElementName, FieldReading, FormulaHistory, Recording, exact_path};

use super::catalog::Chart;
use super::error::ViewError;
use super::step_columns::{StepColumn, StepColumns};
use super::stream::{SampleStream, StreamRequest, StreamState, StreamVisitor, StreamedRows};

/// Maximum number of values kept per chart.
// With these, a step back by some samples reads nothing.
const RECENT_MAX: usize = 1024;
/// Maximum number of markers kept; older ones are dropped.
const MARKERS_MAX: usize = 1000;
/// Maximum number of elements of a list; further elements are left out.
const ELEMENTS_MAX: usize = 1 << 14;
/// Number of periods for which the last value is current.
// A source may miss one tick.
const PERIODS_HELD: i64 = 2;
/// The period assumed for a source without one.
const PERIOD_DEFAULT_NS: u64 = 1_000_000_000;

/// The values of some charts.
#[derive(Debug)]
pub struct ChartFeed {
    stream: SampleStream,
    fold: ChartFold,
    from_ns: i64,
}

/// The values of one chart.
#[derive(Debug)]
pub struct ChartSeries {
    columns: StepColumns,
    /// Time, value and element, the oldest first.
    recent: VecDeque<(i64, f64, Option<ElementName>)>,
    /// Whether older values were dropped.
    has_forgotten: bool,
    held_ns: i64,
}

#[derive(Debug)]
struct ChartFold {
    charts: Vec<Chart>,
    /// Chart and field of each path in the query.
    owners: Vec<(usize, usize)>,
    /// By table: its charts, with the column of each of their fields.
    bindings: Vec<Vec<BoundChart>>,
    series: Vec<ChartSeries>,
    /// By chart, source id and element.
    histories: HashMap<(usize, u16, Option<u32>), (i64, FormulaHistory)>,
    swept_ns: i64,
    markers: VecDeque<Marker>,
}

#[derive(Debug)]
struct BoundChart {
    chart: usize,
    columns: Vec<Option<usize>>,
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
        let (mut fields, mut owners, mut lead_ns) = (Vec::new(), Vec::new(), 0);
        for (number, chart) in charts.iter().enumerate() {
            for (at, field) in chart.formula.fields.iter().enumerate() {
                fields.push(exact_path(&chart.source, &field.path));
                owners.push((number, at));
            }
            // The change of the first values is computed from earlier samples.
            lead_ns = lead_ns.max(change_time(chart).most_ns);
        }
        let since_ns = from_ns.saturating_sub_unsigned(lead_ns);
        let stream = SampleStream::open(recording, &StreamRequest { fields, host: host.cloned(), since_ns })?;
        let series = charts.iter().map(|chart| ChartSeries::new(chart, from_ns, step_ns)).collect();
        let fold = ChartFold {
            charts: charts.to_vec(),
            owners,
            bindings: Vec::new(),
            series,
            histories: HashMap::new(),
            swept_ns: i64::MIN,
            markers: VecDeque::new(),
        };
        Ok(Self { stream, fold, from_ns })
    }

    /// Reads up to a wall time while `has_time` returns true. Returns whether the feed reached that
    /// time.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn advance(&mut self, until_ns: i64, has_time: &mut dyn FnMut() -> bool) -> Result<bool, ViewError> {
        Ok(self.stream.advance(until_ns, has_time, &mut self.fold)? == StreamState::Reached)
    }

    /// Checks for new samples of a running recorder, and for new segments if `wants_segments`.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn refresh(&mut self, wants_segments: bool) -> Result<(), ViewError> {
        self.stream.refresh(wants_segments)
    }

    /// Returns whether the values at a wall time are known without reading earlier samples.
    pub fn covers(&self, wall_ns: i64) -> bool {
        let is_known = |series: &ChartSeries| {
            !series.has_forgotten || series.recent.front().is_some_and(|(at, ..)| *at <= wall_ns)
        };
        wall_ns >= self.from_ns && self.fold.series.iter().all(is_known)
    }

    /// Returns the values of the charts, in their order.
    pub fn series(&self) -> &[ChartSeries] {
        &self.fold.series
    }

    /// Returns the value of a chart at a wall time, and the label of its element.
    pub fn value(&self, chart: usize, wall_ns: i64) -> Option<(f64, Option<&str>)> {
        let series = self.fold.series.get(chart)?;
        let (value, element) = series.at(wall_ns)?;
        Some((value, element.map(|element| self.stream.elements().label(element))))
    }

    /// Returns the newest markers, the oldest first.
    pub fn markers(&self) -> impl DoubleEndedIterator<Item = &Marker> {
        self.fold.markers.iter()
    }
}

fn period_ns(chart: &Chart) -> u64 {
    if chart.period_ns == 0 { PERIOD_DEFAULT_NS } else { chart.period_ns }
}

/// Returns how long a value of a source with this period stays current, in nanoseconds.
fn held_ns(period_ns: u64) -> i64 {
    i64::try_from(period_ns).unwrap_or(i64::MAX).saturating_mul(PERIODS_HELD)
}

fn change_time(chart: &Chart) -> ChangeTime {
    let period_ns = period_ns(chart);
    let resolution_ns = chart.formula.resolution_ns;
    // A source that its budget slows down is read at every second, third, ... tick.
    let most_ns = period_ns.saturating_mul(5).max(resolution_ns * 3).max(2 * PERIOD_DEFAULT_NS);
    ChangeTime { wanted_ns: resolution_ns, least_ns: resolution_ns, most_ns }
}

impl ChartSeries {
    fn new(chart: &Chart, from_ns: i64, step_ns: i64) -> Self {
        Self {
            columns: StepColumns::new(step_ns, from_ns),
            recent: VecDeque::new(),
            has_forgotten: false,
            held_ns: held_ns(period_ns(chart)),
        }
    }

    /// Returns the last `count` steps up to the step of `until_ns`, the oldest first. The last
    /// value stays current for two periods.
    pub fn columns(&self, count: usize, until_ns: i64) -> Vec<StepColumn> {
        let last = self.columns.number(until_ns);
        let held = self.at(until_ns).map(|(value, _)| value);
        let held_from = self.recent.back().map_or(i64::MAX, |(at, ..)| self.columns.number(*at));
        let first = last.saturating_sub(i64::try_from(count).unwrap_or(i64::MAX) - 1);
        let column = |number: i64| {
            let column = self.columns.get(number);
            // Steps before the newest value that lack one had no sample, so nothing is held there.
            let is_held = column.extrema.is_none() && number > held_from;
            StepColumn {
                extrema: column.extrema.or(held.filter(|_| is_held).map(|held| (held, held))),
                ..column
            }
        };
        (first..=last).map(column).collect()
    }

    /// Returns the value and the element at a wall time.
    fn at(&self, wall_ns: i64) -> Option<(f64, Option<ElementName>)> {
        let after = self.recent.partition_point(|(at, ..)| *at <= wall_ns);
        let (at, value, element) = self.recent.get(after.checked_sub(1)?)?;
        (wall_ns.saturating_sub(*at) <= self.held_ns).then_some((*value, *element))
    }

    fn add(&mut self, wall_ns: i64, value: f64, element: Option<ElementName>, is_change: bool) {
        let before = self.recent.back().copied();
        match before.filter(|(at, ..)| (1..=self.held_ns).contains(&wall_ns.saturating_sub(*at))) {
            // A change per second covers the time since the previous sample.
            Some((at, ..)) if is_change => self.columns.add_between(at.saturating_add(1), wall_ns, value),
            Some((at, held, _)) => self.columns.add_between(at, wall_ns.saturating_sub(1), held),
            None => {}
        }
        self.columns.add(wall_ns, value);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
            self.has_forgotten = true;
        }
        self.recent.push_back((wall_ns, value, element));
    }
}

impl ChartFold {
    /// Finds the charts in tables that were added since the last call.
    fn bind(&mut self, rows: StreamedRows<'_>) {
        for table in rows.tables.iter().skip(self.bindings.len()) {
            let mut bound: Vec<BoundChart> = Vec::new();
            for (column, info) in table.columns.iter().enumerate() {
                let Some((chart, field)) = self.owners.get(info.order).copied() else { continue };
                let fields = self.charts.get(chart).map_or(0, |chart| chart.formula.fields.len());
                let place = bound.iter().position(|bound| bound.chart == chart).unwrap_or_else(|| {
                    bound.push(BoundChart { chart, columns: vec![None; fields] });
                    bound.len() - 1
                });
                if let Some(place) = bound.get_mut(place).and_then(|bound| bound.columns.get_mut(field)) {
                    *place = Some(column);
                }
            }
            self.bindings.push(bound);
        }
    }

    /// Drops elements that were not seen for a long time.
    fn sweep(&mut self, wall_ns: i64) {
        const SWEEP_NS: i64 = 10_000_000_000;
        if wall_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = wall_ns;
            self.histories.retain(|_, (seen_ns, _)| wall_ns.saturating_sub(*seen_ns) < SWEEP_NS * 3);
        }
    }
}

impl StreamVisitor for ChartFold {
    fn begin_run(&mut self) {
        // Counters begin again with the run.
        self.histories.clear();
    }

    fn add_rows(&mut self, rows: StreamedRows<'_>) {
        self.bind(rows);
        let Self { charts, bindings, series, histories, .. } = self;
        let batch = rows.batch;
        let Some(bound) = bindings.get(batch.table) else { return };
        for bound in bound {
            let (Some(chart), Some(series)) = (charts.get(bound.chart), series.get_mut(bound.chart)) else {
                continue;
            };
            let time = change_time(chart);
            let is_change = chart.formula.has_counters();
            // The largest value among the elements of a sample.
            let mut largest: Option<(usize, f64, Option<ElementName>)> = None;
            let mut put = |largest: &mut Option<(usize, f64, Option<ElementName>)>| {
                if let Some((sample, value, element)) = largest.take()
                    && let Some(wall_ns) = batch.times.wall_ns.get(sample)
                {
                    series.add(*wall_ns, value, element, is_change);
                }
            };
            for row in rows.first..rows.end {
                let sample = batch.sample(row);
                if largest.is_some_and(|(own, ..)| own != sample) {
                    put(&mut largest);
                }
                let (Some(mono_ns), Some(wall_ns)) =
                    (batch.times.mono_ns.get(sample), batch.times.wall_ns.get(sample))
                else {
                    continue;
                };
                let element = batch.element(row);
                let number =
                    |column: &Option<usize>| FieldReading::of(batch.columns.get((*column)?)?.get(row));
                let numbers: Vec<Option<FieldReading>> = bound.columns.iter().map(number).collect();
                let key = (bound.chart, batch.source, element);
                if histories.len() >= ELEMENTS_MAX && !histories.contains_key(&key) {
                    continue;
                }
                let (seen_ns, history) = histories.entry(key).or_default();
                *seen_ns = *wall_ns;
                let value = history.value(&chart.formula, *mono_ns, &numbers, time);
                if let Some(value) = value.filter(|value| largest.is_none_or(|(_, most, _)| *value > most)) {
                    largest = Some((sample, value, batch.name(row)));
                }
            }
            put(&mut largest);
        }
        let last = batch.times.wall_ns.get(batch.sample(rows.end.saturating_sub(1)));
        if let Some(wall_ns) = last {
            self.sweep(*wall_ns);
        }
    }

    fn add_gap(&mut self, source: &str, lost_ns: Range<i64>) {
        for (chart, series) in self.charts.iter().zip(&mut self.series) {
            if chart.source == source {
                // The samples before and after the loss exist, so their own steps are not lost.
                series.columns.add_loss(lost_ns.start.saturating_add(1), lost_ns.end.saturating_sub(1));
            }
        }
    }

    fn add_thinned(&mut self, source: &str, count: u64, time_ns: u64) {
        for (chart, series) in self.charts.iter().zip(&mut self.series) {
            // The values hold: the source was recorded as often as intended.
            let is_explained =
                time_ns / PERIODS_HELD.unsigned_abs() <= count.saturating_mul(period_ns(chart));
            if chart.source == source && is_explained {
                series.held_ns = series.held_ns.max(held_ns(time_ns));
            }
        }
    }

    fn add_marker(&mut self, marker: Marker) {
        if self.markers.len() >= MARKERS_MAX {
            self.markers.pop_front();
        }
        self.markers.push_back(marker);
    }
}
