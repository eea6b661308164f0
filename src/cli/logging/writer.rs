//! The queue of lines and the thread that writes them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::limit::{BURST, RateLimit, WINDOW_NS};
use super::line::{Line, LineTime, Site};
use crate::os::clock::{ClockReading, monotonic_ns};
use crate::os::thread;

/// Lines that may wait; more are lost and counted. Each is at most a few 8 KiB, most are 200 bytes.
const LINES_MAX: usize = 512;
/// The end waits so long for the last lines.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How often the thread looks whether there is something to be told of lines that are missing.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Who writes a line: a subscriber of its own, which nobody else logs to.
pub(super) struct Sink {
    pub(super) subscriber: Box<dyn Subscriber + Send + Sync>,
    pub(super) time: LineTime,
    pub(super) is_journal: bool,
}

impl Sink {
    fn write(&self, line: Line) {
        self.time.set(line.wall_ns());
        // The journal shows the message alone, and keeps the fields for who asks.
        let line = if self.is_journal { line.with_fields_in_message() } else { line };
        line.log_to(&*self.subscriber);
    }
}

enum Item {
    Line(Line),
    /// Answered when all that was queued before is written.
    Flush(Sender<()>),
}

/// The lines on their way.
pub(super) struct Queue {
    to: Sender<Item>,
    limit: Mutex<RateLimit<Site>>,
    pub(super) left_out: AtomicU64,
    pub(super) lost: AtomicU64,
}

impl fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Queue")
            .field("left_out", &self.left_out)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// Starts the thread, which goes on until the process ends. Where the kernel refuses one, nothing is logged.
    pub(super) fn start(sink: Sink) -> Arc<Self> {
        let (to, from) = bounded(LINES_MAX);
        let (left_out, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        let queue = Arc::new(Self { to, limit: Mutex::new(RateLimit::new()), left_out, lost });
        let thread = thread::spawn("log", {
            let queue = Arc::clone(&queue);
            move || queue.run(&from, &sink)
        });
        drop(thread);
        queue
    }

    /// Waits until what was logged so far is written, a second at most.
    pub(super) fn flush(&self) {
        let (reply, answer) = bounded(1);
        if self.to.send_timeout(Item::Flush(reply), FLUSH_MAX).is_ok() {
            // Whoever reads nothing does not hold up the end.
            let _is_late = answer.recv_timeout(FLUSH_MAX);
        }
    }

    fn push(&self, event: &Event<'_>) {
        if !self.limit().passes(Site(event.metadata()), monotonic_ns()) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let line = Line::copy(event, ClockReading::now().wall_ns);
        if self.to.try_send(Item::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn run(&self, from: &Receiver<Item>, sink: &Sink) {
        let mut told_lost = 0;
        loop {
            let is_idle = self.limit().is_idle() && self.lost.load(Ordering::Relaxed) == told_lost;
            let item = if is_idle {
                from.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                from.recv_timeout(LOOK_INTERVAL)
            };
            match item {
                Ok(Item::Line(line)) => sink.write(line),
                Ok(Item::Flush(reply)) => {
                    // One that no longer waits is no matter.
                    let _gone = reply.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.tell_missing(&mut told_lost);
        }
    }

    /// Logs what is missing, on the way that every line takes: this thread is the one that makes room there.
    fn tell_missing(&self, told_lost: &mut u64) {
        let closed = self.limit().close(monotonic_ns());
        for (Site(site), count) in closed {
            let (file, line) = (site.file().unwrap_or("?"), site.line().unwrap_or(0));
            tracing::warn!(
                lines = count,
                at = %format_args!("{file}:{line}"),
                "log lines were left out: more than {BURST} from one place in {} s",
                WINDOW_NS / 1_000_000_000
            );
        }
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > *told_lost && self.to.len() < LINES_MAX / 2 {
            tracing::warn!(lines = lost - *told_lost, "log lines were lost: nobody took them for a while");
            *told_lost = lost;
        }
    }

    fn limit(&self) -> MutexGuard<'_, RateLimit<Site>> {
        // A panic elsewhere leaves counts that are whole.
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that is logged to.
#[derive(Debug)]
pub(super) struct Forward(Arc<Queue>);

impl Forward {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self(queue)
    }
}

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        self.0.push(event);
    }
}
