//! Errors of the stream library. An error has the size of one pointer, which points to all details.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// Result of a stream operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error that occurred while a stream was read or written. The error has the size of a pointer,
/// so that results on hot paths remain small.
#[derive(thiserror::Error)]
#[error(transparent)]
#[allow(clippy::error_impl_error, reason = "the name that users of flatstream know")]
pub struct Error(Box<ErrorKind>);

/// The kinds of [`Error`], the same as in flatstream 0.2.7, so that a `match` over them needs no
/// change.
#[derive(Debug, thiserror::Error)]
pub enum ErrorKind {
    /// The sink or the source failed.
    #[error("I/O error: {0}")]
    Io(#[from] io::Error),
    /// The checksum of the payload differs from the stored checksum. Either the payload, the
    /// checksum or the length changed, or the writer used another checksum than the deframer.
    #[error("checksum mismatch: stored {expected:#x}, computed {calculated:#x}")]
    ChecksumMismatch {
        /// The checksum stored in the stream.
        expected: u64,
        /// The checksum computed from the payload.
        calculated: u64,
    },
    /// A frame that the format or a limit does not allow. On reading: the length is damaged, the
    /// stream has another format, or the limit is too low. On writing: split the payload or raise
    /// the limit.
    #[error("invalid frame: {message}{}", known_lengths([*declared_len, *buffer_len, *limit]))]
    InvalidFrame {
        /// The problem.
        message: Cow<'static, str>,
        /// Declared length of the payload in bytes, if it is known.
        declared_len: Option<usize>,
        /// Number of available bytes, if it is relevant.
        buffer_len: Option<usize>,
        /// The limit in bytes, if one was exceeded.
        limit: Option<usize>,
    },
    /// The verifier of `flatbuffers` rejected a payload.
    // The verifier ends its message with empty lines.
    #[error("not a valid FlatBuffer: {}", .0.to_string().trim_end())]
    FlatbuffersError(#[from] flatbuffers::InvalidFlatbuffer),
    /// A validator rejected a payload.
    #[error("rejected by validator {validator}: {reason}")]
    ValidationFailed {
        /// Name of the validator.
        validator: &'static str,
        /// The reason that the validator gives.
        reason: Cow<'static, str>,
    },
    /// The stream ends within a frame.
    #[error("the stream ends within a frame")]
    UnexpectedEof,
}

impl Error {
    /// Returns the kind.
    #[inline]
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Converts the error to its kind.
    pub fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// Creates an `InvalidFrame` without lengths.
    #[cold]
    pub fn invalid_frame(message: impl Into<Cow<'static, str>>) -> Self {
        Self::invalid_frame_with(message, None, None, None)
    }

    /// Creates an `InvalidFrame` with the known lengths.
    #[cold]
    pub fn invalid_frame_with(
        message: impl Into<Cow<'static, str>>,
        declared_len: Option<usize>,
        buffer_len: Option<usize>,
        limit: Option<usize>,
    ) -> Self {
        ErrorKind::InvalidFrame { message: message.into(), declared_len, buffer_len, limit }.into()
    }

    /// Creates a `ChecksumMismatch`.
    #[cold]
    pub fn checksum_mismatch(expected: u64, calculated: u64) -> Self {
        ErrorKind::ChecksumMismatch { expected, calculated }.into()
    }

    /// Creates a `ValidationFailed`.
    #[cold]
    pub fn validation_failed(validator: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        ErrorKind::ValidationFailed { validator, reason: reason.into() }.into()
    }

    /// Creates an `UnexpectedEof`.
    #[cold]
    pub fn unexpected_eof() -> Self {
        ErrorKind::UnexpectedEof.into()
    }

    /// Creates the error of a reader for a length above `limit`.
    #[cold]
    #[inline(never)]
    pub(super) fn frame_too_long(declared: usize, limit: usize) -> Self {
        Self::invalid_frame_with("frame length exceeds configured limit", Some(declared), None, Some(limit))
    }

    /// Returns whether the sink or the source failed.
    pub fn is_io(&self) -> bool {
        matches!(*self.0, ErrorKind::Io(_))
    }

    /// Returns whether the stream ends within a frame, because a write is in progress or was torn.
    pub fn is_unexpected_eof(&self) -> bool {
        matches!(*self.0, ErrorKind::UnexpectedEof)
    }

    /// Returns whether a checksum was wrong.
    pub fn is_checksum_mismatch(&self) -> bool {
        matches!(*self.0, ErrorKind::ChecksumMismatch { .. })
    }

    /// Returns whether the format or a limit does not allow a frame.
    pub fn is_invalid_frame(&self) -> bool {
        matches!(*self.0, ErrorKind::InvalidFrame { .. })
    }

    /// Returns whether the length of a frame was above a limit.
    pub fn is_frame_too_large(&self) -> bool {
        matches!(*self.0, ErrorKind::InvalidFrame { limit: Some(_), .. })
    }

    /// Returns whether a validator or the verifier of `flatbuffers` rejected the payload.
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

/// Returns the known lengths as text for the end of an error message.
fn known_lengths(lengths: [Option<usize>; 3]) -> String {
    let known = ["declared", "available", "limit"].into_iter().zip(lengths);
    let known: Vec<String> =
        known.filter_map(|(name, length)| length.map(|length| format!("{name} {length}"))).collect();
    if known.is_empty() { String::new() } else { format!(": {}", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a result on the hot path fits into one register.
    #[test]
    fn an_error_is_one_word() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    // Proves that a message contains the known values and no others.
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
            "checksum mismatch: stored 0x1, computed 0xff"
        );
    }
}
