//! Resynchronization. Finds the next intact frame in a damaged stream, from an offset where no
//! intact frame begins. Repairs a frame if only its length is damaged.
//!
//! The procedure is the same for streams in memory and in files. A [`DamagedStream`] implements the
//! rules of the format. These rules define which frames are intact and how they are found.

use super::framer::LENGTH_BYTES;

/// Minimum number of successive zero bytes that are treated as unwritten space instead of frames.
/// With CRC-16, with CRC-32 and without a checksum, zeros can be read as empty frames.
/// Nevertheless, at least 64 successive zeros are treated as unwritten space.
pub const ZEROS_MIN: usize = 64;
/// Maximum length of a frame that is hashed during a search even if the budget is exhausted.
pub const SHORT_BYTES_SEARCHED: u64 = 256;
/// Maximum length of a frame that is hashed even if the budget is exhausted, if the frame directly
/// follows another frame.
pub const SHORT_BYTES_EXPECTED: u64 = 4 << 10;
/// Maximum number of later frames whose ends are tried as the end of a damaged frame.
pub(super) const REPAIR_ATTEMPTS_MAX: usize = 16;
/// Initial budget of bytes that a search may hash without finding a frame.
const HASH_BUDGET_MIN: u64 = 64 << 20;
/// Growth of the budget, in bytes to hash, for each byte by which the search advances.
const HASH_BUDGET_PER_BYTE: u64 = 8;

/// The number of bytes that searches have hashed without finding an intact frame. The limit keeps
/// the work linear for hostile input, in which every byte seems to begin a long frame. Above the
/// limit only short frames are hashed, because hashing them takes little time.
#[derive(Debug, Clone, Copy, Default)]
pub struct HashBudget {
    /// Number of bytes hashed so far.
    pub spent: u64,
}

impl HashBudget {
    /// Returns the limit that applies after the search has advanced `passed` bytes in the stream.
    pub fn limit(passed: u64) -> u64 {
        HASH_BUDGET_MIN.saturating_add(passed.saturating_mul(HASH_BUDGET_PER_BYTE))
    }

    /// Adds `bytes` to the bytes hashed so far.
    pub fn spend(&mut self, bytes: u64) {
        self.spent = self.spent.saturating_add(bytes);
    }

    /// Returns whether `limit` still allows hashing `bytes` more bytes.
    pub fn allows(self, bytes: u64, limit: u64) -> bool {
        self.spent.saturating_add(bytes) <= limit
    }
}

/// A stream with damage, and the rules of its format. Offsets are relative to the start of the
/// stream.
pub trait DamagedStream {
    /// The error that the implementation returns if the stream cannot be read.
    type Error;

    /// Returns the length of the stream.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn end(&mut self) -> Result<u64, Self::Error>;

    /// Returns the number of successive zero bytes from `offset` on.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn zeros(&mut self, offset: u64) -> Result<u64, Self::Error>;

    /// Returns whether an intact frame begins at `offset`. The stream was read up to offset
    /// `passed`.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn is_intact(&mut self, offset: u64, passed: u64) -> Result<bool, Self::Error>;

    /// Returns the offset of the first intact frame in a range.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn next_intact(&mut self, from: u64, limit: u64) -> Result<Option<u64>, Self::Error>;

    /// Returns the end of the damaged frame at `offset` according to its own length field, and a
    /// second offset. The second offset is the start of the next intact frame, or the end of the
    /// stream. Empty frames may lie between the two offsets. Returns `None` if neither an intact
    /// frame nor the end of the stream follows the declared end.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn declared_end(&mut self, offset: u64) -> Result<Option<(u64, u64)>, Self::Error>;

    /// Returns the end of the intact frame that begins at `at`. Called during the repair of the
    /// frame at `offset`.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn frame_end(&mut self, offset: u64, at: u64) -> Result<Option<u64>, Self::Error>;

    /// Returns whether the checksum of the damaged frame at `offset` proves that it ends at `end`.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn is_proven(&mut self, offset: u64, end: u64) -> Result<bool, Self::Error>;

    /// Returns the proven end of the damaged frame at `offset`. The proven end is `end` or the
    /// start of a series of empty frames that ends at `end`.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn repaired_up_to(&mut self, offset: u64, end: u64) -> Result<Option<u64>, Self::Error> {
        Ok(self.is_proven(offset, end)?.then_some(end))
    }
}

/// The range of bytes that begins at an offset where no intact frame begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResyncRange {
    /// A frame in which only the length field was damaged, with the offset of its end.
    Repaired(u64),
    /// Damage that ends at an intact frame, with the offset of that frame.
    Damaged(u64),
    /// Damage that contains no intact frame.
    DamagedTo {
        /// The end of the damaged frame according to its length field, or the end of the stream.
        end: u64,
        /// The offset of the next frame if there are empty frames between `end` and that frame,
        /// otherwise the same as `end`.
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
    // The length field of the following frame may itself begin with zeros.
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
        // If an intact frame begins where the damaged frame ends according to its length field, all
        // frames before that end are part of the damaged frame's payload.
        if declared.is_none() {
            return Ok(ResyncRange::Damaged(at));
        }
        from = at + 1;
    }
    Ok(ResyncRange::DamagedTo { end, next })
}

/// Returns the end of the damaged frame at `offset`, if its checksum proves that it ends together
/// with a later frame at or after `end`. The payload of the damaged frame then contains all frames
/// between its start and its end.
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
