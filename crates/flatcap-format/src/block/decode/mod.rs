//! Decoding: whole blocks, selected columns, single payloads.

pub(super) mod decoded_matrix;
pub(super) mod decoded_payloads;
pub(super) mod decoder;
pub(super) mod scan;
pub(super) mod seek;
pub(super) mod sizes;
