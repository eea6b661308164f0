//! The shared test rig. The rig has scripted samples, a recorder that records them, and a reader of
//! the result.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::segment::{
    Advance, Damage, FrameKind, Gap, Leftovers, LiveCompressor, SampleView, SegmentHeader, SegmentReader,
    SourceInfo, SourceKind,
};
use flatcap_format::storage::Storage;
use flatcap_format::testing::simulated::{SimulatedStorage, SimulationRandom};
use flatcap_metrics::{Metrics, SourceMetrics};
use flatcap_os::clock::{ClockChange, ClockChangeDetector, read_clocks};
use flatcap_os::wake_event::WakeEvent;
use flatcap_slab::{
    Arena, Causes, Geometry, Inbox, LossLedger, OnFull, QueueSender, SampleMeta, SequenceCounters, Slab,
    SlabPool, SlabProducer, SlabProducerSettings, slab_queue,
};
use flatcap_stream::{ChecksumKind, Framer};

use crate::{
    QuotaStorage, Recorder, RecorderReport, RecorderRules, RecorderSettings, RetentionLimits, RingSettings,
    RunPlan, SyncPolicy, Thinner,
};

pub(crate) const SOURCES: u16 = 2;
pub(crate) const RUN_ID: u64 = 42;
const SLAB_BYTES: usize = 1024;

/// A run with two sources. The script determines the samples, the samples that fail, and the
/// settings of the recorder. The payloads of the samples follow from the seed.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) samples: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) sync: SyncPolicy,
    pub(crate) preallocate: u64,
    pub(crate) batch_slabs: usize,
    pub(crate) limits: RetentionLimits,
    pub(crate) compresses: bool, // while it records
    /// Interval between the samples that the storage receives, in nanoseconds, or 0 if the storage
    /// receives all samples.
    pub(crate) thinning_ns: u64,
}

/// Returns the frame of a sample with this payload.
fn frame(source: u16, seq: u64, payload: &[u8]) -> Vec<u8> {
    let stamp = Stamp {
        mono_ns: Script::mono_ns(seq),
        wall_ns: 0,
        seq,
        incomplete: Incomplete::NONE,
        duration_ns: 0,
    };
    let mut buffer = vec![0; ENVELOPE_BYTES + payload.len()];
    Envelope::new(source).write(&mut buffer, &stamp, payload);
    let mut frame = Vec::new();
    ChecksumKind::Xxh3.frame_and_write(&mut frame, &buffer).unwrap();
    frame
}

/// Returns the frame of a sample of a source that is in no script.
pub(crate) fn frame_of(source: u16, seq: u64) -> Vec<u8> {
    frame(source, seq, &seq.to_le_bytes())
}

impl Script {
    /// Returns a script that fills several segments.
    pub(crate) fn fixed(sync: SyncPolicy) -> Self {
        Self {
            seed: 0,
            samples: 100,
            segment_bytes: 14 << 10,
            sync,
            preallocate: 0,
            batch_slabs: 1,
            limits: RetentionLimits::NONE,
            compresses: false,
            thinning_ns: 0,
        }
    }

    pub(crate) fn random(seed: u64) -> Self {
        let mut random = SimulationRandom::new(seed);
        let sync = match random.below(4) {
            0 => SyncPolicy::Never,
            1 => SyncPolicy::Always,
            2 => SyncPolicy::Interval(0),
            _ => SyncPolicy::Interval(300_000),
        };
        Self {
            seed,
            samples: 20 + random.below(40) as u64,
            segment_bytes: 11_000 + random.below(8000) as u64,
            sync,
            preallocate: [0, 4096, 6000][random.below(3)],
            batch_slabs: 1 + random.below(4),
            limits: RetentionLimits::NONE,
            compresses: false,
            thinning_ns: 0,
        }
    }

    /// Returns the same script with compression during the recording.
    pub(crate) fn compressing(self) -> Self {
        Self { compresses: true, ..self }
    }

    /// Returns the payload of a sample, or `None` if the sample fails.
    pub(crate) fn payload(&self, source: u16, seq: u64) -> Option<Vec<u8>> {
        let mut random = SimulationRandom::new(self.seed ^ (u64::from(source) << 40) ^ (seq << 8));
        let is_lost = if self.seed == 0 { seq % 10 == 3 } else { random.below(8) == 0 };
        let words = if self.seed == 0 { 2 } else { 1 + random.below(20) };
        (!is_lost).then(|| (0..words).flat_map(|_| random.next().to_le_bytes()).collect())
    }

    /// Returns whether the storage receives this sample, provided that the sample does not fail.
    /// The storage receives the first sample of each interval.
    pub(crate) fn keeps(&self, source: u16, seq: u64) -> bool {
        let interval = |seq: u64| Self::mono_ns(seq).checked_div(self.thinning_ns);
        let mut earlier =
            (0..seq).rev().take_while(|earlier| self.thinning_ns > 0 && interval(*earlier) == interval(seq));
        earlier.all(|earlier| self.payload(source, earlier).is_none())
    }

    /// Returns the memory of the run at its end. The memory has every complete frame, and the
    /// number of begun samples per source.
    pub(crate) fn memory(&self) -> Leftovers {
        let mut frames = Vec::new();
        for seq in 0..self.samples {
            for source in 0..SOURCES {
                let Some(payload) = self.payload(source, seq) else { continue };
                frames.push(frame(source, seq, &payload));
            }
        }
        let begun = (0..SOURCES).map(|source| (source, self.samples)).collect();
        Leftovers { frames, begun, ..Leftovers::default() }
    }

    /// Maximum number of frames in one write.
    pub(crate) fn batch_frames_max(&self) -> u64 {
        (self.batch_slabs * SLAB_BYTES / ENVELOPE_BYTES) as u64
    }

    pub(crate) fn mono_ns(seq: u64) -> u64 {
        1_000_000 + seq
    }

    pub(crate) fn header() -> SegmentHeader {
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
        SegmentHeader {
            segment: 0,
            run_id: RUN_ID,
            host: HostName { name: "test".into(), machine_id: None, boot_id: None, labels: Vec::new() },
            agent_version: "test".into(),
            checksum: ChecksumKind::Xxh3,
            frame_max: 1 << 16,
            clocks: read_clocks(),
            reorder_window_ns: 0,
            sources: (0..SOURCES).map(source).collect(),
            clock_table: Vec::new(),
            recorder_pid: 0,
        }
    }

    pub(crate) fn sample(&self, mut producer: SlabProducer, metrics: &Metrics) {
        for seq in 0..self.samples {
            for source in 0..SOURCES {
                let reading = SampleMeta { source, seq, mono_ns: Self::mono_ns(seq), wall_offset_ns: 0 };
                metrics.sources.get(usize::from(source)).unwrap().begun.set(seq + 1);
                let Some(payload) = self.payload(source, seq) else {
                    producer.lose(reading, Causes::ReadFailed);
                    continue;
                };
                let stamp = Stamp {
                    mono_ns: reading.mono_ns,
                    wall_ns: 0,
                    seq,
                    incomplete: Incomplete::NONE,
                    duration_ns: 0,
                };
                producer.append(&reading, ENVELOPE_BYTES + payload.len(), |place| {
                    Envelope::new(source).write(place, &stamp, &payload);
                });
            }
        }
        producer.finish(2_000_000);
    }

    /// First takes all samples, with enough slabs for all of them, and then records the samples.
    /// Only the syncer runs concurrently. Returns `None` if the recorder could not start.
    pub(crate) fn record(&self, storage: &SimulatedStorage) -> Option<RecorderReport> {
        self.record_with_clock(storage, Box::new(StillClock))
    }

    /// Does the same as [`record`](Self::record), with this wall clock.
    pub(crate) fn record_with_clock(
        &self,
        storage: &SimulatedStorage,
        clock_watch: Box<dyn ClockChangeDetector>,
    ) -> Option<RecorderReport> {
        // Each slab has space for at least three frames of the maximum length.
        let slabs = usize::try_from(self.samples).unwrap() * usize::from(SOURCES) / 3 + 2;
        let (mut settings, producer) = self.settings(storage, slabs, slabs);
        settings.clock_watch = clock_watch;
        self.sample(producer, &settings.metrics);
        Some(start(settings).ok()?.run())
    }

    /// Takes and records samples concurrently, with few slabs.
    pub(crate) fn record_concurrently(&self, storage: &SimulatedStorage) -> RecorderReport {
        let (settings, producer) = self.settings(storage, 64, 48);
        let metrics = Arc::clone(&settings.metrics);
        let recorder = start(settings).unwrap();
        let recorder = flatcap_os::thread::spawn("recorder", move || recorder.run()).unwrap();
        self.sample(producer, &metrics);
        recorder.join().unwrap()
    }

    /// Takes all samples, and then records them in the ring. After that, the samples that the
    /// ring's recorder passes on are recorded on the disk. Returns `None` if one of the recorders
    /// could not start.
    pub(crate) fn record_with_ring(
        &self,
        ring: &SimulatedStorage,
        disk: &SimulatedStorage,
    ) -> Option<(RecorderReport, RecorderReport)> {
        let slabs = usize::try_from(self.samples).unwrap() * usize::from(SOURCES) / 3 + 2;
        let (mut to_ring, producer) = self.settings(ring, 2 * slabs, slabs);
        let (mut to_disk, _) = self.settings(disk, 1, 1);
        let (sender, queue) = slab_queue(slabs, OnFull::DropNewest);
        let begun = Arena::anonymous(geometry(1)).unwrap().sequence_counters();
        let passing = producer_of((&to_ring.pool, &to_disk.ledger, &to_disk.wake), begun, sender);
        to_disk.inbox = Inbox::new(vec![queue]);
        to_disk.pool = Arc::clone(&to_ring.pool);
        std::mem::swap(&mut to_disk.metrics, &mut to_ring.metrics);
        for source in to_ring.plan.header.sources.iter_mut().chain(&mut to_disk.plan.header.sources) {
            source.period_ns = 1;
        }
        let frames = (ChecksumKind::Xxh3, 1 << 16);
        let thinner = Thinner::new(passing, frames, self.thinning_ns, SOURCES.into());
        to_ring.ring = Some(RingSettings { thinner, sampled: Arc::clone(&to_disk.metrics) });
        self.sample(producer, &to_disk.metrics);
        let (to_disk, to_ring) = (start(to_disk).ok()?, start(to_ring).ok()?);
        let in_ring = to_ring.run();
        Some((in_ring, to_disk.run()))
    }

    pub(crate) fn settings(
        &self,
        storage: &SimulatedStorage,
        slabs: usize,
        queued: usize,
    ) -> (RecorderSettings, SlabProducer) {
        let sources = (0..SOURCES).map(|id| SourceMetrics::new(format!("source{id}"), 1000));
        let metrics = Arc::new(Metrics::new(sources, SOURCES.into(), Box::default()));
        let arena = Arena::anonymous(geometry(slabs)).unwrap();
        let begun = arena.sequence_counters();
        let pool = Arc::new(SlabPool::new(arena));
        let ledger = Arc::new(LossLedger::new(SOURCES.into()));
        let wake = Arc::new(WakeEvent::new());
        let (sender, queue) = slab_queue(queued, OnFull::DropNewest);
        let producer = producer_of((&pool, &ledger, &wake), begun, sender);
        let plan = RunPlan {
            compression: self.compresses.then(|| LiveCompressor::with_defaults(&Self::header())),
            header: Self::header(),
            attachments: Vec::new(),
            segment_bytes: self.segment_bytes,
            segment_age_ns: u64::MAX,
            sync: self.sync,
            preallocate: self.preallocate,
            poll_interval_ns: 100_000,
            batches: Vec::new(),
            batch_slabs: self.batch_slabs,
        };
        let storage = Arc::new(storage.clone()) as Arc<dyn Storage>;
        let settings = RecorderSettings {
            plan,
            storage: Arc::new(QuotaStorage::new(storage, self.limits)),
            inbox: Inbox::new(vec![queue]),
            pool,
            ledger,
            wake,
            metrics,
            latencies: Vec::new(),
            clock_watch: Box::new(StillClock),
            wall_offset: Arc::default(),
            commands: crate::command_queue(Arc::default()).1,
            ring: None,
            rules: RecorderRules::default(),
        };
        (settings, producer)
    }
}

fn geometry(slabs: usize) -> Geometry {
    Geometry {
        sources: SOURCES.into(),
        slabs,
        slab_bytes: SLAB_BYTES,
        large_slabs: 1,
        large_slab_bytes: 4096,
    }
}

fn producer_of(
    (pool, ledger, wake): (&Arc<SlabPool>, &Arc<LossLedger>, &Arc<WakeEvent>),
    begun: Arc<SequenceCounters>,
    queue: QueueSender<Box<Slab>>,
) -> SlabProducer {
    SlabProducer::new(SlabProducerSettings {
        pool: Arc::clone(pool),
        queue,
        ledger: Arc::clone(ledger),
        wake: Arc::clone(wake),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 16,
        flush_interval_ns: u64::MAX,
        sequence_counters: begun,
        sources: SOURCES.into(),
        metrics: Arc::default(),
        stop: Arc::default(),
    })
}

/// A wall clock that is never set.
#[derive(Debug)]
struct StillClock;

impl ClockChangeDetector for StillClock {
    fn poll_change(&mut self) -> Option<(ClockChange, ClockReading)> {
        None
    }
}

/// Starts a recorder that does not back off after errors.
fn start(settings: RecorderSettings) -> std::io::Result<Recorder> {
    let mut recorder = Recorder::start(settings)?;
    recorder.slot.back_off_ns = |_| 0;
    Ok(recorder)
}

/// The content of a file, as a reader finds it.
#[derive(Debug, Default)]
pub(crate) struct FileContent {
    /// The header, or `None` if the reader rejects the file.
    pub(crate) header: Option<SegmentHeader>,
    pub(crate) items: Vec<FileItem>,
    pub(crate) damage: Vec<Damage>, // the torn tail last
    pub(crate) is_sealed: bool,
    /// Offset in the file at which the intact frames end.
    pub(crate) intact: u64,
    pub(crate) is_compressed: bool,
}

/// A frame with its offset in the file. In a compressed file, the offset of the frame's block is
/// used.
#[derive(Debug)]
pub(crate) enum FileItem {
    Sample { offset: u64, source: u16, seq: u64, mono_ns: u64, payload: Vec<u8> },
    Gap { offset: u64, gap: Gap },
    Other { kind: FrameKind },
}

/// The reader of images. The reader caches the result of each file content.
#[derive(Debug)]
pub(crate) struct ImageReader {
    folder: tempfile::TempDir,
    cache: HashMap<Vec<u8>, Rc<FileContent>>,
}

impl ImageReader {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), cache: HashMap::new() }
    }

    /// Reads the files of an image in the order of their names, which is the order of their
    /// numbers.
    pub(crate) fn read_image(&mut self, image: &SimulatedStorage) -> Vec<(String, Rc<FileContent>)> {
        let names = image.names().into_iter();
        names
            .map(|name| {
                let content = image.content(&name).unwrap();
                let path = self.folder.path().join("segment");
                let found = self.cache.entry(content).or_insert_with_key(|content| {
                    std::fs::write(&path, content).unwrap();
                    Rc::new(read(&path))
                });
                (name, Rc::clone(found))
            })
            .collect()
    }
}

pub(crate) fn read(path: &std::path::Path) -> FileContent {
    let mut found = FileContent::default();
    let Ok(mut reader) = SegmentReader::open(path) else { return found };
    found.header = Some(reader.header().clone());
    found.is_sealed = reader.is_sealed();
    found.is_compressed = reader.compressed().is_some();
    let mut intact = 0;
    while let Some(advance) = reader.advance().unwrap() {
        match advance {
            Advance::Damage(damage) => {
                found.damage.push(Damage { offset: file_offset(&reader, damage.offset), ..damage });
            }
            Advance::Frame(at) => {
                if intact == at.offset {
                    intact += at.bytes as u64;
                }
                let offset = file_offset(&reader, at.offset);
                found.items.push(match at.kind {
                    FrameKind::Telemetry => {
                        let SampleView { source, seq, mono_ns, payload, .. } = reader.sample(at).unwrap();
                        FileItem::Sample { offset, source, seq, mono_ns, payload: payload.to_vec() }
                    }
                    FrameKind::Gap => FileItem::Gap { offset, gap: Gap::decode(reader.payload(at)).unwrap() },
                    kind => FileItem::Other { kind },
                });
            }
        }
    }
    found.intact = match reader.compressed() {
        // In this case, the compressed file's own footer and trailer are intact.
        Some(packed) if packed.flaw().is_none() && found.is_sealed && intact == packed.raw_bytes() => {
            packed.stored_bytes().unwrap()
        }
        _ => file_offset(&reader, intact),
    };
    found
        .damage
        .extend(reader.tail().map(|tail| Damage { offset: file_offset(&reader, tail.offset), ..tail }));
    found
}

/// Converts an offset of the reader to an offset in the file.
fn file_offset(reader: &SegmentReader, offset: u64) -> u64 {
    reader.compressed().map_or(offset, |packed| packed.stored_offset(offset))
}
