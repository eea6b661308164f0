//! Measures converting the text of /proc into payloads. Budget: 2 GB/s for the files of numbers, or
//! 1.5 x the time of the best parser available.
//!
//! Parsing and building together, as in a sampler, for a generated host of 128 cores, 64 disks and
//! 32 interfaces in a directory. The rival finds every run of digits and converts it with
//! `atoi_simd`; it handles no names, fields or missing values. The plain one splits at white space
//! and uses the standard library. CPU time, in turns, medians.
//!
//! `cargo bench --bench sources_parse`

use std::fmt::Write;
use std::hint::black_box;

use flatbuffers::FlatBufferBuilder;
use flatcap::config::Config;
use flatcap_os::clock::thread_cpu_ns;
use flatcap_os::host::HostRoot;
use flatcap_rivals::segments::median;
use flatcap_sampling::{OpenContext, OpenedSampler};

const TURNS: usize = 41;
const READINGS: u32 = 500;
const CORES: u64 = 128;

/// The numbers of a host that has been up for a while.
fn number(at: u64) -> u64 {
    at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (16 + at % 40)
}

fn numbers(line: &mut String, from: u64, count: u64) {
    for at in from..from + count {
        write!(line, " {}", number(at)).expect("a string");
    }
    line.push('\n');
}

fn stat() -> String {
    let mut text = String::from("cpu ");
    numbers(&mut text, 1, 10);
    for core in 0..CORES {
        write!(text, "cpu{core}").expect("a string");
        numbers(&mut text, core * 10, 10);
    }
    text.push_str("intr");
    numbers(&mut text, 7, 600);
    text.push_str(
        "ctxt 123456789\nbtime 1795270513\nprocesses 987654\nprocs_running 3\nprocs_blocked 0\nsoftirq",
    );
    numbers(&mut text, 9, 11);
    text
}

fn diskstats() -> String {
    (0..64).fold(String::new(), |mut text, disk| {
        write!(text, " 259 {disk:>7} nvme{disk}n1").expect("a string");
        numbers(&mut text, disk, 17);
        text
    })
}

fn net_dev() -> String {
    let head = "Inter-|   Receive  |  Transmit\n face |bytes packets\n".to_owned();
    (0..32).fold(head, |mut text, interface| {
        write!(text, "  eth{interface}:").expect("a string");
        numbers(&mut text, interface, 16);
        text
    })
}

fn by_atoi_simd(text: &[u8]) -> u64 {
    let (mut sum, mut at) = (0_u64, 0);
    while at < text.len() {
        if !text[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let (value, length) = atoi_simd::parse_prefix::<u64>(&text[at..]).expect("a digit");
        sum = sum.wrapping_add(value);
        at += length;
    }
    sum
}

fn by_standard_library(text: &[u8]) -> u64 {
    let text = std::str::from_utf8(text).expect("ASCII");
    let words = text.split_ascii_whitespace();
    words.filter_map(|word| word.parse::<u64>().ok()).fold(0, u64::wrapping_add)
}

fn timed(mut body: impl FnMut()) -> f64 {
    let begin = thread_cpu_ns();
    for _ in 0..READINGS {
        body();
    }
    (thread_cpu_ns() - begin) as f64 / 1e9 / f64::from(READINGS)
}

fn main() {
    let folder = tempfile::tempdir().expect("a disk");
    let live = |path: &str| std::fs::read_to_string(path).expect("a Linux host");
    let files = [
        ("cpu", "proc/stat", stat()),
        ("memory", "proc/meminfo", live("/proc/meminfo")),
        ("vmstat", "proc/vmstat", live("/proc/vmstat")),
        ("disk", "proc/diskstats", diskstats()),
        ("network", "proc/1/net/dev", net_dev()),
    ];
    for (_, path, text) in &files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a disk");
        std::fs::write(path, text).expect("a disk");
    }
    let (host, config) = (HostRoot::new(folder.path()), Config::default());
    println!(
        "{:>8} {:>8} {:>14} {:>10} {:>14} {:>9}   (medians of {TURNS} turns)",
        "source", "bytes", "flatcap GB/s", "atoi_simd", "standard lib", "of best"
    );
    for (name, _, text) in &files {
        let source = config.sources.iter().find(|source| source.spec.name == *name).expect("configured");
        let context = OpenContext { host: &host, settings: source.settings() };
        let mut sampler = source.spec.open(&context).expect("generated");
        sampler.read().expect("generated");
        let mut builder = FlatBufferBuilder::with_capacity(1 << 20);
        builder.force_defaults(true);
        let mut room = match &sampler {
            OpenedSampler::Built(_) => Vec::new(),
            OpenedSampler::Fixed(sampler) => sampler.template().payload().to_vec(),
        };
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..TURNS {
            times[0].push(timed(|| {
                let shortfall = match &mut sampler {
                    OpenedSampler::Built(sampler) => {
                        builder.reset();
                        let shortfall = sampler.build(0, &mut builder);
                        black_box(builder.finished_data());
                        shortfall
                    }
                    OpenedSampler::Fixed(sampler) => {
                        room.copy_from_slice(sampler.template().payload());
                        let shortfall = sampler.patch(0, &mut room);
                        black_box(&room);
                        shortfall
                    }
                };
                assert!(shortfall.is_none());
            }));
            times[1].push(timed(|| drop(black_box(by_atoi_simd(black_box(text.as_bytes()))))));
            times[2].push(timed(|| drop(black_box(by_standard_library(black_box(text.as_bytes()))))));
        }
        let [ours, simd, plain] = times.map(|mut times| median(&mut times));
        let rate = |seconds: f64| text.len() as f64 / seconds / 1e9;
        println!(
            "{name:>8} {:>8} {:>14.2} {:>10.2} {:>14.2} {:>8.2}x",
            text.len(),
            rate(ours),
            rate(simd),
            rate(plain),
            ours / simd.min(plain)
        );
    }
}
