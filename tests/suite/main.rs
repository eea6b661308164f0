//! Tests of the program as a user runs it, and of the rules of the source tree that no compiler
//! checks.
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
    reason = "a test states what it expects by failing"
)]

mod architecture;
mod arguments;
mod asking;
mod attacks;
mod blackbox;
mod causes;
mod compression;
mod config_layers;
mod conformance;
mod control;
mod cookbook;
mod corpus;
mod crafted;
mod crash_recovery;
mod damage;
mod disk;
mod dumping;
mod explaining;
mod fallback;
mod follow;
mod foreign_fields;
mod foreign_folders;
mod foreign_tables;
#[path = "../support/hooked_storage.rs"]
mod hooked_storage;
mod hosts;
mod identity;
mod iex;
mod importing;
mod imports;
#[path = "../../benches/incidents/judge.rs"]
mod incident_judge;
mod incidents;
mod independent_reader;
mod kernel_sources;
mod known_answers;
mod lobster;
#[path = "../generators/lobster.rs"]
mod lobster_generator;
mod measured_values;
mod metrics;
mod names;
mod overload;
mod page;
mod payload_verifier;
mod privileges;
mod prose;
mod push_kills;
mod push_limits;
mod push_refusals;
mod pushing;
mod reading;
mod recording;
mod reference_tools;
mod reloading;
mod removed_segments;
mod replaying;
mod reports;
mod rig;
mod sampling;
mod scheduling;
mod seeking;
mod service;
mod settings_file;
mod several_hosts;
mod sources;
mod template;
mod test_disk;
#[path = "../../benches/capture/tracer.rs"]
mod tracer;
mod triggers;
mod unseen_hosts;
#[cfg(feature = "view")]
mod viewing;
