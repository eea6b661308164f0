//! Messages built in one arena. The messages of a batch share one block of memory until the batch
//! is written in a few calls. Then the block is free again. From the second batch on, no message
//! allocates from the heap.
//!
//! How to run: `cargo run --example arena_allocation`

#![allow(clippy::print_stdout, reason = "an example shows by printing")]
#![allow(unsafe_code, reason = "flatbuffers::Allocator is an unsafe trait")]

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};

use bumpalo::Bump;
use flatbuffers::{Allocator, FlatBufferBuilder};
use flatcap_stream::{DefaultDeframer, DefaultFramer, Result, SliceReader, StreamWriter};

/// Space for one batch, including the buffers that its builders outgrow.
const ARENA_BYTES: usize = 64 * 1024;
/// Initial size of a builder, in bytes. Most messages fit.
const MESSAGE_BYTES: usize = 64;

/// A builder's buffer inside an arena.
struct ArenaBuffer<'arena> {
    arena: &'arena Bump,
    bytes: &'arena mut [u8],
}

impl<'arena> ArenaBuffer<'arena> {
    fn new(arena: &'arena Bump) -> Self {
        Self { arena, bytes: arena.alloc_slice_fill_copy(MESSAGE_BYTES, 0) }
    }
}

impl Deref for ArenaBuffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for ArenaBuffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

// SAFETY: `grow_downwards` doubles the buffer, zeroes the new half and copies the old contents to
// the end; `len` is the length of the slice that `deref` returns. The trait requires both.
unsafe impl Allocator for ArenaBuffer<'_> {
    type Error = Infallible;

    fn grow_downwards(&mut self) -> std::result::Result<(), Infallible> {
        // The outgrown slice stays allocated until the arena is reset. This is the cost of an
        // arena.
        let grown = self.arena.alloc_slice_fill_copy(2 * self.bytes.len(), 0);
        let (_, end) = grown.split_at_mut(self.bytes.len());
        end.copy_from_slice(self.bytes);
        self.bytes = grown;
        Ok(())
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Builds a message in the arena. The result borrows the arena and not the builder, because the
/// builder is dropped at the end of this function.
fn build<'arena>(arena: &'arena Bump, text: &str) -> &'arena [u8] {
    let mut builder = FlatBufferBuilder::new_in(ArenaBuffer::new(arena));
    let root = builder.create_string(text);
    builder.finish(root, None);
    let (buffer, start) = builder.collapse_in();
    let (_, message) = buffer.bytes.split_at(start);
    message
}

fn main() -> Result<()> {
    let mut arena = Bump::with_capacity(ARENA_BYTES);
    let bytes_at_start = arena.allocated_bytes();
    let mut writer = StreamWriter::new(Vec::new(), DefaultFramer);

    for batch in 0..50 {
        let messages: Vec<&[u8]> =
            (0..100).map(|index| build(&arena, &format!("batch {batch} message {index}"))).collect();
        // The finished messages stay in the arena, so up to 32 of them go to the sink in one call.
        writer.write_payloads(messages)?;
        // The borrow checker ensures that no message of the batch is used after this.
        arena.reset();
    }
    assert_eq!(arena.allocated_bytes(), bytes_at_start, "fifty batches used the memory of one");
    println!("5000 messages were built in {bytes_at_start} bytes");

    // A message may outgrow its first buffer. The reset frees the outgrown slices too.
    let long = "long ".repeat(1000);
    writer.write_payload(build(&arena, &long))?;
    arena.reset();
    assert_eq!(arena.allocated_bytes(), bytes_at_start);

    let bytes = writer.into_inner();
    let texts = SliceReader::new(&bytes, DefaultDeframer::new())
        .map(|payload| Ok(flatbuffers::root::<&str>(payload?)?))
        .collect::<Result<Vec<_>>>()?;
    assert_eq!(texts.len(), 5001);
    assert_eq!(texts.get(4999), Some(&"batch 49 message 99"));
    assert_eq!(texts.last(), Some(&long.as_str()));
    println!("read back {} messages", texts.len());
    Ok(())
}
