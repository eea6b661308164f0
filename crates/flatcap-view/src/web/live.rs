//! Streams new rows to all viewers. One thread reads the recording for all viewers. Each viewer
//! gets the rows as events of an endless response. The page reads the events with `fetch`, because
//! `EventSource` cannot send the token.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use flatcap_os::clock::read_clocks;
use flatcap_os::thread;
use hyper::body::{Body, Bytes, Frame};
use tokio::sync::{mpsc, oneshot};

use super::live_tail::LiveTail;
use super::shown_paths::ShownPaths;
use super::work_budget::WorkBudget;

/// Time between two events that are sent to a viewer.
// Four events per second look like motion.
const EVENT: Duration = Duration::from_millis(250);
/// Delay of events relative to the current time, in nanoseconds.
// A sample is written to the file within 15 ms.
const LAG_NS: i64 = 100_000_000;
/// Maximum number of events queued for a viewer. A viewer that falls further behind is
/// disconnected.
const WAITING_MAX: usize = 16;
/// Maximum number of viewers, and maximum number of viewers that wait to be added. If there are
/// more viewers, each new viewer replaces the oldest viewer.
// Half of the connections stay free for requests other than streams. The oldest viewer is replaced
// because it may have stopped reading, which may be detected late.
const VIEWERS_MAX: usize = 32;

/// Streams new rows to viewers. The thread that reads new rows ends when this value is dropped.
#[derive(Debug)]
pub(super) struct LiveHub {
    viewers: Sender<Viewer>,
}

/// A viewer of the page. A viewer that does not read its events is disconnected.
#[derive(Debug)]
struct Viewer {
    events: mpsc::Sender<Bytes>,
    _dropped: oneshot::Sender<()>,
}

/// The events for a viewer, and a receiver that becomes ready when the viewer is disconnected.
#[derive(Debug)]
pub(super) struct LiveEvents {
    pub(super) body: LiveBody,
    pub(super) dropped: oneshot::Receiver<()>,
}

/// The body of an endless response.
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

impl LiveHub {
    /// Starts the thread. The thread reads nothing while there are no viewers.
    ///
    /// # Errors
    /// The kernel refuses to create a thread.
    pub(super) fn start(shown: ShownPaths, budget: WorkBudget) -> io::Result<(Self, JoinHandle<()>)> {
        let (viewers, coming) = bounded(VIEWERS_MAX);
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
        // If the queue is full or the hub has ended, the stream ends immediately.
        let _ended = self.viewers.try_send(Viewer { events, _dropped: on_drop });
        LiveEvents { body: LiveBody(received), dropped }
    }
}

fn serve(coming: &Receiver<Viewer>, shown: &ShownPaths, budget: &WorkBudget) {
    while let Ok(viewer) = coming.recv() {
        let mut viewers = VecDeque::from([viewer]);
        // The tail is created with the first viewer, so that nothing is read without a viewer.
        let mut tail = LiveTail::new(shown.clone());
        while !viewers.is_empty() {
            match coming.recv_timeout(EVENT) {
                Ok(viewer) => {
                    if viewers.len() >= VIEWERS_MAX {
                        viewers.pop_front();
                    }
                    viewers.push_back(viewer);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let read = || tail.next(read_clocks().wall_ns.saturating_sub(LAG_NS)).encode();
            let event = budget.run(read);
            // A viewer whose queue is full does not read, and would only hold memory.
            viewers.retain(|viewer| viewer.events.try_send(event.clone()).is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flatcap_os::throttle::Throttle;
    use flatcap_os::wake_event::WakeEvent;

    use super::*;

    // Proves that viewers that read do not use more than their share of the connections. A further
    // viewer is served, and only the stream of the oldest viewer ends.
    #[test]
    fn the_oldest_viewer_ends() {
        let folder = tempfile::tempdir().unwrap();
        let shown = ShownPaths {
            paths: vec![folder.path().to_owned()],
            host: None,
            host_name: String::new(),
            can_mark: false,
        };
        let budget = WorkBudget::new(Arc::new(Throttle::new(u64::MAX)), Arc::new(WakeEvent::new()));
        let (hub, thread) = LiveHub::start(shown, budget).unwrap();
        let mut viewers = Vec::new();
        for number in 0..=VIEWERS_MAX {
            let mut viewer = hub.join();
            assert!(viewer.body.0.blocking_recv().is_some(), "viewer {number} gets an event");
            viewers.push(viewer);
            for viewer in &mut viewers {
                while viewer.body.0.try_recv().is_ok() {}
            }
        }
        let is_open = |viewer: &mut LiveEvents| {
            matches!(viewer.dropped.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        };
        let open: Vec<bool> = viewers.iter_mut().map(is_open).collect();
        assert!(!open[0] && open[1..].iter().all(|is_open| *is_open), "{open:?}");
        drop(hub);
        thread.join().unwrap();
    }
}
