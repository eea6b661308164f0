//! Reads the overview charts incrementally while the recording grows, so that the cost depends only
//! on new data.

use std::collections::BTreeMap;

use flatcap_format::replay::HostIdentity;
use flatcap_os::clock::monotonic_ns;
use flatcap_query::{OverviewFeed, OverviewRequest, QueryError, Recording};
use hyper::body::Bytes;
use serde::Serialize;

use super::range_answer::{RangeRow, RangeSeries, keep_largest};
use super::shown_paths::ShownPaths;
use crate::catalog::{Catalog, Chart};
use crate::error::ViewError;

/// Length of a row, which is 2^26 ns or 67 ms.
// With this length, one minute has about as many rows as a narrow chart has pixels.
const ROW_NS: i64 = 1 << 26;
/// Maximum length of the time range before an event that the event covers, in nanoseconds. The
/// first event covers a range of this length.
// The newest sample of a source with a long period may be this old when an event is sent.
const BACK_NS: i64 = 10_000_000_000;
/// Maximum reading time per event, in nanoseconds. The next event contains the rows that were not
/// read within this time.
const READ_NS: u64 = 125_000_000;
/// Interval at which the list of charts is refreshed.
// A reload of the configuration may have added sources.
const LOOK_NS: u64 = 10_000_000_000;
/// Interval at which the feeds are reopened.
// Feeds remember all elements that they have seen.
const FEEDS_NS: u64 = 600_000_000_000;
/// Number of events between two checks for new segments.
// Listing a directory costs more than reading further samples.
const LISTING_EVENTS: u64 = 4;

/// An event for the viewers, with the rows that were not sent before.
#[derive(Debug, Serialize)]
pub(super) struct LiveEvent {
    until_ns: String,
    charts: Vec<LiveChart>,
}

#[derive(Debug, Serialize)]
struct LiveChart {
    id: String,
    series: Vec<LiveSeries>,
}

#[derive(Debug, Serialize)]
struct LiveSeries {
    label: Option<String>,
    path: String,
    unit: String,
    rows: Vec<LiveRow>,
}

/// A row: its first and last time as strings, its smallest, largest, first and last value, and its
/// number of values.
type LiveRow = (String, String, Option<f64>, Option<f64>, Option<f64>, Option<f64>, u64);

/// Reads the overview charts incrementally.
#[derive(Debug)]
pub(super) struct LiveTail {
    shown: ShownPaths,
    /// The open feeds. `None` before the first event, and while the recording cannot be read.
    feeds: Option<LiveFeeds>,
    /// The time at which the list of charts was last refreshed.
    looked_ns: Option<u64>,
    events: u64,
    /// For each chart, the time up to which its rows were sent.
    sent_ns: BTreeMap<String, i64>,
    /// The time of the last event.
    until_ns: i64,
}

/// The charts being read.
#[derive(Debug)]
struct LiveFeeds {
    opened_ns: u64,
    charts: Vec<Chart>,
    /// The feed of the charts. `None` for a recording without charts.
    feed: Option<OverviewFeed>,
}

/// The title of a chart, with the series of the chart.
type ReadChart = (String, Vec<RangeSeries>);

impl LiveTail {
    pub(super) fn new(shown: ShownPaths) -> Self {
        let (sent_ns, until_ns) = (BTreeMap::new(), i64::MIN);
        Self { shown, feeds: None, looked_ns: None, events: 0, sent_ns, until_ns }
    }

    /// Returns all rows up to a wall time, except those that were sent before. If the recording
    /// cannot be read, there are no new rows.
    pub(super) fn next(&mut self, until_ns: i64) -> LiveEvent {
        // Only whole rows are sent, because a row that was sent must not change later.
        let until_ns = until_ns.div_euclid(ROW_NS) * ROW_NS;
        let since_ns = until_ns.saturating_sub(BACK_NS);
        // After the clock is set back, no row would be new for a long time, so the state is
        // discarded.
        if until_ns < self.until_ns {
            *self = Self::new(self.shown.clone());
        }
        self.until_ns = until_ns;
        // The error is ignored here, because the page receives it as the answer to its next
        // request.
        let charts = self.read(since_ns, until_ns).unwrap_or_else(|_unreadable| {
            self.feeds = None;
            Vec::new()
        });
        let charts = charts.into_iter().filter_map(|chart| self.unsent(chart, since_ns)).collect();
        LiveEvent { until_ns: until_ns.to_string(), charts }
    }

    fn read(&mut self, since_ns: i64, until_ns: i64) -> Result<Vec<ReadChart>, ViewError> {
        let now_ns = monotonic_ns();
        if self.looked_ns.is_none_or(|looked_ns| now_ns.saturating_sub(looked_ns) >= LOOK_NS) {
            self.looked_ns = Some(now_ns);
            self.look(now_ns, since_ns)?;
        }
        let wants_segments = self.events.is_multiple_of(LISTING_EVENTS);
        self.events += 1;
        let Some(feeds) = &mut self.feeds else { return Ok(Vec::new()) };
        if wants_segments {
            feeds.refresh()?;
        }
        feeds.advance(until_ns)
    }

    /// Reopens the feeds in three cases: the charts of the recording changed, [`FEEDS_NS`] has
    /// elapsed, or the feeds left out elements.
    fn look(&mut self, now_ns: u64, since_ns: i64) -> Result<(), ViewError> {
        let recording = Recording::open(&self.shown.paths)?;
        let charts = Catalog::of(&recording).charts;
        let is_usable = |feeds: &LiveFeeds| {
            let is_full = feeds.feed.as_ref().is_some_and(|feed| feed.left_out() > 0);
            feeds.charts == charts && !is_full && now_ns.saturating_sub(feeds.opened_ns) < FEEDS_NS
        };
        if !self.feeds.as_ref().is_some_and(is_usable) {
            let feeds = LiveFeeds::open(&recording, charts, self.shown.host.as_ref(), since_ns)?;
            self.feeds = Some(LiveFeeds { opened_ns: now_ns, ..feeds });
        }
        Ok(())
    }

    /// Returns the rows of a chart that were not sent before.
    fn unsent(&mut self, (id, series): ReadChart, since_ns: i64) -> Option<LiveChart> {
        let sent_ns = self.sent_ns.get(&id).copied().unwrap_or(since_ns).max(since_ns);
        let series: Vec<LiveSeries> =
            series.into_iter().filter_map(|series| LiveSeries::after(series, sent_ns)).collect();
        let newest_ns = series.iter().filter_map(|series| series.rows.last());
        let newest_ns = newest_ns.filter_map(|row| row.1.parse::<i64>().ok()).max()?;
        self.sent_ns.insert(id.clone(), (newest_ns.div_euclid(ROW_NS) + 1) * ROW_NS);
        Some(LiveChart { id, series })
    }
}

impl LiveFeeds {
    fn open(
        recording: &Recording,
        charts: Vec<Chart>,
        host: Option<&HostIdentity>,
        since_ns: i64,
    ) -> Result<Self, ViewError> {
        let values = charts.iter().map(|chart| chart.drawn().map_err(QueryError::from));
        // The request covers the length of one row with one pixel, because the feed continues with
        // pixels of this length.
        let request = OverviewRequest {
            values: values.collect::<Result<_, _>>()?,
            wall_ns: since_ns..since_ns.saturating_add(ROW_NS),
            pixels: 1,
            is_rate: true,
            host: host.cloned(),
        };
        // A query without fields would read all fields.
        let feed = (!charts.is_empty()).then(|| recording.follow(&request)).transpose()?;
        Ok(Self { opened_ns: 0, charts, feed })
    }

    /// Checks for new segments.
    fn refresh(&mut self) -> Result<(), ViewError> {
        Ok(self.feed.as_mut().map_or(Ok(()), OverviewFeed::refresh)?)
    }

    /// Reads up to a wall time. Returns the new rows.
    fn advance(&mut self, until_ns: i64) -> Result<Vec<ReadChart>, ViewError> {
        let deadline_ns = monotonic_ns() + READ_NS;
        let mut has_time = || monotonic_ns() < deadline_ns;
        let Some(feed) = &mut self.feed else { return Ok(Vec::new()) };
        let titles = self.charts.iter().map(|chart| chart.title.clone());
        let mut read: Vec<ReadChart> = titles.map(|title| (title, Vec::new())).collect();
        for series in feed.advance(until_ns, &mut has_time)?.series {
            // The first number of a series' order is the index of the series' value in the request.
            if let Some((_, own)) = read.get_mut(series.column.order.0) {
                own.push(RangeSeries::of_overview(series));
            }
        }
        for (_, series) in &mut read {
            keep_largest(series);
        }
        Ok(read)
    }
}

impl LiveEvent {
    /// Encodes the event as a server-sent event.
    pub(super) fn encode(&self) -> Bytes {
        // Serialization cannot fail, because the event has only numbers and strings.
        let json = serde_json::to_string(self).unwrap_or_default();
        Bytes::from(format!("data: {json}\n\n"))
    }
}

impl LiveSeries {
    /// Returns the rows of a series after a time, or `None` if there are no such rows.
    fn after(series: RangeSeries, sent_ns: i64) -> Option<Self> {
        let row = |row: &RangeRow| {
            let value = |value: f64| value.is_finite().then_some(value);
            (
                row.first_ns.to_string(),
                row.last_ns.to_string(),
                value(row.min),
                value(row.max),
                value(row.first),
                value(row.last),
                row.count,
            )
        };
        let rows: Vec<LiveRow> = series.rows.iter().filter(|row| row.last_ns >= sent_ns).map(row).collect();
        let RangeSeries { label, path, unit, .. } = series;
        (!rows.is_empty()).then_some(Self { label, path, unit, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_recording::{GrowingRecording, TICKS, wall_ns};
    use crate::web::api_request::{RangeRequest, WallRange};
    use crate::web::recording_reader::RecordingReader;

    /// Maximum number of calls that a test makes to read the whole recording. A recording is read
    /// in fewer calls than this.
    const CALLS: usize = 100;

    /// Rows of all series, by chart, label and path.
    type Rows = BTreeMap<(String, Option<String>, String), Vec<LiveRow>>;

    // Proves that viewers get each row exactly once while the recording grows, and lost samples as
    // gaps. These rows equal the rows that the page gets when it later requests the same range.
    #[test]
    fn viewers_get_the_rows_that_the_page_asks_for() {
        let folder = tempfile::tempdir().unwrap();
        let paths = vec![folder.path().to_owned()];
        let shown = ShownPaths { paths, host: None, host_name: String::new(), can_mark: false };
        let mut recording = GrowingRecording::begin(folder.path());
        let mut tail = LiveTail::new(shown.clone());
        let mut sent = Rows::new();
        let mut ended_ns = 0;
        // On a busy machine, the last event may need more than one call.
        for tick in (0..TICKS).step_by(23).chain([TICKS - 1; CALLS]) {
            recording.grow(tick);
            // Samples reach the file with a delay, so the tail reads up to an earlier time.
            let event = tail.next(wall_ns(tick) - 100_000_000);
            ended_ns = event.until_ns.parse().unwrap();
            for chart in event.charts {
                for LiveSeries { label, path, rows, .. } in chart.series {
                    sent.entry((chart.id.clone(), label, path)).or_default().extend(rows);
                }
            }
        }
        recording.grow(TICKS);
        // The clock is set back before the following calls.
        let mut has_cpu = |until_ns| tail.next(until_ns).charts.iter().any(|chart| chart.id == "cpu");
        for until_ns in [ended_ns - 3_000_000_000, ended_ns - 2_500_000_000] {
            assert!((0..CALLS).any(|_| has_cpu(until_ns)), "{until_ns}");
        }
        recording.seal();

        let mut reader = RecordingReader::open(shown).unwrap();
        let from_ns = wall_ns(0).div_euclid(ROW_NS) * ROW_NS;
        let pixels = u32::try_from((ended_ns - from_ns) / ROW_NS).unwrap();
        let (mut compared, mut gaps) = (0, 0);
        for chart in &tail.feeds.as_ref().unwrap().charts {
            let wall_ns = WallRange { from_ns, to_ns: ended_ns };
            let request = RangeRequest { field: chart.title.clone(), wall_ns, pixels };
            let answer = loop {
                let answer = reader.range(&request).unwrap();
                if answer.is_complete {
                    break answer;
                }
            };
            assert_eq!(answer.pixel_ns, ROW_NS.unsigned_abs());
            for series in answer.series {
                let key = (chart.title.clone(), series.label.clone(), series.path.clone());
                let asked = LiveSeries::after(series, i64::MIN).unwrap().rows;
                let own = sent.remove(&key).unwrap_or_default();
                // A sample of a source with a long period also covers the time before the sample.
                // The rows of that time are sent only after the sample was read.
                let last_ns = own.last().map_or(0, |row| row.1.parse::<i64>().unwrap());
                let asked: Vec<LiveRow> =
                    asked.into_iter().filter(|row| row.1.parse::<i64>().unwrap() <= last_ns).collect();
                assert_eq!(own, asked, "{key:?}");
                assert!(last_ns > ended_ns - 1_100_000_000, "{key:?}");
                compared += 1;
                gaps += own.iter().filter(|row| row.6 == 0).count();
            }
        }
        assert!(compared >= 10 && gaps > 0 && sent.is_empty(), "{compared} {gaps} {:?}", sent.keys());
    }
}
