//! Measures the cost of one sample of three values, from the values to bytes that can be written.
//! Budget: 75 ns, compared with other formats in the same run.
//!
//! Includes everything from the values to the bytes in the buffer that goes to the kernel, and for
//! `slab` queueing that buffer for another thread. Excludes reading the host.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flatcap_format::frame::{Envelope, Incomplete, Stamp};
use flatcap_os::wake_event::WakeEvent;
use flatcap_sampling::FixedSampler;
use flatcap_sampling::sources::synthetic::{SyntheticSampler, point};
use flatcap_slab::{
    Arena, Geometry, LossLedger, OnFull, SampleMeta, SlabPool, SlabProducer, SlabProducerSettings, slab_queue,
};
use flatcap_stream::{ChecksumKind, StreamWriter};
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
    Stamp { mono_ns: seq * 1000, wall_ns: 5, seq, incomplete: Incomplete::NONE, duration_ns: 7 }
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sample");
    group.throughput(Throughput::Elements(1));

    // As in the recorder: build, envelope and checksum in the slab, slab to the queue and back to
    // the pool.
    for kind in [ChecksumKind::Xxh3, ChecksumKind::None] {
        let arena = Arena::anonymous(Geometry {
            sources: 1,
            slabs: 16,
            slab_bytes: 64 << 10,
            large_slabs: 1,
            large_slab_bytes: 1 << 20,
        })
        .unwrap();
        let sequence_counters = arena.sequence_counters();
        let pool = Arc::new(SlabPool::new(arena));
        let (queue, mut slabs) = slab_queue(8, OnFull::DropNewest);
        let mut producer = SlabProducer::new(SlabProducerSettings {
            pool: Arc::clone(&pool),
            queue,
            ledger: Arc::new(LossLedger::new(1)),
            wake: Arc::new(WakeEvent::new()),
            checksum: kind,
            frame_max: 1 << 20,
            flush_interval_ns: 5_000_000,
            sequence_counters,
            sources: 1,
            metrics: Arc::default(),
            stop: Arc::default(),
        });
        let mut sampler = SyntheticSampler::point(0);
        let envelope = Envelope::new(0);
        let template = envelope.prefilled(sampler.template().payload());
        let mut seq = 0;
        group.bench_function(format!("flatcap slab {kind}"), |bencher| {
            bencher.iter(|| {
                producer.begin_sample(0, seq);
                let reading = SampleMeta { source: 0, seq, mono_ns: seq * 1000, wall_offset_ns: 0 };
                producer.append(&reading, template.len(), |frame| {
                    let (front, payload) = Envelope::copy(frame, &template);
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

    // The same frame through the stream writer into a vector, as in a program without slabs.
    let mut writer = StreamWriter::new(Vec::with_capacity(1 << 20), ChecksumKind::Xxh3);
    let mut sampler = SyntheticSampler::point(0);
    let envelope = Envelope::new(0);
    let template = envelope.prefilled(sampler.template().payload());
    let mut frame = vec![0; template.len()];
    let mut seq = 0;
    group.bench_function("flatcap stream writer xxh3", |bencher| {
        bencher.iter(|| {
            let (front, payload) = Envelope::copy(&mut frame, &template);
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

    // One heap buffer per sample through a channel, which slabs avoid. On one thread, so no futex
    // counts.
    let (sender, receiver) = crossbeam_channel::bounded::<Vec<u8>>(64);
    let mut seq = 0;
    group.bench_function("bincode, one buffer per sample through a channel", |bencher| {
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
