//! Measures writing and reading 100 items of 3 numbers or one short string. Budget: bincode in the
//! same run.
//!
//! As in flatstream 0.2.7's suite, a flatcap row passes on each payload without decoding, whereas
//! bincode and JSON decode a value of their own: this compares methods, not equal work, which
//! comparative.rs does. Expert mode with a builder per run, as there.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use flatbuffers::{Allocator, FlatBufferBuilder};
use flatcap_rivals::{finish_as_bytes, read_framed, read_stream, settings, write_expert, write_framed};
use flatcap_stream::{
    DefaultDeframer, DefaultFramer, Framer, FramerExt, Result, SliceReader, StreamSerialize,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum payload that the bounded rows allow: far above any here, so that only the comparison
/// counts.
const BOUND: usize = 1 << 30;

/// Requirements of the rows on an item.
trait Item: StreamSerialize + Serialize + DeserializeOwned {}

impl<T: StreamSerialize + Serialize + DeserializeOwned> Item for T {}

#[derive(Serialize, Deserialize)]
struct MinimalNumeric {
    a: u64,
    b: u64,
    c: u64,
}

impl StreamSerialize for MinimalNumeric {
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        finish_as_bytes([self.a, self.b, self.c], builder);
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct MinimalString {
    text: String,
}

impl StreamSerialize for MinimalString {
    fn serialize<A: Allocator>(&self, builder: &mut FlatBufferBuilder<'_, A>) -> Result<()> {
        StreamSerialize::serialize(&self.text, builder)
    }
}

fn write_flatcap<F: Framer, T: Item>(framer: F, items: &[T]) -> Vec<u8> {
    write_expert(framer, &mut FlatBufferBuilder::new(), items)
}

fn read_flatcap(deframer: DefaultDeframer, bytes: &[u8]) -> usize {
    let mut count = 0;
    read_stream(deframer, bytes, |payload| count += usize::from(!black_box(payload).is_empty()));
    count
}

fn read_by_slice(bytes: &[u8]) -> usize {
    let payloads = SliceReader::new(bytes, DefaultDeframer::new());
    payloads.filter(|payload| !black_box(payload.as_ref().expect("intact")).is_empty()).count()
}

fn write_bincode<T: Item>(items: &[T]) -> Vec<u8> {
    write_framed(items, |item| bincode::serialize(item).expect("plain fields"))
}

fn write_json<T: Item>(items: &[T]) -> Vec<u8> {
    write_framed(items, |item| serde_json::to_vec(item).expect("plain fields"))
}

fn read_bincode<T: Item>(bytes: &[u8]) -> usize {
    let mut count = 0;
    let decode = |encoded: &[u8]| bincode::deserialize::<T>(encoded).expect("intact");
    read_framed(bytes, decode, |item| {
        black_box(item);
        count += 1;
    });
    count
}

fn read_json<T: Item>(bytes: &[u8]) -> usize {
    let mut count = 0;
    let decode = |encoded: &[u8]| serde_json::from_slice::<T>(encoded).expect("intact");
    read_framed(bytes, decode, |item| {
        black_box(item);
        count += 1;
    });
    count
}

/// One row: its name, its writer, and its reader, which counts.
struct Row<T> {
    name: &'static str,
    write: fn(&[T]) -> Vec<u8>,
    read: fn(&[u8]) -> usize,
}

fn rows<T: Item>() -> [Row<T>; 5] {
    [
        Row {
            name: "flatcap default",
            write: |items| write_flatcap(DefaultFramer, items),
            read: |bytes| read_flatcap(DefaultDeframer::new(), bytes),
        },
        Row {
            name: "flatcap bounded",
            write: |items| write_flatcap(DefaultFramer.bounded(BOUND), items),
            read: |bytes| read_flatcap(DefaultDeframer::new().with_max_frame_len(BOUND), bytes),
        },
        Row {
            name: "flatcap by slice",
            write: |items| write_flatcap(DefaultFramer, items),
            read: read_by_slice,
        },
        Row { name: "bincode", write: write_bincode, read: read_bincode::<T> },
        Row { name: "serde_json", write: write_json, read: read_json::<T> },
    ]
}

fn shape<T: Item>(criterion: &mut Criterion, name: &str, items: &[T]) {
    let mut group = criterion.benchmark_group(format!("Simple Streams ({name})/write_read_cycle_100"));
    for row in rows::<T>() {
        group.bench_function(row.name, |bencher| {
            bencher.iter(|| {
                let bytes = (row.write)(black_box(items));
                let count = (row.read)(&bytes);
                (bytes, count)
            });
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group(format!("Simple Streams ({name})/read_only_100"));
    for row in rows::<T>() {
        let bytes = (row.write)(items);
        assert_eq!((row.read)(&bytes), items.len(), "{}", row.name);
        group.bench_function(row.name, |bencher| bencher.iter(|| (row.read)(black_box(&bytes))));
    }
    group.finish();
}

fn numeric(criterion: &mut Criterion) {
    let items: Vec<MinimalNumeric> =
        (0..100).map(|index| MinimalNumeric { a: index, b: index * 3, c: index + 7 }).collect();
    shape(criterion, "Numeric", &items);
}

fn string(criterion: &mut Criterion) {
    let items: Vec<MinimalString> =
        (0..100).map(|_| MinimalString { text: "0123456789abcdef".to_owned() }).collect();
    shape(criterion, "String16", &items);
}

criterion_group! { name = all; config = settings(); targets = numeric, string }
criterion_main!(all);
