//! Tests in which the wall clock is set while a recorder runs.

use std::path::Path;
use std::sync::Arc;

use flatcap_format::host::ClockReading;
use flatcap_format::segment::{Advance, ClockCause, ClockSync, FrameKind, SegmentReader};
use flatcap_format::storage::Storage;
use flatcap_format::testing::simulated::SimulatedStorage;
use flatcap_os::clock::{ClockChange, ClockChangeDetector};

use super::rig::Script;
use crate::SyncPolicy;

/// A wall clock that is set forward by an hour at every third poll, but at most twice.
#[derive(Debug)]
struct SetClock {
    looks: u64,
}

fn pairing(step: u64) -> ClockReading {
    ClockReading { mono_ns: 1_000_000 + step, boot_ns: 5, wall_ns: 3_600_000_000_000 * step.cast_signed() }
}

impl ClockChangeDetector for SetClock {
    fn poll_change(&mut self) -> Option<(ClockChange, ClockReading)> {
        self.looks += 1;
        let step = self.looks / 3;
        let change = if step == 1 { ClockChange::Stepped } else { ClockChange::Resumed };
        (self.looks.is_multiple_of(3) && step <= 2).then(|| (change, pairing(step)))
    }
}

// Proves that each change of the wall clock is recorded as one ClockSync frame. Every later header
// and footer contains all clock syncs so far, across several segments.
#[test]
fn steps_are_recorded_once_and_known_ever_after() {
    let script = Script::fixed(SyncPolicy::Never);
    let storage = SimulatedStorage::new(0);
    script.record_with_clock(&storage, Box::new(SetClock { looks: 0 })).unwrap();
    let mut seen = Vec::new();
    let mut segments = 0;
    for name in storage.names() {
        let file = storage.open(&name).unwrap();
        let mut reader = SegmentReader::over(Path::new(&name), Arc::clone(&file) as _).unwrap();
        let pairings = |seen: &Vec<ClockSync>| seen.iter().map(|sync| sync.clocks).collect::<Vec<_>>();
        assert_eq!(reader.header().clock_table, pairings(&seen), "{name}: header");
        while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
            if at.kind == FrameKind::ClockSync {
                seen.push(ClockSync::decode(reader.payload(at)).unwrap());
            }
        }
        let footer = reader.footer().unwrap();
        assert_eq!(footer.header.clock_table, pairings(&seen), "{name}: footer");
        segments += 1;
    }
    assert!(segments > 2);
    let expected = [(1, ClockCause::Stepped), (2, ClockCause::Resumed)];
    let expected = expected.map(|(step, cause)| ClockSync { clocks: pairing(step), cause });
    assert_eq!(seen, expected);
}
