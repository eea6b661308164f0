//! Compressed segments: their blocks are read as the raw frames that they contain.

pub(super) mod compressed_segment;
pub(super) mod outer_footer;
pub(super) mod source_selection;
