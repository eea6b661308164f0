//! The metrics of one run: the counters of each writer, which all threads may read.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use flatcap_format::segment::SourceSender;

use super::append_only_vec::AppendOnlyVec;
use super::counter::Counter;
use super::latency::PublishedLatency;
use super::push_metrics::PushMetrics;

/// EFBIG: the kernel's error number for a file that is too large.
const EFBIG: u64 = 27;
/// ENOSPC: the kernel's error number for a full disk.
const ENOSPC: u64 = 28;

/// Maximum number of rules of a run that have counters, including rules of earlier configurations.
const RULES_MAX: usize = 256;

/// All counters of one run of the recorder.
#[derive(Debug)]
pub struct Metrics {
    /// The metrics of each source, in the order of source ids. Sources may be added while others
    /// read.
    pub sources: AppendOnlyVec<Arc<SourceMetrics>>,
    /// The metrics of each sampler group.
    pub groups: Box<[Arc<GroupMetrics>]>,
    /// The metrics of each rule that the run has had, in the order of their addition. Rules may be
    /// added while others read.
    pub rules: AppendOnlyVec<RuleMetrics>,
    /// Counters of the recorder thread.
    pub recorder: RecorderMetrics,
    /// CPU limit of each source by `cpu_budget`, in ns per second; 0 without a limit. Written by
    /// the daemon.
    pub source_cap: Counter,
    /// Log lines suppressed because one place logged too often. Written by the daemon.
    pub log_lines_suppressed: Counter,
    /// Log lines lost because they were not consumed in time. Written by the daemon.
    pub log_lines_lost: Counter,
    /// Counters of the data directory.
    pub directory: Arc<DirectoryMetrics>,
    /// Counters of compression.
    pub compression: Arc<CompressionMetrics>,
    /// Counters of the ring.
    pub ring: RingMetrics,
    /// Counters of snapshots.
    pub snapshots: Arc<SnapshotMetrics>,
    /// Counters of pushed frames.
    pub push: Arc<PushMetrics>,
    /// Counters of the slabs with pushed frames, as for a sampler group.
    pub push_group: Arc<GroupMetrics>,
    /// Counters of the control server.
    pub control: ControlMetrics,
    /// Counters of the daemon.
    pub daemon: DaemonMetrics,
}

/// The CPU budget that limits how often a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitingBudget {
    /// The source's own budget.
    Source,
    /// The budget of the whole process (`cpu_budget`).
    Recorder,
}

impl Metrics {
    /// Creates counters for these groups and sources; there may be `sources_max` sources in all.
    pub fn new(
        sources: impl IntoIterator<Item = SourceMetrics>,
        sources_max: usize,
        groups: Box<[Arc<GroupMetrics>]>,
    ) -> Self {
        let push_group = Arc::new(GroupMetrics::new("push", groups.len() as u64));
        Self {
            push_group,
            sources: AppendOnlyVec::new(sources.into_iter().map(Arc::new), sources_max),
            groups,
            rules: AppendOnlyVec::new([], RULES_MAX),
            recorder: RecorderMetrics::default(),
            source_cap: Counter::default(),
            log_lines_suppressed: Counter::default(),
            log_lines_lost: Counter::default(),
            directory: Arc::default(),
            compression: Arc::default(),
            ring: RingMetrics::default(),
            snapshots: Arc::default(),
            push: Arc::default(),
            control: ControlMetrics::default(),
            daemon: DaemonMetrics::default(),
        }
    }

    /// Returns the groups that queue slabs: the sampler groups and, if applications may push, the
    /// group of pushed frames.
    pub fn queueing_groups(&self) -> impl Iterator<Item = &GroupMetrics> {
        let push = (self.push.memory_bytes_max.get() > 0).then_some(&self.push_group);
        self.groups.iter().chain(push).map(Arc::as_ref)
    }

    /// Returns the time stalled in storage so far, in nanoseconds, including the call in progress.
    /// Never decreases, although the recorder ends a call in two steps. Must only be called by the
    /// control server.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        let most_ns = self.control.stalled_ns.get().max(self.recorder.stalled_ns(now_ns));
        self.control.stalled_ns.set(most_ns);
        most_ns
    }

    /// Returns the sources that this program reads, with their ids. Each name occurs once: removed
    /// sources are skipped, and so is the older source of a name while a reload replaces it.
    pub fn current_sources(&self) -> Vec<(u16, &SourceMetrics)> {
        let all = (0..).zip(self.sources.iter().map(Arc::as_ref));
        let all: Vec<(u16, &SourceMetrics)> = all.filter(|(_, source)| !source.is_pushed()).collect();
        let is_current = |(id, source): &(u16, &SourceMetrics)| {
            source.removed.get() == 0
                && !all.iter().any(|(later, other)| later > id && other.name == source.name)
        };
        all.iter().copied().filter(is_current).collect()
    }
}

/// Counters of one source. sampled (= begun) = recorded + lost + thinned + in flight.
#[derive(Debug)]
pub struct SourceMetrics {
    /// The source's name.
    pub name: String,
    /// The application that pushes it; `None` if this program reads it.
    pub sender: Option<SourceSender>,
    /// The configured period, in nanoseconds. Written by the daemon.
    pub period_ns: Counter,
    /// 1 once a reload has removed the source: it is no longer read. Written by the daemon.
    pub removed: Counter,
    /// Samples begun; the next sequence number. Written by the sampler.
    pub begun: Counter,
    /// Ticks at which no sample was begun. Written by the sampler.
    pub missed: Counter,
    /// Samples that lack some values. Written by the sampler.
    pub incomplete: Counter,
    /// Union of the flags of the incomplete samples, which name the missing values. Written by the
    /// sampler.
    pub incomplete_flags: Counter,
    incomplete_explanation: Mutex<Option<String>>, // locked by the sampler for a new reason only
    /// Samples that failed. Written by the sampler, after `last_errno`.
    pub failed: Counter,
    /// The kernel's error number of the last failure; 0 if the failure has no error number. Written
    /// by the sampler.
    pub last_errno: Counter,
    /// Samples that did not return in time. Written by the sampler.
    pub timed_out: Counter,
    /// CPU time of the samples and the work around them, in nanoseconds. Written by the sampler.
    pub spent: Counter,
    /// CPU demand within its own budget, in ns per second; 0 until known. Written by the sampler.
    pub demand: Counter,
    /// 2 x stride, plus 1 if `cpu_budget` is the limit; 0 until the first change.
    stride_and_budget: Counter,
    /// Frames handed to the kernel. Written by the recorder.
    pub recorded: Counter,
    /// Bytes of the recorded frames. Written by the recorder.
    pub bytes: Counter,
    /// Samples covered by Gap frames. Written by the recorder.
    pub lost: Counter,
    /// Samples left out of the files on purpose, by `disk_period`. Written by the recorder.
    pub thinned: Counter,
    /// Union of the causes in the Gap frames of the source. Written by the recorder.
    pub causes: Counter,
    /// Begin of a sample minus its deadline, over the last interval. Written by the recorder.
    pub lateness: PublishedLatency,
    /// Duration of a read, over the last interval. Written by the recorder.
    pub read_duration: PublishedLatency,
}

impl SourceMetrics {
    /// Creates counters at zero.
    pub fn new(name: String, period_ns: u64) -> Self {
        let period = Counter::default();
        period.set(period_ns);
        Self {
            name,
            sender: None,
            period_ns: period,
            removed: Counter::default(),
            begun: Counter::default(),
            missed: Counter::default(),
            incomplete: Counter::default(),
            incomplete_flags: Counter::default(),
            incomplete_explanation: Mutex::new(None),
            failed: Counter::default(),
            last_errno: Counter::default(),
            timed_out: Counter::default(),
            spent: Counter::default(),
            demand: Counter::default(),
            stride_and_budget: Counter::default(),
            recorded: Counter::default(),
            bytes: Counter::default(),
            lost: Counter::default(),
            thinned: Counter::default(),
            causes: Counter::default(),
            lateness: PublishedLatency::default(),
            read_duration: PublishedLatency::default(),
        }
    }

    /// Creates counters at zero for a source that an application pushes.
    pub fn pushed(name: String, period_ns: u64, sender: SourceSender) -> Self {
        Self { sender: Some(sender), ..Self::new(name, period_ns) }
    }

    /// Returns whether an application pushes it; else this program reads it.
    pub fn is_pushed(&self) -> bool {
        self.sender.is_some()
    }
}

impl SourceMetrics {
    /// Returns the stride, at least 1: the source is read once in this many periods.
    pub fn stride(&self) -> u64 {
        self.stride_and_budget().0
    }

    /// Returns the stride, and the budget that is the reason if the stride is above 1.
    pub fn stride_and_budget(&self) -> (u64, LimitingBudget) {
        let pace = self.stride_and_budget.get();
        ((pace / 2).max(1), if pace % 2 == 1 { LimitingBudget::Recorder } else { LimitingBudget::Source })
    }

    /// Sets the reason why samples are incomplete, in words. Must only be called by the sampler.
    pub fn explain_incomplete(&self, explanation: String) {
        *self.incomplete_explanation.lock().unwrap_or_else(PoisonError::into_inner) = Some(explanation);
    }

    /// Returns the reason why samples are incomplete, in words: the latest new reason.
    pub fn incomplete_explanation(&self) -> Option<String> {
        self.incomplete_explanation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that a sample failed with `error`. Must only be called by the sampler.
    pub fn note_failure(&self, error: &io::Error) {
        self.last_errno.set(errno_of(error));
        self.failed.add(1);
    }

    /// Returns the error of the last failed sample.
    pub fn failure(&self) -> io::Error {
        error_from_errno(self.last_errno.get())
    }

    /// Sets the stride and the budget that causes it. Must only be called by the sampler.
    pub fn set_stride(&self, stride: u64, limit: LimitingBudget) {
        self.stride_and_budget.set(stride * 2 + u64::from(limit == LimitingBudget::Recorder));
    }
}

/// Counters of one sampler group, all written by its thread.
#[derive(Debug, Default)]
pub struct GroupMetrics {
    /// The group's name.
    pub name: &'static str,
    /// The group's index among all groups that can exist.
    pub number: u64,
    /// Slabs queued.
    pub slabs: Counter,
    /// Slabs dropped because the queue was full or the recorder had ended: their samples are lost.
    pub slabs_dropped: Counter,
    /// Time waited for space, in nanoseconds; only with `on_full = "block"`. Grows while waiting.
    pub waited_ns: Counter,
}

impl GroupMetrics {
    /// Creates counters at zero.
    pub fn new(name: &'static str, number: u64) -> Self {
        Self { name, number, ..Self::default() }
    }
}

/// Counters of one rule, all written by the recorder that evaluates it.
#[derive(Debug, Default)]
pub struct RuleMetrics {
    /// The rule's name.
    pub name: String,
    /// Firings that began an episode.
    pub fired: Counter,
    /// Firings that extended an episode.
    pub extended: Counter,
    /// Firings that were suppressed.
    pub suppressed: Counter,
    /// Evaluations of the rule's condition.
    pub evaluated: Counter,
    /// Evaluations with an unknown result.
    pub unknown: Counter,
}

/// A storage call that takes longer than this is a stall, in nanoseconds.
pub(crate) const STORAGE_STALL_NS: u64 = 1_000_000_000;

/// Counters of the recorder thread, all written by it.
#[derive(Debug, Default)]
pub struct RecorderMetrics {
    /// Bytes appended to segments.
    pub bytes: Counter,
    /// Slabs taken from the queues.
    pub slabs: Counter,
    /// Segments sealed.
    pub segments_sealed: Counter,
    /// Writes, syncs, creations and renames that failed.
    pub storage_errors: Counter,
    /// Samples that rules did not see, because they took too much time.
    pub trigger_skipped: Counter,
    /// Segments that another process removed while they were open.
    pub segments_removed: Counter,
    /// Frames in the removed segments: counted as recorded, and gone.
    pub frames_removed: Counter,
    /// The kernel's error number of the last storage error; 0 if the error has no number.
    last_storage_errno: Counter,
    /// 1 while a segment is open, 0 while the next one cannot be created.
    pub segment_open: Counter,
    /// The number of the open segment, or of the last one.
    pub segment_number: Counter,
    /// Creation time of that segment by the wall clock, in seconds since 1970.
    pub segment_created_s: Counter,
    /// Creation time of that segment, in monotonic nanoseconds.
    pub segment_begun_ns: Counter,
    /// Bytes in that segment.
    pub segment_bytes: Counter,
    /// Frames in that segment, including the recorder's own frames.
    pub segment_frames: Counter,
    /// Maximum number of slabs in all queues during the last second.
    pub slabs_queued: Counter,
    /// Free slabs at the end of the last second.
    pub slabs_free: Counter,
    /// Lost samples not yet written as a gap, as of the last second.
    pub losses_pending: Counter,
    /// Loop iterations. The watchdog is not fed if the loop neither iterates nor waits for storage.
    pub iterations: Counter,
    /// Start of the storage call in progress, in monotonic nanoseconds; 0 between calls.
    pub in_storage_since: Counter,
    /// Finished storage calls that took longer than `STORAGE_STALL_NS`.
    pub storage_stalls: Counter,
    /// Time that these calls took, in nanoseconds.
    pub storage_stalled_ns: Counter,
    /// Building a payload; one in 64 is timed.
    pub build: PublishedLatency,
    /// Queueing a slab.
    pub enqueue: PublishedLatency,
    /// From the queueing of a slab until the recorder takes it.
    pub queue_wait: PublishedLatency,
    /// The latency of an append to a segment.
    pub write: PublishedLatency,
    /// The latency of an fdatasync.
    pub sync: PublishedLatency,
}

impl RecorderMetrics {
    /// Marks the start of a storage call, in monotonic nanoseconds. Must only be called by the
    /// recorder.
    #[inline]
    pub fn enter_storage(&self, now_ns: u64) {
        self.in_storage_since.set(now_ns);
    }

    /// Marks the end of the storage call. Must only be called by the recorder.
    #[inline]
    pub fn leave_storage(&self, now_ns: u64) {
        let taken_ns = now_ns.saturating_sub(self.in_storage_since.get());
        self.in_storage_since.set(0);
        if taken_ns > STORAGE_STALL_NS {
            self.storage_stalls.add(1);
            self.storage_stalled_ns.add(taken_ns);
        }
    }

    /// Returns how long the storage call in progress has taken, if that is a stall already.
    pub fn current_stall_ns(&self, now_ns: u64) -> Option<u64> {
        let since_ns = self.in_storage_since.get();
        let taken_ns = now_ns.saturating_sub(since_ns);
        (since_ns != 0 && taken_ns > STORAGE_STALL_NS).then_some(taken_ns)
    }

    /// Returns the time stalled in storage so far, in nanoseconds, with the call in progress.
    fn stalled_ns(&self, now_ns: u64) -> u64 {
        self.storage_stalled_ns.get().saturating_add(self.current_stall_ns(now_ns).unwrap_or(0))
    }

    /// Records a storage error. Must only be called by the recorder.
    pub fn note_storage_error(&self, error: &io::Error) {
        self.last_storage_errno.set(errno_of(error));
        self.storage_errors.add(1);
    }

    /// Returns the last storage error, or `None` without one.
    pub fn storage_failure(&self) -> Option<io::Error> {
        (self.storage_errors.get() > 0).then(|| error_from_errno(self.last_storage_errno.get()))
    }
}

/// Counters of snapshots, all written by their thread.
#[derive(Debug, Default)]
pub struct SnapshotMetrics {
    /// Snapshots ordered.
    pub ordered: Counter,
    /// Snapshots published.
    pub published: Counter,
    /// Published snapshots that lack a part of their window.
    pub incomplete: Counter,
    /// Snapshots that failed.
    pub failed: Counter,
    /// Snapshots whose window has not ended.
    pub pending: Counter,
    /// Windows whose copy has started.
    pub copies_begun: Counter,
    /// Windows whose copy has ended.
    pub copies_ended: Counter,
    /// Bytes of all snapshots.
    pub bytes: Counter,
}

/// Counters of the ring, all written by the daemon; zeros without a ring.
#[derive(Debug, Default)]
pub struct RingMetrics {
    /// Seconds since the begin of its oldest segment.
    pub held_s: Counter,
    /// Bytes that its files occupy.
    pub bytes: Counter,
    /// Maximum of `bytes` (`[blackbox] memory_max`).
    pub bytes_max: Counter,
    /// Samples of all sources written to the ring.
    pub recorded: Counter,
    /// Samples that it lacks.
    pub lost: Counter,
    /// Writes and creations in the ring that failed.
    pub storage_errors: Counter,
}

/// The data directory as of the last scan, about once a second. One thread at a time writes it.
#[derive(Debug, Default)]
pub struct DirectoryMetrics {
    /// Bytes that its files occupy.
    pub bytes: Counter,
    /// Maximum of `bytes` (`retain_bytes`).
    pub bytes_max: Counter,
    /// Free bytes in its file system.
    pub free_bytes: Counter,
    /// Bytes that must stay free (`min_free`).
    pub min_free_bytes: Counter,
    /// Bytes of the file system.
    pub total_bytes: Counter,
    /// Closed segments, and files set aside from segments.
    pub segments: Counter,
    /// The lowest segment number among the closed segments and the files set aside.
    pub oldest_number: Counter,
    /// Creation time of that segment by its name, in seconds since 1970; 0 without a segment.
    pub oldest_created_s: Counter,
    /// Files removed to keep the limits.
    pub removed: Counter,
    /// Bytes reserved for later segments; part of `bytes`.
    pub reserved_bytes: Counter,
    /// Bytes of the newest history that are never removed for the space of the file system: of
    /// `retain_min`, what fits on it.
    pub kept_bytes: Counter,
    /// 1 while less than `min_free` is free because `retain_min` protects the history, else 0.
    pub is_history_kept: Counter,
    /// 1 while disk space is so low that the oldest segments are removed soon, else 0.
    pub is_space_low: Counter,
}

/// Counters of compression, written by its planner thread, except the workers' CPU time.
#[derive(Debug, Default)]
pub struct CompressionMetrics {
    /// 1 while compression of closed segments is enabled and possible.
    pub enabled: Counter,
    /// Segments compressed.
    pub segments: Counter,
    /// Bytes of the compressed segments before compression.
    pub raw_bytes: Counter,
    /// Bytes of the compressed segments after compression.
    pub stored_bytes: Counter,
    /// Segments not compressed because it would not pay or they are damaged.
    pub skipped: Counter,
    /// Failed attempts to compress a segment.
    pub failures: Counter,
    /// Closed segments that wait to be compressed, including those in progress.
    pub waiting: Counter,
    /// The time since which the oldest waiting segment has waited, in monotonic nanoseconds; 0 if
    /// no segment waits.
    pub oldest_since_ns: Counter,
    /// CPU time of the planner thread, in nanoseconds.
    pub planner_cpu_ns: Counter,
    /// CPU time of the worker at idle priority, in nanoseconds. Written by that worker.
    pub spare_cpu_ns: Counter,
    /// CPU time of the worker with the guaranteed share, in nanoseconds. Written by that worker.
    pub guaranteed_cpu_ns: Counter,
}

impl CompressionMetrics {
    /// Returns the CPU time of all compression threads, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.planner_cpu_ns.get() + self.spare_cpu_ns.get() + self.guaranteed_cpu_ns.get()
    }

    /// Returns how long the oldest waiting segment has waited, in nanoseconds; 0 if none waits.
    pub fn oldest_wait_ns(&self, now_ns: u64) -> u64 {
        match self.oldest_since_ns.get() {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        }
    }
}

/// Counters of the control server, all written by its thread.
#[derive(Debug, Default)]
pub struct ControlMetrics {
    /// Connections accepted.
    pub connections: Counter,
    /// Open connections.
    pub connections_open: Counter,
    /// Connections closed because the client was too slow.
    pub timed_out: Counter,
    /// Connections closed without a request because a newer one needed the slot.
    pub displaced: Counter,
    /// Times that a listener paused because answering had used its share of `cpu_budget`.
    pub pauses: Counter,
    /// Requests answered.
    pub requests: Counter,
    /// Requests refused, for any reason.
    pub refused: Counter,
    /// The highest value that [`Metrics::stalled_ns`] has returned.
    stalled_ns: Counter,
}

/// Counters of the daemon, all written by its thread.
#[derive(Debug, Default)]
pub struct DaemonMetrics {
    /// Reloads requested and finished.
    pub reloads: Counter,
    /// Reloads that changed nothing: the configuration was wrong or could not be applied.
    pub reloads_failed: Counter,
    /// 1 if the configuration in effect is the one read last, 0 if that one was refused.
    pub config_current: Counter,
    /// 1 if the run started with the last good configuration and no reload has succeeded since.
    pub config_fallback: Counter,
    /// Time at which the configuration in effect was read, in seconds since 1970.
    pub config_read_s: Counter,
    /// 1 if samples not yet written are in `run_dir` and survive a kill of this process, else 0.
    pub run_dir_in_use: Counter,
}

impl DaemonMetrics {
    /// Records that the start configuration is in effect; `read_s` is the wall time it was read.
    pub fn note_config(&self, read_s: u64) {
        self.config_current.set(1);
        self.config_fallback.set(0);
        self.config_read_s.set(read_s);
    }

    /// Records that the start configuration was refused and the last good one is in effect.
    pub fn note_fallback(&self, read_s: u64) {
        self.config_current.set(0);
        self.config_fallback.set(1);
        self.config_read_s.set(read_s);
    }

    /// Records whether samples not yet written are in `run_dir`.
    pub fn note_run_dir(&self, is_in_use: bool) {
        self.run_dir_in_use.set(is_in_use.into());
    }

    /// Records a successful reload of the configuration read at `read_s`.
    pub fn note_reload(&self, read_s: u64) {
        self.note_config(read_s);
        self.reloads.add(1);
    }

    /// Records a reload that changed nothing because of an error.
    pub fn note_failed_reload(&self) {
        self.config_current.set(0);
        self.reloads.add(1);
        self.reloads_failed.add(1);
    }
}

/// Returns the kernel's error number, or 0 without one.
fn errno_of(error: &io::Error) -> u64 {
    match (error.raw_os_error(), error.kind()) {
        (Some(number), _) => u64::from(number.unsigned_abs()),
        (None, ErrorKind::FileTooLarge) => EFBIG,
        (None, ErrorKind::StorageFull) => ENOSPC,
        (None, _) => 0,
    }
}

fn error_from_errno(number: u64) -> io::Error {
    match i32::try_from(number) {
        Ok(number @ 1..) => io::Error::from_raw_os_error(number),
        _ => io::Error::other("no error number was reported"),
    }
}

#[cfg(all(test, not(flatcap_model)))]
mod tests {
    use super::*;

    // Proves that each name is listed once and no removed source is. Method: one source moves to
    // another id, one is removed permanently.
    #[test]
    fn current_sources_have_one_name_each() {
        let source = |name: &str| SourceMetrics::new(name.to_owned(), 1);
        let metrics = Metrics::new(["a", "b", "c"].map(source), 4, Box::default());
        assert!(metrics.sources.push(Arc::new(source("a"))).is_ok());
        let ids = || metrics.current_sources().iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(), [1, 2, 3]);
        metrics.sources.get(0).unwrap().removed.set(1);
        metrics.sources.get(2).unwrap().removed.set(1);
        assert_eq!(ids(), [1, 3]);
    }

    // Proves that the reported stall time never decreases, even while the recorder leaves a call.
    #[test]
    fn stalled_time_never_falls() {
        let metrics = Metrics::new([], 0, Box::default());
        let (recorder, s) = (&metrics.recorder, STORAGE_STALL_NS);
        recorder.enter_storage(10 * s);
        assert_eq!(metrics.stalled_ns(14 * s), 4 * s);
        recorder.in_storage_since.set(0);
        assert_eq!((recorder.stalled_ns(15 * s), metrics.stalled_ns(15 * s)), (0, 4 * s));
        recorder.storage_stalled_ns.add(5 * s);
        assert_eq!(metrics.stalled_ns(16 * s), 5 * s);
    }

    // Proves that a stall is reported while it lasts and counted once after it, and that a quick
    // call is not a stall.
    #[test]
    fn stalls_are_counted() {
        let metrics = RecorderMetrics::default();
        let s = STORAGE_STALL_NS;
        metrics.enter_storage(5 * s);
        metrics.leave_storage(6 * s);
        assert_eq!(
            (metrics.storage_stalls.get(), metrics.stalled_ns(9 * s)),
            (0, 0),
            "not longer than the limit"
        );
        metrics.enter_storage(10 * s);
        assert_eq!((metrics.current_stall_ns(11 * s), metrics.stalled_ns(11 * s)), (None, 0));
        assert_eq!((metrics.current_stall_ns(14 * s), metrics.stalled_ns(14 * s)), (Some(4 * s), 4 * s));
        metrics.leave_storage(15 * s);
        assert_eq!((metrics.current_stall_ns(16 * s), metrics.stalled_ns(16 * s)), (None, 5 * s));
        assert_eq!((metrics.storage_stalls.get(), metrics.storage_stalled_ns.get()), (1, 5 * s));
    }
}
