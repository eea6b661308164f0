//! The reasons why a key does not accept a value.

use flatcap_text::quantity::{UnitError, format_size};
use toml::de::DeValue;

use super::expected_value::ExpectedValue;
use super::name_hint::name_hint;

/// The reason why a key does not accept a value. The advice on what to write instead depends on the
/// key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A value of the wrong type, such as a number instead of a string.
    #[error("wrong type: {found}")]
    WrongType {
        /// The type of the value.
        found: &'static str,
    },
    /// An environment variable that is set to an empty value.
    #[error("an empty value, which is not the same as an unset variable")]
    EmptyVariable,
    /// A value that is not a duration, size or percentage.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A duration, a size or a number below its range.
    #[error("too small")]
    TooSmall,
    /// A duration, a size, a number or a list above its range.
    #[error("too large")]
    TooLarge,
    /// A size that is not a multiple of a required number of bytes.
    #[error("not a multiple of {}", format_size(*of))]
    NotMultiple {
        /// The size must be a multiple of this many bytes.
        of: u64,
    },
    /// A value that is not one of the allowed values of this key.
    #[error("not one of the allowed values")]
    NotAllowed,
    /// A string that no file system accepts as a path.
    #[error("not a path: empty, or contains a zero byte")]
    BadPath,
    /// A path that is relative or contains `..`.
    #[error("not an absolute path, or it contains \"..\"")]
    NotAbsolute,
    /// A path that the kernel does not accept for a socket.
    #[error("not an absolute path, or too long for a socket")]
    BadSocketPath,
    /// A value that is not an address to listen on.
    #[error("neither a port nor an address and a port")]
    BadSocketAddress,
    /// A value that is not a runnable command.
    #[error("not the absolute path of a program and its arguments")]
    BadCommand,
    /// A value that is not a pattern.
    #[error("\"{}\" is not a pattern: {reason}", pattern.escape_debug())]
    BadPattern {
        /// The pattern as written.
        pattern: String,
        /// The reason.
        reason: String,
    },
    /// A value that is not a regular expression, or one without a group for the value.
    #[error("not a regular expression for values: {reason}")]
    BadExpression {
        /// The reason.
        reason: String,
    },
    /// A value that is not a condition of a rule.
    #[error("{reason}")]
    BadCondition {
        /// The reason, with the place of the error in the condition.
        reason: String,
    },
    /// A value that is not a compression setting of a source.
    #[error("{reason}")]
    BadCompression {
        /// The reason.
        reason: String,
    },
    /// A label with a name or a value that is not valid.
    #[error("the label \"{}\" has an invalid name or value", name.escape_debug())]
    BadLabel {
        /// The name as written.
        name: String,
    },
    /// An item that occurs twice in a list.
    #[error("\"{item}\" is listed twice; keep one")]
    DuplicateItem {
        /// The item.
        item: String,
    },
    /// A source that does not exist.
    #[error("no such source; {}", name_hint(near.as_deref(), known, "the sources are"))]
    UnknownSource {
        /// The source that was probably meant.
        near: Option<String>,
        /// All sources.
        known: Vec<String>,
    },
}

impl ValueError {
    /// Returns the error for a value whose type differs from the expected one.
    pub(super) fn wrong_type(value: &DeValue<'_>) -> Self {
        let found = match value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a number without quotes",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        Self::WrongType { found }
    }

    /// Returns the whole message: the error, and the advice on what to write.
    pub(super) fn with_advice(&self, expected: &ExpectedValue) -> String {
        match self {
            // These messages already say what to write.
            Self::DuplicateItem { .. } | Self::UnknownSource { .. } | Self::BadCondition { .. } => {
                self.to_string()
            }
            _ => format!("{self}; {expected}"),
        }
    }
}
