//! Measures size and speed of a host's samples, each with its own stamp and duration. Budget:
//! columnar + zstd at most 0.50 x riegeli transpose + zstd:3, 0.85 x Parquet delta + zstd:3, 0.36 x
//! MCAP zstd, all given the same frames; on one core 1.5 GB/s in and 2.5 GB/s out.
//!
//! Six sources of this host at 500 Hz for a minute, 180,000 frames, recorded by this program before
//! it measures; or the samples of the segments in the directory FLATCAP_RECORDING. Then the
//! imported market data of ../shared/data (FLATCAP_SHARED_DATA), skipped if missing. Our blocks
//! return the frames byte for byte, checksums included. riegeli (the Rust crate) and MCAP are given
//! the frames' payloads without their checksums, which are incompressible; one row of riegeli has
//! them. Parquet is given typed columns, one file per source: converting frames for it is not
//! counted, and it does not return frames. GB/s are of whole frames in every row. Medians of rounds
//! in turns.
//!
//! `cargo bench --bench telemetry [-- SECONDS]`

use std::path::PathBuf;

use flatcap_format::block::{Codec, Layout, RAW_BYTES_DEFAULT};
use flatcap_import::iex::{self, Feed};
use flatcap_import::{ImportJob, ImportLimits, ImportProgress, lobster};
use flatcap_os::storage::DataDirectory;
use flatcap_rivals::packers::{Flatcap, HEAD, Packer, Parquet, chunked, compare, print};
use flatcap_rivals::recording::{Recording, shared_data};
use flatcap_rivals::tables::Floats;

const SOURCES: [&str; 6] = ["cpu", "memory", "vmstat", "disk", "network", "pressure"];
const PERIOD_NS: u64 = 2_000_000;
const SECONDS: u64 = 60;
const ROUNDS: usize = 5;

fn main() {
    let seconds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(SECONDS);
    let (title, recording) = match std::env::var_os("FLATCAP_RECORDING") {
        Some(folder) => {
            let recording = Recording::of_segments(&PathBuf::from(folder));
            ("recording", recording.expect("FLATCAP_RECORDING is a directory of segments"))
        }
        None => ("live", Recording::live(&SOURCES, PERIOD_NS, seconds * 1_000_000_000 / PERIOD_NS)),
    };
    println!("{HEAD}");
    measure(title, &recording);
    drop(recording);
    match market() {
        Some(recordings) => recordings.iter().for_each(|(title, recording)| measure(title, recording)),
        None => println!("skipped: no market data, set FLATCAP_SHARED_DATA"),
    }
}

fn measure(title: &str, recording: &Recording) {
    let columnar = |codec, block_bytes| Flatcap::new(recording, Layout::Columnar, codec, block_bytes);
    let mut packers: Vec<Box<dyn Packer + '_>> = vec![
        Box::new(columnar(Codec::Zstd(1), RAW_BYTES_DEFAULT)),
        Box::new(columnar(Codec::Zstd(3), RAW_BYTES_DEFAULT)),
        Box::new(columnar(Codec::Zstd(1), 16 << 20)),
        Box::new(Flatcap::new(recording, Layout::Row, Codec::Zstd(3), RAW_BYTES_DEFAULT)),
    ];
    packers.extend(chunked(recording, RAW_BYTES_DEFAULT));
    packers.push(Box::new(Parquet::new(recording, Floats::ByteStreamSplit)));
    let frames = recording.payloads().count();
    print(
        &format!("{title}, {frames} frames"),
        recording.frames.len(),
        frames,
        &compare(&mut packers, ROUNDS),
    );
}

/// LOBSTER's sample and the capture of IEX DEEP, as segments of `flatcap import`.
fn market() -> Option<[(&'static str, Recording); 2]> {
    let (lobster, iex) = (shared_data().join("lobster"), shared_data().join("iex/DEEP10.pcap.gz"));
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(lobster).ok()?.map(|file| file.expect("a folder").path()).collect();
    files.sort();
    iex.exists().then(|| {
        [
            (
                "LOBSTER",
                imported(|job| lobster::import(&files, &lobster::LobsterOptions::default(), job).is_ok()),
            ),
            ("IEX DEEP", imported(|job| iex::import(&[iex], Feed::Deep, job).is_ok())),
        ]
    })
}

fn imported(import: impl FnOnce(ImportJob<'_, '_>) -> bool) -> Recording {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs");
    let storage = DataDirectory::open(folder.path()).expect("just made");
    let mut watch = |_| true;
    let limits = ImportLimits { segment_bytes: 256 << 20, frame_max: 16 << 20 };
    assert!(
        import(ImportJob { storage: &storage, limits, progress: ImportProgress::new(&mut watch) }),
        "the kind named in the README"
    );
    Recording::of_segments(folder.path()).expect("samples")
}
