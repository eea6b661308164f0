//! `spikes` and `explain` on recordings of known content: processes at 100 ms.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::segment::{
    Frames, Marker, MarkerOrigin, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter,
    SourceInfo, SourceKind,
};
use flatcap_format::storage::Storage;
use flatcap_os::storage::DataDirectory;
use flatcap_schemas::host::{Process, ProcessArgs, ProcessCounters, ProcessExit};
use flatcap_stream::{ChecksumKind, SliceFramer};
use serde_json::Value;

use crate::rig::Rig;

pub(super) const START_WALL_NS: i64 = 1_700_000_000_000_000_000;
pub(super) const PERIOD_NS: u64 = 100_000_000;
/// Half a minute.
pub(super) const SAMPLES: u64 = 300;
/// The time of the incident: 20 s after the begin, for one second.
const INCIDENT: std::ops::Range<u64> = 200..210;
const ABSENT: u64 = u64::MAX;
/// The process that is the recorder by the header.
const RECORDER_PID: u64 = 817;

/// The state of a process that was killed since the sample before.
const KILLED: &str = "killed";

/// A process in one sample.
#[derive(Clone, Copy)]
pub(super) struct Activity {
    pub(super) pid: u64,
    pub(super) name: &'static str,
    pub(super) parent: u64,
    pub(super) state: &'static str,
    /// Since it began.
    pub(super) user_time: u64,
    pub(super) resident_size: u64,
    /// Since it began, with what its children wrote that it has waited for.
    pub(super) written: u64,
    /// Time of its start, in jiffies since boot.
    pub(super) start: u64,
    /// Time in which its first thread waited, in nanoseconds.
    pub(super) wait_time: u64,
}

/// The processes of a sample, and the parents of those that ended since the sample before.
pub(super) type Scene = fn(u64) -> (Vec<Activity>, Vec<u64>);

pub(super) fn process(pid: u64, name: &'static str, user_time: u64) -> Activity {
    let resident_size = 50 << 20;
    let start = pid;
    Activity { pid, name, parent: 1, state: "S", user_time, resident_size, written: 0, start, wait_time: 0 }
}

/// The processes of all scenes: a steady one, and one that computes for 50 ms each second.
fn usual(sample: u64) -> Vec<Activity> {
    vec![process(10, "steady", sample), process(11, "bursts", sample / 10 * 5)]
}

/// The part of the incident that is over.
fn progress(sample: u64) -> u64 {
    sample.clamp(INCIDENT.start, INCIDENT.end) - INCIDENT.start
}

fn quiet(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    (usual(sample), Vec::new())
}

/// A process that did nothing takes a whole core.
pub(super) fn computing(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let mut processes = usual(sample);
    processes.push(process(812, "billing", progress(sample) * 10));
    (processes, Vec::new())
}

/// A process waits in the kernel, and uses nothing.
fn stalled(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let mut processes = usual(sample);
    let state = if INCIDENT.contains(&sample) { "D" } else { "S" };
    processes.push(Activity { state, ..process(813, "syncd", 7) });
    (processes, Vec::new())
}

/// A process starts thirty others in each sample, of which no sample sees one alive.
fn forking(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let mut processes = usual(sample);
    processes.push(process(814, "indexer", 7));
    let ended = if INCIDENT.contains(&sample) { vec![814; 30] } else { Vec::new() };
    (processes, ended)
}

/// A shell waits for a child that wrote 320 MiB/s in the second before, and has its bytes at once.
fn reaping(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    const BYTES: u64 = 32 << 20;
    let mut processes = usual(sample);
    let written = progress(sample) * BYTES;
    let is_over = sample >= INCIDENT.end;
    processes.push(Activity { written: if is_over { written } else { 0 }, ..process(815, "shell", 3) });
    if !is_over {
        processes.push(Activity { parent: 815, written, ..process(816, "copy", 0) });
    }
    (processes, if sample == INCIDENT.end { vec![815] } else { Vec::new() })
}

/// A process writes 320 MiB/s.
fn copying(sample: u64, pid: u64) -> (Vec<Activity>, Vec<u64>) {
    let mut processes = usual(sample);
    processes.push(Activity { written: progress(sample) * (32 << 20), ..process(pid, "copier", 3) });
    (processes, Vec::new())
}

/// Half of the processes are missing in nine of ten samples, and do nothing while they are missing.
fn partial(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let (mut processes, ended) = computing(sample);
    processes.retain(|process| process.pid == 812 || sample.is_multiple_of(10));
    (processes, ended)
}

/// A process that used a core is killed, and a later one gets its pid.
fn killed(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let mut processes = usual(sample);
    let resident_size = 2 << 30;
    let tracker = Activity { resident_size, ..process(819, "tracker", sample.min(INCIDENT.start) * 10) };
    if sample < INCIDENT.start {
        processes.push(tracker);
    } else if sample == INCIDENT.start {
        processes.push(Activity { state: KILLED, ..tracker });
    } else if sample > INCIDENT.start + 5 {
        processes.push(Activity { start: 9000, ..process(819, "other", 0) });
    }
    (processes, Vec::new())
}

/// A process that began before the baseline takes a core, and a new process takes another one.
fn crowded(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let mut processes = usual(sample);
    if sample >= 40 {
        processes.push(Activity { start: 400, ..process(822, "builder", (sample - 40) * 10) });
    }
    if INCIDENT.contains(&sample) {
        processes.push(Activity { start: 2000, ..process(823, "intruder", progress(sample) * 10) });
    }
    (processes, Vec::new())
}

/// A process that did nothing takes a whole core from a third of the recording to its end.
fn lasting(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let mut processes = usual(sample);
    processes.push(process(820, "indexer", sample.saturating_sub(SAMPLES / 3) * 10));
    (processes, Vec::new())
}

/// A process uses more and more, from nothing to 90 % of a core.
fn rising(sample: u64) -> (Vec<Activity>, Vec<u64>) {
    let mut processes = usual(sample);
    processes.push(process(821, "mailer", sample * sample * 15 / 1000));
    (processes, Vec::new())
}

fn text<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|at| text.as_bytes().get(at).copied().unwrap_or(0))
}

/// Returns the payload of a sample.
pub(super) fn payload(activities: &(Vec<Activity>, Vec<u64>), sample: u64) -> Vec<u8> {
    payload_without(activities, sample, 0)
}

/// Makes a payload that leaves out this number of other processes.
pub(super) fn payload_without(
    (processes, ended): &(Vec<Activity>, Vec<u64>),
    sample: u64,
    skipped: u64,
) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let (killed, processes): (Vec<Activity>, Vec<Activity>) =
        processes.iter().partition(|process| process.state == KILLED);
    let counters: Vec<ProcessCounters> = processes
        .iter()
        .map(|process| {
            // Whatever this test says nothing about is absent.
            let mut counters = ProcessCounters([0xff; size_of::<ProcessCounters>()]);
            counters.set_pid(process.pid);
            counters.set_start(process.start);
            counters.set_parent(process.parent);
            counters.set_name(&text(process.name));
            counters.set_state(&text(process.state));
            counters.set_user_time(process.user_time);
            counters.set_resident_size(process.resident_size);
            counters.set_written_to_storage(process.written);
            counters.set_wait_time(process.wait_time);
            counters
        })
        .collect();
    let exits: Vec<ProcessExit> = ended
        .iter()
        .enumerate()
        .map(|(at, parent)| {
            ProcessExit::new(100_000 + sample * 100 + at as u64, *parent, ABSENT, 0, 0, ABSENT)
        })
        .chain(killed.iter().map(|process| {
            let ended_ns = sample * PERIOD_NS - PERIOD_NS / 3;
            ProcessExit::new(process.pid, process.parent, process.start, ended_ns, ABSENT, 9)
        }))
        .collect();
    let processes = Some(builder.create_vector(&counters));
    let exits = Some(builder.create_vector(&exits));
    let command_lines = Some(builder.create_vector::<flatcap_schemas::host::CommandLine>(&[]));
    let groups = Some(builder.create_vector::<flatcap_schemas::host::ProcessGroup>(&[]));
    let args = ProcessArgs {
        count: processes.map_or(0, |_| counters.len() as u64),
        processes,
        exits,
        command_lines,
        groups,
        skipped,
        ..ProcessArgs::default()
    };
    let root = Process::create(&mut builder, &args);
    builder.finish_minimal(root);
    let mut bytes = builder.finished_data().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Records a scene as a host's run, with a marker in the middle of the incident. The wall clock is
/// set by `step_ns` at the incident.
fn write_scene(folder: &Path, host: &str, run_id: u64, scene: Scene) {
    write_samples(folder, (host, run_id), vec![process_source(0, "process")], |sample| {
        vec![payload(&scene(sample), sample)]
    });
}

/// Returns the descriptor of a source of processes.
pub(super) fn process_source(id: u16, name: &str) -> SourceInfo {
    SourceInfo {
        id,
        name: name.into(),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: PERIOD_NS,
        root: "flatcap.host.Process".into(),
        schema: include_bytes!("../../generated/host/process.bfbs").to_vec(),
        next_seq: 0,
    }
}

/// Records samples of some sources as a host's run, with a marker in the middle of the incident.
/// `payloads` returns one for each source.
pub(super) fn write_samples(
    folder: &Path,
    (host, run_id): (&str, u64),
    sources: Vec<SourceInfo>,
    payloads: impl FnMut(u64) -> Vec<Vec<u8>>,
) {
    write_segment(folder, (host, run_id), (sources, Vec::new()), SealState::Sealed, payloads);
}

/// As [`write_samples`], with sources that were added after the header, and sealed if wanted.
pub(super) fn write_segment(
    folder: &Path,
    (host, run_id): (&str, u64),
    (sources, added): (Vec<SourceInfo>, Vec<SourceInfo>),
    state: SealState,
    mut payloads: impl FnMut(u64) -> Vec<Vec<u8>>,
) {
    let storage = Arc::new(DataDirectory::open(folder).unwrap()) as Arc<dyn Storage>;
    let kind = ChecksumKind::Xxh3;
    let clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: START_WALL_NS };
    let header = SegmentHeader {
        segment: run_id * 100,
        run_id,
        host: HostName { name: host.into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "0".into(),
        checksum: kind,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 0,
        sources,
        clock_table: vec![clocks],
        recorder_pid: u32::try_from(RECORDER_PID).unwrap(),
    };
    let name = SegmentName {
        number: run_id * 100,
        created_s: START_WALL_NS / 1_000_000_000,
        run_id,
        state: SealState::Active,
    };
    let mut writer = SegmentWriter::create(&*storage, name, header, &[], 0).unwrap();
    for source in added {
        writer.append_source(source).unwrap();
    }
    for seq in 0..SAMPLES {
        let mono_ns = seq * PERIOD_NS;
        let wall_ns = START_WALL_NS + mono_ns.cast_signed();
        if seq == u64::midpoint(INCIDENT.start, INCIDENT.end) {
            let marker =
                Marker { mono_ns, wall_ns, origin: MarkerOrigin::Person, text: "deploy 1.2.3".to_owned() };
            writer.append_marker(&marker).unwrap();
        }
        for (source, body) in (0..).zip(payloads(seq)) {
            let mut frame = vec![0; ENVELOPE_BYTES + body.len()];
            let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 0 };
            Envelope::new(source).write(&mut frame, &stamp, &body);
            let head = kind.header(&frame).unwrap();
            let mut pieces = [IoSlice::new(head.as_bytes()), IoSlice::new(&frame)];
            writer.append(Frames { pieces: &mut pieces, headers: &[head.as_bytes()], count: 1 }).unwrap();
            writer.count_samples(source, 1, SampleSpan::of(seq, mono_ns, wall_ns));
        }
    }
    if state == SealState::Sealed {
        writer.seal().unwrap().publish(&*storage).unwrap();
    }
}

/// Returns a rig with a recording of a scene.
fn recorded(scene: Scene) -> Rig {
    let rig = Rig::new();
    std::fs::create_dir_all(rig.path("flatcap-data")).unwrap();
    write_scene(&rig.path("flatcap-data"), "db1", 1, scene);
    rig
}

/// Returns the spikes, and the explanation of the first one.
fn answers(rig: &Rig) -> (Value, Value) {
    let spikes = rig.call(&["spikes", "flatcap-data", "--json"]).json();
    let at = spikes[0]["wall_ns"].to_string();
    (spikes, rig.call(&["explain", "flatcap-data", "--at", &at, "--json"]).json())
}

/// Returns a wall time by the number of its sample.
fn wall_ns(sample: u64) -> i64 {
    START_WALL_NS + (sample * PERIOD_NS).cast_signed()
}

fn assert_in_incident(spike: &Value) {
    let at = spike["wall_ns"].as_i64().unwrap();
    assert!((wall_ns(INCIDENT.start - 3)..=wall_ns(INCIDENT.end + 3)).contains(&at), "{spike}");
}

// Proves that bursts that recur are usual, and that nothing is reported of them.
#[test]
fn what_recurs_is_no_spike() {
    let rig = recorded(quiet);
    assert_eq!(rig.call(&["spikes", "flatcap-data", "--json"]).json(), Value::Array(Vec::new()));
    assert!(rig.call(&["spikes", "flatcap-data"]).text().starts_with("no spikes"));
    let explained = rig.call(&["explain", "flatcap-data", "--at", "+15s", "--json"]).json();
    assert_eq!(explained["suspects"], Value::Array(Vec::new()));
}

// Proves that a process that takes a core out of nothing is the one spike, that it is the first
// suspect with its process id, what it used and since when, and that the marker is shown.
#[test]
fn a_computing_process_is_named() {
    let rig = recorded(computing);
    let (spikes, explained) = answers(&rig);
    assert_eq!(spikes.as_array().unwrap().len(), 1, "{spikes}");
    assert_in_incident(&spikes[0]);
    assert_eq!((&spikes[0]["source"], &spikes[0]["unit"]), (&"process".into(), &"percent".into()));
    assert_eq!(spikes[0]["field"], "processes[*].user_time");
    assert_eq!(spikes[0]["element"], "billing[812]");
    assert!((spikes[0]["value"].as_f64().unwrap() - 100.0).abs() < 1.0, "{spikes}");
    let first = &explained["suspects"][0];
    assert_eq!(
        (&first["kind"], &first["name"], &first["pid"]),
        (&"process".into(), &"billing".into(), &812.into())
    );
    assert!(first["what"].as_str().unwrap().contains("user_time"), "{first}");
    assert_eq!(first["first_wall_ns"].as_i64(), Some(wall_ns(INCIDENT.start + 1)));
    assert_eq!(explained["suspects"].as_array().unwrap().len(), 1);
    assert_eq!(explained["lost"], 0);
    let marked = rig.call(&["explain", "flatcap-data", "--at", "+20500ms", "--window", "1s"]).text();
    assert!(marked.contains("deploy 1.2.3") && marked.contains("\nbilling[812] "), "{marked}");
    assert!(marked.lines().all(|line| line.chars().count() <= 80), "{marked}");
    let table = rig.call(&["spikes", "flatcap-data"]).text();
    assert!(
        table.contains("\n    billing[812] process.processes[*].user_time\n")
            && table.lines().all(|line| line.len() <= 80),
        "{table}"
    );
    let best = rig.call(&["explain", "flatcap-data", "--json"]).json();
    assert_eq!(best["suspects"][0]["pid"], 812, "without --at the largest spike is explained");
}

// Proves that a process that waits in the kernel is named as one that waited, although it used
// nothing.
#[test]
fn a_stalled_process_is_named() {
    let (spikes, explained) = answers(&recorded(stalled));
    assert_in_incident(&spikes[0]);
    assert_eq!(spikes[0]["element"], "syncd[813]");
    let first = &explained["suspects"][0];
    assert_eq!((&first["pid"], &first["role"]), (&813.into(), &"waited".into()));
    let answer = explained["answer"].as_str().unwrap();
    assert!(answer.starts_with("syncd[813] waited longer than usual: state D"), "{answer}");
}

// Proves that a killed process is found and named with its signal and its earlier use, although
// another process has its pid soon after.
#[test]
fn a_killed_process_is_named() {
    let rig = recorded(killed);
    let (spikes, explained) = answers(&rig);
    assert_in_incident(&spikes[0]);
    assert_eq!(spikes[0]["element"], "tracker[819]");
    assert_eq!(spikes[0]["ended"]["signal"], 9, "{spikes}");
    assert_eq!(spikes.as_array().unwrap().len(), 1, "its memory is no event of its own: {spikes}");
    let screen = rig.call(&["spikes", "flatcap-data"]).text();
    assert!(screen.contains("tracker[819] was ended by signal 9"), "{screen}");
    let first = &explained["suspects"][0];
    let expected = ("ended", "tracker", 819, 9);
    let (role, name) = (first["role"].as_str().unwrap(), first["name"].as_str().unwrap());
    let numbers = (first["pid"].as_u64().unwrap(), first["ended"]["signal"].as_u64().unwrap());
    assert_eq!((role, name, numbers.0, numbers.1), expected, "{explained}");
    let answer = explained["answer"].as_str().unwrap();
    assert_eq!(answer, "tracker[819] was ended by signal 9; it used 100 % of a core before.");
}

// Proves that a process is named at the end of a recording, although it has used as much for longer
// than the baseline. The answer says that its earlier use is older than the baseline.
#[test]
fn a_lasting_change_is_named() {
    let rig = recorded(lasting);
    let explained = rig.call(&["explain", "flatcap-data", "--at", "+29s", "--json"]).json();
    let first = &explained["suspects"][0];
    assert_eq!((&first["pid"], &first["role"]), (&Value::from(820), &Value::from("used_more")));
    assert_eq!(first["evidence"][0]["is_early"], true, "{explained}");
    let screen = rig.call(&["explain", "flatcap-data", "--at", "+29s"]).text();
    assert!(screen.contains("user_time 100 % (earlier 0 %)"), "{screen}");
    let spikes = rig.call(&["spikes", "flatcap-data", "--json"]).json();
    assert_eq!(spikes.as_array().unwrap().len(), 1, "the change is one event: {spikes}");
}

// Proves that a new process is named, although a process that began before the baseline uses as
// much.
#[test]
fn a_new_process_is_named_beside_a_busy_one() {
    let rig = recorded(crowded);
    let at = wall_ns(u64::midpoint(INCIDENT.start, INCIDENT.end)).to_string();
    let explained = rig.call(&["explain", "flatcap-data", "--at", &at, "--json"]).json();
    assert_eq!(explained["suspects"][0]["pid"], 823, "{explained}");
}

// Proves that a process that uses more and more is named, although no moment differs much from the
// one before.
#[test]
fn a_gradual_change_is_named() {
    let rig = recorded(rising);
    let explained = rig.call(&["explain", "flatcap-data", "--at", "+29s", "--json"]).json();
    let first = &explained["suspects"][0];
    assert_eq!((&first["pid"], &first["role"]), (&Value::from(821), &Value::from("used_more")));
}

// Proves that children that no sample has seen count for their parent.
#[test]
fn the_parent_of_short_lived_children_is_named() {
    let rig = recorded(forking);
    let (spikes, explained) = answers(&rig);
    assert_in_incident(&spikes[0]);
    assert_eq!(explained["suspects"][0]["pid"], 814);
    let screen = rig.call(&["explain", "flatcap-data"]).text();
    assert!(screen.contains("processes ended 90: 90 below indexer[814]"), "{screen}");
}

// Proves that the bytes that a child wrote count for the child, and not again for the parent that
// waited for it.
#[test]
fn a_parent_that_waits_for_a_child_is_no_suspect() {
    let rig = recorded(reaping);
    let spikes = rig.call(&["spikes", "flatcap-data", "--json"]).json();
    let elements: Vec<&Value> = spikes.as_array().unwrap().iter().map(|spike| &spike["element"]).collect();
    assert_eq!(elements, ["copy[816]"], "{spikes}");
    let end = format!("+{}ms", INCIDENT.end * PERIOD_NS / 1_000_000);
    let explained = rig.call(&["explain", "flatcap-data", "--at", &end, "--json"]).json();
    let suspects = explained["suspects"].as_array().unwrap();
    assert!(suspects.iter().all(|suspect| suspect["pid"] != 815), "{explained}");
}

// Proves that what the recorder itself does is no spike, unlike the same of another process, and
// that it is a suspect nevertheless.
#[test]
fn what_the_recorder_does_is_no_spike() {
    let (spikes, explained) = answers(&recorded(|sample| copying(sample, RECORDER_PID + 1)));
    assert_eq!(spikes[0]["element"], "copier[818]", "{spikes}");
    let score = |explained: &Value| explained["suspects"][0]["score"].as_f64().unwrap();
    let others = score(&explained);
    let rig = recorded(|sample| copying(sample, RECORDER_PID));
    assert_eq!(rig.call(&["spikes", "flatcap-data", "--json"]).json(), Value::Array(Vec::new()));
    let at = wall_ns(u64::midpoint(INCIDENT.start, INCIDENT.end)).to_string();
    let explained = rig.call(&["explain", "flatcap-data", "--at", &at, "--json"]).json();
    assert_eq!(explained["suspects"][0]["pid"], RECORDER_PID);
    assert!(score(&explained) < 0.5 * others, "{explained}");
}

// Proves that a process that a sample leaves out did neither end nor begin, and used what it used.
#[test]
fn processes_that_a_sample_leaves_out_are_neither_new_nor_gone() {
    let (spikes, explained) = answers(&recorded(partial));
    assert_eq!(spikes.as_array().unwrap().len(), 1, "{spikes}");
    assert_eq!(explained["suspects"][0]["pid"], 812);
    assert_eq!(explained["suspects"].as_array().unwrap().len(), 1, "{explained}");
}

// Proves that a time outside of the recording is answered with its span and status 1, several hosts
// with the option that chooses one, and an unknown host with the known ones.
#[test]
fn what_cannot_be_explained_is_said() {
    let rig = recorded(computing);
    let called = rig.call(&["explain", "flatcap-data", "--at", "2023-11-13T00:00:00Z"]);
    assert_eq!(called.status, Some(1), "{}", called.err);
    assert!(called.err.contains("the recording spans"), "{}", called.err);
    let called = rig.call(&["spikes", "flatcap-data", "--since", "2023-11-15T00:00:00Z"]);
    assert_eq!(called.status, Some(1), "{}", called.err);
    write_scene(&rig.path("flatcap-data"), "db2", 2, quiet);
    for verb in ["spikes", "explain"] {
        let called = rig.call(&[verb, "flatcap-data"]);
        assert_eq!(called.status, Some(2), "{}", called.err);
        assert!(called.err.contains("--host") && called.err.contains("db2"), "{}", called.err);
        let called = rig.call(&[verb, "flatcap-data", "--host", "web1"]);
        assert_eq!(called.status, Some(2), "{}", called.err);
    }
    let chosen = rig.call(&["explain", "flatcap-data", "--host", "db1", "--json"]).json();
    assert_eq!(chosen["suspects"][0]["pid"], 812);
}

// Proves that damage is reported and the rest is explained.
#[test]
fn damage_is_skipped() {
    let rig = recorded(computing);
    let path = rig.segments("bin").remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 4;
    bytes[at..at + 8].fill(0x55);
    std::fs::write(&path, bytes).unwrap();
    let called = rig.call(&["spikes", "flatcap-data", "--json"]);
    assert_eq!(called.status, Some(3), "{}", called.err);
    assert_in_incident(&called.json()[0]);
}
