//! Names of functions for the stacks of a recording.
//!
//! A recording has files, build ids and offsets. [`Symbolizer`] searches for the file or its debug
//! information in the given directories, and refuses files with another build id.
//!
//! The library `blazesym` does all of this, but it maps files, so that truncating one ends the
//! reader, and it opens files that `.gnu_debuglink` names. So this crate uses `object` for ELF
//! files and `addr2line` for inlined functions, and searches for files itself.
//!
//! This crate never waits for a file, never runs a program, and never trusts a length that a file
//! states.

mod bounded_file;
mod build_id;
mod code_location;
mod debug_info;
mod demangling;
mod elf_file;
mod error;
mod function_table;
mod kernel_names;
mod kernel_symbols;
mod object_search;
mod object_symbols;
mod symbolizer;

pub use build_id::BuildId;
pub use code_location::{CodeLocation, ObjectKey, ObjectKind};
pub use error::SymbolError;
pub use symbolizer::{FunctionNames, Symbolizer};
