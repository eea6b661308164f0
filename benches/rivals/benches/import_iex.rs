//! Measures the import of captures of IEX's feeds into segments, on one core. Budget: the lower of
//! 5 million messages and 500 MB of pcap per second; at 57 bytes of pcap per message this is 200 ns
//! per message.
//!
//! Everything counts: reading the file, packets, transport, ordering, payloads, envelopes, XXH3-64,
//! indexes, digests, writing, and publishing the segments (sync, link). One file contains the
//! capture several times, each copy shifted in time to follow the one before, so that each begins
//! new epochs. Besides the real capture (`../shared/data`, skipped if missing): a generated one of
//! the same shape, and TOPS. Input is from tmpfs; segments go to tmpfs, and to the disk of the
//! target directory.
//!
//! `cargo bench --bench import_iex`

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use flatcap_import::iex::{self, Feed};
use flatcap_import::{ImportJob, ImportLimits, ImportProgress, ProgressUpdate};
use flatcap_os::storage::DataDirectory;
use flatcap_rivals::segments::median;
use rustix::time::{ClockId, clock_gettime};

#[path = "../../../tests/generators/iex.rs"]
mod generator;

/// Copies of a capture in one file: about 3 million messages.
const COPIES: i64 = 8;
const ROUNDS: usize = 7;
/// Nanoseconds between the starts of two copies: longer than a capture.
const SHIFT_NS: i64 = 86_400_000_000_000;

struct Run {
    clock_s: f64,
    cpu_s: f64,
    messages: u64,
    totals: u64,
}

fn main() {
    let inputs = tempfile::tempdir_in("/dev/shm").expect("tmpfs");
    let real = real().map(|bytes| ("DEEP, the real capture", Feed::Deep, bytes));
    if real.is_none() {
        println!("skipped: no real capture, set FLATCAP_SHARED_DATA");
    }
    let made = [
        ("DEEP, generated", Feed::Deep, generator::Feed::Deep),
        ("TOPS, generated", Feed::Tops, generator::Feed::Tops),
    ];
    let made = made.map(|(name, feed, of)| {
        let packets = generator::packets(&generator::Shape::real(of, 392_000, 1));
        (name, feed, generator::capture(&packets, generator::File::Pcap, generator::Wrapping::default()))
    });
    println!(
        "{:<24} {:>10} {:>10} {:>11} {:>11} {:>9} {:>9} {:>9} {:>11}",
        "capture", "to", "messages", "M msg/s", "MB/s pcap", "ns clock", "ns CPU", "least", "B/message"
    );
    for (name, feed, bytes) in real.into_iter().chain(made) {
        let path = inputs.path().join("input.pcap");
        let bytes = repeated(&bytes);
        std::fs::write(&path, &bytes).expect("tmpfs");
        for (to, folder) in
            [("tmpfs", Path::new("/dev/shm")), ("disk", Path::new(env!("CARGO_TARGET_TMPDIR")))]
        {
            let runs: Vec<Run> = (0..ROUNDS).map(|_| import(&path, feed, folder)).collect();
            let (messages, totals) = (runs[0].messages, runs[0].totals);
            let clock_s = median(&mut runs.iter().map(|run| run.clock_s).collect::<Vec<_>>());
            // Cache misses caused by other work count as CPU time, so on a busy machine the minimum
            // of the rounds is more reliable.
            let least_s = runs.iter().map(|run| run.cpu_s).fold(f64::INFINITY, f64::min);
            let cpu_s = median(&mut runs.iter().map(|run| run.cpu_s).collect::<Vec<_>>());
            let count = messages as f64;
            println!(
                "{name:<24} {to:>10} {messages:>10} {:>11.2} {:>11.0} {:>9.1} {:>9.1} {:>9.1} {:>11.1}",
                count / clock_s / 1e6,
                bytes.len() as f64 / clock_s / 1e6,
                clock_s / count * 1e9,
                cpu_s / count * 1e9,
                least_s / count * 1e9,
                totals as f64 / count,
            );
        }
    }
    println!("medians of {ROUNDS} rounds; the budget is 200 ns");
}

fn import(path: &PathBuf, feed: Feed, folder: &Path) -> Run {
    let folder = tempfile::tempdir_in(folder).expect("enough space");
    let storage = DataDirectory::open(folder.path()).expect("just made");
    let mut watch = |_: ProgressUpdate| true;
    let limits = ImportLimits { segment_bytes: 256 << 20, frame_max: 16 << 20 };
    let job = ImportJob { storage: &storage, limits, progress: ImportProgress::new(&mut watch) };
    let (begin, begin_cpu) = (Instant::now(), cpu_s());
    let report = iex::import(std::slice::from_ref(path), feed, job).expect("a capture");
    let (clock_s, cpu_s) = (begin.elapsed().as_secs_f64(), cpu_s() - begin_cpu);
    let totals = &report.totals;
    assert_eq!(report.skipped["restarts of the feed's numbers"] as i64, 12 * COPIES - 1);
    assert_eq!(totals.sources[0].lost, 0);
    Run { clock_s, cpu_s, messages: totals.sources[0].recorded, totals: totals.bytes }
}

/// CPU time of this thread: an import has only one.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The real capture, decompressed, without the packet that is cut at its end.
fn real() -> Option<Vec<u8>> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("FLATCAP_SHARED_DATA").map_or_else(beside, PathBuf::from);
    let file = std::fs::File::open(folder.join("iex/DEEP10.pcap.gz")).ok()?;
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).expect("it is whole");
    let end = records(&bytes).last()?.1;
    bytes.truncate(end);
    Some(bytes)
}

/// Bounds of records; both files are little-endian pcap.
fn records(bytes: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 24;
    std::iter::from_fn(move || {
        let length = u32::from_le_bytes(*bytes.get(at + 8..)?.first_chunk()?) as usize;
        let record = (at, at + 16 + length);
        at = record.1;
        (at <= bytes.len()).then_some(record)
    })
}

/// The capture repeated, with the times of each copy after the times of the previous one.
fn repeated(once: &[u8]) -> Vec<u8> {
    let mut all = once[..24].to_vec();
    let shift = |record: &mut [u8], by_ns: i64| {
        add_seconds(record, by_ns / 1_000_000_000);
        // Ethernet, IPv4 without options, UDP.
        let segment = &mut record[16 + 42..];
        add(&mut segment[32..40], by_ns);
        let mut at = 40;
        for _ in 0..u16::from_le_bytes([segment[14], segment[15]]) {
            let length = usize::from(u16::from_le_bytes([segment[at], segment[at + 1]]));
            add(&mut segment[at + 4..at + 12], by_ns);
            at += 2 + length;
        }
    };
    for copy in 0..COPIES {
        for (begin, end) in records(once) {
            let at = all.len();
            all.extend_from_slice(&once[begin..end]);
            shift(&mut all[at..], copy * SHIFT_NS);
        }
    }
    all
}

fn add_seconds(record: &mut [u8], seconds: i64) {
    let place = record.first_chunk_mut().expect("a record");
    *place = (u32::from_le_bytes(*place) + seconds as u32).to_le_bytes();
}

fn add(place: &mut [u8], by_ns: i64) {
    let place: &mut [u8; 8] = place.try_into().expect("eight bytes");
    *place = (i64::from_le_bytes(*place) + by_ns).to_le_bytes();
}
