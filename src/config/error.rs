//! What is wrong with a configuration, where, and what would be right?

use std::fmt;
use std::io::{self, ErrorKind};

use super::memory::Memory;
use super::readout::INSTANCE_NAME_BYTES_MAX;
use super::units::{UnitError, format_size};
use super::wanted::Wanted;

/// This many errors are kept; a file with more of them is not a configuration, and the rest is counted.
pub const ERRORS_MAX: usize = 100;

/// Everything that is wrong with one configuration, in the order of its lines. Never empty.
#[derive(Debug)]
pub struct ConfigErrors {
    // 1 <= kept.len() <= ERRORS_MAX
    kept: Vec<ConfigError>,
    more: usize,
}

/// One thing that is wrong.
#[derive(Debug)]
pub struct ConfigError {
    /// Where it stands.
    pub place: Place,
    /// The table and the key, as in `[source.cpu] period`; absent where the problem is not a key's.
    pub key: Option<String>,
    /// The value as written; absent where the problem is not a value's.
    pub value: Option<String>,
    /// What is wrong with it.
    pub problem: Problem,
}

/// Where an error stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Somewhere in a file, or in what the file leaves to a default.
    File(String),
    /// At one place of a file.
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
    /// Nowhere: neither a file nor a variable says it.
    Default,
}

impl Problem {
    /// Whether it lies between settings, of which another file may give one: nothing to say of a file alone.
    pub(super) fn is_of_several(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. }
                | Self::TooManyInstances { .. }
                | Self::RegexOnly
                | Self::PreallocateTooLarge { .. }
                | Self::RetainTooLittle { .. }
                | Self::RetainMinTooLarge { .. }
                | Self::IntervalUnused { .. }
                | Self::WideOnly
                | Self::FrameTooLarge { .. }
                | Self::NoSource
                | Self::MemoryTooSmall { .. }
        )
    }
}

/// What is wrong. Each message ends in what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The system would not open or read the file: mind its path and its rights.
    #[error("cannot be read: {}{}", .0, unreadable_hint(.0))]
    Unreadable(#[source] io::Error),
    /// Longer than any configuration: probably another file was meant.
    #[error("larger than {}, the limit of a configuration file", format_size(*limit))]
    FileTooLarge {
        /// Bytes a file may have.
        limit: u64,
    },
    /// Something that has no text of its own, or none that ends.
    #[error("is {found}; write the path of a file")]
    NotAFile {
        /// What it is.
        found: &'static str,
    },
    /// Files and variables that are small enough each, and too much together.
    #[error(
        "too much with what was read before it; all files and variables together may have {}",
        format_size(*limit)
    )]
    AllTooLarge {
        /// Bytes that they may have.
        limit: u64,
    },
    /// More drop-ins in one folder than anybody writes.
    #[error("holds more than {limit} files that end in .toml; merge some")]
    TooManyFiles {
        /// How many there may be.
        limit: usize,
    },
    /// More variables than there are settings worth setting so.
    #[error("one of more than {limit} variables; write a file instead")]
    TooManyVariables {
        /// How many there may be.
        limit: usize,
    },
    /// A variable that names no setting.
    #[error("no such setting; {}", VariableHint(near))]
    UnknownVariable {
        /// The variable that was probably meant.
        near: Option<String>,
    },
    /// A variable in whose name an instance cannot be told from another one.
    #[error("means each of the instances {}; set it in a file", listed(names, "and"))]
    AmbiguousVariable {
        /// The instances.
        names: Vec<String>,
    },
    /// A variable that is no text.
    #[error("not UTF-8; write it as UTF-8")]
    VariableNotUtf8,
    /// Not a text: save it as UTF-8.
    #[error("byte {offset} is not UTF-8; save the file as UTF-8")]
    NotUtf8 {
        /// Bytes before the first bad one.
        offset: usize,
    },
    /// Not TOML. Nothing else of the file is judged while this lasts; a bracket left open hides what follows it.
    #[error("not TOML: {message}")]
    Syntax {
        /// What the parser missed.
        message: String,
    },
    /// A key or a table that was there before: keep one of the two.
    #[error("given twice; keep one")]
    Duplicate,
    /// A key that no table knows, or not this one.
    #[error("no such key here; {}", Hint { near, elsewhere, known, what: "the keys are" })]
    UnknownKey {
        /// The key of this table that was probably meant.
        near: Option<String>,
        /// A table that does have this key.
        elsewhere: Option<String>,
        /// All keys of this table.
        known: Vec<String>,
    },
    /// A table that does not exist.
    #[error("no such table; {}", Hint { near, elsewhere: &None, known, what: "the tables are" })]
    UnknownTable {
        /// The table that was probably meant.
        near: Option<String>,
        /// All tables that could stand there.
        known: Vec<String>,
    },
    /// A source that does not exist, named on the command line or in another table.
    #[error("no such source; {}", Hint { near, elsewhere: &None, known, what: "the sources are" })]
    UnknownSource {
        /// The source that was probably meant.
        near: Option<String>,
        /// All sources.
        known: Vec<String>,
    },
    /// A number where a text belongs, and the like.
    #[error("{found} is not what belongs here; {wanted}")]
    WrongType {
        /// The kind of value that was found.
        found: &'static str,
        /// What to write.
        wanted: Wanted,
    },
    /// Not a duration, not a size.
    #[error("{error}; {wanted}")]
    BadUnit {
        /// What is wrong with the text.
        error: UnitError,
        /// What to write.
        wanted: Wanted,
    },
    /// Patterns for a source that is recorded as a whole.
    #[error("without effect, since this source has nothing to choose from; remove it")]
    NoChoice,
    /// Not a way in which a source is packed.
    #[error("{reason}; {wanted}")]
    BadWay {
        /// What is wrong with it.
        reason: String,
        /// What to write.
        wanted: Wanted,
    },
    /// Not a pattern.
    #[error("\"{}\" is no pattern: {reason}; {wanted}", pattern.escape_debug())]
    BadPattern {
        /// The pattern as written.
        pattern: String,
        /// What is wrong with it.
        reason: String,
        /// What to write.
        wanted: Wanted,
    },
    /// Not a regular expression, or one that does not say what is the value.
    #[error("not a regular expression for values: {reason}; {wanted}")]
    BadExpression {
        /// What is wrong with it.
        reason: String,
        /// What to write.
        wanted: Wanted,
    },
    /// A path that counts from somewhere: write it from the root on.
    #[error("not an absolute path, or one with \"..\"; {wanted}")]
    NotAbsolute {
        /// What to write.
        wanted: Wanted,
    },
    /// Not something that can be run.
    #[error("not a program's absolute path and its arguments; {wanted}")]
    BadCommand {
        /// What to write.
        wanted: Wanted,
    },
    /// A key without which the table means nothing.
    #[error("missing; {wanted}")]
    Missing {
        /// What to write.
        wanted: Wanted,
    },
    /// A name that cannot stand for an instance of a source.
    #[error("not a name; write 1 to {INSTANCE_NAME_BYTES_MAX} of the letters a to z, digits, _ and -")]
    BadInstanceName,
    /// A key where names of instances stand.
    #[error("no such key here; each has a name and a table of its own, such as [{table}.NAME]")]
    NoInstance {
        /// The table that holds the instances.
        table: String,
    },
    /// More instances than there may be.
    #[error("more than {limit} of them; merge some, or leave them out")]
    TooManyInstances {
        /// How many there may be.
        limit: usize,
    },
    /// A word or a number that stands in a list twice.
    #[error("\"{word}\" is named twice; keep one")]
    WordTwice {
        /// The word.
        word: String,
    },
    /// A setting of the other format.
    #[error("without effect, since format = \"pairs\"; remove it or write format = \"regex\"")]
    RegexOnly,
    /// A duration, a size or a number below its range.
    #[error("too small; {wanted}")]
    TooSmall {
        /// What to write.
        wanted: Wanted,
    },
    /// A duration, a size or a number above its range.
    #[error("too large; {wanted}")]
    TooLarge {
        /// What to write.
        wanted: Wanted,
    },
    /// A size that does not divide evenly.
    #[error("not a multiple of {}; {wanted}", format_size(*of))]
    NotMultiple {
        /// Of how many bytes it must be a multiple.
        of: u64,
        /// What to write.
        wanted: Wanted,
    },
    /// A text that no file system takes as a path.
    #[error("not a path, since it is empty or holds a zero byte; {wanted}")]
    BadPath {
        /// What to write.
        wanted: Wanted,
    },
    /// A path that the kernel takes for no socket.
    #[error("not an absolute path, or too long for a socket; {wanted}")]
    BadSocketPath {
        /// What to write.
        wanted: Wanted,
    },
    /// Nothing to listen on.
    #[error("not a port, nor an address and a port; {wanted}")]
    BadSocketAddress {
        /// What to write.
        wanted: Wanted,
    },
    /// A word that this key does not know.
    #[error("not one of the allowed values; {wanted}")]
    NotAllowed {
        /// What to write.
        wanted: Wanted,
    },
    /// More is reserved ahead than a segment can hold.
    #[error("more than a segment holds; write at most segment_size, which is \"{}\"", format_size(*segment_size))]
    PreallocateTooLarge {
        /// The segment size that holds.
        segment_size: u64,
    },
    /// Less is kept than one segment that grows and one that is being finished.
    #[error("less than two segments take; write at least \"{}\", or lower segment_size", format_size(*least))]
    RetainTooLittle {
        /// What two segments take.
        least: u64,
    },
    /// More would never be given up than is ever kept.
    #[error("more than retain_bytes allows; write at most \"{}\", or raise retain_bytes", format_size(*retain_bytes))]
    RetainMinTooLarge {
        /// What may be kept at most.
        retain_bytes: u64,
    },
    /// An interval that nothing looks at.
    #[error("without effect, since sync = \"{sync}\"; remove it or write sync = \"interval\"")]
    IntervalUnused {
        /// What was chosen instead of an interval.
        sync: &'static str,
    },
    /// A setting of the wide shape that nothing looks at.
    #[error("without effect, since shape = \"point\"; remove it or write shape = \"wide\"")]
    WideOnly,
    /// The synthetic source would make frames that the recorder refuses.
    #[error(
        "a frame of {} exceeds frame_max, which is \"{}\"; lower payload or raise [storage] frame_max",
        format_size(*frame),
        format_size(*frame_max)
    )]
    FrameTooLarge {
        /// Bytes of such a frame, all in all.
        frame: u64,
        /// The limit that holds.
        frame_max: u64,
    },
    /// All sources are off.
    #[error("no source is left; enable at least one")]
    NoSource,
    /// A source asked for twice on the command line.
    #[error("asked for twice; name each source once")]
    SourceTwice,
    /// The memory limit holds less than the shortest queue needs.
    #[error(
        "too little: {memory} exceeds \"{}\"; write at least \"{}\"",
        format_size(*memory_max),
        format_size(*least)
    )]
    MemoryTooSmall {
        /// The limit that holds.
        memory_max: u64,
        /// The sum with the shortest queue.
        memory: Box<Memory>,
        /// The least whole MiB that do.
        least: u64,
    },
}

impl ConfigErrors {
    /// Keeps the first [`ERRORS_MAX`] and counts the others; `errors` is not empty.
    pub(super) fn new(mut errors: Vec<ConfigError>, uncounted: usize) -> Self {
        let more = errors.len().saturating_sub(ERRORS_MAX) + uncounted;
        errors.truncate(ERRORS_MAX);
        Self { kept: errors, more }
    }

    pub(super) fn one(place: Place, problem: Problem) -> Self {
        Self { kept: vec![ConfigError { place, key: None, value: None, problem }], more: 0 }
    }

    /// The errors, in the order of the file's lines; those without a line come last.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.kept.iter()
    }

    /// How many more there are than [`Self::iter`] gives, which gives at most [`ERRORS_MAX`].
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
    /// One line an error, without a newline at the end.
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
        write!(f, "{}: ", self.place)?;
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

impl fmt::Display for Place {
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

/// What the writer of an unknown name may have meant.
struct Hint<'a> {
    near: &'a Option<String>,
    elsewhere: &'a Option<String>,
    known: &'a [String],
    what: &'static str,
}

/// The text in one line, without control characters: a name may hold any.
pub(super) fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(plain).collect()
}

/// What the writer of an unknown variable may have meant.
struct VariableHint<'a>(&'a Option<String>);

impl fmt::Display for VariableHint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(near) => write!(f, "did you mean {near}?"),
            None => f.write_str(
                "the names are FLATCAP_, the table and the key in capitals, with two underscores between: \
                 FLATCAP_STORAGE__SEGMENT_SIZE",
            ),
        }
    }
}

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.near, self.elsewhere) {
            (Some(near), _) => write!(f, "did you mean {near}?"),
            (None, Some(table)) => write!(f, "it belongs in [{table}]"),
            (None, None) if self.known.is_empty() => f.write_str("a key stands in a table, such as [agent]"),
            (None, None) => write!(f, "{} {}", self.what, listed(self.known, "and")),
        }
    }
}

/// `a, b and c`
pub(super) fn listed(items: &[String], and: &str) -> String {
    match items {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}

/// What to do about a file that cannot be read, where the error alone does not say it.
fn unreadable_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "; let the account that records read it, and enter its directory",
        _ => "",
    }
}
