//! A storage that fails where it is told to, and the proof that every reading is in a file or in a Gap all the same.

use proptest::prelude::*;

use super::judge::{Judge, promises};
use super::rig::{FileFound, Item, Looker, Script};
use super::{RecorderReport, SyncPolicy};
use crate::effort;
use crate::os::simulated::{CrashKind, Failure, SimulatedStorage};
use crate::os::storage::Storage;
use crate::schema::segment::GapCause;

/// Judges the files as they are, and after a power cut; compares the first with what the recorder says. Returns the
/// causes of all gaps.
fn check(script: &Script, report: &RecorderReport, storage: &SimulatedStorage) -> u32 {
    let promises = promises(&storage.log(), script.sync, true);
    let mut looker = Looker::new();
    let mut look = |kind| {
        let files = looker.look(&storage.crash_image(script.seed, kind));
        let counts = Judge { script, promises: &promises, kind, is_faulty: true }.judge(&files);
        (counts, files)
    };
    look(CrashKind::PowerCut);
    let (counts, files) = look(CrashKind::ProcessKilled);
    for ((recorded, lost), said) in counts.into_iter().zip(&report.sources) {
        assert_eq!(said.begun, script.readings);
        assert_eq!(recorded, said.recorded, "the report counts what is in the files");
        assert_eq!(said.lost, script.readings - recorded);
        assert!(recorded + lost <= script.readings);
        // Losses at the end are in the files unless the storage failed to the last.
        if report.storage_errors == 0 {
            assert_eq!(recorded + lost, script.readings);
        }
    }
    causes(files.iter().map(|(_, file)| &**file))
}

fn causes<'a>(files: impl Iterator<Item = &'a FileFound>) -> u32 {
    files.flat_map(|file| &file.items).fold(0, |causes, item| match item {
        Item::Gap { gap, .. } => causes | gap.causes,
        _ => causes,
    })
}

// Goal: without a fault every reading is recorded or in a gap with its own cause. Method: losses by failed readings
// only, over several segments, sampled and recorded at the same time.
#[test]
fn losses_before_the_recorder_are_exact() {
    // How much finds its queue full depends on which of the two is faster: several segments take more readings then.
    let mut readings = 2000;
    let (script, storage, report) = loop {
        let script = Script { readings, segment_bytes: 32 << 10, ..Script::fixed(SyncPolicy::Always) };
        let storage = SimulatedStorage::new(0);
        let report = script.record_beside(&storage);
        if report.segments_sealed > 3 {
            break (script, storage, report);
        }
        readings *= 2;
        assert!(readings < 1 << 20, "{} segments", report.segments_sealed);
    };
    assert_eq!(report.storage_errors, 0);
    let promises = promises(&storage.log(), script.sync, false);
    let files = Looker::new().look(&storage.crash_image(0, CrashKind::PowerCut));
    let kind = CrashKind::ProcessKilled; // the run has ended: everything is synced
    let counts = Judge { script: &script, promises: &promises, kind, is_faulty: true }.judge(&files);
    for ((recorded, lost), said) in counts.into_iter().zip(&report.sources) {
        assert_eq!((recorded, lost), (said.recorded, said.lost));
        assert_eq!(recorded + lost, script.readings);
    }
    let causes = causes(files.iter().map(|(_, file)| &**file));
    assert_eq!(causes & !(GapCause::PoolEmpty | GapCause::QueueFull).bits(), GapCause::ReadFailed.bits());
}

// Goal: a write that fails in the middle loses its batch as a gap with cause storage, and recording goes on in a new
// segment. Method: fail the third write (creations, syncs and writes count).
#[test]
fn a_failed_write_becomes_a_gap() {
    let script = Script::fixed(SyncPolicy::Never);
    let storage = SimulatedStorage::new(0);
    storage.fail(3, Failure::Code(5));
    let report = script.record(&storage).unwrap();
    assert_eq!(report.storage_errors, 1);
    let causes = check(&script, &report, &storage);
    assert_eq!(causes, (GapCause::Storage | GapCause::ReadFailed).bits());
    for said in &report.sources {
        assert!(said.recorded > 40, "recording went on: {}", said.recorded);
    }
}

/// A disk of this size takes a segment of these scripts: its header, and space for its end, which is three times as much where it is compressed.
const SMALLEST_BYTES: u64 = 100 << 10;

// Goal: a disk that fills up loses readings into gaps, takes no more room than there is, and leaves no damage. Method:
// random scripts on media of every size from a header's to enough, packed while they are recorded and not.
#[test]
fn a_full_disk_keeps_the_books() {
    for (seed, packs) in (1..=100).flat_map(|seed| [(seed, false), (seed, true)]) {
        let script = Script { packs, ..Script::random(seed) };
        let storage = SimulatedStorage::new(seed);
        let capacity = 4096 * (1 + seed / 3);
        storage.set_capacity(capacity);
        let Some(report) = script.record(&storage) else {
            // Without space for header and end nothing is begun, and nothing is left behind.
            assert!(storage.names().is_empty() && capacity < SMALLEST_BYTES, "{capacity}");
            continue;
        };
        check(&script, &report, &storage);
        let used: u64 = storage.entries().unwrap().iter().map(|entry| entry.allocated).sum();
        assert_eq!(storage.space().unwrap().available, capacity - used);
        for (name, file) in Looker::new().look(&storage.crash_image(0, CrashKind::ProcessKilled)) {
            assert_eq!(file.holes, [], "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::of(75, 300)))]

    // Goal: whatever fails whenever, what is in the files is whole, in order, and counted once. Method: random faults in
    // creations, writes, cuts, syncs, renames; random scripts, every sync policy, packed while they are recorded and not.
    #[test]
    fn any_fault_keeps_the_books(
        failing in proptest::collection::btree_map(3_usize..60, any::<bool>(), 0..8),
        seed in 1_u64..1_000_000,
        packs in any::<bool>(),
    ) {
        let script = Script { packs, ..Script::random(seed) };
        let storage = SimulatedStorage::new(seed);
        for (operation, is_full) in failing {
            storage.fail(operation, Failure::Code(if is_full { 28 } else { 5 }));
        }
        let report = script.record(&storage).unwrap();
        check(&script, &report, &storage);
    }
}
