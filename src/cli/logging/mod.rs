//! Logging to standard error, or directly to the journal with structured fields.
//!
//! Logging never blocks the caller. A line is formatted and put into a bounded queue, and a
//! separate thread writes it. A full pipe, a stopped terminal or a hanging journal blocks that
//! thread only. Lines that do not fit into the queue are counted. Suppressed lines of a call site
//! that logs too often are also counted.

mod journal_record;
mod rate_limit;
mod writer;

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatcap_control::FILTER_BYTES_MAX;
use flatcap_os::clock::read_clocks;
use flatcap_os::journal::{self, JournalSocket};
use jiff::Timestamp;
use journal_record::JournalLayer;
use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry, reload};
use writer::{LineWriter, LogOutput, LogQueue, RateLimitLayer};

use super::terminal::Output;

/// The least severe level that is logged by default.
const DEFAULT_LEVEL: LevelFilter = LevelFilter::INFO;

/// The log of this process. It is a handle to set the filter and to flush the lines.
#[derive(Debug)]
pub(super) struct Log {
    filter: reload::Handle<Targets, Registry>,
    has_default_filter: bool, // FLATCAP_LOG does not set one
    queue: Arc<LogQueue>,
    format: LineFormat,
}

/// The format in which lines are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineFormat {
    /// Records of the journal.
    Journal,
    /// Lines of text.
    Text { has_colors: bool },
}

impl Log {
    /// Starts logging with the filter of `FLATCAP_LOG`. This function must be called only once per
    /// process.
    pub(super) fn start() -> Self {
        let (filter, mistake) = match env::var_os("FLATCAP_LOG").filter(|text| !text.is_empty()) {
            None => (None, None),
            Some(text) => match parse_filter(&text.to_string_lossy()) {
                Ok(filter) => (Some(filter), None),
                Err(mistake) => (None, Some(mistake)),
            },
        };
        let journal = journal();
        let format = match journal {
            Some(_) => LineFormat::Journal,
            None => LineFormat::Text { has_colors: Output::Stderr.has_colors() },
        };
        let output: LogOutput = match journal {
            // An error of the log itself cannot be logged, so it is ignored.
            Some(journal) => Box::new(move |record| {
                let _unsent = journal.send(record);
            }),
            None => Box::new(|line| {
                let _unwritten = io::stderr().write_all(line);
            }),
        };
        let (subscriber, log) = Self::build(filter, output, format);
        // This fails only if a global subscriber is already set. The existing subscriber is then
        // kept.
        let _is_first = tracing::subscriber::set_global_default(subscriber);
        if let Some(mistake) = mistake {
            tracing::warn!("FLATCAP_LOG is ignored: {mistake}");
        }
        log
    }

    /// Returns the subscriber to install, and the log. Without a filter, the default filter
    /// applies.
    fn build(
        filter: Option<Targets>,
        output: LogOutput,
        format: LineFormat,
    ) -> (impl Subscriber + Send + Sync, Self) {
        let has_default_filter = filter.is_none();
        let (layer, filter) =
            reload::Layer::new(filter.unwrap_or_else(|| Targets::new().with_default(DEFAULT_LEVEL)));
        let queue = LogQueue::start(output);
        let subscriber = Registry::default()
            .with(layer)
            .with(RateLimitLayer(Arc::clone(&queue)))
            .with(format_layer(&queue, format));
        (subscriber, Self { filter, has_default_filter, queue, format })
    }

    /// Limits logging to warnings and errors, unless `FLATCAP_LOG` sets a filter.
    pub(super) fn limit_to_warnings(&self) {
        if self.has_default_filter {
            // This fails only after the subscriber no longer exists.
            let _is_set = self.set_filter("warn");
        }
    }

    /// Replaces the filter.
    pub(super) fn set_filter(&self, text: &str) -> Result<(), String> {
        let filter = parse_filter(text)?;
        self.filter.reload(filter).map_err(|error| error.to_string())
    }

    /// Waits until all lines logged so far are written, but at most one second.
    pub(super) fn flush(&self) {
        self.queue.flush();
    }

    /// Returns whether lines go to the journal. If a plain line on standard error begins with a
    /// number in angle brackets, the journal uses it as the priority.
    pub(super) fn is_journal(&self) -> bool {
        self.format == LineFormat::Journal
    }

    /// Returns the number of lines that the rate limit suppressed, and the number of lines that
    /// were lost because the queue was full.
    pub(super) fn missing_lines(&self) -> [u64; 2] {
        [&self.queue.suppressed, &self.queue.lost].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Parses a filter. Rejects misspelt filters, because the library accepts any word as the name of a
/// target.
fn parse_filter(text: &str) -> Result<Targets, String> {
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
                 module, as in \"info,flatcap_recorder=debug\""
            ));
        }
    }
    directives.join(",").parse().map_err(|error| format!("\"{text}\": {error}"))
}

/// Returns the connection to the journal if standard error is connected to the journal and the
/// socket of the journal can be opened. Otherwise, the journal may still receive plain lines from
/// standard error.
fn journal() -> Option<JournalSocket> {
    journal::is_journal_stream(io::stderr()).then(JournalSocket::connect)?.ok()
}

/// Returns the layer that formats lines and queues them.
fn format_layer<S>(queue: &Arc<LogQueue>, format: LineFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let queue = Arc::clone(queue);
    let LineFormat::Text { has_colors } = format else { return Box::new(JournalLayer(queue)) };
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(move || LineWriter(Arc::clone(&queue)))
        .with_ansi(has_colors)
        .with_target(false)
        // The library would write its internal errors to the stream that has just failed.
        .log_internal_errors(false)
        .with_timer(WallTime);
    Box::new(layer)
}

/// Formats the time of an event as RFC 3339.
struct WallTime;

impl FormatTime for WallTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let time = Timestamp::from_nanosecond(i128::from(read_clocks().wall_ns));
        write!(writer, "{:.6}", time.map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Returns a log that writes text to memory, and the memory with the lines that were written so
    /// far.
    fn in_memory(filter: Option<Targets>) -> (impl Subscriber + Send + Sync, Log, Arc<Mutex<Vec<u8>>>) {
        let out = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&out);
        let output = Box::new(move |line: &[u8]| lines.lock().unwrap().extend_from_slice(line));
        let (subscriber, log) = Log::build(filter, output, LineFormat::Text { has_colors: false });
        (subscriber, log, out)
    }

    // Proves that a filter takes effect when it is set, that an invalid filter changes nothing, and
    // that all lines are written after a flush.
    #[test]
    fn the_filter_is_set_while_running() {
        let (subscriber, log, out) = in_memory(None);
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
        let text = String::from_utf8(out.lock().unwrap().clone()).unwrap();
        // In each line, the level and the message follow the time.
        let said: Vec<&str> = text.lines().map(|line| line.split_once("Z ").unwrap().1.trim()).collect();
        let expected = [
            "WARN warn first",
            "DEBUG debug second",
            "WARN warn second",
            "DEBUG debug third",
            "WARN warn third",
        ];
        assert_eq!(said, expected);
        assert_eq!(log.missing_lines(), [0, 0]);
    }

    // Proves that the limit of a verb hides lines of level `info`, unless FLATCAP_LOG enables them.
    #[test]
    fn the_default_can_be_limited_to_warnings() {
        for (filter, wanted) in [
            (None, &["warn"][..]),
            (Some("info"), &["info", "warn"]),
            (Some("debug"), &["debug", "info", "warn"]),
        ] {
            let (subscriber, log, out) = in_memory(filter.map(|text| parse_filter(text).unwrap()));
            tracing::subscriber::with_default(subscriber, || {
                log.limit_to_warnings();
                tracing::debug!("debug");
                tracing::info!("info");
                tracing::warn!("warn");
            });
            log.flush();
            let text = String::from_utf8(out.lock().unwrap().clone()).unwrap();
            let said: Vec<&str> = text.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
            assert_eq!(said, wanted, "{filter:?}");
        }
    }

    // Proves that an unknown word in a filter is an error and is not accepted as a target without
    // events.
    #[test]
    fn filters_are_read_strictly() {
        for good in [
            "info",
            "DEBUG",
            "off",
            "warn, flatcap_recorder=debug",
            "flatcap=trace",
            "error,flatcap_os::clock=info",
        ] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "verbose",
            "info,",
            "warning",
            "flatcap_recorder",
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
