//! Conversions between the types of a program and payloads.

use flatbuffers::{Allocator, FlatBufferBuilder, Follow};

use super::error::Result;

/// A type that can be written as a FlatBuffer.
///
/// The builder functions that flatc generates require an allocator that outlives the builder's
/// lifetime. The signature below, kept from flatstream, does not promise that. Write fields with
/// `push_slot` here; with generated builders, build outside and use
/// [`write_finished`](super::StreamWriter::write_finished).
pub trait StreamSerialize {
    /// Builds the FlatBuffer and finishes it (`builder.finish(..)`). The builder is empty at the
    /// call.
    ///
    /// # Errors
    /// The errors of the implementation; the writer returns them and writes nothing.
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()>;
}

/// A string becomes a payload whose root is that string.
impl StreamSerialize for &str {
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        let root = builder.create_string(self);
        builder.finish(root, None);
        Ok(())
    }
}

/// As `&str`.
impl StreamSerialize for String {
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        self.as_str().serialize(builder)
    }
}

/// A type that can be read from a payload.
pub trait StreamDeserialize<'a>: Sized {
    /// The root type as flatc generates it, for example `Event<'a>`.
    type Root: Follow<'a>;

    /// Verifies the payload and returns its root, usually by `flatbuffers::root`.
    ///
    /// # Errors
    /// `FlatbuffersError` for a payload that is not such a FlatBuffer.
    fn from_payload(payload: &'a [u8]) -> Result<Self::Root>;
}
