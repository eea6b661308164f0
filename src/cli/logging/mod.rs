//! Logging to standard error, or directly to the journal with structured fields.
//!
//! Logging never blocks the caller: a line is copied into a bounded queue, and a separate thread
//! writes it. A full pipe, a stopped terminal or a hanging journal blocks that thread only. Lines
//! that do not fit into the queue are counted, and so are suppressed lines of a call site that logs
//! too often.

mod line;
mod rate_limit;
mod writer;

use std::env;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::Subscriber;
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::control::FILTER_BYTES_MAX;
use crate::os::journal;
use line::LineTime;
use writer::{LogQueue, LogSink, QueueLayer};

/// The default filter.
const DEFAULT_FILTER: &str = "info";
/// Prefix of the field names in the journal, as in `FLATCAP_SOURCE`, to avoid conflicts with other
/// programs.
const FIELD_PREFIX: &str = "FLATCAP";

/// The log of this process.
#[derive(Debug)]
pub(super) struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    has_default_filter: bool, // FLATCAP_LOG does not set one
    queue: Arc<LogQueue>,
    is_journal: bool,
}

impl Log {
    /// Starts logging with the filter of `FLATCAP_LOG`. Once per process.
    pub(super) fn start() -> Self {
        let (filter, mistake) = match env::var_os("FLATCAP_LOG").filter(|text| !text.is_empty()) {
            None => (None, None),
            Some(text) => match parse_filter(&text.to_string_lossy()) {
                Ok(filter) => (Some(filter), None),
                Err(mistake) => (None, Some(mistake)),
            },
        };
        let (subscriber, log) = Self::build(filter, sink());
        // Fails only if a global subscriber is already set, which then stays.
        let _is_first = tracing::subscriber::set_global_default(subscriber);
        if let Some(mistake) = mistake {
            tracing::warn!("FLATCAP_LOG is ignored: {mistake}");
        }
        log
    }

    /// Returns the subscriber to install, and the log. Without a filter, the default one applies.
    fn build(filter: Option<EnvFilter>, sink: LogSink) -> (impl Subscriber + Send + Sync, Self) {
        let has_default_filter = filter.is_none();
        let (layer, filter) = reload::Layer::new(filter.unwrap_or_else(|| EnvFilter::new(DEFAULT_FILTER)));
        let is_journal = sink.is_journal;
        let queue = LogQueue::start(sink);
        let subscriber = Registry::default().with(layer).with(QueueLayer::new(Arc::clone(&queue)));
        (subscriber, Self { filter, has_default_filter, queue, is_journal })
    }

    /// Logs only warnings and errors, unless FLATCAP_LOG says otherwise.
    pub(super) fn limit_to_warnings(&self) {
        if self.has_default_filter {
            // Fails only after the subscriber is gone.
            let _is_set = self.set_filter("warn");
        }
    }

    /// Replaces the filter.
    pub(super) fn set_filter(&self, text: &str) -> Result<(), String> {
        let filter = parse_filter(text)?;
        self.filter.reload(filter).map_err(|error| error.to_string())
    }

    /// Waits until all lines so far are written, at most one second.
    pub(super) fn flush(&self) {
        self.queue.flush();
    }

    /// Returns whether lines go to the journal, which reads a number before a plain line on
    /// standard error as its priority.
    pub(super) fn is_journal(&self) -> bool {
        self.is_journal
    }

    /// Returns the number of lines that were suppressed by the rate limit, and of those lost in a
    /// full queue.
    pub(super) fn missing_lines(&self) -> [u64; 2] {
        [&self.queue.suppressed, &self.queue.lost].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Parses a filter and rejects mistakes, because the library accepts any word as the name of a
/// target.
fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    if text.len() > FILTER_BYTES_MAX {
        return Err(format!("the filter has {} bytes; write at most {FILTER_BYTES_MAX}", text.len()));
    }
    let directives: Vec<&str> = text.split(',').map(str::trim).collect();
    for directive in &directives {
        let (target, level) = directive.split_once('=').unwrap_or(("flatcap", directive));
        let is_level = ["off", "error", "warn", "info", "debug", "trace"]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(level.trim()));
        let is_target = !target.is_empty()
            && target.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':');
        if !is_level || !is_target {
            return Err(format!(
                "\"{directive}\" is not a filter; write off, error, warn, info, debug or trace, or one of them for a \
                 module, as in \"info,flatcap::recorder=debug\""
            ));
        }
    }
    EnvFilter::builder().parse(directives.join(",")).map_err(|error| format!("\"{text}\": {error}"))
}

/// Returns the destination of lines.
fn sink() -> LogSink {
    if journal::is_journal_stream(io::stderr()) {
        // If the journal's socket cannot be opened, plain lines on standard error still reach the
        // journal.
        if let Ok(layer) = tracing_journald::layer() {
            let layer = layer
                .with_syslog_identifier("flatcap".to_owned())
                .with_field_prefix(Some(FIELD_PREFIX.to_owned()))
                .with_priority_mappings(PriorityMappings {
                    error: Priority::Error,
                    warn: Priority::Warning,
                    info: Priority::Informational,
                    debug: Priority::Debug,
                    trace: Priority::Debug,
                });
            let subscriber = Box::new(Registry::default().with(layer));
            return LogSink { subscriber, time: LineTime::default(), is_journal: true };
        }
    }
    let time = LineTime::default();
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // An internal error would be written to the stream that just failed, and end this thread.
        .log_internal_errors(false)
        .with_timer(time.clone());
    LogSink { subscriber: Box::new(Registry::default().with(layer)), time, is_journal: false }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A writer that collects its output.
    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    // Proves that a filter takes effect when it is set, that an invalid one changes nothing, and
    // that all lines are written after a flush.
    #[test]
    fn the_filter_is_set_while_running() {
        let (out, time) = (SharedBuffer::default(), LineTime::default());
        let writer = out.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let subscriber = Box::new(Registry::default().with(layer.with_timer(time.clone())));
        let (subscriber, log) = Log::build(None, LogSink { subscriber, time, is_journal: false });
        tracing::subscriber::with_default(subscriber, || {
            let say = |word: &str| {
                tracing::debug!("debug {word}");
                tracing::warn!("warn {word}");
            };
            say("first");
            log.set_filter("flatcap::cli=debug").unwrap();
            say("second");
            log.set_filter("loud").unwrap_err();
            say("third");
            log.set_filter("off").unwrap();
            say("fourth");
        });
        log.flush();
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        let said: Vec<&str> = text.lines().map(|line| line.split("tests: ").nth(1).unwrap()).collect();
        assert_eq!(said, ["warn first", "debug second", "warn second", "debug third", "warn third"]);
        assert_eq!(log.missing_lines(), [0, 0]);
    }

    // Proves that a verb's own limit hides information, but not if FLATCAP_LOG asks for it.
    #[test]
    fn the_default_can_be_limited_to_warnings() {
        for (filter, wanted) in [
            (None, &["warn"][..]),
            (Some("info"), &["info", "warn"]),
            (Some("debug"), &["debug", "info", "warn"]),
        ] {
            let (out, time) = (SharedBuffer::default(), LineTime::default());
            let writer = out.clone();
            let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
            let subscriber = Box::new(Registry::default().with(layer.with_timer(time.clone())));
            let (subscriber, log) =
                Log::build(filter.map(EnvFilter::new), LogSink { subscriber, time, is_journal: false });
            tracing::subscriber::with_default(subscriber, || {
                log.limit_to_warnings();
                tracing::debug!("debug");
                tracing::info!("info");
                tracing::warn!("warn");
            });
            log.flush();
            let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
            let said: Vec<&str> = text.lines().map(|line| line.split("tests: ").nth(1).unwrap()).collect();
            assert_eq!(said, wanted, "{filter:?}");
        }
    }

    // Proves that an unknown word in a filter is an error, not a target that logs nothing.
    #[test]
    fn filters_are_read_strictly() {
        for good in [
            "info",
            "DEBUG",
            "off",
            "warn, flatcap::recorder=debug",
            "flatcap=trace",
            "error,flatcap::os::clock=info",
        ] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "verbose",
            "info,",
            "warning",
            "flatcap::recorder",
            "=debug",
            "flatcap=loud",
            "[span]=info",
            "a b=info",
            "5\n",
        ] {
            let mistake = parse_filter(bad).unwrap_err();
            assert!(mistake.contains("is not a filter; write off, error"), "{bad}: {mistake}");
        }
        let long = "info,".repeat(300);
        assert!(parse_filter(&long).unwrap_err().contains("has 1500 bytes; write at most 1024"));
    }
}
