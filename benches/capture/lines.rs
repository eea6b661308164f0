//! What lies between a sampler and the disk? Slabs, queue and recorder as the daemon puts them together, in this process. Budget:
//! none; the one place that knows how they are made.

use std::error::Error;
use std::sync::Arc;
use std::thread::JoinHandle;

use flatcap::config::{Config, GroupName, LARGE_SLABS};
use flatcap::metrics::{Consumer, GroupLatencies, GroupMetrics, Metrics, SourceMetrics, exchange};
use flatcap::os::clock::{ClockReading, ClockTimer, NS_PER_S, WallOffset, monotonic_ns};
use flatcap::os::event::Event;
use flatcap::os::storage::Storage;
use flatcap::os::thread;
use flatcap::recorder::{
    Capped, Recorder, RecorderReport, RecorderSettings, RetentionLimits, RunPlan, SyncPolicy, orders,
};
use flatcap::sampling::sources::synthetic;
use flatcap::sampling::{Group, GroupSettings, GroupSource, Mailbox};
use flatcap::segment::{Header, HostName, SourceInfo, SourceKind};
use flatcap::slab::{
    Arena, Begun, Geometry, HandOver, HandOverSettings, Inbox, LossLedger, OnFull, Owner, QueueReceiver,
    QueueSender, Slab, SlabPool, slab_queue,
};
use flatcap::stream::ChecksumKind;

use crate::machine;

const RUN_ID: u64 = 7;
const CHECKSUM: ChecksumKind = ChecksumKind::Xxh3;

/// Everything between samplers and recorder, of the sizes that the default configuration gives it.
pub struct Lines {
    pub metrics: Arc<Metrics>,
    pub wall_offset: Arc<WallOffset>,
    pub pool: Arc<SlabPool>,
    pub wake: Arc<Event>,
    ledger: Arc<LossLedger>,
    begun: Arc<Begun>,
    senders: Vec<QueueSender<Box<Slab>>>, // of groups that are not made yet
    receivers: Vec<QueueReceiver<Box<Slab>>>,
    config: Config,
    names: Vec<&'static str>,
    period_ns: u64,
    _run_dir: tempfile::TempDir,
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
    /// For so many groups of these sources, ids in order; what a group does whose queue is full.
    pub fn new(
        groups: usize,
        names: &[&'static str],
        period_ns: u64,
        on_full: OnFull,
    ) -> Result<Self, Box<dyn Error>> {
        let config = Config::default();
        let memory = config.memory();
        let each = usize::try_from(memory.queued())? / groups;
        // As the daemon counts them: queued, being written, and for each group one that is filled and one that is looked at.
        let slabs = each * groups + usize::try_from(memory.writing)? + 2 * groups;
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
        // As the daemon does beside the first samples.
        arena.pages().populate();
        let (senders, receivers) = (0..groups).map(|_| slab_queue(each, on_full)).unzip();
        let counters = names.iter().map(|name| SourceMetrics::new((*name).to_owned(), period_ns));
        Ok(Self {
            metrics: Arc::new(Metrics::new(counters, names.len(), Box::default())),
            wall_offset: Arc::new(WallOffset::new(&ClockReading::now())),
            begun: arena.begun(),
            pool: Arc::new(SlabPool::new(arena)),
            wake: Arc::new(Event::new()),
            ledger: Arc::new(LossLedger::new(names.len())),
            senders,
            receivers,
            config,
            names: names.to_vec(),
            period_ns,
            _run_dir: run_dir,
        })
    }

    /// The next group's end of its queue; it waits for room, if it waits at all, until it is stopped.
    pub fn hand_over(&mut self, stop: &Arc<Event>) -> Result<HandOver, Box<dyn Error>> {
        Ok(HandOver::new(HandOverSettings {
            pool: Arc::clone(&self.pool),
            queue: self.senders.pop().ok_or("more groups than queues")?,
            ledger: Arc::clone(&self.ledger),
            wake: Arc::clone(&self.wake),
            checksum: CHECKSUM,
            frame_max: self.config.storage.frame_max,
            interval_ns: self.config.handover.hand_over.as_nanos() as u64,
            begun: Arc::clone(&self.begun),
            sources: self.names.len(),
            metrics: Arc::new(GroupMetrics::default()),
            stop: Arc::clone(stop),
        }))
    }

    /// A group of these samplers, all of one period.
    pub fn group(&mut self, mut sources: Vec<GroupSource>) -> Result<ReadyGroup, Box<dyn Error>> {
        for source in &mut sources {
            let counters =
                self.metrics.sources.get(usize::from(source.id)).ok_or("a source without a name")?;
            source.metrics = Arc::clone(counters);
        }
        let ids: Vec<u16> = sources.iter().map(|source| source.id).collect();
        let (producer, latencies) = exchange(|| GroupLatencies::new(ids.iter().copied()));
        let stop = Arc::new(Event::new());
        let start_ns = monotonic_ns();
        let group = Group::new(GroupSettings {
            sources,
            name: GroupName::Fast,
            config: self.config.groups.fast.clone(),
            start_ns,
            wall_offset: Arc::clone(&self.wall_offset),
            hand_over: self.hand_over(&stop)?,
            metrics: Arc::clone(&self.metrics),
            latencies: producer,
            mailbox: Mailbox::silent(Arc::clone(&stop)),
        })?;
        Ok(ReadyGroup { group, latencies, stop, start_ns })
    }

    /// The recorder's end of the queues, for somebody who takes slabs in its place.
    pub fn inbox(&mut self) -> Inbox {
        Inbox::new(std::mem::take(&mut self.receivers))
    }

    /// Starts the recorder on a storage. It ends when all groups have.
    pub fn record(self, storage: Arc<dyn Storage>, retain_bytes: u64) -> Result<Recording, Box<dyn Error>> {
        let limits = RetentionLimits { bytes: retain_bytes, ..RetentionLimits::NONE };
        let recorder = Recorder::start(RecorderSettings {
            plan: self.plan()?,
            storage: Arc::new(Capped::new(storage, limits)),
            inbox: Inbox::new(self.receivers),
            pool: self.pool,
            ledger: self.ledger,
            wake: self.wake,
            metrics: self.metrics,
            latencies: Vec::new(),
            clock_watch: Box::new(ClockTimer::start()?),
            wall_offset: self.wall_offset,
            orders: orders(Arc::default()).1,
        })?;
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
            packing: None,
            drain_ns: handover.drain.as_nanos() as u64,
            batch_slabs: usize::try_from(self.config.memory().writing)?,
        })
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
