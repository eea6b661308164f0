//! A builder with a custom allocator. The allocator grows by whole pages instead of doubling, and
//! counts the bytes that it holds. A memory policy with a factory releases the pages that a burst
//! of large messages has allocated.
//!
//! How to run: `cargo run --example custom_allocator`

#![allow(clippy::print_stdout, reason = "an example shows by printing")]
#![allow(unsafe_code, reason = "flatbuffers::Allocator is an unsafe trait")]

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use flatbuffers::{Allocator, FlatBufferBuilder};
use flatcap_stream::{AdaptiveWatermarkPolicy, DefaultFramer, Result, StreamWriter};

/// Growth of the buffer per step, in bytes.
const PAGE_BYTES: usize = 4096;

/// A buffer that grows page by page and reports its size to a counter.
struct Pages<'a> {
    bytes: Vec<u8>,
    held: &'a AtomicUsize,
}

impl<'a> Pages<'a> {
    fn new(capacity: usize, held: &'a AtomicUsize) -> Self {
        let bytes = vec![0; capacity.next_multiple_of(PAGE_BYTES)];
        held.fetch_add(bytes.len(), Relaxed);
        Self { bytes, held }
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.len(), Relaxed);
    }
}

impl Deref for Pages<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Pages<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

// SAFETY: `grow_downwards` extends the buffer by a page and moves its old contents to the end,
// after a page of zeros; `len` is the length of the slice that `deref` returns. The trait requires
// both.
unsafe impl Allocator for Pages<'_> {
    type Error = Infallible;

    fn grow_downwards(&mut self) -> std::result::Result<(), Infallible> {
        let old_length = self.bytes.len();
        self.bytes.resize(old_length + PAGE_BYTES, 0);
        self.bytes.copy_within(..old_length, PAGE_BYTES);
        let (page, _) = self.bytes.split_at_mut(PAGE_BYTES);
        page.fill(0);
        self.held.fetch_add(PAGE_BYTES, Relaxed);
        Ok(())
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }
}

fn main() -> Result<()> {
    let held = AtomicUsize::new(0);
    let burst = "b".repeat(50_000);

    // With the allocator alone, the builder grows to the size of the largest message, rounded up to
    // a page.
    let builder = FlatBufferBuilder::new_in(Pages::new(PAGE_BYTES, &held));
    let mut writer = StreamWriter::with_builder_alloc(Vec::new(), DefaultFramer, builder);
    writer.write(&"small")?;
    assert_eq!(held.load(Relaxed), PAGE_BYTES);
    writer.write(&burst)?;
    assert_eq!(held.load(Relaxed), 13 * PAGE_BYTES, "50,000 bytes are 13 pages; doubling would take 16");
    println!("the burst took {} bytes", held.load(Relaxed));
    let plain_bytes = writer.into_inner();
    assert_eq!(held.load(Relaxed), 0);

    // With a policy, the factory makes a builder of one page after three small messages in a row.
    let builder = FlatBufferBuilder::new_in(Pages::new(PAGE_BYTES, &held));
    let policy = AdaptiveWatermarkPolicy::new(4, 3).with_baseline(PAGE_BYTES);
    let mut writer = StreamWriter::with_builder_alloc(Vec::new(), DefaultFramer, builder)
        .with_memory_policy_and_factory(policy, |capacity| {
            FlatBufferBuilder::new_in(Pages::new(capacity, &held))
        });
    writer.write(&"small")?;
    writer.write(&burst)?;
    assert_eq!(held.load(Relaxed), 13 * PAGE_BYTES);
    assert_eq!(writer.get_ref(), &plain_bytes, "policies and allocators leave no trace in the stream");
    writer.write_batch(&["calm"; 3])?;
    assert_eq!(held.load(Relaxed), PAGE_BYTES);
    println!("three small messages later it is {} bytes again", held.load(Relaxed));
    Ok(())
}
