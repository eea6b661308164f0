//! How does a run of frames become small, and frames again? Blocks: whole frames of a segment, packed so that the exact bytes come back.
//!
//! Never: reads or writes a file, knows a clock; believes a length before it has met its limit.

mod bits;
mod checksum;
mod codec;
mod cost;
mod decode;
mod decoded;
mod dictionary;
mod directory;
mod encode;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod kinds;
mod lane;
mod lengths;
mod matrix;
mod noise;
mod numeric;
mod payloads;
mod rows;
mod scan;
mod sizes;
mod sort;
mod span;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod text;
mod wanted;
mod way;

pub(crate) use checksum::{checksum_from_wire, checksum_to_wire};
pub use codec::Codec;
pub use decode::{Block, Decoder, RAW_BYTES_MAX};
pub use encode::{Encoder, RAW_BYTES_DEFAULT};
pub use error::Fault;
pub use payloads::Payloads;
pub use rows::{Next, Test};
pub use scan::Within;
pub use sizes::SourceSize;
pub use wanted::{Choice, Choose, Kind, Place, Wanted};
pub use way::{Layout, Way, Ways};
