//! Configuration errors: what is wrong, where, and what to write instead.

use std::fmt;
use std::io::{self, ErrorKind};

use flatcap_text::quantity::format_size;

use super::expected_value::{ExpectedValue, listed};
use super::instance_name::INSTANCE_NAME_BYTES_MAX;
use super::name_hint::NameHint;
use super::value_error::ValueError;

/// Errors that are kept; a file with more is not a configuration, and the rest is only counted.
pub const ERRORS_MAX: usize = 100;

/// Variables of a table that a message shows: all of any table with keys.
const TABLE_VARIABLES_MAX: usize = 16;

/// All errors of one configuration. Never empty.
#[derive(Debug)]
pub struct ConfigErrors {
    // 1 <= kept.len() <= ERRORS_MAX
    kept: Vec<ConfigError>,
    more: usize,
}

/// One error of a configuration.
#[derive(Debug)]
pub struct ConfigError {
    /// The location of the error.
    pub location: ConfigLocation,
    /// The table and the key, as in `[source.cpu] period`; `None` if the problem is not one of a
    /// key.
    pub key: Option<String>,
    /// The value as written; `None` if the problem is not one of a value.
    pub value: Option<String>,
    /// The problem.
    pub problem: Problem,
}

/// The location of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigLocation {
    /// A file as a whole, or a default that the file does not override.
    File(String),
    /// A line and column of a file.
    Line {
        /// The file's name.
        file: String,
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
    },
    /// An argument of the command line, as written.
    Argument(String),
    /// An environment variable.
    Variable(String),
    /// A built-in default: neither a file nor a variable sets the value.
    Default,
}

/// A problem of a setting. Each message ends with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The system cannot open or read the file: check its path and permissions.
    #[error("cannot be read: {}{}", .0, unreadable_hint(.0))]
    Unreadable(#[source] io::Error),
    /// Longer than any configuration: probably the wrong file.
    #[error("larger than {}, the limit of a configuration file", format_size(*limit))]
    FileTooLarge {
        /// Largest allowed size, in bytes.
        limit: u64,
    },
    /// Not a regular file: a directory, pipe, block device or socket.
    #[error("is {found}; write the path of a file")]
    NotAFile {
        /// The kind of file that was found.
        found: &'static str,
    },
    /// Files and variables that are each small enough, but too large together.
    #[error(
        "exceeds the limit of {} for all files and variables together; shorten or remove some",
        format_size(*limit)
    )]
    AllTooLarge {
        /// Largest allowed sum, in bytes.
        limit: u64,
    },
    /// More drop-ins in one directory than is sensible.
    #[error("contains more than {limit} .toml files; merge some")]
    TooManyFiles {
        /// Largest allowed number.
        limit: usize,
    },
    /// More variables than is sensible.
    #[error("more than {limit} variables set the configuration; write a file instead")]
    TooManyVariables {
        /// Largest allowed number.
        limit: usize,
    },
    /// A variable that names no setting.
    #[error("no such setting; {}", VariableHint { near, of_table })]
    UnknownVariable {
        /// The variable that was probably meant.
        near: Option<String>,
        /// The variables of the table that it names.
        of_table: Vec<String>,
    },
    /// A variable whose name matches several instances.
    #[error("ambiguous: matches the instances {}; set the value in a file", listed(names, "and"))]
    AmbiguousVariable {
        /// The matching instances.
        names: Vec<String>,
    },
    /// A variable that is not UTF-8.
    #[error("not UTF-8; write it as UTF-8")]
    VariableNotUtf8,
    /// A file that is not UTF-8.
    #[error("byte {offset} is not UTF-8; save the file as UTF-8")]
    NotUtf8 {
        /// Offset of the first invalid byte.
        offset: usize,
    },
    /// Not TOML. Nothing else in the file is checked; an unclosed bracket hides what follows it.
    #[error("not TOML: {message}")]
    Syntax {
        /// The parser's message.
        message: String,
    },
    /// A key or a table that occurs twice.
    #[error("given twice; keep one")]
    Duplicate,
    /// A key that does not exist in this table.
    #[error("no such key here; {}", NameHint { near, elsewhere, known, what: "the keys are" })]
    UnknownKey {
        /// The key of this table that was probably meant.
        near: Option<String>,
        /// Another table that has this key.
        elsewhere: Option<String>,
        /// All keys of this table.
        known: Vec<String>,
    },
    /// A table that does not exist.
    #[error("no such table; {}", NameHint { near, elsewhere: &None, known, what: "the tables are" })]
    UnknownTable {
        /// The table that was probably meant.
        near: Option<String>,
        /// All tables that are allowed there.
        known: Vec<String>,
    },
    /// A source that does not exist, named on the command line or in another table.
    #[error("no such source; {}", NameHint { near, elsewhere: &None, known, what: "the sources are" })]
    UnknownSource {
        /// The source that was probably meant.
        near: Option<String>,
        /// All sources.
        known: Vec<String>,
    },
    /// A value that the key does not accept.
    #[error("{}", error.with_advice(expected))]
    BadValue {
        /// The reason.
        error: ValueError,
        /// The expected value.
        expected: ExpectedValue,
    },
    /// Patterns for a source that is recorded as a whole.
    #[error("has no effect: this source has no items to include or exclude; remove it")]
    NoChoice,
    /// A required key is missing.
    #[error("missing; {expected}")]
    Missing {
        /// The expected value.
        expected: ExpectedValue,
    },
    /// Not a valid name of an instance.
    #[error("not a valid name; write 1 to {INSTANCE_NAME_BYTES_MAX} of the letters a to z, digits, _ and -")]
    BadInstanceName,
    /// A key directly in a table of instances.
    #[error("no such key here; write a table for each instance, such as [{table}.NAME]")]
    NoInstance {
        /// The table that holds the instances.
        table: String,
    },
    /// Too many instances.
    #[error("more than {limit} instances; merge or remove some")]
    TooManyInstances {
        /// Largest allowed number.
        limit: usize,
    },
    /// More is preallocated than a segment can hold.
    #[error("larger than a segment; write at most segment_size, which is \"{}\"", format_size(*segment_size))]
    PreallocateTooLarge {
        /// The segment size in effect.
        segment_size: u64,
    },
    /// Less is kept than one growing segment and one that is being sealed.
    #[error("less than two segments; write at least \"{}\", or lower segment_size", format_size(*least))]
    RetainTooLittle {
        /// The size of two segments.
        least: u64,
    },
    /// More is protected from removal than is ever kept.
    #[error("more than retain_bytes; write at most \"{}\", or raise retain_bytes", format_size(*retain_bytes))]
    RetainMinTooLarge {
        /// The value of `retain_bytes` in effect.
        retain_bytes: u64,
    },
    /// A setting that another one leaves without effect.
    #[error("has no effect with {key} = {found}; remove it or write {key} = \"{needed}\"")]
    NoEffect {
        /// The other key.
        key: &'static str,
        /// Its value, as TOML.
        found: String,
        /// The value with which the setting has an effect.
        needed: &'static str,
    },
    /// The synthetic source would build frames that the recorder rejects.
    #[error(
        "a frame of {} exceeds frame_max, which is \"{}\"; lower payload or raise [storage] frame_max",
        format_size(*frame),
        format_size(*frame_max)
    )]
    FrameTooLarge {
        /// Size of such a frame, in bytes.
        frame: u64,
        /// The limit in effect.
        frame_max: u64,
    },
    /// A rule that does not fit the sources that are on.
    #[error("{reason}")]
    BadRule {
        /// The fault of the setting, and what to write.
        reason: String,
    },
    /// A source whose samples are to be in the ring alone, without a ring.
    #[error("needs the ring; set [blackbox] window, such as \"5min\", or write mode = \"always\"")]
    ArmedWithoutRing,
    /// All sources are off.
    #[error("no source is enabled; enable at least one")]
    NoSource,
    /// A source named twice on the command line.
    #[error("named twice; name each source once")]
    DuplicateSource,
    /// Sources named on the command line with and without a sign.
    #[error(
        "{} replaces the sources and {} changes them; write + or - before each name or before none",
        name.escape_debug(),
        signed.escape_debug()
    )]
    MixedSelection {
        /// An argument without a sign.
        name: String,
        /// An argument with a sign.
        signed: String,
    },
    /// A source to be removed that is not recorded anyway.
    #[error("is not on; the sources that are on are {}", listed(on, "and"))]
    NotOn {
        /// The sources that are recorded.
        on: Vec<String>,
    },
    /// A source to be removed, with a period.
    #[error("has a period but removes the source; leave out the @ and the period")]
    PeriodOfRemoved,
    /// The memory limit is too small for the shortest queue.
    #[error(
        "too little: {needed} exceeds \"{}\"; write at least \"{}\"",
        format_size(*memory_max),
        format_size(*least)
    )]
    MemoryTooSmall {
        /// The limit in effect.
        memory_max: u64,
        /// The memory needed with the shortest queue, as a sum.
        needed: String,
        /// The smallest sufficient limit, in whole MiB.
        least: u64,
    },
}

impl ConfigErrors {
    /// Keeps the first [`ERRORS_MAX`] errors and counts the others; `errors` is not empty.
    pub(super) fn new(mut errors: Vec<ConfigError>, uncounted: usize) -> Self {
        let more = errors.len().saturating_sub(ERRORS_MAX) + uncounted;
        errors.truncate(ERRORS_MAX);
        Self { kept: errors, more }
    }

    #[cfg(feature = "internals")]
    pub(super) fn one(location: ConfigLocation, problem: Problem) -> Self {
        Self { kept: vec![ConfigError { location, key: None, value: None, problem }], more: 0 }
    }

    /// Returns the errors in this order: errors of files and variables that cannot be read, errors
    /// of settings in the order of the layers and lines, errors of defaults.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.kept.iter()
    }

    /// Returns the number of errors that [`Self::iter`] leaves out. `iter` returns at most
    /// [`ERRORS_MAX`] errors.
    pub fn more(&self) -> usize {
        self.more
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    /// Writes one line per error, without a newline at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.kept.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{error}")?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.problem.source()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if let Some(key) = &self.key {
            f.write_str(key)?;
            if let Some(value) = &self.value {
                write!(f, " = {value}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{}", self.problem)
    }
}

impl fmt::Display for ConfigLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => f.write_str(&printable(file)),
            Self::Line { file, line, column } => write!(f, "{}:{line}:{column}", printable(file)),
            Self::Argument(argument) => f.write_str(argument),
            Self::Variable(name) => write!(f, "environment variable {}", printable(name)),
            Self::Default => f.write_str("built-in default"),
        }
    }
}

/// Returns the text in one line, with control characters escaped: a name may contain any.
pub(super) fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(plain).collect()
}

/// A suggestion for an unknown variable.
struct VariableHint<'a> {
    near: &'a Option<String>,
    of_table: &'a [String],
}

impl fmt::Display for VariableHint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(near) = self.near {
            return write!(f, "did you mean {near}?");
        }
        let mut shown: Vec<String> = self.of_table.iter().take(TABLE_VARIABLES_MAX).cloned().collect();
        if shown.is_empty() {
            return f.write_str(
                "a name is FLATCAP_, the table and the key in capitals, with two underscores between them: \
                 FLATCAP_STORAGE__SEGMENT_SIZE",
            );
        }
        let others = self.of_table.len() - shown.len();
        if others > 0 {
            shown.push(format!("one of {others} others"));
        }
        write!(f, "it names a table; set {}", listed(&shown, "or"))
    }
}

/// Returns what to do about a file that cannot be read, if the error alone does not say it.
fn unreadable_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "; create it, or correct its path",
        ErrorKind::PermissionDenied => "; give the recorder's account read access to it and its directory",
        _ => "",
    }
}
