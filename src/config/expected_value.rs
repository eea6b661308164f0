//! The values that a key accepts: type, limits and notation.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::compress::COMPRESS_SOURCES_MAX;
use super::settings::SOCKET_PATH_BYTES_MAX;
use super::source::CpuShare;
use super::units::{format_duration, format_size};
use crate::sampling::{
    ARG_BYTES_MAX, ARGV_MAX, EXPRESSION_BYTES_MAX, PATTERN_BYTES_MAX, PATTERNS_MAX, PROCESSES_MAX,
};

/// All codecs with their levels.
const CODECS: &str =
    "\"none\", \"lz4\", \"snappy\", \"zstd:1\" to \"zstd:19\" or \"brotli:0\" to \"brotli:11\"";

/// The value that a key accepts. [`fmt::Display`] writes the instruction of error messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectedValue {
    /// A duration within limits.
    Duration(RangeInclusive<Duration>),
    /// A size within limits, in bytes.
    Size(RangeInclusive<u64>),
    /// A size, or a percentage up to a limit.
    Share(u8),
    /// A share of one core within limits, in percent.
    CpuShare(RangeInclusive<CpuShare>),
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
    /// A codec and its level.
    Codec,
    /// A codec and its level, or `off`.
    CodecOrOff,
    /// Compression settings of sources.
    Compression,
    /// Numbers or names of processes.
    Processes,
    /// A boolean.
    Flag,
    /// A path that is not empty.
    Path,
    /// An absolute path.
    AbsolutePath,
    /// A program and its arguments.
    Command,
    /// A regular expression.
    Expression,
    /// The path of a socket, or an empty string.
    SocketPath,
    /// A port, or an address and a port, or an empty string.
    SocketAddress,
    /// A table of this name.
    Table(String),
}

impl ExpectedValue {
    /// Returns the limits or the allowed values, for types that have them.
    pub(super) fn limits(&self) -> Option<String> {
        match self {
            Self::Duration(range) => {
                let (least, most) = (format_duration(*range.start()), format_duration(*range.end()));
                Some(format!("from {least} to {most}"))
            }
            Self::Size(range) => {
                Some(format!("from {} to {}", format_size(*range.start()), format_size(*range.end())))
            }
            Self::Share(most) => Some(format!("from 0% to {most}%, or a size")),
            Self::CpuShare(range) => Some(format!("from {} to {}", range.start(), range.end())),
            Self::Patterns => {
                Some(format!("up to {PATTERNS_MAX} patterns of up to {PATTERN_BYTES_MAX} bytes"))
            }
            Self::Number(range) | Self::Numbers(range) => {
                Some(format!("from {} to {}", range.start(), range.end()))
            }
            Self::Keyword(words) => Some(listed(&quoted(words), "or")),
            Self::Codec => Some(CODECS.to_owned()),
            Self::CodecOrOff => Some(format!("\"off\", {CODECS}")),
            Self::Compression => Some(format!("up to {COMPRESS_SOURCES_MAX}")),
            Self::Keywords(words) => Some(listed(&quoted(words), "and")),
            Self::Processes => Some(format!("up to {PROCESSES_MAX} numbers or names")),
            Self::Flag => Some("true or false".to_owned()),
            Self::Command => {
                let arguments = ARGV_MAX - 1;
                Some(format!("up to {arguments} arguments of up to {ARG_BYTES_MAX} bytes"))
            }
            Self::Expression => Some(format!("of up to {EXPRESSION_BYTES_MAX} bytes")),
            Self::SocketPath => Some(format!("of up to {SOCKET_PATH_BYTES_MAX} bytes")),
            Self::Path | Self::AbsolutePath | Self::SocketAddress | Self::Table(_) => None,
        }
    }
}

impl fmt::Display for ExpectedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ranges are those that the check used, so a message cannot contradict it.
        let limits = self.limits().unwrap_or_default();
        match self {
            Self::Duration(_) => write!(f, "write a number with ns, us, ms, s, m, h or d, {limits}"),
            Self::Size(_) => write!(f, "write a number with B, KiB, MiB, GiB or TiB, {limits}"),
            Self::Share(_) => write!(f, "write a number with B, KiB, MiB, GiB, TiB or %, {limits}"),
            Self::CpuShare(_) => write!(f, "write a number with %, {limits}"),
            Self::Patterns => write!(f, "write a list such as [\"sd*\", \"nvme*\"], {limits}"),
            Self::Number(_) => write!(f, "write a whole number without quotes, {limits}"),
            Self::Numbers(_) => write!(f, "write a list such as [0, 1] of whole numbers {limits}"),
            Self::Keyword(_) | Self::Codec | Self::CodecOrOff => write!(f, "write {limits}"),
            Self::Compression => write!(
                f,
                "write a list such as [\"process=zstd:9/row\"] of NAME=CODEC/LAYOUT or NAME=CODEC, {limits}, no source twice"
            ),
            Self::Flag => write!(f, "write {limits} without quotes"),
            Self::Keywords(_) => write!(f, "write a list of some of {limits}"),
            Self::Processes => write!(f, "write a list such as [\"4711\", \"sshd\"], {limits}, none twice"),
            Self::Path => write!(f, "write a path in quotes"),
            Self::AbsolutePath => write!(f, "write an absolute path in quotes, without \"..\""),
            Self::Command => {
                write!(
                    f,
                    "write a list such as [\"/usr/bin/program\", \"argument\"], an absolute path and {limits}"
                )
            }
            Self::SocketPath => write!(f, "write an absolute path in quotes, {limits}, or \"\""),
            Self::SocketAddress => write!(
                f,
                "write a port for this host alone, such as \"9598\", an address and a port, such as \"0.0.0.0:9598\" or \
                 \"[::1]:9598\", or \"\" for none"
            ),
            Self::Expression => write!(f, "write a regular expression in quotes, {limits}"),
            Self::Table(name) => write!(f, "write the table [{name}] once"),
        }
    }
}

fn quoted(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("\"{word}\"")).collect()
}

/// `a, b and c`
pub(super) fn listed(items: &[String], and: &str) -> String {
    match items {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}
