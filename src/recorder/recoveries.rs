//! What a crash has left is recovered, the recovery itself is stopped anywhere and repeated, and nothing that was there is
//! missing in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::rc::Rc;

use super::SyncPolicy;
use super::rig::{FileFound, Item, Looker, RUN_ID, SOURCES, Script};
use crate::effort;
use crate::os::simulated::{CrashKind, Failure, Moment, Random, SimulatedStorage};
use crate::os::storage::Storage;
use crate::schema::segment::GapCause;
use crate::segment::{Account, Audit, Completion, Finding, Leftovers, SegmentName, State};

/// Crashes of each recovery.
const CRASHES: usize = 6;

/// The samples that a reader finds.
fn samples(files: &[(String, Rc<FileFound>)]) -> BTreeSet<(u16, u64)> {
    let items = files.iter().flat_map(|(_, file)| &file.items);
    let sample = |item: &Item| match item {
        Item::Sample { source, seq, .. } => Some((*source, *seq)),
        _ => None,
    };
    items.filter_map(sample).collect()
}

fn segments(looker: &mut Looker, storage: &SimulatedStorage) -> Vec<(String, Rc<FileFound>)> {
    let mut files = looker.look(storage);
    files.retain(|(name, _)| SegmentName::parse(name).is_some());
    files
}

/// Recovers; whether it came to its end without an error.
fn recover(storage: &SimulatedStorage, memory: &Leftovers) -> bool {
    recover_only(storage, None, memory)
}

/// The same for one segment.
fn recover_only(storage: &SimulatedStorage, only: Option<SegmentName>, memory: &Leftovers) -> bool {
    let completion = Completion { storage, spare_run: None, only, dry_run: false };
    let mut is_done = true;
    let listed =
        completion.run(&mut |_run| Ok(memory.clone()), &mut |_name, result| is_done &= result.is_ok());
    listed.is_ok() && is_done
}

/// Everything is sealed, whole, explained, and what was sampled.
fn judge(
    looker: &mut Looker,
    script: &Script,
    storage: &SimulatedStorage,
) -> (BTreeSet<(u16, u64)>, u32, u64) {
    let files = segments(looker, storage);
    let mut audit = Audit::default();
    let (mut causes, mut missing, mut last_number) = (0, 0, None);
    for (name, file) in &files {
        assert_eq!(SegmentName::parse(name).unwrap().state, State::Sealed, "{name}");
        assert!(file.is_sealed && file.holes.is_empty(), "{name}: {:?}", file.holes);
        let header = file.header.as_ref().unwrap();
        let is_behind_another = last_number.is_some_and(|last: u64| last + 1 == header.segment);
        last_number = Some(header.segment);
        // Where a whole segment was never written to the medium, nobody can say more than that it is missing.
        let holes = audit.header(header);
        assert!(!is_behind_another || holes.is_empty(), "{name}: {holes:?}");
        missing += holes
            .iter()
            .map(|(_, finding)| if let Finding::Hole(count) = finding { *count } else { 0 })
            .sum::<u64>();
        for item in &file.items {
            match item {
                Item::Sample { source, seq, mono_ns, payload, .. } => {
                    assert_eq!(script.payload(*source, *seq).as_ref(), Some(payload), "{source} {seq}");
                    assert_eq!(*mono_ns, Script::mono_ns(*seq));
                    assert_eq!(audit.sample(RUN_ID, *source, *seq), None, "{name}: {source} {seq}");
                }
                Item::Gap { gap, .. } => {
                    assert_eq!(audit.gap(RUN_ID, gap), None, "{name}: {gap:?}");
                    causes |= gap.causes;
                }
                Item::Other { .. } => {}
            }
        }
    }
    let unexplained: u64 = audit.finish().iter().map(|(_, source)| source.unexplained).sum();
    assert_eq!(unexplained, missing);
    for name in storage.names() {
        assert!(!name.ends_with(".recovering") && !name.ends_with(".active"), "{name} is left");
    }
    (samples(&files), causes, missing)
}

/// One image of a crash: recovered, and recovered again behind crashes of the recovery.
fn check(script: &Script, storage: &SimulatedStorage, seed: u64, kind: CrashKind) {
    let mut looker = Looker::new();
    let before = samples(&segments(&mut looker, &storage.crash_image(seed, kind)));
    let memory = match kind {
        CrashKind::ProcessKilled => script.memory(),
        CrashKind::PowerCut => Leftovers::default(),
    };
    let expected: BTreeSet<(u16, u64)> = (0..SOURCES)
        .flat_map(|source| (0..script.readings).map(move |seq| (source, seq)))
        .filter(|(source, seq)| script.payload(*source, *seq).is_some())
        .collect();
    let mut judge_end = |image: &SimulatedStorage| {
        let (after, causes, missing) = judge(&mut looker, script, image);
        assert!(before.is_subset(&after), "a sample was lost: {:?}", before.difference(&after));
        // Without any segment there is nothing that could be completed.
        if kind == CrashKind::ProcessKilled {
            assert_eq!(missing, 0);
        }
        if kind == CrashKind::ProcessKilled && !after.is_empty() {
            assert_eq!(after, expected, "every finished frame is there");
        }
        // What was not synced may arrive with holes in it.
        let possible = match kind {
            CrashKind::ProcessKilled => GapCause::ReadFailed | GapCause::Crash,
            CrashKind::PowerCut => GapCause::ReadFailed | GapCause::Crash | GapCause::Damaged,
        };
        assert_eq!(causes & !possible.bits(), 0, "{causes:#b}");
    };
    let image = storage.crash_image(seed, kind);
    assert!(recover(&image, &memory));
    judge_end(&image);
    let operations = image.log().len();
    let mut random = Random::new(seed ^ 0x5eed);
    for _ in 0..CRASHES.min(operations) {
        let mut image = storage.crash_image(seed, kind);
        // Twice interrupted, then left alone.
        for _ in 0..2 {
            let moment = [Moment::Before, Moment::Within, Moment::After][random.below(3)];
            image.crash_at(random.below(operations), moment);
            recover(&image, &memory);
            image = image.crash_image(random.next(), kind);
        }
        assert!(recover(&image, &memory));
        judge_end(&image);
    }
}

fn crash_and_check(script: &Script, random: &mut Random, crashes: usize) {
    let undisturbed = SimulatedStorage::new(script.seed);
    script.record(&undisturbed).unwrap();
    for _ in 0..crashes {
        let storage = SimulatedStorage::new(random.next());
        let moment = [Moment::Before, Moment::Within, Moment::After][random.below(3)];
        storage.crash_at(random.below(undisturbed.log().len()), moment);
        script.record(&storage);
        check(script, &storage, random.next(), CrashKind::ProcessKilled);
        check(script, &storage, random.next(), CrashKind::PowerCut);
    }
}

// Goal: after a kill every finished frame is in a sealed segment and the rest is explained; after a power cut everything
// that a reader found before is. Method: random scripts and crashes by seed, recoveries interrupted twice at random.
#[test]
fn recoveries_lose_nothing() {
    for seed in 1..=effort::of(10, 40) {
        crash_and_check(&Script::random(seed), &mut Random::new(seed), 3);
    }
}

// Goal: as above, at every operation of a run. Method: the fixed script, each policy.
#[test]
fn every_crash_is_recovered() {
    for sync in [SyncPolicy::Never, SyncPolicy::Always, SyncPolicy::Interval(0)] {
        let script = Script::fixed(sync);
        let undisturbed = SimulatedStorage::new(0);
        script.record(&undisturbed).unwrap();
        for operation in (0..undisturbed.log().len()).step_by(effort::of(4, 1)) {
            let storage = SimulatedStorage::new(operation as u64);
            storage.crash_at(operation, Moment::Within);
            script.record(&storage);
            check(&script, &storage, operation as u64, CrashKind::ProcessKilled);
            check(&script, &storage, operation as u64, CrashKind::PowerCut);
        }
    }
}

// Goal: a damaged file is set aside whole, and everything in it that is intact is in the new one. Method: flip bytes in
// the middle of what a killed run left.
#[test]
fn damaged_files_are_set_aside() {
    for seed in 1..=20 {
        let script = Script::random(seed);
        let storage = SimulatedStorage::new(seed);
        let mut random = Random::new(seed);
        script.record(&storage).unwrap();
        let whole = storage.crash_image(seed, CrashKind::ProcessKilled);
        let folder = tempfile::tempdir().unwrap();
        whole.write_to(folder.path()).unwrap();
        let directory = crate::os::storage::DataDirectory::open(folder.path()).unwrap();
        let name = SegmentName::parse(&whole.names()[0]).unwrap();
        let path = folder.path().join(name.to_string());
        let mut bytes = std::fs::read(&path).unwrap();
        let at = 700 + random.below(bytes.len() - 3000);
        bytes[at] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        let mut looker = Looker::new();
        let mut before: BTreeMap<String, Rc<FileFound>> = looker.look(&whole).into_iter().collect();
        let whole = before.remove(&name.to_string()).unwrap();
        let recovered = crate::segment::recover(&directory, name, &Leftovers::default(), false).unwrap();
        assert!(!recovered.damage.is_empty(), "byte {at}");
        let damaged = path.with_file_name(name.aside(crate::segment::Aside::Damaged));
        assert_eq!(std::fs::read(damaged).unwrap(), bytes, "set aside as it was");
        let found = super::rig::read(&path);
        assert!(found.is_sealed && found.holes.is_empty(), "{:?}", found.holes);
        let wrap = |found: FileFound| [(String::new(), Rc::new(found))];
        let (after, whole) = (samples(&wrap(found)), samples(&[(String::new(), whole)]));
        assert!(
            after.is_subset(&whole) && after.len() + 1 >= whole.len(),
            "{} of {}",
            after.len(),
            whole.len()
        );
        let mut audit = Audit::default();
        let found = super::rig::read(&path);
        assert_eq!(audit.header(found.header.as_ref().unwrap()), []);
        for item in &found.items {
            let finding = match item {
                Item::Sample { source, seq, .. } => audit.sample(RUN_ID, *source, *seq),
                Item::Gap { gap, .. } => audit.gap(RUN_ID, gap),
                Item::Other { .. } => None,
            };
            assert_eq!(finding, None, "{item:?}");
        }
    }
}

// Goal: a write that a kill cut short is no damage where the memory has the whole of it, and is kept beside where it has not. Method: what a killed run
// left, cut within its last sample at each byte.
#[test]
fn a_write_cut_short_is_no_damage() {
    let script = Script::fixed(SyncPolicy::Never);
    let storage = SimulatedStorage::new(0);
    storage.crash_at(5, Moment::After);
    script.record(&storage);
    let killed = storage.crash_image(0, CrashKind::ProcessKilled);
    let name = killed.names().iter().find_map(|name| SegmentName::parse(name)).unwrap();
    let bytes = killed.content(&name.to_string()).unwrap();
    let memory = script.memory();
    let (last, end) =
        memory.frames.iter().filter_map(|frame| Some((frame, find(&bytes, frame)?))).next_back().unwrap();
    let recovered = |length: usize, memory: &Leftovers| {
        let storage = SimulatedStorage::new(1);
        let file = storage.create(&name.to_string()).unwrap();
        file.append(&[IoSlice::new(&bytes[..length])]).unwrap();
        crate::segment::recover(&storage, name, memory, false).unwrap()
    };
    let whole = recovered(end, &memory);
    assert!(whole.damage.is_empty() && whole.set_aside.is_empty(), "{whole:?}");
    for length in end - last.len() + 1..end {
        let with_memory = recovered(length, &memory);
        assert_eq!((with_memory.frames, &with_memory.damage), (whole.frames, &whole.damage), "{length}");
        assert_eq!((with_memory.rescued, with_memory.set_aside.len()), (whole.rescued + 1, 0), "{length}");
        let without = recovered(length, &Leftovers::default());
        assert_eq!((without.damage.len(), without.set_aside.len()), (1, 1), "{length}");
    }
}

/// The segments of a killed or ended run that are not sealed, in the order of their numbers.
fn unsealed(storage: &SimulatedStorage) -> Vec<SegmentName> {
    let names = storage.names();
    names
        .iter()
        .filter_map(|name| SegmentName::parse(name))
        .filter(|name| name.state == State::Active)
        .collect()
}

fn account(storage: &SimulatedStorage, memory: &Leftovers) -> Account {
    let completion = Completion { storage, spare_run: None, only: None, dry_run: false };
    completion.account(RUN_ID, &memory.begun).unwrap()
}

/// Every sample of a script that does not fail.
fn finished(script: &Script) -> BTreeSet<(u16, u64)> {
    let all = (0..SOURCES).flat_map(|source| (0..script.readings).map(move |seq| (source, seq)));
    all.filter(|(source, seq)| script.payload(*source, *seq).is_some()).collect()
}

// Goal: segments of a killed run that are recovered one by one, by name, come to the same as its directory: nothing that was
// finished is missing. Method: kills at one operation of three, both forms, from the first segment on or from the last one on.
#[test]
fn segments_are_recovered_one_by_one() {
    for script in [Script::fixed(SyncPolicy::Never), Script::fixed(SyncPolicy::Never).packing()] {
        let undisturbed = SimulatedStorage::new(0);
        script.record(&undisturbed).unwrap();
        let memory = script.memory();
        let mut looker = Looker::new();
        for operation in (0..undisturbed.log().len()).step_by(3) {
            let storage = SimulatedStorage::new(operation as u64);
            storage.crash_at(operation, Moment::Within);
            script.record(&storage);
            let image = storage.crash_image(operation as u64, CrashKind::ProcessKilled);
            let mut names = unsealed(&image);
            if operation % 2 == 1 {
                names.reverse();
            }
            for name in names {
                assert!(recover_only(&image, Some(name), &memory), "{name}");
            }
            let (after, _, missing) = judge(&mut looker, &script, &image);
            assert_eq!(missing, 0);
            if !after.is_empty() {
                assert_eq!(after, finished(&script), "{operation}");
                assert_eq!(account(&image, &memory), Account::All);
            }
        }
    }
}

// Goal: a segment that a failed write ended is recovered by name as it is with its directory: what the next segment counts as
// lost is not in it twice. Method: each write of a run fails with a part of it in the file; by name, then judged.
#[test]
fn a_failed_write_is_recovered_by_name() {
    for script in [Script::fixed(SyncPolicy::Never), Script::random(1).packing()] {
        let undisturbed = SimulatedStorage::new(0);
        script.record(&undisturbed).unwrap();
        let mut looker = Looker::new();
        for operation in 1..undisturbed.log().len() {
            let storage = SimulatedStorage::new(operation as u64);
            storage.fail(operation, Failure::Code(5));
            if script.record(&storage).is_none() {
                continue;
            }
            let image = storage.crash_image(operation as u64, CrashKind::ProcessKilled);
            for name in unsealed(&image) {
                assert!(recover_only(&image, Some(name), &Leftovers::default()), "{name}");
            }
            judge(&mut looker, &script, &image);
        }
    }
}

// Goal: what a recovery without the memory of a run has sealed takes the memory in later, and a crash on the way loses
// nothing. Method: sealed without it; then with it, stopped at every operation, and once more.
#[test]
fn what_was_sealed_without_the_memory_takes_it_in() {
    for (script, operation) in [(Script::fixed(SyncPolicy::Never), 7), (Script::random(3).packing(), 6)] {
        let memory = script.memory();
        let storage = SimulatedStorage::new(1);
        storage.crash_at(operation, Moment::Within);
        script.record(&storage);
        let sealed = || {
            let image = storage.crash_image(1, CrashKind::ProcessKilled);
            assert!(recover(&image, &Leftovers::default()));
            image.crash_image(1, CrashKind::ProcessKilled)
        };
        let mut looker = Looker::new();
        let image = sealed();
        assert_eq!(account(&image, &memory), Account::Short);
        assert!(recover(&image, &memory));
        let operations = image.log().len();
        let mut judge_end = |image: &SimulatedStorage| {
            assert_eq!(judge(&mut looker, &script, image).0, finished(&script));
            assert_eq!(account(image, &memory), Account::All);
            let before = image.log().len();
            assert!(recover(image, &memory));
            assert_eq!(image.log().len(), before, "nothing is left to do");
        };
        judge_end(&image);
        for (operation, kind) in
            (0..operations).flat_map(|at| [(at, CrashKind::ProcessKilled), (at, CrashKind::PowerCut)])
        {
            let image = sealed();
            image.crash_at(operation, if operation % 2 == 0 { Moment::Within } else { Moment::After });
            recover(&image, &memory);
            let image = image.crash_image(operation as u64, kind);
            assert!(recover(&image, &memory));
            judge_end(&image);
        }
    }
}

// Goal: segments are known by run and number: what another run has sealed under the same numbers keeps no segment from being
// completed. Method: kills at one operation of three, sealed files of another run under each number, before or behind by its id.
#[test]
fn equal_numbers_of_another_run_hide_nothing() {
    let script = Script::fixed(SyncPolicy::Never);
    let undisturbed = SimulatedStorage::new(0);
    script.record(&undisturbed).unwrap();
    let mut looker = Looker::new();
    for operation in (0..undisturbed.log().len()).step_by(3) {
        let run_id = [1, u64::MAX][operation % 2];
        let storage = SimulatedStorage::new(operation as u64);
        storage.crash_at(operation, Moment::Within);
        script.record(&storage);
        let image = storage.crash_image(operation as u64, CrashKind::ProcessKilled);
        let own: Vec<SegmentName> =
            image.names().iter().filter_map(|name| SegmentName::parse(name)).collect();
        let others = own.iter().map(|name| SegmentName { run_id, ..name.sealed() });
        let others: Vec<String> = others.map(|name| name.to_string()).collect();
        for name in &others {
            image.create(name).unwrap().append(&[IoSlice::new(b"of another run")]).unwrap();
        }
        assert!(recover(&image, &script.memory()));
        for name in &others {
            image.remove(name).unwrap();
        }
        let (after, _, missing) = judge(&mut looker, &script, &image);
        assert!(missing == 0 && (after.is_empty() || after == finished(&script)), "{operation}");
    }
}

/// Where a frame ends in these bytes.
fn find(bytes: &[u8], frame: &[u8]) -> Option<usize> {
    bytes.windows(frame.len()).position(|window| window == frame).map(|at| at + frame.len())
}

// Goal: what was packed while it was recorded is recovered as well, in place, and stays packed. Method: the fixed script at every operation, random ones at
// random; what is sealed in the end.
#[test]
fn packed_recordings_lose_nothing() {
    let script = Script::fixed(SyncPolicy::Interval(0)).packing();
    let undisturbed = SimulatedStorage::new(0);
    script.record(&undisturbed).unwrap();
    let mut looker = Looker::new();
    for operation in (0..undisturbed.log().len()).step_by(effort::of(5, 1)) {
        let storage = SimulatedStorage::new(operation as u64);
        storage.crash_at(operation, Moment::Within);
        script.record(&storage);
        check(&script, &storage, operation as u64, CrashKind::ProcessKilled);
        check(&script, &storage, operation as u64, CrashKind::PowerCut);
        let image = storage.crash_image(operation as u64, CrashKind::ProcessKilled);
        assert!(recover(&image, &script.memory()));
        let files = segments(&mut looker, &image);
        assert!(
            files.iter().all(|(_, file)| file.is_packed),
            "a killed run's segments are completed as they were"
        );
    }
    for seed in 1..=effort::of(6, 25) {
        crash_and_check(&Script::random(seed).packing(), &mut Random::new(seed), 3);
    }
}
