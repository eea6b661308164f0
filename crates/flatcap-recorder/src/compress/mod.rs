//! Compression of sealed segments. Each segment is rewritten as compressed blocks and compared with
//! the original. After the comparison, the compressed segment replaces the original
//! (docs/ARCHITECTURE.md).
//!
//! This module never blocks or delays a recording. No byte of a segment is removed until the
//! compressed segment is on disk and was compared with the original.

mod backlog;
mod block_boundaries;
mod compare;
mod compressor;
mod named_options;
mod outcome;
mod replacement;
mod restore;
mod rewrite;
mod sealed_segments;
#[cfg(test)]
mod tests;
mod worker;

pub use compressor::CompressionBudget;
pub use named_options::NamedSourceCompression;
pub use outcome::{CompressError, CompressOutcome, CompressSkipReason};
pub use replacement::{ReplaceJob, ReplaceMode, WorkSlice};
pub use restore::restore_segment;
pub use rewrite::{CompressJob, compress_segment};
pub use sealed_segments::{remove_leftovers, sealed_segments};
pub use worker::{CompressSettings, CompressWorker, CompressWorkerHandle, new_worker};
