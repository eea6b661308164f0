//! Tests of snapshots on a simulated disk that crashes at any operation. After a crash, a snapshot
//! is either complete or does not exist yet. The next start completes an interrupted snapshot.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatcap_format::block::SourceCompression;
use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::segment::{
    Advance, Attachment, FrameKind, Frames, Gap, SampleSpan, SealState, SegmentHeader, SegmentName,
    SegmentReader, SegmentWriter, SourceInfo, SourceKind, Verification,
};
use flatcap_format::storage::{DiskSpace, FileEntry, ReadAt, Storage, StorageFile};
use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::{CrashKind, CrashPoint, SimulatedStorage};
use flatcap_metrics::SnapshotMetrics;
use flatcap_os::host_log::{HostLog, LogWindow};
use flatcap_stream::{ChecksumKind, Framer};

use super::{
    OrderError, SnapshotFolder, SnapshotLimits, SnapshotOrder, SnapshotSettings, SnapshotWorker, listed,
    snapshot_requests,
};

/// The run whose samples are in the ring.
const RUN: u64 = 5;
/// Number of disk images after a power cut that are checked per crash.
const POWER_CUTS: u64 = 3;
/// The window of the tests, which is in the second and third of three segments.
const WINDOW: (u64, u64) = (1_150, 1_250);

/// Emulates directories on a simulated disk that has no directories. One file represents each
/// directory. The name of this file contains the directory's name and a prefix. The names of the
/// directory's files begin with this prefix. So one rename renames the directory.
#[derive(Debug)]
struct SimulatedFolder(SimulatedStorage);

#[derive(Debug)]
struct SimulatedDirectory {
    disk: SimulatedStorage,
    prefix: String,
}

impl SimulatedFolder {
    /// Returns the name of the file that emulates a directory.
    fn entry(&self, name: &str) -> io::Result<String> {
        let names = self.0.entries()?.into_iter().map(|entry| entry.name);
        let mut entries = names.filter(|entry| parts(entry).is_some_and(|(found, _)| found == name));
        entries.next().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Returns the name of a directory, and the prefix with which the names of its files begin.
fn parts(entry: &str) -> Option<(&str, &str)> {
    entry.strip_prefix("dir:")?.split_once(':')
}

impl SnapshotFolder for SimulatedFolder {
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = self.0.entries()?;
        Ok(entries.iter().filter_map(|entry| Some(parts(&entry.name)?.0.to_owned())).collect())
    }

    fn create(&self, name: &str) -> io::Result<()> {
        if self.entry(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.0.create(&format!("dir:{name}:{}", self.0.log().len())).map(drop)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Storage>> {
        let entry = self.entry(name)?;
        let prefix = format!("{}/", parts(&entry).unwrap().1);
        Ok(Arc::new(SimulatedDirectory { disk: self.0.clone(), prefix }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let entry = self.entry(from)?;
        self.0.rename(&entry, &format!("dir:{to}:{}", parts(&entry).unwrap().1))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let directory = self.open(name)?;
        for file in directory.entries()? {
            directory.remove(&file.name)?;
        }
        self.0.remove(&self.entry(name)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_directory()
    }
}

impl SimulatedDirectory {
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Storage for SimulatedDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.create(&self.name(name))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.open(&self.name(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(&self.name(from), &self.name(to))
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.disk.exchange(&self.name(one), &self.name(other))
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.replace(&self.name(from), &self.name(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(&self.name(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        let entries = self.disk.entries()?.into_iter();
        Ok(entries
            .filter_map(|entry| {
                let name = entry.name.strip_prefix(&self.prefix)?.to_owned();
                Some(FileEntry { name, ..entry })
            })
            .collect())
    }

    fn space(&self) -> io::Result<DiskSpace> {
        self.disk.space()
    }
}

fn header(segment: u64, first: u64) -> SegmentHeader {
    let source = |id: u16, next_seq| SourceInfo {
        id,
        name: format!("source{id}"),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: 1,
        root: String::new(),
        schema: Vec::new(),
        next_seq,
    };
    let clocks = ClockReading { mono_ns: first, boot_ns: first, wall_ns: 1 << 40 };
    SegmentHeader {
        segment,
        run_id: RUN,
        host: HostName { name: "test".into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: String::new(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 0,
        // The rate of the second source is a tenth of the rate of the first source.
        sources: vec![source(0, first - 1_000), source(1, first.div_ceil(10) - 100)],
        clock_table: vec![clocks],
        recorder_pid: 0,
    }
}

fn frame_of(source: u16, seq: u64, mono_ns: u64) -> Vec<u8> {
    let body = seq.to_le_bytes();
    let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
    let wall_ns = (1 << 40) + mono_ns.cast_signed();
    let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 1 };
    Envelope::new(source).write(&mut payload, &stamp, &body);
    let mut frame = Vec::new();
    ChecksumKind::Xxh3.frame_and_write(&mut frame, &payload).unwrap();
    frame
}

/// Returns a ring with three segments of 100 ns each. The last segment is open. The first source
/// has a sample every nanosecond, except for three lost samples. The second source has a sample
/// every 10 ns.
fn ring() -> SimulatedStorage {
    let storage = SimulatedStorage::new(0);
    for number in 0..3 {
        let first = 1_000 + number * 100;
        let name = SegmentName { number, created_s: 0, run_id: RUN, state: SealState::Active };
        let mut writer = SegmentWriter::create(&storage, name, header(number, first), &[], 0).unwrap();
        for mono_ns in first..first + 100 {
            let samples = [(0, mono_ns - 1_000, true), (1, mono_ns / 10 - 100, mono_ns % 10 == 0)];
            if (1_200..1_203).contains(&mono_ns) {
                let gap = Gap {
                    source: 0,
                    first: mono_ns - 1_000,
                    count: 1,
                    causes: 1,
                    after_mono_ns: 0,
                    before_mono_ns: 0,
                };
                writer.append_gaps(&[gap]).unwrap();
            }
            for (source, seq, is_due) in samples {
                if !is_due || source == 0 && (1_200..1_203).contains(&mono_ns) {
                    continue;
                }
                let frame = frame_of(source, seq, mono_ns);
                let headers = [&frame[..ChecksumKind::Xxh3.frame_bytes(0)]];
                let frames = Frames { pieces: &mut [IoSlice::new(&frame)], headers: &headers, count: 1 };
                writer.append(frames).unwrap();
                writer.count_samples(
                    source,
                    1,
                    SampleSpan::of(seq, mono_ns, (1 << 40) + mono_ns.cast_signed()),
                );
            }
        }
        if number < 2 {
            writer.seal().unwrap().publish(&storage).unwrap();
        }
    }
    storage
}

/// Returns the settings of a worker of a run, with a disk and the ring.
fn settings(disk: &SimulatedStorage, ring: &SimulatedStorage, run_id: u64) -> SnapshotSettings {
    SnapshotSettings {
        folder: Arc::new(SimulatedFolder(disk.clone())),
        ring: Arc::new(ring.clone()),
        run_id,
        limits: SnapshotLimits { bytes: u64::MAX, count: usize::MAX },
        compression: Box::new(|_| SourceCompression::default()),
        settle_ns: 0,
        settle: Box::new(|| true),
        wall_offset_ns: Box::new(|| 1 << 40),
        read_log: Box::new(|log, window| match log {
            HostLog::Kernel => Ok(format!("{window:?}").into_bytes()),
            HostLog::Journal => Err(io::ErrorKind::PermissionDenied.into()),
        }),
        note_bytes: Box::new(|_| {}),
        metrics: Arc::default(),
    }
}

/// Returns a worker of a run on a disk and the ring, and the handle to order snapshots.
fn worker(
    disk: &SimulatedStorage,
    ring: &SimulatedStorage,
    run_id: u64,
) -> (super::SnapshotHandle, SnapshotWorker) {
    let (handle, requests) = snapshot_requests();
    // The worker handles the queued requests, finishes their snapshots, and ends.
    let is_stopped = Arc::new(AtomicBool::new(true));
    (handle, SnapshotWorker::new(settings(disk, ring, run_id), requests, is_stopped))
}

fn order(first_mono_ns: u64, last_mono_ns: u64) -> SnapshotOrder {
    SnapshotOrder {
        name: "test".to_owned(),
        reason: "a test".to_owned(),
        fired_mono_ns: first_mono_ns,
        first_mono_ns,
        last_mono_ns,
        ..SnapshotOrder::default()
    }
}

/// Takes a snapshot of the window in the same way as a run that is not killed. The disk may crash.
fn keep(disk: &SimulatedStorage, ring: &SimulatedStorage) {
    keep_after(disk, ring, |_| {});
}

/// Does the same as [`keep`]. `answered` receives the answer to the first request.
fn keep_after(
    disk: &SimulatedStorage,
    ring: &SimulatedStorage,
    answered: impl FnOnce(Result<String, OrderError>) + Send + 'static,
) {
    let (handle, worker) = worker(disk, ring, RUN);
    // Send two requests with overlapping windows. The second request is extended later.
    handle.order(order(WINDOW.0, 1_180), answered).unwrap();
    let second = handle.order(order(1_170, 1_200), drop).unwrap();
    handle.extend(second, WINDOW.1).unwrap();
    worker.run();
}

/// Returns the samples of a snapshot, each as source, number and time, and the results of the
/// snapshot's verification.
fn read(disk: &SimulatedStorage, name: &str) -> (Vec<(u16, u64, u64)>, u64, u64, bool) {
    let directory = SimulatedFolder(disk.clone()).open(name).unwrap();
    let (mut samples, mut verification) = (Vec::new(), Verification::default());
    for entry in directory.entries().unwrap() {
        if SegmentName::parse(&entry.name).is_none() {
            continue;
        }
        let open = || {
            let file = directory.open(&entry.name).unwrap() as Arc<dyn ReadAt>;
            SegmentReader::over(Path::new(&entry.name), file).unwrap()
        };
        let mut reader = open();
        while let Some(advance) = reader.advance().unwrap() {
            let Advance::Frame(at) = advance else { panic!("{advance:?}") };
            if at.kind == FrameKind::Telemetry {
                let sample = reader.sample(at).unwrap();
                samples.push((sample.source, sample.seq, sample.mono_ns));
            }
        }
        verification.verify(&mut open(), false, &mut |_| {}).unwrap();
    }
    let report = verification.finish();
    (samples, report.lost(), report.unexplained(), report.is_intact())
}

fn expected() -> BTreeMap<u16, Vec<u64>> {
    let of_first = (WINDOW.0..=WINDOW.1).filter(|at| !(1_200..1_203).contains(at));
    let of_second = (WINDOW.0..=WINDOW.1).filter(|at| at % 10 == 0);
    BTreeMap::from([(0, of_first.collect()), (1, of_second.collect())])
}

/// Checks that there is either a complete snapshot or no snapshot. Returns whether a snapshot
/// exists.
fn assert_whole(disk: &SimulatedStorage) -> bool {
    let all = listed(&SimulatedFolder(disk.clone())).unwrap();
    let Some(snapshot) = all.first() else { return false };
    let (samples, lost, unexplained, is_intact) = read(disk, &snapshot.name);
    let mut times: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for (source, _, mono_ns) in samples {
        times.entry(source).or_default().push(mono_ns);
    }
    assert_eq!((all.len(), &times), (1, &expected()));
    assert_eq!((lost, unexplained, is_intact), (3, 0, true));
    assert_eq!(snapshot.record.window_mono_ns, WINDOW);
    assert_eq!(snapshot.record.orders.len(), 2);
    true
}

// Proves that a snapshot contains exactly the samples and losses of its window. The sources are
// fast and slow, and the window crosses segment boundaries. Overlapping requests are joined.
#[test]
fn a_window_is_cut_exactly() {
    let (disk, ring) = (SimulatedStorage::new(0), ring());
    keep(&disk, &ring);
    assert!(assert_whole(&disk));
    let all = listed(&SimulatedFolder(disk)).unwrap();
    assert!(all[0].record.complete && all[0].record.samples == 109, "{all:?}");
}

// Proves that a window that starts before the ring is copied as far as possible and marked as
// incomplete.
#[test]
fn a_window_before_the_ring_is_a_part() {
    let (disk, ring) = (SimulatedStorage::new(0), ring());
    let (handle, worker) = worker(&disk, &ring, RUN);
    handle.order(order(10, 1_009), drop).unwrap();
    worker.run();
    let all = listed(&SimulatedFolder(disk)).unwrap();
    assert_eq!((all.len(), all[0].record.complete, all[0].record.samples), (1, false, 11));
}

// Proves that a snapshot whose window is longer than the ring is marked as incomplete if a segment
// in the middle of the window is missing. Requests are joined only within a limit.
#[test]
fn a_window_with_a_hole_is_a_part() {
    let (disk, ring) = (SimulatedStorage::new(0), ring());
    let middle = SegmentName { number: 1, created_s: 0, run_id: RUN, state: SealState::Sealed };
    ring.remove(&middle.to_string()).unwrap();
    let (handle, worker) = worker(&disk, &ring, RUN);
    handle.order(order(1_010, 1_250), drop).unwrap();
    handle.order(order(1_200, u64::MAX), drop).unwrap();
    worker.run();
    let all = listed(&SimulatedFolder(disk)).unwrap();
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all.iter().all(|snapshot| !snapshot.record.complete), "{all:?}");
}

// Proves that a requested log of the host is attached, with the entries in the window. If a log
// cannot be read, the snapshot names the log with the reason, and is otherwise unaffected.
#[test]
fn logs_are_attached() {
    let (disk, ring) = (SimulatedStorage::new(0), ring());
    let (handle, worker) = worker(&disk, &ring, RUN);
    let wanted = SnapshotOrder { capture: HostLog::ALL.to_vec(), ..order(WINDOW.0, WINDOW.1) };
    handle.order(wanted, drop).unwrap();
    worker.run();
    let all = listed(&SimulatedFolder(disk.clone())).unwrap();
    let snapshot = all.first().unwrap();
    assert!(snapshot.record.complete, "{snapshot:?}");
    let [kernel, journal] = &snapshot.record.logs[..] else { panic!("{snapshot:?}") };
    assert_eq!((kernel.attachment.as_deref(), &kernel.error), (Some("kmsg.txt"), &None));
    assert_eq!((&journal.attachment, journal.error.as_deref()), (&None, Some("permission denied")));
    let directory = SimulatedFolder(disk).open(&snapshot.name).unwrap();
    let names: Vec<String> = directory.entries().unwrap().into_iter().map(|entry| entry.name).collect();
    let name = names.iter().find(|name| SegmentName::parse(name).is_some()).unwrap();
    let file = directory.open(name).unwrap() as Arc<dyn ReadAt>;
    let mut reader = SegmentReader::over(Path::new(name), file).unwrap();
    let mut attached = BTreeMap::new();
    while let Some(advance) = reader.advance().unwrap() {
        let Advance::Frame(at) = advance else { panic!("{advance:?}") };
        if let Some(found) =
            Attachment::decode(reader.payload(at)).filter(|_| at.kind == FrameKind::Attachment)
        {
            attached.insert(found.name, String::from_utf8_lossy(&found.content).into_owned());
        }
    }
    let wall_ns = (1 << 40) + 1_150_i64..=(1 << 40) + 1_250;
    let window = LogWindow { wall_ns: (*wall_ns.start(), *wall_ns.end()), mono_ns: WINDOW };
    assert_eq!(attached.get("kmsg.txt"), Some(&format!("{window:?}")));
    assert!(!attached.contains_key("journal.txt"));
}

// Proves that after a crash before, within or after any storage operation a snapshot is complete or
// absent. The next start completes each snapshot whose request was on disk. A request is on disk
// when it is answered.
#[test]
fn crashes_leave_whole_snapshots() {
    let ring = ring();
    let operations = {
        let disk = SimulatedStorage::new(1);
        keep(&disk, &ring);
        disk.log().len() + 1
    };
    assert!(operations > 20, "{operations}");
    let (mut completed, mut accepted) = (0, 0);
    for operation in (0..operations).step_by(effort::of(2, 1)) {
        for moment in [CrashPoint::Before, CrashPoint::Within, CrashPoint::After] {
            let disk = SimulatedStorage::new(operation as u64);
            disk.crash_at(operation, moment);
            let (reply, answer) = std::sync::mpsc::channel();
            keep_after(&disk, &ring, move |begun| reply.send(begun.is_ok()).unwrap());
            let was_accepted = answer.try_recv() == Ok(true);
            accepted += usize::from(was_accepted);
            let killed = [disk.crash_image(0, CrashKind::ProcessKilled)];
            let cut = (0..POWER_CUTS).map(|seed| disk.crash_image(seed, CrashKind::PowerCut));
            for image in killed.into_iter().chain(cut) {
                let was_published = assert_whole_or_shorter(&image);
                let (handle, worker) = worker(&image, &ring, RUN + 1);
                handle.complete_interrupted().unwrap();
                worker.run();
                let names = SimulatedFolder(image.clone()).names().unwrap();
                assert!(names.iter().all(|name| !name.ends_with(".partial")), "{operation}: {names:?}");
                let is_there = assert_whole_or_shorter(&image);
                assert!(is_there || !(was_published || was_accepted), "{operation}");
                completed += usize::from(is_there && !was_published);
            }
        }
    }
    assert!(completed > 20, "{completed} snapshots were completed");
    assert!(accepted > 10, "{accepted} orders were answered before a crash");
}

/// Checks the same as [`assert_whole`], but allows a snapshot with the shorter window, because the
/// crash may precede the write of the longer window.
fn assert_whole_or_shorter(disk: &SimulatedStorage) -> bool {
    let all = listed(&SimulatedFolder(disk.clone())).unwrap();
    let Some(snapshot) = all.first() else { return false };
    if snapshot.record.window_mono_ns == WINDOW {
        return assert_whole(disk);
    }
    let (first, last) = snapshot.record.window_mono_ns;
    assert!(first == WINDOW.0 && [1_180, 1_200].contains(&last), "{snapshot:?}");
    let (samples, _, unexplained, is_intact) = read(disk, &snapshot.name);
    assert!(samples.iter().all(|(_, _, mono_ns)| (first..=last).contains(mono_ns)));
    assert_eq!((unexplained, is_intact), (0, true));
    true
}

// Proves that, if the copy of a window fails for lack of space, the whole window is copied later,
// even if the ring has removed the samples since then. A copy that succeeds after such a failure
// does not count as failed.
#[test]
fn a_copy_without_space_is_tried_again() {
    let (disk, ring) = (SimulatedStorage::new(0), ring());
    let (handle, requests) = snapshot_requests();
    let (stop, wake) = (Arc::new(AtomicBool::new(false)), requests.wake());
    let metrics = Arc::new(SnapshotMetrics::default());
    let mut attempts = 0;
    // The worker calls this function before each attempt.
    let settle = {
        let (disk, ring, stop) = (disk.clone(), ring.clone(), Arc::clone(&stop));
        move || {
            attempts += 1;
            if attempts == 2 {
                for entry in ring.entries().unwrap() {
                    ring.remove(&entry.name).unwrap();
                }
                disk.set_capacity(1 << 30);
                stop.store(true, Ordering::Release);
                wake.set();
            }
            true
        }
    };
    let settings = SnapshotSettings {
        settle: Box::new(settle),
        metrics: Arc::clone(&metrics),
        ..settings(&disk, &ring, RUN)
    };
    disk.set_capacity(0);
    handle.order(order(WINDOW.0, WINDOW.1), drop).unwrap();
    SnapshotWorker::new(settings, requests, stop).run();
    let all = listed(&SimulatedFolder(disk)).unwrap();
    assert!(all.len() == 1 && all[0].record.complete && all[0].record.samples == 109, "{all:?}");
    assert_eq!((metrics.published.get(), metrics.failed.get(), metrics.copies_begun.get()), (1, 0, 2));
}

// Proves that a snapshot whose run is not in the ring is abandoned, and that a crashed run without
// segments in the ring counts as a failure. A snapshot that cannot be started for lack of space
// leaves nothing behind.
#[test]
fn snapshots_without_ring_or_space() {
    let (disk, ring) = (SimulatedStorage::new(0), ring());
    let (handle, first) = worker(&disk, &ring, RUN);
    disk.set_capacity(0);
    let (reply, answer) = std::sync::mpsc::channel();
    handle.order(order(WINDOW.0, WINDOW.1), move |begun| drop(reply.send(begun))).unwrap();
    first.run();
    assert!(matches!(answer.try_recv().unwrap(), Err(OrderError::NotWritten(_))));
    assert_eq!(listed(&SimulatedFolder(disk.clone())).unwrap(), []);
    disk.set_capacity(1 << 30);
    let (handle, next) = worker(&disk, &SimulatedStorage::new(0), RUN + 1);
    handle.complete_interrupted().unwrap();
    next.run();
    assert_eq!(SimulatedFolder(disk.clone()).names().unwrap(), Vec::<String>::new());
    let (handle, requests) = snapshot_requests();
    let settings = settings(&disk, &SimulatedStorage::new(0), RUN + 1);
    let metrics = Arc::clone(&settings.metrics);
    handle.keep_run(RUN).unwrap();
    SnapshotWorker::new(settings, requests, Arc::new(AtomicBool::new(true))).run();
    assert_eq!((metrics.published.get(), metrics.failed.get()), (0, 1));
}
