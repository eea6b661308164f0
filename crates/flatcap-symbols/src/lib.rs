//! Names of functions for the stacks of a recording.
//!
//! A recording has files, build ids and offsets. [`Symbolizer`] looks for the file or its debug
//! information where it is asked to, and takes none with another build id. A file without a build
//! id counts if its size and the time of its modification are the recorded ones.
//!
//! The library `blazesym` has all of this, but it maps files, so that who shortens one kills the
//! reader, and opens what `.gnu_debuglink` names. So `object` has the structures of ELF files,
//! `addr2line` the inlined functions, and the search is our own.
//!
//! Never: waits for a file, runs a program, or trusts a length that a file states.

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
