//! Compares formats that write telemetry events and read all fields back. Budget: builder reuse
//! faster than bincode as usually written.
//!
//! The work is equal: every row frames each event with its length, and sums all three fields of all
//! events on reading, which is checked before measuring. A flatcap row verifies each payload's root
//! with `flatbuffers::root::<Vector<u8>>` before it reads the fields. To add a row, add a line to
//! [`rows`].
//!
//! Rows reuse different memory between runs, as noted at each: rows as usually written start from
//! nothing, optimized rows keep their buffers.

use std::hint::black_box;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use flatbuffers::{FlatBufferBuilder, Vector};
use flatcap_format::frame::FrameTemplate;
use flatcap_rivals::{
    EVENT_BYTES, TelemetryEvent, read_framed, read_stream, settings, write_framed, write_simple,
};
use flatcap_stream::{
    Checksum, ChecksumDeframer, ChecksumFramer, Crc16, Crc32, DefaultDeframer, DefaultFramer, NoChecksum,
    SliceFramer, SliceReader, StreamWriter, XxHash64,
};
use serde::Serialize;

/// Writes all events and reads them back.
type Run = Box<dyn FnMut(&[TelemetryEvent]) -> Sum>;

/// The rows in measuring order: a name, and a function that creates the state.
fn rows() -> Vec<(&'static str, Run)> {
    vec![
        ("flatcap none", simple(NoChecksum)),
        ("flatcap crc16", simple(Crc16)),
        ("flatcap crc32", simple(Crc32)),
        ("flatcap xxh3", simple(XxHash64)),
        ("flatcap builder reuse", builder_reuse()),
        ("flatcap template, slice", template(NoChecksum)),
        ("flatcap template, slice, xxh3", template(XxHash64)),
        ("bincode as usual", bincode_as_usual()),
        ("bincode well written", bincode_well_written()),
        ("serde_json", json()),
    ]
}

/// The sum of all fields of the events read.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Sum {
    devices: u64,
    times: u64,
    values: f64,
}

impl Sum {
    #[inline]
    fn add(&mut self, event: &TelemetryEvent) {
        self.devices = self.devices.wrapping_add(event.device_id);
        self.times = self.times.wrapping_add(event.timestamp);
        self.values += event.value;
    }

    /// Verifies an event as a FlatBuffer and adds its fields.
    #[inline]
    fn add_payload(&mut self, payload: &[u8]) {
        let root = flatbuffers::root::<Vector<'_, u8>>(payload).expect("verified");
        self.add(&event_of(root.bytes().first_chunk().expect("a whole event")));
    }
}

#[inline]
fn bytes_of(event: &TelemetryEvent) -> [u8; EVENT_BYTES] {
    let mut bytes = [0; EVENT_BYTES];
    let (fields, _) = bytes.as_chunks_mut::<8>();
    fields[0] = event.device_id.to_le_bytes();
    fields[1] = event.timestamp.to_le_bytes();
    fields[2] = event.value.to_le_bytes();
    bytes
}

#[inline]
fn event_of(bytes: &[u8; EVENT_BYTES]) -> TelemetryEvent {
    let (fields, _) = bytes.as_chunks::<8>();
    let field = |index: usize| u64::from_le_bytes(fields[index]);
    TelemetryEvent { device_id: field(0), timestamp: field(1), value: f64::from_bits(field(2)) }
}

/// Simple mode, with a vector per event as in the classical suite. Nothing is reused.
fn simple<C: Checksum + Copy + 'static>(checksum: C) -> Run {
    Box::new(move |events| {
        let bytes = write_simple(ChecksumFramer::new(checksum), events);
        let mut sum = Sum::default();
        read_stream(ChecksumDeframer::new(checksum), black_box(&bytes), |payload| sum.add_payload(payload));
        sum
    })
}

/// Expert mode, without an allocation per event. Builder and stream are reused.
fn builder_reuse() -> Run {
    let mut builder = FlatBufferBuilder::new();
    let mut bytes = Vec::new();
    Box::new(move |events| {
        bytes.clear();
        let mut writer = StreamWriter::new(&mut bytes, DefaultFramer);
        for event in events {
            builder.reset();
            let root = builder.create_vector(&bytes_of(event));
            builder.finish(root, None);
            writer.write_finished(&mut builder).expect("a vector takes everything");
        }
        let mut sum = Sum::default();
        read_stream(DefaultDeframer::new(), black_box(&bytes), |payload| sum.add_payload(payload));
        sum
    })
}

/// A table of one struct, copied and patched; read by slice through the template's view, which
/// compares the bytes that the verifier would check. Template and buffer are reused.
fn template<C: Checksum + Copy + 'static>(checksum: C) -> Run {
    let event = include_bytes!("../../../tests/data/schema/event.bin");
    let schema = include_bytes!("../../../tests/data/schema/event.bfbs");
    let template = FrameTemplate::new(event, schema, &["sample"]).expect("a structure that is present");
    let sample = template.field::<[u8; EVENT_BYTES]>("sample").expect("a path of the template");
    let mut room = Vec::new();
    Box::new(move |events| {
        let framer = ChecksumFramer::new(checksum);
        room.resize(events.len() * (framer.header_bytes() + template.payload_bytes()), 0);
        let mut end = 0;
        for event in events {
            let written =
                template.frame_into(&framer, &mut room[end..], |patch| patch.set(sample, bytes_of(event)));
            end += written.expect("enough space");
        }
        let mut sum = Sum::default();
        for payload in SliceReader::new(black_box(&room[..end]), ChecksumDeframer::new(checksum)) {
            let view = template.view(payload.expect("intact")).expect("the template's shape");
            sum.add(&event_of(&view.get(sample)));
        }
        sum
    })
}

/// A vector per event on both sides. Nothing is reused.
fn bincode_as_usual() -> Run {
    Box::new(|events| {
        let bytes = write_framed(events, |event| bincode::serialize(event).expect("plain fields"));
        let mut sum = Sum::default();
        let decode = |encoded: &[u8]| bincode::deserialize(encoded).expect("intact");
        read_framed(black_box(&bytes), decode, |event| sum.add(&event));
        sum
    })
}

/// Encodes directly into the stream and decodes in place. The stream is reused.
fn bincode_well_written() -> Run {
    let mut bytes = Vec::new();
    Box::new(move |events| {
        bytes.clear();
        events.iter().for_each(|event| append_bincode(&mut bytes, event));
        let mut sum = Sum::default();
        let mut rest = black_box(bytes.as_slice());
        while let Some((length, behind)) = rest.split_first_chunk() {
            let (encoded, next) = behind.split_at(u32::from_le_bytes(*length) as usize);
            sum.add(&bincode::deserialize(encoded).expect("intact"));
            rest = next;
        }
        sum
    })
}

/// Appends an item, then writes its length before it.
fn append_bincode<T: Serialize>(bytes: &mut Vec<u8>, item: &T) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    bincode::serialize_into(&mut *bytes, item).expect("a vector takes everything");
    let length = u32::try_from(bytes.len() - start - 4).expect("short");
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// A vector per event on both sides. Nothing is reused.
fn json() -> Run {
    Box::new(|events| {
        let bytes = write_framed(events, |event| serde_json::to_vec(event).expect("plain fields"));
        let mut sum = Sum::default();
        let decode = |encoded: &[u8]| serde_json::from_slice(encoded).expect("intact");
        read_framed(black_box(&bytes), decode, |event| sum.add(&event));
        sum
    })
}

fn compare(criterion: &mut Criterion, name: &str, count: u32) {
    let events = TelemetryEvent::series(count);
    let mut expected = Sum::default();
    events.iter().for_each(|event| expected.add(event));

    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(count.into())).sampling_mode(SamplingMode::Flat);
    for (name, mut run) in rows() {
        assert_eq!(run(&events), expected, "{name} does not read what it wrote");
        group.bench_function(name, |bencher| bencher.iter(|| run(black_box(&events))));
    }
    group.finish();
}

fn small(criterion: &mut Criterion) {
    compare(criterion, "Small Dataset (100 events)", 100);
}

fn large(criterion: &mut Criterion) {
    compare(criterion, "Large Dataset (100,000 events)", 100_000);
}

criterion_group! { name = all; config = settings(); targets = small, large }
criterion_main!(all);
