//! The summary of the data that a query has read.

/// The summary of the data that a query has read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuerySummary {
    /// Samples whose values were read.
    pub samples: u64,
    /// Samples that do not fit their schema.
    pub undecodable: u64,
    /// Sources whose schema is malformed.
    pub malformed_schemas: u64,
    /// Whether there were more elements of lists than [`ELEMENTS_MAX`](super::ELEMENTS_MAX): the
    /// rows of the later ones have [`NO_ELEMENT`](super::NO_ELEMENT).
    pub has_more_elements: bool,
    /// Damaged ranges, which were skipped.
    pub damage: u64,
    /// Blocks of sealed compressed segments of which rows were read...
    pub blocks_read: u64,
    /// ...and blocks that have no wanted rows.
    pub blocks_skipped: u64,
}

impl QuerySummary {
    /// Counts a sample that was read.
    pub(super) fn add(&mut self, is_decodable: bool) {
        *(if is_decodable { &mut self.samples } else { &mut self.undecodable }) += 1;
    }
}
