//! The stream library as its users build it:
//! `cargo test --no-default-features --features all_checksums,flatstream --test stream`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "a test says what it expects by failing"
)]

mod compat;
mod faults;
mod golden;
mod limits;
mod properties;
mod salvaged;
mod test_streams;
