//! Reads compressed segments. A reader sees the raw frames that the blocks contain.

pub(super) mod compressed_segment;
pub(super) mod outer_footer;
pub(super) mod source_selection;
