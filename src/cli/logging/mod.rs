//! Log lines: to standard error, or straight to the journal with their fields.
//!
//! Whoever logs waits for nobody: a line is copied into a queue of limited length, and a thread of its own writes it. A pipe that
//! nobody reads, a stopped terminal or a journal that hangs holds up that thread alone; lines that find the queue full are
//! counted, and so are those of a call site that logs too often.

mod limit;
mod line;
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
use writer::{Forward, Queue, Sink};

/// What is logged where nothing else is said.
const DEFAULT_FILTER: &str = "info";
/// In front of the name of each field of a line in the journal, which would else stand among those of others: `FLATCAP_SOURCE`.
const FIELD_PREFIX: &str = "FLATCAP";

/// The log of this process.
#[derive(Debug)]
pub(super) struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    queue: Arc<Queue>,
    is_journal: bool,
}

impl Log {
    /// Logs from now on, by `FLATCAP_LOG`. Only once in a process.
    pub(super) fn start() -> Self {
        let (filter, mistake) = match env::var_os("FLATCAP_LOG").filter(|text| !text.is_empty()) {
            None => (EnvFilter::new(DEFAULT_FILTER), None),
            Some(text) => match parse_filter(&text.to_string_lossy()) {
                Ok(filter) => (filter, None),
                Err(mistake) => (EnvFilter::new(DEFAULT_FILTER), Some(mistake)),
            },
        };
        let (subscriber, log) = Self::wire(filter, sink());
        // It fails only where somebody else logs already; then that goes on.
        let _is_first = tracing::subscriber::set_global_default(subscriber);
        if let Some(mistake) = mistake {
            tracing::warn!("FLATCAP_LOG is passed over, the log is as by \"{DEFAULT_FILTER}\": {mistake}");
        }
        log
    }

    /// What is logged to, and the rest of it.
    fn wire(filter: EnvFilter, sink: Sink) -> (impl Subscriber + Send + Sync, Self) {
        let (layer, filter) = reload::Layer::new(filter);
        let is_journal = sink.is_journal;
        let queue = Queue::start(sink);
        let subscriber = Registry::default().with(layer).with(Forward::new(Arc::clone(&queue)));
        (subscriber, Self { filter, queue, is_journal })
    }

    /// Logs by this filter from now on.
    pub(super) fn set_filter(&self, text: &str) -> Result<(), String> {
        let filter = parse_filter(text)?;
        self.filter.reload(filter).map_err(|error| error.to_string())
    }

    /// Waits until what was logged so far is written, a second at most.
    pub(super) fn flush(&self) {
        self.queue.flush();
    }

    /// Whether lines go to the journal, which takes a number in front of a plain line of standard error for its priority.
    pub(super) fn is_journal(&self) -> bool {
        self.is_journal
    }

    /// Lines left out since their call site logged too often, and lines lost since nobody took them.
    pub(super) fn missing(&self) -> [u64; 2] {
        [&self.queue.left_out, &self.queue.lost].map(|count| count.load(Ordering::Relaxed))
    }
}

/// A filter, with its mistakes named: the library takes every word for the name of a target.
fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    if text.len() > FILTER_BYTES_MAX {
        return Err(format!("the filter has {} bytes, at most {FILTER_BYTES_MAX} are read", text.len()));
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
                "\"{directive}\" is no filter; give off, error, warn, info, debug or trace, or one of them for a part, as in \
                 \"info,flatcap::recorder=debug\""
            ));
        }
    }
    EnvFilter::builder().parse(directives.join(",")).map_err(|error| format!("\"{text}\": {error}"))
}

/// Where lines go.
fn sink() -> Sink {
    if journal::takes(io::stderr()) {
        // Without a journal behind its name, standard error is as good as it ever was.
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
            return Sink { subscriber, time: LineTime::default(), is_journal: true };
        }
    }
    let time = LineTime::default();
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // Its complaint would go where the line could not go, and end this thread.
        .log_internal_errors(false)
        .with_timer(time.clone());
    Sink { subscriber: Box::new(Registry::default().with(layer)), time, is_journal: false }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    // Goal: the filter holds from the moment it is set, a wrong one changes nothing, and all that was logged is there after a flush.
    // Method: a log into memory.
    #[test]
    fn the_filter_is_set_while_running() {
        let (out, time) = (Shared::default(), LineTime::default());
        let writer = out.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let subscriber = Box::new(Registry::default().with(layer.with_timer(time.clone())));
        let (subscriber, log) =
            Log::wire(EnvFilter::new("info"), Sink { subscriber, time, is_journal: false });
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
        assert_eq!(log.missing(), [0, 0]);
    }

    // Goal: a filter says what it says, and a word that is none is named instead of taken for a target that logs nothing. Method:
    // what people write.
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
            assert!(mistake.contains("is no filter; give off, error"), "{bad}: {mistake}");
        }
        let long = "info,".repeat(300);
        assert!(parse_filter(&long).unwrap_err().contains("has 1500 bytes, at most 1024"));
    }
}
