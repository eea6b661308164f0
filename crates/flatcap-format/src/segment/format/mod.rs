//! The contents of the frames of a segment, and their encoding.

pub(super) mod block_frame;
pub(super) mod block_table;
pub(super) mod control_frames;
pub(super) mod damage;
pub(super) mod digest;
pub(super) mod error;
pub(super) mod footer;
pub(super) mod footer_totals;
pub(super) mod frame_kind;
pub(super) mod header;
pub(super) mod index;
pub(super) mod payload_codec;
pub(super) mod segment_counts;
pub(super) mod segment_name;
