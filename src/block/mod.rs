//! Blocks: frames of a segment, compressed so that the exact bytes come back (docs/FORMAT.md,
//! section 11).
//!
//! Never: reads or writes a file, or a clock; trusts a length before checking it against a limit.

mod bits;
mod block_builder;
mod checksum;
mod codec;
mod decode;
mod decoded_matrix;
mod decoded_payloads;
mod dictionary;
mod directory;
mod encode;
#[cfg(test)]
mod encoded_sizes;
mod encoding;
mod encoding_choice;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grouping;
mod lengths;
mod matrix;
mod numeric;
mod numeric_trial;
mod options;
mod payloads;
mod raw_ranges;
mod scan;
mod seek;
mod selection;
mod size_estimate;
mod sizes;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod text;
mod varint;

pub(crate) use checksum::{checksum_from_wire, checksum_to_wire};
pub use codec::Codec;
pub use decode::{Block, BlockDecoder, RAW_BYTES_MAX};
pub use encode::{BlockEncoder, RAW_BYTES_DEFAULT};
pub use error::BlockError;
pub use options::{CompressionOptions, Layout, SourceCompression};
pub use payloads::Payloads;
pub use scan::ValueRange;
pub use seek::{FieldPredicate, SeekResult};
pub use selection::{ColumnSelection, FieldRef, FieldSelection, ShapeSelector, ValueType};
pub use sizes::SourceSize;
