//! Decoding of whole blocks or of selected columns.

pub(super) mod block_groups;
pub(super) mod decoded_matrix;
pub(super) mod decoder;
pub(super) mod matrix_field;
pub(super) mod seek;
pub(super) mod sizes;
pub(super) mod value_range;
