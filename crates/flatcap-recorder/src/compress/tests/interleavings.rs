//! Tests all programs that work concurrently on the files of a killed run. The programs are
//! recovery and rescue, the compressor, a shipper, retention, a reader and the next recorder. The
//! programs run in any order, and crash at any operation.
//!
//! Each program has a thread, and the threads take turns (`turns`). Retention either removes the
//! oldest segment, or follows the rule of a recorder that keeps the segments without a receipt.
//! After each operation of the storage, the files are compared with a model.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};

use flatcap_format::segment::{
    Advance, CompletenessCheck, DirectoryRecovery, FrameKind, Gap, Leftovers, SampleView, SealState,
    SegmentHeader, SegmentName, SegmentReader, SegmentWriter, last_segment, supplement,
};
use flatcap_format::storage::{FileEntry, ReadAt, Storage, StorageFile};
use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::{CrashKind, CrashPoint, SimulatedStorage, SimulationRandom};
use flatcap_stream::ChecksumKind;

use super::fixtures::{append, compress_one, frame_of, header, read};
use super::turns::{Order, TurnStorage, Turns, TurnsEnd};
use crate::compress::{remove_leftovers, sealed_segments};
use crate::{QuotaStorage, RetentionLimits};

/// The run that was killed, and its sources. The host has one source, and applications push two
/// others.
const KILLED: u64 = 5;
const PUSHED: [u16; 2] = [1, 2];
/// The first run after the killed run. Each further start has the next run number.
const NEXT: u64 = 6;
/// The body of all samples.
const BODY: &[u8] = &[0; 8];
/// Number of times that the programs start again after a crash.
const CRASHES: u64 = 2;

/// The key of a sample, which is its run, source and number.
type SampleKey = (u64, u16, u64);

/// The content of a segment, as a reader finds it.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    header: SegmentHeader,
    samples: Vec<SampleKey>,
    items: Vec<Result<(u16, u64), Gap>>, // in file order
}

fn find(name: &str, file: Arc<dyn StorageFile>) -> Option<Found> {
    let mut reader = SegmentReader::over(Path::new(name), file as Arc<dyn ReadAt>).ok()?;
    let mut found = Found { header: reader.header().clone(), samples: Vec::new(), items: Vec::new() };
    let run_id = found.header.run_id;
    let mut is_damaged = false;
    while let Some(advance) = reader.advance().unwrap() {
        let Advance::Frame(at) = advance else {
            is_damaged = true;
            continue;
        };
        match at.kind {
            FrameKind::Telemetry => {
                let SampleView { source, seq, .. } = reader.sample(at).unwrap();
                found.samples.push((run_id, source, seq));
                found.items.push(Ok((source, seq)));
            }
            FrameKind::Gap => found.items.push(Err(Gap::decode(reader.payload(at)).unwrap())),
            _ => {}
        }
    }
    // After a power cut, an open file may lack bytes that were never synced.
    let is_sealed = SegmentName::parse(name).is_some_and(|name| name.state == SealState::Sealed);
    assert!(!is_damaged || !is_sealed, "{name} is damaged");
    found.header.sources.clone_from(&reader.header().sources);
    Some(found)
}

/// A killed run, with its memory, its lanes, and the number of samples that it began.
#[derive(Debug, Clone)]
struct KilledRun {
    memory: Leftovers,
    lanes: Vec<Leftovers>,
    /// Number of samples that the run began, by source.
    begun: BTreeMap<u16, u64>,
    committed: BTreeSet<SampleKey>,
}

impl KilledRun {
    /// Writes the files of a run in a state that a kill leaves. The last segment is open, or it was
    /// sealed before the last samples were written.
    fn write(disk: &SimulatedStorage, random: &mut SimulationRandom) -> Self {
        let counts: Vec<[u64; 3]> = (0..3)
            .map(|source| {
                let in_files = random.below(12) as u64;
                let in_memory = in_files + random.below(4) as u64;
                let in_lane = if source == 0 { 0 } else { random.below(6) as u64 };
                [in_files, in_memory, in_memory + in_lane]
            })
            .collect();
        let mut written = [0; 3];
        let segments = 1 + random.below(2) as u64;
        for number in 0..segments {
            let is_last = number + 1 == segments;
            let mut segment_header = run_header(number, KILLED);
            for (source, next) in segment_header.sources.iter_mut().zip(written) {
                source.next_seq = next;
            }
            let name = name_of(number, KILLED);
            let mut writer = SegmentWriter::create(disk, name, segment_header, &[], 0).unwrap();
            for (source, counts) in (0_u16..).zip(&counts) {
                let until = if is_last { counts[0] } else { counts[0] / 2 };
                let at = usize::from(source);
                while written[at] < until {
                    append(&mut writer, source, written[at], BODY).unwrap();
                    written[at] += 1;
                }
            }
            if !is_last || random.below(3) == 0 {
                writer.seal().unwrap().publish(disk).unwrap();
            }
        }
        disk.sync_directory().unwrap();
        let mut run = Self {
            memory: Leftovers::default(),
            lanes: Vec::new(),
            begun: BTreeMap::new(),
            committed: BTreeSet::new(),
        };
        for (source, [in_files, in_memory, in_lane]) in (0_u16..).zip(counts) {
            let frames = |from: u64, to: u64| {
                (from..to).map(move |seq| frame_of(ChecksumKind::Xxh3, source, seq, BODY))
            };
            run.committed.extend((0..in_lane).map(|seq| (KILLED, source, seq)));
            // The slabs still contain some frames that are also in the files.
            run.memory.frames.extend(frames(in_files.saturating_sub(2), in_memory));
            run.memory.begun.insert(source, in_memory);
            let mut begun = in_memory;
            if PUSHED.contains(&source) {
                // The slab of the lane still contains some frames that the run has already taken.
                // The run may have begun one more sample.
                begun = in_lane + random.below(2) as u64;
                let frames = frames(in_memory.saturating_sub(3), in_lane).collect();
                let begun = [(source, begun)].into();
                run.lanes.push(Leftovers { frames, begun, ..Leftovers::default() });
            }
            run.begun.insert(source, begun);
        }
        run.memory.frames.sort_by_key(|frame| SampleView::read(&frame[12..]).unwrap().mono_ns);
        run
    }
}

fn name_of(number: u64, run_id: u64) -> SegmentName {
    SegmentName { number, created_s: 1_700_000_000, run_id, state: SealState::Active }
}

fn run_header(number: u64, run_id: u64) -> SegmentHeader {
    let mut header = header(number, ChecksumKind::Xxh3);
    let third = header.sources[1].clone();
    header.run_id = run_id;
    header.sources.push(flatcap_format::segment::SourceInfo { id: 2, name: "source2".into(), ..third });
    header
}

/// The store of the shipper, and the results of the other threads.
#[derive(Debug, Default)]
struct World {
    /// The manifests, that is, the samples of each segment, by the run and number of the segment.
    lake: Mutex<BTreeMap<(u64, u64), Vec<SampleKey>>>,
    /// Samples that the recovery cannot add, because no segment of their run is left.
    dropped: Mutex<BTreeSet<SampleKey>>,
    /// The file of receipts, or `None` if retention does not read receipts.
    receipts: Option<tempfile::NamedTempFile>,
}

impl World {
    /// Ships the sealed segments that have no manifest.
    fn ship(&self, storage: &dyn Storage) -> io::Result<()> {
        let mut names: Vec<SegmentName> =
            storage.entries()?.iter().filter_map(|entry| SegmentName::parse(&entry.name)).collect();
        names.retain(|name| name.state == SealState::Sealed);
        names.sort_by_key(|name| name.number);
        if self.receipts.is_some() {
            // Simulate a shipper that failed to ship the older segments. The newest segments are
            // shipped first, so retention may remove them.
            names.reverse();
        }
        for name in names {
            let key = (name.run_id, name.number);
            if self.lake.lock().unwrap().contains_key(&key) {
                continue;
            }
            let file = match storage.open(&name.to_string()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let Found { samples, .. } = find(&name.to_string(), file).unwrap();
            self.lake.lock().unwrap().insert(key, samples);
            if let Some(receipts) = &self.receipts {
                let (run_id, number) = key;
                writeln!(receipts.as_file(), "{run_id:016x}-{number:010}").unwrap();
            }
        }
        Ok(())
    }

    /// Removes the shipped segments, like a recorder that keeps all segments without a receipt.
    fn remove_shipped(storage: &TurnStorage, receipts: &Path) -> io::Result<()> {
        let limits = RetentionLimits { age_ns: 1, ..RetentionLimits::NONE };
        let storage = QuotaStorage::new(Arc::new(storage.clone()), limits);
        storage.with_receipts(receipts.to_owned()).enforce_limits(1 << 40)
    }

    /// Removes the oldest segment if it has a manifest and is not the only segment.
    fn remove_oldest(&self, storage: &dyn Storage) -> io::Result<()> {
        let entries = storage.entries()?;
        let mut names: Vec<SegmentName> =
            entries.iter().filter_map(|entry| SegmentName::parse(&entry.name)).collect();
        names.sort_by_key(|name| (name.number, name.run_id));
        let [oldest, _, ..] = names[..] else { return Ok(()) };
        if oldest.state == SealState::Active
            || !self.lake.lock().unwrap().contains_key(&(oldest.run_id, oldest.number))
        {
            return Ok(());
        }
        for name in entries.iter().map(|entry| entry.name.as_str()) {
            let beside = SegmentName::parse_side_file(name).map(|(beside, _)| beside);
            if SegmentName::parse(name).or(beside).is_some_and(|found| found.sealed() == oldest) {
                match storage.remove(name) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Completes the earlier runs, and then adds the samples that were left in the lanes of the
    /// killed run. The daemon does these steps in the same order. Returns whether nothing is left
    /// to do.
    fn recover(&self, storage: &dyn Storage, run: &KilledRun, own_run: u64) -> bool {
        let mut is_done = true;
        let drop_if_gone = |entries: &[FileEntry], leftovers: &Leftovers| {
            let has_no_segment = last_segment(entries, KILLED).is_none();
            let samples = leftovers.frames.iter().filter_map(|frame| SampleView::read(&frame[12..]));
            let keys = samples.map(|sample| (KILLED, sample.source, sample.seq));
            self.dropped.lock().unwrap().extend(keys.filter(|_| has_no_segment));
        };
        let recovery = DirectoryRecovery { storage, skip_run: Some(own_run), only: None, dry_run: false };
        let mut memory =
            |run_id| Ok(if run_id == KILLED { run.memory.clone() } else { Leftovers::default() });
        let listed = recovery.run(&mut memory, &mut |_, result| is_done &= result.is_ok());
        is_done &= listed.is_ok();
        let Ok(entries) = storage.entries() else { return false };
        drop_if_gone(&entries, &run.memory);
        for lane in &run.lanes {
            let Ok(entries) = storage.entries() else { return false };
            let last = last_segment(&entries, KILLED);
            drop_if_gone(&entries, lane);
            match last {
                None => {}
                Some(last) if last.state == SealState::Active => is_done = false,
                Some(last) => is_done &= supplement(storage, last, lane, false).is_ok(),
            }
        }
        is_done
    }
}

/// Compresses the sealed segments.
fn compress(storage: &dyn Storage) -> io::Result<()> {
    remove_leftovers(storage)?;
    for _ in 0..2 {
        for name in sealed_segments(storage)? {
            compress_one(storage, name).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

/// Reads all segments as a query does, and checks that each sample occurs at most once.
fn look(storage: &dyn Storage) -> io::Result<()> {
    let entries = storage.entries()?;
    let mut seen = BTreeSet::new();
    for name in entries.iter().filter(|entry| SegmentName::parse(&entry.name).is_some()) {
        let Ok(file) = storage.open(&name.name) else { continue };
        for key in find(&name.name, file).into_iter().flat_map(|found| found.samples) {
            assert!(seen.insert(key), "{key:?} is there twice, the second time in {}", name.name);
        }
    }
    Ok(())
}

/// Runs the next recorder, whose first segment was created before all other threads began.
fn record(storage: &dyn Storage, mut writer: SegmentWriter) -> io::Result<()> {
    storage.entries()?; // waits for its turn
    let (number, run_id) = (writer.name().number, writer.header().run_id);
    append(&mut writer, 0, 0, BODY)?;
    let mut header = run_header(number + 1, run_id);
    header.sources[0].next_seq = 1;
    let next = SegmentWriter::create(storage, name_of(number + 1, run_id), header, &[], 0)?;
    writer.seal()?.publish(storage)?;
    next.seal()?.publish(storage)
}

/// The model of the files. The model has the content of every segment at the time when the segment
/// was sealed, and all samples that were safe at some time.
#[derive(Debug, Default)]
struct Model {
    /// The raw bytes and content of the segments, by number and run.
    sealed: BTreeMap<(u64, u64), (Vec<u8>, Found)>,
    /// The files at the time of the last check.
    seen: BTreeMap<String, (Vec<u8>, Option<Found>)>,
    safe: BTreeSet<SampleKey>,
}

impl Model {
    /// Compares the files and the lake with the model.
    fn check(&mut self, disk: &SimulatedStorage, world: &World, what: &str) {
        let mut present: BTreeMap<SampleKey, String> = BTreeMap::new();
        let names = disk.names();
        self.seen.retain(|name, _| names.contains(name));
        for name in names {
            let Some(parsed) = SegmentName::parse(&name) else { continue };
            let content = disk.content(&name).unwrap();
            let is_known = self.seen.get(&name).is_some_and(|(known, _)| *known == content);
            if !is_known {
                // The file is read from a separate storage, because the disk may have crashed.
                let copy = SimulatedStorage::new(0);
                copy.create(&name).unwrap().append(&[io::IoSlice::new(&content)]).unwrap();
                let found = find(&name, copy.open(&name).unwrap());
                if parsed.state == SealState::Sealed {
                    let found = found.clone().unwrap();
                    let raw = read(&copy, &name).0;
                    let known = self.sealed.entry((parsed.number, parsed.run_id));
                    let known = known.or_insert_with(|| (raw.clone(), found));
                    assert!(known.0 == raw, "{what}: {name} is sealed and has changed");
                }
                self.seen.insert(name.clone(), (content, found));
            }
            let Some((_, Some(found))) = self.seen.get(&name) else { continue };
            for key in &found.samples {
                if let Some(other) = present.insert(*key, name.clone()) {
                    panic!("{what}: {key:?} is in {other} and in {name}");
                }
            }
            if parsed.state == SealState::Sealed {
                self.safe.extend(&found.samples);
            }
        }
        let lake = world.lake.lock().unwrap();
        let mut shipped = BTreeSet::new();
        for (segment, samples) in &*lake {
            for key in samples {
                assert!(shipped.insert(*key), "{what}: {key:?} is in the lake twice, at last in {segment:?}");
            }
        }
        for key in &self.safe {
            assert!(shipped.contains(key) || present.contains_key(key), "{what}: {key:?} is gone");
        }
    }

    /// Removes from the model the samples that a power cut has destroyed. Destroyed samples are
    /// neither on the disk nor in the lake.
    fn forget(&mut self, disk: &SimulatedStorage, world: &World) {
        let names = disk.names();
        let sealed: BTreeSet<(u64, u64)> = names
            .iter()
            .filter_map(|name| SegmentName::parse(name))
            .filter(|name| name.state == SealState::Sealed)
            .map(|name| (name.number, name.run_id))
            .collect();
        let lake = world.lake.lock().unwrap();
        self.sealed.retain(|key, _| sealed.contains(key) || lake.contains_key(&(key.1, key.0)));
        self.seen.clear();
        self.safe.clear();
    }

    /// Checks the final state. Every committed sample is exactly once in the lake, and every number
    /// is accounted for.
    fn check_end(&self, world: &World, run: &KilledRun, what: &str) {
        let lake = world.lake.lock().unwrap();
        let shipped: BTreeSet<SampleKey> =
            lake.values().flatten().copied().filter(|(run, ..)| *run == KILLED).collect();
        let dropped = world.dropped.lock().unwrap();
        let expected: BTreeSet<SampleKey> = run.committed.difference(&dropped).copied().collect();
        assert!(expected.is_subset(&shipped), "{what}: missing {:?}", expected.difference(&shipped));
        let mut audit = CompletenessCheck::default();
        for ((number, run_id), (_, found)) in &self.sealed {
            if *run_id != KILLED {
                continue;
            }
            assert_eq!(audit.begin_segment(&found.header), [], "{what}: {number}");
            for item in &found.items {
                let finding = match item {
                    Ok((source, seq)) => audit.add_sample(*run_id, *source, *seq),
                    Err(gap) => audit.add_gap(*run_id, gap),
                };
                assert_eq!(finding, None, "{what}: {number}: {item:?}");
            }
        }
        for ((_, source), counts) in audit.finish() {
            assert_eq!(counts.unexplained, 0, "{what}: source {source}");
            let account = (counts.recorded, counts.recorded + counts.lost);
            if dropped.is_empty() {
                let committed = run.committed.iter().filter(|key| key.1 == source).count() as u64;
                assert_eq!(account, (committed, run.begun[&source]), "{what}: source {source}");
            }
        }
    }
}

/// Runs all threads concurrently on the files. The seed determines the order of the threads.
/// Returns whether the recovery has done all remaining work.
fn run_all(
    disk: &SimulatedStorage,
    world: &World,
    run: &KilledRun,
    (own_run, random): (u64, &mut SimulationRandom),
    check: &mut dyn FnMut(&SimulatedStorage),
) -> bool {
    type Work<'w> = Box<dyn FnOnce(&TurnStorage) -> bool + Send + 'w>;
    let entries = disk.entries().unwrap();
    let first = SegmentName::first_number_of_run(entries.iter().map(|entry| entry.name.as_str())).unwrap();
    // A recorder creates its first segment before any other thread begins.
    let name = name_of(first, own_run);
    let Ok(writer) = SegmentWriter::create(disk, name, run_header(first, own_run), &[], 0) else {
        return false;
    };
    let mut is_done = false;
    let done = &mut is_done;
    let works: Vec<Work<'_>> = vec![
        Box::new(move |storage| {
            *done = world.recover(storage, run, own_run);
            *done
        }),
        Box::new(|storage| compress(storage).is_ok()),
        Box::new(|storage| (0..3).all(|_| world.ship(storage).is_ok())),
        Box::new(|storage| {
            (0..3).all(|_| match &world.receipts {
                Some(receipts) => World::remove_shipped(storage, receipts.path()).is_ok(),
                None => world.remove_oldest(storage).is_ok(),
            })
        }),
        Box::new(|storage| record(storage, writer).is_ok()),
        Box::new(|storage| (0..2).all(|_| look(storage).is_ok())),
    ];
    let turns = Arc::new(Turns::default());
    let mut order = Order::new(random, works.len());
    let mut failure = None;
    std::thread::scope(|scope| {
        turns.begin(works.len());
        for (thread, work) in works.into_iter().enumerate() {
            let storage = TurnStorage { disk: disk.clone(), turns: Arc::clone(&turns), thread };
            scope.spawn(move || {
                let _end = TurnsEnd(&storage.turns, thread);
                work(&storage)
            });
        }
        loop {
            let waiting = turns.waiting();
            // The threads continue to their ends, so that no thread waits for another thread for
            // ever.
            if failure.is_none() {
                failure = catch_unwind(AssertUnwindSafe(|| check(disk))).err();
            }
            if waiting.is_empty() {
                break;
            }
            turns.give(order.next(&waiting));
        }
    });
    if let Some(failure) = failure {
        resume_unwind(failure);
    }
    is_done
}

/// Runs one seed, which consists of concurrent work, some crashes, and a last start without a
/// crash.
fn run_seed(seed: u64) {
    let random = &mut SimulationRandom::new(seed);
    let mut disk = SimulatedStorage::new(seed);
    let mut run = KilledRun::write(&disk, random);
    let (mut world, mut model) = (World::default(), Model::default());
    world.receipts = seed.is_multiple_of(2).then(|| tempfile::NamedTempFile::new().unwrap());
    let mut has_memory = true;
    for start in 0..=CRASHES {
        let what = format!("seed {seed}, start {start}");
        if start < CRASHES && random.below(3) > 0 {
            let moment = [CrashPoint::Before, CrashPoint::Within, CrashPoint::After][random.below(3)];
            disk.crash_at(disk.log().len() + random.below(70), moment);
        }
        let mut check = |disk: &SimulatedStorage| model.check(disk, &world, &what);
        run_all(&disk, &world, &run, (NEXT + start, random), &mut check);
        let kind = [CrashKind::ProcessKilled, CrashKind::PowerCut][usize::from(random.below(4) == 0)];
        disk = disk.crash_image(random.next(), kind);
        if kind == CrashKind::PowerCut {
            // A power cut destroys the memory, and the changes of names that were not yet on disk.
            has_memory = false;
            run.memory = Leftovers::default();
            run.lanes.clear();
            model.forget(&disk, &world);
        }
    }
    let what = format!("seed {seed}, the end");
    assert!(world.recover(&disk, &run, NEXT + CRASHES + 1), "{what}");
    model.check(&disk, &world, &what);
    compress(&disk).unwrap();
    world.ship(&disk).unwrap();
    look(&disk).unwrap();
    model.check(&disk, &world, &what);
    if has_memory {
        model.check_end(&world, &run, &what);
    }
}

// Proves that no sealed segment changes and that no committed sample disappears. At any moment,
// each committed sample is at most once in the files and at most once in the lake. In the end each
// committed sample is in the lake and every number is accounted for. Method: recovery, rescue,
// compressor, shipper, retention, a reader and the next recorder run concurrently. These programs
// are killed, or the power is cut, at any operation.
#[test]
fn each_sample_is_there_once() {
    for seed in 1..=effort::by_hand(60, 4000) {
        run_seed(seed);
    }
}
