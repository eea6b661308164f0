//! The program as a new user runs it, and the house rules that no compiler checks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what it expects by failing where it is not so"
)]

mod architecture;
mod arguments;
mod attacks;
mod control;
mod corpus;
mod crafted;
mod damage;
mod disk;
mod dumping;
#[path = "../../src/effort.rs"]
mod effort;
mod fallback;
mod follow;
mod hosts;
mod iex;
mod importing;
mod judges;
mod layers;
mod lobster;
#[path = "../generators/lobster.rs"]
mod lobster_generator;
mod medium;
mod metrics;
mod overload;
mod privileges;
mod reading;
mod recording;
mod reloading;
mod replaying;
mod rescue;
mod rig;
mod sampling;
mod sealing;
mod seeking;
mod service;
mod sources;
mod template;
#[path = "../../benches/capture/tracer.rs"]
mod tracer;
mod walker;
