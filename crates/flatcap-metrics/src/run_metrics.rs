//! The metrics of one run: the counters of each writer, which all threads may read.

use std::io::{self, ErrorKind};
use std::sync::{Arc, PoisonError};

use flatcap_format::schema::GapCauseNames;
use flatcap_format::segment::SourceSender;
use flatcap_os::clock::monotonic_ns;

use super::append_only_vec::AppendOnlyVec;
use super::counter::Counter;
use super::metric::{MetricReading, MetricTable, MetricUnit, RunMetric, metrics};
use super::metric_tables::{
    CompressionMetrics, ControlMetrics, DaemonMetrics, DirectoryMetrics, GroupMetrics, LogMetrics,
    PushMetrics, RecorderMetrics, RingMetrics, RuleMetrics, SnapshotMetrics, SourceMetrics,
};

/// EFBIG: the kernel's error number for a file that is too large.
const EFBIG: u64 = 27;
/// ENOSPC: the kernel's error number for a full disk.
const ENOSPC: u64 = 28;

/// Maximum number of rules of a run that have counters, including rules of earlier configurations.
const RULES_MAX: usize = 256;

/// All counters of one run of the recorder.
#[derive(Debug)]
pub struct Metrics {
    /// The metrics of each source, in the order of source ids. Sources may be added while other
    /// threads read.
    pub sources: AppendOnlyVec<Arc<SourceMetrics>>,
    /// The metrics of each sampler group.
    pub groups: Box<[Arc<GroupMetrics>]>,
    /// The metrics of each rule that the run has had, in the order of their addition. Rules may be
    /// added while other threads read.
    pub rules: AppendOnlyVec<RuleMetrics>,
    /// Counters of the recorder thread.
    pub recorder: RecorderMetrics,
    /// CPU limit of each source by `cpu_budget`, in ns per second; 0 without a limit. The daemon
    /// writes this number.
    pub source_cap: Counter,
    /// Counters of the log.
    pub log: LogMetrics,
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
    /// Counters of the slabs with pushed frames. A sampler group has the same counters.
    pub push_group: Arc<GroupMetrics>,
    /// Counters of the control server.
    pub control: ControlMetrics,
    /// Counters of the daemon.
    pub daemon: DaemonMetrics,
}

metrics! {
    impl Metrics;
    /// Failed writes to the ring, and failed creations of its segments.
    counter = "flatcap_ring_storage_errors", |metrics| metrics.ring.storage_errors.get();
    /// Total time of storage calls longer than one second, including the current one.
    counter ns = "flatcap_storage_stalled_seconds", |metrics| metrics.stalled_ns(monotonic_ns());
    /// CPU cap per source set by cpu_budget, as a share of a core; 0 if there is none.
    gauge ns = "flatcap_source_cap_ratio", |metrics| metrics.source_cap.get();
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
    /// Creates counters for these groups and sources. There may be at most `sources_max` sources in
    /// total.
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
            log: LogMetrics::default(),
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

    /// Returns the total duration of storage stalls, in nanoseconds, including the call in
    /// progress. The result never decreases, although the recorder ends a call in two steps. Must
    /// only be called by the control server.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        let most_ns = self.control.stalled_ns.get().max(self.recorder.stalled_ns(now_ns));
        self.control.stalled_ns.set(most_ns);
        most_ns
    }

    /// Returns the sources that this program reads, with their ids. Each name occurs only once,
    /// because removed sources are skipped. While a reload replaces a source, the older source of
    /// the same name is also skipped.
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

impl SourceMetrics {
    /// Creates counters at zero.
    pub fn new(name: String, period_ns: u64) -> Self {
        let source = Self { name, ..Self::default() };
        source.period_ns.set(period_ns);
        source
    }

    /// Creates counters at zero for a source that an application pushes.
    pub fn pushed(name: String, period_ns: u64, sender: SourceSender) -> Self {
        Self { sender: Some(sender), ..Self::new(name, period_ns) }
    }

    /// Returns whether an application pushes the source. If not, this program reads the source.
    pub fn is_pushed(&self) -> bool {
        self.sender.is_some()
    }

    /// Returns the stride, which is at least 1. The source is read only once in this number of
    /// periods.
    pub fn stride(&self) -> u64 {
        self.stride_and_budget().0
    }

    /// Returns the stride, and the budget that causes a stride above 1.
    pub fn stride_and_budget(&self) -> (u64, LimitingBudget) {
        let pace = self.stride_and_budget.get();
        ((pace / 2).max(1), if pace % 2 == 1 { LimitingBudget::Recorder } else { LimitingBudget::Source })
    }

    /// Returns whether the budget of the whole process limits the source.
    pub(super) fn is_limited_by_recorder(&self) -> bool {
        matches!(self.stride_and_budget(), (2.., LimitingBudget::Recorder))
    }

    /// Returns the names of the causes of lost samples.
    pub fn lost_causes(&self) -> GapCauseNames {
        GapCauseNames(u32::try_from(self.causes.get()).unwrap_or(u32::MAX))
    }

    /// Sets the reason, in words, why samples are incomplete. Must only be called by the sampler.
    pub fn explain_incomplete(&self, explanation: String) {
        *self.incomplete_explanation.lock().unwrap_or_else(PoisonError::into_inner) = Some(explanation);
    }

    /// Returns the most recent reason, in words, why samples are incomplete.
    pub fn incomplete_explanation(&self) -> Option<String> {
        self.incomplete_explanation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that a sample failed with `error`. Must only be called by the sampler.
    pub fn note_failure(&self, error: &io::Error) {
        self.last_errno.set(errno_of(error));
        self.failed.add(1);
    }

    /// Returns the error of the last failed sample, or `None` if no sample has failed.
    pub fn failure(&self) -> Option<io::Error> {
        (self.failed.get() > 0).then(|| error_from_errno(self.last_errno.get()))
    }

    /// Returns the number of samples in the files of the data directory and of the ring.
    pub fn in_files(&self) -> u64 {
        self.recorded.get().saturating_add(self.thinned.get())
    }

    /// Sets the stride and the budget that causes it. Must only be called by the sampler.
    pub fn set_stride(&self, stride: u64, limit: LimitingBudget) {
        self.stride_and_budget.set(stride * 2 + u64::from(limit == LimitingBudget::Recorder));
    }
}

impl GroupMetrics {
    /// Creates counters at zero.
    pub fn new(name: &'static str, number: u64) -> Self {
        Self { name, number, ..Self::default() }
    }
}

/// Duration above which a storage call is a stall, in nanoseconds.
pub(crate) const STORAGE_STALL_NS: u64 = 1_000_000_000;

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

    /// Returns how long the storage call in progress has taken so far, in nanoseconds, if it is
    /// already a stall.
    pub fn current_stall_ns(&self, now_ns: u64) -> Option<u64> {
        let since_ns = self.in_storage_since.get();
        let taken_ns = now_ns.saturating_sub(since_ns);
        (since_ns != 0 && taken_ns > STORAGE_STALL_NS).then_some(taken_ns)
    }

    /// Returns the total duration of storage stalls, in nanoseconds, including the call in
    /// progress.
    fn stalled_ns(&self, now_ns: u64) -> u64 {
        self.storage_stalled_ns.get().saturating_add(self.current_stall_ns(now_ns).unwrap_or(0))
    }

    /// Records a storage error. Must only be called by the recorder.
    pub fn note_storage_error(&self, error: &io::Error) {
        self.last_storage_errno.set(errno_of(error));
        self.storage_errors.add(1);
    }

    /// Returns the last storage error, or `None` if there was none.
    pub fn storage_failure(&self) -> Option<io::Error> {
        (self.storage_errors.get() > 0).then(|| error_from_errno(self.last_storage_errno.get()))
    }
}

impl DirectoryMetrics {
    /// Returns number and creation time of the oldest closed segment, or `None` if there is no
    /// closed segment.
    pub fn oldest(&self) -> Option<(u64, u64)> {
        (self.segments.get() > 0).then(|| (self.oldest_number.get(), self.oldest_created_s.get()))
    }
}

impl CompressionMetrics {
    /// Returns the CPU time of all compression threads, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.planner_cpu_ns.get() + self.spare_cpu_ns.get() + self.guaranteed_cpu_ns.get()
    }

    /// Returns the time that the oldest waiting segment has waited, in nanoseconds, or 0 if no
    /// segment waits.
    pub fn oldest_wait_ns(&self, now_ns: u64) -> u64 {
        match self.oldest_since_ns.get() {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        }
    }
}

impl DaemonMetrics {
    /// Records that the configuration that was read at the start is in effect. `read_s` is the wall
    /// time at which it was read.
    pub fn note_config(&self, read_s: u64) {
        self.config_current.set(1);
        self.config_fallback.set(0);
        self.config_read_s.set(read_s);
    }

    /// Records that the configuration was refused at the start, and that the last valid
    /// configuration is in effect.
    pub fn note_fallback(&self, read_s: u64) {
        self.config_current.set(0);
        self.config_fallback.set(1);
        self.config_read_s.set(read_s);
    }

    /// Records whether unwritten samples are kept in `run_dir`.
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

/// Returns the kernel's error number, or 0 if the error has no number.
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

    // Proves that each name is listed exactly once, and that no removed source is listed. In the
    // test, one source moves to another id, and one source is removed permanently.
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

    // Proves that a stall is reported while it lasts and counted exactly once after it, and that a
    // quick call is not a stall.
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
