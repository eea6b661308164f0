//! Crash tests. A recorder is stopped before, within and after each operation of its storage. Then
//! the test checks the content that a reader accepts.
//!
//! The syncer runs concurrently with the recorder, so the numbers of operations vary between runs.
//! No test relies on such numbers, because the expected content follows from the log of the run
//! that crashed.

use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::{CrashKind, CrashPoint, SimulatedStorage, SimulationRandom};

use super::image_checker::{ImageChecker, promises};
use super::rig::{ImageReader, Script};
use crate::SyncPolicy;

/// Number of disk images after a power cut that are read per crash.
const POWER_CUTS: u64 = 4;

/// Prints the image that is being checked if the test panics.
struct ImageContext<'a> {
    script: &'a Script,
    storage: &'a SimulatedStorage,
    seed: u64,
    kind: CrashKind,
}

impl Drop for ImageContext<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}, image {} of {:?}, after:", self.script, self.seed, self.kind);
            self.storage.log().iter().for_each(|event| eprintln!("{event:?}"));
        }
    }
}

/// Records the script on a storage that is configured to crash, and checks the content after the
/// crash.
fn crash(looker: &mut ImageReader, script: &Script, storage: &SimulatedStorage, is_faulty: bool) {
    script.record(storage);
    check_crashed(looker, script, storage, is_faulty);
}

/// Checks the content after the crash of a storage.
pub(super) fn check_crashed(
    looker: &mut ImageReader,
    script: &Script,
    storage: &SimulatedStorage,
    is_faulty: bool,
) {
    let promises = promises(&storage.log(), script.sync, is_faulty);
    let mut judge = |seed, kind| {
        let _shown = ImageContext { script, storage, seed, kind };
        let image = storage.crash_image(seed, kind);
        let found = looker.read_image(&image);
        let counts = ImageChecker { script, promises: &promises, kind, is_faulty }.check(&found);
        counts.iter().map(|(recorded, _)| recorded).sum::<u64>()
    };
    let taken = judge(0, CrashKind::ProcessKilled);
    let first = script.seed.wrapping_mul(0x1000) + storage.log().len() as u64 * POWER_CUTS;
    for seed in first..first + POWER_CUTS {
        let kept = judge(seed, CrashKind::PowerCut);
        let is_synced_at_once = script.sync == SyncPolicy::Always && !is_faulty;
        assert!(!is_synced_at_once || kept + script.batch_frames_max() >= taken, "{kept} of {taken}");
    }
}

/// Crashes the recorder at every crash point (before, within and after) of every operation.
fn crash_everywhere(script: &Script) {
    let undisturbed = SimulatedStorage::new(0);
    let report = script.record(&undisturbed).unwrap();
    assert!(
        report.metrics.recorder.segments_sealed.get() > 2
            && report.metrics.recorder.storage_errors.get() == 0
    );
    let promises = promises(&undisturbed.log(), script.sync, false);
    assert!(promises.values().all(|promise| promise.is_published), "every name is on disk at the end");
    crash(&mut ImageReader::new(), script, &SimulatedStorage::new(0), false);
    for operation in (0..undisturbed.log().len() + 2).step_by(effort::of(4, 1)) {
        for moment in [CrashPoint::Before, CrashPoint::Within, CrashPoint::After] {
            let storage = SimulatedStorage::new(operation as u64);
            storage.crash_at(operation, moment);
            crash(&mut ImageReader::new(), script, &storage, false);
        }
    }
}

fn random_moment(random: &mut SimulationRandom) -> CrashPoint {
    [CrashPoint::Before, CrashPoint::Within, CrashPoint::After][random.below(3)]
}

// Proves that a crash at any point leaves all promised data and no wrong data, if segments are
// synced only at their end. For each crash, the test checks one image of a killed process and
// several images of a power cut.
#[test]
fn crashes_without_syncs() {
    crash_everywhere(&Script::fixed(SyncPolicy::Never));
}

// Proves that crashes leave all promised data and no wrong data, with a sync after each write.
#[test]
fn crashes_with_every_write_synced() {
    crash_everywhere(&Script::fixed(SyncPolicy::Always));
}

// Proves that crashes leave all promised data and no wrong data, while the syncer is always active.
#[test]
fn crashes_beside_the_syncer() {
    crash_everywhere(&Script::fixed(SyncPolicy::Interval(0)));
}

// Proves that crashes leave all promised data and no wrong data, for random scripts and random
// crashes.
#[test]
fn crashes_of_random_runs() {
    for seed in 1..=effort::of(12, 50) {
        let script = Script::random(seed);
        let undisturbed = SimulatedStorage::new(seed);
        script.record(&undisturbed).unwrap();
        let mut random = SimulationRandom::new(seed);
        for _ in 0..10 {
            let storage = SimulatedStorage::new(random.next());
            storage.crash_at(random.below(undisturbed.log().len()), random_moment(&mut random));
            crash(&mut ImageReader::new(), &script, &storage, false);
        }
    }
}

// Proves that a crash after up to three failed operations leaves no damage in addition to the
// damage that these failures caused.
#[test]
fn crashes_of_failing_runs() {
    for seed in 1..=effort::of(12, 50) {
        let script = Script::random(seed);
        let undisturbed = SimulatedStorage::new(seed);
        script.record(&undisturbed).unwrap();
        let mut random = SimulationRandom::new(seed);
        for _ in 0..10 {
            let storage = SimulatedStorage::new(random.next());
            let crash_at = random.below(undisturbed.log().len()).max(3);
            storage.crash_at(crash_at, random_moment(&mut random));
            for _ in 0..=random.below(3) {
                storage.fail(2 + random.below(crash_at - 2), [5, 28][random.below(2)]);
            }
            crash(&mut ImageReader::new(), &script, &storage, true);
        }
    }
}

// Proves the properties of the previous tests for segments that are compressed during the
// recording.
#[test]
fn crashes_while_packing() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval(0)] {
        crash_everywhere(&Script::fixed(sync).compressing());
    }
    for seed in 1..=effort::of(6, 25) {
        let script = Script::random(seed).compressing();
        let undisturbed = SimulatedStorage::new(seed);
        script.record(&undisturbed).unwrap();
        let mut random = SimulationRandom::new(seed);
        for at in 0..10 {
            let storage = SimulatedStorage::new(random.next());
            let crash_at = random.below(undisturbed.log().len()).max(3);
            storage.crash_at(crash_at, random_moment(&mut random));
            let is_faulty = at % 2 == 1;
            for _ in 0..if is_faulty { 1 + random.below(3) } else { 0 } {
                storage.fail(2 + random.below(crash_at - 2), [5, 28][random.below(2)]);
            }
            crash(&mut ImageReader::new(), &script, &storage, is_faulty);
        }
    }
}
