//! Measures a full `verify`. Budget: 85 % of the speed of reading a memory map by slice with
//! XXH3-64, frame by frame.
//!
//! The same sealed file in the page cache, in turns, medians. `verify` is the whole command:
//! checksums, order, totals, digest, footer. The file is mapped again in each turn.
//!
//! `cargo bench --bench segment_verify`

use std::fs::File;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use flatcap::cli::{self, ExitStatus};
use flatcap_format::storage::Storage;
use flatcap_os::storage::DataDirectory;
use flatcap_rivals::segments::{header, median, slabs, source, write_whole};
use flatcap_stream::{ChecksumKind, KindDeframer, SliceReader};

const FILE_BYTES: usize = 256 << 20;
const ROUNDS: usize = 21;

fn walked(path: &std::path::Path) -> f64 {
    let begin = Instant::now();
    let file = File::open(path).expect("just made");
    // SAFETY: the file does not change while it is mapped.
    let map = unsafe { memmap2::Mmap::map(&file).expect("a file") };
    let mut reader = SliceReader::new(&map, KindDeframer::new(ChecksumKind::Xxh3));
    let mut frames = 0_u64;
    while let Some(frame) = reader.next_frame() {
        black_box(frame.expect("intact"));
        frames += 1;
    }
    assert!(frames > 1000);
    begin.elapsed().as_secs_f64()
}

fn verified(path: &std::path::Path) -> f64 {
    let begin = Instant::now();
    let mut out = Vec::new();
    let path = path.to_str().expect("ASCII");
    let outcome = cli::run(["flatcap", "verify", path].map(Into::into), &mut out);
    assert_eq!(outcome, ExitStatus::Done, "{}", String::from_utf8_lossy(&out));
    begin.elapsed().as_secs_f64()
}

fn main() {
    println!(
        "{:>8} {:>12} {:>12} {:>8}   (256 MiB, medians of {ROUNDS})",
        "payload", "map GB/s", "verify GB/s", "speed"
    );
    for payload_bytes in [64, 256, 1024, 4096] {
        let folder = tempfile::tempdir().expect("a disk");
        let storage = Arc::new(DataDirectory::open(folder.path()).expect("a disk")) as Arc<dyn Storage>;
        let mut slabs = slabs(ChecksumKind::Xxh3, payload_bytes, 0, FILE_BYTES);
        let bytes: usize = slabs.iter().map(|slab| slab.bytes.len()).sum();
        let header = header(0, ChecksumKind::Xxh3, 0, vec![source(0)]);
        let writer = write_whole(&storage, 0, header, &slabs);
        slabs.clear();
        let path = folder.path().join(writer.to_string());
        let (mut map_s, mut verify_s, mut speeds) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (map, verify) = if round % 2 == 0 {
                let map = walked(&path);
                (map, verified(&path))
            } else {
                let verify = verified(&path);
                (walked(&path), verify)
            };
            map_s.push(map);
            verify_s.push(verify);
            speeds.push(map / verify);
        }
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        println!(
            "{payload_bytes:>8} {:>12.2} {:>12.2} {:>7.1}%",
            rate(median(&mut map_s)),
            rate(median(&mut verify_s)),
            median(&mut speeds) * 100.0
        );
    }
}
