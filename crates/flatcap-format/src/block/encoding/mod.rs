//! The encodings of columns: how the numbers of a column are stored.

pub(super) mod bits;
pub(super) mod column_encoding;
pub(super) mod dictionary;
pub(super) mod encoding_choice;
pub(super) mod numeric;
pub(super) mod numeric_trial;
pub(super) mod size_estimate;
pub(super) mod varint;
