//! Measures MB/s into and out of files of records, each size, layout and codec separately. Budget:
//! that of head_to_head, which runs the same alternatives in turns; this bench is for observing one
//! of them, and for flame graphs.
//!
//! `cargo bench --bench throughput`: all. `-- 'zstd:3/flatcap'`: some. `-- --profile-time 5 '1024 B
//! row zstd:3/flatcap write'`: a profile, as `target/criterion/.../profile/flamegraph.svg`. Brotli
//! at 10 KiB is only in head_to_head: it takes minutes.

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use flatcap_format::block::{Codec, Layout};
use flatcap_rivals::flames::Flames;
use flatcap_rivals::keepers::{BareCodec, Blocks, Keeper, Mcap, Riegeli};
use flatcap_rivals::records::Records;
use flatcap_stream::ChecksumKind;
use mcap::Compression;

const RECORDS: usize = 10_000;
const CODECS: [Codec; 5] = [Codec::None, Codec::Snappy, Codec::Zstd(3), Codec::Brotli(6), Codec::Brotli(9)];

fn bench(criterion: &mut Criterion, group: &str, records: &Records, keepers: Vec<(&str, Box<dyn Keeper>)>) {
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::Bytes(records.bytes().len() as u64));
    group.sampling_mode(SamplingMode::Flat);
    for (name, mut keeper) in keepers {
        group.bench_function(format!("{name} write"), |bencher| bencher.iter(|| keeper.write(records)));
        let mut is_written = false;
        group.bench_function(format!("{name} read"), |bencher| {
            if !std::mem::replace(&mut is_written, true) {
                keeper.write(records);
            }
            bencher.iter(|| keeper.read());
        });
    }
    group.finish();
}

fn all(criterion: &mut Criterion) {
    for size in [100, 1 << 10, 10 << 10] {
        let records = Records::new(RECORDS, size);
        for (layout, layout_name) in [(Layout::Row, "row"), (Layout::Columnar, "columnar")] {
            for codec in CODECS {
                if size > 4096 && matches!(codec, Codec::Brotli(_)) {
                    continue;
                }
                let mut keepers: Vec<(&str, Box<dyn Keeper>)> = vec![
                    ("flatcap", Box::new(Blocks::new(layout, codec, ChecksumKind::None))),
                    ("riegeli", Box::new(Riegeli::new(layout, codec))),
                ];
                if layout == Layout::Row {
                    keepers.push(("flatcap xxh3", Box::new(Blocks::new(layout, codec, ChecksumKind::Xxh3))));
                    keepers.push(("bare", Box::new(BareCodec::new(codec))));
                }
                bench(criterion, &format!("{size} B {layout_name} {codec}"), &records, keepers);
            }
        }
        let mcap = [("none", None), ("lz4", Some(Compression::Lz4)), ("zstd:3", Some(Compression::Zstd))];
        for (codec, compression) in mcap {
            let keepers: Vec<(&str, Box<dyn Keeper>)> = vec![("mcap", Box::new(Mcap::new(compression, 0)))];
            bench(criterion, &format!("{size} B mcap {codec}"), &records, keepers);
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(700))
        .with_profiler(Flames::default());
    targets = all
}
criterion_main!(benches);
