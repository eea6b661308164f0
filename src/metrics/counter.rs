//! Numbers that one thread writes and every thread may read.

use std::io::{self, ErrorKind};
use std::sync::Arc;
#[cfg(not(all(test, flatcap_model)))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(all(test, flatcap_model))]
use loom::sync::atomic::{AtomicU64, Ordering};

use super::latency::PublishedLatency;
use super::slots::Slots;

/// The kernel's number for a file that is too large.
const TOO_LARGE: u64 = 27;
/// And for a medium without room.
const NO_SPACE: u64 = 28;

/// A number with one writer: adding is a load and a store, not an atomic exchange.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only for the counter's one writer.
    #[inline]
    pub fn add(&self, count: u64) {
        self.set(self.get().wrapping_add(count));
    }

    /// Sets it. Only for the counter's one writer.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value as last seen from this thread.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted in one run of the recorder.
#[derive(Debug)]
pub struct Metrics {
    /// One a source, in the order of source ids. More may come while others read.
    pub sources: Slots<Arc<SourceMetrics>>,
    /// One a sampler group.
    pub groups: Box<[Arc<GroupMetrics>]>,
    /// The recorder's own.
    pub recorder: RecorderMetrics,
    /// What the agent's budget leaves each source, in nanoseconds of a core a second; 0 for no limit. Written by the daemon.
    pub source_cap: Counter,
    /// Log lines left out since one place in the program logged too often. Written by the daemon.
    pub log_lines_left_out: Counter,
    /// Log lines lost since nobody took them. Written by the daemon.
    pub log_lines_lost: Counter,
    /// The data directory's.
    pub directory: Arc<DirectoryMetrics>,
    /// Those of compression.
    pub sealer: Arc<SealerMetrics>,
    /// The control server's.
    pub control: ControlMetrics,
    /// The daemon's own.
    pub daemon: DaemonMetrics,
}

/// Which budget decides how often a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The source's own.
    Source,
    /// That of the whole agent.
    Agent,
}

impl Metrics {
    /// These counters of sources, with places for so many sources in all, and those of groups.
    pub fn new(
        sources: impl IntoIterator<Item = SourceMetrics>,
        sources_max: usize,
        groups: Box<[Arc<GroupMetrics>]>,
    ) -> Self {
        Self {
            sources: Slots::new(sources.into_iter().map(Arc::new), sources_max),
            groups,
            recorder: RecorderMetrics::default(),
            source_cap: Counter::default(),
            log_lines_left_out: Counter::default(),
            log_lines_lost: Counter::default(),
            directory: Arc::default(),
            sealer: Arc::default(),
            control: ControlMetrics::default(),
            daemon: DaemonMetrics::default(),
        }
    }

    /// Time that the storage has stood still so far, in nanoseconds, with the call under way. Never less than the last time, although
    /// the recorder ends a call in two steps. Only for the control server.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        let most_ns = self.control.stalled_ns.get().max(self.recorder.stalled_ns(now_ns));
        self.control.stalled_ns.set(most_ns);
        most_ns
    }

    /// The sources that are read, with their ids: without those that were removed, and of two with one name, of which a reload is
    /// removing the first, without that. So each name is there once.
    pub fn current_sources(&self) -> Vec<(u16, &SourceMetrics)> {
        let all: Vec<(u16, &SourceMetrics)> = (0..).zip(self.sources.iter().map(Arc::as_ref)).collect();
        let is_current = |(id, source): &(u16, &SourceMetrics)| {
            source.removed.get() == 0
                && !all.iter().any(|(later, other)| later > id && other.name == source.name)
        };
        all.iter().copied().filter(is_current).collect()
    }
}

/// Counters of one source. sampled (= begun) = recorded + lost + in flight.
#[derive(Debug)]
pub struct SourceMetrics {
    /// The source's name.
    pub name: String,
    /// Nominal period, in nanoseconds, as now configured. Written by the daemon.
    pub period_ns: Counter,
    /// 1 once the source was taken away while the run goes on: nothing is read for it any more. Written by the daemon.
    pub removed: Counter,
    /// Readings begun; the next sequence number. Written by the sampler.
    pub begun: Counter,
    /// Ticks that were never begun. Written by the sampler.
    pub missed: Counter,
    /// Readings that lacked something. Written by the sampler.
    pub partial: Counter,
    /// What those lacked, all together, as the flags of their frames say it. Written by the sampler.
    pub lacked: Counter,
    /// Readings that failed. Written by the sampler, after `error`.
    pub failed: Counter,
    /// The kernel's error number of the last one that failed; 0 if it gave none. Written by the sampler.
    pub error: Counter,
    /// Readings that did not come back in time. Written by the sampler.
    pub timed_out: Counter,
    /// What its readings have taken of a core, with what is done around them, in nanoseconds. Written by the sampler.
    pub spent: Counter,
    /// What they would take of a core, in nanoseconds a second, as often as the source's own budget allows; 0 until that is known.
    /// Written by the sampler.
    pub demand: Counter,
    /// Every how many periods it is read, doubled, and one more if the agent's budget is why; 0 until the first change.
    pace: Counter,
    /// Frames handed to the kernel. Written by the recorder.
    pub recorded: Counter,
    /// Bytes of those frames. Written by the recorder.
    pub bytes: Counter,
    /// Readings that are in Gap frames. Written by the recorder.
    pub lost: Counter,
    /// Why those were lost, all together, as the frames say it. Written by the recorder.
    pub causes: Counter,
    /// Begin of a reading minus its deadline, over the last interval. Written by the recorder.
    pub lateness: PublishedLatency,
    /// How long a reading took, over the last interval. Written by the recorder.
    pub read_duration: PublishedLatency,
}

impl SourceMetrics {
    /// All zero.
    pub fn new(name: String, period_ns: u64) -> Self {
        let period = Counter::default();
        period.set(period_ns);
        Self {
            name,
            period_ns: period,
            removed: Counter::default(),
            begun: Counter::default(),
            missed: Counter::default(),
            partial: Counter::default(),
            lacked: Counter::default(),
            failed: Counter::default(),
            error: Counter::default(),
            timed_out: Counter::default(),
            spent: Counter::default(),
            demand: Counter::default(),
            pace: Counter::default(),
            recorded: Counter::default(),
            bytes: Counter::default(),
            lost: Counter::default(),
            causes: Counter::default(),
            lateness: PublishedLatency::default(),
            read_duration: PublishedLatency::default(),
        }
    }
}

impl SourceMetrics {
    /// Every how many periods it is read, at least 1.
    pub fn stride(&self) -> u64 {
        self.pace().0
    }

    /// That, and which budget is the reason where it is more than 1.
    pub fn pace(&self) -> (u64, Limit) {
        let pace = self.pace.get();
        ((pace / 2).max(1), if pace % 2 == 1 { Limit::Agent } else { Limit::Source })
    }

    /// A reading failed for this. Only for the sampler.
    pub fn note_failure(&self, error: &io::Error) {
        self.error.set(number_of(error));
        self.failed.add(1);
    }

    /// Why the last of the readings that failed did so.
    pub fn failure(&self) -> io::Error {
        error_of(self.error.get())
    }

    /// It is read every so many periods from now on, for the sake of this budget. Only for the sampler.
    pub fn set_pace(&self, stride: u64, limit: Limit) {
        self.pace.set(stride * 2 + u64::from(limit == Limit::Agent));
    }
}

/// Counters of one sampler group, all written by its thread.
#[derive(Debug, Default)]
pub struct GroupMetrics {
    /// The group's name.
    pub name: &'static str,
    /// Its place among all groups there can be.
    pub number: u64,
    /// Slabs handed over.
    pub slabs: Counter,
    /// Slabs given up since the queue was full, or the recorder had ended: their readings are lost.
    pub slabs_dropped: Counter,
    /// Time that the group has waited for room, in nanoseconds; only where it is told to wait. Grows while it waits.
    pub waited_ns: Counter,
}

impl GroupMetrics {
    /// All zero.
    pub fn new(name: &'static str, number: u64) -> Self {
        Self { name, number, ..Self::default() }
    }
}

/// A call of the storage that takes longer than this is a stall, in nanoseconds.
pub const STORAGE_STALL_NS: u64 = 1_000_000_000;

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
    /// Segments that somebody removed while they were open.
    pub segments_removed: Counter,
    /// Frames in those: counted as recorded, and gone.
    pub frames_removed: Counter,
    /// The kernel's error number of the last of those that failed; 0 if it gave none.
    storage_error: Counter,
    /// Whether a segment is open: 1, or 0 where the next one cannot be begun.
    pub segment_open: Counter,
    /// The number of the segment that is open, or was last.
    pub segment_number: Counter,
    /// When that was begun by the wall clock, in seconds since 1970.
    pub segment_created_s: Counter,
    /// When it was begun, in monotonic nanoseconds.
    pub segment_begun_ns: Counter,
    /// Bytes in it.
    pub segment_bytes: Counter,
    /// Frames in it, the recorder's own too.
    pub segment_frames: Counter,
    /// Most slabs that waited in all queues in the last second.
    pub slabs_queued: Counter,
    /// Slabs that were free when the last second ended.
    pub slabs_free: Counter,
    /// Readings that are lost and not yet counted so by their sources, since no Gap in a file covers them, when the last second ended.
    pub losses_pending: Counter,
    /// Turns of its loop. While it neither turns nor waits for the storage, the service's watchdog is not fed.
    pub turns: Counter,
    /// Since when it waits for the storage, on the monotonic clock in nanoseconds; 0 if it does not.
    pub in_storage_since: Counter,
    /// Calls of the storage that have taken longer than [`STORAGE_STALL_NS`]; one under way is not among them yet.
    pub storage_stalls: Counter,
    /// Time that these have taken, in nanoseconds.
    pub storage_stalled_ns: Counter,
    /// Building a payload; one in 64 is timed.
    pub build: PublishedLatency,
    /// Handing a slab to the queue.
    pub hand_over: PublishedLatency,
    /// From the hand-over of a slab to the recorder taking it.
    pub queue_wait: PublishedLatency,
    /// One append to a segment.
    pub write: PublishedLatency,
    /// One fdatasync.
    pub sync: PublishedLatency,
}

impl RecorderMetrics {
    /// The recorder asks the storage for something, at this time of the monotonic clock. Only for the recorder.
    #[inline]
    pub fn enter_storage(&self, now_ns: u64) {
        self.in_storage_since.set(now_ns);
    }

    /// The storage has answered. Only for the recorder.
    #[inline]
    pub fn leave_storage(&self, now_ns: u64) {
        let taken_ns = now_ns.saturating_sub(self.in_storage_since.get());
        self.in_storage_since.set(0);
        if taken_ns > STORAGE_STALL_NS {
            self.storage_stalls.add(1);
            self.storage_stalled_ns.add(taken_ns);
        }
    }

    /// How long the call of the storage that is under way has taken, if that is a stall already.
    pub fn stall_ns(&self, now_ns: u64) -> Option<u64> {
        let since_ns = self.in_storage_since.get();
        let taken_ns = now_ns.saturating_sub(since_ns);
        (since_ns != 0 && taken_ns > STORAGE_STALL_NS).then_some(taken_ns)
    }

    /// Time that the storage has stood still so far, in nanoseconds, with the call under way: what grows while it does.
    fn stalled_ns(&self, now_ns: u64) -> u64 {
        self.storage_stalled_ns.get().saturating_add(self.stall_ns(now_ns).unwrap_or(0))
    }

    /// The storage failed. Only for the recorder.
    pub fn note_storage_error(&self, error: &io::Error) {
        self.storage_error.set(number_of(error));
        self.storage_errors.add(1);
    }

    /// Why it failed the last time; none if it never did.
    pub fn storage_failure(&self) -> Option<io::Error> {
        (self.storage_errors.get() > 0).then(|| error_of(self.storage_error.get()))
    }
}

/// What is in the data directory as of the last look, about once a second. One thread at a time writes it.
#[derive(Debug, Default)]
pub struct DirectoryMetrics {
    /// Bytes that its files occupy.
    pub bytes: Counter,
    /// Bytes that they may occupy (`retain_bytes`).
    pub bytes_max: Counter,
    /// Bytes that are free in its file system.
    pub free_bytes: Counter,
    /// Bytes that shall stay free (`keep_free`).
    pub keep_free_bytes: Counter,
    /// Bytes of the file system.
    pub total_bytes: Counter,
    /// Closed segments, and files that were set aside of such.
    pub segments: Counter,
    /// The lowest number of those.
    pub oldest_number: Counter,
    /// When that one was begun, in seconds since 1970, as its name says; 0 if there is none.
    pub oldest_created_s: Counter,
    /// Files removed to keep the limits.
    pub removed: Counter,
    /// Bytes of those that its files occupy which are reserved for segments to come.
    pub reserved_bytes: Counter,
    /// 1 while so little disk space is left that the oldest segments soon go, else 0.
    pub is_short: Counter,
}

/// Counters of compression. Written by the thread that plans it, but for the CPU time of the threads that do it.
#[derive(Debug, Default)]
pub struct SealerMetrics {
    /// 1 while closed segments are to be compressed, and can be.
    pub enabled: Counter,
    /// Segments that are compressed.
    pub segments: Counter,
    /// Bytes of those as they were recorded.
    pub raw_bytes: Counter,
    /// Bytes of those as they are.
    pub stored_bytes: Counter,
    /// Segments left as they are, since compression would not pay or they are damaged.
    pub left: Counter,
    /// Times that compressing a segment failed.
    pub failures: Counter,
    /// Closed segments that wait to be compressed, those under way too.
    pub waiting: Counter,
    /// Since when the oldest of those has waited, in monotonic nanoseconds; 0 if none waits.
    pub oldest_since_ns: Counter,
    /// CPU time of the thread that plans, in nanoseconds.
    pub own_cpu_ns: Counter,
    /// CPU time of the thread that compresses at idle priority, in nanoseconds. Written by that thread.
    pub spare_cpu_ns: Counter,
    /// CPU time of the thread that compresses with the guaranteed share, in nanoseconds. Written by that thread.
    pub guaranteed_cpu_ns: Counter,
}

impl SealerMetrics {
    /// CPU time of all threads of compression, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.own_cpu_ns.get() + self.spare_cpu_ns.get() + self.guaranteed_cpu_ns.get()
    }

    /// How long the oldest segment that waits has done so, in nanoseconds; 0 if none waits.
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
    /// Connections taken.
    pub connections: Counter,
    /// Connections that are open.
    pub connections_open: Counter,
    /// Connections ended since the client was too slow.
    pub timed_out: Counter,
    /// Connections ended since they had sent no request and a newer one needed the place.
    pub displaced: Counter,
    /// Times that a listener took nobody for a while, since answering had taken its share of the agent's budget.
    pub pauses: Counter,
    /// Requests answered.
    pub requests: Counter,
    /// Requests refused, for whatever reason.
    pub refused: Counter,
    /// Most that [`Metrics::stalled_ns`] has ever come to.
    stalled_ns: Counter,
}

/// Counters of the daemon, all written by its thread.
#[derive(Debug, Default)]
pub struct DaemonMetrics {
    /// Reloads that were asked for and have ended.
    pub reloads: Counter,
    /// Those of them that changed nothing since the configuration was wrong or could not be put into effect.
    pub reloads_failed: Counter,
    /// 1 if the configuration in effect is the one that was read last, 0 if that one was refused.
    pub config_current: Counter,
    /// 1 if the run was started by the last good configuration and no reload has succeeded since.
    pub config_fallback: Counter,
    /// When the configuration in effect was read, in seconds since 1970.
    pub config_read_s: Counter,
    /// 1 if samples that are not written yet lie in `run_dir` and outlive a kill of this process, else 0.
    pub run_dir_in_use: Counter,
}

impl DaemonMetrics {
    /// The configuration of the start is in effect; read at this wall time.
    pub fn note_config(&self, read_s: u64) {
        self.config_current.set(1);
        self.config_fallback.set(0);
        self.config_read_s.set(read_s);
    }

    /// The configuration of the start was refused: the last good one is in effect, read at this wall time.
    pub fn note_fallback(&self, read_s: u64) {
        self.config_current.set(0);
        self.config_fallback.set(1);
        self.config_read_s.set(read_s);
    }

    /// Whether samples that are not written yet lie in `run_dir`.
    pub fn note_run_dir(&self, is_in_use: bool) {
        self.run_dir_in_use.set(is_in_use.into());
    }

    /// A reload has ended well; what is in effect was read at this wall time.
    pub fn note_reload(&self, read_s: u64) {
        self.note_config(read_s);
        self.reloads.add(1);
    }

    /// A reload has changed nothing since something is wrong.
    pub fn note_failed_reload(&self) {
        self.config_current.set(0);
        self.reloads.add(1);
        self.reloads_failed.add(1);
    }
}

/// The kernel's number of an error; 0 if it has none.
fn number_of(error: &io::Error) -> u64 {
    match (error.raw_os_error(), error.kind()) {
        (Some(number), _) => u64::from(number.unsigned_abs()),
        (None, ErrorKind::FileTooLarge) => TOO_LARGE,
        (None, ErrorKind::StorageFull) => NO_SPACE,
        (None, _) => 0,
    }
}

fn error_of(number: u64) -> io::Error {
    match i32::try_from(number) {
        Ok(number @ 1..) => io::Error::from_raw_os_error(number),
        _ => io::Error::other("for no reason that the kernel gave"),
    }
}

#[cfg(all(test, not(flatcap_model)))]
mod tests {
    use super::*;

    // Goal: each name is there once, and nothing that was removed. Method: a source that moves to another id, before and after the first
    // is removed; and one that only goes.
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

    // Goal: what has been told of a stall is never taken back, not even while the recorder leaves the call. Method: its two steps by hand.
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

    // Goal: a stall is known while it lasts, and counted once when it is over; a call that is quick is none. Method: times given by hand.
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
        assert_eq!((metrics.stall_ns(11 * s), metrics.stalled_ns(11 * s)), (None, 0));
        assert_eq!((metrics.stall_ns(14 * s), metrics.stalled_ns(14 * s)), (Some(4 * s), 4 * s));
        metrics.leave_storage(15 * s);
        assert_eq!((metrics.stall_ns(16 * s), metrics.stalled_ns(16 * s)), (None, 5 * s));
        assert_eq!((metrics.storage_stalls.get(), metrics.storage_stalled_ns.get()), (1, 5 * s));
    }
}
