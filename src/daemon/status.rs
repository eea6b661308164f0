//! Collects the answer to `status`. A rate needs two measurements, so measurements are taken every
//! second and not only when a client asks.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_control::{
    CompressorStatus, Forecast, FormerStatus, GroupStatus, ProcessStatus, PushStatus, QueueStatus,
    ReloadStatus, RingStatus, RuleStatus, SegmentStatus, SenderStatus, SourceStatus, Status, StorageStatus,
    ratio,
};
use flatcap_format::segment::{SealState, SegmentHeader, SegmentName, SourceSender};
use flatcap_metrics::{CompressionMetrics, DirectoryMetrics, Metrics, RecorderMetrics, SourceMetrics};
use flatcap_os::autogroup::NiceValues;
use flatcap_os::clock::{NS_PER_S, process_cpu_ns};
use flatcap_os::process_usage::ProcessUsage;

/// Interval between two measurements.
const MEASURE_INTERVAL_NS: u64 = NS_PER_S;
/// Number of measurements that are kept for the growth rate of the directory. They cover one
/// minute.
const MEASUREMENTS_MAX: usize = 60;
/// Maximum lag of compression, in nanoseconds. If compression lags by more than this, the forecast
/// ignores compression, because segments may be removed before they are compressed.
const LAG_MAX_NS: u64 = 600 * NS_PER_S;
/// Maximum number of applications that are listed.
const SENDERS_MAX: usize = 64;
/// Number of periods over which the rate of a source with a long period is measured.
const PERIODS: u64 = 2;

/// The measurements for the status of a run.
#[derive(Debug)]
pub(super) struct StatusTracker {
    run_id: u64,
    host: String,
    labels: BTreeMap<String, String>,
    data_dir: String,
    start_ns: u64,
    start_cpu_ns: u64,
    next_ns: u64,
    written: VecDeque<(u64, u64)>, // time and bytes written until then; the latest last
    cpu: [(u64, u64); 2],          // the last two measurements: time and CPU time until then
    sources: Vec<SourceRates>,     // by id
    /// The result of the last reload, or the reason why the configuration at the start was refused.
    pub(super) last_reload: Option<String>,
    ring: Option<(Duration, PathBuf)>, // its window and directory
    nice: NiceValues,
}

/// The last measurement of a source, and its rates.
#[derive(Debug, Clone, Copy, Default)]
struct SourceRates {
    last: Option<SourceSnapshot>,
    rates: Option<(f64, f64)>, // samples and bytes per second
}

#[derive(Debug, Clone, Copy)]
struct SourceSnapshot {
    at_ns: u64,
    sampled: u64,
    bytes: u64,
}

impl StatusTracker {
    /// Creates the tracker. If the configuration at the start was refused, `refusal` is the reason.
    pub(super) fn new(run_id: u64, data_dir: &Path, start_ns: u64, refusal: Option<String>) -> Self {
        let start_cpu_ns = process_cpu_ns();
        Self {
            run_id,
            host: String::new(),
            labels: BTreeMap::new(),
            // The path is made absolute, because clients have other working directories.
            data_dir: std::path::absolute(data_dir).as_deref().unwrap_or(data_dir).display().to_string(),
            start_ns,
            start_cpu_ns,
            next_ns: start_ns,
            written: VecDeque::with_capacity(MEASUREMENTS_MAX),
            cpu: [(start_ns, start_cpu_ns); 2],
            sources: Vec::new(),
            last_reload: refusal,
            ring: None,
            nice: NiceValues { process: 0, session: None },
        }
    }

    /// Adds the configured window and the directory of the ring.
    pub(super) fn with_ring(mut self, window: Duration, path: Option<PathBuf>) -> Self {
        self.ring = path.map(|path| (window, path));
        self
    }

    /// Adds the nice values of the process.
    pub(super) fn with_nice(mut self, nice: NiceValues) -> Self {
        self.nice = nice;
        self
    }

    /// Adds the name and the labels of the host, as in the run's segments.
    pub(super) fn with_host(mut self, header: &SegmentHeader) -> Self {
        self.host.clone_from(&header.host.name);
        self.labels = header.host.labels.iter().cloned().collect();
        self
    }

    /// Takes a measurement if one is due.
    pub(super) fn update(&mut self, now_ns: u64, metrics: &Metrics) {
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + MEASURE_INTERVAL_NS;
        if self.written.len() == MEASUREMENTS_MAX {
            self.written.pop_front();
        }
        self.written.push_back((now_ns, metrics.recorder.bytes.get()));
        self.cpu = [self.cpu[1], (now_ns, process_cpu_ns())];
        self.sources.resize(metrics.sources.len(), SourceRates::default());
        for (book, source) in self.sources.iter_mut().zip(metrics.sources.iter()) {
            book.update(now_ns, source);
        }
    }

    /// Returns the current status.
    pub(super) fn status(&self, now_ns: u64, metrics: &Metrics, recovering: bool) -> Status {
        let [(before_ns, before), (last_ns, last)] = self.cpu;
        let current = metrics.current_sources();
        Status {
            recorder: ProcessStatus {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                run_id: format!("{:016x}", self.run_id),
                host: self.host.clone(),
                labels: self.labels.clone(),
                data_dir: self.data_dir.clone(),
                uptime_ns: now_ns.saturating_sub(self.start_ns),
                cpu: ratio(
                    process_cpu_ns().saturating_sub(self.start_cpu_ns),
                    now_ns.saturating_sub(self.start_ns),
                )
                .unwrap_or_default(),
                cpu_now: ratio(last.saturating_sub(before), last_ns.saturating_sub(before_ns))
                    .unwrap_or_default(),
                nice: Some(self.nice.process),
                session_nice: self.nice.session,
                resident_bytes: ProcessUsage::now().ok().map(|usage| usage.resident_bytes),
                recovering,
                run_dir_in_use: metrics.daemon.run_dir_in_use.get() != 0,
            },
            former: FormerStatus::new(&former(&current, metrics)),
            sources: current
                .into_iter()
                .map(|(id, source)| {
                    let rates = self.sources.get(usize::from(id)).and_then(|book| book.rates);
                    let causes = (source.lost.get() > 0).then(|| source.lost_causes().to_string());
                    SourceStatus::new(id, source, rates, causes, source.stride_and_budget())
                })
                .collect(),
            segment: self.segment(now_ns, &metrics.recorder),
            storage: StorageStatus::new(
                &metrics.directory,
                &metrics.recorder,
                now_ns,
                self.forecast(now_ns, metrics),
            ),
            compression: CompressorStatus::new(&metrics.compression, now_ns),
            reload: ReloadStatus::new(&metrics.daemon, self.last_reload.clone()),
            ring: self
                .ring
                .as_ref()
                .map(|(window, path)| RingStatus::new(&metrics.ring, path.display().to_string(), *window)),
            // Applications can push only if there is memory for their frames.
            push: (metrics.push.memory_bytes_max.get() > 0)
                .then(|| PushStatus::new(&metrics.push, senders(metrics))),
            queues: QueueStatus::new(
                &metrics.recorder,
                metrics.queueing_groups().map(GroupStatus::new).collect(),
            ),
            rules: metrics.rules.iter().map(RuleStatus::new).collect(),
        }
    }

    fn segment(&self, now_ns: u64, recorder: &RecorderMetrics) -> SegmentStatus {
        let name = SegmentName {
            number: recorder.segment_number.get(),
            created_s: i64::try_from(recorder.segment_created_s.get()).unwrap_or(i64::MAX),
            run_id: self.run_id,
            state: SealState::Active,
        };
        SegmentStatus::new(recorder, name.to_string(), now_ns)
    }

    fn forecast(&self, now_ns: u64, metrics: &Metrics) -> Forecast {
        let first = self.written.front().zip(self.written.back());
        let bytes_per_s = first.and_then(|(first, last)| {
            ratio(last.1.saturating_sub(first.1), last.0.saturating_sub(first.0)).map(|bytes| bytes * 1e9)
        });
        let compression_ratio = compression_ratio(&metrics.compression, now_ns);
        let stored_per_s = bytes_per_s.map(|rate| rate * compression_ratio.unwrap_or(1.0));
        let time_to_full_ns = stored_per_s.and_then(|rate| time_to_full_ns(&metrics.directory, rate));
        Forecast { bytes_per_s, time_to_full_ns, compression_ratio }
    }
}

impl SourceRates {
    /// Measures a source if the time since the previous measurement is long enough for some
    /// samples.
    fn update(&mut self, now_ns: u64, source: &SourceMetrics) {
        let now = SourceSnapshot { at_ns: now_ns, sampled: source.in_files(), bytes: source.bytes.get() };
        let least_ns = source.period_ns.get().saturating_mul(source.stride()).saturating_mul(PERIODS);
        match self.last {
            Some(seen) if now_ns.saturating_sub(seen.at_ns) < least_ns => return,
            Some(seen) => {
                let elapsed_ns = now_ns.saturating_sub(seen.at_ns);
                let per_second = |count| ratio(count, elapsed_ns).map(|count| count * 1e9);
                self.rates = per_second(now.sampled.saturating_sub(seen.sampled))
                    .zip(per_second(now.bytes.saturating_sub(seen.bytes)));
            }
            None => {}
        }
        self.last = Some(now);
    }
}

/// Returns the sources that this process has read earlier and no longer reads.
fn former<'a>(current: &[(u16, &SourceMetrics)], metrics: &'a Metrics) -> Vec<&'a SourceMetrics> {
    let is_current = |id: u16| current.iter().any(|(current, _)| *current == id);
    let read = (0..).zip(metrics.sources.iter()).filter(|(_, source)| !source.is_pushed());
    read.filter(|(id, _)| !is_current(*id)).map(|(_, source)| source.as_ref()).collect()
}

/// Returns the applications that push, sorted by number of frames in descending order.
fn senders(metrics: &Metrics) -> Vec<SenderStatus> {
    let mut pushed: BTreeMap<&SourceSender, Vec<&SourceMetrics>> = BTreeMap::new();
    for source in metrics.sources.iter() {
        let Some(sender) = &source.sender else { continue };
        pushed.entry(sender).or_default().push(source);
    }
    let senders = pushed.into_iter().map(|(sender, pushed)| SenderStatus::new(sender, &pushed));
    let mut senders: Vec<SenderStatus> = senders.collect();
    senders.sort_by_key(|sender| std::cmp::Reverse((sender.recorded, sender.sources)));
    senders.truncate(SENDERS_MAX);
    senders
}

/// Returns the compressed size per recorded byte, as measured in this run. Segments that were left
/// uncompressed count with their full size. Returns `None` if compression is off or lags, or if
/// nothing has been measured yet.
#[allow(clippy::cast_precision_loss, reason = "a forecast")]
fn compression_ratio(compression: &CompressionMetrics, now_ns: u64) -> Option<f64> {
    let is_lagging = compression.oldest_wait_ns(now_ns) > LAG_MAX_NS;
    if compression.enabled.get() == 0 || is_lagging {
        return None;
    }
    let share = ratio(compression.stored_bytes.get(), compression.raw_bytes.get())?;
    let (compressed, left) = (compression.segments.get() as f64, compression.skipped.get() as f64);
    Some((share * compressed + left) / (compressed + left))
}

/// Returns the time until the first limit is reached if the directory grows at this rate.
fn time_to_full_ns(directory: &DirectoryMetrics, bytes_per_s: f64) -> Option<u64> {
    let space = directory.bytes_max.get().saturating_sub(directory.bytes.get());
    let free = directory.free_bytes.get().saturating_sub(directory.min_free_bytes.get());
    #[allow(clippy::cast_precision_loss, reason = "a forecast")]
    let seconds = space.min(free) as f64 / bytes_per_s;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from f64 saturates; no part is negative"
    )]
    seconds.is_finite().then_some((seconds * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        let sources = [
            SourceMetrics::new("cpu".to_owned(), 10_000_000),
            SourceMetrics::new("slow".to_owned(), 4 * NS_PER_S),
        ];
        Metrics::new(sources, 2, Box::new([]))
    }

    // Proves that rates cover the last second, or two periods if these are longer.
    #[test]
    fn rates_are_measured() {
        let metrics = metrics();
        let mut tracker = StatusTracker::new(7, Path::new("/data"), 0, None);
        for second in 0..=20_u64 {
            metrics.sources.get(0).unwrap().recorded.set(90 * second);
            metrics.sources.get(0).unwrap().bytes.set(9_000 * second);
            metrics.sources.get(1).unwrap().recorded.set(second / 4);
            metrics.recorder.bytes.set(9_100 * second);
            tracker.update(second * NS_PER_S, &metrics);
            tracker.update(second * NS_PER_S + 200, &metrics);
        }
        let status = tracker.status(20 * NS_PER_S, &metrics, false);
        let rates: Vec<_> =
            status.sources.iter().map(|source| (source.achieved_hz, source.bytes_per_s)).collect();
        assert_eq!(rates, [(Some(90.0), Some(9_000.0)), (Some(0.25), Some(0.0))]);
        assert_eq!((status.sources[0].requested_hz, status.sources[1].requested_hz), (100.0, 0.25));
        assert_eq!(status.storage.bytes_per_s, Some(9_100.0));
        assert_eq!(
            (status.recorder.run_id.as_str(), status.recorder.uptime_ns),
            ("0000000000000007", 20 * NS_PER_S)
        );
    }

    // Proves that the forecast uses the limit that is reached first, and that there is no forecast
    // without growth.
    #[test]
    fn the_first_limit_counts() {
        let directory = DirectoryMetrics::default();
        directory.bytes_max.set(10_000);
        directory.bytes.set(4_000);
        directory.free_bytes.set(9_000);
        directory.min_free_bytes.set(1_000);
        assert_eq!(time_to_full_ns(&directory, 1_000.0), Some(6 * NS_PER_S));
        directory.min_free_bytes.set(8_000);
        assert_eq!(time_to_full_ns(&directory, 1_000.0), Some(NS_PER_S));
        directory.bytes.set(11_000);
        assert_eq!(time_to_full_ns(&directory, 1_000.0), Some(0));
        assert_eq!(time_to_full_ns(&directory, 0.0), None);
    }

    // Proves that the forecast includes compression while compression keeps up. Also proves that
    // the forecast uses the uncompressed size if compression is off, lags or has left segments
    // uncompressed.
    #[test]
    fn the_forecast_knows_of_compression() {
        let metrics = metrics();
        let mut tracker = StatusTracker::new(7, Path::new("/data"), 0, None);
        let (directory, compression) = (&metrics.directory, &metrics.compression);
        directory.bytes_max.set(10_000);
        directory.free_bytes.set(1 << 30);
        tracker.update(0, &metrics);
        metrics.recorder.bytes.set(1_000);
        tracker.update(NS_PER_S, &metrics);
        let seconds = |at_s: u64| {
            let storage = tracker.status(at_s * NS_PER_S, &metrics, false).storage;
            assert_eq!(storage.bytes_per_s, Some(1_000.0));
            let is_of_raw_data = storage.time_to_full_ns == Some(10 * NS_PER_S);
            assert_eq!(storage.compression_ratio.is_none(), is_of_raw_data);
            storage.time_to_full_ns.map(|ns| ns / NS_PER_S)
        };
        assert_eq!(seconds(1), Some(10), "off");
        compression.enabled.set(1);
        assert_eq!(seconds(1), Some(10), "nothing is measured");
        compression.segments.set(3);
        compression.raw_bytes.set(8_000);
        compression.stored_bytes.set(80);
        assert_eq!(seconds(1), Some(1_000));
        compression.oldest_since_ns.set(NS_PER_S);
        assert_eq!((seconds(600), seconds(602)), (Some(1_000), Some(10)), "lagging");
        compression.skipped.set(3);
        assert_eq!(seconds(2), Some(19), "half of the segments stay as they are");
    }

    // Proves that the losses of a source still count after a reload removes it or gives it another
    // id.
    #[test]
    fn former_sources_are_summed_up() {
        let source = |name: &str| SourceMetrics::new(name.to_owned(), 1);
        let metrics = Metrics::new(["moved", "gone", "stays"].map(source), 4, Box::new([]));
        let tracker = StatusTracker::new(7, Path::new("/data"), 0, None);
        for (id, lost) in [(0, 1), (1, 20), (2, 300)] {
            metrics.sources.get(id).unwrap().lost.set(lost);
        }
        metrics.sources.get(1).unwrap().failed.set(7);
        assert_eq!(tracker.status(0, &metrics, false).former, FormerStatus::default());
        assert!(metrics.sources.push(std::sync::Arc::new(source("moved"))).is_ok());
        metrics.sources.get(1).unwrap().removed.set(1);
        let status = tracker.status(0, &metrics, false);
        assert_eq!(status.former, FormerStatus { sources: 2, lost: 21, failed: 7, timed_out: 0 });
        let ids: Vec<_> = status.sources.iter().map(|source| (source.id, source.lost)).collect();
        assert_eq!(ids, [(2, 300), (3, 0)]);
    }

    // Proves that a storage stall is reported while it lasts and counted afterwards.
    #[test]
    fn a_stall_is_said() {
        let metrics = metrics();
        let tracker = StatusTracker::new(7, Path::new("/data"), 0, None);
        let said = |at_ns| {
            let storage = tracker.status(at_ns, &metrics, false).storage;
            (storage.stalled_ns, storage.stalls)
        };
        metrics.recorder.enter_storage(NS_PER_S);
        assert_eq!(said(2 * NS_PER_S), (None, 0));
        assert_eq!(said(10 * NS_PER_S), (Some(9 * NS_PER_S), 0));
        metrics.recorder.leave_storage(11 * NS_PER_S);
        assert_eq!(said(12 * NS_PER_S), (None, 1));
    }

    // Proves that unknown values are absent at the start of a run.
    #[test]
    fn a_run_that_begins_has_no_rates() {
        let metrics = metrics();
        let mut tracker = StatusTracker::new(7, Path::new("/data"), 100, None);
        tracker.update(100, &metrics);
        let status = tracker.status(100, &metrics, true);
        let source = &status.sources[0];
        assert_eq!((source.achieved_hz, source.achieved_hz_run, source.cost_ns), (None, None, None));
        assert_eq!((status.storage.bytes_per_s, status.storage.time_to_full_ns), (None, None));
        assert!(status.recorder.recovering && !status.is_lossy() && status.storage.oldest_number.is_none());
    }
}
