//! The threads of a run: built, started, ended in order.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::error::{DaemonError, start};
use super::plan::{
    assert_slabs, count, forget_memory, hand_over_settings, header, nanoseconds, queues, run_plan,
};
use super::sources::OpenedSource;
use crate::config::{Config, GroupName, RUN_SOURCES_MAX};
use crate::metrics::{Consumer, GroupLatencies, Metrics, SourceMetrics, exchange};
use crate::os::clock::{ClockTimer, WallOffset, monotonic_ns};
use crate::os::event::Event;
use crate::os::memory;
use crate::os::thread;
use crate::recorder::{Capped, Orders, Recorder, RecorderReport, RecorderSettings, orders};
use crate::sampling::{Group, GroupLink, GroupSettings, GroupSource, mailbox};
use crate::seal::Link;
use crate::segment::Header;
use crate::slab::{Arena, Begun, HandOver, Inbox, LossLedger, SlabPool};

/// The samplers end within one reading of the stop; one that hangs in the kernel is given up after this.
const SAMPLERS_STOP_MAX_NS: u64 = 5_000_000_000;
/// The recorder writes what is queued and syncs it; a storage that takes longer is given up after this.
const RECORDER_STOP_MAX_NS: u64 = 60_000_000_000;

/// Keeps memory from being swapped out, if that is wanted.
pub(super) fn lock_memory(config: &Config, lock: fn() -> io::Result<()>) -> bool {
    if !config.agent.lock_memory {
        return false;
    }
    let result = lock();
    if let Err(error) = &result {
        tracing::warn!(
            %error,
            "[agent] lock_memory = true: the kernel refuses to lock all of it, some may be swapped out; grant CAP_IPC_LOCK, or set \
             LimitMEMLOCK=infinity for the service"
        );
    }
    result.is_ok()
}

/// Where a run records to.
pub(super) struct Place {
    pub(super) storage: Arc<Capped>,
    pub(super) directory: (u64, u64), // device and inode
    pub(super) sealer: Link,
}

/// The threads of a run.
pub(super) struct Run {
    pub(super) start_ns: u64,
    /// The header of the first segment.
    pub(super) header: Header,
    /// By which the threads are told what else to do.
    pub(super) controls: Controls,
    stop: Arc<Event>,
    mapper: Option<JoinHandle<()>>,
    samplers: Vec<(String, JoinHandle<()>)>,
    recorder: JoinHandle<RecorderReport>,
}

/// The ways to the threads of a run that goes on.
#[derive(Clone)]
pub(super) struct Controls {
    /// To each group, in the order of [`GroupName::ALL`].
    pub(super) groups: Vec<(GroupName, GroupLink)>,
    /// To the recorder.
    pub(super) orders: Orders,
    /// To the sealer.
    pub(super) sealer: Link,
}

/// What the groups share with the recorder.
pub(super) struct Shared {
    pub(super) sources: usize,
    pub(super) begun: Arc<Begun>,
    pub(super) pool: Arc<SlabPool>,
    pub(super) ledger: Arc<LossLedger>,
    pub(super) wake: Arc<Event>,
    pub(super) stop: Arc<Event>,
}

impl Run {
    /// Starts the recorder, then the samplers, of the run with this id and this memory.
    pub(super) fn start(
        config: &Config,
        sources: Vec<OpenedSource>,
        place: &Place,
        (run_id, arena): (u64, Arena),
        metrics: &Arc<Metrics>,
    ) -> Result<Self, DaemonError> {
        let stop = Arc::new(Event::new());
        let memory = config.memory();
        let pages = arena.pages();
        let shared = Shared {
            sources: count(RUN_SOURCES_MAX),
            begun: arena.begun(),
            pool: Arc::new(SlabPool::new(arena)),
            ledger: Arc::new(LossLedger::new(count(RUN_SOURCES_MAX))),
            wake: Arc::new(Event::new()),
            stop: Arc::clone(&stop),
        };
        let header = header(config, run_id, sources.iter().map(|source| source.info.clone()).collect());
        let wall_offset = Arc::new(WallOffset::new(&header.clocks));
        let plan = run_plan(config, &memory, header.clone());
        let (groups, latencies) = groups(sources, metrics);
        let (orders, order_book) = orders(Arc::clone(&shared.wake));
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
            clock_watch: Box::new(ClockTimer::start().map_err(start("a watch on the wall clock"))?),
            wall_offset: Arc::clone(&wall_offset),
            orders: order_book,
        })
        .inspect_err(|_| forget_memory(config, run_id)) // nothing was sampled: restarts in a loop must not fill tmpfs
        .map_err(start("the first segment"))?;
        let recorder = thread::spawn("recorder", move || recorder.run()).map_err(start("the recorder"))?;
        // Before the first tick, since page faults wait meanwhile; what comes with the threads is little.
        let is_locked = lock_memory(config, memory::lock_what_is_mapped);
        let start_ns = monotonic_ns();
        let mut samplers = Vec::new();
        let mut links = Vec::new();
        for ((group, queue), counters) in groups.into_iter().zip(senders).zip(&metrics.groups) {
            let name = format!("sampler-{}", group.name.as_str());
            let (link, mailbox) = mailbox(Arc::clone(&stop));
            links.push((group.name, link));
            let group = Group::new(GroupSettings {
                name: group.name,
                config: config.groups.get(group.name).clone(),
                sources: group.sources,
                start_ns,
                wall_offset: Arc::clone(&wall_offset),
                hand_over: HandOver::new(hand_over_settings(config, &shared, queue, counters)),
                metrics: Arc::clone(metrics),
                latencies: group.latencies,
                mailbox,
            })
            .map_err(start("a thread for a source that may be held up"))?;
            let thread = thread::spawn(&name, move || group.run()).map_err(start("a sampler"))?;
            samplers.push((name, thread));
        }
        // Beside the first samples, which need a few pages of it: all take longer than the start may. Whoever needs a page before that,
        // or without it, waits for it then.
        let mapper = thread::spawn("map-slabs", move || pages.populate())
            .inspect_err(|error| tracing::warn!(%error, "cannot start the thread that maps the slabs ahead"))
            .ok();
        if is_locked {
            lock_memory(config, memory::lock_what_is_used);
        }
        let controls = Controls { groups: links, orders, sealer: place.sealer.clone() };
        Ok(Self { start_ns, header, controls, stop, mapper, samplers, recorder })
    }

    /// Whether a thread has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        self.recorder.is_finished() || self.samplers.iter().any(|(_, thread)| thread.is_finished())
    }

    /// Tells the samplers to end: nothing is begun from now on.
    pub(super) fn stop(&self) {
        self.stop.set();
        self.controls.groups.iter().for_each(|(_, link)| link.ring());
    }

    /// Stops the samplers, and joins in the order of ownership. `meanwhile` is called with the time while that goes on.
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

/// Waits for a thread until the deadline, which is a time from now.
fn join<T>(
    name: String,
    thread: JoinHandle<T>,
    (deadline_ns, waited_ns): (u64, u64),
    meanwhile: &mut dyn FnMut(u64),
) -> Result<T, DaemonError> {
    if !thread::ends_by(&thread, deadline_ns, meanwhile) {
        return Err(DaemonError::ThreadStuck { name, seconds: waited_ns / 1_000_000_000 });
    }
    thread.join().map_err(|_panic| DaemonError::ThreadEnded { name })
}

struct OpenedGroup {
    name: GroupName,
    sources: Vec<GroupSource>,
    latencies: crate::metrics::Producer<GroupLatencies>,
}

/// A source as its group takes it.
pub(super) fn group_source(source: OpenedSource, metrics: Arc<SourceMetrics>) -> GroupSource {
    let errand = (source.config.group() == GroupName::Blocking)
        .then(|| (format!("read-{}", source.info.name), nanoseconds(source.config.read_timeout())));
    GroupSource {
        id: source.info.id,
        period_ns: source.info.period_ns,
        budget: source.config.budget.basis_points(),
        sampler: source.sampler,
        errand,
        metrics,
    }
}

/// Sorts the sources into their groups. One without sources has a thread as well: a reload may bring it some.
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
