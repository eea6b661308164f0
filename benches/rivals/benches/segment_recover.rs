//! Measures the CPU time of recovering a segment of 1 GiB after a crash. Budget: 1 s.
//!
//! Creates an unsealed segment with a torn last frame and recovers it in place; shows the CPU time
//! of the thread (user and system), median of several turns. The file is in the page cache and
//! already synced, so that the final sync has little to write. Compared with the same segment with
//! one damaged frame in the middle, which must be rewritten.
//!
//! `cargo bench --bench segment_recover`

use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flatcap_format::segment::{Leftovers, recover};
use flatcap_format::storage::Storage;
use flatcap_os::storage::DataDirectory;
use flatcap_rivals::segments::{header, median, name, slabs, source, write};
use flatcap_stream::ChecksumKind;
use rustix::time::{ClockId, clock_gettime};

const FILE_BYTES: usize = 1 << 30;
const ROUNDS: usize = 3;

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>14}   (1 GiB, medians of {ROUNDS})",
        "payload", "cpu s", "wall s", "frames", "rewritten cpu s"
    );
    for payload_bytes in [64, 256, 1024, 4096] {
        let folder = tempfile::tempdir().expect("a disk");
        let storage = Arc::new(DataDirectory::open(folder.path()).expect("a disk")) as Arc<dyn Storage>;
        let slabs = slabs(ChecksumKind::Xxh3, payload_bytes, 0, FILE_BYTES);
        let (mut cpu, mut wall, mut rewritten, mut frames) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for round in 0..2 * ROUNDS {
            let is_damaged = round % 2 == 1;
            let header = header(0, ChecksumKind::Xxh3, 0, vec![source(0)]);
            let writer = write(&storage, 0, header, &slabs, 0);
            let torn = &slabs[0].bytes[..payload_bytes / 2];
            writer.file().append(&[IoSlice::new(torn)]).expect("enough space");
            if is_damaged {
                let file = File::options().write(true).open(folder.path().join(name(0).to_string()));
                file.expect("just made").write_at(&[0xFF], FILE_BYTES as u64 / 2).expect("a disk");
            }
            writer.file().sync().expect("a disk");
            drop(writer);
            let (begin, begin_cpu) = (std::time::Instant::now(), cpu_s());
            let done = recover(&*storage, name(0), &Leftovers::default(), false).expect("a disk");
            let taken = cpu_s() - begin_cpu;
            if is_damaged {
                rewritten.push(taken);
            } else {
                cpu.push(taken);
                wall.push(begin.elapsed().as_secs_f64());
                frames = done.frames;
            }
            storage.remove(&name(0).sealed().to_string()).expect("just made");
            done.set_aside.iter().for_each(|name| storage.remove(name).expect("just made"));
        }
        println!(
            "{payload_bytes:>8} {:>10.3} {:>10.3} {frames:>10} {:>14.3}",
            median(&mut cpu),
            median(&mut wall),
            median(&mut rewritten)
        );
    }
}
