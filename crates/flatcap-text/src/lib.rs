//! Formats text for people in flatcap's programs: quantities with units, times, names, and the
//! function names in stacks.
//!
//! This crate never reads a recording.

pub mod convert_program;
pub mod human;
pub mod quantity;
pub mod stack_names;
pub mod time_printer;
