//! Counts instructions of the stream library's hot paths. Budget: 2 % above
//! benches/regression/baseline.txt.
//!
//! Instruction counts under callgrind do not depend on other load. `scripts/regression.sh` runs
//! this and compares. valgrind does not support AVX-512, so the AVX2 path of XXH3 is counted.

use std::hint::black_box;
use std::io::BufReader;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::frame::{FrameTemplate, TemplateField};
use flatcap_stream::{
    ChecksumKind, FrameDecoder, Framer, KindDeframer, SliceFramer, SliceReader, StreamReader, StreamWriter,
    salvage,
};
use gungraun::{library_benchmark, library_benchmark_group, main};
use synthetic::flatcap::synthetic::{Point, PointArgs};

#[path = "../../../generated/synthetic_generated.rs"]
#[allow(warnings, reason = "generated code keeps the generator's own style")]
mod synthetic;

const FRAMES: usize = 1000;

struct Stream {
    kind: ChecksumKind,
    bytes: Vec<u8>,
}

fn stream(kind: ChecksumKind, payload_bytes: usize) -> Stream {
    let mut bytes = Vec::new();
    for index in 0..FRAMES {
        let payload: Vec<u8> = (0..payload_bytes).map(|at| (at * 7 + index) as u8).collect();
        kind.frame_and_write(&mut bytes, &payload).unwrap();
    }
    Stream { kind, bytes }
}

struct Sink {
    kind: ChecksumKind,
    payload: Vec<u8>,
    room: Vec<u8>,
}

fn sink(kind: ChecksumKind, payload_bytes: usize) -> Sink {
    Sink { kind, payload: vec![7; payload_bytes], room: vec![0; FRAMES * kind.frame_bytes(payload_bytes)] }
}

#[library_benchmark]
#[bench::none_24(sink(ChecksumKind::None, 24))]
#[bench::crc16_24(sink(ChecksumKind::Crc16, 24))]
#[bench::crc32_24(sink(ChecksumKind::Crc32, 24))]
#[bench::xxh3_24(sink(ChecksumKind::Xxh3, 24))]
#[bench::xxh3_256(sink(ChecksumKind::Xxh3, 256))]
#[bench::xxh3_4096(sink(ChecksumKind::Xxh3, 4096))]
fn frame_in_memory(mut sink: Sink) -> Sink {
    let mut end = 0;
    for _ in 0..FRAMES {
        let room = sink.room.get_mut(end..).unwrap();
        end += sink.kind.frame_into(room, black_box(&sink.payload)).unwrap();
    }
    sink
}

#[library_benchmark]
#[bench::none_24(sink(ChecksumKind::None, 24))]
#[bench::xxh3_24(sink(ChecksumKind::Xxh3, 24))]
fn write_to_vector(mut sink: Sink) -> Sink {
    sink.room.clear();
    let mut writer = StreamWriter::new(&mut sink.room, sink.kind);
    for _ in 0..FRAMES {
        writer.write_payload(black_box(&sink.payload)).unwrap();
    }
    sink
}

#[library_benchmark]
#[bench::none_24(stream(ChecksumKind::None, 24))]
#[bench::crc16_24(stream(ChecksumKind::Crc16, 24))]
#[bench::crc32_24(stream(ChecksumKind::Crc32, 24))]
#[bench::xxh3_24(stream(ChecksumKind::Xxh3, 24))]
#[bench::xxh3_4096(stream(ChecksumKind::Xxh3, 4096))]
fn read_by_slice(stream: Stream) -> (Stream, usize) {
    let bytes = SliceReader::new(&stream.bytes, KindDeframer::new(stream.kind))
        .map(|payload| payload.unwrap().len())
        .sum();
    (stream, bytes)
}

#[library_benchmark]
#[bench::none_24(stream(ChecksumKind::None, 24))]
#[bench::xxh3_24(stream(ChecksumKind::Xxh3, 24))]
fn read_buffered(stream: Stream) -> (Stream, usize) {
    let mut bytes = 0;
    StreamReader::new(BufReader::new(&stream.bytes[..]), KindDeframer::new(stream.kind))
        .process_all(|payload| {
            bytes += payload.len();
            Ok(())
        })
        .unwrap();
    (stream, bytes)
}

#[library_benchmark]
#[bench::xxh3_24(stream(ChecksumKind::Xxh3, 24))]
fn decode_in_pieces(stream: Stream) -> (Stream, usize) {
    let mut decoder = FrameDecoder::new(KindDeframer::new(stream.kind));
    let mut bytes = 0;
    for mut piece in stream.bytes.chunks(1000) {
        while !piece.is_empty() {
            let (taken, payload) = decoder.decode(piece).unwrap();
            bytes += payload.map_or(0, <[u8]>::len);
            piece = &piece[taken..];
        }
    }
    (stream, bytes)
}

#[library_benchmark]
#[bench::xxh3_24(stream(ChecksumKind::Xxh3, 24))]
fn salvage_intact(stream: Stream) -> (Stream, usize) {
    let pieces = salvage(&stream.bytes, KindDeframer::new(stream.kind)).count();
    (stream, pieces)
}

struct Points {
    template: FrameTemplate,
    counter: TemplateField<u64>,
    wave: TemplateField<f64>,
    room: Vec<u8>,
}

fn points() -> Points {
    let mut builder = FlatBufferBuilder::new();
    builder.force_defaults(true);
    let point = Point::create(&mut builder, &PointArgs::default());
    builder.finish_minimal(point);
    let schema = include_bytes!("../../../generated/synthetic.bfbs");
    let template = FrameTemplate::new(builder.finished_data(), schema, &["counter", "wave"]).unwrap();
    let (counter, wave) = (template.field("counter").unwrap(), template.field("wave").unwrap());
    let room = vec![0; FRAMES * ChecksumKind::Xxh3.frame_bytes(template.payload_bytes())];
    Points { template, counter, wave, room }
}

#[library_benchmark]
#[bench::xxh3(points())]
fn write_by_template(mut points: Points) -> Points {
    let mut end = 0;
    for number in 0..FRAMES as u64 {
        let (counter, wave) = (points.counter, points.wave);
        let room = points.room.get_mut(end..).unwrap();
        let written = points.template.frame_into(&ChecksumKind::Xxh3, room, |patch| {
            patch.set(counter, number);
            patch.set(wave, 0.5);
        });
        end += written.unwrap();
    }
    points
}

library_benchmark_group!(
    name = stream_library;
    benchmarks =
        frame_in_memory, write_to_vector, read_by_slice, read_buffered, decode_in_pieces, salvage_intact, write_by_template
);
main!(library_benchmark_groups = stream_library);
