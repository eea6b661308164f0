//! Measures how much of the disk's speed recording reaches. Budget: 80 % of a plain loop that
//! writes as many bytes in writes of 256 KiB.
//!
//! 256-byte payloads (envelope included) with XXH3-64 pass through slabs, queue and recorder into
//! segments of 256 MiB, synced once a second. The plain loop writes files of the same size,
//! preallocated in the same steps and synced as often by a second thread. Both are timed until
//! everything is on disk, and take turns; before each turn the disk is idle and the other's files
//! are removed.

use std::sync::Arc;

use flatcap_os::clock::monotonic_ns;
use flatcap_os::storage::DataDirectory;
use flatcap_os::wake_event::WakeEvent;

use crate::MeasuredRows;
use crate::frames::{ProduceUntil, produce, verify};
use crate::numbers::{median, range};
use crate::table::{BenchLength, CaptureRow};
use crate::{bare, machine};

const PAYLOAD_BYTES: usize = 256;
const FRAME_BYTES: u64 = 256 + 12;
/// Idle time for the disk before each turn.
const REST_NS: u64 = 2_000_000_000;

pub fn measure(length: BenchLength) -> MeasuredRows {
    let (turns, bytes) = length.pick((5, 4_u64 << 30), (1, 256 << 20));
    let (mut ours, mut plain, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..turns {
        eprintln!("capture: ext4, turn {} of {turns}", turn + 1);
        let (mut recorded, mut written) = (0.0, 0.0);
        // The order alternates, too.
        let order = if turn % 2 == 0 { [true, false] } else { [false, true] };
        for records in order {
            let folder = machine::disk_folder()?;
            rustix::fs::sync();
            WakeEvent::new().wait_until(monotonic_ns() + length.pick(REST_NS, 0));
            if records {
                let storage = Arc::new(DataDirectory::open(folder.path())?);
                let until = ProduceUntil::Frames(bytes / FRAME_BYTES);
                let produced = produce(1, PAYLOAD_BYTES, until, storage, u64::MAX)?;
                recorded = produced.report.metrics.recorder.bytes.get() as f64 / produced.elapsed_ns as f64;
                verify(folder.path())?;
            } else {
                written = bytes as f64 / bare::write(folder.path(), bytes, usize::MAX)? as f64;
            }
        }
        ours.push(recorded);
        plain.push(written);
        ratios.push(recorded / written);
    }
    let (ratio, (lowest, highest)) = (median(&ratios), range(&ratios));
    Ok(vec![CaptureRow {
        name: "ext4",
        quantity: format!("bytes/s to disk against plain 256 KiB writes, {} GiB per turn", bytes >> 30),
        target: ">= 80 %".to_owned(),
        reached: format!("{:.0} %", ratio * 100.0),
        met: Some(ratio >= 0.8),
        details: format!(
            "{:.2} GB/s against {:.2}; {:.0} to {:.0} % in {turns} turns; nothing lost",
            median(&ours),
            median(&plain),
            lowest * 100.0,
            highest * 100.0
        ),
    }])
}
