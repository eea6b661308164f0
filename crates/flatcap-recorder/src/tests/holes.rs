//! Tests of the list of segments that retention has removed between other segments, with crashes at
//! every operation.

use std::io::Write as _;
use std::sync::Arc;

use flatcap_format::segment::{RemovedSegments, SealState, SegmentName};
use flatcap_format::storage::Storage;
use flatcap_format::testing::simulated::{CrashKind, CrashPoint, SimulatedStorage};
use flatcap_os::clock::NS_PER_S;

use super::retained::{fill, name};
use super::rig::Script;
use crate::{QuotaStorage, RetentionLimits, SyncPolicy};

const AGE: RetentionLimits = RetentionLimits { age_ns: 60 * NS_PER_S, ..RetentionLimits::NONE };
/// A wall time at which all segments are older than the age limit.
const LATER_S: i64 = 10_000_000_000;

/// Removes old segments that have a receipt. The function writes a receipt for each segment except
/// the first segment.
fn remove_old(storage: &SimulatedStorage, limits: RetentionLimits) {
    let receipts = tempfile::NamedTempFile::new().unwrap();
    let mut sealed: Vec<SegmentName> =
        storage.names().iter().filter_map(|name| SegmentName::parse(name)).collect();
    sealed.sort_by_key(|name| name.number);
    for name in &sealed[1..] {
        writeln!(receipts.as_file(), "{:016x}-{:010}", name.run_id, name.number).unwrap();
    }
    let capped = QuotaStorage::new(Arc::new(storage.clone()), limits);
    let _crashed = capped.with_receipts(receipts.path().to_owned()).enforce_limits(LATER_S);
}

/// Returns whether the list contains a segment, and whether the segment exists.
fn is_listed(storage: &SimulatedStorage, run_id: u64, number: u64) -> (bool, bool) {
    let list = RemovedSegments::read(storage).unwrap();
    let names = storage.names();
    let mut segments = names.iter().filter_map(|name| SegmentName::parse(name));
    let exists = segments.any(|name| (name.run_id, name.number) == (run_id, number));
    (list.covers(run_id, number - 1, number + 1), exists)
}

/// Returns a disk with eight segments of a run. Another program has removed the fourth segment. The
/// sixth segment cannot be removed.
fn segments() -> SimulatedStorage {
    let storage = SimulatedStorage::new(0);
    for number in (1..=8).filter(|number| *number != 4) {
        fill(&storage, &name(number, 1000, SealState::Sealed).to_string(), 4096);
    }
    // In this image, all data is on disk.
    let storage = storage.crash_image(0, CrashKind::ProcessKilled);
    storage.refuse_removal(&name(6, 1000, SealState::Sealed).to_string());
    storage
}

#[test]
fn each_hole_is_listed_after_any_crash() {
    // Proves that after a crash at any operation each segment that retention removed is listed. A
    // segment that another program removed is never listed. After the next start, no existing
    // segment is listed.
    let undisturbed = segments();
    remove_old(&undisturbed, AGE);
    let operations = undisturbed.log().len();
    assert!([2, 3, 5, 7].iter().all(|number| is_listed(&undisturbed, 9, *number) == (true, false)));
    assert_eq!(is_listed(&undisturbed, 9, 6), (false, true), "it could not be removed");
    let crashes = (0..operations).flat_map(|operation| {
        [CrashPoint::Before, CrashPoint::Within, CrashPoint::After].map(|point| (operation, point))
    });
    for (operation, point) in crashes {
        let kinds = (0..6).map(|seed| (CrashKind::PowerCut, seed)).chain([(CrashKind::ProcessKilled, 0)]);
        for (kind, seed) in kinds {
            let storage = segments();
            storage.crash_at(operation, point);
            remove_old(&storage, AGE);
            let left = storage.crash_image(seed, kind);
            let what = format!("{operation} {point:?} {kind:?} {seed}: {:?}", left.names());
            let check = |left: &SimulatedStorage, may_exist: bool| {
                for number in [2, 3, 5, 6, 7] {
                    let (listed, exists) = is_listed(left, 9, number);
                    assert!(listed != exists || (may_exist && exists), "{number}: {what}");
                }
                assert_eq!(is_listed(left, 9, 4), (false, false), "{what}");
            };
            check(&left, true);
            remove_old(&left, RetentionLimits { age_ns: u64::MAX - 1, ..AGE });
            check(&left, false);
        }
    }
}

#[test]
fn numbers_that_the_recorder_gave_up_are_listed() {
    // Proves that numbers without a segment are listed with a neighbouring number if no sample is
    // missing between the segments, but not if another program removed a segment.
    let storage = SimulatedStorage::new(0);
    Script { samples: 1500, ..Script::fixed(SyncPolicy::Never) }.record(&storage).unwrap();
    let mut names: Vec<SegmentName> =
        storage.names().iter().filter_map(|name| SegmentName::parse(name)).collect();
    names.sort_by_key(|name| name.number);
    assert!(names.len() > 6, "{names:?}");
    let first = names[0].number;
    // No segment has the two numbers between the fourth and the fifth segment.
    for own in names[4..].iter().rev() {
        let moved = SegmentName { number: own.number + 2, ..*own };
        storage.rename(&own.to_string(), &moved.to_string()).unwrap();
    }
    storage.remove(&names[2].to_string()).unwrap();
    remove_old(&storage, AGE);
    let run_id = names[0].run_id;
    let listed = |at: u64| is_listed(&storage, run_id, first + at);
    assert_eq!([1, 2, 3].map(listed), [(true, false), (false, false), (true, false)]);
    assert_eq!([4, 5, 6].map(listed), [(true, false); 3]);
}
