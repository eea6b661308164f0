//! The encodings of columns. An encoding is a way to store the numbers of a column.

pub(super) mod bits;
pub(super) mod column_encoding;
pub(super) mod dictionary;
pub(super) mod encoding_choice;
pub(super) mod numeric;
pub(super) mod numeric_trial;
pub(super) mod size_estimate;
pub(super) mod varint;
