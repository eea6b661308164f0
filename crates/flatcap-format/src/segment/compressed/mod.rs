//! Compressed segments: blocks that are read as the raw frames in them.

pub(super) mod compressed_segment;
pub(super) mod field_projection;
pub(super) mod outer_footer;
