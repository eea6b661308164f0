//! Finds the function names for the stacks of a recording.
//!
//! A recording contains paths of files, build ids and offsets. [`Symbolizer`] searches given
//! directories for the file or its debug information, and ignores files with another build id. A
//! file without a build id is used if its size and modification time equal the recorded values.
//!
//! The library `blazesym` provides the same features. But it maps files, so the kernel kills the
//! reading process if a file is truncated. It also opens files that `.gnu_debuglink` names.
//! Therefore this crate uses `object` for ELF files and `addr2line` for inlined functions, and
//! searches for files itself.
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
mod function_span;
mod function_table;
mod go_functions;
mod kernel_names;
mod kernel_symbols;
mod object_search;
mod object_symbols;
mod perf_map;
mod symbolizer;

pub use build_id::BuildId;
pub use code_location::{CodeLocation, CodeProcess, ObjectKey, ObjectKind, ObjectVersion};
pub use error::SymbolError;
pub use symbolizer::{FunctionNames, Symbolizer};
