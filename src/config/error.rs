//! Configuration errors. Each error states the mistake, its location, and the text to write
//! instead.

use std::fmt;

/// Maximum number of errors that are kept. A file with more errors is not a configuration, so the
/// further errors are only counted.
pub const ERRORS_MAX: usize = 100;

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
    /// The table and the key, as in `[source.cpu] period`; `None` if the problem does not belong to
    /// a key.
    pub key: Option<String>,
    /// The value as written; `None` if the problem does not belong to a value.
    pub value: Option<String>,
    /// The problem, and what to do about it.
    pub problem: String,
}

/// The location of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigLocation {
    /// A whole file, or a default that the file does not override.
    File(String),
    /// A line and column of a file.
    Line {
        /// The file's name.
        file: String,
        /// The number of the line, counted from 1.
        line: usize,
        /// The column in characters, counted from 1.
        column: usize,
    },
    /// An argument of the command line, as written.
    Argument(String),
    /// An environment variable.
    Variable(String),
    /// A built-in default that no file and no variable overrides.
    Default,
}

impl ConfigErrors {
    /// Keeps the first [`ERRORS_MAX`] errors and counts the others. `errors` must not be empty.
    pub(super) fn new(mut errors: Vec<ConfigError>, uncounted: usize) -> Self {
        let more = errors.len().saturating_sub(ERRORS_MAX) + uncounted;
        errors.truncate(ERRORS_MAX);
        Self { kept: errors, more }
    }

    #[cfg(feature = "internals")]
    pub(super) fn one(location: ConfigLocation, problem: String) -> Self {
        Self { kept: vec![ConfigError { location, key: None, value: None, problem }], more: 0 }
    }

    /// Returns the errors in a fixed order. The order is: errors of files and variables that cannot
    /// be read, errors of settings by layer and line, errors of defaults.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.kept.iter()
    }

    /// Returns the number of errors that [`Self::iter`] does not return. `iter` returns at most
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

impl std::error::Error for ConfigError {}

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

/// Returns the text in one line. Control characters are escaped, because a name may contain any
/// character.
pub(super) fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(plain).collect()
}
