//! What lies between a sampler and the disk? Slabs, queue and recorder as the daemon puts them together, in this process. Budget:
//! none; the one place that knows how they are made.

use std::error::Error;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use flatcap::config::{Config, LARGE_SLABS, Timing};
use flatcap::metrics::{Consumer, GroupLatencies, Metrics, RecorderMetrics, SourceMetrics, exchange};
use flatcap::os::clock::{ClockReading, ClockTimer, NS_PER_S, WallOffset, monotonic_ns};
use flatcap::os::event::Event;
use flatcap::os::storage::Storage;
use flatcap::os::thread;
use flatcap::recorder::{
    Capped, Recorder, RecorderReport, RecorderSettings, RetentionLimits, RunPlan, SyncPolicy,
};
use flatcap::sampling::sources::synthetic;
use flatcap::sampling::{Group, GroupSettings, GroupSource};
use flatcap::segment::{Header, HostName, SourceInfo, SourceKind};
use flatcap::slab::{
    Arena, Begun, Geometry, HandOver, HandOverSettings, LossLedger, Owner, Slab, SlabPool, slab_queue,
};
use flatcap::stream::ChecksumKind;

use crate::machine;

const RUN_ID: u64 = 7;
const CHECKSUM: ChecksumKind = ChecksumKind::Xxh3;
/// How often a sampler that has no room looks again.
const LOOK_AGAIN_NS: u64 = 100_000;

/// Everything between samplers and recorder, of the sizes that the default configuration gives it.
pub struct Lines {
    pub metrics: Arc<Metrics>,
    pub wall_offset: Arc<WallOffset>,
    pub pool: Arc<SlabPool>,
    pub wake: Arc<Event>,
    ledger: Arc<LossLedger>,
    begun: Arc<Begun>,
    sender: Sender<Box<Slab>>,
    receiver: Receiver<Box<Slab>>,
    slabs: usize,
    queued: usize,
    config: Config,
    names: Vec<&'static str>,
    period_ns: u64,
    _run_dir: tempfile::TempDir,
}

/// By what producers that may lose nothing wait for room, since a full queue drops.
#[derive(Clone)]
pub struct Room {
    pool: Arc<SlabPool>,
    wake: Arc<Event>,
    least_free: usize,
}

/// A sampler group to be run, and its latencies.
pub struct ReadyGroup {
    pub group: Group,
    pub latencies: Consumer<GroupLatencies>,
    pub stop: Arc<Event>,
    pub start_ns: u64,
}

/// A recorder at work.
pub struct Recording {
    thread: JoinHandle<RecorderReport>,
}

impl Lines {
    /// For so many groups of these sources, ids in order.
    pub fn new(groups: usize, names: &[&'static str], period_ns: u64) -> Result<Self, Box<dyn Error>> {
        let config = Config::default();
        let memory = config.memory();
        let queued = usize::try_from(memory.queued)?;
        let slabs = queued + usize::try_from(memory.writing)? + 2 * groups;
        let geometry = Geometry {
            sources: names.len(),
            slabs,
            slab_bytes: usize::try_from(memory.slab_bytes)?,
            large_slabs: usize::try_from(LARGE_SLABS)?,
            large_slab_bytes: usize::try_from(memory.large_slab_bytes)?,
        };
        let owner = Owner {
            run_id: RUN_ID,
            directory: (0, 0),
            checksum: CHECKSUM,
            frame_max: config.storage.frame_max,
            boot: 0,
        };
        let run_dir = machine::memory_folder()?;
        let arena = Arena::kept(run_dir.path(), geometry, &owner)?;
        let (sender, receiver) = slab_queue(queued);
        let counters = names.iter().map(|name| SourceMetrics::new((*name).to_owned(), period_ns));
        Ok(Self {
            metrics: Arc::new(Metrics { sources: counters.collect(), recorder: RecorderMetrics::default() }),
            wall_offset: Arc::new(WallOffset::new(&ClockReading::now())),
            begun: arena.begun(),
            pool: Arc::new(SlabPool::new(arena)),
            wake: Arc::new(Event::new()),
            ledger: Arc::new(LossLedger::new(names.len())),
            sender,
            receiver,
            slabs,
            queued,
            config,
            names: names.to_vec(),
            period_ns,
            _run_dir: run_dir,
        })
    }

    /// A group's end of the queue.
    pub fn hand_over(&self) -> HandOver {
        HandOver::new(HandOverSettings {
            pool: Arc::clone(&self.pool),
            queue: self.sender.clone(),
            ledger: Arc::clone(&self.ledger),
            wake: Arc::clone(&self.wake),
            checksum: CHECKSUM,
            frame_max: self.config.storage.frame_max,
            interval_ns: self.config.handover.hand_over.as_nanos() as u64,
            begun: Arc::clone(&self.begun),
            sources: self.names.len(),
        })
    }

    /// A group of these samplers, all of one period.
    pub fn group(&self, sources: Vec<GroupSource>) -> Result<ReadyGroup, Box<dyn Error>> {
        let ids: Vec<u16> = sources.iter().map(|source| source.id).collect();
        let (producer, latencies) = exchange(|| GroupLatencies::new(ids.iter().copied()));
        let stop = Arc::new(Event::new());
        let start_ns = monotonic_ns();
        let group = Group::new(GroupSettings {
            sources,
            timing: Timing::Precise,
            start_ns,
            wall_offset: Arc::clone(&self.wall_offset),
            hand_over: self.hand_over(),
            metrics: Arc::clone(&self.metrics),
            latencies: producer,
            stop: Arc::clone(&stop),
        })?;
        Ok(ReadyGroup { group, latencies, stop, start_ns })
    }

    /// The recorder's end of the queue, for somebody who takes slabs in its place.
    pub fn slabs(&self) -> Receiver<Box<Slab>> {
        self.receiver.clone()
    }

    /// What producers wait by.
    pub fn room(&self, producers: usize) -> Room {
        Room {
            pool: Arc::clone(&self.pool),
            wake: Arc::clone(&self.wake),
            least_free: self.slabs - (self.queued - producers),
        }
    }

    /// Starts the recorder on a storage, and gives up the bench's own ends of the queue: it ends when the groups have.
    pub fn record(self, storage: Arc<dyn Storage>, retain_bytes: u64) -> Result<Recording, Box<dyn Error>> {
        let limits = RetentionLimits { bytes: retain_bytes, ..RetentionLimits::NONE };
        let recorder = Recorder::start(RecorderSettings {
            plan: self.plan()?,
            storage: Arc::new(Capped::new(storage, limits)),
            queue: self.receiver,
            pool: self.pool,
            ledger: self.ledger,
            wake: self.wake,
            metrics: self.metrics,
            latencies: Vec::new(),
            clock_watch: Box::new(ClockTimer::start()?),
            wall_offset: self.wall_offset,
        })?;
        drop(self.sender);
        Ok(Recording { thread: thread::spawn("recorder", move || recorder.run())? })
    }

    fn plan(&self) -> Result<RunPlan, Box<dyn Error>> {
        let (storage, handover) = (&self.config.storage, &self.config.handover);
        let clocks = ClockReading::now();
        let source = |(id, name): (u16, &&str)| SourceInfo {
            id,
            name: (*name).to_owned(),
            labels: Vec::new(),
            kind: SourceKind::Synthetic,
            period_ns: self.period_ns,
            root: synthetic::POINT_ROOT.to_owned(),
            schema: synthetic::SCHEMA.to_vec(),
            next_seq: 0,
        };
        let header = Header {
            segment: 0,
            run_id: RUN_ID,
            host: HostName { name: "bench".to_owned(), machine_id: None, boot_id: None },
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            checksum: CHECKSUM,
            frame_max: storage.frame_max,
            clocks,
            reorder_window_ns: NS_PER_S,
            sources: (0..).zip(&self.names).map(source).collect(),
            clock_table: vec![clocks],
        };
        Ok(RunPlan {
            header,
            attachments: Vec::new(),
            segment_bytes: storage.segment_size,
            segment_age_ns: storage.segment_age.as_nanos() as u64,
            sync: SyncPolicy::Interval(NS_PER_S),
            preallocate: storage.preallocate,
            drain_ns: handover.drain.as_nanos() as u64,
            batch_slabs: usize::try_from(self.config.memory().writing)?,
        })
    }
}

impl Room {
    /// Waits until each producer can hand a slab over. To be asked more often than slabs are handed over.
    pub fn wait(&self) {
        // What is not free is queued or in somebody's hands: even if all of it were queued, each would find a place.
        if self.pool.free() > self.least_free {
            return;
        }
        let never = Event::new();
        while self.pool.free() <= self.least_free {
            self.wake.set();
            never.wait_until(monotonic_ns() + LOOK_AGAIN_NS);
        }
    }
}

impl Recording {
    /// Waits for everything to be on the medium, and for the books to balance.
    pub fn finish(self) -> Result<RecorderReport, Box<dyn Error>> {
        let report = self.thread.join().map_err(|_panic| "the recorder ended by a panic")?;
        for source in &report.sources {
            crate::numbers::must_be_equal(
                &format!("{}: recorded + lost", source.name),
                source.recorded + source.lost,
                source.begun,
            )?;
        }
        crate::numbers::must_be_equal("errors of the storage", report.storage_errors, 0)?;
        Ok(report)
    }
}
