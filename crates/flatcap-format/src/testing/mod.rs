//! For tests of programs that write segments: a simulated storage, and the effort of a test.

#![allow(missing_docs, reason = "the names say it; only tests use them")]

pub mod effort;
mod fault;
pub mod memory;
pub mod simulated;
mod simulated_disk;
