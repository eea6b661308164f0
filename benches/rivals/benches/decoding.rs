//! Measures reading three fields of `cpu` by the schema in a segment. Budget: 1 GB/s on one core.
//!
//! All rows take turns, round by round; medians are shown. Before each turn all payloads are read
//! once as bytes, so that no row profits from the caches of the one before. GB/s count payload
//! bytes in every row, whatever form it reads, except in the last row, which reads frames and
//! counts their bytes. Payloads of this host are from its /proc/stat, those of 64 cores from a
//! generated /proc/stat.
//!
//! `cargo bench --bench decoding`

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use flatbuffers::root;
use flatcap::config::Config;
use flatcap_format::frame::{Builders, ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::schema::frame::root_as_telemetry_frame;
use flatcap_format::schema::{CompiledSchema, FieldValue, PathStep, Visitor};
use flatcap_os::host::HostRoot;
use flatcap_sampling::sources::find;
use flatcap_sampling::{OpenContext, OpenedSampler};
use flatcap_schemas::host::Cpu;
use flatcap_stream::{ChecksumKind, Framer, KindDeframer, SliceReader};
use serde::Deserialize;

const FIELDS: [&str; 3] = ["total.user", "total.idle", "context_switches"];
const ROUNDS: usize = 41;

/// Consecutive payloads of the source `cpu`, each at a multiple of 8.
struct Payloads {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
    payload_bytes: usize,
}

impl Payloads {
    /// Fills `room` bytes with payloads, of at most a thousand different samples.
    fn new(room: usize, mut reading: impl FnMut(usize, &mut Vec<u8>)) -> Self {
        let mut readings = Vec::new();
        for index in 0..1000 {
            let mut payload = Vec::new();
            reading(index, &mut payload);
            readings.push(payload);
            if readings.iter().map(Vec::len).sum::<usize>() >= room {
                break;
            }
        }
        let mut payloads =
            Self { bytes: Vec::with_capacity(room + 8192), ranges: Vec::new(), payload_bytes: 0 };
        for payload in readings.iter().cycle() {
            if payloads.bytes.len() >= room {
                break;
            }
            let start = payloads.bytes.len();
            payloads.bytes.extend_from_slice(payload);
            payloads.ranges.push(start..payloads.bytes.len());
            payloads.payload_bytes += payload.len();
            payloads.bytes.resize(payloads.bytes.len().next_multiple_of(8), 0);
        }
        payloads
    }

    fn of_this_host(room: usize) -> Self {
        let mut sample = sampler(&HostRoot::new("/"));
        Self::new(room, |_, payload| sample(payload))
    }

    fn of_64_cores(room: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let file = folder.path().join("proc/stat");
        std::fs::write(&file, stat_of_64_cores(0)).unwrap();
        let mut sample = sampler(&HostRoot::new(folder.path()));
        Self::new(room, |index, payload| {
            std::fs::write(&file, stat_of_64_cores(index)).unwrap();
            sample(payload);
        })
    }

    fn sum(&self, mut read: impl FnMut(&[u8]) -> u64) -> u64 {
        let bytes = black_box(&self.bytes[..]);
        self.ranges.iter().fold(0, |sum, range| read(&bytes[range.clone()]).wrapping_add(sum))
    }
}

/// The recorder's own source, which fills a payload.
fn sampler(host: &HostRoot) -> impl FnMut(&mut Vec<u8>) + use<> {
    let config = Config::default();
    let source = config.sources.iter().find(|source| source.spec.name == "cpu").unwrap();
    let context = OpenContext { host, settings: source.settings() };
    let OpenedSampler::Built(mut sampler) = source.spec.open(&context).unwrap() else {
        panic!("the cores of a host come and go")
    };
    let mut builders = Builders::default();
    move |payload| {
        let builder = builders.for_size(8192);
        sampler.read().unwrap();
        sampler.build(0, builder);
        payload.extend_from_slice(builder.finished_data());
    }
}

fn stat_of_64_cores(index: usize) -> String {
    let times = |of: usize| {
        (1..=10).map(|time| (of * 1000 + time * 77 + index * time).to_string()).collect::<Vec<_>>()
    };
    let mut text = format!("cpu  {}\n", times(6400).join(" "));
    for core in 0..64 {
        text += &format!("cpu{core} {}\n", times(core).join(" "));
    }
    text + &format!(
        "intr {0} 1\nctxt {0}\nbtime 1700000000\nprocesses 7\nprocs_running 1\nprocs_blocked 0\nsoftirq {0} 1\n",
        1_000_000 + index
    )
}

/// Sums the numbers of a walk.
struct Sum(u64);

impl Visitor for Sum {
    fn begin_object(&mut self, _: PathStep<'_>) {}
    fn end_object(&mut self) {}
    fn begin_list(&mut self, _: PathStep<'_>, _: usize) {}
    fn end_list(&mut self) {}
    fn value(&mut self, _: PathStep<'_>, value: FieldValue<'_>) {
        self.0 = self.0.wrapping_add(number(&value));
    }
}

fn number(value: &FieldValue<'_>) -> u64 {
    if let FieldValue::Unsigned(number) = value { *number } else { 0 }
}

fn add_up(cpu: Cpu<'_>) -> u64 {
    let total = cpu.total();
    total.user().wrapping_add(total.idle()).wrapping_add(cpu.context_switches())
}

#[derive(Deserialize)]
struct CpuJson {
    total: TotalJson,
    context_switches: u64,
}

#[derive(Deserialize)]
struct TotalJson {
    user: u64,
    idle: u64,
}

fn walk(plan: &CompiledSchema, payload: &[u8]) -> u64 {
    let mut sum = Sum(0);
    plan.walk(payload, &mut sum).unwrap();
    sum.0
}

type Row<'a> = (&'static str, usize, Box<dyn FnMut() -> u64 + 'a>);

/// Measures each row once per round and prints medians.
fn measure(title: &str, payloads: &Payloads, mut rows: Vec<Row<'_>>) {
    let (frames, payload_bytes) = (payloads.ranges.len(), payloads.payload_bytes);
    println!("{title}: {frames} frames, {:.0} bytes of payload each", payload_bytes as f64 / frames as f64);
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for ((_, _, work), times) in rows.iter_mut().zip(&mut times) {
            black_box(black_box(&payloads.bytes).iter().fold(0_u8, |sum, byte| sum ^ byte));
            let start = Instant::now();
            black_box(work());
            times.push(start.elapsed().as_nanos() as f64);
        }
    }
    for ((name, bytes, _), times) in rows.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times[ROUNDS / 2];
        println!(
            "  {name:46} {:>10.2} ns per frame {:>9.3} GB/s",
            median / frames as f64,
            *bytes as f64 / median
        );
    }
}

fn rows(title: &str, payloads: &Payloads) {
    let entry = find("cpu").unwrap();
    let plan = CompiledSchema::compile(entry.schema, entry.root).unwrap();
    let selected = plan.select(&FIELDS).unwrap();

    let bytes = payloads.payload_bytes;
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut stream = Vec::new();
    let envelope = Envelope::new(0);
    for (seq, range) in (0..).zip(&payloads.ranges) {
        let payload = &payloads.bytes[range.clone()];
        let mut frame = vec![0; ENVELOPE_BYTES + payload.len()];
        let stamp =
            Stamp { mono_ns: seq * 1000, wall_ns: 5, seq, incomplete: Incomplete::NONE, duration_ns: 7 };
        envelope.write(&mut frame, &stamp, payload);
        ChecksumKind::Xxh3.frame_and_write(&mut stream, &frame).unwrap();
        if bytes < 1 << 20 {
            let mut line = Vec::new();
            plan.append_json(payload, &mut line).unwrap();
            lines.push(line);
        }
    }

    let by_walk = || payloads.sum(|payload| walk(&selected, payload));
    let verified = || payloads.sum(|payload| add_up(root::<Cpu<'_>>(payload).unwrap()));
    let unverified = || {
        // SAFETY: the payloads were verified above; this row measures reading without verification.
        payloads.sum(|payload| add_up(unsafe { flatbuffers::root_unchecked::<Cpu<'_>>(payload) }))
    };
    let whole_walk = || payloads.sum(|payload| walk(&plan, payload));
    let json = || {
        lines.iter().fold(0, |sum: u64, line| {
            let cpu: CpuJson = serde_json::from_slice(line).unwrap();
            sum.wrapping_add(cpu.total.user + cpu.total.idle + cpu.context_switches)
        })
    };
    let from_frames = || {
        let deframer = KindDeframer::new(ChecksumKind::Xxh3);
        SliceReader::new(black_box(&stream), deframer).fold(0, |sum: u64, frame| {
            let frame = root_as_telemetry_frame(frame.unwrap()).unwrap();
            sum.wrapping_add(walk(&selected, frame.payload().bytes()))
        })
    };
    let sum = verified();
    assert!([by_walk(), unverified(), from_frames()].iter().all(|other| *other == sum));

    let mut rows: Vec<Row<'_>> = vec![
        ("walk of the selected plan", bytes, Box::new(by_walk)),
        ("walk of everything", bytes, Box::new(whole_walk)),
        ("generated accessors, verified", bytes, Box::new(verified)),
        ("generated accessors, not verified", bytes, Box::new(unverified)),
    ];
    if !lines.is_empty() {
        assert_eq!(json(), sum);
        rows.push(("serde_json, one line per frame", bytes, Box::new(json)));
    }
    rows.push(("frames: XXH3, verified envelope, walk", stream.len(), Box::new(from_frames)));
    measure(title, payloads, rows);
}

/// Measures the work per source: verifying and compiling the schema, selecting fields.
fn once_a_source() {
    let entry = find("cpu").unwrap();
    let mut times: Vec<f64> = (0..1000)
        .map(|_| {
            let start = Instant::now();
            let plan = CompiledSchema::compile(black_box(entry.schema), entry.root).unwrap();
            black_box(plan.select(&FIELDS).unwrap());
            start.elapsed().as_nanos() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "once per source: schema of {} bytes to selected fields, {:.1} us",
        entry.schema.len(),
        times[500] / 1e3
    );
}

fn main() {
    once_a_source();
    for (room, size) in [(512 << 10, "512 KiB"), (64 << 20, "64 MiB")] {
        rows(&format!("this host, {size}"), &Payloads::of_this_host(room));
        rows(&format!("64 cores, {size}"), &Payloads::of_64_cores(room));
    }
}
