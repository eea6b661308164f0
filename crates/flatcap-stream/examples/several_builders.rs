//! Several builders of suitable sizes, so that one large message does not enlarge the buffer of
//! every small one.
//!
//! A builder keeps the size of its largest message. With a single builder, a reset before a small
//! message does not release the megabytes of a large message. In expert mode (`write_finished`),
//! the program chooses the builder.
//!
//! How to run: `cargo run --example several_builders`

#![allow(clippy::print_stdout, reason = "an example shows by printing")]

use flatbuffers::FlatBufferBuilder;
use flatcap_stream::{DefaultDeframer, DefaultFramer, Result, SliceReader, StreamWriter};

/// Initial size of the builder for heartbeats, of about twenty bytes each.
const SMALL_BYTES: usize = 256;
/// Initial size of the builder for snapshots, of 300,000 bytes each.
const LARGE_BYTES: usize = 512 * 1024;

/// Returns the size of a builder's buffer in bytes, including unused bytes. A builder has no getter
/// for the size of its buffer, so this function takes the length of the buffer itself.
fn bytes_held(builder: &mut FlatBufferBuilder<'_>) -> usize {
    let (buffer, _start) = builder.mut_finished_buffer();
    buffer.len()
}

/// Builds a message of one string. A reset keeps the memory and discards the previous message.
fn build(builder: &mut FlatBufferBuilder<'_>, text: &str) {
    builder.reset();
    let root = builder.create_string(text);
    builder.finish(root, None);
}

fn main() -> Result<()> {
    let mut writer = StreamWriter::new(Vec::new(), DefaultFramer);
    let mut heartbeats = FlatBufferBuilder::with_capacity(SMALL_BYTES);
    let mut snapshots = FlatBufferBuilder::with_capacity(LARGE_BYTES);
    let snapshot = "s".repeat(300_000);

    for second in 0..100 {
        build(&mut heartbeats, &format!("beat {second}"));
        writer.write_finished(&mut heartbeats)?;
        if second % 25 == 0 {
            build(&mut snapshots, &snapshot);
            writer.write_finished(&mut snapshots)?;
        }
    }
    assert_eq!(bytes_held(&mut heartbeats), SMALL_BYTES, "the small builder never grew");
    assert_eq!(bytes_held(&mut snapshots), LARGE_BYTES, "nor did the large one: it was made large enough");
    println!("heartbeats took {SMALL_BYTES} bytes of memory, snapshots {LARGE_BYTES}");

    // For comparison, a single builder stays as large as its largest message.
    let mut shared = FlatBufferBuilder::with_capacity(SMALL_BYTES);
    build(&mut shared, &snapshot);
    build(&mut shared, "beat");
    assert!(bytes_held(&mut shared) > snapshot.len());
    println!("one builder for both would hold {} bytes for each heartbeat", bytes_held(&mut shared));

    // The bytes do not show which builder wrote a message.
    let bytes = writer.into_inner();
    let sizes = SliceReader::new(&bytes, DefaultDeframer::new())
        .map(|payload| payload.map(<[u8]>::len))
        .collect::<Result<Vec<_>>>()?;
    let large = sizes.iter().filter(|&&size| size > snapshot.len()).count();
    assert_eq!((sizes.len(), large), (104, 4));
    println!("read back {} messages, {large} of them large", sizes.len());
    Ok(())
}
