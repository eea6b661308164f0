//! Resynchronization: at an offset where no intact frame begins, the reader of a damaged stream
//! finds the next intact frame, or repairs a frame if only its length is damaged.
//!
//! The procedure is the same for streams in memory and in files. A [`DamagedStream`] has the rules
//! of the format: which frames are intact, and how they are found.

use super::framer::LENGTH_BYTES;

/// From this many zero bytes on, an expected frame is unwritten space. Under CRC-16, CRC-32 and
/// without a checksum zeros read as empty frames; this many in a row are taken as unwritten space.
pub const ZEROS_MIN: usize = 64;
/// Maximum length of a frame that is hashed without regard to the budget during a search.
pub const SHORT_BYTES_SEARCHED: u64 = 256;
/// Maximum length of a frame that is hashed without regard to the budget where one is expected:
/// after another frame.
pub const SHORT_BYTES_EXPECTED: u64 = 4 << 10;
/// Number of frame ends after a damaged frame that are tried as its end.
pub(super) const REPAIR_ATTEMPTS_MAX: usize = 16;
/// Bytes that may be hashed without result before the search has advanced...
const HASH_BUDGET_MIN: u64 = 64 << 20;
/// ...and per byte it has advanced.
const HASH_BUDGET_PER_BYTE: u64 = 8;

/// The bytes that searches have hashed without finding an intact frame. The limit of hashed bytes
/// keeps the work linear on hostile input, where every byte claims to begin a long frame. Beyond it
/// only short frames are hashed, which cost little.
#[derive(Debug, Clone, Copy, Default)]
pub struct HashBudget {
    /// Bytes hashed so far.
    pub spent: u64,
}

impl HashBudget {
    /// Returns the limit after `passed` bytes of the stream.
    pub fn limit(passed: u64) -> u64 {
        HASH_BUDGET_MIN.saturating_add(passed.saturating_mul(HASH_BUDGET_PER_BYTE))
    }

    /// Charges this many bytes.
    pub fn spend(&mut self, bytes: u64) {
        self.spent = self.spent.saturating_add(bytes);
    }

    /// Returns whether this many more bytes stay within a limit.
    pub fn allows(self, bytes: u64, limit: u64) -> bool {
        self.spent.saturating_add(bytes) <= limit
    }
}

/// A stream with damage, and the rules of its format. Offsets count from the begin of the stream.
pub trait DamagedStream {
    /// The reason why the stream cannot be read.
    type Error;

    /// Returns the length of the stream.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn end(&mut self) -> Result<u64, Self::Error>;

    /// Returns the number of zero bytes at `offset`.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn zeros(&mut self, offset: u64) -> Result<u64, Self::Error>;

    /// Returns whether an intact frame begins at `offset`. Everything up to `passed` was read.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn is_intact(&mut self, offset: u64, passed: u64) -> Result<bool, Self::Error>;

    /// Returns the offset of the first intact frame in a range.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn next_intact(&mut self, from: u64, limit: u64) -> Result<Option<u64>, Self::Error>;

    /// Returns the end of the damaged frame at `offset` according to its own length, and the offset
    /// of the intact frame or the end of the stream that follows, possibly after empty frames.
    /// Returns `None` if neither follows.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn declared_end(&mut self, offset: u64) -> Result<Option<(u64, u64)>, Self::Error>;

    /// Returns the end of the intact frame at `at`, during the repair of the frame at `offset`.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn frame_end(&mut self, offset: u64, at: u64) -> Result<Option<u64>, Self::Error>;

    /// Returns whether the checksum of the damaged frame at `offset` proves that it ends at `end`.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn is_proven(&mut self, offset: u64, end: u64) -> Result<bool, Self::Error>;

    /// Returns the end of the damaged frame at `offset`, if it ends at `end` or before empty frames
    /// that end there.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn repaired_up_to(&mut self, offset: u64, end: u64) -> Result<Option<u64>, Self::Error> {
        Ok(self.is_proven(offset, end)?.then_some(end))
    }
}

/// The bytes at an offset where no intact frame begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResyncRange {
    /// A frame of which only the length was damaged. Holds its end.
    Repaired(u64),
    /// Damage up to an intact frame, whose offset it holds.
    Damaged(u64),
    /// Damage without an intact frame in it.
    DamagedTo {
        /// The frame's end by its own length, or the end of the stream.
        end: u64,
        /// The same, or the offset of the next frame if there are empty frames before it.
        next: u64,
    },
}

/// Returns the end of the unwritten space at `offset`, if there is any.
///
/// # Errors
/// The stream cannot be read.
pub fn zeros_end<S: DamagedStream>(stream: &mut S, offset: u64) -> Result<Option<u64>, S::Error> {
    let zeros = stream.zeros(offset)?;
    if zeros < ZEROS_MIN as u64 {
        return Ok(None);
    }
    // The length of the following frame may itself begin with zeros.
    let end = offset + zeros;
    for at in end + 1 - LENGTH_BYTES as u64..end {
        if stream.is_intact(at, offset)? {
            return Ok(Some(at));
        }
    }
    Ok(Some(end))
}

/// Resynchronizes at `offset`, where no intact frame begins.
///
/// # Errors
/// The stream cannot be read.
pub fn resync<S: DamagedStream>(stream: &mut S, offset: u64) -> Result<ResyncRange, S::Error> {
    let declared = stream.declared_end(offset)?;
    let whole = stream.end()?.max(offset);
    let (end, next) = declared.unwrap_or((whole, whole));
    let mut from = offset + 1;
    while let Some(at) = stream.next_intact(from, end)? {
        let mut repaired = stream.repaired_up_to(offset, at)?;
        if repaired.is_none() && declared.is_none() {
            repaired = repaired_beyond(stream, offset, at)?;
        }
        if let Some(end) = repaired {
            return Ok(ResyncRange::Repaired(end));
        }
        // If an intact frame begins where the damaged one ends by its own length, frames between
        // the two are its payload.
        if declared.is_none() {
            return Ok(ResyncRange::Damaged(at));
        }
        from = at + 1;
    }
    Ok(ResyncRange::DamagedTo { end, next })
}

/// Returns the end of the damaged frame at `offset`, if its checksum proves that it ends after one
/// of the frames from `end` on. Those frames are then part of its payload.
fn repaired_beyond<S: DamagedStream>(
    stream: &mut S,
    offset: u64,
    mut end: u64,
) -> Result<Option<u64>, S::Error> {
    for _ in 0..REPAIR_ATTEMPTS_MAX {
        let Some(next) = stream.frame_end(offset, end)? else { return Ok(None) };
        if stream.is_proven(offset, next)? {
            return Ok(Some(next));
        }
        end = next;
    }
    Ok(None)
}
