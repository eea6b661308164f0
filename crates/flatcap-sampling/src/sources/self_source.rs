//! `self`: the recorder's own state, from its counters and /proc/self/stat.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::histogram::LatencySummary;
use flatcap_metrics::{MetricReading, MetricTable, Metrics};
use flatcap_os::host::HostFile;
use flatcap_schemas::agent as wire;

use super::{SourceOpener, SourceSpec};
use crate::{Incomplete, ReadError, Sampler};

/// Path of the file. The file is not below the host's root, because the recorder appears in its own
/// /proc.
const FILE: &str = "proc/self/stat";

/// There is nothing to select with `include` and `exclude`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "self",
    about: "flatcap's own counters and latencies.",
    root: "flatcap.agent.Agent",
    schema: include_bytes!("../../../../generated/agent.bfbs"),
    // A longer period is enough, because the recorder's own values inform an operator and need not
    // show bursts.
    period: Duration::from_secs(1),
    is_on_by_default: true,
    refresh: "at each sample",
    opener: SourceOpener::Recorder,
    ..SourceSpec::DEFAULTS
};

/// The fields of a row: the name of each metric in the exposition, and the setter of its field. The
/// value is the reading of the metric, so times are in nanoseconds.
type RowFields<R> = [(&'static str, fn(&mut R, u64))];

const SOURCE_FIELDS: &RowFields<wire::SourceState> = &[
    ("flatcap_source_period_seconds", wire::SourceState::set_period_ns),
    ("flatcap_source_begun", wire::SourceState::set_begun),
    ("flatcap_source_missed", wire::SourceState::set_missed),
    ("flatcap_source_recorded", wire::SourceState::set_recorded),
    ("flatcap_source_lost", wire::SourceState::set_lost),
    ("flatcap_source_incomplete", wire::SourceState::set_partial),
    ("flatcap_source_stride", wire::SourceState::set_stride),
];

const GROUP_FIELDS: &RowFields<wire::GroupState> = &[
    ("flatcap_group_slabs", wire::GroupState::set_slabs),
    ("flatcap_group_slabs_dropped", wire::GroupState::set_slabs_dropped),
    ("flatcap_group_waited_seconds", wire::GroupState::set_waited_ns),
];

const RECORDER_FIELDS: &RowFields<wire::Recorder> = &[
    ("flatcap_recorder_written_bytes", wire::Recorder::set_bytes),
    ("flatcap_recorder_slabs", wire::Recorder::set_slabs),
    ("flatcap_recorder_segments_sealed", wire::Recorder::set_segments_sealed),
    ("flatcap_storage_errors", wire::Recorder::set_storage_errors),
    ("flatcap_queue_slabs", wire::Recorder::set_slabs_queued),
    ("flatcap_pool_slabs_free", wire::Recorder::set_slabs_free),
];

/// The sampler of the source `self`.
#[derive(Debug)]
pub struct SelfSampler {
    metrics: Arc<Metrics>,
    stat: HostFile,
    sources: Vec<wire::SourceState>, // reused
    groups: Vec<wire::GroupState>,   // reused
}

impl SelfSampler {
    /// Size of the row of one source, in bytes.
    pub const SOURCE_BYTES: usize = size_of::<wire::SourceState>();

    /// Opens the file that the sampler reads.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn open_stat() -> io::Result<HostFile> {
        HostFile::open(&Path::new("/").join(FILE))
    }

    /// Creates a sampler that reads the file `stat` and the counters `metrics`.
    pub fn new(stat: HostFile, metrics: Arc<Metrics>) -> Self {
        let sources = Vec::with_capacity(metrics.sources.len());
        let groups = Vec::with_capacity(metrics.groups.len());
        Self { metrics, stat, sources, groups }
    }
}

impl Sampler for SelfSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.stat.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let (process, incomplete) = match process(self.stat.content()) {
            Some(process) => (process, Incomplete::NONE),
            None => (wire::Process::default(), Incomplete::UNREADABLE),
        };
        self.sources.clear();
        let sources = self.metrics.sources.iter().zip(0..);
        let sources = sources.filter(|(source, _)| source.removed.get() == 0 && !source.is_pushed());
        self.sources.extend(sources.map(|(source, id)| {
            let mut row = row(SOURCE_FIELDS, source.as_ref());
            row.set_source(id);
            row.set_lateness(&latency(source.lateness.get()));
            row.set_read_duration(&latency(source.read_duration.get()));
            row
        }));
        self.groups.clear();
        self.groups.extend(self.metrics.groups.iter().map(|group| {
            let mut row = row(GROUP_FIELDS, group.as_ref());
            row.set_group(wire::SamplerGroup(group.number));
            row
        }));
        let counters = &self.metrics.recorder;
        let recorder = row(RECORDER_FIELDS, counters);
        let sources = builder.create_vector(&self.sources);
        let groups = builder.create_vector(&self.groups);
        let root = wire::Agent::create(
            builder,
            &wire::AgentArgs {
                process: Some(&process),
                recorder: Some(&recorder),
                build: Some(&latency(counters.build.get())),
                hand_over: Some(&latency(counters.enqueue.get())),
                queue_wait: Some(&latency(counters.queue_wait.get())),
                write: Some(&latency(counters.write.get())),
                sync: Some(&latency(counters.sync.get())),
                sources: Some(sources),
                groups: Some(groups),
            },
        );
        builder.finish_minimal(root);
        incomplete
    }
}

/// Returns a row with the values of the metrics in its fields.
fn row<M: MetricTable, R: Default>(fields: &RowFields<R>, metrics: &M) -> R {
    let mut row = R::default();
    for metric in M::METRICS {
        if let MetricReading::Counter(read) | MetricReading::Gauge(read) = metric.reading
            && let Some((_, set)) = fields.iter().find(|(name, _)| *name == metric.name)
        {
            set(&mut row, read(metrics));
        }
    }
    row
}

fn latency(summary: LatencySummary) -> wire::Latency {
    wire::Latency::new(summary.count, summary.p50_ns, summary.p99_ns, summary.max_ns)
}

/// Parses the fields of `proc_pid_stat(5)` after the command name. The name is in parentheses and
/// may contain any character, parentheses included.
fn process(stat: &[u8]) -> Option<wire::Process> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let text = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    // The first word is field 3, the state.
    let field = |number: usize| text.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    Some(wire::Process::new(field(14)?, field(15)?, field(10)?, field(12)?, field(20)?, field(24)?))
}

#[cfg(test)]
mod tests {
    use flatcap_metrics::{GroupMetrics, RecorderMetrics, SourceMetrics};

    use super::*;
    use crate::GroupName;

    /// Metrics of sources and of the recorder that are not in the fields above.
    const OTHER_METRICS: [&str; 24] = [
        "flatcap_source_recorded_frames_bytes",
        "flatcap_source_thinned",
        "flatcap_source_failed",
        "flatcap_source_timed_out",
        "flatcap_source_cpu_seconds",
        "flatcap_source_limited_by_recorder",
        // Distributions. Their summaries are in `self`.
        "flatcap_source_lateness_seconds",
        "flatcap_source_read_duration_seconds",
        "flatcap_group_realtime",
        "flatcap_group_realtime_yields",
        "flatcap_build_duration_seconds",
        "flatcap_queue_push_duration_seconds",
        "flatcap_queue_wait_duration_seconds",
        "flatcap_write_duration_seconds",
        "flatcap_sync_duration_seconds",
        "flatcap_trigger_skipped",
        "flatcap_storage_removed_segments",
        "flatcap_storage_stalls",
        "flatcap_losses_pending",
        "flatcap_segment_open",
        "flatcap_segment_number",
        "flatcap_segment_created_timestamp_seconds",
        "flatcap_segment_size_bytes",
        "flatcap_segment_frames",
    ];

    /// Returns the metrics that are not in `fields`. Checks that each field is set by a metric,
    /// except for `other_bytes` bytes of the row.
    fn left_out<M: MetricTable, R: Default>(
        fields: &RowFields<R>,
        bytes: fn(&R) -> &[u8],
        other_bytes: usize,
    ) -> Vec<&'static str> {
        let mut row = R::default();
        for (_, set) in fields {
            set(&mut row, u64::MAX);
        }
        let unset_bytes: usize = bytes(&row).iter().map(|byte| usize::from(*byte != u8::MAX)).sum();
        assert_eq!((unset_bytes, fields.len() * 8), (other_bytes, size_of::<R>() - other_bytes));
        let mut names: Vec<&str> = M::METRICS.iter().map(|metric| metric.name).collect();
        for (name, _) in fields {
            names.remove(names.iter().position(|metric| metric == name).expect(name));
        }
        names
    }

    // Proves that each metric of sources, groups and the recorder has a field in `self`, or is in
    // the list of other metrics. Each field of a row has one metric.
    #[test]
    fn every_metric_has_its_field() {
        let of_sources = 8 + 2 * size_of::<wire::Latency>(); // the id and the distributions
        let found = [
            left_out::<SourceMetrics, _>(SOURCE_FIELDS, |row| &row.0, of_sources),
            left_out::<GroupMetrics, _>(GROUP_FIELDS, |row| &row.0, 8),
            left_out::<RecorderMetrics, _>(RECORDER_FIELDS, |row| &row.0, 0),
        ];
        assert_eq!(found.concat(), OTHER_METRICS);
        let source = SourceMetrics::new("a".to_owned(), 7);
        source.missed.set(3);
        let row: wire::SourceState = row(SOURCE_FIELDS, &source);
        assert_eq!((row.period_ns(), row.missed(), row.begun(), row.stride()), (7, 3, 0, 1));
    }

    // Proves that the numbers of groups in the schema match the configuration.
    #[test]
    fn groups_are_those_of_the_configuration() {
        let names = wire::SamplerGroup::ENUM_VALUES.iter().map(|group| group.variant_name().unwrap());
        let names: Vec<String> = names.map(str::to_lowercase).collect();
        assert!(names.iter().eq(GroupName::ALL.iter().map(|name| name.as_str())), "{names:?}");
    }

    // Proves that fields are found by their numbers in proc_pid_stat(5), whatever the command name
    // contains. In this test, each field has its own number as its value.
    #[test]
    fn fields_are_found_after_any_name() {
        let numbers: Vec<String> = (4..=52).map(|number: u64| number.to_string()).collect();
        let line = format!("1 (a) b (x) R {}", numbers.join(" "));
        let process = process(line.as_bytes()).unwrap();
        assert_eq!((process.user_time(), process.system_time()), (14, 15));
        assert_eq!((process.minor_faults(), process.major_faults()), (10, 12));
        assert_eq!((process.threads(), process.resident()), (20, 24));
        assert!(super::process(b"1 (a) R 1 2").is_none());
        assert!(super::process(b"").is_none());
    }
}
