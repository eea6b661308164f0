//! What is recorded now, for all viewers: one query, whose new rows each of them gets as events of
//! an answer without end. The page reads them by `fetch`, since `EventSource` sends no token.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use hyper::body::{Body, Bytes, Frame};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use super::api_request::{RangeRequest, WallRange};
use super::range_answer::{RangeRow, RangeSeries};
use super::recording_reader::RecordingReader;
use super::shown_paths::ShownPaths;
use super::work_budget::WorkBudget;
use crate::os::clock::read_clocks;
use crate::os::thread;

/// Time between two events: four a second look like motion, and each reads all charts.
const EVENT: Duration = Duration::from_millis(250);
/// How much earlier than now events are: a sample is in the file after 15 ms.
const LAG_NS: i64 = 100_000_000;
/// Length of a row: 2^26 ns, 67 ms, so that a minute has as many as a narrow chart has pixels.
const ROW_NS: i64 = 1 << 26;
/// An event goes back at most this far: to the newest sample of sources that are read seldom.
const BACK_NS: i64 = 10_000_000_000;
/// Events that wait for a viewer. One that is further behind is dropped.
const WAITING_MAX: usize = 16;
/// Viewers that wait to be added: as many as there are connections.
const COMING_MAX: usize = 64;

/// Sends what is recorded now to viewers; ends when this is dropped.
#[derive(Debug)]
pub(super) struct LiveHub {
    viewers: Sender<Viewer>,
}

/// A viewer: it is dropped if it does not read.
#[derive(Debug)]
struct Viewer {
    events: mpsc::Sender<Bytes>,
    _dropped: oneshot::Sender<()>,
}

/// The events for a viewer, and what becomes ready when it was dropped.
#[derive(Debug)]
pub(super) struct LiveEvents {
    pub(super) body: LiveBody,
    pub(super) dropped: oneshot::Receiver<()>,
}

/// The body of an answer without end.
#[derive(Debug)]
pub(super) struct LiveBody(mpsc::Receiver<Bytes>);

impl Body for LiveBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[derive(Debug, Serialize)]
struct LiveEvent {
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

/// First and last time as texts, smallest, largest, first and last value, number of values.
type LiveRow = (String, String, Option<f64>, Option<f64>, Option<f64>, Option<f64>, u64);

impl LiveHub {
    /// Starts the thread. It reads nothing while there are no viewers.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(super) fn start(shown: ShownPaths, budget: WorkBudget) -> io::Result<(Self, JoinHandle<()>)> {
        let (viewers, coming) = bounded(COMING_MAX);
        let thread = thread::spawn("live", move || {
            WorkBudget::yield_to_samplers();
            serve(&coming, &shown, &budget);
        })?;
        Ok((Self { viewers }, thread))
    }

    /// Adds a viewer.
    pub(super) fn join(&self) -> LiveEvents {
        let (events, received) = mpsc::channel(WAITING_MAX);
        let (on_drop, dropped) = oneshot::channel();
        // Without a place, or a hub, the events end at once.
        let _ended = self.viewers.try_send(Viewer { events, _dropped: on_drop });
        LiveEvents { body: LiveBody(received), dropped }
    }
}

fn serve(coming: &Receiver<Viewer>, shown: &ShownPaths, budget: &WorkBudget) {
    while let Ok(viewer) = coming.recv() {
        let mut viewers = vec![viewer];
        let Ok(reader) = RecordingReader::open(shown.clone()) else { continue };
        let mut tail = LiveTail { reader, sent_ns: BTreeMap::new() };
        while !viewers.is_empty() {
            match coming.recv_timeout(EVENT) {
                Ok(viewer) => {
                    viewers.push(viewer);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // A recording that cannot be read has no new rows; the page learns why when it asks.
            let read = || tail.next(read_clocks().wall_ns.saturating_sub(LAG_NS));
            let event = budget.run(read);
            viewers.retain(|viewer| viewer.events.try_send(event.clone()).is_ok());
        }
    }
}

/// Reads the charts of the overview on.
struct LiveTail {
    reader: RecordingReader,
    /// Up to which time rows of each chart were sent.
    sent_ns: BTreeMap<String, i64>,
}

impl LiveTail {
    /// Returns the event with everything up to a wall time that was not sent before.
    fn next(&mut self, until_ns: i64) -> Bytes {
        let until_ns = until_ns.div_euclid(ROW_NS) * ROW_NS;
        let mut charts = Vec::new();
        for id in self.reader.chart_titles() {
            let least_ns = until_ns.saturating_sub(BACK_NS);
            let sent_ns = self.sent_ns.get(&id).copied().unwrap_or(least_ns).max(least_ns);
            // One row more, so that a gap after the last one is seen.
            let from_ns = sent_ns.saturating_sub(ROW_NS);
            let rows = u32::try_from((until_ns - from_ns) / ROW_NS).unwrap_or(1);
            if until_ns <= sent_ns {
                continue;
            }
            let wall_ns = WallRange { from_ns, to_ns: until_ns };
            let request = RangeRequest { field: id.clone(), wall_ns, pixels: rows };
            // One that fails, such as a path that is ambiguous since a reload, keeps back no other.
            let Ok(answer) = self.reader.range(&request) else { continue };
            let series: Vec<LiveSeries> =
                answer.series.into_iter().filter_map(|series| LiveSeries::after(series, sent_ns)).collect();
            let newest_ns = series.iter().filter_map(|series| series.rows.last());
            let newest_ns = newest_ns.filter_map(|row| row.1.parse::<i64>().ok()).max();
            if let Some(newest_ns) = newest_ns {
                self.sent_ns.insert(id.clone(), (newest_ns.div_euclid(ROW_NS) + 1) * ROW_NS);
                charts.push(LiveChart { id, series });
            }
        }
        let event = LiveEvent { until_ns: until_ns.to_string(), charts };
        // Numbers and texts always serialize.
        let json = serde_json::to_string(&event).unwrap_or_default();
        Bytes::from(format!("data: {json}\n\n"))
    }
}

impl LiveSeries {
    /// Returns the rows after a time; none without any.
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
