//! Encoding of blocks. Frames become columns, and columns become parts.

pub(super) mod block_builder;
#[cfg(test)]
pub(super) mod encoded_sizes;
pub(super) mod encoder;
pub(super) mod matrix;
pub(super) mod raw_ranges;
#[cfg(test)]
pub(super) mod text;
