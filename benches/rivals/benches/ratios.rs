//! Does the stream library reach its targets, as ratios to a memcpy of the same payloads? Budget: the targets below.
//!
//! The classical way to measure, one workload after the other, gives ratios that wander with the machine. Here all
//! workloads take turns, round by round, and each ratio is the median of the rounds' ratios.

use std::hint::black_box;
use std::io::BufReader;
use std::time::Instant;

use flatcap::stream::{
    Checksum, ChecksumDeframer, ChecksumFramer, Crc16, Crc32, DefaultDeframer, DefaultFramer, NoChecksum, SliceDeframer,
    SliceFramer, SliceReader, StreamReader, XxHash64,
};

const STREAM_BYTES: usize = 512 << 10;
const ROUNDS: usize = 41;

struct Row<'a> {
    name: String,
    work: Box<dyn FnMut() -> u64 + 'a>,
    ns: Vec<f64>,
}

fn row<'a>(name: impl Into<String>, work: impl FnMut() -> u64 + 'a) -> Row<'a> {
    Row { name: name.into(), work: Box::new(work), ns: Vec::new() }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn write_frames<F: SliceFramer>(framer: &F, payload: &[u8], count: usize, room: &mut [u8]) -> u64 {
    let mut at = 0;
    for _ in 0..count {
        at += framer.frame_into(&mut room[at..], black_box(payload)).unwrap();
    }
    at as u64
}

fn read_slice<D: SliceDeframer>(stream: &[u8], deframer: D) -> u64 {
    let mut sum = 0;
    for payload in SliceReader::new(stream, deframer) {
        sum += u64::from(payload.unwrap()[0]);
    }
    sum
}

fn main() {
    let only: Option<usize> = std::env::args().skip(1).find_map(|word| word.parse().ok());
    for size in [24, 64, 256, 1024, 4096, 65536_usize] {
        if only.is_some_and(|only| only != size) {
            continue;
        }
        let count = STREAM_BYTES / (size + 4);
        let payload = vec![0x5A_u8; size];
        let mut stream_none = vec![0; count * (size + 4)];
        write_frames(&DefaultFramer, &payload, count, &mut stream_none);
        let mut stream_xxh = vec![0; count * (size + 12)];
        write_frames(&ChecksumFramer::new(XxHash64), &payload, count, &mut stream_xxh);
        let mut rooms: Vec<Vec<u8>> = (0..8).map(|_| vec![1; count * (size + 12)]).collect();
        let mut rooms = rooms.iter_mut();
        let mut next = || rooms.next().unwrap();
        let (a, b, c, d, e, f, g) = (next(), next(), next(), next(), next(), next(), next());
        let payload = &payload[..];
        let mut rows = vec![
            row("memcpy write", move || {
                for chunk in a.chunks_exact_mut(size).take(count) {
                    chunk.copy_from_slice(black_box(payload));
                }
                a[0].into()
            }),
            row("memcpy in place", move || {
                for chunk in g.chunks_exact_mut(size + 4).take(count) {
                    chunk[4..].copy_from_slice(black_box(payload));
                }
                g[4].into()
            }),
            row("write none", move || write_frames(&DefaultFramer, payload, count, b)),
            row("write xxh3", move || write_frames(&ChecksumFramer::new(XxHash64), payload, count, c)),
            row("write crc32", move || write_frames(&ChecksumFramer::new(Crc32), payload, count, d)),
            row("write crc16", move || write_frames(&ChecksumFramer::new(Crc16), payload, count, e)),
            row("write none to Vec", move || {
                f.clear();
                let mut writer = flatcap::stream::StreamWriter::new(&mut *f, DefaultFramer);
                for _ in 0..count {
                    writer.write_payload(black_box(payload)).unwrap();
                }
                f[0].into()
            }),
            row("memcpy read", {
                let mut buffer = vec![0_u8; size];
                let stream = &stream_none;
                move || {
                    let mut sum = 0;
                    for frame in stream.chunks_exact(size + 4) {
                        buffer.copy_from_slice(black_box(&frame[4..]));
                        sum += u64::from(black_box(&buffer)[0]);
                    }
                    sum
                }
            }),
            row("slice none", || read_slice(&stream_none, DefaultDeframer::new())),
            row("slice xxh3", || read_slice(&stream_xxh, ChecksumDeframer::new(XxHash64))),
            row("copy none", || {
                let mut sum = 0;
                StreamReader::new(&stream_none[..], DefaultDeframer::new())
                    .process_all(|payload| { sum += u64::from(payload[0]); Ok(()) })
                    .unwrap();
                sum
            }),
            row("bufreader none", || {
                let mut sum = 0;
                let source = BufReader::with_capacity(64 << 10, &stream_none[..]);
                StreamReader::new(source, DefaultDeframer::new())
                    .process_all(|payload| { sum += u64::from(payload[0]); Ok(()) })
                    .unwrap();
                sum
            }),
            row("bufreader xxh3", || {
                let mut sum = 0;
                let source = BufReader::with_capacity(64 << 10, &stream_xxh[..]);
                StreamReader::new(source, ChecksumDeframer::new(XxHash64))
                    .process_all(|payload| { sum += u64::from(payload[0]); Ok(()) })
                    .unwrap();
                sum
            }),
        ];
        for _ in 0..ROUNDS {
            for row in &mut rows {
                let repeat = 4.max(200_000 / (count * 4).max(1)).min(40);
                let start = Instant::now();
                for _ in 0..repeat {
                    black_box((row.work)());
                }
                row.ns.push(start.elapsed().as_nanos() as f64 / (repeat * count) as f64);
            }
        }
        let mut base = Vec::new();
        for row in &mut rows {
            if row.name.starts_with("memcpy") {
                base = row.ns.clone();
            }
            let mut ratios: Vec<f64> = row.ns.iter().zip(&base).map(|(ns, base)| ns / base).collect();
            println!("{size:6} {:20} {:9.2} ns  {:6.2} x", row.name, median(&mut row.ns), median(&mut ratios));
        }
    }
    let _ = NoChecksum.calculate(&[]);
}
