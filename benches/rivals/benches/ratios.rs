//! Checks the targets of the stream library. Budget: the ratios in the table that it prints.
//!
//! Ratios of measurements one after the other vary with the machine's speed. Here a row and its
//! rival take turns, round by round, and the ratio is the median of the rounds' ratios; the range
//! is that of the middle half.
//!
//! `cargo bench --bench ratios`, or with a word that the rows' names must contain.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufReader, Write};
use std::time::Instant;

use flatcap_rivals::framing::{STREAM_BYTES, copy_in_place, frame_all, stream};
use flatcap_stream::{
    Checksum, ChecksumDeframer, ChecksumFramer, Crc16, DefaultDeframer, DefaultFramer, Framer, SliceDeframer,
    SliceReader, StreamReader, XxHash64,
};
use memmap2::Mmap;

const ROUNDS: usize = 61;
/// Minimum duration of one turn.
const TURN_NS: f64 = 1e6;

type Work<'a> = Box<dyn FnMut() -> u64 + 'a>;

/// Two alternatives that process `units` items each.
struct Pair<'a> {
    name: String,
    target: &'static str,
    units: usize,
    ours: Work<'a>,
    other: Work<'a>,
}

fn pair<'a>(
    name: impl Into<String>,
    target: &'static str,
    units: usize,
    ours: impl FnMut() -> u64 + 'a,
    other: impl FnMut() -> u64 + 'a,
) -> Pair<'a> {
    Pair { name: name.into(), target, units, ours: Box::new(ours), other: Box::new(other) }
}

/// Returns nanoseconds per call.
fn turn(work: &mut Work<'_>, calls: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        black_box(work());
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// Returns the number of calls per turn.
fn calls(work: &mut Work<'_>) -> u32 {
    let mut calls = 1;
    while turn(work, calls) * f64::from(calls) < TURN_NS {
        calls *= 2;
    }
    calls
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(q * (values.len() - 1) as f64) as usize]
}

fn measure(mut pair: Pair<'_>) {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if !wanted.iter().all(|word| pair.name.contains(word.as_str())) {
        return;
    }
    let (mut ours, mut other, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (our_calls, other_calls) = (calls(&mut pair.ours), calls(&mut pair.other));
    for _ in 0..ROUNDS {
        ours.push(turn(&mut pair.ours, our_calls) / pair.units as f64);
        other.push(turn(&mut pair.other, other_calls) / pair.units as f64);
        ratios.push(ours[ours.len() - 1] / other[other.len() - 1]);
    }
    println!(
        "{:44} {:>9.2} ns, other {:>9.2} ns: {:5.2} x ({:.2} to {:.2}), target {}",
        pair.name,
        quantile(&mut ours, 0.5),
        quantile(&mut other, 0.5),
        quantile(&mut ratios, 0.5),
        quantile(&mut ratios, 0.25),
        quantile(&mut ratios, 0.75),
        pair.target
    );
}

fn read_slice<D: SliceDeframer>(stream: &[u8], deframer: D) -> u64 {
    let mut sum = 0;
    for payload in SliceReader::new(black_box(stream), deframer) {
        sum += u64::from(payload.unwrap()[0]);
    }
    sum
}

fn read_source<R: std::io::Read, C: Checksum>(source: R, deframer: ChecksumDeframer<C>) -> u64 {
    let mut sum = 0;
    let mut reader = StreamReader::new(source, deframer);
    reader
        .process_all(|payload| {
            sum += u64::from(payload[0]);
            Ok(())
        })
        .unwrap();
    sum
}

/// The minimum work of a copying reader: copies every payload into one buffer.
fn copy_payloads(stream: &[u8], size: usize, buffer: &mut [u8]) -> u64 {
    let mut sum = 0;
    for frame in black_box(stream).chunks_exact(4 + size) {
        buffer.copy_from_slice(&frame[4..]);
        sum += u64::from(black_box(&mut *buffer)[0]);
    }
    sum
}

fn framing(size: usize) {
    let count = STREAM_BYTES / size;
    let payload = &vec![0x5A; size][..];
    let plain = &stream(&DefaultFramer, payload, count);
    let protected = &stream(&ChecksumFramer::new(XxHash64), payload, count);
    let rooms = || (vec![0_u8; count * (12 + size)], vec![0_u8; count * (4 + size)]);
    let memcpy = |mut room: Vec<u8>| {
        move || {
            copy_in_place(black_box(payload), &mut room);
            u64::from(room[4])
        }
    };
    let small = size == 24;
    let (mut room, other) = rooms();
    room.truncate(count * (4 + size));
    let target = if small { "<= 1.1" } else { "-" };
    let name = format!("write in memory, none, {size} B");
    measure(pair(
        name,
        target,
        count,
        move || frame_all(&DefaultFramer, payload, &mut room) as u64,
        memcpy(other),
    ));
    let (mut room, other) = rooms();
    let target = if small { "<= 1.1" } else { "-" };
    let to_vector = move || {
        room.clear();
        for _ in 0..count {
            DefaultFramer.frame_and_write(&mut room, black_box(payload)).unwrap();
        }
        u64::from(room[4])
    };
    measure(pair(format!("write to vector, none, {size} B"), target, count, to_vector, memcpy(other)));
    let (mut room, other) = rooms();
    let target = if small {
        "<= 1.9"
    } else if size >= 256 {
        "<= 2.5"
    } else {
        "-"
    };
    let framer = ChecksumFramer::new(XxHash64);
    let name = format!("write in memory, xxh3, {size} B");
    measure(pair(name, target, count, move || frame_all(&framer, payload, &mut room) as u64, memcpy(other)));

    let buffer = || vec![0_u8; size];
    let target = match size {
        24 => "<= 0.5, and <= 2 ns",
        25..=1024 => "<= 2 ns",
        _ => "<= 3 ns",
    };
    let mut to = buffer();
    let ours = || read_slice(plain, DefaultDeframer::new());
    measure(pair(format!("read by slice, none, {size} B"), target, count, ours, || {
        copy_payloads(plain, size, &mut to)
    }));
    let mut to = buffer();
    let ours = || read_slice(protected, ChecksumDeframer::new(XxHash64));
    let target = if small { "<= 1.2" } else { "-" };
    measure(pair(format!("read by slice, xxh3, {size} B"), target, count, ours, || {
        copy_payloads(plain, size, &mut to)
    }));
    let mut to = buffer();
    let ours = || {
        let source = BufReader::with_capacity(64 << 10, black_box(&plain[..]));
        read_source(source, ChecksumDeframer::new(flatcap_stream::NoChecksum))
    };
    let target = if small { "<= 2" } else { "-" };
    measure(pair(format!("read by copy, buffered, none, {size} B"), target, count, ours, || {
        copy_payloads(plain, size, &mut to)
    }));
}

/// Measures hashing of 4 KiB against a memcpy of the same size.
fn hashing() {
    let bytes = &vec![7_u8; 4096][..];
    let mut room = vec![0_u8; 4096];
    let mut copy = || {
        room.copy_from_slice(black_box(bytes));
        u64::from(black_box(&mut room)[0])
    };
    measure(pair(
        "hash of 4 KiB, xxh3",
        "<= 91 ns (45 GB/s)",
        1,
        || XxHash64.calculate(black_box(bytes)),
        &mut copy,
    ));
    measure(pair(
        "hash of 4 KiB, crc16",
        "<= 1024 ns (4 GB/s)",
        1,
        || Crc16.calculate(black_box(bytes)),
        &mut copy,
    ));
}

/// Measures a file of 64-byte frames in the page cache, mapped and read by slice, against a copying
/// reader.
fn mapped_file() {
    const COUNT: usize = (128 << 20) / 76;
    let payload = [0x5A; 64];
    for (name, protected) in [("not verified", false), ("verified", true)] {
        let piece = if protected {
            stream(&ChecksumFramer::new(XxHash64), &payload, COUNT)
        } else {
            stream(&DefaultFramer, &payload, COUNT)
        };
        let mut file = tempfile::tempfile_in(".").unwrap();
        piece.chunks(1 << 20).for_each(|piece| file.write_all(piece).unwrap());
        // SAFETY: the file has no name, so no other process can truncate it while it is mapped.
        let map = unsafe { Mmap::map(&file) }.unwrap();
        let source = || {
            let mut file: &File = &file;
            std::io::Seek::rewind(&mut file).unwrap();
            BufReader::with_capacity(64 << 10, file)
        };
        let name = format!("mapped file of 64 B frames, {name}");
        if protected {
            let ours = || read_slice(&map, ChecksumDeframer::new(XxHash64));
            let other = || read_source(source(), ChecksumDeframer::new(XxHash64));
            measure(pair(name, "<= 0.33", COUNT, ours, other));
        } else {
            let ours = || read_slice(&map, DefaultDeframer::new());
            let other = || read_source(source(), ChecksumDeframer::new(flatcap_stream::NoChecksum));
            measure(pair(name, "<= 0.33", COUNT, ours, other));
        }
    }
}

fn main() {
    for size in [24, 64, 256, 1 << 10, 4 << 10, 64 << 10] {
        framing(size);
    }
    hashing();
    mapped_file();
}
