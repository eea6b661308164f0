//! The recorder's state as JSON. Fields are added, but never removed or changed. Readers ignore
//! unknown fields, and use defaults for fields that an older recorder lacks.

use std::collections::BTreeMap;
use std::time::Duration;

use flatcap_format::histogram::LatencySummary;
use flatcap_format::schema::to_visible_json;
use flatcap_format::segment::SourceSender;
use flatcap_metrics::{
    CompressionMetrics, Counter, DaemonMetrics, DirectoryMetrics, GroupMetrics, LimitingBudget, PushMetrics,
    RecorderMetrics, RingMetrics, RuleMetrics, SourceMetrics,
};
use flatcap_os::clock::NS_PER_S;
use serde::{Deserialize, Serialize};

/// The answer to `GET /status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The process of the recorder.
    pub recorder: ProcessStatus,
    /// One entry per source that is read, in the order of ids.
    pub sources: Vec<SourceStatus>,
    /// Sources that were read earlier in this run. A reload has removed them or changed their ids.
    pub former: FormerStatus,
    /// The open segment. If no segment is open because the next one cannot be created, this is the
    /// last segment.
    pub segment: SegmentStatus,
    /// The data directory.
    pub storage: StorageStatus,
    /// The compressor of sealed segments.
    pub compression: CompressorStatus,
    /// The configuration.
    pub reload: ReloadStatus,
    /// The queues between the samplers and the recorder.
    pub queues: QueueStatus,
    /// The ring of the black box; `None` if there is no ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<RingStatus>,
    /// Frames that applications push; `None` if applications may not push.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushStatus>,
    /// All rules that have existed in this run. The field is absent if there are no rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleStatus>,
}

/// The process of the recorder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessStatus {
    /// The recorder's version.
    pub version: String,
    /// The recorder's process id.
    pub pid: u32,
    /// The run's id, 16 hexadecimal digits, as in the names of segments.
    pub run_id: String,
    /// The host's name.
    pub host: String,
    /// The host's labels.
    pub labels: BTreeMap<String, String>,
    /// The data directory.
    pub data_dir: String,
    /// Time since the first tick, in nanoseconds.
    pub uptime_ns: u64,
    /// Share of one core used since the start. A share of 1 is a whole core. The CPU time of
    /// programs that `command.NAME` starts is not included.
    pub cpu: f64,
    /// Share of one core used over the last second, measured like `cpu`.
    pub cpu_now: f64,
    /// Nice value of the process; `None` if an older recorder does not report it.
    pub nice: Option<i32>,
    /// Nice value of the process's session (autogroup); `None` if the kernel does not use
    /// autogroups.
    pub session_nice: Option<i32>,
    /// Resident memory, in bytes; `None` if /proc cannot be read.
    pub resident_bytes: Option<u64>,
    /// Whether earlier runs are being recovered.
    pub recovering: bool,
    /// Whether unwritten samples are kept in `run_dir` and survive a kill of the process.
    pub run_dir_in_use: bool,
}

/// Declares a part of the status, and how its fields are computed from counters. A row either
/// defines a JSON field and its value, or lists counters that become JSON fields of the same name.
/// The table of metrics has the meaning of each counter.
macro_rules! status {
    ($(#[$about:meta])* $part:ident($($arguments:tt)*) { $($rows:tt)* }) => {
        status!(@rows [$(#[$about])*] $part [$($arguments)*] [] [] $($rows)*);
    };
    (@rows $about:tt $part:ident $arguments:tt [$($fields:tt)*] [$($values:tt)*]
     $from:ident: $($counter:ident),+; $($rows:tt)*) => {
        status!(
            @rows $about $part $arguments
            [$($fields)* $(#[doc = concat!("The metric `", stringify!($counter), "` of `", stringify!($from), "`.")] pub $counter: u64,)+]
            [$($values)* $($counter: $from.$counter.get(),)+]
            $($rows)*
        );
    };
    (@rows $about:tt $part:ident $arguments:tt [$($fields:tt)*] [$($values:tt)*]
     $(#[$meaning:meta])* $field:ident: $of:ty = $value:expr; $($rows:tt)*) => {
        status!(
            @rows $about $part $arguments
            [$($fields)* $(#[$meaning])* #[doc = concat!("\n`", stringify!($value), "`")] pub $field: $of,]
            [$($values)* $field: $value,]
            $($rows)*
        );
    };
    (@rows [$($about:tt)*] $part:ident [$($arguments:tt)*] [$($fields:tt)*] [$($values:tt)*]) => {
        $($about)*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $part { $($fields)* }

        impl $part {
            /// Returns this part of the status, computed from the current values of the counters.
            pub fn new($($arguments)*) -> Self {
                Self { $($values)* }
            }
        }
    };
}

status! {
    /// Frames that applications push. Counts are totals of the run.
    #[derive(Eq)]
    PushStatus(push: &PushMetrics, applications: Vec<SenderStatus>) {
        open: bool = push.is_open.get() == 1;
        push: clients, lanes, memory_bytes, memory_bytes_max, lanes_waiting, sources, begun,
            recorded, lost, bytes, refused, lanes_refused, triggers, cpu_ns, cpu_ns_max, cpu_waits;
        /// `None` is unlimited.
        user_frames_per_second_max: Option<u64> = limit_or_none(push.user_frames_max.get());
        /// `None` is unlimited.
        user_bytes_per_second_max: Option<u64> = limit_or_none(push.user_bytes_max.get());
        /// The applications that have pushed the most frames.
        senders: Vec<SenderStatus> = applications;
    }
}

status! {
    /// An application that has pushed frames, with totals over its sources.
    #[derive(Eq)]
    SenderStatus(sender: &SourceSender, pushed: &[&SourceMetrics]) {
        /// The name that the application gave itself.
        client: String = sender.client.clone();
        /// The user of its process, as the kernel reports it.
        user: Option<String> = sender.user.clone();
        /// The program of its process, as the kernel reports it.
        program: Option<String> = sender.program.clone();
        sources: u64 = pushed.len() as u64;
        recorded: u64 = sum(pushed, |source| &source.recorded);
        lost: u64 = sum(pushed, |source| &source.lost);
        bytes: u64 = sum(pushed, |source| &source.bytes);
    }
}

status! {
    /// The ring of the black box.
    RingStatus(ring: &RingMetrics, directory: String, window: Duration) {
        path: String = directory;
        /// The configured window.
        window_s: f64 = window.as_secs_f64();
        ring: held_s, bytes, bytes_max, recorded, lost, storage_errors;
    }
}

status! {
    /// A source. `rates` are the source's samples and bytes per second, measured over one second or
    /// two periods, whichever is longer. `pace` is one consistent reading of the stride and the
    /// limiting budget.
    SourceStatus(number: u16, source: &SourceMetrics, rates: Option<(f64, f64)>, causes: Option<String>, pace: (u64, LimitingBudget)) {
        name: String = source.name.clone();
        /// The source's id in this run's files.
        id: u16 = number;
        source: period_ns;
        /// The configured rate.
        requested_hz: f64 = requested_hz(source);
        /// Samples recorded per second; `None` until the rate is known.
        achieved_hz: Option<f64> = rates.map(|(samples, _)| samples);
        /// Mean number of samples recorded per second over the run. This is the configured rate
        /// times the share of ticks whose samples are in the files.
        achieved_hz_run: Option<f64> = share_in_files(source).map(|share| share * requested_hz(source));
        source: begun, recorded, lost, thinned;
        /// The causes of all losses; `None` without losses.
        lost_causes: Option<String> = causes;
        source: missed, incomplete;
        /// The latest reason why samples are incomplete, in words. Only a new reason replaces the
        /// previous one.
        #[serde(skip_serializing_if = "Option::is_none")]
        incomplete_reasons: Option<String> = source.incomplete_explanation();
        source: failed;
        /// The reason of the last failure.
        failure: Option<String> = source.failure().map(|error| error.to_string());
        source: timed_out;
        stride: u64 = pace.0;
        /// The limiting budget, `source` or `recorder`; `None` if the stride is 1.
        limited_by: Option<String> = limited_by(pace).map(str::to_owned);
        /// Distribution of the lateness of samples over the last second. All values are 0 if this
        /// second had no sample.
        lateness_ns: LatencyStatus = source.lateness.get().into();
        /// Distribution of the duration of reads over the last second.
        read_duration_ns: LatencyStatus = source.read_duration.get().into();
        /// Mean CPU time of a sample over the run, including its share of the overhead; `None`
        /// before the first sample.
        cost_ns: Option<u64> = source.spent.get().checked_div(source.begun.get());
        source: bytes;
        /// Bytes recorded per second, measured over the same time as `achieved_hz`.
        bytes_per_s: Option<f64> = rates.map(|(_, bytes)| bytes);
    }
}

status! {
    /// Totals over sources that are no longer read, and over sources whose id has changed.
    #[derive(Copy, Eq)]
    FormerStatus(former: &[&SourceMetrics]) {
        sources: u64 = former.len() as u64;
        lost: u64 = sum(former, |source| &source.lost);
        failed: u64 = sum(former, |source| &source.failed);
        timed_out: u64 = sum(former, |source| &source.timed_out);
    }
}

/// Count, median, 99th percentile and maximum of a distribution of durations. The durations are in
/// nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyStatus {
    /// Number of values.
    pub count: u64,
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The maximum.
    pub max: u64,
}

impl From<LatencySummary> for LatencyStatus {
    fn from(summary: LatencySummary) -> Self {
        Self { count: summary.count, p50: summary.p50_ns, p99: summary.p99_ns, max: summary.max_ns }
    }
}

status! {
    /// The open segment. If no segment is open, samples are being lost.
    SegmentStatus(recorder: &RecorderMetrics, file: String, now_ns: u64) {
        open: bool = recorder.segment_open.get() == 1;
        name: String = file;
        number: u64 = recorder.segment_number.get();
        bytes: u64 = recorder.segment_bytes.get();
        frames: u64 = recorder.segment_frames.get();
        /// Time since the creation of the segment.
        age_ns: u64 = now_ns.saturating_sub(recorder.segment_begun_ns.get());
        sealed: u64 = recorder.segments_sealed.get();
    }
}

status! {
    /// The data directory, measured about once a second.
    StorageStatus(directory: &DirectoryMetrics, recorder: &RecorderMetrics, now_ns: u64, forecast: Forecast) {
        data_bytes: u64 = directory.bytes.get();
        retain_bytes: u64 = directory.bytes_max.get();
        directory: free_bytes, min_free_bytes, kept_bytes, reserved_bytes;
        is_history_kept: bool = directory.is_history_kept.get() == 1;
        directory: total_bytes;
        bytes_per_s: Option<f64> = forecast.bytes_per_s;
        time_to_full_ns: Option<u64> = forecast.time_to_full_ns;
        compression_ratio: Option<f64> = forecast.compression_ratio;
        directory: segments;
        /// Number of the oldest sealed segment.
        oldest_number: Option<u64> = directory.oldest().map(|(number, _)| number);
        /// The creation time of the oldest segment according to its file name, in seconds since
        /// 1970.
        oldest_created_s: Option<u64> = directory.oldest().map(|(_, created_s)| created_s);
        directory: removed;
        written_bytes: u64 = recorder.bytes.get();
        errors: u64 = recorder.storage_errors.get();
        /// The reason of the last failure.
        last_error: Option<String> = recorder.storage_failure().map(|error| error.to_string());
        /// Duration of the current storage call if it exceeds one second, else `None`.
        stalled_ns: Option<u64> = recorder.current_stall_ns(now_ns);
        stalls: u64 = recorder.storage_stalls.get();
    }
}

/// The growth of the data directory, and the time until it reaches a limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Forecast {
    /// Bytes written per second over the last minute.
    pub bytes_per_s: Option<f64>,
    /// Time in nanoseconds until the nearest limit is reached, at the current rate after
    /// compression. At this time, the oldest segments are removed. The value is 0 if segments are
    /// already being removed. `None` if nothing is being written.
    pub time_to_full_ns: Option<u64>,
    /// Compressed bytes per written byte, as measured over the segments that this run has
    /// compressed. `time_to_full_ns` uses this ratio. `None` before the first compressed segment,
    /// and if compression is off or lags. If this field is `None`, `time_to_full_ns` assumes
    /// uncompressed data.
    pub compression_ratio: Option<f64>,
}

status! {
    /// The compressor of sealed segments.
    #[derive(Copy, Eq)]
    CompressorStatus(compression: &CompressionMetrics, now_ns: u64) {
        enabled: bool = compression.enabled.get() == 1;
        compression: segments, raw_bytes, stored_bytes, skipped, failures, waiting;
        oldest_wait_ns: u64 = compression.oldest_wait_ns(now_ns);
        cpu_ns: u64 = compression.cpu_ns();
        compression: guaranteed_cpu_ns;
    }
}

status! {
    /// The configuration.
    ReloadStatus(daemon: &DaemonMetrics, result: Option<String>) {
        count: u64 = daemon.reloads.get();
        failed: u64 = daemon.reloads_failed.get();
        current: bool = daemon.config_current.get() == 1;
        /// `last` contains the reason for the refusal.
        fallback: bool = daemon.config_fallback.get() == 1;
        read_s: u64 = daemon.config_read_s.get();
        /// The result of the last reload, or the reason why the configuration was refused at the
        /// start. `None` if there is neither.
        last: Option<String> = result;
    }
}

status! {
    /// The queues between the samplers and the recorder.
    QueueStatus(recorder: &RecorderMetrics, in_use: Vec<GroupStatus>) {
        recorder: slabs_queued, slabs_free, losses_pending;
        /// One entry per sampler group in use.
        groups: Vec<GroupStatus> = in_use;
    }
}

status! {
    /// A sampler group.
    GroupStatus(group: &GroupMetrics) {
        name: String = group.name.to_owned();
        /// Whether the thread has real-time priority.
        realtime: bool = group.realtime.get() == 1;
        group: slabs, slabs_dropped, waited_ns, realtime_yields;
    }
}

status! {
    /// A rule.
    RuleStatus(rule: &RuleMetrics) {
        name: String = rule.name.clone();
        rule: fired, extended, suppressed, evaluated, unknown, untracked;
    }
}

/// Returns a limit; `None` if it is 0, which means that there is no limit.
fn limit_or_none(limit: u64) -> Option<u64> {
    (limit > 0).then_some(limit)
}

fn sum(sources: &[&SourceMetrics], counter: fn(&SourceMetrics) -> &Counter) -> u64 {
    sources.iter().fold(0, |sum, source| sum.saturating_add(counter(source).get()))
}

fn requested_hz(source: &SourceMetrics) -> f64 {
    ratio(NS_PER_S, source.period_ns.get()).unwrap_or_default()
}

/// Returns the share of ticks whose samples are in the files of the data directory and of the ring.
fn share_in_files(source: &SourceMetrics) -> Option<f64> {
    ratio(source.in_files(), source.begun.get().saturating_add(source.missed.get()))
}

fn limited_by(pace: (u64, LimitingBudget)) -> Option<&'static str> {
    match pace {
        (0..=1, _) => None,
        (_, LimitingBudget::Source) => Some("source"),
        (_, LimitingBudget::Recorder) => Some("recorder"),
    }
}

/// Returns the quotient, or `None` if the divisor is 0.
#[allow(clippy::cast_precision_loss, reason = "rates and shares for people and graphs")]
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Status {
    /// Returns whether this run has lost samples or its storage has failed.
    pub fn is_lossy(&self) -> bool {
        let has_losses = |source: &SourceStatus| source.lost > 0 || source.failed > 0 || source.timed_out > 0;
        let former = &self.former;
        self.storage.errors > 0
            || self.queues.losses_pending > 0
            || self.sources.iter().any(has_losses)
            || former.lost > 0
            || former.failed > 0
            || former.timed_out > 0
            || self.push.as_ref().is_some_and(|push| push.lost > 0 || push.lanes_refused > 0)
    }

    /// Returns whether an older configuration is in effect because the latest one was refused.
    pub fn is_outdated(&self) -> bool {
        // An older recorder lacks these fields.
        self.reload.fallback || (!self.reload.current && self.reload.last.is_some())
    }

    /// Formats the status as JSON, without control and invisible characters.
    pub fn to_json(&self) -> String {
        // This cannot fail, because the struct contains only numbers and strings.
        to_visible_json(self).unwrap_or_default()
    }

    /// Parses the status from JSON.
    ///
    /// # Errors
    /// Fails if the text is not JSON, or if its structure is different.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that answers of older and newer recorders can be parsed, and that a round trip changes
    // nothing.
    #[test]
    fn missing_and_unknown_fields_are_accepted() {
        let status = Status::from_json(r#"{"recorder":{"pid":7,"of_the_future":[]},"more":1}"#).unwrap();
        assert_eq!((status.recorder.pid, status.sources.len(), status.is_lossy()), (7, 0, false));
        let source = SourceStatus { lost: 1, achieved_hz: Some(99.5), ..SourceStatus::default() };
        let status = Status { sources: vec![source], ..status };
        assert!(status.is_lossy());
        for former in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
            let former = FormerStatus { sources: 1, lost: former.0, failed: former.1, timed_out: former.2 };
            assert!(Status { former, ..Status::default() }.is_lossy());
        }
        assert_eq!(Status::from_json(&status.to_json()).unwrap(), status);
        assert!(!status.is_outdated(), "unknown");
        let reload =
            |current| ReloadStatus { current, last: Some("said".to_owned()), ..ReloadStatus::default() };
        let is_outdated = |current| Status { reload: reload(current), ..Status::default() }.is_outdated();
        assert_eq!([true, false].map(is_outdated), [false, true]);
        assert!(Status::from_json("7").is_err() && Status::from_json("<html>").is_err());
    }

    // Proves that names in the status, which other users may have chosen, reach no terminal with
    // control characters. Also proves that readers of the JSON get the names unchanged.
    #[test]
    fn names_reach_no_terminal() {
        let name = "\u{9b}2J\u{202e}\u{1b}]0;x".to_owned();
        let source = SourceStatus { name: name.clone(), failure: Some(name), ..SourceStatus::default() };
        let status = Status { sources: vec![source], ..Status::default() };
        let json = status.to_json();
        assert!(json.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{json:?}");
        assert_eq!(Status::from_json(&json).unwrap(), status);
    }
}
