//! The threads of a run, which are created, started and ended in order.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use flatcap_format::segment::SegmentHeader;
use flatcap_metrics::{Consumer, GroupLatencies, GroupMetrics, Metrics, SourceMetrics, exchange};
use flatcap_os::clock::{ClockChangeTimer, WallOffset, monotonic_ns};
use flatcap_os::wake_event::WakeEvent;
use flatcap_os::{memory, thread};
use flatcap_recorder::compress::CompressWorkerHandle;
use flatcap_recorder::ingest::LeftLane;
use flatcap_recorder::snapshot::SnapshotHandle;
use flatcap_recorder::{
    QuotaStorage, Recorder, RecorderHandle, RecorderReport, RecorderRules, RecorderSettings, RingSettings,
    RunPlan, Thinner, command_queue, flush_until,
};
use flatcap_sampling::{GroupHandle, GroupName, GroupSettings, GroupSource, SamplerGroup, command_channel};
use flatcap_slab::{
    Arena, Inbox, LossLedger, OnFull, QueueReceiver, QueueSender, RunNotes, SequenceCounters, Slab, SlabPool,
    SlabProducer, SlabProducerSettings, slab_queue,
};

use super::error::{DaemonError, cannot_start};
use super::lane_store::LaneStore;
use super::memory_budget::{MemoryBudget, RUN_SOURCES_MAX};
use super::push::{PushPlace, PushThread};
use super::push_target::RunTarget;
use super::ring::{ring_plan, thinned_plan};
use super::rule_programs::ProgramStarter;
use super::rules::{FiringTargets, compile_rules};
use super::run_sources::{RunSources, SourceReceiver};
use super::settings::{
    assert_slabs, count, header, lock_memory, nanoseconds, queues, remove_memory, run_plan,
};
use super::sources::OpenedSource;
use crate::config::Config;

/// Maximum time for the samplers to end. A sampler that is stopped first completes its current
/// read. If a read hangs in the kernel, its sampler is abandoned after this time.
const SAMPLERS_STOP_MAX_NS: u64 = 5_000_000_000;
/// Maximum time for the recorder to write and sync the queued slabs. The recorder is abandoned
/// after this time.
const RECORDER_STOP_MAX_NS: u64 = 60_000_000_000;

/// The storage that a run records to.
pub(super) struct RunStorage {
    pub(super) storage: Arc<QuotaStorage>,
    pub(super) directory: (u64, u64), // device and inode
    pub(super) data_dir: Arc<Path>,
    /// The compressors of the recording and of the ring, if there is a ring.
    pub(super) compressors: (CompressWorkerHandle, Option<CompressWorkerHandle>),
    /// The storage of the ring and its counters, if there is a ring.
    pub(super) ring: Option<(Arc<QuotaStorage>, Arc<Metrics>)>,
    /// Requests snapshots of the ring; `None` without a ring.
    pub(super) snapshots: Option<SnapshotHandle>,
    /// The queue for the lanes of killed runs.
    pub(super) left_lanes: Sender<LeftLane>,
    /// The service manager's store for the memory of lanes.
    pub(super) lane_store: Arc<LaneStore>,
}

/// The threads of a run.
pub(super) struct RunThreads {
    pub(super) start_ns: u64,
    /// The header of the first segment.
    pub(super) header: SegmentHeader,
    /// The handles through which the threads receive commands.
    pub(super) handles: RunHandles,
    stop: Arc<WakeEvent>,
    mapper: Option<JoinHandle<()>>,
    samplers: Vec<(String, JoinHandle<()>)>,
    push: Option<PushThread>,
    ring: Option<JoinHandle<RecorderReport>>,
    recorder: JoinHandle<RecorderReport>,
}

/// Handles of the threads of a running recorder.
#[derive(Clone)]
pub(super) struct RunHandles {
    /// The groups, in the order of [`GroupName::ALL`].
    pub(super) groups: Vec<(GroupName, GroupHandle)>,
    /// All sources of the run so far.
    pub(super) sources: Arc<RunSources>,
    /// The recorder's command queue.
    pub(super) commands: RecorderHandle,
    /// The command queue of the ring's recorder; `None` without a ring.
    pub(super) ring: Option<RecorderHandle>,
    /// Requests snapshots of the ring; `None` without a ring.
    pub(super) snapshots: Option<SnapshotHandle>,
    /// The receivers of rule firings.
    pub(super) firings: FiringTargets,
    /// The counters of the ring.
    pub(super) ring_metrics: Option<Arc<Metrics>>,
    /// The compressors of the recording and of the ring, if there is a ring.
    pub(super) compressors: (CompressWorkerHandle, Option<CompressWorkerHandle>),
}

/// The parts that all groups share with the recorder.
#[derive(Clone)]
struct GroupShared {
    sources: usize, // at the start
    begun: Arc<SequenceCounters>,
    pool: Arc<SlabPool>,
    ledger: Arc<LossLedger>,
    wake: Arc<WakeEvent>,
    stop: Arc<WakeEvent>,
}

/// The connection from the ring's recorder to the recorder of the data directory.
struct PassedOn {
    queue: QueueReceiver<Box<Slab>>,
    ledger: Arc<LossLedger>,
    wake: Arc<WakeEvent>,
    thinner: Thinner,
}

impl PassedOn {
    fn new(config: &Config, shared: &GroupShared, memory: &MemoryBudget) -> Self {
        // If this queue is full, the disk has stalled for long. The newest samples are dropped
        // here, because they are in the ring.
        let (sender, queue) = slab_queue(count(memory.disk_queue), OnFull::DropNewest);
        let ledger = Arc::new(LossLedger::new(count(RUN_SOURCES_MAX)));
        let wake = Arc::new(WakeEvent::new());
        let disk_period_ns = nanoseconds(config.blackbox.disk_period);
        let shared = GroupShared { ledger: Arc::clone(&ledger), wake: Arc::clone(&wake), ..shared.clone() };
        let settings = SlabProducerSettings {
            // The interval is at least `disk_period`, so that one slab contains the samples of
            // several sources of one interval.
            flush_interval_ns: nanoseconds(config.buffering.flush_interval).max(disk_period_ns),
            ..producer_settings(config, &shared, sender, &Arc::default())
        };
        let frames = (config.storage.checksum, config.storage.frame_max);
        let sources = count(RUN_SOURCES_MAX);
        let thinner = Thinner::new(SlabProducer::new(settings), frames, disk_period_ns, sources);
        Self { queue, ledger, wake, thinner }
    }
}

/// Inputs of the recorders that are not shared with the groups.
struct RecorderInputs<'a> {
    header: &'a SegmentHeader,
    wall_offset: &'a Arc<WallOffset>,
    receivers: Vec<QueueReceiver<Box<Slab>>>,
    latencies: Vec<Consumer<GroupLatencies>>,
}

/// The recorder of the data directory and, if there is a ring, the ring's recorder.
struct Recorders {
    recorder: JoinHandle<RecorderReport>,
    commands: RecorderHandle,
    ring: Option<JoinHandle<RecorderReport>>,
    ring_commands: Option<RecorderHandle>,
    firings: FiringTargets,
}

impl Recorders {
    fn start(
        config: &Config,
        place: &RunStorage,
        shared: &GroupShared,
        metrics: &Arc<Metrics>,
        inputs: RecorderInputs<'_>,
    ) -> Result<Self, DaemonError> {
        let RecorderInputs { header, wall_offset, receivers, latencies } = inputs;
        let memory = MemoryBudget::of(config);
        let plan = run_plan(config, &memory, header.clone());
        let mut firings = FiringTargets {
            disk: None,
            snapshots: place.snapshots.clone(),
            programs: ProgramStarter::new(&header.host.name, &place.data_dir),
        };
        let of_groups = (receivers, Arc::clone(&shared.ledger), Arc::clone(&shared.wake));
        // With a ring, the ring's recorder takes the samplers' slabs, and the other recorder takes
        // the thinned samples.
        let Some((storage, ring_metrics)) = place.ring.clone() else {
            let (settings, commands) =
                recorder_settings(plan, &place.storage, shared, of_groups, (metrics, wall_offset))?;
            let rules = compile_rules(config, &header.sources, |_| true, firings.clone());
            let recorder = start_recorder("recorder", RecorderSettings { latencies, rules, ..settings })?;
            return Ok(Self { recorder, commands, ring: None, ring_commands: None, firings });
        };
        let PassedOn { queue, ledger, wake, thinner } = PassedOn::new(config, shared, &memory);
        let ring_plan = ring_plan(config, &plan);
        let thinned_plan = thinned_plan(config, plan);
        let passed_on = (vec![queue], ledger, wake);
        let (settings, commands) =
            recorder_settings(thinned_plan, &place.storage, shared, passed_on, (metrics, wall_offset))?;
        let recorder = start_recorder("recorder", RecorderSettings { latencies, ..settings })?;
        firings.disk = Some(commands.clone());
        // Samplers use the wall offset from the recorder of the data directory, so the ring's
        // recorder gets its own offset.
        let own_offset = Arc::new(WallOffset::new(&header.clocks));
        let (settings, ring_commands) =
            recorder_settings(ring_plan, &storage, shared, of_groups, (&ring_metrics, &own_offset))?;
        let settings = RecorderSettings {
            // The ring's recorder evaluates the rules, because it receives every sample.
            rules: compile_rules(config, &header.sources, |_| true, firings.clone()),
            ring: Some(RingSettings { thinner, sampled: Arc::clone(metrics) }),
            ..settings
        };
        let ring = start_recorder("ring", settings)?;
        Ok(Self { recorder, commands, ring: Some(ring), ring_commands: Some(ring_commands), firings })
    }
}

/// Returns the settings of a recorder without rules and ring, and the handle for its commands. The
/// recorder takes slabs from queues and is woken by an event. A ledger counts the losses of the
/// queues.
fn recorder_settings(
    plan: RunPlan,
    storage: &Arc<QuotaStorage>,
    shared: &GroupShared,
    (queues, ledger, wake): (Vec<QueueReceiver<Box<Slab>>>, Arc<LossLedger>, Arc<WakeEvent>),
    (metrics, wall_offset): (&Arc<Metrics>, &Arc<WallOffset>),
) -> Result<(RecorderSettings, RecorderHandle), DaemonError> {
    let (handle, commands) = command_queue(Arc::clone(&wake));
    let clock_watch = ClockChangeTimer::start().map_err(cannot_start("the wall clock watch"))?;
    let settings = RecorderSettings {
        plan,
        storage: Arc::clone(storage),
        inbox: Inbox::new(queues),
        pool: Arc::clone(&shared.pool),
        ledger,
        wake,
        metrics: Arc::clone(metrics),
        latencies: Vec::new(),
        clock_watch: Box::new(clock_watch),
        wall_offset: Arc::clone(wall_offset),
        commands,
        rules: RecorderRules::default(),
        ring: None,
    };
    Ok((settings, handle))
}

/// Returns the sources at the start, and the recorders to notify of sources that are added later.
fn run_sources(
    config: &Config,
    header: &SegmentHeader,
    recorders: &Recorders,
    place: &RunStorage,
    (metrics, notes): (&Arc<Metrics>, Option<RunNotes>),
) -> RunSources {
    let ring_metrics = place.ring.as_ref().map(|(_, metrics)| Arc::clone(metrics));
    let thinned_ns = if ring_metrics.is_some() { nanoseconds(config.blackbox.disk_period) } else { 0 };
    let receiver = |recorder: &RecorderHandle, period_min_ns| SourceReceiver {
        recorder: recorder.clone(),
        period_min_ns,
    };
    let ring = recorders.ring_commands.iter().map(|recorder| receiver(recorder, 0));
    let receivers = ring.chain([receiver(&recorders.commands, thinned_ns)]).collect();
    RunSources::new(header.sources.clone(), Arc::clone(metrics), ring_metrics, receivers, notes)
}

/// Returns this run's settings for the thread of pushed frames.
fn push_place(
    config: &Config,
    place: &RunStorage,
    run_id: u64,
    (sources, recorders): (&Arc<RunSources>, &Recorders),
    wall_offset: &Arc<WallOffset>,
) -> PushPlace {
    let target = RunTarget {
        sources: Arc::clone(sources),
        recorders: recorders.ring_commands.iter().chain([&recorders.commands]).cloned().collect(),
        snapshots: place.snapshots.clone(),
        window: config.blackbox.window,
        wall_offset: Arc::clone(wall_offset),
        left_lanes: place.left_lanes.clone(),
        lane_store: Arc::clone(&place.lane_store),
    };
    PushPlace { run_id, directory: place.directory, wall_offset: Arc::clone(wall_offset), target }
}

/// Opens the first segment, and starts the thread that records.
fn start_recorder(
    name: &'static str,
    settings: RecorderSettings,
) -> Result<JoinHandle<RecorderReport>, DaemonError> {
    let recorder = Recorder::start(settings).map_err(cannot_start("the first segment"))?;
    thread::spawn(name, move || recorder.run()).map_err(cannot_start("the recorder"))
}

/// Returns the settings of a group's producer.
fn producer_settings(
    config: &Config,
    shared: &GroupShared,
    queue: QueueSender<Box<Slab>>,
    counters: &Arc<GroupMetrics>,
) -> SlabProducerSettings {
    SlabProducerSettings {
        pool: Arc::clone(&shared.pool),
        queue,
        ledger: Arc::clone(&shared.ledger),
        wake: Arc::clone(&shared.wake),
        checksum: config.storage.checksum,
        frame_max: config.storage.frame_max,
        flush_interval_ns: nanoseconds(config.buffering.flush_interval),
        sequence_counters: Arc::clone(&shared.begun),
        sources: shared.sources,
        metrics: Arc::clone(counters),
        stop: Arc::clone(&shared.stop),
    }
}

impl RunThreads {
    /// Starts the recorder and then the samplers of a run with this id and memory.
    #[allow(clippy::too_many_lines, reason = "the order in which the threads start, in one place")]
    pub(super) fn start(
        config: &Config,
        sources: Vec<OpenedSource>,
        place: &RunStorage,
        (run_id, mut arena): (u64, Arena),
        metrics: &Arc<Metrics>,
    ) -> Result<Self, DaemonError> {
        let stop = Arc::new(WakeEvent::new());
        let memory = MemoryBudget::of(config);
        let (pages, notes) = (arena.pages(), arena.take_notes());
        let shared = GroupShared {
            sources: sources.len(),
            begun: arena.sequence_counters(),
            pool: Arc::new(SlabPool::new(arena)),
            ledger: Arc::new(LossLedger::new(count(RUN_SOURCES_MAX))),
            wake: Arc::new(WakeEvent::new()),
            stop: Arc::clone(&stop),
        };
        let header = header(config, run_id, sources.iter().map(|source| source.info.clone()).collect());
        let wall_offset = Arc::new(WallOffset::new(&header.clocks));
        let (groups, latencies) = groups(sources, metrics);
        let (senders, mut receivers) = queues(config, &memory, groups.iter().map(|group| group.name));
        let new_queue = || slab_queue(count(memory.push_queue), OnFull::DropNewest);
        let (push_queue, pushed) = config.push.enabled.then(new_queue).unzip();
        receivers.extend(pushed);
        assert_slabs(&shared.pool, &receivers, &memory);
        let inputs = RecorderInputs { header: &header, wall_offset: &wall_offset, receivers, latencies };
        let recorders = Recorders::start(config, place, &shared, metrics, inputs)
            // The memory holds no samples yet. It is removed, because repeated restarts must not
            // fill tmpfs.
            .inspect_err(|_| remove_memory(config, run_id))?;
        // Memory is locked before the first tick, because page faults block during the call. The
        // memory that threads add later is small.
        let is_locked = lock_memory(config, memory::lock_mapped_memory);
        let start_ns = monotonic_ns();
        let mut samplers = Vec::new();
        let mut handles = Vec::new();
        for ((group, queue), counters) in groups.into_iter().zip(senders).zip(&metrics.groups) {
            let name = format!("sampler-{}", group.name.as_str());
            let (handle, commands) = command_channel(Arc::clone(&stop));
            handles.push((group.name, handle));
            let group = SamplerGroup::new(GroupSettings {
                name: group.name,
                thread: config.thread(group.name),
                sources: group.sources,
                start_ns,
                wall_offset: Arc::clone(&wall_offset),
                producer: SlabProducer::new(producer_settings(config, &shared, queue, counters)),
                metrics: Arc::clone(metrics),
                latencies: group.latencies,
                commands,
            })
            .map_err(cannot_start("a thread for a blocking source"))?;
            let thread = thread::spawn(&name, move || group.run()).map_err(cannot_start("a sampler"))?;
            samplers.push((name, thread));
        }
        // The mapper runs concurrently with the first samples, because mapping all pages takes
        // longer than a start may take. The first samples need only a few pages. A thread that
        // needs a page before it is mapped waits for that page.
        let mapper = thread::spawn("map-slabs", move || pages.populate())
            .inspect_err(|error| tracing::warn!(%error, "cannot start the thread that maps the slabs ahead"))
            .ok();
        if is_locked {
            lock_memory(config, memory::lock_memory_on_fault);
        }
        let run_sources = Arc::new(run_sources(config, &header, &recorders, place, (metrics, notes)));
        let push = push_queue.and_then(|queue| {
            let producer = producer_settings(config, &shared, queue, &metrics.push_group);
            let target = push_place(config, place, run_id, (&run_sources, &recorders), &wall_offset);
            let ring = place.ring.as_ref().map(|(_, metrics)| &**metrics);
            PushThread::start(config, target, SlabProducer::new(producer), (metrics, ring))
        });
        let controls = RunHandles {
            groups: handles,
            sources: run_sources,
            commands: recorders.commands,
            ring: recorders.ring_commands,
            snapshots: place.snapshots.clone(),
            firings: recorders.firings,
            ring_metrics: place.ring.as_ref().map(|(_, metrics)| Arc::clone(metrics)),
            compressors: place.compressors.clone(),
        };
        let Recorders { recorder, ring, .. } = recorders;
        Ok(Self { start_ns, header, handles: controls, stop, mapper, samplers, push, ring, recorder })
    }

    /// Returns whether a thread has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        self.recorder.is_finished()
            || self.ring.as_ref().is_some_and(JoinHandle::is_finished)
            || self.samplers.iter().any(|(_, thread)| thread.is_finished())
            || self.push.as_ref().is_some_and(|push| push.thread.is_finished())
    }

    /// Stops the samplers. No sample begins from now on.
    pub(super) fn stop(&self) {
        self.stop.set();
        self.handles.groups.iter().for_each(|(_, link)| link.wake());
        self.push.iter().for_each(|push| push.stop.stop());
    }

    /// Stops the samplers and joins all threads: first the threads that fill queues, then the
    /// recorders that read the queues. While waiting, calls `meanwhile` with the current time.
    pub(super) fn finish(self, meanwhile: &mut dyn FnMut(u64)) -> Result<RecorderReport, DaemonError> {
        self.stop();
        let limit = (monotonic_ns() + SAMPLERS_STOP_MAX_NS, SAMPLERS_STOP_MAX_NS);
        let push = self.push.map(|push| ("push".to_owned(), push.thread));
        let (mut ended, mut is_stuck) = (Ok(()), false);
        for (name, thread) in self.samplers.into_iter().chain(push) {
            let joined = join(name, thread, limit, meanwhile);
            is_stuck |= matches!(joined, Err(DaemonError::ThreadStuck { .. }));
            ended = ended.and(joined);
        }
        if let Some(mapper) = self.mapper {
            ended = ended.and(join("map-slabs".to_owned(), mapper, limit, meanwhile));
        }
        let mut ended = match ended {
            Err(error) if is_stuck => {
                // The thread was abandoned and keeps its end of the queue, so the recorder does not
                // end when the queue is empty. The recorder still writes the queued slabs. The next
                // start recovers the slab that the thread was filling from the memory of the run.
                let deadline_ns = monotonic_ns() + RECORDER_STOP_MAX_NS;
                let (recorder, ring) = (&self.handles.commands, self.handles.ring.as_ref());
                if !flush_until(recorder, ring, deadline_ns, meanwhile) {
                    tracing::warn!("cannot write all samples; the next start takes them from run_dir");
                }
                return Err(error);
            }
            ended => ended,
        };
        if let Some(ring) = self.ring {
            let deadline_ns = monotonic_ns() + RECORDER_STOP_MAX_NS;
            let limit = (deadline_ns, RECORDER_STOP_MAX_NS);
            ended = ended.and(join("ring".to_owned(), ring, limit, meanwhile).map(drop));
        }
        let deadline_ns = monotonic_ns() + RECORDER_STOP_MAX_NS;
        let limit = (deadline_ns, RECORDER_STOP_MAX_NS);
        let report = join("recorder".to_owned(), self.recorder, limit, meanwhile)?;
        ended.map(|()| report)
    }
}

/// Joins a thread, and waits for it until the deadline. `waited_ns` is the time from the start of
/// the wait to the deadline.
fn join<T>(
    name: String,
    thread: JoinHandle<T>,
    (deadline_ns, waited_ns): (u64, u64),
    meanwhile: &mut dyn FnMut(u64),
) -> Result<T, DaemonError> {
    if !thread::wait_for_exit(&thread, deadline_ns, meanwhile) {
        return Err(DaemonError::ThreadStuck { name, seconds: waited_ns / 1_000_000_000 });
    }
    thread.join().map_err(|_panic| DaemonError::ThreadEnded { name })
}

struct OpenedGroup {
    name: GroupName,
    sources: Vec<GroupSource>,
    latencies: flatcap_metrics::Producer<GroupLatencies>,
}

/// Converts an opened source to a source of a group.
pub(super) fn group_source(source: OpenedSource, metrics: Arc<SourceMetrics>) -> GroupSource {
    let offloaded = (source.config.group() == GroupName::Blocking)
        .then(|| (format!("read-{}", source.info.name), nanoseconds(source.config.read_timeout())));
    GroupSource {
        id: source.info.id,
        period_ns: source.info.period_ns,
        budget: source.config.budget.basis_points(),
        sampler: source.sampler,
        offloaded,
        metrics,
    }
}

/// Assigns the sources to their groups. Groups without sources get a thread too, because a reload
/// may add some.
fn groups(
    sources: Vec<OpenedSource>,
    metrics: &Metrics,
) -> (Vec<OpenedGroup>, Vec<Consumer<GroupLatencies>>) {
    let mut sorted: Vec<(GroupName, Vec<GroupSource>)> =
        GroupName::ALL.iter().map(|name| (*name, Vec::new())).collect();
    for source in sources {
        let name = source.config.group();
        let counters = metrics.sources.get(usize::from(source.info.id)).cloned();
        if let (Some((_, members)), Some(counters)) =
            (sorted.iter_mut().find(|(group, _)| *group == name), counters)
        {
            members.push(group_source(source, counters));
        }
    }
    sorted
        .into_iter()
        .map(|(name, sources)| {
            let ids: Vec<u16> = sources.iter().map(|source| source.id).collect();
            let (latencies, consumer) = exchange(|| GroupLatencies::new(ids.iter().copied()));
            (OpenedGroup { name, sources, latencies }, consumer)
        })
        .unzip()
}
