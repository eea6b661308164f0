//! The agent's state as JSON. Fields are only ever added: whoever reads it passes over those it does not know, and does
//! without those that an older agent lacks.

use serde::{Deserialize, Serialize};

use crate::metrics::LatencySummary;

/// What `GET /status` answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The process.
    pub agent: AgentStatus,
    /// One a source that is read, in the order of ids.
    pub sources: Vec<SourceStatus>,
    /// Those that this run has read before: a reload has taken them away, or they go on under other ids.
    pub former: FormerStatus,
    /// The open segment, or the last one where the next cannot be begun.
    pub segment: SegmentStatus,
    /// The data directory.
    pub storage: StorageStatus,
    /// What makes closed segments small.
    pub sealer: SealerStatus,
    /// The configuration.
    pub reload: ReloadStatus,
    /// The way from the samplers to the recorder.
    pub queues: QueueStatus,
}

/// The process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentStatus {
    /// Its version.
    pub version: String,
    /// Its number.
    pub pid: u32,
    /// The run's id, 16 hexadecimal digits, as in the names of segments.
    pub run_id: String,
    /// Where segments go.
    pub data_dir: String,
    /// Time since the first tick, in nanoseconds.
    pub uptime_ns: u64,
    /// Share of one core since the start, 1 for all of it; programs of `command.NAME` do not count.
    pub cpu: f64,
    /// The same over the last second.
    pub cpu_now: f64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Whether what earlier runs left is being completed.
    pub recovering: bool,
    /// Whether samples that are not written yet lie in `run_dir` and outlive a kill of the agent.
    pub run_dir_in_use: bool,
}

/// A source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceStatus {
    /// Its full name.
    pub name: String,
    /// Its id in this run's files.
    pub id: u16,
    /// The configured period, in nanoseconds.
    pub period_ns: u64,
    /// The rate that makes.
    pub asked_hz: f64,
    /// Readings a second that were recorded, over the last second or, where the period is longer, the last two periods; none until
    /// that is known.
    pub achieved_hz: Option<f64>,
    /// The same over the run: the asked rate times the share of ticks that are in the files.
    pub achieved_hz_run: Option<f64>,
    /// Readings begun.
    pub begun: u64,
    /// Readings handed to the kernel.
    pub recorded: u64,
    /// Readings that the files account for as lost, each with its cause. Those of a source that fails all the time come with its next
    /// frame, or at the end of the run.
    pub lost: u64,
    /// Why, all together; none where nothing was lost.
    pub lost_causes: Option<String>,
    /// Ticks that were never begun.
    pub missed: u64,
    /// Readings that lacked something.
    pub partial: u64,
    /// Readings that failed; lost, sooner or later.
    pub failed: u64,
    /// Why the last of them did.
    pub failure: Option<String>,
    /// Readings that did not come back in time; lost, sooner or later.
    pub timed_out: u64,
    /// Every how many periods it is read: 1, or more where a budget was exceeded.
    pub stride: u64,
    /// Which budget that is: `source` or `agent`; none where it is read every period.
    pub limited_by: Option<String>,
    /// Begin of a reading minus its deadline, over the last second; zeros where there was none in it.
    pub lateness_ns: Latency,
    /// How long a reading took, over the same second.
    pub read_duration_ns: Latency,
    /// What a reading takes of a core, with what is done around it, on average over the run, in nanoseconds; none before the first.
    pub cost_ns: Option<u64>,
    /// Bytes of its frames in the files.
    pub bytes: u64,
    /// The same a second, measured as `achieved_hz`.
    pub bytes_per_s: Option<f64>,
}

/// Sources that are read no more, and those under ids that they no longer have, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FormerStatus {
    /// How many.
    pub sources: u64,
    /// Readings of theirs that the files account for as lost.
    pub lost: u64,
    /// Readings that failed.
    pub failed: u64,
    /// Readings that did not come back in time.
    pub timed_out: u64,
}

/// A distribution in four numbers, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// The median.
    pub p50: u64,
    /// 99 of 100 are at most this.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl From<LatencySummary> for Latency {
    fn from(summary: LatencySummary) -> Self {
        Self { count: summary.count, p50: summary.p50_ns, p99: summary.p99_ns, max: summary.max_ns }
    }
}

/// The open segment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SegmentStatus {
    /// Whether there is one; if not, readings are being lost.
    pub open: bool,
    /// Its file's name.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// Bytes written to it.
    pub bytes: u64,
    /// Frames in it, the recorder's own too.
    pub frames: u64,
    /// Time since it was begun, in nanoseconds.
    pub age_ns: u64,
    /// Segments of this run that were closed and have their final names.
    pub sealed: u64,
}

/// The data directory. Looked at about once a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StorageStatus {
    /// Bytes that its files occupy.
    pub data_bytes: u64,
    /// Bytes that they may occupy.
    pub retain_bytes: u64,
    /// Bytes that are free in its file system.
    pub free_bytes: u64,
    /// Bytes that shall stay free.
    pub keep_free_bytes: u64,
    /// Bytes of the file system.
    pub total_bytes: u64,
    /// Bytes a second over the last minute.
    pub bytes_per_s: Option<f64>,
    /// At that rate, times what compression leaves of a byte, the first limit is reached in so many nanoseconds, and the oldest segments go; 0 where they go
    /// already. None where nothing is being written.
    pub time_to_full_ns: Option<u64>,
    /// Closed segments.
    pub segments: u64,
    /// Number of the oldest of them.
    pub oldest_number: Option<u64>,
    /// When that was begun, in seconds since 1970, as its name says.
    pub oldest_created_s: Option<u64>,
    /// Files that this run has removed to keep the limits.
    pub removed: u64,
    /// Bytes written by this run.
    pub written_bytes: u64,
    /// Writes, syncs, creations and renames that failed.
    pub errors: u64,
    /// Why the last of them did.
    pub last_error: Option<String>,
    /// For how long the call that is under way has not been answered, in nanoseconds, once that is more than a second; else none.
    pub stalled_ns: Option<u64>,
    /// Calls that took longer than a second and have ended.
    pub stalls: u64,
}

/// What makes closed segments small.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SealerStatus {
    /// Whether it is to, and can.
    pub enabled: bool,
    /// Segments that this run has rewritten as compressed blocks.
    pub segments: u64,
    /// Bytes of those as they were recorded.
    pub raw_bytes: u64,
    /// Bytes of those as they are.
    pub stored_bytes: u64,
    /// Segments that it has left as they are.
    pub left: u64,
    /// Times that it has failed.
    pub failures: u64,
    /// Segments that wait for it, those under way too.
    pub waiting: u64,
    /// How long the oldest of those has waited, in nanoseconds; 0 if there is none.
    pub oldest_wait_ns: u64,
    /// CPU time of all its threads, in nanoseconds.
    pub cpu_ns: u64,
    /// What of that was taken with the guaranteed share, in nanoseconds.
    pub guaranteed_cpu_ns: u64,
}

/// The configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadStatus {
    /// Reloads that were asked for and have ended.
    pub count: u64,
    /// Those that changed nothing since something was wrong.
    pub failed: u64,
    /// Whether the configuration in effect is the one that was read last.
    pub current: bool,
    /// Whether the one in effect is the last good one, because the one at the start was refused; `last` says why.
    pub fallback: bool,
    /// When the one in effect was read, in seconds since 1970.
    pub read_s: u64,
    /// The result of the last reload, or why the configuration at the start was refused; else none.
    pub last: Option<String>,
}

/// The way from the samplers to the recorder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Most slabs that waited in all queues in the last second.
    pub slabs_queued: u64,
    /// Slabs that were free when it ended.
    pub slabs_free: u64,
    /// Readings that are lost and will be counted so with the next Gap.
    pub losses_pending: u64,
    /// One a sampler group in use.
    pub groups: Vec<GroupStatus>,
}

/// A sampler group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Slabs handed over.
    pub slabs: u64,
    /// Slabs given up since its queue was full.
    pub slabs_dropped: u64,
    /// Time that it has waited for room, in nanoseconds.
    pub waited_ns: u64,
}

impl Status {
    /// Whether this run has lost a reading, or its storage has failed.
    pub fn is_lossy(&self) -> bool {
        let is_lossy = |source: &SourceStatus| source.lost > 0 || source.failed > 0 || source.timed_out > 0;
        let former = &self.former;
        self.storage.errors > 0
            || self.queues.losses_pending > 0
            || self.sources.iter().any(is_lossy)
            || former.lost > 0
            || former.failed > 0
            || former.timed_out > 0
    }

    /// Whether the configuration in effect is an older one, since the one that was read last was refused.
    pub fn is_outdated(&self) -> bool {
        // An older agent says nothing of it, and of no reload.
        self.reload.fallback || (!self.reload.current && self.reload.last.is_some())
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        // A struct of numbers and text always becomes JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON.
    ///
    /// # Errors
    /// It is none, or of another shape.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: an older agent's answer and a newer one's are both understood. Method: fields missing, fields unknown, and a round trip.
    #[test]
    fn fields_come_and_are_missed() {
        let status = Status::from_json(r#"{"agent":{"pid":7,"of_the_future":[]},"more":1}"#).unwrap();
        assert_eq!((status.agent.pid, status.sources.len(), status.is_lossy()), (7, 0, false));
        let source = SourceStatus { lost: 1, achieved_hz: Some(99.5), ..SourceStatus::default() };
        let status = Status { sources: vec![source], ..status };
        assert!(status.is_lossy());
        for former in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
            let former = FormerStatus { sources: 1, lost: former.0, failed: former.1, timed_out: former.2 };
            assert!(Status { former, ..Status::default() }.is_lossy());
        }
        assert_eq!(Status::from_json(&status.to_json()).unwrap(), status);
        assert!(!status.is_outdated(), "nothing is known of it");
        let reload =
            |current| ReloadStatus { current, last: Some("said".to_owned()), ..ReloadStatus::default() };
        let is_outdated = |current| Status { reload: reload(current), ..Status::default() }.is_outdated();
        assert_eq!([true, false].map(is_outdated), [false, true]);
        assert!(Status::from_json("7").is_err() && Status::from_json("<html>").is_err());
    }
}
