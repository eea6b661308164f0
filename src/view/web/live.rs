//! What is recorded now, for all viewers: it is read once, and each of them gets the new rows as
//! events of an answer without end. The page reads them by `fetch`, since `EventSource` sends no
//! token.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use hyper::body::{Body, Bytes, Frame};
use tokio::sync::{mpsc, oneshot};

use super::live_tail::LiveTail;
use super::shown_paths::ShownPaths;
use super::work_budget::WorkBudget;
use crate::os::clock::read_clocks;
use crate::os::thread;

/// Time between two events: four a second look like motion.
const EVENT: Duration = Duration::from_millis(250);
/// How much earlier than now events are: a sample is in the file after 15 ms.
const LAG_NS: i64 = 100_000_000;
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
        let mut tail = LiveTail::new(shown.clone());
        while !viewers.is_empty() {
            match coming.recv_timeout(EVENT) {
                Ok(viewer) => {
                    viewers.push(viewer);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let read = || tail.next(read_clocks().wall_ns.saturating_sub(LAG_NS)).encode();
            let event = budget.run(read);
            viewers.retain(|viewer| viewer.events.try_send(event.clone()).is_ok());
        }
    }
}
