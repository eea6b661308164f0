//! One word on the way, the whole story behind it.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// Result of a stream operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with a stream; as large as a pointer, so that a hot path carries no more.
#[allow(clippy::error_impl_error, reason = "the name that users of flatstream know")]
pub struct Error(Box<ErrorKind>);

/// The kinds of [`Error`]. They are those of flatstream 0.2.7, so that a `match` over them moves unchanged.
#[derive(Debug)]
pub enum ErrorKind {
    /// The sink or the source failed.
    Io(io::Error),
    /// The payload is not what was written: its bytes, its checksum or its length were changed, or the stream has
    /// another checksum than the deframer.
    ChecksumMismatch {
        /// The checksum that stands in the stream.
        expected: u64,
        /// The checksum of the payload that stands in the stream.
        calculated: u64,
    },
    /// A frame that the format or a limit does not allow. On reading: a damaged length, another format, or a limit
    /// that is too low. On writing: a payload to be split, or the limit to be raised.
    InvalidFrame {
        /// What is wrong.
        message: Cow<'static, str>,
        /// The payload's length in bytes, where one is known.
        declared_len: Option<usize>,
        /// The bytes that there are, where that matters.
        buffer_len: Option<usize>,
        /// The limit in bytes, where one was passed.
        limit: Option<usize>,
    },
    /// The verifier of `flatbuffers` refused a payload.
    FlatbuffersError(flatbuffers::InvalidFlatbuffer),
    /// A validator refused a payload.
    ValidationFailed {
        /// The validator's name.
        validator: &'static str,
        /// Its reason.
        reason: Cow<'static, str>,
    },
    /// The stream ends within a frame.
    UnexpectedEof,
}

impl Error {
    /// The kind, with its values.
    #[inline]
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// The kind, as a value of its own.
    pub fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// An `InvalidFrame` without values.
    #[cold]
    pub fn invalid_frame(message: impl Into<Cow<'static, str>>) -> Self {
        Self::invalid_frame_with(message, None, None, None)
    }

    /// An `InvalidFrame` with the values that are known.
    #[cold]
    pub fn invalid_frame_with(
        message: impl Into<Cow<'static, str>>,
        declared_len: Option<usize>,
        buffer_len: Option<usize>,
        limit: Option<usize>,
    ) -> Self {
        ErrorKind::InvalidFrame { message: message.into(), declared_len, buffer_len, limit }.into()
    }

    /// A `ChecksumMismatch`.
    #[cold]
    pub fn checksum_mismatch(expected: u64, calculated: u64) -> Self {
        ErrorKind::ChecksumMismatch { expected, calculated }.into()
    }

    /// A `ValidationFailed`.
    #[cold]
    pub fn validation_failed(validator: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        ErrorKind::ValidationFailed { validator, reason: reason.into() }.into()
    }

    /// An `UnexpectedEof`.
    #[cold]
    pub fn unexpected_eof() -> Self {
        ErrorKind::UnexpectedEof.into()
    }

    /// A length above `limit`, on reading.
    #[cold]
    #[inline(never)]
    pub(super) fn frame_too_long(declared: usize, limit: usize) -> Self {
        Self::invalid_frame_with("frame length exceeds configured limit", Some(declared), None, Some(limit))
    }

    /// Whether the sink or the source failed.
    pub fn is_io(&self) -> bool {
        matches!(*self.0, ErrorKind::Io(_))
    }

    /// Whether the stream just ends too early, as a write in progress or a torn write leaves it.
    pub fn is_unexpected_eof(&self) -> bool {
        matches!(*self.0, ErrorKind::UnexpectedEof)
    }

    /// Whether a checksum was wrong.
    pub fn is_checksum_mismatch(&self) -> bool {
        matches!(*self.0, ErrorKind::ChecksumMismatch { .. })
    }

    /// Whether the format or a limit forbids a frame.
    pub fn is_invalid_frame(&self) -> bool {
        matches!(*self.0, ErrorKind::InvalidFrame { .. })
    }

    /// Whether a length was above a limit.
    pub fn is_frame_too_large(&self) -> bool {
        matches!(*self.0, ErrorKind::InvalidFrame { limit: Some(_), .. })
    }

    /// Whether a validator, or the verifier of `flatbuffers`, refused the payload.
    pub fn is_invalid_payload(&self) -> bool {
        matches!(*self.0, ErrorKind::ValidationFailed { .. } | ErrorKind::FlatbuffersError(_))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl From<ErrorKind> for Error {
    #[cold]
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl From<io::Error> for Error {
    #[cold]
    fn from(error: io::Error) -> Self {
        ErrorKind::Io(error).into()
    }
}

impl From<flatbuffers::InvalidFlatbuffer> for Error {
    #[cold]
    fn from(error: flatbuffers::InvalidFlatbuffer) -> Self {
        ErrorKind::FlatbuffersError(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "I/O error: {error}"),
            Self::ChecksumMismatch { expected, calculated } => {
                write!(f, "checksum mismatch: the frame says {expected:#x}, its payload has {calculated:#x}")
            }
            Self::InvalidFrame { message, declared_len, buffer_len, limit } => {
                write!(f, "invalid frame: {message}")?;
                let known = [("declared", declared_len), ("available", buffer_len), ("limit", limit)];
                let known = known.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
                for (index, (name, value)) in known.enumerate() {
                    write!(f, "{} {name} {value}", if index == 0 { ":" } else { "," })?;
                }
                Ok(())
            }
            // The verifier ends its message with empty lines.
            Self::FlatbuffersError(error) => {
                write!(f, "not a valid FlatBuffer: {}", error.to_string().trim_end())
            }
            Self::ValidationFailed { validator, reason } => {
                write!(f, "refused by the validator {validator}: {reason}")
            }
            Self::UnexpectedEof => f.write_str("the stream ends within a frame"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl std::error::Error for ErrorKind {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::FlatbuffersError(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ErrorKind {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<flatbuffers::InvalidFlatbuffer> for ErrorKind {
    fn from(error: flatbuffers::InvalidFlatbuffer) -> Self {
        Self::FlatbuffersError(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a result on the hot path stays in registers. Method: the size of the error.
    #[test]
    fn an_error_is_one_word() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    // Goal: a message names what is known and nothing else. Method: no value, one, all.
    #[test]
    fn messages_name_the_values() {
        assert_eq!(Error::invalid_frame("odd").to_string(), "invalid frame: odd");
        assert_eq!(
            Error::frame_too_long(70, 64).to_string(),
            "invalid frame: frame length exceeds configured limit: declared 70, limit 64"
        );
        assert_eq!(
            Error::invalid_frame_with("short", Some(3), Some(2), Some(1)).to_string(),
            "invalid frame: short: declared 3, available 2, limit 1"
        );
        assert_eq!(
            Error::checksum_mismatch(1, 255).to_string(),
            "checksum mismatch: the frame says 0x1, its payload has 0xff"
        );
    }
}
