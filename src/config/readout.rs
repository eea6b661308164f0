//! What do the instances of `file` and `command` read, and how do they find values in it?

use std::path::PathBuf;
use std::time::Duration;

use regex::bytes::{Regex, RegexBuilder};

use super::word::words;

/// Longest name of an instance, in bytes.
pub const INSTANCE_NAME_BYTES_MAX: usize = 32;
/// Most instances in one configuration.
pub const INSTANCES_MAX: usize = 64;
/// Longest regular expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 1024;
/// Most words of a command.
pub const WORDS_MAX: usize = 64;
/// Longest word of a command, in bytes.
pub const WORD_BYTES_MAX: usize = 4096;
/// Memory that a compiled expression may take: far above what 1 KiB of plain text needs, below what `{1000}` in
/// `{1000}` asks for.
const COMPILED_BYTES_MAX: usize = 1 << 20;

words! {
    /// The word of a [`Format`].
    pub(super) enum FormatWord {
        Pairs = "pairs",
        Regex = "regex",
    }
}

/// What an instance reads and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readout {
    /// Where the text comes from.
    pub origin: Origin,
    /// How values are found in it.
    pub format: Format,
}

/// Where a text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file of the host, by its absolute path.
    File(PathBuf),
    /// A program's standard output.
    Command(Command),
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program's absolute path and its arguments; never empty.
    pub words: Vec<String>,
    /// After this it is killed, 10 ms to 1 min.
    pub timeout: Duration,
    /// The file that names it; none where no file does, as in a program that uses this one as a library.
    pub named_in: Option<Provenance>,
}

/// A configuration file as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Its path as it was given.
    pub path: PathBuf,
    /// Who owns and who may change the file.
    pub file: Rights,
    /// The same of the directory it is in.
    pub directory: Rights,
}

/// Who owns a file, and who may do what with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// The owner.
    pub owner: u32,
    /// The mode's lower twelve bits.
    pub mode: u32,
}

/// How values are found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// A name and a number in each line.
    Pairs,
    /// Wherever an expression matches.
    Regex(Expression),
}

/// A regular expression that captures a value, and perhaps its name.
#[derive(Debug, Clone)]
pub struct Expression {
    regex: Regex,
    name: Option<usize>, // the group of the name
    value: usize,        // the group of the value
}

impl Expression {
    /// Compiles an expression over bytes; `^` and `$` fit at lines.
    ///
    /// # Errors
    /// What is wrong with it: no expression, too long, too large, groups that do not say which is the value.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > EXPRESSION_BYTES_MAX {
            return Err(format!("an expression has 1 to {EXPRESSION_BYTES_MAX} bytes"));
        }
        let regex = RegexBuilder::new(text)
            .unicode(false)
            .multi_line(true)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| reason(&error))?;
        if let Some(other) = regex.capture_names().flatten().find(|name| !matches!(*name, "name" | "value")) {
            return Err(format!("the group \"{other}\" is neither \"name\" nor \"value\""));
        }
        let named = |wanted: &str| regex.capture_names().position(|name| name == Some(wanted));
        let (name, value) = match (named("name"), named("value"), regex.captures_len() - 1) {
            (name, Some(value), _) => (name, value),
            (None, None, 1) => (None, 1),
            (None, None, 2) => (Some(1), 2),
            _ => {
                return Err(
                    "it must capture the value: as (?<value>...), with (?<name>...) if it has one; or as \
                     its only group; or as the second of two, behind the name"
                        .to_owned(),
                );
            }
        };
        Ok(Self { regex, name, value })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    /// Compiled.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }

    /// The group that captures the value's name; none where the instance's own name is meant.
    pub fn name_group(&self) -> Option<usize> {
        self.name
    }

    /// The group that captures the value.
    pub fn value_group(&self) -> usize {
        self.value
    }
}

/// The last line of the library's message, which draws the expression above it.
fn reason(error: &regex::Error) -> String {
    let message = error.to_string();
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Expression {}

impl Format {
    pub(super) fn word(&self) -> FormatWord {
        match self {
            Self::Pairs => FormatWord::Pairs,
            Self::Regex(_) => FormatWord::Regex,
        }
    }
}

/// Whether an instance may be called so: the name stands in commands and files, and in `--source NAME@PERIOD`.
pub(super) fn is_instance_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    (1..=INSTANCE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the groups are found in each way of writing them, and everything else is refused with a reason. Method: by hand.
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

    // Goal: names are short and plain. Method: both sides of each limit.
    #[test]
    fn instance_names_are_plain() {
        for name in ["a", "raid_0-x", &"n".repeat(32)] {
            assert!(is_instance_name(name), "{name}");
        }
        for name in ["", "A", "a.b", "a b", "a@1s", &"n".repeat(33)] {
            assert!(!is_instance_name(name), "{name}");
        }
    }
}
