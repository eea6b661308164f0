//! Helpers for tests of programs that write or read segments. The module provides a simulated
//! storage, a plain directory, payloads and recordings with known content, and the effort of a
//! test.

#![allow(
    missing_docs,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::return_self_not_must_use,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::should_implement_trait,
    reason = "tests alone use it, and a panic is a failed test"
)]

pub mod effort;
mod fault;
mod folder;
pub mod memory;
mod samples;
mod segments;
pub mod shared_names;
pub mod simulated;
mod simulated_disk;
mod table_writer;

pub use folder::Folder;
pub use samples::{TimedSample, write_samples, write_source};
pub use segments::{compressed, example};
pub use table_writer::{TableField, TableLayout, TableList, TablePosition, TableWriter};
