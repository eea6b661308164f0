//! Compares records in blocks with riegeli in the same configuration and with the bare codec: speed
//! and size. Budget: none and snappy 1.2 x the MB/s of riegeli, zstd and brotli 1.0 x and 0.95 of
//! the bare codec, for writing and reading; size at most 1.02 x riegeli's.
//!
//! 10,000 records of one size (src/records.rs) are written from memory to a file in memory, and
//! read back record by record, with all checks of each format. Chunks and blocks have 1 MiB of
//! records. riegeli is the Rust crate, not the C++ library. Our frames have no checksum of their
//! own here, like riegeli's records: the block has XXH3-64 over the stored bytes, the chunk
//! HighwayHash. `transpose` is compared with `columnar`, whose frames are samples of one source
//! with their stamps; `simple` with `row`, whose payloads are the records, written and read without
//! building frames. The bare codec compresses the same records 1 MiB at a time into an existing
//! buffer. All alternatives of a row take turns; medians of the rounds' ratios.
//!
//! `cargo bench --bench head_to_head [-- WORD...]` runs only rows that contain all of the words,
//! such as `'10240 B' zstd:3`.

use std::time::Instant;

use flatcap_format::block::{Codec, Layout};
use flatcap_rivals::keepers::{BareCodec, Blocks, Keeper, Mcap, Riegeli};
use flatcap_rivals::records::Records;
use flatcap_rivals::rounds::Quartiles;
use flatcap_stream::ChecksumKind;
use mcap::Compression;

const RECORDS: usize = 10_000;
const SIZES: [usize; 3] = [100, 1 << 10, 10 << 10];
const CODECS: [Codec; 5] = [Codec::None, Codec::Snappy, Codec::Zstd(3), Codec::Brotli(6), Codec::Brotli(9)];
/// Minimum seconds per turn.
const TURN_SECONDS: f64 = 0.02;
/// Seconds that all rounds of one alternative may take, but at least three rounds are run,
const ROW_SECONDS: f64 = 2.0;
/// or two if a round takes longer than this.
const SLOW_SECONDS: f64 = 8.0;
const ROUNDS_MAX: usize = 31;

/// The results of one row, ours first.
struct Measured {
    file_bytes: Vec<usize>,
    write: Vec<Vec<f64>>,
    read: Vec<Vec<f64>>,
}

fn measure(
    records: &Records,
    keepers: &mut [Box<dyn Keeper>],
    has_records: impl Fn(usize) -> bool,
) -> Measured {
    let mut file_bytes = vec![0; keepers.len()];
    let write = turns(keepers, |number, keeper| file_bytes[number] = keeper.write(records));
    // Computed once, since each turn would measure it otherwise.
    let expected = records.sum();
    let read = turns(keepers, |number, keeper| {
        let sum = keeper.read();
        assert!(!has_records(number) || sum == expected, "the records read are those written");
    });
    Measured { file_bytes, write, read }
}

/// Returns seconds per call, a row per alternative, a column per round. Work that takes seconds has
/// few rounds, and the first one counts.
fn turns(keepers: &mut [Box<dyn Keeper>], mut work: impl FnMut(usize, &mut dyn Keeper)) -> Vec<Vec<f64>> {
    let mut turn = |number: usize, keeper: &mut Box<dyn Keeper>, calls: u32| {
        let start = Instant::now();
        (0..calls).for_each(|_| work(number, &mut **keeper));
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    let first: Vec<f64> =
        (0..).zip(keepers.iter_mut()).map(|(number, keeper)| turn(number, keeper, 1)).collect();
    let calls: Vec<u32> = first.iter().map(|took| (TURN_SECONDS / took).ceil().max(1.0) as u32).collect();
    let round: f64 = first.iter().map(|took| took.max(TURN_SECONDS)).sum();
    let rounds = ((ROW_SECONDS / round) as usize).clamp(if round > SLOW_SECONDS { 1 } else { 3 }, ROUNDS_MAX);
    let mut seconds: Vec<Vec<f64>> = first.iter().map(|_| Vec::new()).collect();
    if round > SLOW_SECONDS {
        (0..).zip(&first).for_each(|(number, took): (usize, _)| seconds[number].push(*took));
    }
    for _ in 0..rounds {
        for (number, keeper) in (0..).zip(keepers.iter_mut()) {
            seconds[number].push(turn(number, keeper, calls[number]));
        }
    }
    seconds
}

/// Formats our MB/s, the other's, and the median of the rounds' ratios with its middle half.
fn rates(bytes: usize, ours: &[f64], other: &[f64]) -> String {
    let rate = |seconds: &[f64]| bytes as f64 / Quartiles::of(seconds.iter().copied()).median / 1e6;
    let ratio = Quartiles::of_ratios(other, ours);
    format!(
        "{:.0} / {:.0} = {:.2} ({:.2} to {:.2})",
        rate(ours),
        rate(other),
        ratio.median,
        ratio.low,
        ratio.high
    )
}

fn is_wanted(row: &str, words: &[String]) -> bool {
    words.iter().all(|word| row.contains(word.as_str()))
}

fn beside_riegeli(words: &[String]) {
    println!(
        "| records | layout | codec | write MB/s: flatcap / riegeli | read | write: flatcap / bare codec | read | size: flatcap / riegeli | bare codec |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for size in SIZES {
        let mut records = None;
        for (layout, layouts) in [(Layout::Row, "row / simple"), (Layout::Columnar, "columnar / transpose")] {
            for codec in CODECS {
                let row = format!("{size} B | {layouts} | {codec}");
                if !is_wanted(&row, words) {
                    continue;
                }
                let records = records.get_or_insert_with(|| Records::new(RECORDS, size));
                let mut keepers: Vec<Box<dyn Keeper>> = vec![
                    Box::new(Blocks::new(layout, codec, ChecksumKind::None)),
                    Box::new(Riegeli::new(layout, codec)),
                    Box::new(BareCodec::new(codec)),
                ];
                let of = measure(records, &mut keepers, |number| number < 2);
                let bytes = records.bytes().len();
                println!(
                    "| {row} | {} | {} | {} | {} | {} / {} = {:.3} | {:.1} x smaller |",
                    rates(bytes, &of.write[0], &of.write[1]),
                    rates(bytes, &of.read[0], &of.read[1]),
                    rates(bytes, &of.write[0], &of.write[2]),
                    rates(bytes, &of.read[0], &of.read[2]),
                    of.file_bytes[0],
                    of.file_bytes[1],
                    of.file_bytes[0] as f64 / of.file_bytes[1] as f64,
                    bytes as f64 / of.file_bytes[2] as f64,
                );
            }
        }
    }
}

fn beside_mcap(words: &[String]) {
    println!("| records | codec | write MB/s: flatcap row, XXH3-64 / MCAP | read | size |");
    println!("|---|---|---|---|---|");
    let codecs = [
        (Codec::None, None),
        (Codec::Lz4, Some(Compression::Lz4)),
        (Codec::Zstd(3), Some(Compression::Zstd)),
    ];
    for size in SIZES {
        let mut records = None;
        for (codec, compression) in codecs {
            let row = format!("{size} B | mcap | {codec}");
            if !is_wanted(&row, words) {
                continue;
            }
            let records = records.get_or_insert_with(|| Records::new(RECORDS, size));
            let mut keepers: Vec<Box<dyn Keeper>> = vec![
                Box::new(Blocks::new(Layout::Row, codec, ChecksumKind::Xxh3)),
                Box::new(Mcap::new(compression, 0)),
            ];
            let of = measure(records, &mut keepers, |_| true);
            let bytes = records.bytes().len();
            println!(
                "| {size} B | {codec} | {} | {} | {} / {} = {:.3} |",
                rates(bytes, &of.write[0], &of.write[1]),
                rates(bytes, &of.read[0], &of.read[1]),
                of.file_bytes[0],
                of.file_bytes[1],
                of.file_bytes[0] as f64 / of.file_bytes[1] as f64,
            );
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    beside_riegeli(&words);
    println!();
    beside_mcap(&words);
}
