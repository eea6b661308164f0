//! Conversions between the types of a program and payloads.

use flatbuffers::{Allocator, FlatBufferBuilder, Follow};

use super::error::Result;

/// A type that can be written as a FlatBuffer.
///
/// The builder functions that flatc generates require an allocator that outlives the builder's
/// lifetime. The signature of `serialize` is the same as in flatstream, and does not guarantee such
/// an allocator. Therefore an implementation writes fields with `push_slot`. To use generated
/// builders, build the message outside this trait and write it with
/// [`write_finished`](super::StreamWriter::write_finished).
pub trait StreamSerialize {
    /// Builds the FlatBuffer and finishes it (`builder.finish(..)`). The builder is empty when this
    /// method is called.
    ///
    /// # Errors
    /// The errors of the implementation; the writer returns them and writes nothing.
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()>;
}

/// Writes a string as a payload whose root is that string.
impl StreamSerialize for &str {
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        let root = builder.create_string(self);
        builder.finish(root, None);
        Ok(())
    }
}

/// Writes the string in the same way as a `&str`.
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
    /// `FlatbuffersError` for a payload that is not a FlatBuffer of this type.
    fn from_payload(payload: &'a [u8]) -> Result<Self::Root>;
}
