//! Tests of the accounting after failed writes, kills and recoveries. Each sequence number must
//! count exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flatcap_format::segment::Leftovers;
use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::{
    CrashKind, CrashPoint, InjectedFailure, LoggedOperation, Operation, SimulatedStorage,
};
use proptest::prelude::*;

use super::recoveries::{check_image, recover, segments};
use super::rig::{FileContent, FileItem, ImageReader, SOURCES, Script};
use crate::SyncPolicy;

/// Returns the number of samples of each source that are recorded, lost or thinned. The check fails
/// if a sample is in several frames or gaps.
fn accounted(files: &[(String, Rc<FileContent>)]) -> BTreeMap<u16, u64> {
    let mut numbers: BTreeSet<(u16, u64)> = BTreeSet::new();
    let mut add = |source, seq| assert!(numbers.insert((source, seq)), "{seq} of {source} counts twice");
    for item in files.iter().flat_map(|(_, file)| &file.items) {
        match item {
            FileItem::Sample { source, seq, .. } => add(*source, *seq),
            FileItem::Gap { gap, .. } => {
                (gap.first..gap.first + gap.count).for_each(|seq| add(gap.source, seq));
            }
            FileItem::Other { .. } => {}
        }
    }
    numbers.into_iter().fold(BTreeMap::new(), |mut counts, (source, _)| {
        *counts.entry(source).or_default() += 1;
        counts
    })
}

/// Returns whether a segment has neither samples nor gaps.
fn is_blank(file: &FileContent) -> bool {
    file.items.iter().all(|item| matches!(item, FileItem::Other { .. }))
}

// Proves that a segment counts no sample if its creation failed after its header was written and
// the segment could not be removed. In that case the recorder continues with the previous segment.
// Method: two or three consecutive operations of each creation fail. Then the run ends or is
// killed, soon or late. Each recovery is interrupted and repeated.
#[test]
fn a_segment_given_up_at_its_creation_counts_nothing() {
    let mut given_up = 0;
    for script in [Script::fixed(SyncPolicy::Never), Script::fixed(SyncPolicy::Never).compressing()] {
        let undisturbed = SimulatedStorage::new(0);
        script.record(&undisturbed).unwrap();
        let is_creation =
            |(_, event): &(usize, LoggedOperation)| matches!(event.operation, Operation::Create { .. });
        let log = undisturbed.log().into_iter().enumerate();
        let creations: Vec<usize> = log.filter(is_creation).map(|(at, _)| at).collect();
        for (creation, first, count) in creations.into_iter().skip(1).flat_map(|creation| {
            (1..4).flat_map(move |first| [2, 3].map(move |count| (creation, first, count)))
        }) {
            let kills: &[Option<usize>] =
                effort::by_hand(&[None, Some(6)], &[None, Some(2), Some(6), Some(12), Some(30)]);
            for &kill in kills {
                let storage = SimulatedStorage::new(creation as u64);
                let operations = creation + first..creation + first + count;
                operations.clone().for_each(|operation| storage.fail(operation, 5));
                if let Some(later) = kill {
                    storage.crash_at(operations.end + later, CrashPoint::Within);
                }
                script.record(&storage);
                let image = storage.crash_image(0, CrashKind::ProcessKilled);
                let mut looker = ImageReader::new();
                given_up += segments(&mut looker, &image).iter().filter(|(_, file)| is_blank(file)).count();
                for memory in [script.memory(), Leftovers { frames: Vec::new(), ..script.memory() }] {
                    let repetitions: &[Option<usize>] =
                        effort::by_hand(&[None, Some(1)], &[None, Some(0), Some(1), Some(4)]);
                    for &again in repetitions {
                        let mut image = storage.crash_image(0, CrashKind::ProcessKilled);
                        if let Some(operation) = again {
                            image.crash_at(operation, CrashPoint::Before);
                            recover(&image, &memory);
                            image = image.crash_image(0, CrashKind::ProcessKilled);
                        }
                        check_accounts(&script, &image, &memory);
                    }
                }
            }
        }
    }
    assert!(given_up > 0, "no creation failed after the header was written");
}

/// Recovers a run, and checks that each of its samples is accounted for exactly once.
fn check_accounts(script: &Script, image: &SimulatedStorage, memory: &Leftovers) {
    assert!(recover(image, memory));
    let mut looker = ImageReader::new();
    let (_, _, missing) = check_image(&mut looker, script, image);
    assert_eq!(missing, 0);
    let files = segments(&mut looker, image);
    let counts = accounted(&files);
    // The image may have no segment, and then no file can contain a Gap.
    let expected: BTreeMap<u16, u64> = (0..SOURCES).map(|source| (source, script.samples)).collect();
    assert!(files.is_empty() || counts == expected, "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::by_hand(150, 5_000)))]

    // Proves that each sequence number of a run is in exactly one frame or Gap, so that begun =
    // recorded + lost + thinned. Method: random writes are refused, are short, or fail after all of
    // their bytes have reached the file. The disk is temporarily full, and segments rotate. The run
    // is killed at an arbitrary operation, or not at all. A second kill interrupts the recovery.
    // The recovery has either the whole memory of the run, or only the sequence numbers.
    #[test]
    fn each_sample_is_accounted_for_once(
        seed in 1_u64..1_000_000,
        failing in proptest::collection::btree_map(3_usize..60, 0_usize..3, 0..5),
        kill in proptest::option::of((4_usize..60, 0_usize..3)),
        keeps_frames in any::<bool>(),
        compresses in any::<bool>(),
        again in proptest::option::of(0_usize..12),
    ) {
        let script = Script { compresses, ..Script::random(seed) };
        let storage = SimulatedStorage::new(seed);
        let failures = [InjectedFailure::Code(5), InjectedFailure::Code(28), InjectedFailure::Late(5)];
        for (operation, failure) in failing {
            storage.fail(operation, failures[failure]);
        }
        let moments = [CrashPoint::Before, CrashPoint::Within, CrashPoint::After];
        if let Some((operation, moment)) = kill {
            storage.crash_at(operation, moments[moment]);
        }
        script.record(&storage);
        let mut memory = script.memory();
        if !keeps_frames {
            memory.frames.clear();
        }
        let mut image = storage.crash_image(seed, CrashKind::ProcessKilled);
        if let Some(operation) = again {
            image.crash_at(operation, CrashPoint::Within);
            recover(&image, &memory);
            image = image.crash_image(seed, CrashKind::ProcessKilled);
        }
        check_accounts(&script, &image, &memory);
    }
}
