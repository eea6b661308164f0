//! Compares the answers of the engine with naive evaluations, and with a real Prometheus.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::float_cmp,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    missing_docs,
    reason = "a test says what it expects by failing"
)]

mod known_answers;
mod losses;
mod shared_names;
mod staleness;
