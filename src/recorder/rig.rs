//! What the tests of faults and crashes share: scripted readings, a recorder over them, and what a reader finds.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::{Capped, Recorder, RecorderReport, RecorderSettings, RetentionLimits, RunPlan, SyncPolicy};
use crate::frame::{ENVELOPE_BYTES, Envelope, Shortfall, Stamp};
use crate::metrics::{Metrics, SourceMetrics};
use crate::os::clock::{ClockChange, ClockReading, ClockWatch};
use crate::os::event::Event;
use crate::os::simulated::{Random, SimulatedStorage};
use crate::os::storage::Storage;
use crate::segment::{
    Advance, Damage, FrameKind, Gap, Header, HostName, Leftovers, Packing, SegmentReader, SourceInfo,
    SourceKind, Telemetry,
};
use crate::slab::{
    Arena, Causes, Geometry, HandOver, HandOverSettings, Inbox, LossLedger, OnFull, Reading, SlabPool,
    slab_queue,
};
use crate::stream::{ChecksumKind, Framer};

pub(super) const SOURCES: u16 = 2;
pub(super) const RUN_ID: u64 = 42;
const SLAB_BYTES: usize = 1024;

/// A run of two sources: what is sampled, what of it is lost on the way, and how it is recorded. The seed decides the
/// readings.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) seed: u64,
    pub(super) readings: u64,
    pub(super) segment_bytes: u64,
    pub(super) sync: SyncPolicy,
    pub(super) preallocate: u64,
    pub(super) batch_slabs: usize,
    pub(super) limits: RetentionLimits,
    pub(super) packs: bool, // while it records
}

impl Script {
    /// Some segments.
    pub(super) fn fixed(sync: SyncPolicy) -> Self {
        Self {
            seed: 0,
            readings: 100,
            segment_bytes: 14 << 10,
            sync,
            preallocate: 0,
            batch_slabs: 1,
            limits: RetentionLimits::NONE,
            packs: false,
        }
    }

    pub(super) fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let sync = match random.below(4) {
            0 => SyncPolicy::Never,
            1 => SyncPolicy::Always,
            2 => SyncPolicy::Interval(0),
            _ => SyncPolicy::Interval(300_000),
        };
        Self {
            seed,
            readings: 20 + random.below(40) as u64,
            segment_bytes: 11_000 + random.below(8000) as u64,
            sync,
            preallocate: [0, 4096, 6000][random.below(3)],
            batch_slabs: 1 + random.below(4),
            limits: RetentionLimits::NONE,
            packs: false,
        }
    }

    /// The same, packed while it is recorded.
    pub(super) fn packing(self) -> Self {
        Self { packs: true, ..self }
    }

    /// What a reading brings; none if it fails.
    pub(super) fn payload(&self, source: u16, seq: u64) -> Option<Vec<u8>> {
        let mut random = Random::new(self.seed ^ (u64::from(source) << 40) ^ (seq << 8));
        let is_lost = if self.seed == 0 { seq % 10 == 3 } else { random.below(8) == 0 };
        let words = if self.seed == 0 { 2 } else { 1 + random.below(20) };
        (!is_lost).then(|| (0..words).flat_map(|_| random.next().to_le_bytes()).collect())
    }

    /// What the memory of the run holds at its end: every frame that was finished, and how many readings were begun.
    pub(super) fn memory(&self) -> Leftovers {
        let mut frames = Vec::new();
        for seq in 0..self.readings {
            for source in 0..SOURCES {
                let Some(payload) = self.payload(source, seq) else { continue };
                let stamp = Stamp {
                    mono_ns: Self::mono_ns(seq),
                    wall_ns: 0,
                    seq,
                    shortfall: Shortfall::NONE,
                    duration_ns: 0,
                };
                let mut place = vec![0; ENVELOPE_BYTES + payload.len()];
                Envelope::new(source).write(&mut place, &stamp, &payload);
                let mut frame = Vec::new();
                ChecksumKind::Xxh3.frame_and_write(&mut frame, &place).unwrap();
                frames.push(frame);
            }
        }
        let begun = (0..SOURCES).map(|source| (source, self.readings)).collect();
        Leftovers { frames, begun, is_followed: false }
    }

    /// Most frames in one write.
    pub(super) fn batch_frames_max(&self) -> u64 {
        (self.batch_slabs * SLAB_BYTES / ENVELOPE_BYTES) as u64
    }

    pub(super) fn mono_ns(seq: u64) -> u64 {
        1_000_000 + seq
    }

    pub(super) fn header() -> Header {
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
            run_id: RUN_ID,
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

    pub(super) fn sample(&self, mut hand_over: HandOver, metrics: &Metrics) {
        for seq in 0..self.readings {
            for source in 0..SOURCES {
                let reading = Reading { source, seq, mono_ns: Self::mono_ns(seq), wall_offset_ns: 0 };
                metrics.sources.get(usize::from(source)).unwrap().begun.set(seq + 1);
                let Some(payload) = self.payload(source, seq) else {
                    hand_over.lose(reading, Causes::READ_FAILED);
                    continue;
                };
                let stamp = Stamp {
                    mono_ns: reading.mono_ns,
                    wall_ns: 0,
                    seq,
                    shortfall: Shortfall::NONE,
                    duration_ns: 0,
                };
                hand_over.append(&reading, ENVELOPE_BYTES + payload.len(), |place| {
                    Envelope::new(source).write(place, &stamp, &payload);
                });
            }
        }
        hand_over.finish(2_000_000);
    }

    /// Samples everything, with room for all of it, and then records: only the syncer works beside. None if the
    /// recorder could not start.
    pub(super) fn record(&self, storage: &SimulatedStorage) -> Option<RecorderReport> {
        self.record_by(storage, Box::new(StillClock))
    }

    /// The same by a clock that may be set.
    pub(super) fn record_by(
        &self,
        storage: &SimulatedStorage,
        clock_watch: Box<dyn ClockWatch>,
    ) -> Option<RecorderReport> {
        // Every slab of this size takes three of the longest frames, or more.
        let slabs = usize::try_from(self.readings).unwrap() * usize::from(SOURCES) / 3 + 2;
        let (mut settings, hand_over) = self.settings(storage, slabs, slabs);
        settings.clock_watch = clock_watch;
        self.sample(hand_over, &settings.metrics);
        Some(start(settings).ok()?.run())
    }

    /// Samples and records at the same time, with little room in between.
    pub(super) fn record_beside(&self, storage: &SimulatedStorage) -> RecorderReport {
        let (settings, hand_over) = self.settings(storage, 64, 48);
        let metrics = Arc::clone(&settings.metrics);
        let recorder = start(settings).unwrap();
        let recorder = crate::os::thread::spawn("recorder", move || recorder.run()).unwrap();
        self.sample(hand_over, &metrics);
        recorder.join().unwrap()
    }

    pub(super) fn settings(
        &self,
        storage: &SimulatedStorage,
        slabs: usize,
        queued: usize,
    ) -> (RecorderSettings, HandOver) {
        let sources = (0..SOURCES).map(|id| SourceMetrics::new(format!("source{id}"), 1000));
        let metrics = Arc::new(Metrics::new(sources, SOURCES.into(), Box::default()));
        let sources_count = SOURCES.into();
        let geometry = Geometry {
            sources: sources_count,
            slabs,
            slab_bytes: SLAB_BYTES,
            large_slabs: 1,
            large_slab_bytes: 4096,
        };
        let arena = Arena::anonymous(geometry).unwrap();
        let begun = arena.begun();
        let pool = Arc::new(SlabPool::new(arena));
        let ledger = Arc::new(LossLedger::new(SOURCES.into()));
        let wake = Arc::new(Event::new());
        let (sender, queue) = slab_queue(queued, OnFull::DropNewest);
        let hand_over = HandOver::new(HandOverSettings {
            pool: Arc::clone(&pool),
            queue: sender,
            ledger: Arc::clone(&ledger),
            wake: Arc::clone(&wake),
            checksum: ChecksumKind::Xxh3,
            frame_max: 1 << 16,
            interval_ns: u64::MAX,
            begun,
            sources: sources_count,
            metrics: Arc::default(),
            stop: Arc::default(),
        });
        let plan = RunPlan {
            packing: self.packs.then(|| Packing::usual(&Self::header())),
            header: Self::header(),
            attachments: Vec::new(),
            segment_bytes: self.segment_bytes,
            segment_age_ns: u64::MAX,
            sync: self.sync,
            preallocate: self.preallocate,
            drain_ns: 100_000,
            batch_slabs: self.batch_slabs,
        };
        let storage = Arc::new(storage.clone()) as Arc<dyn Storage>;
        let settings = RecorderSettings {
            plan,
            storage: Arc::new(Capped::new(storage, self.limits)),
            inbox: Inbox::new(vec![queue]),
            pool,
            ledger,
            wake,
            metrics,
            latencies: Vec::new(),
            clock_watch: Box::new(StillClock),
            wall_offset: Arc::default(),
            orders: super::orders(Arc::default()).1,
        };
        (settings, hand_over)
    }
}

/// A wall clock that nobody sets.
#[derive(Debug)]
struct StillClock;

impl ClockWatch for StillClock {
    fn changed(&mut self) -> Option<(ClockChange, ClockReading)> {
        None
    }
}

/// Starts a recorder that tries again at once.
fn start(settings: RecorderSettings) -> std::io::Result<Recorder> {
    let mut recorder = Recorder::start(settings)?;
    recorder.back_off_ns = |_| 0;
    Ok(recorder)
}

/// What a reader says of a file.
#[derive(Debug, Default)]
pub(super) struct FileFound {
    /// None if it was refused.
    pub(super) header: Option<Header>,
    pub(super) items: Vec<Item>,
    pub(super) holes: Vec<Damage>, // the tail last
    pub(super) is_sealed: bool,
    /// Up to where frames follow one another from the start on.
    pub(super) intact: u64,
    pub(super) is_packed: bool,
}

/// A frame and its offset: in the file, of a packed one that of its block.
#[derive(Debug)]
pub(super) enum Item {
    Sample { offset: u64, source: u16, seq: u64, mono_ns: u64, payload: Vec<u8> },
    Gap { offset: u64, gap: Gap },
    Other { kind: FrameKind },
}

/// Reads images; what it has seen it does not read again.
#[derive(Debug)]
pub(super) struct Looker {
    folder: tempfile::TempDir,
    seen: HashMap<Vec<u8>, Rc<FileFound>>,
}

impl Looker {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), seen: HashMap::new() }
    }

    /// What is found in the files of an image, in the order of their names, which is that of their numbers.
    pub(super) fn look(&mut self, image: &SimulatedStorage) -> Vec<(String, Rc<FileFound>)> {
        let names = image.names().into_iter();
        names
            .map(|name| {
                let content = image.content(&name).unwrap();
                let path = self.folder.path().join("segment");
                let found = self.seen.entry(content).or_insert_with_key(|content| {
                    std::fs::write(&path, content).unwrap();
                    Rc::new(read(&path))
                });
                (name, Rc::clone(found))
            })
            .collect()
    }
}

pub(super) fn read(path: &std::path::Path) -> FileFound {
    let mut found = FileFound::default();
    let Ok(mut reader) = SegmentReader::open(path) else { return found };
    found.header = Some(reader.header().clone());
    found.is_sealed = reader.is_sealed();
    found.is_packed = reader.packed().is_some();
    let mut intact = 0;
    while let Some(advance) = reader.advance().unwrap() {
        match advance {
            Advance::Damage(damage) => {
                found.holes.push(Damage { offset: stored(&reader, damage.offset), ..damage });
            }
            Advance::Frame(at) => {
                if intact == at.offset {
                    intact += at.bytes as u64;
                }
                let offset = stored(&reader, at.offset);
                found.items.push(match at.kind {
                    FrameKind::Telemetry => {
                        let Telemetry { source, seq, mono_ns, payload, .. } = reader.telemetry(at).unwrap();
                        Item::Sample { offset, source, seq, mono_ns, payload: payload.to_vec() }
                    }
                    FrameKind::Gap => Item::Gap { offset, gap: Gap::decode(reader.payload(at)).unwrap() },
                    kind => Item::Other { kind },
                });
            }
        }
    }
    found.intact = match reader.packed() {
        // Its own footer and trailer are whole.
        Some(packed) if packed.flaw().is_none() && found.is_sealed && intact == packed.raw_bytes() => {
            packed.stored_bytes().unwrap()
        }
        _ => stored(&reader, intact),
    };
    found.holes.extend(reader.tail().map(|tail| Damage { offset: stored(&reader, tail.offset), ..tail }));
    found
}

/// Where in the file an offset of the reader's is.
fn stored(reader: &SegmentReader, offset: u64) -> u64 {
    reader.packed().map_or(offset, |packed| packed.stored_offset(offset))
}
