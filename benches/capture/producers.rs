//! Measures whether concurrent producers slow each other down. Budget: eight on these cores record
//! at least 80 % of the frames of one, and no producer less than half of another's.
//!
//! As `tmpfs`, with 64-byte payloads, one and eight in turns; each producer is a group of its own.

use std::sync::Arc;

use flatcap_os::storage::DataDirectory;

use crate::MeasuredRows;
use crate::frames::{ProduceUntil, produce};
use crate::machine;
use crate::numbers::{median, range};
use crate::table::{BenchLength, CaptureRow};

const PRODUCERS: usize = 8;
const RETAIN_BYTES: u64 = 1 << 30;

pub fn measure(length: BenchLength) -> MeasuredRows {
    let (turns, duration_ns) = length.pick((7, 3_000_000_000), (1, 500_000_000));
    let (mut one, mut eight, mut ratios, mut unfairness) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..turns {
        let run = |producers| {
            let folder = machine::memory_folder()?;
            let storage = Arc::new(DataDirectory::open(folder.path())?);
            produce(producers, 64, ProduceUntil::Elapsed(duration_ns), storage, RETAIN_BYTES)
        };
        let rate =
            |frames: &[u64], elapsed_ns: u64| frames.iter().sum::<u64>() as f64 / elapsed_ns as f64 * 1e3;
        let (alone, together) = (run(1)?, run(PRODUCERS)?);
        let (single, all) =
            (rate(&alone.frames, alone.elapsed_ns), rate(&together.frames, together.elapsed_ns));
        one.push(single);
        eight.push(all);
        ratios.push(all / single);
        let most = together.frames.iter().max().copied().unwrap_or_default();
        let least = together.frames.iter().min().copied().unwrap_or_default();
        unfairness.push(most as f64 / least.max(1) as f64);
    }
    let (total, (lowest, highest)) = (median(&ratios), range(&ratios));
    let (fair, (fairest, unfairest)) = (median(&unfairness), range(&unfairness));
    Ok(vec![
        CaptureRow {
            name: "producers",
            quantity: format!("{PRODUCERS} producers against one: frames of all"),
            target: ">= 80 %".to_owned(),
            reached: format!("{:.0} %, nothing lost", total * 100.0),
            met: Some(total >= 0.8),
            details: format!(
                "{:.2} million/s against {:.2}; {:.0} to {:.0} % in {turns} turns",
                median(&eight),
                median(&one),
                lowest * 100.0,
                highest * 100.0
            ),
        },
        CaptureRow {
            name: "producers",
            quantity: format!("{PRODUCERS} producers: frames of the fastest / slowest"),
            target: "<= 2".to_owned(),
            reached: format!("{fair:.2}"),
            met: Some(fair <= 2.0),
            details: format!("{fairest:.2} to {unfairest:.2} in {turns} turns"),
        },
    ])
}
