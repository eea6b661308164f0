//! Writes segments, compressed or not: the frames, the index and the footer, until the segment is
//! sealed.

pub(super) mod compressed_writer;
pub(super) mod live_compression;
pub(super) mod preallocation;
pub(super) mod sealed;
pub(super) mod writer;
