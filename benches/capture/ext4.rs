//! What does recording leave of the disk's speed? Budget: 80 % of a plain loop of 256 KiB writes of as many bytes.
//!
//! 256-byte payloads (envelope included) with XXH3-64 through slabs, queue and recorder, synced once a second, segments of 256 MiB.
//! The plain loop writes into files of the same size whose room is reserved in the same steps, synced as often by a second
//! thread. Both are timed until everything is on the medium, and take turns; before each the disk is quiet and empty of the
//! other's files.

use std::sync::Arc;

use flatcap::os::clock::monotonic_ns;
use flatcap::os::event::Event;
use flatcap::os::storage::DataDirectory;

use crate::Measured;
use crate::frames::{Until, produce, verify};
use crate::numbers::{median, range};
use crate::table::{Length, Row};
use crate::{bare, machine};

const PAYLOAD_BYTES: usize = 256;
const FRAME_BYTES: u64 = 256 + 12;
/// What the disk gets to come to rest.
const REST_NS: u64 = 2_000_000_000;

pub fn measure(length: Length) -> Measured {
    let (turns, bytes) = length.of((5, 4_u64 << 30), (1, 256 << 20));
    let (mut ours, mut plain, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..turns {
        eprintln!("capture: ext4, turn {} of {turns}", turn + 1);
        let (mut recorded, mut written) = (0.0, 0.0);
        // Who goes first takes turns, too.
        let order = if turn % 2 == 0 { [true, false] } else { [false, true] };
        for records in order {
            let folder = machine::disk_folder()?;
            rustix::fs::sync();
            Event::new().wait_until(monotonic_ns() + length.of(REST_NS, 0));
            if records {
                let storage = Arc::new(DataDirectory::open(folder.path())?);
                let until = Until::Frames(bytes / FRAME_BYTES);
                let produced = produce(1, PAYLOAD_BYTES, until, storage, u64::MAX)?;
                recorded = produced.report.bytes as f64 / produced.elapsed_ns as f64;
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
    Ok(vec![Row {
        name: "ext4",
        what: format!("bytes/s to the disk beside plain 256 KiB writes, {} GiB a turn", bytes >> 30),
        target: ">= 80 %".to_owned(),
        reached: format!("{:.0} %", ratio * 100.0),
        met: Some(ratio >= 0.8),
        beside: format!(
            "{:.2} GB/s beside {:.2}; {:.0} to {:.0} % in {turns} turns; nothing lost",
            median(&ours),
            median(&plain),
            lowest * 100.0,
            highest * 100.0
        ),
    }])
}
