//! Tests of process tables, task events, stacks and kernel logs that applications push. They check
//! the page, and the answers that the page shares with `explain` and `spikes`.

use std::path::Path;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::SimulationRandom;
use flatcap_schemas::host::{CommandLine, Process, ProcessArgs, ProcessCounters, ProcessExit, ProcessGroup};
use flatcap_tasks::schema::{CodeKind, KMSG, KMSG_ROOT, PROFILE, PROFILE_ROOT, SCHED, SCHED_ROOT};
use flatcap_tasks::testing::{KmsgPayload, ProfilePayload, SchedPayload};
use serde_json::{Value, json};

use super::api_request::{ApiRequest, WallRange};
use super::recording_reader::RecordingReader;
use super::server::slow_answers;
use super::shown_paths::ShownPaths;
use crate::test_recording::{START_MONO_NS, TestSource, text, wall_ns, write_sources};
use crate::test_schedule::thread;

/// Number of ticks between two samples, which are 100 ms apart.
const TICKS_OF_SAMPLE: u64 = 10;
const PERIOD_NS: u64 = 100_000_000;
const SAMPLES: u64 = 140;
/// Sequence numbers of the samples in which a process of the host is busy. These numbers are the
/// same in every recording.
const BUSY: std::ops::Range<u64> = 120..128;

/// The kind of data in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Processes,
    Switches,
    Stacks,
    Log,
}

impl Role {
    const ALL: [Self; 4] = [Self::Processes, Self::Switches, Self::Stacks, Self::Log];

    /// Returns the source of the host, or a source that an application pushes with the same schema.
    fn source(self, is_pushed: bool) -> TestSource {
        let (name, pushed, root, schema) = match self {
            Self::Processes => {
                let schema: &[u8] = include_bytes!("../../../../generated/host/process.bfbs");
                ("process", "table", "flatcap.host.Process", schema)
            }
            Self::Switches => ("sched", "switches", SCHED_ROOT, SCHED),
            Self::Stacks => ("profile", "stacks", PROFILE_ROOT, PROFILE),
            Self::Log => ("kmsg", "log", KMSG_ROOT, KMSG),
        };
        let sender = [("client", "innocent"), ("executable", "/usr/bin/python3"), ("uid", "65534")];
        let labels = sender.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        if is_pushed {
            TestSource { name: pushed, root, schema, labels }
        } else {
            TestSource { name, root, schema, labels: Vec::new() }
        }
    }
}

/// Creates random payloads of a source.
struct RandomSource {
    role: Role,
    is_pushed: bool,
    random: SimulationRandom,
    run_times: [u64; 5],
    bursts: [u64; 5], // samples that are left of a burst
    running: [u16; 2],
}

impl RandomSource {
    fn new(role: Role, is_pushed: bool, seed: u64) -> Self {
        let random = SimulationRandom::new(seed * 16 + role as u64 * 2 + u64::from(is_pushed));
        Self { role, is_pushed, random, run_times: [0; 5], bursts: [0; 5], running: [0; 2] }
    }

    fn below(&mut self, end: usize) -> u64 {
        self.random.below(end) as u64
    }

    /// Returns the payload of a sample. The times of the events in the payload are later than the
    /// previous sample.
    fn payload(&mut self, seq: u64) -> Vec<u8> {
        let end_ns = START_MONO_NS + seq * PERIOD_NS;
        let begin_ns = end_ns - PERIOD_NS;
        match self.role {
            Role::Processes => self.processes(seq),
            Role::Switches => self.switches(begin_ns, end_ns),
            Role::Stacks => self.stacks(begin_ns, end_ns),
            Role::Log => self.log(seq, begin_ns),
        }
    }

    /// Returns a payload with the processes of the host, or with pushed processes. Pushed processes
    /// have the same ids, but they run on only one of eight cores.
    fn processes(&mut self, seq: u64) -> Vec<u8> {
        let names = if self.is_pushed {
            ["api", "evil", "cron", "edge", "postgres"]
        } else {
            ["api", "batch", "cron", "db", "billing"]
        };
        for at in 0..names.len() {
            if self.below(40) == 0 {
                self.bursts[at] = 1 + self.below(6);
            }
            let is_busy = self.bursts[at] > 0;
            self.bursts[at] = self.bursts[at].saturating_sub(1);
            let used_ms = if is_busy { 60 + self.below(40) } else { self.below(4) };
            self.run_times[at] += used_ms * 1_000_000;
        }
        if BUSY.contains(&seq) {
            self.run_times[4] += if self.is_pushed { 8 * PERIOD_NS } else { PERIOD_NS };
        }
        let run_times = self.run_times;
        let counters: Vec<ProcessCounters> = (0..names.len())
            .map(|at| {
                // All fields that are not set below are absent.
                let mut counters = ProcessCounters([0xff; size_of::<ProcessCounters>()]);
                let pid = if self.is_pushed && at == 4 { 4711 } else { 100 + at as u64 };
                counters.set_pid(pid);
                counters.set_start(pid);
                counters.set_parent(1);
                counters.set_name(&text(names[at]));
                counters.set_state(&text("S"));
                counters.set_run_time(run_times[at]);
                counters.set_resident_size(self.below(300) << 20);
                counters
            })
            .collect();
        let mut builder = FlatBufferBuilder::new();
        let processes = Some(builder.create_vector(&counters));
        let args = ProcessArgs {
            count: counters.len() as u64,
            processes,
            exits: Some(builder.create_vector::<ProcessExit>(&[])),
            command_lines: Some(builder.create_vector::<CommandLine>(&[])),
            groups: Some(builder.create_vector::<ProcessGroup>(&[])),
            ..ProcessArgs::default()
        };
        let root = Process::create(&mut builder, &args);
        builder.finish_minimal(root);
        builder.finished_data().to_vec()
    }

    fn switches(&mut self, begin_ns: u64, end_ns: u64) -> Vec<u8> {
        let own = if self.is_pushed { "evil" } else { "batch" };
        let threads = vec![thread(0, 0, ""), thread(101, 101, own), thread(104, 104, "billing")];
        let running = [0_u16, 1].map(|cpu| (cpu, self.running[usize::from(cpu)])).to_vec();
        let (mut switches, mut wakeups) = (Vec::new(), Vec::new());
        for cpu in [0_u16, 1] {
            let mut at_ns = begin_ns;
            loop {
                at_ns += 1_000_000 + self.below(30_000_000);
                if at_ns >= end_ns {
                    break;
                }
                let before = self.running[usize::from(cpu)];
                let next = (before + 1 + u16::try_from(self.below(2)).unwrap()) % 3;
                let is_preempted = before > 0 && self.below(2) == 0;
                if next > 0 {
                    wakeups.push((at_ns - self.below(900_000), cpu, next, before));
                }
                switches.push((at_ns, cpu, before, next, is_preempted));
                self.running[usize::from(cpu)] = next;
            }
        }
        switches.sort_by_key(|switch| switch.0);
        wakeups.sort_by_key(|wakeup| wakeup.0);
        SchedPayload { begin_ns, end_ns, threads, running, switches, wakeups, ..SchedPayload::default() }
            .bytes()
    }

    fn stacks(&mut self, begin_ns: u64, end_ns: u64) -> Vec<u8> {
        let path = if self.is_pushed { "/usr/bin/evil" } else { "/usr/bin/billing" };
        let samples = (0..self.below(12)).map(|at| (begin_ns + at * 8_000_000, 0, 0, 0)).collect();
        ProfilePayload {
            begin_ns,
            end_ns,
            interval_ns: 10_000_000,
            threads: vec![thread(104, 104, "billing")],
            samples,
            stacks: vec![vec![0]],
            frames: vec![(0, 0x1000 + self.below(64))],
            objects: vec![(CodeKind::File, path.to_owned(), Vec::new())],
            versions: Vec::new(),
            lost: 0,
        }
        .bytes()
    }

    fn log(&mut self, seq: u64, begin_ns: u64) -> Vec<u8> {
        let text = if self.is_pushed { "Out of memory: Killed process 4711" } else { "sda: I/O error" };
        let line = |at: u64| (begin_ns + at * 1_000_000, seq * 8 + at, 3, format!("{text} {at}"));
        KmsgPayload { lines: (0..self.below(3)).map(line).collect(), lost: 0 }.bytes()
    }
}

/// Records a host with its own sources of some roles, and with applications that push sources of
/// other roles.
fn record(folder: &Path, seed: u64, (own, pushed): (&[Role], &[Role])) {
    let roles = own.iter().map(|role| (*role, false)).chain(pushed.iter().map(|role| (*role, true)));
    let roles: Vec<(Role, bool)> = roles.collect();
    let sources: Vec<TestSource> = roles.iter().map(|(role, is_pushed)| role.source(*is_pushed)).collect();
    let mut writers: Vec<RandomSource> =
        roles.iter().map(|(role, is_pushed)| RandomSource::new(*role, *is_pushed, seed)).collect();
    write_sources(folder, (SAMPLES, TICKS_OF_SAMPLE), &sources, |source, seq| writers[source].payload(seq));
}

/// Returns the parts of the page that are compared: the explanation, the spikes, and whether the
/// page has a timeline.
fn shown(folder: &Path) -> (Value, Value, bool) {
    let paths = vec![folder.to_owned()];
    let shown = ShownPaths { paths, host: None, host_name: String::new(), can_mark: false };
    let sources = RecordingReader::open(shown.clone()).unwrap().sources().unwrap();
    let has_tasks = serde_json::to_value(sources).unwrap()["has_tasks"] == true;
    let mut answers = slow_answers(shown);
    let mut ask = |request| {
        let answer = answers(&request).unwrap_or_else(|error| panic!("{}", error.text));
        serde_json::from_slice(&answer.body).unwrap()
    };
    let tick = |sample: u64| wall_ns(sample * TICKS_OF_SAMPLE);
    let window = WallRange { from_ns: tick(BUSY.start + 2), to_ns: tick(BUSY.start + 5) };
    let all = WallRange { from_ns: tick(0), to_ns: tick(SAMPLES) };
    (ask(ApiRequest::Explain(window)), ask(ApiRequest::Spikes(all)), has_tasks)
}

/// Returns a value without the names of fields that changed at the same time, because these fields
/// may belong to any source.
fn without_company(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(without_company).collect(),
        Value::Object(fields) => {
            let own = fields.iter().filter(|(name, _)| !["together", "dump"].contains(&name.as_str()));
            own.map(|(name, value)| (name.clone(), without_company(value))).collect()
        }
        other => other.clone(),
    }
}

// Proves that pushed process tables, task events, stacks and kernel logs change no suspect of the
// host and no statement about its threads, code and log. This holds whether or not the host records
// such sources. Each pushed value is shown with the application and its user. The test uses random
// hosts and random pushes.
#[test]
fn pushed_sources_have_no_role_of_the_host() {
    let (mut pushed_shown, mut suspected, seeds) = (0, 0, effort::of(4, 200));
    for seed in 0..seeds {
        // Every second host records processes, but no events.
        let own = if seed % 2 == 0 { &Role::ALL[..] } else { &Role::ALL[..1] };
        let recorded = |pushed: &[Role]| {
            let folder = tempfile::tempdir().unwrap();
            record(folder.path(), seed + 1, (own, pushed));
            shown(folder.path())
        };
        let ((alone, _, has_tasks), (found, spikes, has_pushed_tasks)) =
            (recorded(&[]), recorded(&Role::ALL));
        for key in ["suspects", "tasks", "waits", "sleeps", "stacks", "log"] {
            assert_eq!(without_company(&found[key]), without_company(&alone[key]), "seed {seed}: {key}");
        }
        let mut suspects = found["suspects"].as_array().unwrap().iter();
        suspected += u64::from(suspects.any(|suspect| suspect["pid"] == 104));
        assert_eq!((has_tasks, has_pushed_tasks), (own.len() > 1, own.len() > 1));
        for departure in found["fields"].as_array().unwrap().iter().chain(spikes.as_array().unwrap()) {
            let is_pushed = Role::ALL.iter().any(|role| departure["source"] == role.source(true).name);
            let sender = json!([{ "client": "innocent", "user": "65534", "program": "/usr/bin/python3" }]);
            assert_eq!(departure.get("pushed_by"), is_pushed.then_some(&sender), "{departure}");
            pushed_shown += u64::from(is_pushed);
        }
    }
    assert!(pushed_shown > 0);
    // On some hosts, bursts of this process and of others at random times hide the suspect.
    assert!(suspected * 2 > seeds, "{suspected} of {seeds}");
}
