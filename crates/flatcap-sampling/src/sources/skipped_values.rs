//! Counts the values that a text contains but its sample lacks. Each sample counts its skipped
//! values, and the first skipped value of a source is logged.

use crate::Incomplete;

/// Maximum number of bytes of a text that are logged, which are enough to find the line.
const EXCERPT_BYTES_MAX: usize = 120;

/// The reason why a value of a text is not in the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SkipReason {
    #[error("its value is not a number")]
    NotANumber,
    #[error("its value is not finite, so it is recorded as absent")]
    NotFinite,
    #[error("it is not NAME{{LABELS}} VALUE")]
    NotALine,
    #[error("its time is not recorded: a sample has one time, that of the reading")]
    Time,
    #[error("its name has 0 or more than {bytes_max} bytes")]
    Name { bytes_max: usize },
    #[error("its labels have more than {bytes_max} bytes")]
    Labels { bytes_max: usize },
    #[error("a sample has at most {values_max} values; choose them with include and exclude")]
    TooMany { values_max: usize },
    #[error("it is not JSON from line {line}, column {column} on")]
    NotJson { line: usize, column: usize },
}

/// Counts the values of a text that the sample lacks.
#[derive(Debug)]
pub(super) struct SkippedValues {
    source: String,
    format: &'static str,
    count: u64,
    incomplete: Incomplete,
    log: LogState,
}

/// Whether the first skipped value of the source was logged. Only the first skipped value is
/// logged, because otherwise each sample could cause a log line.
#[derive(Debug)]
enum LogState {
    NothingSkipped,
    ToLog(SkipReason, String), // the reason and the text that does not fit
    Logged,
}

impl SkippedValues {
    /// Creates the counts for the source `source`, whose values have the format `format`.
    pub(super) fn new(source: String, format: &'static str) -> Self {
        Self { source, format, count: 0, incomplete: Incomplete::NONE, log: LogState::NothingSkipped }
    }

    /// Resets the counts for the next text.
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.incomplete = Incomplete::NONE;
    }

    /// Counts a value that should be in the sample. `text` is the part of the source's text that
    /// the sample cannot record. Allocates only for the first value.
    pub(super) fn add(&mut self, reason: SkipReason, text: &[u8]) {
        self.count += 1;
        self.incomplete |= match reason {
            SkipReason::TooMany { .. } => Incomplete::TOO_MANY,
            _ => Incomplete::UNREADABLE,
        };
        if matches!(self.log, LogState::NothingSkipped) {
            let excerpt = text.get(..EXCERPT_BYTES_MAX).unwrap_or(text);
            self.log = LogState::ToLog(reason, String::from_utf8_lossy(excerpt).into_owned());
        }
    }

    /// Counts a value that no sample records, such as a string. The sample is still complete.
    pub(super) fn add_expected(&mut self) {
        self.count += 1;
    }

    /// Returns the number of values of this text that were skipped.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the reasons why values of this text were skipped.
    pub(super) fn incomplete(&self) -> Incomplete {
        self.incomplete
    }

    /// Logs the first skipped value of the source, unless it was already logged.
    pub(super) fn log_once(&mut self) {
        if let LogState::ToLog(reason, text) = &self.log {
            tracing::warn!(
                source = self.source,
                text,
                "does not fit format = \"{}\": {reason}; logged once, and counted in each sample's field skipped",
                self.format
            );
            self.log = LogState::Logged;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the skipped values of each text are counted separately, and that the sample
    // reports the reasons. Only the first skipped text of the source is kept for the log, and it is
    // shortened.
    #[test]
    fn the_first_one_is_logged() {
        let mut skipped = SkippedValues::new("file.x".to_owned(), "pairs");
        skipped.add_expected();
        assert_eq!((skipped.count(), skipped.incomplete()), (1, Incomplete::NONE));
        assert!(matches!(skipped.log, LogState::NothingSkipped));
        skipped.add(SkipReason::NotANumber, &[b'x'; 500]);
        skipped.add(SkipReason::TooMany { values_max: 1 }, b"y");
        assert_eq!(skipped.count(), 3);
        assert_eq!(skipped.incomplete(), Incomplete::UNREADABLE | Incomplete::TOO_MANY);
        let LogState::ToLog(reason, text) = &skipped.log else { panic!() };
        assert_eq!((*reason, text.as_str()), (SkipReason::NotANumber, "x".repeat(120).as_str()));
        skipped.log_once();
        skipped.clear();
        skipped.add(SkipReason::NotALine, b"z");
        assert!(matches!(skipped.log, LogState::Logged));
        assert_eq!((skipped.count(), skipped.incomplete()), (1, Incomplete::UNREADABLE));
    }
}
