//! Shared parts of the benches of the classical suite: its event, its loops, and those of other
//! formats.
//!
//! Names, values and the form of each loop are those of flatstream 0.2.7's own benches, so that
//! results can be compared with published ones.

pub mod blocks;
pub mod department;
pub mod evolution;
pub mod files;
pub mod flames;
pub mod framing;
pub mod keepers;
pub mod packers;
pub mod recording;
pub mod records;
pub mod rig;
pub mod rounds;
pub mod segments;
pub mod tables;

use std::io::{Cursor, Read, Write};
use std::time::Duration;

use criterion::Criterion;
use flatbuffers::{Allocator, FlatBufferBuilder};
use flatcap_stream::{Deframer, Framer, Result, StreamReader, StreamSerialize, StreamWriter};
use serde::{Deserialize, Serialize};

/// Payload bytes of an event, the basis of throughput in the classical suite.
pub const EVENT_BYTES: usize = 24;

/// Short enough to run all three files in a few minutes.
pub fn settings() -> Criterion {
    Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_millis(1500))
}

/// The event of the classical suite. As a payload its root is a vector of [`EVENT_BYTES`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TelemetryEvent {
    pub device_id: u64,
    pub timestamp: u64,
    pub value: f64,
}

impl TelemetryEvent {
    /// The events of one run.
    pub fn series(count: u32) -> Vec<Self> {
        let event = |index: u32| Self {
            device_id: u64::from(index % 1000),
            timestamp: 1_672_531_200 + u64::from(index),
            value: f64::from(index) * 1.5,
        };
        (0..count).map(event).collect()
    }
}

impl StreamSerialize for TelemetryEvent {
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        let fields = [self.device_id, self.timestamp, self.value.to_bits()];
        finish_as_bytes(fields, builder);
        Ok(())
    }
}

/// Finishes a payload whose root is the bytes of the fields. They are first collected in a vector:
/// this allocation is part of the classical workload.
pub fn finish_as_bytes<A: Allocator>(fields: [u64; 3], builder: &mut FlatBufferBuilder<'_, A>) {
    let mut bytes = Vec::with_capacity(EVENT_BYTES);
    fields.iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
    let root = builder.create_vector(&bytes);
    builder.finish(root, None);
}

/// Writes in simple mode into a new vector.
pub fn write_simple<F: Framer, T: StreamSerialize>(framer: F, items: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_simple_into(&mut bytes, framer, items);
    bytes
}

/// Writes in simple mode from the start of `bytes`; the cursor overwrites existing content.
pub fn write_simple_into<F: Framer, T: StreamSerialize>(bytes: &mut Vec<u8>, framer: F, items: &[T]) {
    let mut writer = StreamWriter::new(Cursor::new(bytes), framer);
    for item in items {
        writer.write(item).expect("a vector takes everything");
    }
}

/// Writes in expert mode, with the caller's builder.
pub fn write_expert<F: Framer, T: StreamSerialize>(
    framer: F,
    builder: &mut FlatBufferBuilder<'_>,
    items: &[T],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::new(Cursor::new(&mut bytes), framer);
    for item in items {
        builder.reset();
        item.serialize(builder).expect("building cannot fail");
        writer.write_finished(builder).expect("a vector takes everything");
    }
    bytes
}

/// Calls `take` with every payload of a stream.
pub fn read_stream<D: Deframer>(deframer: D, bytes: &[u8], mut take: impl FnMut(&[u8])) {
    let mut reader = StreamReader::new(Cursor::new(bytes), deframer);
    let read = reader.process_all(|payload| {
        take(payload);
        Ok(())
    });
    read.expect("intact");
}

/// Writes another format as usual: one vector per item, preceded by its length.
pub fn write_framed<T>(items: &[T], encode: impl Fn(&T) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in items {
        let encoded = encode(item);
        let length = u32::try_from(encoded.len()).expect("short");
        bytes.write_all(&length.to_le_bytes()).expect("a vector takes everything");
        bytes.write_all(&encoded).expect("a vector takes everything");
    }
    bytes
}

/// Reads another format as usual: each item's bytes into a new vector, then decoded.
pub fn read_framed<T>(bytes: &[u8], decode: impl Fn(&[u8]) -> T, mut take: impl FnMut(T)) {
    let mut source = Cursor::new(bytes);
    let mut length = [0; 4];
    while source.read_exact(&mut length).is_ok() {
        let mut encoded = vec![0; u32::from_le_bytes(length) as usize];
        source.read_exact(&mut encoded).expect("whole");
        take(decode(&encoded));
    }
}
