//! Crash tests of a ring and its disk, in which two recorders run one after the other. A failure of
//! one storage must not affect the content of the other.

use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::{CrashPoint, SimulatedStorage};

use super::crashes::check_crashed;
use super::rig::{ImageReader, Script};
use crate::{RecorderReport, SyncPolicy};

/// Returns the script of the ring, which gets every sample.
fn whole(sync: SyncPolicy) -> Script {
    Script { samples: 300, ..Script::fixed(sync) }
}

/// Returns the script of the disk, which gets the first intact sample of every four samples.
fn thinned(sync: SyncPolicy) -> Script {
    Script { thinning_ns: 4, ..whole(sync) }
}

/// Returns the numbers of recorded, lost and thinned samples of each source. The sum of the three
/// numbers is the number of all samples.
fn counts(script: &Script, report: &RecorderReport) -> Vec<(u64, u64, u64)> {
    let counted = |source: &crate::SourceReport| {
        assert_eq!(
            source.metrics.recorded.get() + source.lost() + source.metrics.thinned.get(),
            script.samples
        );
        (source.metrics.recorded.get(), source.lost(), source.metrics.thinned.get())
    };
    report.sources.iter().map(counted).collect()
}

/// Crashes one of the storages at every moment of every operation. The other storage gets all
/// samples.
fn crash_everywhere(sync: SyncPolicy, crashes_ring: bool) {
    let (script, of_ring) = (thinned(sync), whole(sync));
    let (ring, disk) = (SimulatedStorage::new(0), SimulatedStorage::new(0));
    let (in_ring, on_disk) = script.record_with_ring(&ring, &disk).unwrap();
    let expected = (counts(&script, &in_ring), counts(&script, &on_disk));
    assert!(expected.0.iter().all(|(recorded, lost, thinned)| (*recorded, *lost, *thinned) == (270, 30, 0)));
    assert!(expected.1.iter().all(|(recorded, lost, thinned)| (*recorded, *lost, *thinned) == (75, 30, 195)));
    assert!(
        in_ring.metrics.recorder.segments_sealed.get() > 2
            && on_disk.metrics.recorder.segments_sealed.get() > 2
    );
    let operations = if crashes_ring { &ring } else { &disk }.log().len();
    for operation in (0..operations + 2).step_by(effort::of(12, 1)) {
        for moment in [CrashPoint::Before, CrashPoint::Within, CrashPoint::After] {
            let (ring, disk) = (SimulatedStorage::new(operation as u64), SimulatedStorage::new(0));
            let (crashed, other) = if crashes_ring { (&ring, &disk) } else { (&disk, &ring) };
            crashed.crash_at(operation, moment);
            let reports = script.record_with_ring(&ring, &disk);
            let (of_crashed, of_other) = if crashes_ring { (&of_ring, &script) } else { (&script, &of_ring) };
            check_crashed(&mut ImageReader::new(), of_crashed, crashed, false);
            // If the crash occurs during the creation of the first segment, the recorder does not
            // start.
            let Some((in_ring, on_disk)) = reports else { continue };
            check_crashed(&mut ImageReader::new(), of_other, other, false);
            let (found, expected) =
                if crashes_ring { (&on_disk, &expected.1) } else { (&in_ring, &expected.0) };
            let found = counts(&script, found);
            assert_eq!(&found, expected, "operation {operation}, {moment:?}");
        }
    }
}

// Proves that a crash of the ring at any point leaves all data that was promised for the ring. The
// disk loses no sample, and the count of thinned samples is still exact.
#[test]
fn crashes_of_the_ring() {
    for sync in [SyncPolicy::Never, SyncPolicy::Interval(0)] {
        crash_everywhere(sync, true);
    }
}

// Proves that a crash of the disk at any point leaves all data that was promised for the disk, and
// that thinned samples are marked as thinned. The ring loses nothing.
#[test]
fn crashes_of_the_disk_beside_the_ring() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval(0)] {
        crash_everywhere(sync, false);
    }
}
