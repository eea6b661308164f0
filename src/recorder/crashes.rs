//! A recorder is stopped before, within and after each operation of its storage, and what a reader then believes is
//! judged.
//!
//! The syncer works beside the recorder, so operations have no fixed numbers. Nothing here expects any: what must be
//! there follows from the log of the very run that crashed.

use super::SyncPolicy;
use super::judge::{Judge, promises};
use super::rig::{Looker, Script};
use crate::effort;
use crate::os::simulated::{CrashKind, Moment, Random, SimulatedStorage};

/// Images of a power cut that are read of each crash.
const POWER_CUTS: u64 = 4;

/// Says on a panic which image it was.
struct Shown<'a> {
    script: &'a Script,
    storage: &'a SimulatedStorage,
    seed: u64,
    kind: CrashKind,
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}, image {} of {:?}, after:", self.script, self.seed, self.kind);
            self.storage.log().iter().for_each(|event| eprintln!("{event:?}"));
        }
    }
}

/// Records the script on a storage that was told when to crash, and judges what may be found then.
fn crash(looker: &mut Looker, script: &Script, storage: &SimulatedStorage, is_faulty: bool) {
    script.record(storage);
    let promises = promises(&storage.log(), script.sync, is_faulty);
    let mut judge = |seed, kind| {
        let _shown = Shown { script, storage, seed, kind };
        let image = storage.crash_image(seed, kind);
        let found = looker.look(&image);
        let counts = Judge { script, promises: &promises, kind, is_faulty }.judge(&found);
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

/// Every moment of every operation.
fn crash_everywhere(script: &Script) {
    let undisturbed = SimulatedStorage::new(0);
    let report = script.record(&undisturbed).unwrap();
    assert!(report.segments_sealed > 2 && report.storage_errors == 0);
    let promises = promises(&undisturbed.log(), script.sync, false);
    assert!(promises.values().all(|promise| promise.is_published), "every name is on the medium at the end");
    crash(&mut Looker::new(), script, &SimulatedStorage::new(0), false);
    for operation in (0..undisturbed.log().len() + 2).step_by(effort::of(4, 1)) {
        for moment in [Moment::Before, Moment::Within, Moment::After] {
            let storage = SimulatedStorage::new(operation as u64);
            storage.crash_at(operation, moment);
            crash(&mut Looker::new(), script, &storage, false);
        }
    }
}

fn random_moment(random: &mut Random) -> Moment {
    [Moment::Before, Moment::Within, Moment::After][random.below(3)]
}

// Goal: a crash at any point leaves what was promised and nothing that is wrong. Method: the fixed script under the policy
// that syncs at the end of a segment; each operation, each moment; one image of a killed process, several of a power cut.
#[test]
fn crashes_without_syncs() {
    crash_everywhere(&Script::fixed(SyncPolicy::Never));
}

// Goal: as above. Method: the policy that syncs after each write.
#[test]
fn crashes_with_every_write_synced() {
    crash_everywhere(&Script::fixed(SyncPolicy::Always));
}

// Goal: as above. Method: the syncer at work all the time.
#[test]
fn crashes_beside_the_syncer() {
    crash_everywhere(&Script::fixed(SyncPolicy::Interval(0)));
}

// Goal: as above, whatever is recorded however. Method: random scripts by seed, crashes at random.
#[test]
fn crashes_of_random_runs() {
    for seed in 1..=effort::of(12, 50) {
        let script = Script::random(seed);
        let undisturbed = SimulatedStorage::new(seed);
        script.record(&undisturbed).unwrap();
        let mut random = Random::new(seed);
        for _ in 0..10 {
            let storage = SimulatedStorage::new(random.next());
            storage.crash_at(random.below(undisturbed.log().len()), random_moment(&mut random));
            crash(&mut Looker::new(), &script, &storage, false);
        }
    }
}

// Goal: a crash behind failures finds no more than the failures have done. Method: random scripts by seed, up to three
// failing operations in front of a random crash.
#[test]
fn crashes_of_failing_runs() {
    for seed in 1..=effort::of(12, 50) {
        let script = Script::random(seed);
        let undisturbed = SimulatedStorage::new(seed);
        script.record(&undisturbed).unwrap();
        let mut random = Random::new(seed);
        for _ in 0..10 {
            let storage = SimulatedStorage::new(random.next());
            let crash_at = random.below(undisturbed.log().len()).max(3);
            storage.crash_at(crash_at, random_moment(&mut random));
            for _ in 0..=random.below(3) {
                storage.fail(2 + random.below(crash_at - 2), [5, 28][random.below(2)]);
            }
            crash(&mut Looker::new(), &script, &storage, true);
        }
    }
}

// Goal: all of that holds for segments that are packed while they are recorded. Method: the policies that sync while recording, at each operation
// and moment; random scripts, with and without failures in front of the crash.
#[test]
fn crashes_while_packing() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval(0)] {
        crash_everywhere(&Script::fixed(sync).packing());
    }
    for seed in 1..=effort::of(6, 25) {
        let script = Script::random(seed).packing();
        let undisturbed = SimulatedStorage::new(seed);
        script.record(&undisturbed).unwrap();
        let mut random = Random::new(seed);
        for at in 0..10 {
            let storage = SimulatedStorage::new(random.next());
            let crash_at = random.below(undisturbed.log().len()).max(3);
            storage.crash_at(crash_at, random_moment(&mut random));
            let is_faulty = at % 2 == 1;
            for _ in 0..if is_faulty { 1 + random.below(3) } else { 0 } {
                storage.fail(2 + random.below(crash_at - 2), [5, 28][random.below(2)]);
            }
            crash(&mut Looker::new(), &script, &storage, is_faulty);
        }
    }
}
