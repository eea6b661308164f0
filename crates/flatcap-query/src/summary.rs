//! A summary of the data that a query has read.

/// A summary of the data that a query has read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuerySummary {
    /// Number of samples whose values were read.
    pub samples: u64,
    /// Number of samples that do not fit their schema.
    pub undecodable: u64,
    /// Number of sources whose schema is malformed.
    pub malformed_schemas: u64,
    /// Whether there were more elements of lists than [`ELEMENTS_MAX`](super::ELEMENTS_MAX). Rows
    /// of elements above this limit have the element [`NO_ELEMENT`](super::NO_ELEMENT).
    pub has_more_elements: bool,
    /// Number of damaged ranges, which were skipped.
    pub damage: u64,
    /// Number of blocks of sealed compressed segments from which rows were read.
    pub blocks_read: u64,
    /// Number of blocks of sealed compressed segments that contain no requested rows.
    pub blocks_skipped: u64,
}

impl QuerySummary {
    /// Counts a sample that was read.
    pub(super) fn add(&mut self, is_decodable: bool) {
        *(if is_decodable { &mut self.samples } else { &mut self.undecodable }) += 1;
    }
}
