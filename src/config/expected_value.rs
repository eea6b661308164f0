//! The values that a key accepts, that is, their type, limits and notation.

use std::fmt;
use std::ops::RangeInclusive;

use flatcap_os::keyword::Keyword;
use flatcap_sampling::{
    ARG_BYTES_MAX, ARGV_MAX, EXPRESSION_BYTES_MAX, PATTERN_BYTES_MAX, PATTERNS_MAX, PROCESSES_MAX,
};
use flatcap_text::quantity::Quantity;
use flatcap_trigger::limits::CONDITION_BYTES_MAX;

use super::compress::COMPRESS_SOURCES_MAX;

/// Maximum length of a socket path, in bytes. This is the length of the kernel's address without
/// the zero byte, less four bytes. A socket has a temporary name, which is four bytes longer, while
/// it is being created.
pub const SOCKET_PATH_BYTES_MAX: usize = 103;
/// Maximum share of a file system that a configuration may keep free, in hundredths of a percent.
/// The rest is needed for a recording.
pub(super) const MIN_FREE_POINTS_MAX: u64 = 9_000;

/// Maximum number of labels of a host. A query names only a few labels, and every header contains
/// all labels.
pub(super) const LABELS_MAX: usize = 32;
/// Maximum length of the name of a label, in bytes.
pub(super) const LABEL_NAME_BYTES_MAX: usize = 63;
/// Maximum length of the value of a label, in bytes.
pub(super) const LABEL_VALUE_BYTES_MAX: usize = 255;

/// Maximum number of accounts that a configuration allows to push. For more accounts, a group is
/// the better setting.
pub(super) const ACCOUNTS_MAX: usize = 64;
/// Maximum length of the name of an account, in bytes. This is longer than the names that
/// useradd(8) accepts.
pub(super) const ACCOUNT_BYTES_MAX: usize = 63;

/// Maximum number of pushed sources that rules may name. A host has only a few rules about
/// applications.
pub(super) const PUSHED_SOURCES_MAX: usize = 64;
/// Maximum length of the name of a pushed source, in bytes (docs/PUSH.md).
pub(super) const PUSHED_SOURCE_BYTES_MAX: usize = 64;

/// Maximum size that a key accepts, in bytes. It is 1,024 TiB. No file system is larger, so a
/// larger size has the wrong unit.
pub(super) const FILE_SYSTEM_BYTES_MAX: u64 = 1 << 50;

/// The notation of all codecs with their levels.
const CODECS: &str =
    "\"none\", \"lz4\", \"snappy\", \"zstd:1\" to \"zstd:19\" or \"brotli:0\" to \"brotli:11\"";

/// The type of value that a key accepts. [`fmt::Display`] writes the instruction for error
/// messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectedValue {
    /// A duration within limits, in nanoseconds.
    Duration(RangeInclusive<u64>),
    /// A size within limits, in bytes.
    Size(RangeInclusive<u64>),
    /// A size within limits, in bytes, that is a multiple of the page size.
    Pages(RangeInclusive<u64>),
    /// A size, a percentage of a file system, or `auto`.
    MinFree,
    /// A share of one core within limits, in hundredths of a percent.
    CpuShare(RangeInclusive<u64>),
    /// A list of patterns.
    Patterns,
    /// A number within limits.
    Number(RangeInclusive<u64>),
    /// A list of numbers within limits.
    Numbers(RangeInclusive<u64>),
    /// One of these keywords.
    Keyword(Vec<&'static str>),
    /// A list of these keywords.
    Keywords(Vec<&'static str>),
    /// A list of these keywords, or an empty list.
    KeywordsOrNone(Vec<&'static str>),
    /// A codec and its level.
    Codec,
    /// A codec and its level, or `off`.
    CodecOrOff,
    /// Compression settings of sources.
    Compression,
    /// Ids or names of processes.
    Processes,
    /// Labels of the host.
    Labels,
    /// Users and groups.
    Accounts,
    /// Names of sources that applications push.
    PushedSources,
    /// A boolean.
    Flag,
    /// A path that is not empty.
    Path,
    /// A path, or an empty string.
    PathOrEmpty,
    /// An absolute path.
    AbsolutePath,
    /// A program and its arguments.
    Command,
    /// A program and its arguments, or an empty list.
    CommandOrNone,
    /// A regular expression.
    Expression,
    /// The path of a socket, or an empty string.
    SocketPath,
    /// A port, or an address and a port, or an empty string.
    SocketAddress,
    /// A condition of a rule.
    Condition,
    /// A condition of a rule, or an empty string.
    ConditionOrEmpty,
    /// A table of this name.
    Table(String),
}

impl ExpectedValue {
    /// Returns the expectation that the value is one of the keywords of `T`.
    pub(super) fn keyword<T: Keyword>() -> Self {
        Self::Keyword(T::keywords())
    }

    /// Returns the quantity and the limits of a value that is a number; `None` for other types.
    pub(super) fn quantity(&self) -> Option<(Quantity, &RangeInclusive<u64>)> {
        match self {
            Self::Duration(range) => Some((Quantity::Nanoseconds, range)),
            Self::Size(range) | Self::Pages(range) => Some((Quantity::Bytes, range)),
            Self::CpuShare(range) => Some((Quantity::BasisPoints, range)),
            Self::Number(range) | Self::Numbers(range) => Some((Quantity::Count, range)),
            _ => None,
        }
    }

    /// Returns whether an empty string is a valid value.
    pub(super) fn is_empty_accepted(&self) -> bool {
        matches!(self, Self::PathOrEmpty | Self::SocketPath | Self::SocketAddress | Self::ConditionOrEmpty)
    }

    /// Returns the limits or the allowed values as text; empty for types that have none.
    fn limits(&self) -> String {
        if let Some((quantity, range)) = self.quantity() {
            return format!("from {} to {}", quantity.format(*range.start()), quantity.format(*range.end()));
        }
        match self {
            Self::MinFree => {
                let most = Quantity::BasisPoints.format(MIN_FREE_POINTS_MAX);
                format!("from 0% to {most}, or a size")
            }
            Self::Patterns => format!("up to {PATTERNS_MAX} patterns of up to {PATTERN_BYTES_MAX} bytes"),
            Self::Keyword(words) => listed(&quoted(words), "or"),
            Self::Keywords(words) | Self::KeywordsOrNone(words) => listed(&quoted(words), "and"),
            Self::Codec => CODECS.to_owned(),
            Self::CodecOrOff => format!("\"off\", {CODECS}"),
            Self::Compression => format!("up to {COMPRESS_SOURCES_MAX}"),
            Self::Processes => format!("up to {PROCESSES_MAX} numbers or names"),
            Self::Labels => format!(
                "up to {LABELS_MAX} labels, names of up to {LABEL_NAME_BYTES_MAX} letters, digits and _, values of up to \
                 {LABEL_VALUE_BYTES_MAX} bytes"
            ),
            Self::Accounts => {
                format!("up to {ACCOUNTS_MAX} users and groups, names of up to {ACCOUNT_BYTES_MAX} bytes")
            }
            Self::PushedSources => {
                format!("up to {PUSHED_SOURCES_MAX} names of up to {PUSHED_SOURCE_BYTES_MAX} bytes")
            }
            Self::Flag => "true or false".to_owned(),
            Self::Command | Self::CommandOrNone => {
                format!("up to {} arguments of up to {ARG_BYTES_MAX} bytes", ARGV_MAX - 1)
            }
            Self::Expression => format!("of up to {EXPRESSION_BYTES_MAX} bytes"),
            Self::Condition | Self::ConditionOrEmpty => format!("of up to {CONDITION_BYTES_MAX} bytes"),
            Self::SocketPath => format!("of up to {SOCKET_PATH_BYTES_MAX} bytes"),
            Self::Table(name) => name.clone(),
            _ => String::new(),
        }
    }

    /// Returns two strings, the instruction for error messages and the sentence for descriptions.
    /// In both, `{}` stands for the limits.
    fn texts(&self) -> (&'static str, &'static str) {
        match self {
            Self::Duration(_) | Self::Size(_) | Self::CpuShare(_) | Self::Number(_) => ("{form}, {}", "{}."),
            Self::Pages(_) => ("{form}, {}", "{}, a multiple of 4KiB."),
            Self::Numbers(_) => ("write a list such as [0, 1] of whole numbers {}", "{}."),
            Self::MinFree => {
                ("write \"auto\" or a number with B, KiB, MiB, GiB, TiB or %, {}", "\"auto\", {}.")
            }
            Self::Patterns => ("write a list such as [\"sd*\", \"nvme*\"], {}", "{}."),
            Self::Keyword(_) | Self::Codec | Self::CodecOrOff => ("write {}", "One of {}."),
            Self::Keywords(_) => ("write a list of some of {}", "Some of {}."),
            Self::KeywordsOrNone(_) => ("write a list of some of {}, or [] for none", "Some of {}."),
            Self::Compression => (
                "write a list such as [\"process=zstd:9/row\"] of NAME=CODEC/LAYOUT or NAME=CODEC, {}, no source twice",
                "{}.",
            ),
            Self::Processes => ("write a list such as [\"4711\", \"sshd\"], {}, none twice", "{}."),
            Self::Labels => ("write a table such as { role = \"db\", site = \"fra\" }, {}", "{}."),
            Self::Accounts => {
                ("write a list such as [\"user:app\", \"group:flatcap-push\"], {}, none twice", "{}.")
            }
            Self::PushedSources => ("write a list such as [\"orders\", \"engine\"], {}, none twice", "{}."),
            Self::Flag => ("write {} without quotes", "{}."),
            Self::Path | Self::PathOrEmpty => ("write a path in quotes", ""),
            Self::AbsolutePath => ("write an absolute path in quotes, without \"..\"", ""),
            Self::Command => (
                "write a list such as [\"/usr/bin/program\", \"argument\"], an absolute path and {}",
                "An absolute path and {}.",
            ),
            Self::CommandOrNone => (
                "write a list such as [\"/usr/bin/program\", \"argument\"], an absolute path and {}, or [] for none",
                "An absolute path and {}.",
            ),
            Self::SocketPath => ("write an absolute path in quotes, {}, or \"\"", "An absolute path {}."),
            Self::SocketAddress => (
                "write a port for this host alone, such as \"9598\", an address and a port, such as \"0.0.0.0:9598\" or \
                 \"[::1]:9598\", or \"\" for none",
                "",
            ),
            Self::Expression => ("write a regular expression in quotes, {}", "An expression {}."),
            Self::Condition | Self::ConditionOrEmpty => (
                "write a condition in quotes, {}, such as \"pressure.io_some.total:rate(100ms) > 20%\"",
                "A condition {}.",
            ),
            Self::Table(_) => ("write the table [{}] once", ""),
        }
    }

    /// Returns the limits as a sentence for the description of a key; empty if there are no limits.
    pub(super) fn sentence(&self) -> String {
        let mut sentence = self.texts().1.replace("{}", &self.limits());
        if let Some(first) = sentence.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        sentence
    }
}

impl fmt::Display for ExpectedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text is made from the ranges that the check uses, so a message cannot contradict the
        // check.
        let form = self.quantity().map_or("", |(quantity, _)| quantity.form());
        f.write_str(&self.texts().0.replace("{form}", form).replace("{}", &self.limits()))
    }
}

fn quoted(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("\"{word}\"")).collect()
}

/// Returns the items as a list such as `a, b and c`, where `and` is the last separator.
pub(super) fn listed(items: &[String], and: &str) -> String {
    match items {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}
