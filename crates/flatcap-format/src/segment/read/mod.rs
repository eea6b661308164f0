//! Reads segments: frame by frame, by index, by field, and over several segments.

pub(super) mod batch_scan;
pub(super) mod block_range;
pub(super) mod catalog;
pub(super) mod index_search;
pub(super) mod notes;
pub(super) mod reader;
pub(super) mod seek;
pub(super) mod sequence_progress;
pub(super) mod timeline;
