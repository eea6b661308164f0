//! Measures how many frames per second one producer can record to tmpfs. Budget: 10 million with
//! 64-byte payloads, sustained.
//!
//! `SlabProducer::append` runs on one thread, the recorder with the default configuration on
//! another: checksums, index, digests, segments of 256 MiB, of which the newest four are retained.
//! The producer waits while the queue is full, so nothing is lost. Compared with bare writes of as
//! many bytes in writes of 256 KiB.

use std::sync::Arc;

use flatcap_format::frame::ENVELOPE_BYTES;
use flatcap_os::storage::DataDirectory;

use crate::MeasuredRows;
use crate::frames::{ProduceUntil, produce, verify};
use crate::numbers::{median, range};
use crate::table::{BenchLength, CaptureRow};
use crate::{bare, machine};

const RETAIN_BYTES: u64 = 1 << 30;
const RETAINED_FILES: usize = 4;

pub fn measure(length: BenchLength) -> MeasuredRows {
    let mut rows = Vec::new();
    let shapes = [
        (64, "64-byte payloads (only an envelope)", Some(10e6)),
        (ENVELOPE_BYTES + 64, "64-byte payloads inside the envelope (128)", None),
    ];
    let (turns, duration_ns) = length.pick((5, 6_000_000_000), (1, 700_000_000));
    for (payload_bytes, what, target) in shapes {
        let (mut rates, mut bare_rates) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            let folder = machine::memory_folder()?;
            let storage = Arc::new(DataDirectory::open(folder.path())?);
            let produced =
                produce(1, payload_bytes, ProduceUntil::Elapsed(duration_ns), storage, RETAIN_BYTES)?;
            verify(folder.path())?;
            drop(folder);
            let frames: u64 = produced.frames.iter().sum();
            rates.push(frames as f64 / produced.elapsed_ns as f64 * 1e9);
            let folder = machine::memory_folder()?;
            let bare_ns =
                bare::write(folder.path(), produced.report.metrics.recorder.bytes.get(), RETAINED_FILES)?;
            bare_rates.push(frames as f64 / bare_ns as f64 * 1e9);
        }
        let (rate, (lowest, highest)) = (median(&rates), range(&rates));
        let bytes = (payload_bytes + 12) as f64;
        rows.push(CaptureRow {
            name: "tmpfs",
            quantity: format!("frames/s to tmpfs, one producer, {what}"),
            target: target.map_or_else(|| "-".to_owned(), |rate: f64| format!(">= {:.0} million/s", rate / 1e6)),
            reached: format!("{:.2} million/s ({:.2} GB/s), nothing lost", rate / 1e6, rate * bytes / 1e9),
            met: target.map(|target| rate >= target),
            details: format!(
                "{:.2} to {:.2} in {turns} turns of {} s; bare 256 KiB writes of as many bytes: {:.2} million/s",
                lowest / 1e6,
                highest / 1e6,
                duration_ns as f64 / 1e9,
                median(&bare_rates) / 1e6
            ),
        });
    }
    Ok(rows)
}
