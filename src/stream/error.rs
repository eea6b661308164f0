//! One word on the way, the whole story behind it.

use std::fmt;
use std::io;

/// Result of a stream operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with a stream; as large as a pointer, so that a hot path carries no more.
#[derive(Debug)]
#[allow(clippy::error_impl_error, reason = "the name that users of flatstream know")]
pub struct Error(Box<ErrorKind>);

/// The kinds of [`Error`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The sink or the source failed.
    Io(io::Error),
    /// The payload is not what was written: its bytes, its checksum or its length were changed.
    ChecksumMismatch {
        /// The checksum that stands in the stream.
        expected: u64,
        /// The checksum of the payload that stands in the stream.
        found: u64,
    },
    /// A length above the limit: a damaged length, another checksum than assumed, or no stream at all. On writing:
    /// a payload that must be split or the limit raised.
    FrameTooLarge {
        /// The length of the payload, in bytes.
        declared: u64,
        /// The longest payload allowed, in bytes.
        limit: u32,
    },
    /// The stream ends within a frame.
    UnexpectedEof {
        /// Bytes that the frame still needs.
        missing: u64,
    },
}

impl Error {
    /// The kind, with its values.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Whether the stream just ends too early, as a write in progress or a torn write leaves it.
    pub fn is_unexpected_eof(&self) -> bool {
        matches!(*self.0, ErrorKind::UnexpectedEof { .. })
    }

    /// Whether a checksum was wrong.
    pub fn is_checksum_mismatch(&self) -> bool {
        matches!(*self.0, ErrorKind::ChecksumMismatch { .. })
    }

    /// Whether a length was above the limit.
    pub fn is_frame_too_large(&self) -> bool {
        matches!(*self.0, ErrorKind::FrameTooLarge { .. })
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            ErrorKind::Io(error) => error.fmt(f),
            ErrorKind::ChecksumMismatch { expected, found } => {
                write!(f, "checksum mismatch: the frame says {expected:#x}, its payload has {found:#x}")
            }
            ErrorKind::FrameTooLarge { declared, limit } => {
                write!(f, "a frame of {declared} bytes is above the limit of {limit}")
            }
            ErrorKind::UnexpectedEof { missing } => {
                write!(f, "the stream ends {missing} bytes short of a frame")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            ErrorKind::Io(error) => Some(error),
            _ => None,
        }
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
}
