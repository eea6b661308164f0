//! A sink of the crate `log`. Every record becomes a sample.

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::client::PushClient;
use super::error::SetupError;
use super::log_record::{self, LogRecord, Severity};
use super::source::PushSource;

/// Pushes log records. Install it with `log::set_boxed_logger`, and set `log::set_max_level`.
#[derive(Debug, Clone)]
pub struct LogSink {
    source: PushSource,
    level: LevelFilter,
}

impl LogSink {
    /// Creates a sink for records of at least this level. The records become samples of the source
    /// `name` of a client.
    ///
    /// # Errors
    /// The same errors as [`PushClient::source`].
    pub fn new(client: &PushClient, name: &str, level: LevelFilter) -> Result<Self, SetupError> {
        Ok(Self { source: log_record::source(client, name)?, level })
    }
}

impl Log for LogSink {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= self.level
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let severity = match record.level() {
            Level::Trace => Severity::Trace,
            Level::Debug => Severity::Debug,
            Level::Info => Severity::Info,
            Level::Warn => Severity::Warn,
            Level::Error => Severity::Error,
        };
        let formatted = record.args().as_str().is_none().then(|| record.args().to_string());
        let message = formatted.as_deref().or(record.args().as_str()).unwrap_or_default();
        let (file, line) = (record.file().unwrap_or_default(), record.line().unwrap_or_default());
        let record =
            LogRecord { severity, target: record.target(), message, file, line, duration_ns: 0, fields: &[] };
        record.push(&self.source);
    }

    fn flush(&self) {}
}
