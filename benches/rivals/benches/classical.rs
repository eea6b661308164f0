//! Measures the cost per event of each workload of the classical suite. Budget: 30 ns to write, 6
//! ns to read, without a checksum.
//!
//! Names and loops are the same as in flatstream 0.2.7's own suite. Six of its write benches are
//! one loop under different names; all are kept, because their results are published under these
//! names. As there, reading counts payloads and decodes nothing; comparative.rs decodes.

use std::hint::black_box;
use std::io::Cursor;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use flatbuffers::FlatBufferBuilder;
use flatcap_rivals::{
    EVENT_BYTES, TelemetryEvent, read_stream, settings, write_expert, write_simple, write_simple_into,
};
use flatcap_stream::{
    Checksum, ChecksumDeframer, ChecksumFramer, Crc16, Crc32, DefaultDeframer, DefaultFramer, Deframer,
    StreamReader, XxHash64,
};

/// All benches that write events in simple mode through the default framer: name and number of
/// events.
const SIMPLE_WRITES: [(&str, u32); 6] = [
    ("write_iterative_100_messages", 100),
    ("memory_efficiency_write_100_messages", 100),
    ("high_frequency_telemetry_1000_messages", 1000),
    ("large_messages_50_messages", 50),
    ("regression_small_messages", 100),
    ("regression_monomorphization", 100),
];

/// All benches that read one payload after the other.
const LENDING_READS: [(&str, u32); 2] =
    [("zero_allocation_reading_100_messages", 100), ("high_frequency_reading_1000_messages", 1000)];

fn count_payloads<D: Deframer>(deframer: D, bytes: &[u8]) -> usize {
    let mut count = 0;
    read_stream(deframer, bytes, |_| count += 1);
    count
}

fn count_and_measure_payloads<D: Deframer>(deframer: D, bytes: &[u8]) -> (usize, usize) {
    let mut reader = StreamReader::new(Cursor::new(bytes), deframer);
    let mut messages = reader.messages();
    let (mut count, mut total) = (0, 0);
    while let Some(payload) = messages.next().expect("intact") {
        count += 1;
        total += payload.len();
    }
    (count, total)
}

fn writing(criterion: &mut Criterion) {
    let events = TelemetryEvent::series(100);
    let mut builder = FlatBufferBuilder::new();
    criterion.bench_function("write_default_framer_100_messages", |bencher| {
        bencher.iter(|| write_expert(DefaultFramer, &mut builder, &events));
    });
    for (name, count) in SIMPLE_WRITES {
        let events = TelemetryEvent::series(count);
        criterion.bench_function(name, |bencher| bencher.iter(|| write_simple(DefaultFramer, &events)));
    }
    // Ten writers in sequence, each from the start of the buffer, as in the original.
    criterion.bench_function("regression_instruction_cache", |bencher| {
        bencher.iter(|| {
            let mut bytes = Vec::new();
            for _ in 0..10 {
                write_simple_into(&mut bytes, DefaultFramer, black_box(&events[..10]));
            }
            bytes
        });
    });
}

fn reading(criterion: &mut Criterion) {
    let bytes = write_simple(DefaultFramer, &TelemetryEvent::series(100));
    assert_eq!(count_payloads(DefaultDeframer::new(), &bytes), 100);
    criterion.bench_function("read_default_deframer_100_messages", |bencher| {
        bencher.iter(|| count_payloads(DefaultDeframer::new(), black_box(&bytes)));
    });
    for (name, count) in LENDING_READS {
        let bytes = write_simple(DefaultFramer, &TelemetryEvent::series(count));
        assert_eq!(count_and_measure_payloads(DefaultDeframer::new(), &bytes).0, count as usize);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| count_and_measure_payloads(DefaultDeframer::new(), black_box(&bytes)));
        });
    }
}

fn cycle(criterion: &mut Criterion) {
    let events = TelemetryEvent::series(50);
    criterion.bench_function("write_read_cycle_default_50_messages", |bencher| {
        bencher.iter(|| {
            let bytes = write_simple(DefaultFramer, &events);
            count_payloads(DefaultDeframer::new(), &bytes)
        });
    });
}

fn write_row<C: Checksum + Copy>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, checksum: C) {
    let events = TelemetryEvent::series(100);
    group.throughput(Throughput::Bytes((events.len() * EVENT_BYTES) as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| write_simple(ChecksumFramer::new(checksum), &events));
    });
}

fn read_row<C: Checksum + Copy>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, checksum: C) {
    let bytes = write_simple(ChecksumFramer::new(checksum), &TelemetryEvent::series(100));
    assert_eq!(count_payloads(ChecksumDeframer::new(checksum), &bytes), 100);
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| count_payloads(ChecksumDeframer::new(checksum), black_box(&bytes)));
    });
}

fn checksums(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write_with_checksum_100_messages");
    write_row(&mut group, "XXHash64", XxHash64);
    write_row(&mut group, "CRC32", Crc32);
    write_row(&mut group, "CRC16", Crc16);
    group.finish();

    let mut group = criterion.benchmark_group("read_with_checksum_100_messages");
    read_row(&mut group, "XXHash64", XxHash64);
    read_row(&mut group, "CRC32", Crc32);
    read_row(&mut group, "CRC16", Crc16);
    group.finish();
}

criterion_group! { name = all; config = settings(); targets = writing, reading, cycle, checksums }
criterion_main!(all);
