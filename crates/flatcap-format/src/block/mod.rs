//! Blocks. A block contains frames of a segment in columnar form. The compression is lossless, so
//! decoding returns the exact bytes (docs/FORMAT.md, section 11).
//!
//! This module never reads or writes a file, never reads a clock, and never trusts a length before
//! checking it against a limit.

mod checked_block;
mod checksum;
mod codec;
mod codec_trial;
mod copies;
mod decode;
mod encode;
mod encoding;
mod error;
mod features;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod layout;
mod options;
mod selection;
#[cfg(test)]
mod tests;

pub use checked_block::RAW_BYTES_MAX;
pub(crate) use checksum::{checksum_from_wire, checksum_to_wire};
pub use codec::Codec;
pub use decode::block_groups::{BlockGroups, GroupRows, MatrixRows, PayloadRows};
pub use decode::decoder::{Block, BlockDecoder};
pub use decode::seek::SeekResult;
pub use decode::sizes::SourceSize;
pub use decode::value_range::ValueRange;
pub use encode::encoder::{BlockEncoder, RAW_BYTES_DEFAULT};
pub use error::BlockError;
pub use features::BlockFeatures;
pub use options::{CompressionOptions, Layout, SourceCompression};
pub(crate) use selection::FieldSelection;
pub use selection::{ColumnSelection, FieldRef, ValueType};
