//! Errors of reading a payload.

use flatbuffers::InvalidFlatbuffer;

/// A payload that cannot be read, because its writer has a bug or the file is damaged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The bytes are not a FlatBuffer of this schema.
    #[error("the payload is not valid by its schema")]
    Malformed(#[from] InvalidFlatbuffer),
    /// An index is out of range.
    #[error("{list} has the index {index} of {of}, which has {length} elements")]
    Index {
        /// The list that contains the index.
        list: &'static str,
        /// The list to which the index refers.
        of: &'static str,
        /// The index.
        index: u16,
        /// Length of the list to which the index refers.
        length: usize,
    },
    /// The end of the payload is before its start.
    #[error("the payload begins at {begin_ns} ns and ends at {end_ns} ns")]
    Backwards {
        /// The payload's `begin`, in monotonic nanoseconds.
        begin_ns: u64,
        /// The payload's `end`, in monotonic nanoseconds.
        end_ns: u64,
    },
    /// The payload covers more time than a source records in one payload.
    #[error("the payload is about {length_ns} ns, the limit is {limit_ns} ns")]
    TooLong {
        /// The time that the payload covers, in nanoseconds.
        length_ns: u64,
        /// The limit in nanoseconds.
        limit_ns: u64,
    },
}

/// Maximum time that a payload covers, in nanoseconds. This limit bounds the time and the memory
/// for [`TaskSteps`](crate::TaskSteps).
pub const PAYLOAD_NS_MAX: u64 = 60_000_000_000;

/// Checks the times of a payload.
pub(crate) fn check_times(begin_ns: u64, end_ns: u64) -> Result<(), PayloadError> {
    let Some(length_ns) = end_ns.checked_sub(begin_ns) else {
        return Err(PayloadError::Backwards { begin_ns, end_ns });
    };
    if length_ns > PAYLOAD_NS_MAX {
        return Err(PayloadError::TooLong { length_ns, limit_ns: PAYLOAD_NS_MAX });
    }
    Ok(())
}

/// Checks that an index in `list` is less than the length of the list `of`.
pub(crate) fn check_index(
    (list, index): (&'static str, u16),
    (of, length): (&'static str, usize),
) -> Result<(), PayloadError> {
    if usize::from(index) < length { Ok(()) } else { Err(PayloadError::Index { list, of, index, length }) }
}
