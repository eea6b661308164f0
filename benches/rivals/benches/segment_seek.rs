//! Measures the time to the first sample at a given time in a directory of 10,000 segments and 100
//! GB. Budget: 50 ms.
//!
//! The segments of ten seconds each are sealed, with the headers of the default sources (95 KB
//! each), and have 10 MiB of unallocated space in the middle, so that the directory has 100 GB and
//! takes 2 GB of disk. Each turn opens the directory and reads one millisecond at a random time.
//! For cold caches the kernel's caches are dropped before (as root; otherwise they are warm, and
//! the output says so).
//!
//! `cargo bench --bench segment_seek`

use std::sync::Arc;
use std::time::Instant;

use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_format::segment::{SourceInfo, SourceKind};
use flatcap_format::storage::Storage;
use flatcap_os::storage::DataDirectory;
use flatcap_rivals::segments::{header, median, mono_ns, slabs, write};
use flatcap_sampling::sources::CATALOG;
use flatcap_sampling::{SourceOpener, SourceSpec};
use flatcap_stream::ChecksumKind;

const SEGMENTS: u64 = 10_000;
const READINGS: u64 = 10_000; // 1,000 per second
const HOLE_BYTES: u64 = 10 << 20;
const ROUNDS: usize = 25;

fn sources(next_seq: u64) -> Vec<SourceInfo> {
    let source = |(id, entry): (u16, &SourceSpec)| SourceInfo {
        id,
        name: entry.name.into(),
        labels: Vec::new(),
        kind: SourceKind::Host,
        period_ns: 1_000_000,
        root: entry.root.into(),
        schema: entry.schema.to_vec(),
        next_seq: if id == 0 { next_seq } else { 0 },
    };
    let of_host = CATALOG.iter().filter(|entry| matches!(entry.opener, SourceOpener::Host(_)));
    (0..).zip(of_host).map(source).collect()
}

fn make(folder: &std::path::Path) {
    let storage = Arc::new(DataDirectory::open(folder).expect("a disk")) as Arc<dyn Storage>;
    for number in 0..SEGMENTS {
        let first = number * READINGS;
        // Only the samples of the first and the last seconds exist; unallocated space replaces the
        // others.
        let mut frames = slabs(ChecksumKind::Xxh3, 64, first, 1 << 14);
        frames.extend(slabs(ChecksumKind::Xxh3, 64, first + READINGS - 500, 1 << 14));
        let header = header(number, ChecksumKind::Xxh3, first, sources(first));
        let writer = write(&storage, number, header, &frames, 0);
        let name = writer.name();
        let path = folder.join(name.to_string());
        let file = std::fs::File::options().write(true).open(&path).expect("just made");
        file.set_len(writer.bytes() + HOLE_BYTES).expect("a disk");
        // Not published, since that would truncate the unallocated space.
        drop(writer.seal().expect("enough space"));
        std::fs::rename(&path, folder.join(name.sealed().to_string())).expect("just made");
    }
}

fn drop_caches() -> bool {
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

fn seek(folder: &std::path::Path, seq: u64) -> f64 {
    let begin = Instant::now();
    let since_ns = mono_ns(seq) as i64;
    let filter = ReplayFilter {
        since_ns: Some(since_ns),
        until_ns: Some(since_ns + 1_000_000),
        ..ReplayFilter::default()
    };
    let mut reader = MergedReader::open(&[folder.to_owned()], filter).expect("a directory");
    loop {
        match reader.next().expect("readable").expect("a sample at that time") {
            ReplayItem::Sample(sample) => {
                assert_eq!(sample.telemetry.seq, seq);
                return begin.elapsed().as_secs_f64() * 1e3;
            }
            _ => {}
        }
    }
}

fn main() {
    let folder = tempfile::tempdir().expect("a disk");
    make(folder.path());
    rustix::fs::sync();
    let bytes: u64 = std::fs::read_dir(folder.path())
        .expect("just made")
        .map(|entry| entry.expect("an entry").metadata().expect("a file").len())
        .sum();
    println!("{SEGMENTS} segments, {:.1} GB", bytes as f64 / 1e9);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // One of the first samples of a segment, before the unallocated space.
        (state % SEGMENTS) * READINGS + state % 100
    };
    for (what, is_cold) in [("cold", true), ("warm", false)] {
        let mut times = Vec::new();
        let mut dropped = true;
        for _ in 0..ROUNDS {
            let seq = random();
            dropped &= !is_cold || drop_caches();
            times.push(seek(folder.path(), seq));
        }
        let what = if dropped { what } else { "warm, since caches cannot be dropped here" };
        let middle = median(&mut times);
        println!("{what}: median {middle:.1} ms, longest {:.1} ms of {ROUNDS}", times[ROUNDS - 1]);
    }
}
