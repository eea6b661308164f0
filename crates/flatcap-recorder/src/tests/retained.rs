//! Tests of retention that use the log of the simulated storage. The tests check which files are
//! removed, when they are removed, and that the remaining files never exceed the limits.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use flatcap_format::segment::{REMOVED_NAME, RemovedSegments, SealState, SegmentName, SideFile};
use flatcap_format::storage::{DiskSpace, FileEntry, Storage, StorageFile};
use flatcap_format::testing::simulated::{
    InjectedFailure, LoggedOperation, Operation, SimulatedStorage, SimulationRandom,
};
use flatcap_metrics::DirectoryMetrics;
use flatcap_os::clock::NS_PER_S;

use super::rig::Script;
use crate::{MinFree, QuotaStorage, RetentionLimits, SyncPolicy};

const PAGE_BYTES: u64 = 4096;
const FOREIGN: [&str; 2] = ["notes.txt", "0000000000-20200101T000000Z-000000000000002A.bin"];

/// The state of a file according to the log.
#[derive(Debug, Default)]
struct Logged {
    name: String,
    length: u64,
    reserved: u64,
}

/// Replays a log. After each operation, calls `each` with the total size of all linked files.
fn replay_log(
    log: &[LoggedOperation],
    mut each: impl FnMut(&LoggedOperation, &BTreeMap<usize, Logged>, u64),
) {
    let mut files: BTreeMap<usize, Logged> = BTreeMap::new();
    for event in log {
        let is_done = event.result.is_ok();
        if let (Some(id), Operation::Create { name }) = (event.file, &event.operation)
            && is_done
        {
            files.insert(id, Logged { name: name.clone(), ..Logged::default() });
        }
        if let Some(file) = event.file.and_then(|id| files.get_mut(&id)) {
            match &event.operation {
                Operation::Append { offset, bytes } => file.length = offset + bytes,
                Operation::Preallocate { end } => file.reserved = file.reserved.max(*end),
                Operation::Truncate { length } if is_done => {
                    file.length = *length;
                    file.reserved = 0;
                }
                Operation::Rename { to, .. } if is_done => file.name.clone_from(to),
                _ => {}
            }
        }
        let held = files.values().map(|file| file.length.max(file.reserved).next_multiple_of(PAGE_BYTES));
        each(event, &files, held.sum());
        if let (Some(id), Operation::Remove { .. }, true) = (event.file, &event.operation, is_done) {
            files.remove(&id);
        }
    }
}

pub(super) fn fill(storage: &dyn Storage, name: &str, bytes: usize) {
    let file = storage.create(name).unwrap();
    assert_eq!(file.append(&[IoSlice::new(&vec![7; bytes])]).unwrap(), bytes);
}

pub(super) fn name(number: u64, created_s: i64, state: SealState) -> SegmentName {
    SegmentName { number, created_s, run_id: 9, state }
}

fn age_limit(seconds: u64) -> RetentionLimits {
    RetentionLimits { age_ns: seconds * NS_PER_S, ..RetentionLimits::NONE }
}

// Proves that the total size never exceeds the quota at any operation, and that only closed
// segments are removed, oldest first. Method: random scripts and quotas. The number of a run's own
// segments that can be removed depends on the speed of the syncer. So in every second run, the
// directory already contains segments of an earlier run.
#[test]
fn the_cap_holds_at_every_operation() {
    let (mut removed, mut seed) = (0, 0);
    while seed < 60 || removed <= 100 {
        seed += 1;
        assert!(seed <= 1000, "{removed} removals in 1000 scripts");
        let mut random = SimulationRandom::new(seed);
        let mut script = Script::random(seed);
        script.samples *= 6;
        let foreign = 5000 + random.below(20_000);
        let older = if seed % 2 == 0 { random.below(20) as u64 } else { 0 };
        let space = foreign as u64 + (older + 2) * PAGE_BYTES;
        script.limits.bytes = space + random.below(200 << 10) as u64;
        let storage = SimulatedStorage::new(seed);
        leave_segments(&storage, 0..older);
        for name in FOREIGN {
            fill(&storage, name, foreign / 2);
        }
        let before = storage.log().len();
        // If the quota is smaller than the first segment's header, the run does not start.
        if let Some(report) = script.record(&storage) {
            assert!(
                report
                    .sources
                    .iter()
                    .all(|source| source.metrics.recorded.get() + source.lost() == script.samples)
            );
        }
        let mut last = None;
        let mut at = 0;
        replay_log(&storage.log(), |event, files, held| {
            at += 1;
            assert!(
                at <= before || held <= script.limits.bytes,
                "{held} of {}: {event:?}",
                script.limits.bytes
            );
            let Operation::Remove { name } = &event.operation else { return };
            let Some(segment) = SegmentName::parse(name) else { panic!("{name} was removed") };
            if segment.state == SealState::Active {
                // The creation of this segment has failed.
                assert!(files[&event.file.unwrap()].length < 4096);
                return;
            }
            assert!(last < Some(segment.number), "{name} after {last:?}");
            last = Some(segment.number);
            removed += 1;
        });
        assert!(FOREIGN.iter().all(|name| storage.names().iter().any(|left| left == name)));
    }
}

// Proves that only sealed segments and their set-aside files are removed because of their age, and
// never an open segment or a foreign file.
#[test]
fn age_removes_what_is_sealed() {
    let storage = SimulatedStorage::new(0);
    let old = name(1, 1000, SealState::Sealed);
    let new = name(3, 1041, SealState::Sealed).to_string();
    let open = name(2, 1000, SealState::Active).to_string();
    let kept = [open.as_str(), &new, FOREIGN[0], FOREIGN[1], &old.side_file(SideFile::Recovering)];
    for name in kept.iter().copied().chain([old.to_string().as_str(), &old.side_file(SideFile::Cut)]) {
        fill(&storage, name, 10);
    }
    let capped = QuotaStorage::new(Arc::new(storage.clone()), age_limit(60));
    capped.enforce_limits(1060).unwrap();
    assert_eq!(storage.names().len(), 7, "not older yet");
    capped.enforce_limits(1101).unwrap();
    let mut kept = kept.map(str::to_owned);
    kept.sort();
    assert_eq!(storage.names(), kept);
    assert_eq!(capped.removed(), 2);
}

// Proves that the age of a segment of this process is measured with the monotonic clock, whatever
// the wall clock is set to.
#[test]
fn a_set_clock_ages_nothing_of_this_run() {
    let storage = SimulatedStorage::new(0);
    let capped = QuotaStorage::new(Arc::new(storage.clone()), age_limit(60));
    let year_s = 31_536_000;
    fill(&capped, &name(5, 1000, SealState::Sealed).to_string(), 10);
    fill(&capped, &name(6, 1000 + 2 * year_s, SealState::Sealed).to_string(), 10);
    fill(&storage, &name(4, 1000 + 2 * year_s, SealState::Sealed).to_string(), 10);
    capped.enforce_limits(1000 + year_s).unwrap();
    assert_eq!(storage.names().len(), 3);
}

// Proves that old segments are removed even if the removal cannot make enough space, and that no
// other file is removed.
#[test]
fn age_holds_on_a_full_disk() {
    let storage = SimulatedStorage::new(0);
    storage.set_capacity(100 * PAGE_BYTES);
    fill(&storage, FOREIGN[0], 95 * 4096);
    let (old, new) =
        (name(1, 1000, SealState::Sealed).to_string(), name(2, 2000, SealState::Sealed).to_string());
    fill(&storage, &old, 10);
    fill(&storage, &new, 10);
    let limits = RetentionLimits { min_free: MinFree::BasisPoints(2000), ..age_limit(60) };
    let capped = QuotaStorage::new(Arc::new(storage.clone()), limits);
    assert_eq!(capped.enforce_limits(2000).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(storage.names(), [new.as_str(), FOREIGN[0]].map(str::to_owned));
}

// Proves that, if a write finds the disk full although space for the segment's end was reserved,
// this space is reserved again.
#[test]
fn space_for_the_end_is_reserved_again() {
    let script = Script { preallocate: 64 << 10, ..Script::fixed(SyncPolicy::Never) };
    let undisturbed = SimulatedStorage::new(0);
    script.record(&undisturbed).unwrap();
    let is_append = |event: &LoggedOperation| matches!(event.operation, Operation::Append { .. });
    let log = undisturbed.log();
    // The first appends write the header, so a later append must fail.
    let failing = log.iter().enumerate().filter(|(_, event)| is_append(event)).nth(3).unwrap().0;
    let storage = SimulatedStorage::new(0);
    storage.fail(failing, 28);
    assert_eq!(script.record(&storage).unwrap().metrics.recorder.storage_errors.get(), 1);
    let log = storage.log();
    let behind: Vec<&LoggedOperation> =
        log[failing + 1..].iter().filter(|event| event.file == log[failing].file).take(3).collect();
    assert!(matches!(behind[0].operation, Operation::Truncate { .. }), "{behind:?}");
    assert!(matches!(behind[1].operation, Operation::Preallocate { .. }), "{behind:?}");
}

/// A storage whose listing is slow, and that checks for renames during a listing.
#[derive(Debug)]
struct SlowListing {
    inner: SimulatedStorage,
    is_listing: AtomicBool,
    exchanges: AtomicUsize, // exchanges during later listings
}

impl Storage for SlowListing {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.inner.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.inner.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        assert!(!self.is_listing.load(Ordering::SeqCst), "{from} may be missing in the listing");
        self.inner.rename(from, to)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.inner.exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.inner.sync_directory()
    }

    #[allow(clippy::disallowed_methods, reason = "a directory that takes long to list")]
    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        self.is_listing.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(300));
        let mut entries = self.inner.entries()?;
        self.is_listing.store(false, Ordering::SeqCst);
        let falls = |left: usize| left.checked_sub(1);
        if self.exchanges.fetch_update(Ordering::SeqCst, Ordering::SeqCst, falls).is_ok()
            && let [one, other, ..] = entries.as_mut_slice()
        {
            (other.identity, other.allocated) = (one.identity, one.allocated);
        }
        Ok(entries)
    }

    fn space(&self) -> io::Result<DiskSpace> {
        self.inner.space()
    }
}

// Proves that the total size includes a file that is renamed during a listing.
#[test]
fn nothing_is_renamed_during_a_listing() {
    let inner = SimulatedStorage::new(0);
    let slow =
        Arc::new(SlowListing { inner, is_listing: AtomicBool::default(), exchanges: AtomicUsize::new(0) });
    let capped =
        Arc::new(QuotaStorage::new(slow, RetentionLimits { bytes: 1 << 20, ..RetentionLimits::NONE }));
    fill(&*capped, "0", 10);
    let beside = Arc::clone(&capped);
    let lister =
        flatcap_os::thread::spawn("lister", move || (0..200).for_each(|_| beside.enforce_limits(0).unwrap()))
            .unwrap();
    let mut number = 0;
    while !lister.is_finished() {
        capped.rename(&number.to_string(), &(number + 1).to_string()).unwrap();
        number += 1;
    }
    lister.join().unwrap();
}

// Proves that a file that exchanges its name with another file during a listing is counted, and
// that a file that keeps two names is counted once.
#[test]
fn exchanged_files_are_counted() {
    let counted = |exchanges: usize| {
        let inner = SimulatedStorage::new(0);
        fill(&inner, "a", 3 * 4096);
        fill(&inner, "b", 5 * 4096);
        let (is_listing, exchanges) = (AtomicBool::default(), AtomicUsize::new(exchanges));
        let listed = Arc::new(SlowListing { inner, is_listing, exchanges });
        let limits = RetentionLimits { bytes: 1 << 20, ..RetentionLimits::NONE };
        let metrics: Arc<DirectoryMetrics> = Arc::default();
        QuotaStorage::with_metrics(listed, limits, Arc::clone(&metrics)).enforce_limits(0).unwrap();
        metrics.bytes.get()
    };
    assert_eq!([counted(0), counted(1), counted(usize::MAX)], [8 * 4096, 8 * 4096, 3 * 4096]);
}

/// Creates segments of an earlier run. Each segment has one page.
fn leave_segments(storage: &SimulatedStorage, numbers: std::ops::Range<u64>) -> Vec<String> {
    let names: Vec<String> =
        numbers.map(|number| name(number, 1000, SealState::Sealed).to_string()).collect();
    for name in &names {
        fill(storage, name, 4096);
    }
    names
}

// Proves that, if a file cannot be removed, the next oldest file is removed and recording
// continues. This is true from the start of the run. A list contains the segments that were removed
// between other segments.
#[test]
fn the_next_oldest_goes_instead() {
    let storage = SimulatedStorage::new(0);
    // Segments occupy the space for their ends until the syncer has truncated the files, which may
    // be late. So there must be space for all segments of the script in addition to the files that
    // stay.
    let left = leave_segments(&storage, 0..1000);
    for name in &left[..4] {
        storage.refuse_removal(name);
    }
    let limits = RetentionLimits { bytes: 1000 * PAGE_BYTES, ..RetentionLimits::NONE };
    let script = Script { limits, samples: 600, ..Script::fixed(SyncPolicy::Never) };
    let report = script.record(&storage).expect("a start with files that cannot be removed");
    assert_eq!(report.metrics.recorder.storage_errors.get(), 0, "a refused removal is no failed write");
    for source in &report.sources {
        assert_eq!(source.metrics.recorded.get(), 540, "only the samples that fail are lost");
    }
    let names = storage.names();
    assert!(left[..4].iter().all(|name| names.contains(name)));
    assert!(!names.contains(&left[4]) && !names.contains(&left[5]), "{names:?}");
    let list = String::from_utf8(storage.content(REMOVED_NAME).unwrap()).unwrap();
    let removed = RemovedSegments::parse(&list);
    assert!(removed.covers(9, 3, 6) && !removed.covers(9, 0, 6), "verify knows of the hole: {list}");
}

// Proves that retention removes the last segment of a run only after all older segments of the run,
// whether they are shipped or not. Segments of other runs are removed in their usual order. A later
// rescue continues from the last segment.
#[test]
fn the_last_segment_of_a_run_goes_last() {
    let receipts = tempfile::NamedTempFile::new().unwrap();
    let storage = SimulatedStorage::new(0);
    let of_run = |run_id, number| SegmentName { run_id, ..name(number, 1000, SealState::Sealed) };
    let names = [of_run(8, 0), of_run(9, 1), of_run(9, 2), of_run(9, 3), of_run(7, 4), of_run(7, 5)];
    for name in names {
        fill(&storage, &name.to_string(), 4096);
    }
    let shipped = [&names[..1], &names[2..]].concat();
    for name in shipped {
        writeln!(receipts.as_file(), "{:016x}-{:010}", name.run_id, name.number).unwrap();
    }
    let capped = |limits| {
        QuotaStorage::new(Arc::new(storage.clone()), limits).with_receipts(receipts.path().to_owned())
    };
    let left = || {
        let names = storage.names().into_iter().filter_map(|name| SegmentName::parse(&name));
        names.map(|name| name.number).collect::<Vec<u64>>()
    };
    capped(age_limit(60)).enforce_limits(2000).unwrap();
    assert_eq!(left(), [1, 3], "one has no receipt, and one is the last of its run");
    let pages = |pages| RetentionLimits { bytes: pages * PAGE_BYTES, ..RetentionLimits::NONE };
    capped(pages(3)).enforce_limits(2000).unwrap();
    assert_eq!(left(), [1, 3], "the list of what is removed takes a page");
    capped(pages(2)).enforce_limits(2000).unwrap();
    assert_eq!(left(), [3]);
    capped(pages(1)).enforce_limits(2000).unwrap();
    assert_eq!(left(), Vec::<u64>::new());
}

// Proves that if nothing can be removed, the open segment stays and is sealed intact, and nothing
// else happens.
#[test]
fn without_removable_files_the_segment_stays() {
    let storage = SimulatedStorage::new(0);
    let left = leave_segments(&storage, 0..20);
    for name in &left {
        storage.refuse_removal(name);
    }
    let limits = RetentionLimits { bytes: 40 * PAGE_BYTES, ..RetentionLimits::NONE };
    let script = Script { limits, samples: 3000, segment_bytes: 1 << 20, ..Script::fixed(SyncPolicy::Never) };
    let report = script.record(&storage).unwrap();
    assert!(
        report.metrics.recorder.storage_errors.get() > 0
            && report.metrics.recorder.segments_sealed.get() == 1
    );
    assert!(report.sources.iter().all(|source| source.metrics.recorded.get() > 0 && source.lost() > 300));
}

// Proves that if two segments have the same number, only the older one is removed, together with
// its set-aside file.
#[test]
fn equal_numbers_are_different_segments() {
    let storage = SimulatedStorage::new(0);
    let of_run = |run_id, created_s| SegmentName { run_id, ..name(0, created_s, SealState::Sealed) };
    let (older, newer) = (of_run(9, 1000), of_run(3, 2000));
    let files = [
        older.to_string(),
        older.side_file(SideFile::Cut),
        newer.to_string(),
        newer.side_file(SideFile::Cut),
    ];
    for name in &files {
        fill(&storage, name, 4096);
    }
    let limits = RetentionLimits { bytes: 3 * PAGE_BYTES, ..RetentionLimits::NONE };
    QuotaStorage::new(Arc::new(storage.clone()), limits).enforce_limits(0).unwrap();
    let mut left = files[2..].to_vec();
    left.sort();
    assert_eq!(storage.names(), left);
}

// Proves that the age of a segment of this process is measured with its own clock. The age of a
// segment of another run with the same number is derived from the time in its name.
#[test]
fn ages_are_of_a_segment_not_of_a_number() {
    let storage = SimulatedStorage::new(0);
    let capped = QuotaStorage::new(Arc::new(storage.clone()), age_limit(60));
    let (own, foreign) =
        (name(5, 1000, SealState::Sealed), SegmentName { run_id: 3, ..name(5, 1000, SealState::Sealed) });
    fill(&capped, &own.to_string(), 10);
    fill(&storage, &foreign.to_string(), 10);
    capped.enforce_limits(2000).unwrap();
    assert_eq!(storage.names(), [own.to_string()]);
}

// Proves that an error of a scan loses no sample, and that the limits are applied to the last known
// numbers. Method: the directory cannot be read, or there are no free descriptors.
#[test]
fn a_scan_error_costs_nothing() {
    for lacks_descriptors in [false, true] {
        let storage = SimulatedStorage::new(0);
        let limits = RetentionLimits { bytes: 1 << 20, ..RetentionLimits::NONE };
        let capped = QuotaStorage::new(Arc::new(storage.clone()), limits);
        let open = name(7, 1000, SealState::Active).to_string();
        let (closed, old) =
            (name(6, 900, SealState::Sealed).to_string(), name(5, 900, SealState::Sealed).to_string());
        fill(&storage, &old, 300 << 10);
        fill(&storage, &closed, 300 << 10);
        let file = capped.create(&open).unwrap();
        if lacks_descriptors {
            storage.set_descriptors_exhausted(true);
        } else {
            storage.set_listing_failure(Some(InjectedFailure::Code(5)));
        }
        for _ in 0..35 {
            assert_eq!(file.append(&[IoSlice::new(&[7; 16 << 10])]).unwrap(), 16 << 10);
        }
        assert!(capped.enforce_limits(0).is_err(), "a failed scan is reported");
        let names = storage.names();
        assert_eq!(names, [closed.clone(), open.clone()], "the oldest was removed anyway");
        let held: u64 = names.iter().map(|name| storage.content(name).unwrap().len() as u64).sum();
        assert!(held <= 1 << 20);
        // If no removable file is left, the limit makes an append fail, which ends the loop.
        let mut appended = 35;
        let error = loop {
            match file.append(&[IoSlice::new(&[7; 16 << 10])]) {
                Ok(_) => appended += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!((50..64).contains(&appended), "{appended}");
        assert_eq!(storage.names(), [open]);
    }
}

// Proves that every sample is recorded although scans and the opening of descriptors fail from the
// first write on.
#[test]
fn a_recorder_without_descriptors_loses_nothing() {
    let storage = SimulatedStorage::new(0);
    let limits = RetentionLimits { bytes: 8 << 20, ..RetentionLimits::NONE };
    let script = Script { limits, samples: 400, segment_bytes: 1 << 20, ..Script::fixed(SyncPolicy::Never) };
    let (settings, producer) = script.settings(&storage, 400, 400);
    script.sample(producer, &settings.metrics);
    let recorder = crate::Recorder::start(settings).unwrap();
    storage.set_descriptors_exhausted(true);
    let report = recorder.run();
    assert_eq!(
        (report.metrics.recorder.storage_errors.get(), report.metrics.recorder.segments_sealed.get()),
        (0, 1)
    );
    assert!(report.sources.iter().all(|source| source.metrics.recorded.get() == 360));
}
