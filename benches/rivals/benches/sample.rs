//! What does one sample of three values cost from its values to bytes that can be written? Budget: 75 ns, beside what
//! others pay for the same three values in the same run.
//!
//! Not counted: reading the host. Counted: everything from the values to the bytes in the buffer that goes to the
//! kernel, and for `slab` the hand-over of that buffer to another thread's queue.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flatcap::frame::{Envelope, Shortfall, Stamp};
use flatcap::os::event::Event;
use flatcap::sampling::FixedSampler;
use flatcap::sampling::sources::synthetic::{Synthetic, point};
use flatcap::slab::{
    Arena, Geometry, HandOver, HandOverSettings, LossLedger, OnFull, Reading, SlabPool, slab_queue,
};
use flatcap::stream::{ChecksumKind, StreamWriter};
use serde::Serialize;

#[derive(Serialize)]
struct Sample {
    mono_ns: u64,
    wall_ns: i64,
    seq: u64,
    source: u16,
    flags: u16,
    duration_ns: u32,
    counter: u64,
    wave: f64,
    noise: u64,
}

fn sample(seq: u64) -> Sample {
    let values = point(0, seq);
    Sample {
        mono_ns: seq * 1000,
        wall_ns: 5,
        seq,
        source: 0,
        flags: 0,
        duration_ns: 7,
        counter: values.counter,
        wave: values.wave,
        noise: values.noise,
    }
}

fn stamp(seq: u64) -> Stamp {
    Stamp { mono_ns: seq * 1000, wall_ns: 5, seq, shortfall: Shortfall::NONE, duration_ns: 7 }
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sample");
    group.throughput(Throughput::Elements(1));

    // The way of the recorder: build, envelope and checksum in the slab, slab to the queue, slab back to the pool.
    for kind in [ChecksumKind::Xxh3, ChecksumKind::None] {
        let arena = Arena::anonymous(Geometry {
            sources: 1,
            slabs: 16,
            slab_bytes: 64 << 10,
            large_slabs: 1,
            large_slab_bytes: 1 << 20,
        })
        .unwrap();
        let begun = arena.begun();
        let pool = Arc::new(SlabPool::new(arena));
        let (queue, mut slabs) = slab_queue(8, OnFull::DropNewest);
        let mut hand_over = HandOver::new(HandOverSettings {
            pool: Arc::clone(&pool),
            queue,
            ledger: Arc::new(LossLedger::new(1)),
            wake: Arc::new(Event::new()),
            checksum: kind,
            frame_max: 1 << 20,
            interval_ns: 5_000_000,
            begun,
            sources: 1,
            metrics: Arc::default(),
            stop: Arc::default(),
        });
        let mut sampler = Synthetic::point(0);
        let envelope = Envelope::new(0);
        let model = envelope.around(sampler.model().payload());
        let mut seq = 0;
        group.bench_function(format!("flatcap slab {kind}"), |bencher| {
            bencher.iter(|| {
                hand_over.begin(0, seq);
                let reading = Reading { source: 0, seq, mono_ns: seq * 1000, wall_offset_ns: 0 };
                hand_over.append(&reading, model.len(), |frame| {
                    let (front, payload) = Envelope::copy(frame, &model);
                    sampler.patch(seq, payload);
                    envelope.stamp(front, &stamp(seq));
                });
                seq += 1;
                while let Ok(slab) = slabs.try_recv() {
                    pool.give_back(slab);
                }
            });
        });
    }

    // The same frame through the stream writer into a vector, as a program without slabs would.
    let mut writer = StreamWriter::new(Vec::with_capacity(1 << 20), ChecksumKind::Xxh3);
    let mut sampler = Synthetic::point(0);
    let envelope = Envelope::new(0);
    let model = envelope.around(sampler.model().payload());
    let mut frame = vec![0; model.len()];
    let mut seq = 0;
    group.bench_function("flatcap stream writer xxh3", |bencher| {
        bencher.iter(|| {
            let (front, payload) = Envelope::copy(&mut frame, &model);
            sampler.patch(seq, payload);
            envelope.stamp(front, &stamp(seq));
            if writer.get_ref().len() > 1 << 19 {
                writer.get_mut().clear();
            }
            writer.write_payload(&frame).expect("a vector takes everything");
            seq += 1;
        });
    });

    let mut bytes: Vec<u8> = Vec::with_capacity(1 << 20);
    let mut seq = 0;
    group.bench_function("bincode", |bencher| {
        bencher.iter(|| {
            if bytes.len() > 1 << 19 {
                bytes.clear();
            }
            bincode::serialize_into(&mut bytes, black_box(&sample(seq))).expect("a vector takes everything");
            seq += 1;
        });
    });

    let mut seq = 0;
    group.bench_function("serde_json lines", |bencher| {
        bencher.iter(|| {
            if bytes.len() > 1 << 19 {
                bytes.clear();
            }
            serde_json::to_writer(&mut bytes, black_box(&sample(seq))).expect("a vector takes everything");
            bytes.push(b'\n');
            seq += 1;
        });
    });

    // One heap buffer a sample through a channel: what slabs avoid. Same thread, so no futex is counted.
    let (sender, receiver) = crossbeam_channel::bounded::<Vec<u8>>(64);
    let mut seq = 0;
    group.bench_function("bincode, a buffer a sample through a channel", |bencher| {
        bencher.iter(|| {
            let bytes = bincode::serialize(black_box(&sample(seq))).expect("a vector takes everything");
            sender.try_send(bytes).expect("emptied below");
            black_box(receiver.try_recv()).expect("sent above");
            seq += 1;
        });
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
