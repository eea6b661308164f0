//! The queue of lines and the thread that writes them.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::thread;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::rate_limit::{BURST, RateLimit, WINDOW_NS};

/// Maximum number of lines that wait in the queue. Further lines are lost and counted. Most lines
/// have 200 bytes.
const LINES_MAX: usize = 512;
/// Maximum length of a line, and of each field in the journal, in bytes. Longer strings are cut.
pub(super) const TEXT_BYTES_MAX: usize = 16 << 10;
/// Maximum time to wait until the last lines are written when the program ends.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// Interval at which the thread checks whether lost lines must be reported.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Writes a line to its destination. Only the log thread calls it.
pub(super) type LogOutput = Box<dyn FnMut(&[u8]) + Send>;

/// A call site in the source code, identified by file and line.
type CallSite = (&'static str, u32);

enum LogQueueItem {
    Line(Vec<u8>),
    /// A request that is answered when all lines queued before it are written.
    Flush(Sender<()>),
}

/// The queue of lines that wait to be written.
pub(super) struct LogQueue {
    to: Sender<LogQueueItem>,
    limit: Mutex<RateLimit<CallSite>>,
    pub(super) suppressed: AtomicU64,
    pub(super) lost: AtomicU64,
}

impl fmt::Debug for LogQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LogQueue")
            .field("suppressed", &self.suppressed)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl LogQueue {
    /// Starts the thread, which runs until the process ends. If the kernel refuses to create the
    /// thread, nothing is logged.
    pub(super) fn start(output: LogOutput) -> Arc<Self> {
        let (to, from) = bounded(LINES_MAX);
        let (suppressed, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        let queue = Arc::new(Self { to, limit: Mutex::new(RateLimit::new()), suppressed, lost });
        let thread = thread::spawn("log", {
            let queue = Arc::clone(&queue);
            move || queue.run(&from, output)
        });
        drop(thread);
        queue
    }

    /// Waits until all lines logged so far are written, but at most one second.
    pub(super) fn flush(&self) {
        let (reply, answer) = bounded(1);
        if self.to.send_timeout(LogQueueItem::Flush(reply), FLUSH_MAX).is_ok() {
            // A blocked reader of the log must not delay the end of the program.
            let _is_late = answer.recv_timeout(FLUSH_MAX);
        }
    }

    /// Queues a line, or counts it as lost.
    pub(super) fn push(&self, line: Vec<u8>) {
        if self.to.try_send(LogQueueItem::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn run(&self, from: &Receiver<LogQueueItem>, mut output: LogOutput) {
        let mut reported_lost = 0;
        loop {
            let is_idle = self.limit().is_idle() && self.lost.load(Ordering::Relaxed) == reported_lost;
            let item = if is_idle {
                from.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                from.recv_timeout(CHECK_INTERVAL)
            };
            match item {
                Ok(LogQueueItem::Line(line)) => output(&line),
                Ok(LogQueueItem::Flush(reply)) => {
                    // The caller may no longer wait for this reply.
                    let _gone = reply.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.report_missing(&mut reported_lost);
        }
    }

    /// Logs the number of lost lines. The line goes through the queue that only this thread
    /// empties, so this function must not wait for space.
    fn report_missing(&self, reported_lost: &mut u64) {
        let closed = self.limit().close(monotonic_ns());
        for ((file, line), count) in closed {
            tracing::warn!(
                lines = count,
                at = %format_args!("{file}:{line}"),
                "log lines suppressed: more than {BURST} from one call site in {} s",
                WINDOW_NS / 1_000_000_000
            );
        }
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > *reported_lost && self.to.len() < LINES_MAX / 2 {
            tracing::warn!(
                lines = lost - *reported_lost,
                "log lines lost: standard error or the journal accepted none for a while"
            );
            *reported_lost = lost;
        }
    }

    fn limit(&self) -> MutexGuard<'_, RateLimit<CallSite>> {
        // Another thread may have panicked while it held the lock, but the counts are consistent
        // even then.
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layer that drops and counts lines of call sites that log too often. It does so before the
/// lines are formatted.
#[derive(Debug)]
pub(super) struct RateLimitLayer(pub(super) Arc<LogQueue>);

impl<S: Subscriber> Layer<S> for RateLimitLayer {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let site = (metadata.file().unwrap_or("?"), metadata.line().unwrap_or(0));
        let is_allowed = self.0.limit().allows(site, monotonic_ns());
        if !is_allowed {
            self.0.suppressed.fetch_add(1, Ordering::Relaxed);
        }
        is_allowed
    }
}

/// Queues formatted lines. Each call of `write` is one line.
#[derive(Debug)]
pub(super) struct LineWriter(pub(super) Arc<LogQueue>);

impl io::Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let mut line = one_line(text.strip_suffix('\n').unwrap_or(&text)).into_owned();
        line.push('\n');
        self.0.push(line.into_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a string without line breaks, cut at the maximum length. Otherwise, readers of the log
/// would treat each line of the string as a separate event.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    let text = if text.contains('\n') { text.replace('\n', "; ").into() } else { Cow::from(text) };
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    // A character has up to four bytes, and 0 is always a boundary.
    let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{} ...", text.get(..end).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a string never exceeds the limit and stays on one line, also with multi-byte
    // characters and line breaks.
    #[test]
    fn texts_are_cut_at_their_limit() {
        assert_eq!(one_line("a\nb"), "a; b");
        let text = "a".repeat(TEXT_BYTES_MAX);
        assert_eq!(one_line(&text), text);
        assert_eq!(one_line(&format!("{text}\u{20ac}")), format!("{text} ..."));
        let wide = "\u{20ac}".repeat(TEXT_BYTES_MAX);
        assert!(one_line(&wide).len() <= TEXT_BYTES_MAX + 4 && one_line(&wide).ends_with("\u{20ac} ..."));
        assert!(one_line(&"\n".repeat(TEXT_BYTES_MAX)).starts_with("; ; "));
    }
}
