//! Measures framing against a memcpy of the same payloads. Budget: docs/BENCHMARKS.md, "Framing".
//!
//! One group per payload size, one row per method: write in memory and to a vector, read by slice,
//! by copy from memory and by copy from a buffered source, with each checksum. All streams are 512
//! KiB, so that they stay in the second-level cache. A row's time is that of its whole stream;
//! throughput counts payload bytes. `ratios.rs` measures the same methods in turns, for ratios that
//! do not depend on changes of the machine's speed.

use std::hint::black_box;
use std::io::BufReader;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use flatcap_rivals::framing::{STREAM_BYTES, copy_in_place, frame_all, stream};
use flatcap_stream::{
    Checksum, ChecksumDeframer, ChecksumFramer, Crc16, Crc32, NoChecksum, SliceFramer, SliceReader,
    StreamReader, StreamWriter, XxHash64,
};

const PAYLOAD_BYTES: [usize; 6] = [24, 64, 256, 1 << 10, 4 << 10, 64 << 10];

fn with_checksum<C: Checksum + Copy>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    checksum: C,
    size: usize,
) {
    let framer = ChecksumFramer::new(checksum);
    let deframer = ChecksumDeframer::new(checksum);
    let payload = vec![0x5A; size];
    let count = STREAM_BYTES / size;
    let mut room = vec![0; count * (framer.header_bytes() + size)];
    group.bench_function(format!("write in memory/{name}"), |bencher| {
        bencher.iter(|| frame_all(&framer, black_box(&payload), &mut room));
    });
    group.bench_function(format!("write to vector/{name}"), |bencher| {
        bencher.iter(|| {
            room.clear();
            let mut writer = StreamWriter::new(&mut room, ChecksumFramer::new(checksum));
            for _ in 0..count {
                writer.write_payload(black_box(&payload)).unwrap();
            }
        });
    });
    let stream = stream(&framer, &payload, count);
    group.bench_function(format!("read by slice/{name}"), |bencher| {
        bencher.iter(|| {
            SliceReader::new(black_box(&stream), deframer)
                .fold(0, |sum, payload| sum + u64::from(payload.unwrap()[0]))
        });
    });
    group.bench_function(format!("read by copy/{name}"), |bencher| {
        bencher.iter(|| first_bytes(StreamReader::new(black_box(&stream[..]), deframer)));
    });
    group.bench_function(format!("read by copy, buffered/{name}"), |bencher| {
        let source = || BufReader::with_capacity(64 << 10, black_box(&stream[..]));
        bencher.iter(|| first_bytes(StreamReader::new(source(), deframer)));
    });
}

fn first_bytes<R: std::io::Read, C: Checksum>(mut reader: StreamReader<R, ChecksumDeframer<C>>) -> u64 {
    let mut sum = 0;
    reader
        .process_all(|payload| {
            sum += u64::from(payload[0]);
            Ok(())
        })
        .unwrap();
    sum
}

fn framing(criterion: &mut Criterion) {
    for size in PAYLOAD_BYTES {
        let mut group = criterion.benchmark_group(format!("framing/{size}"));
        let count = STREAM_BYTES / size;
        group.throughput(Throughput::Bytes((count * size) as u64));
        let payload = vec![0x5A; size];
        let mut room = vec![0; count * (4 + size)];
        group.bench_function("memcpy of the payloads to their places in frames", |bencher| {
            bencher.iter(|| copy_in_place(black_box(&payload), &mut room));
        });
        with_checksum(&mut group, "none", NoChecksum, size);
        with_checksum(&mut group, "crc16", Crc16, size);
        with_checksum(&mut group, "crc32", Crc32, size);
        with_checksum(&mut group, "xxh3", XxHash64, size);
        group.finish();
    }
}

fn settings() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
}

criterion_group! { name = benches; config = settings(); targets = framing }
criterion_main!(benches);
