//! A storage that fails where it is told to, and the proof that every reading is in a file or in a Gap all the same.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::{Capped, Recorder, RecorderReport, RecorderSettings, RetentionLimits, RunPlan, SyncPolicy};
use crate::frame::{ENVELOPE_BYTES, Envelope, Stamp};
use crate::metrics::{Metrics, RecorderMetrics, SourceMetrics};
use crate::os::clock::{ClockReading, ClockTimer};
use crate::os::event::Event;
use crate::os::storage::{Entry, ReadAt, Space, Storage, StorageFile};
use crate::schema::segment::GapCause;
use crate::segment::{
    Advance, Audit, FrameKind, Gap, Header, HostName, SegmentReader, SourceInfo, SourceKind,
};
use crate::slab::{Causes, HandOver, HandOverSettings, LossLedger, Reading, SlabPool, slab_queue};
use crate::stream::ChecksumKind;

const SOURCES: u16 = 2;

type Files = Mutex<BTreeMap<String, Arc<MemoryFile>>>;

/// Files in memory. Every operation that can fail counts down; those whose number is in `failures` fail.
#[derive(Debug, Default)]
struct FaultyStorage {
    files: Files,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    operation: AtomicU64,
    failing: Vec<u64>,
}

impl Faults {
    fn pass(&self) -> io::Result<()> {
        let operation = self.operation.fetch_add(1, Ordering::Relaxed);
        if self.failing.contains(&operation) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    content: Mutex<Vec<u8>>,
    faults: Arc<Faults>,
}

impl Storage for FaultyStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.faults.pass()?;
        let file = Arc::new(MemoryFile { content: Mutex::default(), faults: Arc::clone(&self.faults) });
        let mut files = self.files.lock().unwrap();
        assert!(!files.contains_key(name), "nothing is ever overwritten");
        files.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let files = self.files.lock().unwrap();
        let file = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::clone(file) as Arc<dyn StorageFile>)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.faults.pass()?;
        let mut files = self.files.lock().unwrap();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().unwrap().remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.faults.pass()
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let files = self.files.lock().unwrap();
        files
            .iter()
            .map(|(name, file)| Ok(Entry { name: name.clone(), allocated: file.allocated()? }))
            .collect()
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space { total: u64::MAX, available: u64::MAX })
    }
}

impl ReadAt for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.content.lock().unwrap();
        let rest = content.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.content.lock().unwrap().len() as u64)
    }
}

impl StorageFile for MemoryFile {
    /// A failing append takes half of what it was given, as a full disk may.
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let mut content = self.content.lock().unwrap();
        if let Err(error) = self.faults.pass() {
            content.extend_from_slice(&bytes[..bytes.len() / 2]);
            return Err(error);
        }
        content.extend_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn preallocate(&self, _end: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.content.lock().unwrap().truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn allocated(&self) -> io::Result<u64> {
        self.length()
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.pass()
    }
}

fn header() -> Header {
    let source = |id: u16| SourceInfo {
        id,
        name: format!("source{id}"),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: 1000,
        root: "flatcap.synthetic.Point".into(),
        schema: vec![0; 100],
        next_seq: 0,
    };
    Header {
        segment: 0,
        run_id: 42,
        host: HostName { name: "test".into(), machine_id: None, boot_id: None },
        agent_version: "test".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 16,
        clocks: ClockReading::now(),
        reorder_window_ns: 0,
        sources: (0..SOURCES).map(source).collect(),
        clock_table: Vec::new(),
    }
}

/// Runs a recorder over readings of two sources; of each ten, one is lost before the hand-over. Returns what it says,
/// and the files.
fn run(
    readings: u64,
    failing: Vec<u64>,
    segment_bytes: u64,
    sync: SyncPolicy,
) -> (RecorderReport, Vec<(String, Vec<u8>)>) {
    let storage = Arc::new(FaultyStorage {
        files: Files::default(),
        faults: Arc::new(Faults { failing, ..Faults::default() }),
    });
    let sources = (0..SOURCES).map(|id| SourceMetrics::new(format!("source{id}"), 1000));
    let metrics = Arc::new(Metrics { sources: sources.collect(), recorder: RecorderMetrics::default() });
    let pool = Arc::new(SlabPool::new(64, 1024, 1, 4096));
    let ledger = Arc::new(LossLedger::new(SOURCES.into()));
    let wake = Arc::new(Event::new());
    let (queue, slabs) = slab_queue(48);
    let plan = RunPlan {
        header: header(),
        attachments: Vec::new(),
        segment_bytes,
        segment_age_ns: u64::MAX,
        sync,
        preallocate: 0,
        drain_ns: 100_000,
        batch_slabs: 4,
    };
    let recorder = Recorder::start(RecorderSettings {
        plan,
        storage: Arc::new(Capped::new(Arc::clone(&storage) as Arc<dyn Storage>, RetentionLimits::NONE)),
        queue: slabs,
        pool: Arc::clone(&pool),
        ledger: Arc::clone(&ledger),
        wake: Arc::clone(&wake),
        metrics: Arc::clone(&metrics),
        latencies: Vec::new(),
        clock_watch: Box::new(ClockTimer::start().unwrap()),
        wall_offset: Arc::default(),
    })
    .unwrap();
    let recorder = crate::os::thread::spawn("recorder", move || recorder.run()).unwrap();
    let mut hand_over = HandOver::new(HandOverSettings {
        pool,
        queue,
        ledger,
        wake,
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 16,
        interval_ns: u64::MAX,
        sources: SOURCES.into(),
    });
    for seq in 0..readings {
        for source in 0..SOURCES {
            let reading = Reading { source, seq, mono_ns: 1_000_000 + seq, wall_offset_ns: 0 };
            metrics.sources[usize::from(source)].begun.set(seq + 1);
            if seq % 10 == 3 {
                hand_over.lose(reading, Causes::READ_FAILED);
            } else {
                let stamp = Stamp { mono_ns: reading.mono_ns, wall_ns: 0, seq, flags: 0, duration_ns: 0 };
                hand_over.append(reading, ENVELOPE_BYTES + 8, |place| {
                    Envelope::new(source).write(place, &stamp, &[0; 8]);
                });
            }
        }
    }
    hand_over.finish(2_000_000);
    let report = recorder.join().unwrap();
    let files = storage.files.lock().unwrap();
    let contents = files.iter().map(|(name, file)| (name.clone(), file.content.lock().unwrap().clone()));
    (report, contents.collect())
}

/// Reads all files back: what is recorded and lost of each source, and the causes of the gaps.
fn audit(folder: &Path, files: &[(String, Vec<u8>)]) -> (Vec<(u64, u64, u64)>, u32) {
    let mut audit = Audit::default();
    let mut causes = 0;
    for (name, content) in files {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        let mut reader = SegmentReader::open(&path).unwrap();
        assert_eq!(audit.header(reader.header()), [], "{name}");
        while let Some(advance) = reader.advance().unwrap() {
            let Advance::Frame(at) = advance else { panic!("{advance:?} in {name}") };
            let finding = match at.kind {
                FrameKind::Telemetry => {
                    let sample = reader.telemetry(at).unwrap();
                    audit.sample(42, sample.source, sample.seq)
                }
                FrameKind::Gap => {
                    let gap = Gap::decode(reader.payload(at)).unwrap();
                    causes |= gap.causes;
                    assert_ne!(gap.causes, 0, "every gap has a cause: {gap:?}");
                    audit.gap(42, &gap)
                }
                _ => None,
            };
            assert_eq!(finding, None, "in {name} at {}", at.offset);
        }
        assert_eq!(reader.tail(), None, "what was torn was cut off again: {name}");
    }
    let sources =
        audit.finish().into_iter().map(|(_, source)| (source.recorded, source.lost, source.unexplained));
    (sources.collect(), causes)
}

fn check(readings: u64, failing: Vec<u64>, segment_bytes: u64, sync: SyncPolicy) -> (RecorderReport, u32) {
    let (report, files) = run(readings, failing, segment_bytes, sync);
    let folder = tempfile::tempdir().unwrap();
    let (sources, causes) = audit(folder.path(), &files);
    for ((recorded, lost, unexplained), said) in sources.into_iter().zip(&report.sources) {
        assert_eq!(said.begun, readings);
        assert_eq!(recorded, said.recorded, "the report counts what is in the files");
        assert_eq!(unexplained, 0);
        assert!(recorded + lost <= readings);
        // Losses at the end are in the files unless the storage failed to the last.
        if report.storage_errors == 0 {
            assert_eq!(recorded + lost, readings);
        }
        assert_eq!(said.lost, readings - recorded);
    }
    (report, causes)
}

// Goal: without a fault every reading is recorded or in a gap with its own cause. Method: losses by failed readings
// only, over several segments.
#[test]
fn losses_before_the_recorder_are_exact() {
    let (report, causes) = check(2000, Vec::new(), 32 << 10, SyncPolicy::Always);
    assert!(report.segments_sealed > 3);
    assert_eq!(report.storage_errors, 0);
    assert_eq!(causes & !(GapCause::PoolEmpty | GapCause::QueueFull).bits(), GapCause::ReadFailed.bits());
}

// Goal: a write that fails in the middle loses its batch as a gap with cause storage, and recording goes on in a new
// segment. Method: fail the third write (creations, syncs and writes count).
#[test]
fn a_failed_write_becomes_a_gap() {
    let (report, files) = run(500, vec![4], 1 << 20, SyncPolicy::Never);
    assert!(report.storage_errors >= 1);
    let folder = tempfile::tempdir().unwrap();
    let (sources, causes) = audit(folder.path(), &files);
    assert!(causes & GapCause::Storage.bits() != 0, "{causes:#b}");
    for (recorded, lost, unexplained) in sources {
        assert_eq!((recorded + lost, unexplained), (500, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Goal: whatever fails whenever, what is in the files is whole, in order, and counted once. Method: random faults in
    // creations, writes, syncs, renames; both sync policies; small segments.
    #[test]
    fn any_fault_keeps_the_books(
        failing in proptest::collection::vec(3_u64..60, 0..8),
        segment_bytes in (12_u64 << 10)..(64 << 10),
        always: bool,
    ) {
        let sync = if always { SyncPolicy::Always } else { SyncPolicy::Never };
        check(300, failing, segment_bytes, sync);
    }
}
