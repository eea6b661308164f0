//! Text sources, that is, the files and commands that instances read, and the format of their
//! values.

use std::path::PathBuf;
use std::time::Duration;

use flatcap_os::program_guard::Provenance;
use regex::bytes::{Regex, RegexBuilder};

/// Maximum length of a regular expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 1024;
/// Maximum number of elements of a command, which are the program and its arguments.
pub const ARGV_MAX: usize = 64;
/// Maximum length of one element of a command, in bytes.
pub const ARG_BYTES_MAX: usize = 4096;
/// Maximum memory of a compiled expression, in bytes. This limit is far above what 1 KiB of plain
/// text needs, and below what nested repetitions such as `{1000}` in `{1000}` need.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// The text that an instance reads and the format of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextSource {
    /// Origin of the text.
    pub origin: TextOrigin,
    /// Format of the values in the text.
    pub format: ValueFormat,
}

/// The origin of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextOrigin {
    /// A file of the host, given by its absolute path.
    File(PathBuf),
    /// A program's standard output.
    Command(CommandSpec),
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program's absolute path and its arguments. The list is never empty.
    pub argv: Vec<String>,
    /// Time after which the program is killed, 10 ms to 1 min.
    pub timeout: Duration,
    /// The file that sets the command, or `None` if no file sets it, for example in a program that
    /// uses this crate as a library.
    pub defined_in: Option<Provenance>,
}

/// The format of values in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueFormat {
    /// A name and a number in each line.
    Pairs,
    /// A value at each match of an expression.
    Regex(Expression),
    /// The text format of Prometheus.
    Prometheus,
    /// The numbers and bools of one JSON document.
    Json,
}

impl ValueFormat {
    /// Returns the name of the format in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Regex(_) => "regex",
            Self::Prometheus => "prometheus",
            Self::Json => "json",
        }
    }
}

/// A regular expression that captures a value and optionally its name.
#[derive(Debug, Clone)]
pub struct Expression {
    regex: Regex,
    name: Option<usize>, // capture group of the name
    value: usize,        // capture group of the value
}

impl Expression {
    /// Compiles an expression that matches bytes. `^` and `$` match at the start and end of a line.
    ///
    /// # Errors
    /// Returns the reason. Fails if the text is not a valid expression, is too long, is too large
    /// when compiled, or has no group for the value.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > EXPRESSION_BYTES_MAX {
            return Err(format!("an expression has 1 to {EXPRESSION_BYTES_MAX} bytes"));
        }
        // The expression matches bytes, because files and the output of programs need not be UTF-8.
        let regex = RegexBuilder::new(text)
            .unicode(false)
            .multi_line(true)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| reason(&error))?;
        // Without this check, the position of a group with a misspelt name would determine the
        // meaning of the group.
        if let Some(other) = regex.capture_names().flatten().find(|name| !matches!(*name, "name" | "value")) {
            return Err(format!("the group \"{other}\" is neither \"name\" nor \"value\""));
        }
        let named = |wanted: &str| regex.capture_names().position(|name| name == Some(wanted));
        // Group 0, the whole match, always exists, so the subtraction does not underflow.
        let (name, value) = match (named("name"), named("value"), regex.captures_len() - 1) {
            (name, Some(value), _) => (name, value),
            (None, None, 1) => (None, 1),
            (None, None, 2) => (Some(1), 2),
            _ => {
                return Err(
                    "it must capture the value: as (?<value>...), optionally with (?<name>...); or as its \
                     only group; or as the second of two groups, after the name"
                        .to_owned(),
                );
            }
        };
        Ok(Self { regex, name, value })
    }

    /// Returns the expression as written.
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    /// Returns the compiled expression.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }

    /// Returns the capture group with the value's name, or `None` if the value gets the name of the
    /// instance.
    pub fn name_group(&self) -> Option<usize> {
        self.name
    }

    /// Returns the capture group with the value.
    pub(crate) fn value_group(&self) -> usize {
        self.value
    }
}

/// Returns the last line of the library's message. The earlier lines of the message repeat the
/// expression.
fn reason(error: &regex::Error) -> String {
    let message = error.to_string();
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        // Compiled expressions cannot be compared. Since the options are fixed, the text determines
        // the expression.
        self.as_str() == other.as_str()
    }
}

impl Eq for Expression {}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the groups are found in each notation, and that all other expressions are
    // rejected with a reason.
    #[test]
    fn expressions_name_their_value() {
        let groups = |text: &str| {
            Expression::new(text).map(|expression| (expression.name_group(), expression.value_group()))
        };
        assert_eq!(groups(r"^load (\S+)"), Ok((None, 1)));
        assert_eq!(groups(r"(\w+)=(\d+)"), Ok((Some(1), 2)));
        assert_eq!(groups(r"(?<value>\d+) (a|b) (?<name>\w+)"), Ok((Some(3), 1)));
        assert_eq!(groups(r"(a|b) (?P<value>\d+)"), Ok((None, 2)));
        for wrong in [r"\d+", r"(a)(b)(c)", r"(?<name>a) (b)"] {
            assert!(groups(wrong).unwrap_err().starts_with("it must capture the value"), "{wrong}");
        }
        for wrong in [r"(?<nam>\w+) (?<value>\d+)", r"(?<number>\d+)"] {
            assert!(groups(wrong).unwrap_err().ends_with("is neither \"name\" nor \"value\""), "{wrong}");
        }
        assert_eq!(groups("(a").unwrap_err(), "unclosed group");
        assert!(groups("").unwrap_err().starts_with("an expression has"));
        assert!(groups("(a{1000}){1000}").unwrap_err().contains("size"), "{:?}", groups("(a{1000}){1000}"));
    }
}
