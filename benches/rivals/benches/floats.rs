//! Measures the compressed size of noisy floats that change in every field. Budget: columnar at
//! most 0.6 x the size of zstd:3 blocks of rows, and 0.9 x Parquet with zstd:3 in its smallest
//! encoding.
//!
//! 20,000 samples of a rig with 64 fields of f64 (schemas/rig.fbs), with jittering stamps. The
//! kinds of values are typical of test rigs: `adc`, counts of a 16-bit converter times a
//! calibration factor minus an offset; `decimal`, readings with three decimal digits; `single`, f32
//! as f64; `walk`, a random walk with every bit of the mantissa in use, which is hardly
//! compressible; `mixed`, 16 fields of each. Sizes are of whole files, GB/s of whole frames.
//! Parquet has typed columns and is measured with each encoding of floats. Medians of rounds in
//! turns.
//!
//! `cargo bench --bench floats`

use flatcap_format::block::{Codec, Layout, RAW_BYTES_DEFAULT};
use flatcap_rivals::packers::{Flatcap, HEAD, Outcome, Packer, Parquet, compare, print};
use flatcap_rivals::rig::{self, Kind};
use flatcap_rivals::tables::Floats;

const ROWS: u64 = 20_000;
const ROUNDS: usize = 3;

const KINDS: [(&str, [Kind; 4]); 5] = [
    ("adc", [Kind::Adc; 4]),
    ("decimal", [Kind::Decimal; 4]),
    ("single", [Kind::Single; 4]),
    ("walk", [Kind::Walk; 4]),
    ("mixed", [Kind::Adc, Kind::Decimal, Kind::Single, Kind::Walk]),
];

fn main() {
    println!("{HEAD}");
    let mut verdicts = Vec::new();
    for (name, kinds) in KINDS {
        let recording = rig::recording(ROWS, kinds);
        let blocks = |layout, codec| Flatcap::new(&recording, layout, codec, RAW_BYTES_DEFAULT);
        let mut packers: Vec<Box<dyn Packer + '_>> = vec![
            Box::new(blocks(Layout::Columnar, Codec::Zstd(1))),
            Box::new(blocks(Layout::Columnar, Codec::Zstd(3))),
            Box::new(blocks(Layout::Row, Codec::Zstd(3))),
        ];
        for floats in [Floats::Plain, Floats::ByteStreamSplit, Floats::Dictionary] {
            packers.push(Box::new(Parquet::new(&recording, floats)));
        }
        let outcomes = compare(&mut packers, ROUNDS);
        print(name, recording.frames.len(), ROWS as usize, &outcomes);
        verdicts.push((name, outcomes));
    }
    println!(
        "\n| data | columnar + zstd:1 / zstd:3 blocks of rows | target | / the smallest Parquet | target |\n|---|---|---|---|---|"
    );
    for (name, outcomes) in verdicts {
        let ours = outcomes[0].file_bytes as f64;
        let parquet = outcomes[3..].iter().min_by_key(|outcome| outcome.file_bytes);
        let Outcome { name: best, file_bytes, .. } = parquet.expect("three of them");
        let rows = ours / outcomes[2].file_bytes as f64;
        println!("| {name} | {rows:.3} | <= 0.6 | {:.3} ({best}) | <= 0.9 |", ours / *file_bytes as f64);
    }
}
