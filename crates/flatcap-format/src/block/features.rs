//! Reader levels. A reader level states which features of blocks a reader must support
//! (docs/FORMAT.md, "Reader levels").

/// A set of block features. Each reader level above 0 is one feature. The features are the bits of
/// `incompatible` in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockFeatures(u64);

impl BlockFeatures {
    /// No features. This is reader level 0, which has no blocks.
    pub(crate) const NONE: Self = Self(0);
    /// Reader level 1 ("rows"): blocks of payloads, stored uncompressed or compressed with
    /// Zstandard.
    pub(crate) const ROWS: Self = Self(1);
    /// Reader level 2 ("columns"): matrices in our own encodings, and LZ4.
    pub(crate) const COLUMNS: Self = Self(1 << 1);
    /// Reader level 3 ("all"): the numeric codec, Snappy and Brotli.
    pub(crate) const ALL: Self = Self(1 << 2);

    /// All features that this program knows.
    pub(crate) const EVERY: Self = Self(Self::ROWS.0 | Self::COLUMNS.0 | Self::ALL.0);

    /// Returns the features that these bits represent. Bits that this program does not know are
    /// dropped.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits & Self::EVERY.0)
    }

    /// Returns the bits for a header.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether all features of the other set are in this set.
    pub(crate) fn has(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns the union of both sets of features.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
