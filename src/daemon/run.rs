//! The threads of a run: created, started and ended in order.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use flatcap_format::segment::SegmentHeader;

use super::error::{DaemonError, cannot_start};
use super::memory_budget::{MemoryBudget, RUN_SOURCES_MAX};
use super::rules::compile_rules;
use super::settings::{assert_slabs, count, header, nanoseconds, queues, remove_memory, run_plan};
use super::sources::OpenedSource;
use crate::compress::CompressWorkerHandle;
use crate::config::Config;
use crate::metrics::{Consumer, GroupLatencies, GroupMetrics, Metrics, SourceMetrics, exchange};
use crate::os::clock::{ClockChangeTimer, WallOffset, monotonic_ns};
use crate::os::memory;
use crate::os::thread;
use crate::os::wake_event::WakeEvent;
use crate::recorder::{
    QuotaStorage, Recorder, RecorderHandle, RecorderReport, RecorderSettings, command_queue,
};
use crate::sampling::{GroupHandle, GroupName, GroupSettings, GroupSource, SamplerGroup, command_channel};
use crate::slab::{
    Arena, Inbox, LossLedger, QueueSender, SequenceCounters, Slab, SlabPool, SlabProducer,
    SlabProducerSettings,
};

/// Longest time that the samplers may take to end. They need the time of one read; one that hangs
/// in the kernel is abandoned after this.
const SAMPLERS_STOP_MAX_NS: u64 = 5_000_000_000;
/// Longest time that the recorder may take to write and sync the queued slabs. It is abandoned
/// after this.
const RECORDER_STOP_MAX_NS: u64 = 60_000_000_000;

/// Locks memory against swapping, if configured. Returns whether it succeeded.
pub(super) fn lock_memory(config: &Config, lock: fn() -> io::Result<()>) -> bool {
    if !config.recorder.lock_memory {
        return false;
    }
    let result = lock();
    if let Err(error) = &result {
        tracing::warn!(
            %error,
            "[recorder] lock_memory = true: the kernel refuses to lock all memory, some may be swapped out; grant CAP_IPC_LOCK, or set \
             LimitMEMLOCK=infinity for the service"
        );
    }
    result.is_ok()
}

/// The storage that a run records to.
pub(super) struct RunStorage {
    pub(super) storage: Arc<QuotaStorage>,
    pub(super) directory: (u64, u64), // device and inode
    pub(super) compressor: CompressWorkerHandle,
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
    recorder: JoinHandle<RecorderReport>,
}

/// Handles of the threads of a running recorder.
#[derive(Clone)]
pub(super) struct RunHandles {
    /// The groups, in the order of [`GroupName::ALL`].
    pub(super) groups: Vec<(GroupName, GroupHandle)>,
    /// The recorder's command queue.
    pub(super) commands: RecorderHandle,
    /// The compressor.
    pub(super) compressor: CompressWorkerHandle,
}

/// The parts that the groups share with the recorder.
struct GroupShared {
    sources: usize,
    begun: Arc<SequenceCounters>,
    pool: Arc<SlabPool>,
    ledger: Arc<LossLedger>,
    wake: Arc<WakeEvent>,
    stop: Arc<WakeEvent>,
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
    /// Starts the recorder and then the samplers of the run with this id and memory.
    pub(super) fn start(
        config: &Config,
        sources: Vec<OpenedSource>,
        place: &RunStorage,
        (run_id, arena): (u64, Arena),
        metrics: &Arc<Metrics>,
    ) -> Result<Self, DaemonError> {
        let stop = Arc::new(WakeEvent::new());
        let memory = MemoryBudget::of(config);
        let pages = arena.pages();
        let shared = GroupShared {
            sources: count(RUN_SOURCES_MAX),
            begun: arena.sequence_counters(),
            pool: Arc::new(SlabPool::new(arena)),
            ledger: Arc::new(LossLedger::new(count(RUN_SOURCES_MAX))),
            wake: Arc::new(WakeEvent::new()),
            stop: Arc::clone(&stop),
        };
        let header = header(config, run_id, sources.iter().map(|source| source.info.clone()).collect());
        let wall_offset = Arc::new(WallOffset::new(&header.clocks));
        let plan = run_plan(config, &memory, header.clone());
        let rules = compile_rules(config, &header.sources, |_| true);
        let (groups, latencies) = groups(sources, metrics);
        let (recorder_commands, command_receiver) = command_queue(Arc::clone(&shared.wake));
        let (senders, receivers) = queues(config, &memory, groups.iter().map(|group| group.name));
        assert_slabs(&shared.pool, &receivers, &memory);
        let recorder = Recorder::start(RecorderSettings {
            plan,
            storage: Arc::clone(&place.storage),
            inbox: Inbox::new(receivers),
            pool: Arc::clone(&shared.pool),
            ledger: Arc::clone(&shared.ledger),
            wake: Arc::clone(&shared.wake),
            metrics: Arc::clone(metrics),
            latencies,
            clock_watch: Box::new(ClockChangeTimer::start().map_err(cannot_start("the wall clock watch"))?),
            wall_offset: Arc::clone(&wall_offset),
            commands: command_receiver,
            rules,
        })
        // It holds no samples yet, and repeated restarts must not fill tmpfs.
        .inspect_err(|_| remove_memory(config, run_id))
        .map_err(cannot_start("the first segment"))?;
        let recorder =
            thread::spawn("recorder", move || recorder.run()).map_err(cannot_start("the recorder"))?;
        // Before the first tick, since page faults block meanwhile. Memory that comes with the
        // threads is small.
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
                thread: config.groups.get(group.name).thread(),
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
        // Runs beside the first samples, which need only a few pages: mapping all pages takes
        // longer than a start may. A thread that needs a page earlier, or without this thread,
        // waits for that page then.
        let mapper = thread::spawn("map-slabs", move || pages.populate())
            .inspect_err(|error| tracing::warn!(%error, "cannot start the thread that maps the slabs ahead"))
            .ok();
        if is_locked {
            lock_memory(config, memory::lock_memory_on_fault);
        }
        let controls =
            RunHandles { groups: handles, commands: recorder_commands, compressor: place.compressor.clone() };
        Ok(Self { start_ns, header, handles: controls, stop, mapper, samplers, recorder })
    }

    /// Whether a thread has ended on its own.
    pub(super) fn has_ended(&self) -> bool {
        self.recorder.is_finished() || self.samplers.iter().any(|(_, thread)| thread.is_finished())
    }

    /// Makes the samplers end: no sample begins from now on.
    pub(super) fn stop(&self) {
        self.stop.set();
        self.handles.groups.iter().for_each(|(_, link)| link.wake());
    }

    /// Stops the samplers and joins all threads in order of ownership. Calls `meanwhile` with the
    /// time while it waits.
    pub(super) fn finish(self, meanwhile: &mut dyn FnMut(u64)) -> Result<RecorderReport, DaemonError> {
        self.stop();
        let mut ended = Ok(());
        let deadline_ns = monotonic_ns() + SAMPLERS_STOP_MAX_NS;
        for (name, thread) in self.samplers {
            let joined = join(name, thread, (deadline_ns, SAMPLERS_STOP_MAX_NS), meanwhile);
            ended = ended.and(joined);
        }
        if let Some(mapper) = self.mapper {
            let limit = (deadline_ns, SAMPLERS_STOP_MAX_NS);
            ended = ended.and(join("map-slabs".to_owned(), mapper, limit, meanwhile));
        }
        let deadline_ns = monotonic_ns() + RECORDER_STOP_MAX_NS;
        let limit = (deadline_ns, RECORDER_STOP_MAX_NS);
        let report = join("recorder".to_owned(), self.recorder, limit, meanwhile)?;
        ended.map(|()| report)
    }
}

/// Joins a thread, waiting until the deadline, which is `waited_ns` from the start of the wait.
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
    latencies: crate::metrics::Producer<GroupLatencies>,
}

/// Prepares a source for its group.
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

/// Sorts the sources into their groups. Groups without sources get a thread too: a reload may add
/// some.
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
