//! The recorder's state as JSON. Fields are only ever added: readers ignore unknown fields, and use
//! defaults for fields that an older recorder lacks.

use std::collections::BTreeMap;

use flatcap_format::histogram::LatencySummary;
use flatcap_format::schema::to_visible_json;
use serde::{Deserialize, Serialize};

/// The answer to `GET /status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The process.
    pub recorder: ProcessStatus,
    /// One entry per source that is read, in the order of ids.
    pub sources: Vec<SourceStatus>,
    /// Sources that were read before in this run: a reload has removed them or given them other
    /// ids.
    pub former: FormerStatus,
    /// The open segment, or the last one if the next cannot be created.
    pub segment: SegmentStatus,
    /// The data directory.
    pub storage: StorageStatus,
    /// The compressor of sealed segments.
    pub compression: CompressorStatus,
    /// The configuration.
    pub reload: ReloadStatus,
    /// The queues between the samplers and the recorder.
    pub queues: QueueStatus,
    /// The ring of the black box; None without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<RingStatus>,
    /// Frames that applications push; `None` if applications may not push.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushStatus>,
}

/// Frames that applications push. Counts are totals of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PushStatus {
    /// Whether the push socket is open.
    pub open: bool,
    /// Clients that are connected.
    pub clients: u64,
    /// The clients' lanes.
    pub lanes: u64,
    /// Memory of the lanes and of what is kept of pushed sources, in bytes.
    pub memory_bytes: u64,
    /// Maximum of that memory, in bytes.
    pub memory_bytes_max: u64,
    /// Lanes of killed runs that are not rescued yet.
    pub lanes_waiting: u64,
    /// Sources that were pushed.
    pub sources: u64,
    /// The number of samples that clients have begun.
    pub begun: u64,
    /// The number of pushed samples passed to the kernel for writing.
    pub recorded: u64,
    /// The number of pushed samples that the files report as lost.
    pub lost: u64,
    /// Bytes of the samples' frames in the files.
    pub bytes: u64,
    /// Requests refused.
    pub refused: u64,
    /// Lanes ended because their frames were refused.
    pub lanes_refused: u64,
    /// Triggers fired.
    pub triggers: u64,
    /// CPU time used for pushes, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time that they may use in a second, in nanoseconds (`cpu_budget` of `[push]`).
    pub cpu_ns_max: u64,
    /// Number of times that all pushes paused because this time was used up.
    pub cpu_waits: u64,
    /// Frames that a user may push per second; `None` is unlimited.
    pub user_frames_per_second_max: Option<u64>,
    /// Bytes that a user may push per second; `None` is unlimited.
    pub user_bytes_per_second_max: Option<u64>,
    /// The applications that have pushed most frames.
    pub senders: Vec<SenderStatus>,
}

/// An application that has pushed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SenderStatus {
    /// The name that the application gave itself.
    pub client: String,
    /// The user that the application runs as, as the kernel reports it.
    pub user: Option<String>,
    /// Path of its program, as the kernel reports it.
    pub program: Option<String>,
    /// The number of the application's sources.
    pub sources: u64,
    /// The number of the application's samples passed to the kernel for writing.
    pub recorded: u64,
    /// The number of the application's samples that the files report as lost.
    pub lost: u64,
    /// Bytes of the samples' frames in the files.
    pub bytes: u64,
}

/// The ring of the black box.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RingStatus {
    /// The ring's directory.
    pub path: String,
    /// The configured window, in seconds.
    pub window_s: f64,
    /// Seconds that the ring holds now.
    pub held_s: u64,
    /// Bytes that the ring occupies.
    pub bytes: u64,
    /// Maximum number of bytes that the ring may occupy.
    pub bytes_max: u64,
    /// Samples of all sources in the ring, since the start.
    pub recorded: u64,
    /// Samples that the ring lacks, since the start.
    pub lost: u64,
    /// Writes and creations that failed.
    pub storage_errors: u64,
}

/// The process.
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
    /// Share of one core used since the start, 1 for a whole core. Programs of `command.NAME` do
    /// not count.
    pub cpu: f64,
    /// The same over the last second.
    pub cpu_now: f64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Whether earlier runs are being recovered.
    pub recovering: bool,
    /// Whether unwritten samples are kept in `run_dir` and survive a kill of the process.
    pub run_dir_in_use: bool,
}

/// A source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceStatus {
    /// The source's full name.
    pub name: String,
    /// The source's id in this run's files.
    pub id: u16,
    /// The configured period, in nanoseconds.
    pub period_ns: u64,
    /// The configured rate.
    pub requested_hz: f64,
    /// Samples recorded per second, over the last second or two periods, whichever is longer; None
    /// until it is known.
    pub achieved_hz: Option<f64>,
    /// The same over the run: the configured rate times the share of ticks that are in the files.
    pub achieved_hz_run: Option<f64>,
    /// Samples begun.
    pub begun: u64,
    /// Samples passed to the kernel for writing.
    pub recorded: u64,
    /// Samples that the files report as lost, each with its cause. Losses of a source that always
    /// fails are reported with its next frame, or at the end of the run.
    pub lost: u64,
    /// Samples left out of the data directory on purpose.
    #[serde(default)]
    pub thinned: u64,
    /// The causes of all losses; None without losses.
    pub lost_causes: Option<String>,
    /// Ticks at which no sample was begun.
    pub missed: u64,
    /// Incomplete samples.
    pub incomplete: u64,
    /// The latest new reason why samples are incomplete, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete_reasons: Option<String>,
    /// Failed reads; their samples are counted as lost later.
    pub failed: u64,
    /// The reason of the last failure.
    pub failure: Option<String>,
    /// Reads that timed out; their samples are counted as lost later.
    pub timed_out: u64,
    /// Number of periods per sample; more than 1 if a budget limits the source.
    pub stride: u64,
    /// The limiting budget, `source` or `recorder`; None if the stride is 1.
    pub limited_by: Option<String>,
    /// Delay of samples after their deadlines, over the last second; zeros if there was no sample
    /// in it.
    pub lateness_ns: LatencyStatus,
    /// Duration of reads, over the same second.
    pub read_duration_ns: LatencyStatus,
    /// Mean CPU time of a sample over the run, including its share of the overhead, in nanoseconds;
    /// None before the first sample.
    pub cost_ns: Option<u64>,
    /// Bytes of the source's frames in the files.
    pub bytes: u64,
    /// The same per second, measured as `achieved_hz`.
    pub bytes_per_s: Option<f64>,
}

/// The sum over sources that are no longer read, and over sources under ids that they no longer
/// have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FormerStatus {
    /// Number of these sources.
    pub sources: u64,
    /// The number of the sources' samples that the files report as lost.
    pub lost: u64,
    /// Failed reads.
    pub failed: u64,
    /// Reads that timed out.
    pub timed_out: u64,
}

/// A distribution in four numbers, in nanoseconds.
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

/// The open segment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SegmentStatus {
    /// Whether a segment is open; if not, samples are being lost.
    pub open: bool,
    /// The segment's file's name.
    pub name: String,
    /// The segment's number.
    pub number: u64,
    /// Bytes written to the segment.
    pub bytes: u64,
    /// Frames in the segment, including the recorder's own frames.
    pub frames: u64,
    /// Time since its creation, in nanoseconds.
    pub age_ns: u64,
    /// Segments that this run has sealed and renamed.
    pub sealed: u64,
}

/// The data directory, measured about once a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StorageStatus {
    /// Disk space used by its files, in bytes.
    pub data_bytes: u64,
    /// Limit of the used space, in bytes.
    pub retain_bytes: u64,
    /// Free space in its file system, in bytes.
    pub free_bytes: u64,
    /// Minimum free space, in bytes.
    pub min_free_bytes: u64,
    /// Bytes of the newest history that are never removed to free space.
    #[serde(default)]
    pub kept_bytes: u64,
    /// Bytes that are reserved in the directory.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// Whether others have filled the file system and `retain_min` keeps the history: new samples
    /// are lost once the reserve is used up.
    #[serde(default)]
    pub is_history_kept: bool,
    /// Size of the file system, in bytes.
    pub total_bytes: u64,
    /// Bytes written per second over the last minute.
    pub bytes_per_s: Option<f64>,
    /// Time in nanoseconds until the nearest limit is reached and the oldest segments are removed,
    /// at the current rate after compression; 0 if segments are being removed already. None if
    /// nothing is being written.
    pub time_to_full_ns: Option<u64>,
    /// Compressed bytes per written byte, as measured over the segments that this run has
    /// compressed. The time above uses this ratio. `None` before the first compressed segment, and
    /// if compression is off or behind. The time above then assumes uncompressed data.
    pub compression_ratio: Option<f64>,
    /// Sealed segments.
    pub segments: u64,
    /// Number of the oldest sealed segment.
    pub oldest_number: Option<u64>,
    /// The creation time of the oldest segment by its name, in seconds since 1970.
    pub oldest_created_s: Option<u64>,
    /// Files that this run has removed to stay within the limits.
    pub removed: u64,
    /// Bytes written by this run.
    pub written_bytes: u64,
    /// Failed writes, syncs, file creations and renames.
    pub errors: u64,
    /// The reason of the last failure.
    pub last_error: Option<String>,
    /// Duration of the current storage call in nanoseconds, once it exceeds one second; else None.
    pub stalled_ns: Option<u64>,
    /// Completed storage calls that took longer than one second.
    pub stalls: u64,
}

/// The compressor of sealed segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompressorStatus {
    /// Whether compression is configured and possible.
    pub enabled: bool,
    /// Segments that this run has compressed.
    pub segments: u64,
    /// Size of these segments before compression, in bytes.
    pub raw_bytes: u64,
    /// Size of these segments after compression, in bytes.
    pub stored_bytes: u64,
    /// Segments left uncompressed.
    pub skipped: u64,
    /// Failed attempts.
    pub failures: u64,
    /// Segments waiting for compression, including those in progress.
    pub waiting: u64,
    /// Time that the oldest of these has waited, in nanoseconds; 0 if no segment waits.
    pub oldest_wait_ns: u64,
    /// CPU time of all compression threads, in nanoseconds.
    pub cpu_ns: u64,
    /// The part of it within the guaranteed share, in nanoseconds.
    pub guaranteed_cpu_ns: u64,
}

/// The configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadStatus {
    /// Completed reloads, including failed ones.
    pub count: u64,
    /// Reloads that failed and changed nothing.
    pub failed: u64,
    /// Whether the configuration in effect is the one read last.
    pub current: bool,
    /// Whether the last good configuration is in effect because the configured one was refused at
    /// the start; `last` has the reason.
    pub fallback: bool,
    /// Time at which the configuration in effect was read, in seconds since 1970.
    pub read_s: u64,
    /// The result of the last reload, or why the configuration was refused at the start; else None.
    pub last: Option<String>,
}

/// The queues between the samplers and the recorder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Most slabs waiting in all queues during the last second.
    pub slabs_queued: u64,
    /// Free slabs at the end of the last second.
    pub slabs_free: u64,
    /// Lost samples not yet written as a gap.
    pub losses_pending: u64,
    /// One entry per sampler group in use.
    pub groups: Vec<GroupStatus>,
}

/// A sampler group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// The group's name.
    pub name: String,
    /// Slabs queued.
    pub slabs: u64,
    /// Slabs dropped because the queue was full.
    pub slabs_dropped: u64,
    /// Time that the group has waited for space in its queue, in nanoseconds.
    pub waited_ns: u64,
}

impl Status {
    /// Whether this run has lost samples or its storage has failed.
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

    /// Whether an older configuration is in effect because the one read last was refused.
    pub fn is_outdated(&self) -> bool {
        // An older recorder lacks these fields.
        self.reload.fallback || (!self.reload.current && self.reload.last.is_some())
    }

    /// Formats the status as JSON, without control and invisible characters.
    pub fn to_json(&self) -> String {
        // Cannot fail: the struct holds only numbers and text.
        to_visible_json(self).unwrap_or_default()
    }

    /// Parses the status from JSON.
    ///
    /// # Errors
    /// The text is not JSON, or has another structure.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that answers of older and newer recorders are understood, and that a round trip
    // changes nothing.
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
    // control characters, and that readers get them unchanged.
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
