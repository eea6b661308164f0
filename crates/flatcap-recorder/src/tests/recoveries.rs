//! Recovery tests. The files that a crash left are recovered, and the recovery is interrupted
//! anywhere and repeated. In the end no sample may be missing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::rc::Rc;

use flatcap_format::schema::segment::GapCause;
use flatcap_format::segment::{
    CompletenessCheck, DirectoryRecovery, Leftovers, RunCompleteness, SealState, SegmentName,
    SequenceFinding, SourceInfo,
};
use flatcap_format::storage::Storage;
use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::{
    CrashKind, CrashPoint, InjectedFailure, SimulatedStorage, SimulationRandom,
};

use super::rig::{FileContent, FileItem, ImageReader, RUN_ID, SOURCES, Script, frame_of};
use crate::SyncPolicy;

/// Number of crashes per recovery.
const CRASHES: usize = 6;

/// Returns the samples that a reader finds.
fn samples(files: &[(String, Rc<FileContent>)]) -> BTreeSet<(u16, u64)> {
    let items = files.iter().flat_map(|(_, file)| &file.items);
    let sample = |item: &FileItem| match item {
        FileItem::Sample { source, seq, .. } => Some((*source, *seq)),
        _ => None,
    };
    items.filter_map(sample).collect()
}

pub(super) fn segments(looker: &mut ImageReader, disk: &SimulatedStorage) -> Vec<(String, Rc<FileContent>)> {
    let mut files = looker.read_image(disk);
    files.retain(|(name, _)| SegmentName::parse(name).is_some());
    files
}

/// Recovers all segments. Returns whether there was no error.
pub(super) fn recover(storage: &SimulatedStorage, memory: &Leftovers) -> bool {
    recover_only(storage, None, memory)
}

/// Recovers one segment, or all segments if `only` is `None`.
fn recover_only(storage: &SimulatedStorage, only: Option<SegmentName>, memory: &Leftovers) -> bool {
    let completion = DirectoryRecovery { storage, skip_run: None, only, dry_run: false };
    let mut is_done = true;
    let listed =
        completion.run(&mut |_run| Ok(memory.clone()), &mut |_name, result| is_done &= result.is_ok());
    listed.is_ok() && is_done
}

/// Checks that all files are sealed and intact, that all losses are explained, and that the
/// payloads of the samples equal the payloads of the script.
pub(super) fn check_image(
    looker: &mut ImageReader,
    script: &Script,
    storage: &SimulatedStorage,
) -> (BTreeSet<(u16, u64)>, u32, u64) {
    let files = segments(looker, storage);
    let mut audit = CompletenessCheck::default();
    let (mut causes, mut missing, mut last_number) = (0, 0, None);
    for (name, file) in &files {
        assert_eq!(SegmentName::parse(name).unwrap().state, SealState::Sealed, "{name}");
        assert!(file.is_sealed && file.damage.is_empty(), "{name}: {:?}", file.damage);
        let header = file.header.as_ref().unwrap();
        let is_behind_another = last_number.is_some_and(|last: u64| last + 1 == header.segment);
        last_number = Some(header.segment);
        // If a whole segment never reached the disk, it can only be reported as missing.
        let holes = audit.begin_segment(header);
        assert!(!is_behind_another || holes.is_empty(), "{name}: {holes:?}");
        missing += holes
            .iter()
            .map(|(_, finding)| if let SequenceFinding::Unexplained(count) = finding { *count } else { 0 })
            .sum::<u64>();
        for item in &file.items {
            match item {
                FileItem::Sample { source, seq, mono_ns, payload, .. } => {
                    assert_eq!(script.payload(*source, *seq).as_ref(), Some(payload), "{source} {seq}");
                    assert_eq!(*mono_ns, Script::mono_ns(*seq));
                    assert_eq!(audit.add_sample(RUN_ID, *source, *seq), None, "{name}: {source} {seq}");
                }
                FileItem::Gap { gap, .. } => {
                    assert_eq!(audit.add_gap(RUN_ID, gap), None, "{name}: {gap:?}");
                    causes |= gap.causes;
                }
                FileItem::Other { .. } => {}
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

/// Checks one image of a crash. The image is recovered once without interruption, and once after
/// crashes of the recovery.
fn check(script: &Script, storage: &SimulatedStorage, seed: u64, kind: CrashKind) {
    let mut looker = ImageReader::new();
    let before = samples(&segments(&mut looker, &storage.crash_image(seed, kind)));
    let memory = match kind {
        CrashKind::ProcessKilled => script.memory(),
        CrashKind::PowerCut => Leftovers::default(),
    };
    let expected: BTreeSet<(u16, u64)> = (0..SOURCES)
        .flat_map(|source| (0..script.samples).map(move |seq| (source, seq)))
        .filter(|(source, seq)| script.payload(*source, *seq).is_some())
        .collect();
    let mut check_end = |image: &SimulatedStorage| {
        let (after, causes, missing) = check_image(&mut looker, script, image);
        assert!(before.is_subset(&after), "a sample was lost: {:?}", before.difference(&after));
        // If there is no segment, the recovery has nothing to complete.
        if kind == CrashKind::ProcessKilled {
            assert_eq!(missing, 0);
        }
        if kind == CrashKind::ProcessKilled && !after.is_empty() {
            assert_eq!(after, expected, "every complete frame is there");
        }
        // After a power cut, the disk may contain unsynced data with holes.
        let possible = match kind {
            CrashKind::ProcessKilled => GapCause::ReadFailed | GapCause::Crash,
            CrashKind::PowerCut => GapCause::ReadFailed | GapCause::Crash | GapCause::Damaged,
        };
        assert_eq!(causes & !possible.bits(), 0, "{causes:#b}");
    };
    let image = storage.crash_image(seed, kind);
    assert!(recover(&image, &memory));
    check_end(&image);
    let operations = image.log().len();
    let mut random = SimulationRandom::new(seed ^ 0x5eed);
    for _ in 0..CRASHES.min(operations) {
        let mut image = storage.crash_image(seed, kind);
        // The recovery is interrupted twice, and then runs to its end.
        for _ in 0..2 {
            let moment = [CrashPoint::Before, CrashPoint::Within, CrashPoint::After][random.below(3)];
            image.crash_at(random.below(operations), moment);
            recover(&image, &memory);
            image = image.crash_image(random.next(), kind);
        }
        assert!(recover(&image, &memory));
        check_end(&image);
    }
}

fn crash_and_check(script: &Script, random: &mut SimulationRandom, crashes: usize) {
    let undisturbed = SimulatedStorage::new(script.seed);
    script.record(&undisturbed).unwrap();
    for _ in 0..crashes {
        let storage = SimulatedStorage::new(random.next());
        let moment = [CrashPoint::Before, CrashPoint::Within, CrashPoint::After][random.below(3)];
        storage.crash_at(random.below(undisturbed.log().len()), moment);
        script.record(&storage);
        check(script, &storage, random.next(), CrashKind::ProcessKilled);
        check(script, &storage, random.next(), CrashKind::PowerCut);
    }
}

// Proves that after a kill every complete frame is in a sealed segment, and all other begun samples
// are in gaps. After a power cut, all samples that were found before the recovery remain. Method:
// random scripts and crashes. Each recovery is interrupted twice.
#[test]
fn recoveries_lose_nothing() {
    for seed in 1..=effort::of(10, 40) {
        crash_and_check(&Script::random(seed), &mut SimulationRandom::new(seed), 3);
    }
}

// Proves that recoveries lose nothing after a crash at every operation of a run, with each sync
// policy.
#[test]
fn every_crash_is_recovered() {
    for sync in [SyncPolicy::Never, SyncPolicy::Always, SyncPolicy::Interval(0)] {
        let script = Script::fixed(sync);
        let undisturbed = SimulatedStorage::new(0);
        script.record(&undisturbed).unwrap();
        for operation in (0..undisturbed.log().len()).step_by(effort::of(4, 1)) {
            let storage = SimulatedStorage::new(operation as u64);
            storage.crash_at(operation, CrashPoint::Within);
            script.record(&storage);
            check(&script, &storage, operation as u64, CrashKind::ProcessKilled);
            check(&script, &storage, operation as u64, CrashKind::PowerCut);
        }
    }
}

// Proves that a damaged file is set aside unchanged, and that the new file contains the intact
// content.
#[test]
fn damaged_files_are_set_aside() {
    for seed in 1..=20 {
        let script = Script::random(seed);
        let storage = SimulatedStorage::new(seed);
        let mut random = SimulationRandom::new(seed);
        script.record(&storage).unwrap();
        let whole = storage.crash_image(seed, CrashKind::ProcessKilled);
        let folder = tempfile::tempdir().unwrap();
        whole.write_to(folder.path()).unwrap();
        let directory = flatcap_os::storage::DataDirectory::open(folder.path()).unwrap();
        let name = SegmentName::parse(&whole.names()[0]).unwrap();
        let path = folder.path().join(name.to_string());
        let mut bytes = std::fs::read(&path).unwrap();
        let at = 700 + random.below(bytes.len() - 3000);
        bytes[at] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        let mut looker = ImageReader::new();
        let mut before: BTreeMap<String, Rc<FileContent>> = looker.read_image(&whole).into_iter().collect();
        let whole = before.remove(&name.to_string()).unwrap();
        let recovered =
            flatcap_format::segment::recover(&directory, name, &Leftovers::default(), false).unwrap();
        assert!(!recovered.damage.is_empty(), "byte {at}");
        let damaged = path.with_file_name(name.side_file(flatcap_format::segment::SideFile::Damaged));
        assert_eq!(std::fs::read(damaged).unwrap(), bytes, "set aside as it was");
        let found = super::rig::read(&path);
        assert!(found.is_sealed && found.damage.is_empty(), "{:?}", found.damage);
        let wrap = |found: FileContent| [(String::new(), Rc::new(found))];
        let (after, whole) = (samples(&wrap(found)), samples(&[(String::new(), whole)]));
        assert!(
            after.is_subset(&whole) && after.len() + 1 >= whole.len(),
            "{} of {}",
            after.len(),
            whole.len()
        );
        let mut audit = CompletenessCheck::default();
        let found = super::rig::read(&path);
        assert_eq!(audit.begin_segment(found.header.as_ref().unwrap()), []);
        for item in &found.items {
            let finding = match item {
                FileItem::Sample { source, seq, .. } => audit.add_sample(RUN_ID, *source, *seq),
                FileItem::Gap { gap, .. } => audit.add_gap(RUN_ID, gap),
                FileItem::Other { .. } => None,
            };
            assert_eq!(finding, None, "{item:?}");
        }
    }
}

// Proves that a write that a kill has cut short does not count as damage if the memory of the run
// contains the whole write. Otherwise, the incomplete write is set aside. Method: the last sample
// is cut at each byte.
#[test]
fn a_write_cut_short_is_no_damage() {
    let script = Script::fixed(SyncPolicy::Never);
    let storage = SimulatedStorage::new(0);
    storage.crash_at(5, CrashPoint::After);
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
        flatcap_format::segment::recover(&storage, name, memory, false).unwrap()
    };
    let whole = recovered(end, &memory);
    assert!(whole.damage.is_empty() && whole.set_aside.is_empty(), "{whole:?}");
    for length in end - last.len() + 1..end {
        let with_memory = recovered(length, &memory);
        assert_eq!((with_memory.frames, &with_memory.damage), (whole.frames, &whole.damage), "{length}");
        assert_eq!(
            (with_memory.from_memory, with_memory.set_aside.len()),
            (whole.from_memory + 1, 0),
            "{length}"
        );
        let without = recovered(length, &Leftovers::default());
        assert_eq!((without.damage.len(), without.set_aside.len()), (1, 1), "{length}");
    }
}

/// Returns the unsealed segments, in the order of their numbers.
fn unsealed(storage: &SimulatedStorage) -> Vec<SegmentName> {
    let names = storage.names();
    names
        .iter()
        .filter_map(|name| SegmentName::parse(name))
        .filter(|name| name.state == SealState::Active)
        .collect()
}

fn account(storage: &SimulatedStorage, memory: &Leftovers) -> RunCompleteness {
    let completion = DirectoryRecovery { storage, skip_run: None, only: None, dry_run: false };
    completion.run_completeness(RUN_ID, &memory.begun).unwrap()
}

/// Returns the keys of all samples of a script that do not fail.
fn finished(script: &Script) -> BTreeSet<(u16, u64)> {
    let all = (0..SOURCES).flat_map(|source| (0..script.samples).map(move |seq| (source, seq)));
    all.filter(|(source, seq)| script.payload(*source, *seq).is_some()).collect()
}

// Proves that recovering the segments of a killed run one by one, in either order, has the same
// result as recovering the directory. Method: scripts with and without compression.
#[test]
fn segments_are_recovered_one_by_one() {
    for script in [Script::fixed(SyncPolicy::Never), Script::fixed(SyncPolicy::Never).compressing()] {
        let undisturbed = SimulatedStorage::new(0);
        script.record(&undisturbed).unwrap();
        let memory = script.memory();
        let mut looker = ImageReader::new();
        for operation in (0..undisturbed.log().len()).step_by(3) {
            let storage = SimulatedStorage::new(operation as u64);
            storage.crash_at(operation, CrashPoint::Within);
            script.record(&storage);
            let image = storage.crash_image(operation as u64, CrashKind::ProcessKilled);
            let mut names = unsealed(&image);
            if operation % 2 == 1 {
                names.reverse();
            }
            for name in names {
                assert!(recover_only(&image, Some(name), &memory), "{name}");
            }
            let (after, _, missing) = check_image(&mut looker, &script, &image);
            assert_eq!(missing, 0);
            if !after.is_empty() {
                assert_eq!(after, finished(&script), "{operation}");
                assert_eq!(account(&image, &memory), RunCompleteness::Complete);
            }
        }
    }
}

// Proves that, if a segment ended with a failed write, the recovery by name has the same result as
// the recovery of the directory. Samples that the next segment counts as lost are not added to this
// segment again.
#[test]
fn a_failed_write_is_recovered_by_name() {
    for script in [Script::fixed(SyncPolicy::Never), Script::random(1).compressing()] {
        let undisturbed = SimulatedStorage::new(0);
        script.record(&undisturbed).unwrap();
        let mut looker = ImageReader::new();
        for operation in 1..undisturbed.log().len() {
            let storage = SimulatedStorage::new(operation as u64);
            storage.fail(operation, InjectedFailure::Code(5));
            if script.record(&storage).is_none() {
                continue;
            }
            let image = storage.crash_image(operation as u64, CrashKind::ProcessKilled);
            for name in unsealed(&image) {
                assert!(recover_only(&image, Some(name), &Leftovers::default()), "{name}");
            }
            check_image(&mut looker, &script, &image);
        }
    }
}

// Proves that samples from the memory of a run are added to a segment that was sealed without these
// samples, and that a crash during the addition loses nothing.
#[test]
fn a_sealed_segment_takes_in_the_memory_later() {
    for (script, operation) in [(Script::fixed(SyncPolicy::Never), 7), (Script::random(3).compressing(), 6)] {
        let memory = script.memory();
        let storage = SimulatedStorage::new(1);
        storage.crash_at(operation, CrashPoint::Within);
        script.record(&storage);
        let sealed = || {
            let image = storage.crash_image(1, CrashKind::ProcessKilled);
            assert!(recover(&image, &Leftovers::default()));
            image.crash_image(1, CrashKind::ProcessKilled)
        };
        let mut looker = ImageReader::new();
        let image = sealed();
        assert_eq!(account(&image, &memory), RunCompleteness::Incomplete);
        assert!(recover(&image, &memory));
        let operations = image.log().len();
        let mut judge_end = |image: &SimulatedStorage| {
            assert_eq!(check_image(&mut looker, &script, image).0, finished(&script));
            assert_eq!(account(image, &memory), RunCompleteness::Complete);
            let before = image.log().len();
            assert!(recover(image, &memory));
            assert_eq!(image.log().len(), before, "no work is left");
        };
        judge_end(&image);
        for (operation, kind) in
            (0..operations).flat_map(|at| [(at, CrashKind::ProcessKilled), (at, CrashKind::PowerCut)])
        {
            let image = sealed();
            image
                .crash_at(operation, if operation % 2 == 0 { CrashPoint::Within } else { CrashPoint::After });
            recover(&image, &memory);
            let image = image.crash_image(operation as u64, kind);
            assert!(recover(&image, &memory));
            judge_end(&image);
        }
    }
}

// Proves that samples of a source are recovered even if the source was added immediately before the
// kill, so that no segment describes the source. Method: the last segment is unsealed or sealed,
// compressed or not compressed, and the recovery crashes at any operation.
#[test]
fn an_undescribed_source_is_recovered() {
    const SAMPLES: u64 = 20;
    for (script, operation) in [(Script::fixed(SyncPolicy::Never), 7), (Script::random(3).compressing(), 6)] {
        let storage = SimulatedStorage::new(1);
        storage.crash_at(operation, CrashPoint::Within);
        script.record(&storage);
        let crashed = || storage.crash_image(1, CrashKind::ProcessKilled);
        let sealed = || {
            let image = crashed();
            assert!(recover(&image, &Leftovers::default()));
            image.crash_image(1, CrashKind::ProcessKilled)
        };
        let mut looker = ImageReader::new();
        let header = segments(&mut looker, &sealed())[0].1.header.clone().unwrap();
        let late = SourceInfo { id: SOURCES, name: "late".to_owned(), ..header.sources[0].clone() };
        let mut memory = script.memory();
        memory.frames.extend((0..SAMPLES).map(|seq| frame_of(SOURCES, seq)));
        memory.begun.insert(SOURCES, SAMPLES);
        let without = memory.clone();
        memory.sources.push(late);
        let of_late = |files: &[(String, Rc<FileContent>)]| {
            samples(files).into_iter().filter(|(source, _)| *source == SOURCES).count() as u64
        };
        for begin in [&crashed as &dyn Fn() -> SimulatedStorage, &sealed] {
            let image = begin();
            assert!(recover(&image, &without));
            assert_eq!(of_late(&segments(&mut looker, &image)), 0, "nobody can read them");
            let image = begin();
            assert!(recover(&image, &memory));
            let operations = image.log().len();
            let mut judge_end = |image: &SimulatedStorage| {
                let files = segments(&mut looker, image);
                assert_eq!(of_late(&files), SAMPLES);
                assert!(samples(&files).is_superset(&finished(&script)));
                assert_eq!(account(image, &memory), RunCompleteness::Complete);
                let before = image.log().len();
                assert!(recover(image, &memory));
                assert_eq!(image.log().len(), before, "no work is left");
            };
            judge_end(&image);
            for operation in 0..operations {
                let image = begin();
                image.crash_at(
                    operation,
                    if operation % 2 == 0 { CrashPoint::Within } else { CrashPoint::After },
                );
                recover(&image, &memory);
                let image = image.crash_image(operation as u64, CrashKind::ProcessKilled);
                assert!(recover(&image, &memory));
                judge_end(&image);
            }
        }
    }
}

// Proves that segments are identified by run and number. A segment of another run with the same
// number does not prevent completion.
#[test]
fn equal_numbers_of_another_run_hide_nothing() {
    let script = Script::fixed(SyncPolicy::Never);
    let undisturbed = SimulatedStorage::new(0);
    script.record(&undisturbed).unwrap();
    let mut looker = ImageReader::new();
    for operation in (0..undisturbed.log().len()).step_by(3) {
        let run_id = [1, u64::MAX][operation % 2];
        let storage = SimulatedStorage::new(operation as u64);
        storage.crash_at(operation, CrashPoint::Within);
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
        let (after, _, missing) = check_image(&mut looker, &script, &image);
        assert!(missing == 0 && (after.is_empty() || after == finished(&script)), "{operation}");
    }
}

/// Returns the offset at which a frame ends in these bytes.
fn find(bytes: &[u8], frame: &[u8]) -> Option<usize> {
    bytes.windows(frame.len()).position(|window| window == frame).map(|at| at + frame.len())
}

// Proves that segments that are compressed during the recording are also recovered in place, and
// stay compressed.
#[test]
fn compressed_recordings_lose_nothing() {
    let script = Script::fixed(SyncPolicy::Interval(0)).compressing();
    let undisturbed = SimulatedStorage::new(0);
    script.record(&undisturbed).unwrap();
    let mut looker = ImageReader::new();
    for operation in (0..undisturbed.log().len()).step_by(effort::of(5, 1)) {
        let storage = SimulatedStorage::new(operation as u64);
        storage.crash_at(operation, CrashPoint::Within);
        script.record(&storage);
        check(&script, &storage, operation as u64, CrashKind::ProcessKilled);
        check(&script, &storage, operation as u64, CrashKind::PowerCut);
        let image = storage.crash_image(operation as u64, CrashKind::ProcessKilled);
        assert!(recover(&image, &script.memory()));
        let files = segments(&mut looker, &image);
        assert!(
            files.iter().all(|(_, file)| file.is_compressed),
            "a killed run's segments are completed as they were"
        );
    }
    for seed in 1..=effort::of(6, 25) {
        crash_and_check(&Script::random(seed).compressing(), &mut SimulationRandom::new(seed), 3);
    }
}
