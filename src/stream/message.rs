//! How a program's own types become payloads, and payloads typed roots.

use flatbuffers::{Allocator, FlatBufferBuilder, Follow};

use super::error::Result;

/// A type that becomes a FlatBuffer.
///
/// The builder functions that flatc generates ask that the allocator outlives the builder's lifetime, which the signature
/// below, kept from flatstream, does not say. Within it, fields are written with `push_slot`; with generated builders,
/// build outside and use [`write_finished`](super::StreamWriter::write_finished).
pub trait StreamSerialize {
    /// Builds the FlatBuffer and finishes it (`builder.finish(..)`). The builder comes empty.
    ///
    /// # Errors
    /// What the implementation says; the writer passes it on and writes nothing.
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()>;
}

/// A string is a payload whose root is that string.
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

/// A type that knows how a payload is read.
pub trait StreamDeserialize<'a>: Sized {
    /// The root as flatc generates it, for instance `Event<'a>`.
    type Root: Follow<'a>;

    /// Verifies the payload and gives its root, usually by `flatbuffers::root`.
    ///
    /// # Errors
    /// `FlatbuffersError` for a payload that is no such FlatBuffer.
    fn from_payload(payload: &'a [u8]) -> Result<Self::Root>;
}
