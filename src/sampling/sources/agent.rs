//! `self`: the agent about itself, from its own counters and /proc/self/stat.

use std::io;
use std::path::Path;
use std::sync::Arc;

use flatbuffers::FlatBufferBuilder;

use crate::metrics::{LatencySummary, Metrics};
use crate::os::host::HostFile;
use crate::sampling::{ReadError, Sampler, Shortfall};
use crate::schema::agent as wire;

/// Full name of the root table.
pub const ROOT: &str = "flatcap.agent.Agent";
/// Binary schema of the payload.
pub const SCHEMA: &[u8] = include_bytes!("../../../generated/agent.bfbs");

/// Not under the host's root: the agent's own process is in its own /proc.
const FILE: &str = "proc/self/stat";

/// The sampler of `self`.
#[derive(Debug)]
pub struct AgentSampler {
    metrics: Arc<Metrics>,
    stat: HostFile,
    sources: Vec<wire::SourceState>, // reused
    groups: Vec<wire::GroupState>,   // reused
}

impl AgentSampler {
    /// Opens the file that the sampler reads.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open_stat() -> io::Result<HostFile> {
        HostFile::open(&Path::new("/").join(FILE))
    }

    /// A sampler of this file and these counters.
    pub fn new(stat: HostFile, metrics: Arc<Metrics>) -> Self {
        let sources = Vec::with_capacity(metrics.sources.capacity());
        let groups = Vec::with_capacity(metrics.groups.len());
        Self { metrics, stat, sources, groups }
    }
}

impl Sampler for AgentSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.stat.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let (process, shortfall) = match process(self.stat.content()) {
            Some(process) => (process, Shortfall::NONE),
            None => (wire::Process::default(), Shortfall::UNREADABLE),
        };
        self.sources.clear();
        let sources = self.metrics.sources.iter().zip(0..);
        let sources = sources.filter(|(source, _)| source.removed.get() == 0);
        self.sources.extend(sources.map(|(source, id)| {
            wire::SourceState::new(
                id,
                source.period_ns.get(),
                source.begun.get(),
                source.missed.get(),
                source.recorded.get(),
                source.lost.get(),
                source.partial.get(),
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
                hand_over: Some(&latency(counters.hand_over.get())),
                queue_wait: Some(&latency(counters.queue_wait.get())),
                write: Some(&latency(counters.write.get())),
                sync: Some(&latency(counters.sync.get())),
                sources: Some(sources),
                groups: Some(groups),
            },
        );
        builder.finish_minimal(root);
        shortfall
    }
}

fn latency(summary: LatencySummary) -> wire::Latency {
    wire::Latency::new(summary.count, summary.p50_ns, summary.p99_ns, summary.max_ns)
}

/// The fields of `proc_pid_stat(5)` behind the command name, which stands in parentheses and may hold any character.
fn process(stat: &[u8]) -> Option<wire::Process> {
    let behind_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let text = std::str::from_utf8(stat.get(behind_name..)?).ok()?;
    // Field 3 (state) stands first here.
    let field = |number: usize| text.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    Some(wire::Process::new(field(14)?, field(15)?, field(10)?, field(12)?, field(20)?, field(24)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GroupName;

    // Goal: a group's number says which group it is. Method: the schema's names against the configuration's.
    #[test]
    fn groups_are_those_of_the_configuration() {
        let names = wire::SamplerGroup::ENUM_VALUES.iter().map(|group| group.variant_name().unwrap());
        let names: Vec<String> = names.map(str::to_lowercase).collect();
        assert!(names.iter().eq(GroupName::ALL.iter().map(|name| name.as_str())), "{names:?}");
    }

    // Goal: the fields are the ones that proc_pid_stat(5) numbers, whatever the command is called. Method: a line with
    // each field equal to its number.
    #[test]
    fn fields_are_counted_behind_the_name() {
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
