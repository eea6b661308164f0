//! Measures the cost of header, index, digest, totals and gaps. Budget: 3 % above writing the same
//! slabs with the bare stream writer.
//!
//! Both write the same slabs, four per call, into a new file on tmpfs that is preallocated in the
//! same steps; in turns, medians. The bare row is `StreamWriter::write_framed` alone.
//!
//! `cargo bench --bench segment_append`

use std::fs::File;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use flatcap_format::storage::Storage;
use flatcap_os::storage::DataDirectory;
use flatcap_rivals::segments::{BATCH_SLABS, FilledSlab, header, median, slabs, source, write};
use flatcap_stream::{ChecksumKind, StreamWriter};
use rustix::fs::{FallocateFlags, fallocate};

const FILE_BYTES: usize = 256 << 20;
const STEP: u64 = 16 << 20;
const ROUNDS: usize = 31;

fn bare(folder: &std::path::Path, slabs: &[FilledSlab], kind: ChecksumKind) -> f64 {
    let path = folder.join("bare");
    let begin = Instant::now();
    let file = File::options().create_new(true).append(true).open(&path).expect("tmpfs");
    let mut writer = StreamWriter::new(&file, kind);
    let (mut at, mut reserved) = (0_u64, 0);
    for batch in slabs.chunks(BATCH_SLABS) {
        let bytes: usize = batch.iter().map(|slab| slab.bytes.len()).sum();
        at += bytes as u64;
        if at > reserved {
            reserved = at.next_multiple_of(STEP);
            fallocate(&file, FallocateFlags::KEEP_SIZE, 0, reserved).expect("tmpfs");
        }
        let mut pieces = [IoSlice::new(&[]); BATCH_SLABS];
        batch.iter().zip(&mut pieces).for_each(|(slab, piece)| *piece = IoSlice::new(&slab.bytes));
        writer.write_framed(&mut pieces[..batch.len()]).expect("enough space");
    }
    let elapsed = begin.elapsed().as_secs_f64();
    std::fs::remove_file(path).expect("just made");
    elapsed
}

fn segment(folder: &std::path::Path, slabs: &[FilledSlab], kind: ChecksumKind, number: u64) -> f64 {
    let storage = Arc::new(DataDirectory::open(folder).expect("tmpfs")) as Arc<dyn Storage>;
    let begin = Instant::now();
    let writer = write(&storage, number, header(number, kind, 0, vec![source(0)]), slabs, STEP);
    let elapsed = begin.elapsed().as_secs_f64();
    storage.remove(&writer.name().to_string()).expect("just made");
    elapsed
}

fn main() {
    let kind = ChecksumKind::Xxh3;
    println!(
        "{:>8} {:>12} {:>12} {:>8}   (256 MiB per turn, medians of {ROUNDS})",
        "payload", "bare GB/s", "segment GB/s", "ratio"
    );
    for payload_bytes in [64 - 8, 256, 1024, 4096] {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs");
        let slabs = slabs(kind, payload_bytes, 0, FILE_BYTES);
        let bytes: usize = slabs.iter().map(|slab| slab.bytes.len()).sum();
        let (mut bare_s, mut segment_s, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // The order alternates, too.
            let (one, other) = if round % 2 == 0 {
                let one = bare(folder.path(), &slabs, kind);
                (one, segment(folder.path(), &slabs, kind, round as u64))
            } else {
                let other = segment(folder.path(), &slabs, kind, round as u64);
                (bare(folder.path(), &slabs, kind), other)
            };
            bare_s.push(one);
            segment_s.push(other);
            ratios.push(other / one);
        }
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        println!(
            "{payload_bytes:>8} {:>12.2} {:>12.2} {:>8.3}",
            rate(median(&mut bare_s)),
            rate(median(&mut segment_s)),
            median(&mut ratios)
        );
    }
}
