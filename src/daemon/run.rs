//! One run: built, started, watched, ended in order.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::processor::ProcessorWatch;
use super::recovery::Recovery;
use super::sources::{OpenedSource, OpenedSources, SkippedSource, SourceError, open_sources};
use crate::config::{Config, GroupName, LARGE_SLABS, Memory, Sync};
use crate::metrics::{Consumer, GroupLatencies, GroupMetrics, Metrics, exchange};
use crate::os::clock::{ClockReading, ClockTimer, WallOffset, monotonic_ns};
use crate::os::event::{Event, Woken};
use crate::os::host::{HostIdentity, HostRoot, boot_number, random_u64};
use crate::os::memory;
use crate::os::shared_memory;
use crate::os::signal::SignalWatch;
use crate::os::storage::{DataDirectory, DataDirectoryError};
use crate::os::thread;
use crate::recorder::{
    Capped, KeepFree, Recorder, RecorderReport, RecorderSettings, RetentionLimits, RunPlan, SyncPolicy,
};
use crate::sampling::{Group, GroupSettings, GroupSource};
use crate::segment::{Attachment, Header, SourceInfo};
use crate::slab::{
    self, Arena, Begun, Geometry, HandOver, HandOverSettings, Inbox, LossLedger, OnFull, Owner,
    QueueReceiver, QueueSender, Slab, SlabPool, slab_queue,
};
use crate::stream::ChecksumKind;

/// How often whoever watches is told.
const WATCH_INTERVAL_NS: u64 = 200_000_000;
/// The samplers end within one reading of the stop; one that hangs in the kernel is given up after this.
const SAMPLERS_STOP_MAX_NS: u64 = 5_000_000_000;
/// The recorder writes what is queued and syncs it; a storage that takes longer is given up after this.
const RECORDER_STOP_MAX_NS: u64 = 60_000_000_000;

/// Why a run could not begin, or did not end as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The data directory cannot be recorded to.
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    /// There is nothing to sample.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The first segment cannot be created, or the kernel refuses a thread or a signal handler.
    #[error("cannot start {what}: {error}")]
    Start {
        /// What could not be started.
        what: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// A thread ended before it was told to: our own mistake, reported above by its panic. What was sampled until
    /// then is recorded.
    #[error("the thread {name} ended by a panic; what was sampled before is recorded")]
    ThreadEnded {
        /// Which one.
        name: String,
    },
    /// A thread did not end in time.
    #[error("the thread {name} did not end within {seconds} s of the stop; it is left behind")]
    ThreadStuck {
        /// Which one.
        name: String,
        /// How long it was waited for.
        seconds: u64,
    },
}

/// How a run is going, for whoever watches.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Time since the first tick, in nanoseconds.
    pub elapsed_ns: u64,
    /// All counters.
    pub metrics: &'a Metrics,
}

/// What a run has come to.
#[derive(Debug)]
pub struct RunSummary {
    /// Where the segments are.
    pub data_dir: PathBuf,
    /// The run's id, in every segment and name.
    pub run_id: u64,
    /// From the first tick to the stop, in nanoseconds.
    pub elapsed_ns: u64,
    /// Configured sources that this host lacks.
    pub skipped: Vec<SkippedSource>,
    /// What was recorded and lost.
    pub report: RecorderReport,
}

/// Records as configured until a signal, or for `duration`; tells `watch` several times a second.
///
/// # Errors
/// Every kind of [`DaemonError`].
pub fn record(
    config: &Config,
    duration: Option<Duration>,
    watch: &mut dyn FnMut(Progress<'_>),
) -> Result<RunSummary, DaemonError> {
    let stop = Arc::new(Event::new());
    let on_hangup = || tracing::info!("SIGHUP: ignored, this version cannot reload its configuration");
    let _signals = SignalWatch::start(Arc::clone(&stop), on_hangup).map_err(start("signal handling"))?;
    let OpenedSources { sources, skipped, metrics } = open_sources(config)?;
    for source in &skipped {
        tracing::warn!(source = source.name.as_str(), "skipped: {}", source.reason);
    }
    let directory = DataDirectory::open(&config.agent.data_dir)?;
    let data_dir = directory.path().to_owned();
    let place = Place {
        directory: directory.identity(),
        storage: Arc::new(Capped::new(Arc::new(directory), retention(config))),
    };
    let run = Run::start(config, sources, &place, &metrics, &stop)?;
    let recovery = Recovery::start(place.storage, run.id, run_dir(config), place.directory)
        .map_err(start("the recovery of earlier runs"))?;
    let (run_id, start_ns) = (run.id, run.start_ns);
    let end_ns = duration.map_or(u64::MAX, |duration| {
        start_ns.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    });
    let mut processor = ProcessorWatch::new(&config.agent, &metrics);
    let mut now = monotonic_ns();
    while now < end_ns && !run.has_ended() {
        if stop.wait_until(end_ns.min(now + WATCH_INTERVAL_NS)) == Woken::Set {
            break;
        }
        now = monotonic_ns();
        processor.look(now, &metrics, recovery.is_at_work());
        watch(Progress { elapsed_ns: now - start_ns, metrics: &metrics });
    }
    stop.set();
    let elapsed_ns = monotonic_ns() - start_ns;
    let report = run.finish()?;
    recovery.finish();
    if report.storage_errors == 0 {
        // Everything is in the files. After an error it may not be, and the next run looks.
        forget_memory(config, run_id);
    }
    Ok(RunSummary { data_dir, run_id, elapsed_ns, skipped, report })
}

/// Keeps memory from being swapped out, if that is wanted.
fn lock_memory(config: &Config, lock: fn() -> io::Result<()>) -> bool {
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
struct Place {
    storage: Arc<Capped>,
    directory: (u64, u64), // device and inode
}

/// The threads of a run.
struct Run {
    id: u64,
    mapper: Option<JoinHandle<()>>,
    start_ns: u64,
    samplers: Vec<(String, JoinHandle<()>)>,
    recorder: JoinHandle<RecorderReport>,
}

/// What the groups share with the recorder.
struct Shared {
    sources: usize,
    begun: Arc<Begun>,
    pool: Arc<SlabPool>,
    ledger: Arc<LossLedger>,
    wake: Arc<Event>,
    stop: Arc<Event>,
}

impl Run {
    fn start(
        config: &Config,
        sources: Vec<OpenedSource>,
        place: &Place,
        metrics: &Arc<Metrics>,
        stop: &Arc<Event>,
    ) -> Result<Self, DaemonError> {
        let memory = config.memory();
        let run_id = random_u64().map_err(start("a run id"))?;
        let arena = arena(config, sources.len(), run_id, place.directory)?;
        let pages = arena.pages();
        let shared = Shared {
            sources: sources.len(),
            begun: arena.begun(),
            pool: Arc::new(SlabPool::new(arena)),
            ledger: Arc::new(LossLedger::new(sources.len())),
            wake: Arc::new(Event::new()),
            stop: Arc::clone(stop),
        };
        let header = header(config, run_id, sources.iter().map(|source| source.info.clone()).collect());
        let wall_offset = Arc::new(WallOffset::new(&header.clocks));
        let plan = run_plan(config, &memory, header);
        let (groups, latencies) = groups(sources);
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
        })
        .inspect_err(|_| forget_memory(config, run_id)) // nothing was sampled: restarts in a loop must not fill tmpfs
        .map_err(start("the first segment"))?;
        let recorder = thread::spawn("recorder", move || recorder.run()).map_err(start("the recorder"))?;
        // Before the first tick, since page faults wait meanwhile; what comes with the threads is little.
        let is_locked = lock_memory(config, memory::lock_what_is_mapped);
        let start_ns = monotonic_ns();
        let mut samplers = Vec::new();
        for ((group, queue), counters) in groups.into_iter().zip(senders).zip(&metrics.groups) {
            let name = format!("sampler-{}", group.name.as_str());
            let group = Group::new(GroupSettings {
                name: group.name,
                config: config.groups.get(group.name).clone(),
                sources: group.sources,
                start_ns,
                wall_offset: Arc::clone(&wall_offset),
                hand_over: HandOver::new(hand_over_settings(config, &shared, queue, counters)),
                metrics: Arc::clone(metrics),
                latencies: group.latencies,
                stop: Arc::clone(stop),
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
        Ok(Self { id: run_id, mapper, start_ns, samplers, recorder })
    }

    /// Whether a thread has ended by itself.
    fn has_ended(&self) -> bool {
        self.recorder.is_finished() || self.samplers.iter().any(|(_, thread)| thread.is_finished())
    }

    /// Joins in the order of ownership. The stop event is set.
    fn finish(self) -> Result<RecorderReport, DaemonError> {
        let mut ended = Ok(());
        let deadline_ns = monotonic_ns() + SAMPLERS_STOP_MAX_NS;
        for (name, thread) in self.samplers {
            let joined = join(name, thread, deadline_ns, SAMPLERS_STOP_MAX_NS);
            ended = ended.and(joined);
        }
        if let Some(mapper) = self.mapper {
            ended = ended.and(join("map-slabs".to_owned(), mapper, deadline_ns, SAMPLERS_STOP_MAX_NS));
        }
        let deadline_ns = monotonic_ns() + RECORDER_STOP_MAX_NS;
        let report = join("recorder".to_owned(), self.recorder, deadline_ns, RECORDER_STOP_MAX_NS)?;
        ended.map(|()| report)
    }
}

/// Waits for a thread until the deadline; the standard library can only wait without one.
fn join<T>(name: String, thread: JoinHandle<T>, deadline_ns: u64, waited_ns: u64) -> Result<T, DaemonError> {
    const LOOK_EVERY_NS: u64 = 1_000_000;
    let never = Event::new();
    while !thread.is_finished() {
        let now = monotonic_ns();
        if now >= deadline_ns {
            return Err(DaemonError::ThreadStuck { name, seconds: waited_ns / 1_000_000_000 });
        }
        never.wait_until(now + LOOK_EVERY_NS);
    }
    thread.join().map_err(|_panic| DaemonError::ThreadEnded { name })
}

struct OpenedGroup {
    name: GroupName,
    sources: Vec<GroupSource>,
    latencies: crate::metrics::Producer<GroupLatencies>,
}

/// Sorts the sources into their groups; a group without sources has no thread.
fn groups(sources: Vec<OpenedSource>) -> (Vec<OpenedGroup>, Vec<Consumer<GroupLatencies>>) {
    let mut sorted: Vec<(GroupName, Vec<GroupSource>)> =
        GroupName::ALL.iter().map(|name| (*name, Vec::new())).collect();
    for source in sources {
        let name = source.config.group();
        let errand = (name == GroupName::Blocking)
            .then(|| (format!("read-{}", source.info.name), nanoseconds(source.config.read_timeout())));
        let member = GroupSource {
            id: source.info.id,
            period_ns: source.info.period_ns,
            budget: source.config.budget.basis_points(),
            sampler: source.sampler,
            errand,
        };
        if let Some((_, members)) = sorted.iter_mut().find(|(group, _)| *group == name) {
            members.push(member);
        }
    }
    sorted.retain(|(_, members)| !members.is_empty());
    sorted
        .into_iter()
        .map(|(name, sources)| {
            let ids: Vec<u16> = sources.iter().map(|source| source.id).collect();
            let (latencies, consumer) = exchange(|| GroupLatencies::new(ids.iter().copied()));
            (OpenedGroup { name, sources, latencies }, consumer)
        })
        .unzip()
}

/// Memory for the slabs that outlives a kill, or, where there is none, memory that does not.
fn arena(config: &Config, sources: usize, run_id: u64, directory: (u64, u64)) -> Result<Arena, DaemonError> {
    let memory = config.memory();
    let geometry = Geometry {
        sources,
        slabs: count(memory.slabs()),
        slab_bytes: count(memory.slab_bytes),
        large_slabs: count(LARGE_SLABS),
        large_slab_bytes: count(memory.large_slab_bytes),
    };
    let frame_max = config.storage.frame_max;
    let owner = Owner { run_id, directory, checksum: checksum(config), frame_max, boot: boot_number() };
    let run_dir = run_dir(config);
    Arena::kept(&run_dir, geometry, &owner).or_else(|error| {
        tracing::warn!(
            run_dir = %run_dir.display(),
            %error,
            "cannot keep samples there until they are written: if this process is killed, those of its last moments are lost"
        );
        Arena::anonymous(geometry).map_err(start("the slabs"))
    })
}

/// Where runs keep what is not written yet.
fn run_dir(config: &Config) -> PathBuf {
    let given = &config.agent.run_dir;
    if given.as_os_str().is_empty() { shared_memory::default_directory() } else { given.clone() }
}

/// Removes a run's memory: nothing in it is missing elsewhere.
fn forget_memory(config: &Config, run_id: u64) {
    shared_memory::remove_if_there(&run_dir(config).join(slab::file_name(run_id)));
}

/// A queue for each of these groups.
#[allow(clippy::type_complexity, reason = "two lists, each of one end")]
fn queues(
    config: &Config,
    memory: &Memory,
    groups: impl Iterator<Item = GroupName>,
) -> (Vec<QueueSender<Box<Slab>>>, Vec<QueueReceiver<Box<Slab>>>) {
    groups.map(|name| slab_queue(count(memory.queue_of(name)), on_full(config, name))).unzip()
}

/// There is one slab for each place where one can be, so that one is free as long as any queue has room.
fn assert_slabs(pool: &SlabPool, queues: &[QueueReceiver<Box<Slab>>], memory: &Memory) {
    let waiting: usize = queues.iter().map(QueueReceiver::capacity).sum();
    let of_group = 2; // the one that it fills, and the one that the recorder looks at
    let places = waiting + of_group * queues.len() + count(memory.writing);
    assert!(pool.free() >= places, "{} slabs for {places} places", pool.free());
}

fn on_full(config: &Config, group: GroupName) -> OnFull {
    match config.groups.get(group).on_full {
        crate::config::OnFull::DropNewest => OnFull::DropNewest,
        crate::config::OnFull::DropOldest => OnFull::DropOldest,
        crate::config::OnFull::Block => OnFull::Block,
    }
}

fn hand_over_settings(
    config: &Config,
    shared: &Shared,
    queue: QueueSender<Box<Slab>>,
    counters: &Arc<GroupMetrics>,
) -> HandOverSettings {
    HandOverSettings {
        pool: Arc::clone(&shared.pool),
        queue,
        ledger: Arc::clone(&shared.ledger),
        wake: Arc::clone(&shared.wake),
        checksum: checksum(config),
        frame_max: config.storage.frame_max,
        interval_ns: nanoseconds(config.handover.hand_over),
        begun: Arc::clone(&shared.begun),
        sources: shared.sources,
        metrics: Arc::clone(counters),
        stop: Arc::clone(&shared.stop),
    }
}

fn header(config: &Config, run_id: u64, sources: Vec<SourceInfo>) -> Header {
    // A slab waits for its interval, for the recorder to look, and in a backlog behind others: twice the two is what
    // a healthy run stays under. The footer says what it really was.
    let reorder_window = (config.handover.hand_over + config.handover.drain) * 2;
    let clocks = ClockReading::now();
    Header {
        segment: 0,
        run_id,
        host: HostIdentity::read(&HostRoot::new(&config.agent.host_root)),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        checksum: checksum(config),
        frame_max: config.storage.frame_max,
        clocks,
        reorder_window_ns: nanoseconds(reorder_window),
        sources,
        clock_table: vec![clocks],
    }
}

fn run_plan(config: &Config, memory: &Memory, header: Header) -> RunPlan {
    let attachment = Attachment {
        name: "flatcap.toml".to_owned(),
        media_type: "application/toml".to_owned(),
        mono_ns: header.clocks.mono_ns,
        wall_ns: header.clocks.wall_ns,
        content: config.to_toml_redacted().into_bytes(),
    };
    RunPlan {
        header,
        attachments: vec![attachment],
        segment_bytes: config.storage.segment_size,
        segment_age_ns: nanoseconds(config.storage.segment_age),
        sync: match config.storage.sync {
            Sync::Never => SyncPolicy::Never,
            Sync::Interval(interval) => SyncPolicy::Interval(nanoseconds(interval)),
            Sync::Always => SyncPolicy::Always,
        },
        preallocate: config.storage.preallocate,
        drain_ns: nanoseconds(config.handover.drain),
        batch_slabs: count(memory.writing),
    }
}

fn retention(config: &Config) -> RetentionLimits {
    RetentionLimits {
        bytes: config.storage.retain_bytes,
        age_ns: nanoseconds(config.storage.retain_age),
        keep_free: match config.storage.keep_free {
            crate::config::KeepFree::Size(bytes) => KeepFree::Bytes(bytes),
            crate::config::KeepFree::Percent(percent) => KeepFree::BasisPoints(u16::from(percent) * 100),
        },
    }
}

fn checksum(config: &Config) -> ChecksumKind {
    use crate::config::Checksum;
    match config.storage.checksum {
        Checksum::Xxh3 => ChecksumKind::Xxh3,
        Checksum::Crc32 => ChecksumKind::Crc32,
        Checksum::Crc16 => ChecksumKind::Crc16,
        Checksum::None => ChecksumKind::None,
    }
}

fn start(what: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |error| DaemonError::Start { what, error }
}

/// Sizes and counts fit: the platform has 64 bits, and the configuration limits them.
fn count(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Durations of the configuration are at most days.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::LOSS_BYTES;

    // Goal: what the configuration counts for a slab is what a slab takes. Method: sizes on both sides of its limits.
    #[test]
    fn slabs_take_what_is_counted() {
        for bytes in [1, 64, 16 << 10, 64 << 10, 256 << 10, 4 << 20, 1 << 30] {
            assert_eq!(Memory::slab_side_bytes(bytes as u64), Slab::side_bytes(bytes) as u64, "{bytes}");
        }
    }

    // Goal: what it counts for losses and gaps is what they take. Method: by what each says it takes.
    #[test]
    fn losses_take_what_is_counted() {
        let (of_source, of_slab) = LOSS_BYTES;
        let taken = LossLedger::BYTES + 7 * (of_source + 2 * HandOver::SOURCE_BYTES);
        assert_eq!(Memory::losses_bytes(7, 2), (taken as u64).next_multiple_of(1 << 10));
        assert_eq!(Memory::gaps_bytes(), of_slab as u64);
    }
}
