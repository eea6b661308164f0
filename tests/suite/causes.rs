//! The kernel's events in `explain`, and the source `tasks` in `dump` and `fields`: recordings of
//! known content.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::segment::{
    Frames, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::storage::Storage;
use flatcap_os::storage::DataDirectory;
use flatcap_stream::{ChecksumKind, SliceFramer};
use flatcap_tasks::schema::{CodeKind, KMSG, KMSG_ROOT, PROFILE, PROFILE_ROOT, SCHED, SCHED_ROOT};
use flatcap_tasks::testing::{KmsgPayload, ProfilePayload, SchedPayload};
use flatcap_tasks::{TaskName, ThreadInfo};
use serde_json::Value;

use crate::explaining::{Scene, computing, payload};
use crate::rig::Rig;

const START_WALL_NS: i64 = 1_700_000_000_000_000_000;
const MS: u64 = 1_000_000;
const PERIOD_NS: u64 = 100 * MS;
const SAMPLES: u64 = 300;
/// 20 s after the begin, for one second, as in the scene.
const INCIDENT: std::ops::Range<u64> = 200..210;

fn thread(thread: u32, process: u32, name: &str) -> ThreadInfo {
    ThreadInfo { thread, process, name: TaskName::new(name.as_bytes()) }
}

/// The missing parts of a recording of switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The kernel lost 7 records from 20 to 20.1 s.
    Lost,
    /// The kernel lost 7 records from 20.4 to 20.5 s.
    LostInStall,
    /// They exceeded the budget.
    Stopped,
    /// A program pushed all events.
    Pushed,
}

/// Of each 100 ms, steady[10] runs for 5 ms. In the incident billing[812] runs on the same CPU, and
/// steady waits for 20 ms, since it does not preempt it at once. On another CPU writer[30] runs for
/// 1 of each 20 ms, but not from 20.403 to 20.482 s.
fn sched(number: u64, fault: Fault) -> SchedPayload {
    let begin_ns = number * PERIOD_NS;
    let at = |ms: u64| begin_ns + ms * MS;
    let is_busy = INCIDENT.contains(&number);
    let other = if is_busy { 2 } else { 0 };
    let mut switches = Vec::new();
    if number == INCIDENT.start {
        switches.push((at(1), 0, 0, 2, true));
    }
    if number == INCIDENT.end {
        switches.push((at(1), 0, 2, 0, false));
    }
    switches.push((at(if is_busy { 30 } else { 10 }), 0, other, 1, true));
    switches.push((at(if is_busy { 35 } else { 15 }), 0, 1, other, false));
    let is_stalled = |part: u64| number == INCIDENT.start + 4 && (1..4).contains(&part);
    for part in (0..5).filter(|part| !is_stalled(*part)) {
        switches.push((at(20 * part + 2), 1, 0, 3, true));
        switches.push((at(20 * part + 3), 1, 3, 0, false));
    }
    switches.sort_by_key(|(time_ns, ..)| *time_ns);
    let before = if (INCIDENT.start + 1..=INCIDENT.end).contains(&number) { 2 } else { 0 };
    let mut payload = SchedPayload {
        begin_ns,
        end_ns: begin_ns + PERIOD_NS,
        threads: vec![
            thread(0, 0, "swapper"),
            thread(11, 10, "steady"),
            thread(812, 812, "billing"),
            thread(31, 30, "writer"),
        ],
        running: vec![(0, before), (1, 0)],
        switches,
        wakeups: vec![(at(10), 0, 1, other)],
        lost: match fault {
            Fault::Lost if number >= INCIDENT.start => 7,
            Fault::LostInStall if number >= INCIDENT.start + 4 => 7,
            _ => 0,
        },
        ..SchedPayload::default()
    };
    if fault == Fault::Stopped {
        stop(number, &mut payload);
    }
    payload
}

/// Switches are not recorded from 19.95 to 20.95 s.
fn stop(number: u64, payload: &mut SchedPayload) {
    let (first, last) = (INCIDENT.start - 1, INCIDENT.end - 1);
    payload.is_stopped = (first..last).contains(&number);
    payload.stopped_ns = match number.checked_sub(first) {
        None => 0,
        Some(payloads) => (50 * MS + payloads * PERIOD_NS).min(1_000 * MS),
    };
    if (first + 1..=last).contains(&number) {
        payload.switches.clear();
        payload.wakeups.clear();
        payload.running.clear();
    }
}

/// Ten samples in 100 ms of `main` calling `parse`, in the incident. The build id comes late.
fn profile(number: u64) -> ProfilePayload {
    let build_id = if number < INCIDENT.start + 5 { Vec::new() } else { vec![0xC0, 0xDE] };
    let begin_ns = number * PERIOD_NS;
    let samples = if INCIDENT.contains(&number) { 10 } else { 0 };
    ProfilePayload {
        begin_ns,
        end_ns: begin_ns + PERIOD_NS,
        interval_ns: 10 * MS,
        threads: vec![thread(812, 812, "billing")],
        samples: (0..samples).map(|sample| (begin_ns + sample * 10 * MS, 0, 0, 0)).collect(),
        stacks: vec![vec![1, 0]],
        frames: vec![(0, 0x1000), (0, 0x2abc)],
        objects: vec![(CodeKind::File, "/usr/bin/billing".to_owned(), build_id)],
        versions: Vec::new(),
        lost: 0,
    }
}

fn kmsg(number: u64) -> KmsgPayload {
    let line = |at: u64| (number * PERIOD_NS + at * MS, at, 3, format!("sda: I/O error, sector {at}\u{1b}"));
    let count = if number == INCIDENT.start + 4 { 8 } else { 0 };
    KmsgPayload { lines: (1..=count).map(line).collect(), lost: 0 }
}

/// The events that samples of `sched`, `profile` and `kmsg` have: those before their time, of which
/// some are lost.
pub(super) fn kernel_events(sample: u64) -> [Vec<u8>; 3] {
    let Some(number) = sample.checked_sub(1) else {
        return [SchedPayload::default().bytes(), ProfilePayload::default().bytes(), kmsg(0).bytes()];
    };
    [sched(number, Fault::LostInStall).bytes(), profile(number).bytes(), kmsg(number).bytes()]
}

/// Writes the scene of a process that computes, with the kernel's events if they are wanted.
fn write(folder: &Path, scene: Scene, has_events: bool, fault: Fault) {
    let storage = Arc::new(DataDirectory::open(folder).unwrap()) as Arc<dyn Storage>;
    let kind = ChecksumKind::Xxh3;
    let clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: START_WALL_NS };
    let mut sources: Vec<(&str, &str, &[u8])> =
        vec![("process", "flatcap.host.Process", include_bytes!("../../generated/host/process.bfbs"))];
    if has_events {
        sources.extend([
            ("sched", SCHED_ROOT, SCHED),
            ("profile", PROFILE_ROOT, PROFILE),
            ("kmsg", KMSG_ROOT, KMSG),
        ]);
    }
    let header = SegmentHeader {
        segment: 1,
        run_id: 1,
        host: HostName { name: "db1".into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "0".into(),
        checksum: kind,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 0,
        sources: (0..)
            .zip(&sources)
            .map(|(id, (name, root, schema))| SourceInfo {
                id,
                name: (*name).to_owned(),
                labels: if fault == Fault::Pushed && id > 0 { sender() } else { Vec::new() },
                kind: SourceKind::Synthetic,
                period_ns: PERIOD_NS,
                root: (*root).to_owned(),
                schema: schema.to_vec(),
                next_seq: 0,
            })
            .collect(),
        clock_table: vec![clocks],
        recorder_pid: 0,
    };
    let created_s = START_WALL_NS / 1_000_000_000;
    let name = SegmentName { number: 1, created_s, run_id: 1, state: SealState::Active };
    let mut writer = SegmentWriter::create(&*storage, name, header, &[], 0).unwrap();
    for seq in 0..SAMPLES {
        let mono_ns = seq * PERIOD_NS;
        let mut bodies = vec![(0, payload(&scene(seq), seq))];
        // A sample of events has the events before its time.
        if let Some(number) = seq.checked_sub(1).filter(|_| has_events) {
            let events = [sched(number, fault).bytes(), profile(number).bytes(), kmsg(number).bytes()];
            bodies.extend((1..).zip(events));
        }
        for (source, mut body) in bodies {
            body.resize(body.len().next_multiple_of(8), 0);
            let wall_ns = START_WALL_NS + mono_ns.cast_signed();
            let mut frame = vec![0; ENVELOPE_BYTES + body.len()];
            let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 0 };
            Envelope::new(source).write(&mut frame, &stamp, &body);
            let head = kind.header(&frame).unwrap();
            let mut pieces = [IoSlice::new(head.as_bytes()), IoSlice::new(&frame)];
            writer.append(Frames { pieces: &mut pieces, headers: &[head.as_bytes()], count: 1 }).unwrap();
            writer.count_samples(source, 1, SampleSpan::of(seq, mono_ns, wall_ns));
        }
    }
    writer.seal().unwrap().publish(&*storage).unwrap();
}

/// The labels of a source that a program pushed.
fn sender() -> Vec<(String, String)> {
    let labels = [("client", "innocent"), ("executable", "/usr/bin/python3"), ("uid", "65534")];
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

fn recorded(has_events: bool, fault: Fault) -> Rig {
    let rig = Rig::new();
    std::fs::create_dir_all(rig.path("flatcap-data")).unwrap();
    write(&rig.path("flatcap-data"), computing, has_events, fault);
    rig
}

// Proves that events say who ran in the window, who waited because of whom, who slept longer than
// usual, which code ran and what the kernel logged, as JSON and as text.
#[test]
fn the_events_name_causes() {
    let rig = recorded(true, Fault::None);
    let found = rig.call(&["explain", "flatcap-data", "--at", "+20450ms", "--json"]).json();
    assert_eq!(found["suspects"][0]["pid"], 812, "as without events");
    let ran = &found["tasks"]["processes"][0];
    assert_eq!((&ran["pid"], &ran["name"]), (&812.into(), &"billing".into()));
    // 5 of each 100 ms are the other's; the window has 300 ms.
    assert_eq!(ran["on_cpu_ns"], 285 * MS);
    assert_eq!((&ran["usual_ns"], &found["tasks"]["recorded_ns"]), (&0.into(), &(300 * MS).into()));
    let waited = &found["waits"][0];
    assert_eq!((&waited["pid"], &waited["name"]), (&10.into(), &"steady".into()));
    assert_eq!((&waited["run_delay_ns"], &waited["longest_ns"]), (&(60 * MS).into(), &(20 * MS).into()));
    assert_eq!(waited["usual_ns"], 0);
    assert_eq!(
        (&waited["meanwhile"][0]["pid"], &waited["meanwhile"][0]["ns"]),
        (&812.into(), &(60 * MS).into())
    );
    assert_eq!(found["waits"][1]["pid"], 812, "the other one was preempted by it");
    assert_eq!(found["waits"].as_array().unwrap().len(), 2);
    let slept = serde_json::json!([{
        "pid": 30, "name": "writer", "tid": 31, "thread": "writer",
        "longest_ns": 79 * MS, "usual_longest_ns": 19 * MS
    }]);
    assert_eq!(found["sleeps"], slept);
    let code = &found["stacks"]["functions"][0];
    assert_eq!((&code["object"], &code["offset"]), (&"/usr/bin/billing".into(), &0x2abc.into()));
    assert_eq!((&code["build_id"], &code["self_ns"]), (&"c0de".into(), &(300 * MS).into()));
    assert_eq!((&found["log"]["lines"][0]["priority"], &found["log"]["further"]), (&3.into(), &0.into()));
    assert_eq!(found["log"]["lines"].as_array().unwrap().len(), 8);
    let text = rig.call(&["explain", "flatcap-data", "--at", "+20450ms"]).text();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "billing[812] 285ms 95.0% 0ns 3",
        "steady[10] 60.0ms 20.0ms 0ns billing 100.0%",
        "writer[30] 79.0ms 19.0ms writer[31]",
        "billing+0x2abc 100.0% billing[812]",
        "sda: I/O error, sector 1\\u{1b}",
        "kernel: 3 more lines",
    ] {
        assert!(words.contains(line), "{line} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

// Proves that records that the kernel lost are said at the begin of the part about who ran, with
// the time, if they are in the window, and at its end if they are not.
#[test]
fn losses_are_said() {
    let rig = recorded(true, Fault::Lost);
    let explain = |at: &str, form: &[&str]| {
        rig.call(&[&["explain", "flatcap-data", "--utc", "--at", at][..], form].concat())
    };
    let text = explain("+20450ms", &[]).text();
    assert!(text.contains("outside of the window: the kernel lost 7 records"), "{text}");
    let text = explain("+20050ms", &[]).text();
    let said = "the kernel lost 7 records from 22:13:40.000 to 22:13:40.100\nso these times are lower bounds";
    let (before, after) = text.split_once(said).unwrap_or_else(|| panic!("{text}"));
    assert!(!before.contains("who ran") && after.contains("who ran"), "{text}");
    assert!(!text.contains("outside of the window"), "{text}");
    let tasks = &explain("+20050ms", &["--json"]).json()["tasks"];
    let lost = &tasks["unrecorded"][0];
    assert_eq!((&lost["cause"], &lost["records"]), (&"lost_records".into(), &7.into()));
    let begin_ns = START_WALL_NS + (200 * PERIOD_NS).cast_signed();
    assert_eq!((&lost["begin_wall_ns"], &tasks["is_complete"]), (&begin_ns.into(), &false.into()));
    // A thread that seems to sleep may have run.
    let rig = recorded(true, Fault::LostInStall);
    let found = rig.call(&["explain", "flatcap-data", "--at", "+20450ms", "--json"]).json();
    assert_eq!((&found["tasks"]["lost"], &found["sleeps"]), (&7.into(), &serde_json::json!([])));
}

// Proves that a window in which the budget had stopped the switches begins with when that was, that
// nobody is said to have run or not, and that a window around the stop has both.
#[test]
fn stops_are_said() {
    let rig = recorded(true, Fault::Stopped);
    let explain = |at: &str, form: &[&str]| {
        rig.call(&[&["explain", "flatcap-data", "--utc", "--at", at][..], form].concat())
    };
    let text = explain("+20450ms", &[]).text();
    let said = "switches were not recorded from 22:13:39.950 to 22:13:40.600: above the budget\n\
                so these times are lower bounds: 0ns of 300ms were recorded\n\
                who ran: unknown, 0ns of 300ms were recorded\n\
                who waited for a CPU: unknown, 0ns of 300ms were recorded\n\
                who slept longer: unknown, 0ns of 300ms were recorded\n";
    assert!(text.contains(said) && !text.contains("nobody"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let tasks = &explain("+20450ms", &["--json"]).json()["tasks"];
    let wall_ns = |ms: u64| START_WALL_NS + (ms * MS).cast_signed();
    let stopped = &tasks["unrecorded"][0];
    assert_eq!((&stopped["cause"], stopped.get("records")), (&"stopped".into(), None));
    assert_eq!(
        (&stopped["begin_wall_ns"], &stopped["end_wall_ns"]),
        (&wall_ns(19_950).into(), &wall_ns(20_600).into())
    );
    assert_eq!((&tasks["is_complete"], &tasks["recorded_ns"]), (&false.into(), &0.into()));
    assert_eq!(tasks["processes"], serde_json::json!([]));
    let text = explain("+19900ms", &[]).text();
    let said = "switches were not recorded from 22:13:39.950 to 22:13:40.050: above the budget\n\
                so these times are lower bounds: 200ms of 300ms were recorded\nwho ran ";
    assert!(text.contains(said) && text.contains("steady[10]"), "{text}");
    let complete = rig.call(&["explain", "flatcap-data", "--at", "+19s", "--json"]).json();
    assert_eq!(complete["tasks"]["is_complete"], true);
    assert_eq!(complete["tasks"]["unrecorded"], serde_json::json!([]));
}

// Proves that events change neither spikes nor suspects, and that a recording without them has no
// such keys.
#[test]
fn events_are_not_ranked() {
    let (with, without) = (recorded(true, Fault::None), recorded(false, Fault::None));
    let spikes = |rig: &Rig| rig.call(&["spikes", "flatcap-data", "--json"]).json();
    assert_eq!(spikes(&with), spikes(&without));
    let explained = |rig: &Rig| {
        let mut found = rig.call(&["explain", "flatcap-data", "--at", "+20450ms", "--json"]).json();
        // It says that events are not ranked.
        found.as_object_mut().unwrap().remove("unranked").unwrap();
        let keys = ["tasks", "waits", "sleeps", "stacks", "log"];
        let removed = keys.map(|key| found.as_object_mut().unwrap().remove(key).is_some());
        (found, removed)
    };
    let (found, removed) = explained(&with);
    assert_eq!(removed, [true; 5]);
    assert_eq!(explained(&without), (found, [false; 5]));
}

// Proves that pushed task events, stacks and kernel logs never act as the kernel's: the answer has
// no section about tasks, code or log, no `tasks` are computed, and the suspects do not change.
#[test]
fn pushed_events_are_not_those_of_the_kernel() {
    let (pushed, without) = (recorded(true, Fault::Pushed), recorded(false, Fault::None));
    let explained = |rig: &Rig| rig.call(&["explain", "flatcap-data", "--at", "+20450ms", "--json"]).json();
    let (found, expected) = (explained(&pushed), explained(&without));
    for key in ["tasks", "waits", "sleeps", "stacks", "log"] {
        assert!(found.get(key).is_none(), "{key}: {found}");
    }
    assert_eq!(found["suspects"], expected["suspects"]);
    let text = rig_text(&pushed);
    assert!(!text.contains("I/O error") && !text.contains("who ran"), "{text}");
    let called = pushed.call(&["fields", "flatcap-data", "tasks"]);
    assert_eq!(called.status, Some(2), "{called:?}");
}

fn rig_text(rig: &Rig) -> String {
    rig.call(&["explain", "flatcap-data", "--at", "+20450ms"]).text()
}

// Proves that the source that is computed from the events is listed and printed like any other, at
// any step, and that reading everything does not include it.
#[test]
fn tasks_are_a_source() {
    let rig = recorded(true, Fault::None);
    let fields = rig.call(&["fields", "flatcap-data", "tasks"]).text();
    assert!(fields.contains("processes[*].run_delay"), "{fields}");
    let around = ["--since", "+20s", "--until", "+20100ms"];
    let rates =
        [&["dump", "flatcap-data", "--fields", "on_cpu", "--long", "--every", "1ms", "--rate"], &around[..]];
    let rows = rig.call(&[&rates.concat()[..], &["--units", "--format", "csv"]].concat()).text();
    let of = |name: &str, from: &str| {
        let row = rows.lines().find(|line| line.contains(name) && line.contains(from));
        row.and_then(|line| line.rsplit(',').next()?.parse::<f64>().ok())
    };
    assert_eq!(of("billing[812]", ":40.020"), Some(100.0), "{rows}");
    assert_eq!(of("steady[10]", ":40.029"), Some(0.0), "{rows}");
    assert_eq!(of("steady[10]", ":40.030"), Some(100.0), "{rows}");
    let samples =
        rig.call(&["dump", "flatcap-data", "--source", "tasks", "--format", "jsonl", "--limit", "2"]);
    let first: Value = serde_json::from_str(samples.text().lines().next().unwrap()).unwrap();
    assert!(first.to_string().contains("run_delay"), "{first}");
    assert!(rig.call(&["dump", "flatcap-data", "--source", "tasks"]).text().contains("on_cpu"));
    let all = rig.call(&["dump", "flatcap-data", "--format", "jsonl"]).text();
    assert!(!all.contains("\"tasks\""));
    // The digest of everything, and the events as they are.
    let digest = rig.call(&["dump", "flatcap-data"]);
    assert!(digest.status == Some(0) && digest.text().contains("sched"), "{}", digest.text());
    assert!(!digest.text().contains("tasks"), "{}", digest.text());
    let events = rig.call(&["dump", "flatcap-data", "--source", "sched"]);
    assert!(events.status == Some(0) && events.text().contains("has_wakeups"), "{}", events.text());
}
