//! `self`: the recorder's own state, from its counters and /proc/self/stat.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::histogram::LatencySummary;
use flatcap_metrics::Metrics;
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

/// The sampler of `self`.
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

    /// Creates a sampler that reads this file and these counters.
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
            wire::SourceState::new(
                id,
                source.period_ns.get(),
                source.begun.get(),
                source.missed.get(),
                source.recorded.get(),
                source.lost.get(),
                source.incomplete.get(),
                source.stride(),
                &latency(source.lateness.get()),
                &latency(source.read_duration.get()),
            )
        }));
        self.groups.clear();
        self.groups.extend(self.metrics.groups.iter().map(|group| {
            wire::GroupState::new(
                wire::SamplerGroup(group.number),
                group.slabs.get(),
                group.slabs_dropped.get(),
                group.waited_ns.get(),
            )
        }));
        let counters = &self.metrics.recorder;
        let recorder = wire::Recorder::new(
            counters.bytes.get(),
            counters.slabs.get(),
            counters.segments_sealed.get(),
            counters.storage_errors.get(),
            counters.slabs_queued.get(),
            counters.slabs_free.get(),
        );
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
    use super::*;
    use crate::GroupName;

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
