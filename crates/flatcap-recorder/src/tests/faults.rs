//! Tests with a failing storage. Nevertheless, every sample must be in a file or in a Gap.

use flatcap_format::schema::segment::GapCause;
use flatcap_format::storage::Storage;
use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::{CrashKind, InjectedFailure, SimulatedStorage};
use proptest::prelude::*;

use super::image_checker::{ImageChecker, promises};
use super::rig::{FileContent, FileItem, ImageReader, Script};
use crate::{RecorderReport, SyncPolicy};

/// Checks the files in their current state and after a power cut, and compares the current state
/// with the report. Returns the causes of all gaps.
fn check(script: &Script, report: &RecorderReport, storage: &SimulatedStorage) -> u32 {
    let promises = promises(&storage.log(), script.sync, true);
    let mut looker = ImageReader::new();
    let mut look = |kind| {
        let files = looker.read_image(&storage.crash_image(script.seed, kind));
        let counts = ImageChecker { script, promises: &promises, kind, is_faulty: true }.check(&files);
        (counts, files)
    };
    look(CrashKind::PowerCut);
    let (counts, files) = look(CrashKind::ProcessKilled);
    for ((recorded, lost), said) in counts.into_iter().zip(&report.sources) {
        assert_eq!(said.metrics.begun.get(), script.samples);
        assert_eq!(recorded, said.metrics.recorded.get(), "the report counts the samples in the files");
        assert_eq!(said.lost(), script.samples - recorded);
        assert!(recorded + lost <= script.samples);
        // Losses at the end are in the files, unless the storage failed until the end of the run.
        if report.metrics.recorder.storage_errors.get() == 0 {
            assert_eq!(recorded + lost, script.samples);
        }
    }
    causes(files.iter().map(|(_, file)| &**file))
}

fn causes<'a>(files: impl Iterator<Item = &'a FileContent>) -> u32 {
    files.flat_map(|file| &file.items).fold(0, |causes, item| match item {
        FileItem::Gap { gap, .. } => causes | gap.causes,
        _ => causes,
    })
}

// Proves that without a storage error every sample is recorded or in a gap with its own cause.
// Recorder and sampler run concurrently, across several segments.
#[test]
fn losses_before_the_recorder_are_exact() {
    // The number of samples that find a full queue depends on the speed of both threads. So the
    // number of samples is increased until there are several segments.
    let mut readings = 2000;
    let (script, storage, report) = loop {
        let script =
            Script { samples: readings, segment_bytes: 32 << 10, ..Script::fixed(SyncPolicy::Always) };
        let storage = SimulatedStorage::new(0);
        let report = script.record_concurrently(&storage);
        if report.metrics.recorder.segments_sealed.get() > 3 {
            break (script, storage, report);
        }
        readings *= 2;
        assert!(readings < 1 << 20, "{} segments", report.metrics.recorder.segments_sealed.get());
    };
    assert_eq!(report.metrics.recorder.storage_errors.get(), 0);
    let promises = promises(&storage.log(), script.sync, false);
    let files = ImageReader::new().read_image(&storage.crash_image(0, CrashKind::PowerCut));
    let kind = CrashKind::ProcessKilled; // the run has ended: everything is synced
    let counts = ImageChecker { script: &script, promises: &promises, kind, is_faulty: true }.check(&files);
    for ((recorded, lost), said) in counts.into_iter().zip(&report.sources) {
        assert_eq!((recorded, lost), (said.metrics.recorded.get(), said.lost()));
        assert_eq!(recorded + lost, script.samples);
    }
    let causes = causes(files.iter().map(|(_, file)| &**file));
    assert_eq!(causes & !(GapCause::PoolEmpty | GapCause::QueueFull).bits(), GapCause::ReadFailed.bits());
}

// Proves that, if a write fails halfway, its batch is lost as a gap with cause storage, and that
// recording continues in a new segment. Method: the third of all creations, syncs and writes fails.
// These operations are counted together.
#[test]
fn a_failed_write_becomes_a_gap() {
    let script = Script::fixed(SyncPolicy::Never);
    let storage = SimulatedStorage::new(0);
    storage.fail(3, InjectedFailure::Code(5));
    let report = script.record(&storage).unwrap();
    assert_eq!(report.metrics.recorder.storage_errors.get(), 1);
    let causes = check(&script, &report, &storage);
    assert_eq!(causes, (GapCause::Storage | GapCause::ReadFailed).bits());
    for said in &report.sources {
        assert!(said.metrics.recorded.get() > 40, "recording went on: {}", said.metrics.recorded.get());
    }
}

/// Size of a disk that can hold one segment of these scripts, with its header and space for its
/// end. The end needs three times the space if the segment is compressed.
const SMALLEST_BYTES: u64 = 100 << 10;

// Proves that, on a disk that fills up, lost samples are in gaps, the used space never exceeds the
// disk, and no file is damaged. Method: random scripts and disks of any size, with and without
// compression.
#[test]
fn a_full_disk_keeps_the_accounting() {
    for (seed, packs) in (1..=100).flat_map(|seed| [(seed, false), (seed, true)]) {
        let script = Script { compresses: packs, ..Script::random(seed) };
        let storage = SimulatedStorage::new(seed);
        let capacity = 4096 * (1 + seed / 3);
        storage.set_capacity(capacity);
        let Some(report) = script.record(&storage) else {
            // If there is no space for the header and the end, no segment is begun and no file
            // remains.
            assert!(storage.names().is_empty() && capacity < SMALLEST_BYTES, "{capacity}");
            continue;
        };
        check(&script, &report, &storage);
        let used: u64 = storage.entries().unwrap().iter().map(|entry| entry.allocated).sum();
        assert_eq!(storage.space().unwrap().available, capacity - used);
        for (name, file) in ImageReader::new().read_image(&storage.crash_image(0, CrashKind::ProcessKilled)) {
            assert_eq!(file.damage, [], "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::of(75, 300)))]

    // Proves that after random failures of any operation the files are intact and in order, and
    // that each sample counts exactly once. Method: random scripts and every sync policy, with and
    // without compression.
    #[test]
    fn any_fault_keeps_the_accounting(
        failing in proptest::collection::btree_map(3_usize..60, any::<bool>(), 0..8),
        seed in 1_u64..1_000_000,
        compresses in any::<bool>(),
    ) {
        let script = Script { compresses, ..Script::random(seed) };
        let storage = SimulatedStorage::new(seed);
        for (operation, is_full) in failing {
            storage.fail(operation, InjectedFailure::Code(if is_full { 28 } else { 5 }));
        }
        let report = script.record(&storage).unwrap();
        check(&script, &report, &storage);
    }
}
