//! Runs the program `flatcap-convert` as flatcap does, on recordings of known content.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a test says what it expects by failing"
)]

mod formats;
mod shared_names;
mod stacks;
mod versions;
