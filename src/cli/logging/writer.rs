//! The queue of lines and the thread that writes them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::line::{CallSite, LineTime, LogLine};
use super::rate_limit::{BURST, RateLimit, WINDOW_NS};
use crate::os::clock::{monotonic_ns, read_clocks};
use crate::os::thread;

/// Largest number of waiting lines; more are lost and counted. Most have 200 bytes, each at most a
/// few times 8 KiB.
const LINES_MAX: usize = 512;
/// Longest wait for the last lines at the end.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// Interval at which the thread checks for missing lines to report.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The destination of lines: a subscriber that only the log thread uses.
pub(super) struct LogSink {
    pub(super) subscriber: Box<dyn Subscriber + Send + Sync>,
    pub(super) time: LineTime,
    pub(super) is_journal: bool,
}

impl LogSink {
    fn write(&self, line: LogLine) {
        self.time.set(line.wall_ns());
        // By default the journal shows the message without the fields.
        let line = if self.is_journal { line.with_fields_in_message() } else { line };
        line.log_to(&*self.subscriber);
    }
}

enum LogQueueItem {
    Line(LogLine),
    /// Answered when all lines queued before it are written.
    Flush(Sender<()>),
}

/// The queue of lines.
pub(super) struct LogQueue {
    to: Sender<LogQueueItem>,
    limit: Mutex<RateLimit<CallSite>>,
    pub(super) suppressed: AtomicU64,
    pub(super) lost: AtomicU64,
}

impl fmt::Debug for LogQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Queue")
            .field("left_out", &self.suppressed)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl LogQueue {
    /// Starts the thread, which runs until the process ends. If the kernel refuses a thread,
    /// nothing is logged.
    pub(super) fn start(sink: LogSink) -> Arc<Self> {
        let (to, from) = bounded(LINES_MAX);
        let (left_out, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        let queue = Arc::new(Self { to, limit: Mutex::new(RateLimit::new()), suppressed: left_out, lost });
        let thread = thread::spawn("log", {
            let queue = Arc::clone(&queue);
            move || queue.run(&from, &sink)
        });
        drop(thread);
        queue
    }

    /// Waits until all lines so far are written, at most one second.
    pub(super) fn flush(&self) {
        let (reply, answer) = bounded(1);
        if self.to.send_timeout(LogQueueItem::Flush(reply), FLUSH_MAX).is_ok() {
            // A blocked reader must not delay the end of the program.
            let _is_late = answer.recv_timeout(FLUSH_MAX);
        }
    }

    fn push(&self, event: &Event<'_>) {
        if !self.limit().allows(CallSite(event.metadata()), monotonic_ns()) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let line = LogLine::copy(event, read_clocks().wall_ns);
        if self.to.try_send(LogQueueItem::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn run(&self, from: &Receiver<LogQueueItem>, sink: &LogSink) {
        let mut reported_lost = 0;
        loop {
            let is_idle = self.limit().is_idle() && self.lost.load(Ordering::Relaxed) == reported_lost;
            let item = if is_idle {
                from.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                from.recv_timeout(CHECK_INTERVAL)
            };
            match item {
                Ok(LogQueueItem::Line(line)) => sink.write(line),
                Ok(LogQueueItem::Flush(reply)) => {
                    // The caller may have given up waiting.
                    let _gone = reply.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.report_missing(&mut reported_lost);
        }
    }

    /// Logs the number of missing lines through the queue, which only this thread empties.
    fn report_missing(&self, told_lost: &mut u64) {
        let closed = self.limit().close(monotonic_ns());
        for (CallSite(site), count) in closed {
            let (file, line) = (site.file().unwrap_or("?"), site.line().unwrap_or(0));
            tracing::warn!(
                lines = count,
                at = %format_args!("{file}:{line}"),
                "log lines suppressed: more than {BURST} from one call site in {} s",
                WINDOW_NS / 1_000_000_000
            );
        }
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > *told_lost && self.to.len() < LINES_MAX / 2 {
            tracing::warn!(
                lines = lost - *told_lost,
                "log lines lost: standard error or the journal accepted none for a while"
            );
            *told_lost = lost;
        }
    }

    fn limit(&self) -> MutexGuard<'_, RateLimit<CallSite>> {
        // The counts are consistent even after a panic of another thread.
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layer that puts events into the queue.
#[derive(Debug)]
pub(super) struct QueueLayer(Arc<LogQueue>);

impl QueueLayer {
    pub(super) fn new(queue: Arc<LogQueue>) -> Self {
        Self(queue)
    }
}

impl<S: Subscriber> Layer<S> for QueueLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        self.0.push(event);
    }
}
