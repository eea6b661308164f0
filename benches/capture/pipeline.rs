//! Builds slabs, queue and recorder as the daemon does, in this process. Budget: none.

use std::error::Error;
use std::sync::Arc;
use std::thread::JoinHandle;

use flatcap::config::Config;
use flatcap::daemon::{LARGE_SLABS, MemoryBudget};
use flatcap_format::host::HostName;
use flatcap_format::segment::{SegmentHeader, SourceInfo, SourceKind};
use flatcap_format::storage::Storage;
use flatcap_metrics::{Consumer, GroupLatencies, GroupMetrics, Metrics, SourceMetrics, exchange};
use flatcap_os::clock::{ClockChangeTimer, NS_PER_S, WallOffset, monotonic_ns, read_clocks};
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_recorder::{
    QuotaStorage, Recorder, RecorderReport, RecorderRules, RecorderSettings, RetentionLimits, RunPlan,
    SyncPolicy, command_queue,
};
use flatcap_sampling::sources::synthetic;
use flatcap_sampling::{CommandReceiver, GroupName, GroupSettings, GroupSource, SamplerGroup};
use flatcap_slab::{
    Arena, Geometry, Inbox, LossLedger, OnFull, Owner, QueueReceiver, QueueSender, SequenceCounters, Slab,
    SlabPool, SlabProducer, SlabProducerSettings, slab_queue,
};
use flatcap_stream::ChecksumKind;

use crate::machine;

const RUN_ID: u64 = 7;
const CHECKSUM: ChecksumKind = ChecksumKind::Xxh3;

/// Everything between samplers and recorder, in the sizes of the default configuration.
pub struct Pipeline {
    pub metrics: Arc<Metrics>,
    pub wall_offset: Arc<WallOffset>,
    pub pool: Arc<SlabPool>,
    pub wake: Arc<WakeEvent>,
    ledger: Arc<LossLedger>,
    begun: Arc<SequenceCounters>,
    senders: Vec<QueueSender<Box<Slab>>>, // of groups not created yet
    receivers: Vec<QueueReceiver<Box<Slab>>>,
    config: Config,
    names: Vec<&'static str>,
    period_ns: u64,
    _run_dir: tempfile::TempDir,
}

/// A sampler group that has not started, and its latencies.
pub struct ReadyGroup {
    pub group: SamplerGroup,
    pub latencies: Consumer<GroupLatencies>,
    pub stop: Arc<WakeEvent>,
    pub start_ns: u64,
}

/// A running recorder.
pub struct RecorderThread {
    thread: JoinHandle<RecorderReport>,
}

impl Pipeline {
    /// Creates queues for `groups` groups of these sources, whose ids are their positions.
    /// `on_full` is the behaviour of a group whose queue is full.
    pub fn new(
        groups: usize,
        names: &[&'static str],
        period_ns: u64,
        on_full: OnFull,
    ) -> Result<Self, Box<dyn Error>> {
        let config = Config::default();
        let memory = MemoryBudget::of(&config);
        let queue_slabs = usize::try_from(memory.queued())? / groups;
        // As in the daemon: queued slabs, those being written, and for each group one being filled
        // and one being inspected.
        let slabs = queue_slabs * groups + usize::try_from(memory.writing)? + 2 * groups;
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
        let arena = Arena::file_backed(run_dir.path(), geometry, &owner)?;
        // The daemon does this while the first samples are taken.
        arena.pages().populate();
        let (senders, receivers) = (0..groups).map(|_| slab_queue(queue_slabs, on_full)).unzip();
        let counters = names.iter().map(|name| SourceMetrics::new((*name).to_owned(), period_ns));
        Ok(Self {
            metrics: Arc::new(Metrics::new(counters, names.len(), Box::default())),
            wall_offset: Arc::new(WallOffset::new(&read_clocks())),
            begun: arena.sequence_counters(),
            pool: Arc::new(SlabPool::new(arena)),
            wake: Arc::new(WakeEvent::new()),
            ledger: Arc::new(LossLedger::new(names.len())),
            senders,
            receivers,
            config,
            names: names.to_vec(),
            period_ns,
            _run_dir: run_dir,
        })
    }

    /// Returns the next group's end of its queue. If it waits for free space at all, it waits until
    /// `stop`.
    pub fn slab_producer(&mut self, stop: &Arc<WakeEvent>) -> Result<SlabProducer, Box<dyn Error>> {
        Ok(SlabProducer::new(SlabProducerSettings {
            pool: Arc::clone(&self.pool),
            queue: self.senders.pop().ok_or("more groups than queues")?,
            ledger: Arc::clone(&self.ledger),
            wake: Arc::clone(&self.wake),
            checksum: CHECKSUM,
            frame_max: self.config.storage.frame_max,
            flush_interval_ns: self.config.buffering.flush_interval.as_nanos() as u64,
            sequence_counters: Arc::clone(&self.begun),
            sources: self.names.len(),
            metrics: Arc::new(GroupMetrics::default()),
            stop: Arc::clone(stop),
        }))
    }

    /// Creates a group of these samplers, all of one period.
    pub fn group(&mut self, mut sources: Vec<GroupSource>) -> Result<ReadyGroup, Box<dyn Error>> {
        for source in &mut sources {
            let counters =
                self.metrics.sources.get(usize::from(source.id)).ok_or("a source without a name")?;
            source.metrics = Arc::clone(counters);
        }
        let ids: Vec<u16> = sources.iter().map(|source| source.id).collect();
        let (producer, latencies) = exchange(|| GroupLatencies::new(ids.iter().copied()));
        let stop = Arc::new(WakeEvent::new());
        let start_ns = monotonic_ns();
        let group = SamplerGroup::new(GroupSettings {
            sources,
            name: GroupName::Fast,
            thread: self.config.thread(GroupName::Fast),
            start_ns,
            wall_offset: Arc::clone(&self.wall_offset),
            producer: self.slab_producer(&stop)?,
            metrics: Arc::clone(&self.metrics),
            latencies: producer,
            commands: CommandReceiver::stop_only(Arc::clone(&stop)),
        })?;
        Ok(ReadyGroup { group, latencies, stop, start_ns })
    }

    /// Returns the recorder's end of the queues, for a consumer that replaces the recorder.
    pub fn inbox(&mut self) -> Inbox {
        Inbox::new(std::mem::take(&mut self.receivers))
    }

    /// Starts the recorder on `storage`. It ends when all groups have ended.
    pub fn record(
        self,
        storage: Arc<dyn Storage>,
        retain_bytes: u64,
    ) -> Result<RecorderThread, Box<dyn Error>> {
        let limits = RetentionLimits { bytes: retain_bytes, ..RetentionLimits::NONE };
        let recorder = Recorder::start(RecorderSettings {
            plan: self.plan()?,
            storage: Arc::new(QuotaStorage::new(storage, limits)),
            inbox: Inbox::new(self.receivers),
            pool: self.pool,
            ledger: self.ledger,
            wake: self.wake,
            metrics: self.metrics,
            latencies: Vec::new(),
            clock_watch: Box::new(ClockChangeTimer::start()?),
            wall_offset: self.wall_offset,
            commands: command_queue(Arc::default()).1,
            rules: RecorderRules::default(),
            ring: None,
        })?;
        Ok(RecorderThread { thread: thread::spawn("recorder", move || recorder.run())? })
    }

    fn plan(&self) -> Result<RunPlan, Box<dyn Error>> {
        let (storage, buffering) = (&self.config.storage, &self.config.buffering);
        let clocks = read_clocks();
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
        let header = SegmentHeader {
            segment: 0,
            run_id: RUN_ID,
            host: HostName { name: "bench".to_owned(), machine_id: None, boot_id: None, labels: Vec::new() },
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            checksum: CHECKSUM,
            frame_max: storage.frame_max,
            clocks,
            reorder_window_ns: NS_PER_S,
            sources: (0..).zip(&self.names).map(source).collect(),
            clock_table: vec![clocks],
            recorder_pid: 0,
        };
        Ok(RunPlan {
            header,
            attachments: Vec::new(),
            segment_bytes: storage.segment_size,
            segment_age_ns: storage.segment_age.as_nanos() as u64,
            sync: SyncPolicy::Interval(NS_PER_S),
            preallocate: storage.preallocate,
            compression: None,
            poll_interval_ns: buffering.poll_interval.as_nanos() as u64,
            batches: Vec::new(),
            batch_slabs: usize::try_from(MemoryBudget::of(&self.config).writing)?,
        })
    }
}

impl RecorderThread {
    /// Waits until everything is on disk, and checks that recorded + lost = begun.
    pub fn finish(self) -> Result<RecorderReport, Box<dyn Error>> {
        let report = self.thread.join().map_err(|_panic| "the recorder ended by a panic")?;
        for source in &report.sources {
            crate::numbers::ensure_equal(
                &format!("{}: recorded + lost", source.metrics.name),
                source.metrics.recorded.get() + source.lost(),
                source.metrics.begun.get(),
            )?;
        }
        crate::numbers::ensure_equal("storage errors", report.metrics.recorder.storage_errors.get(), 0)?;
        Ok(report)
    }
}
