//! Tests the export of stacks and of the scheduler, that is, folded stacks, flame graphs, traces of
//! Perfetto, and the verb that names functions. The tests run the program on recordings that are
//! made of plain values.

use std::hint::black_box;
use std::io::{IoSlice, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::schema::{CompiledSchema, MetricKind, NewContent, NewField, NewTable, binary_schema};
use flatcap_format::segment::{
    Frames, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::testing::{Folder, TableLayout, TableWriter};
use flatcap_stream::{ChecksumKind, Framer};
use flatcap_tasks::schema::{
    CodeKind, KMSG, KMSG_ROOT, PROFILE, PROFILE_ROOT, SCHED, SCHED_ROOT, TaskEventKind,
};
use flatcap_tasks::testing::{KmsgPayload, ProfilePayload, SchedPayload};
use flatcap_tasks::{TaskName, ThreadInfo};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_flatcap-convert");
/// Wall time minus monotonic time in all recordings.
const OFFSET_NS: i64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// The sources of all recordings, by id.
const SCHED_ID: u16 = 0;
const PROFILE_ID: u16 = 1;
const KMSG_ID: u16 = 2;
const TABLE_ID: u16 = 3;

/// The table of the host's processes.
const PROCESS_ROOT: &str = "flatcap.host.Process";

/// A source's id, the time of the sample, and its payload.
type Sample = (u16, u64, Vec<u8>);

/// Writes a run of the sources `sched`, `profile`, `kmsg` and `process`, with the names that they
/// have on a host.
fn write_run(folder: &Path, (run_id, host): (u64, &str), samples: &[Sample]) {
    let storage = Folder(folder.to_owned());
    let clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: OFFSET_NS };
    let info = |id, name: &str, root: &str, schema: &[u8]| SourceInfo {
        id,
        name: name.to_owned(),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: SECOND,
        root: root.to_owned(),
        schema: schema.to_vec(),
        next_seq: 0,
    };
    let header = SegmentHeader {
        segment: run_id,
        run_id,
        host: HostName {
            name: host.into(),
            machine_id: None,
            boot_id: Some("boot".into()),
            labels: Vec::new(),
        },
        agent_version: "0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: SECOND,
        sources: vec![
            info(SCHED_ID, "scheduler", SCHED_ROOT, SCHED),
            info(PROFILE_ID, "stacks", PROFILE_ROOT, PROFILE),
            info(KMSG_ID, "log", KMSG_ROOT, KMSG),
            info(TABLE_ID, "table", PROCESS_ROOT, &process_schema()),
        ],
        clock_table: vec![clocks],
        recorder_pid: 0,
    };
    let name = SegmentName {
        number: run_id,
        created_s: OFFSET_NS / 1_000_000_000,
        run_id,
        state: SealState::Active,
    };
    let mut segment = SegmentWriter::create(&storage, name, header, &[], 0).unwrap();
    let kind = segment.checksum();
    let (mut numbers, mut spans) = ([0; 4], Vec::new());
    for (source, mono_ns, body) in samples {
        let number = &mut numbers[usize::from(*source)];
        let wall_ns = OFFSET_NS.wrapping_add_unsigned(*mono_ns);
        let stamp = Stamp {
            mono_ns: *mono_ns,
            wall_ns,
            seq: *number,
            incomplete: Incomplete::NONE,
            duration_ns: 900,
        };
        let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
        Envelope::new(*source).write(&mut payload, &stamp, body);
        let mut frame = Vec::new();
        kind.frame_and_write(&mut frame, &payload).unwrap();
        let (pieces, header) = (&mut [IoSlice::new(&frame)], &frame[..kind.frame_bytes(0)]);
        segment.append(Frames { pieces, headers: &[header], count: 1 }).unwrap();
        spans.push((*source, SampleSpan::of(*number, *mono_ns, wall_ns)));
        *number += 1;
    }
    for (source, span) in spans {
        segment.count_samples(source, 1, span);
    }
    segment.append_index(0).unwrap();
    segment.seal().unwrap().publish(&storage).unwrap();
}

/// Returns a schema of tables of processes.
fn process_schema() -> Vec<u8> {
    let number =
        |name, kind, is_identity| NewField { kind, is_identity, ..NewField::new(name, NewContent::Unsigned) };
    let list = NewField::new("processes", NewContent::Tables("Element".into()));
    let own = vec![
        number("pid", MetricKind::State, true),
        number("start", MetricKind::State, true),
        number("size", MetricKind::Gauge, false),
    ];
    let tables = [
        NewTable { name: PROCESS_ROOT.into(), fields: vec![list] },
        NewTable { name: "Element".into(), fields: own },
    ];
    binary_schema(&tables, PROCESS_ROOT).unwrap()
}

/// Returns a table of processes, with the id, start and size of each.
fn process_table(processes: &[[u64; 3]]) -> Vec<u8> {
    let schema = process_schema();
    let layout = |root: &str, names: &[&str]| {
        TableLayout::new(&CompiledSchema::compile(&schema, root).unwrap(), names).unwrap()
    };
    let names = ["pid", "start", "size"];
    let (root, element) = (layout(PROCESS_ROOT, &["processes"]), layout("Element", &names));
    let mut writer = TableWriter::new();
    let table = writer.start(&root);
    let list = writer.tables(table, root.field("processes").unwrap(), &element, processes.len());
    for (index, process) in processes.iter().enumerate() {
        for (name, value) in names.iter().zip(process) {
            writer.set(list.position(index), element.field(name).unwrap(), *value);
        }
    }
    writer.finished().unwrap().to_vec()
}

/// Exit status and output of a call.
#[derive(Debug)]
struct Called {
    status: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Called {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn export(args: &[&str], folder: &Path) -> Called {
    Called::from(Command::new(PROGRAM).arg("export").args(args).arg("--").arg(folder).output().unwrap())
}

fn folded(args: &[&str], folder: &Path) -> Called {
    export(&[&["--to=folded", "--output=-"], args].concat(), folder)
}

fn thread(thread: u32, process: u32, name: &str) -> ThreadInfo {
    ThreadInfo { thread, process, name: TaskName::new(name.as_bytes()) }
}

/// Returns a payload of stacks of two processes, one of which has two threads, and of an idle loop.
fn stacks(begin_ns: u64, samples: &[(u64, u16, u16, u16)]) -> Vec<u8> {
    ProfilePayload {
        begin_ns,
        end_ns: begin_ns + SECOND,
        interval_ns: SECOND / 100,
        threads: vec![
            thread(10, 10, "app"),
            thread(11, 10, "worker"),
            thread(20, 20, "a;b c"),
            thread(0, 0, "swapper"),
        ],
        samples: samples
            .iter()
            .map(|(at, thread, cpu, stack)| (begin_ns + at, *thread, *cpu, *stack))
            .collect(),
        stacks: vec![vec![0, 1], vec![2, 0, 1], vec![], vec![3, 1]],
        frames: vec![(0, 0x100), (0, 0x200), (1, 0x300), (2, 0x400)],
        objects: vec![
            (CodeKind::File, "/nowhere/bin/app".to_owned(), vec![1, 2, 3]),
            (CodeKind::Kernel, "[kernel]".to_owned(), Vec::new()),
            (CodeKind::Unknown, "//anon".to_owned(), Vec::new()),
        ],
        ..ProfilePayload::default()
    }
    .bytes()
}

/// Writes a recording with two payloads of stacks. The second one is a second after the first.
fn recorded_stacks(folder: &Path) {
    let first = stacks(SECOND, &[(1, 0, 0, 0), (2, 1, 1, 0), (3, 0, 0, 1), (4, 3, 0, 1)]);
    let second = stacks(2 * SECOND, &[(1, 1, 0, 0), (2, 2, 0, 2), (3, 2, 0, 3)]);
    let samples = [(PROFILE_ID, 2 * SECOND + 5, first), (PROFILE_ID, 3 * SECOND + 5, second)];
    write_run(folder, (1, "example"), &samples);
}

// Proves that samples of equal stacks are counted on one line, by process and not by thread, with
// the outermost function first. Also proves that characters with a special meaning are replaced,
// and that idle loops are left out.
#[test]
fn equal_stacks_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    recorded_stacks(folder.path());
    let all = folded(&[], folder.path());
    let expected = "a:b c;[unknown] 1\n\
        a:b c;app+0x200;anon 1\n\
        app;app+0x200;app+0x100 3\n\
        app;app+0x200;app+0x100;[kernel]+0x300 1\n";
    assert_eq!((all.status, all.out.as_str()), (Some(0), expected), "{}", all.err);
    assert!(all.err.contains("no names of functions: cannot read /nowhere/bin/app"), "{}", all.err);
    assert!(all.err.contains("the recorded kernel is not the running one"), "{}", all.err);
    assert!(all.err.contains("100.0 % of the places in stacks have no name of a function"), "{}", all.err);
}

// Proves that a time and a process select samples by the time of the sample and not by the time of
// the payload. Also proves that a selection without samples is an error that states this.
#[test]
fn stacks_are_selected() {
    let folder = tempfile::tempdir().unwrap();
    recorded_stacks(folder.path());
    let wall = |mono_ns: u64| OFFSET_NS.wrapping_add_unsigned(mono_ns).to_string();
    let since = format!("--since-ns={}", wall(SECOND + 2));
    let until = format!("--until-ns={}", wall(2 * SECOND + 2));
    let some = folded(&[&since, &until], folder.path());
    let expected = "app;app+0x200;app+0x100 2\napp;app+0x200;app+0x100;[kernel]+0x300 1\n";
    assert_eq!(some.out, expected, "{}", some.err);
    for process in ["--process=a;b c", "--process=20"] {
        let own = folded(&[process], folder.path());
        assert_eq!(own.out.lines().count(), 2, "{process}: {own:?}");
        assert!(own.out.lines().all(|line| line.starts_with("a:b c;")), "{process}: {own:?}");
    }
    let other = folded(&["--process=worker"], folder.path());
    assert_eq!(other.status, Some(2), "{other:?}");
    assert!(other.err.contains("--process worker: no process of that name or id was sampled"), "{other:?}");
    let none = folded(&[&format!("--since-ns={}", wall(9 * SECOND))], folder.path());
    assert_eq!(none.status, Some(1), "{none:?}");
    assert!(none.err.contains("no samples in the selected time"), "{none:?}");
    let sched_only = folded(&["--source=scheduler"], folder.path());
    assert_eq!(sched_only.status, Some(2), "{sched_only:?}");
    assert!(sched_only.err.contains("the recording has no stacks"), "{sched_only:?}");
    for (args, error) in [
        (&["--to=mcap", "--process=1"][..], "--process: only stacks are of a process"),
        (&["--to=arrow", "--symbols=/x"], "--symbols: only folded, flame, pprof and perfetto"),
        (&["--to=flame", "--fields=a"], "--fields and --every are for formats with columns"),
        (&["--to=folded", "--local"], "--local are for parquet"),
    ] {
        let wrong = export(&[args, &["--output=x"]].concat(), folder.path());
        assert_eq!(wrong.status, Some(2), "{wrong:?}");
        assert!(wrong.err.contains(error), "{wrong:?}");
    }
}

// Proves that damaged payloads are reported by exit status 3, and that the other payloads are
// exported.
#[test]
fn malformed_payloads_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let good = stacks(SECOND, &[(1, 0, 0, 0)]);
    let mut samples: Vec<Sample> = vec![(PROFILE_ID, 2 * SECOND, good.clone())];
    samples.push((PROFILE_ID, 3 * SECOND, vec![0xff; 64]));
    samples.push((PROFILE_ID, 4 * SECOND, good[..good.len() / 2].to_vec()));
    write_run(folder.path(), (1, "example"), &samples);
    let called = folded(&[], folder.path());
    assert_eq!((called.status, called.out.as_str()), (Some(3), "app;app+0x200;app+0x100 1\n"), "{called:?}");
    assert!(called.err.contains("2 samples or schemas are malformed"), "{called:?}");
}

// Proves that a flame graph is one image with the functions of all stacks and their shares. Also
// proves that equal recordings give equal bytes, and that an existing image is kept.
#[test]
fn a_flame_graph_is_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    recorded_stacks(&data);
    let image = folder.path().join("flame.svg");
    let output = format!("--output={}", image.display());
    let drawn = export(&["--to=flame", &output, "--json"], &data);
    assert_eq!(drawn.status, Some(0), "{drawn:?}");
    let report: Value = serde_json::from_str(&drawn.out).unwrap();
    assert_eq!(report["files"][0]["rows"], 6);
    let svg = std::fs::read_to_string(&image).unwrap();
    for shown in [
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\"",
        "<title>example: 0.06 s of CPU time, 6 samples</title>",
        "<title>all (6 samples, 100.00 %)</title>",
        "<title>app (4 samples, 66.67 %)</title>",
        "<title>[kernel]+0x300 (1 sample, 16.67 %)</title>",
    ] {
        assert!(svg.contains(shown), "{shown} in {svg}");
    }
    assert!(!svg.contains("<script") && svg.ends_with("</svg>\n"));
    let again = export(&["--to=flame", "--output=-"], &data);
    assert_eq!(again.out, svg);
    let refused = export(&["--to=flame", &output], &data);
    assert!(refused.status == Some(1) && refused.err.contains("flame.svg exists already"), "{refused:?}");
    assert_eq!(export(&["--to=flame", &output, "--force"], &data).status, Some(0));
}

/// The name of [`a_function_of_the_test`] in a stack.
const FUNCTION: &str = concat!(module_path!(), "::a_function_of_the_test");

#[inline(never)]
fn a_function_of_the_test(value: u64) -> u64 {
    black_box(value).rotate_left(3)
}

/// Returns the path of this executable, its build id as printed by the tool readelf, and the offset
/// of a function in it.
fn own_function() -> Option<(PathBuf, String, u64)> {
    black_box(a_function_of_the_test(black_box(1)));
    let address = a_function_of_the_test as fn(u64) -> u64 as usize as u64;
    let own = std::env::current_exe().unwrap();
    let notes = Command::new("readelf").arg("-n").arg(&own).output();
    let Ok(notes) = notes else {
        println!("skipped: readelf is not installed");
        return None;
    };
    let notes = String::from_utf8(notes.stdout).unwrap();
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let offset = maps.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (begin, end) = words[0].split_once('-').unwrap();
        (number(begin)..number(end)).contains(&address).then(|| address - number(begin) + number(words[2]))
    });
    Some((own, id, offset.unwrap()))
}

/// Calls the verb that names functions.
fn symbolize(args: &[&str], input: &str) -> Called {
    let mut command = Command::new(PROGRAM);
    command.arg("symbolize").args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // If an input is wrong, the program ends before it has read all of the input.
    let _unread = child.stdin.take().unwrap().write_all(input.as_bytes());
    Called::from(child.wait_with_output().unwrap())
}

// Proves that the functions of stacks are named, in folded stacks and by the verb `symbolize`. Also
// proves that a return address is looked up one byte before, and that an address of another build
// is not named.
#[test]
fn functions_are_named() {
    let Some((path, id, offset)) = own_function() else { return };
    let bytes = |hex: &str| -> Vec<u8> {
        let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(pair).collect()
    };
    let folder = tempfile::tempdir().unwrap();
    let payload = ProfilePayload {
        begin_ns: SECOND,
        end_ns: 2 * SECOND,
        interval_ns: SECOND / 100,
        threads: vec![thread(10, 10, "app")],
        samples: vec![(SECOND, 0, 0, 0), (SECOND + 1, 0, 0, 1)],
        stacks: vec![vec![0, 1], vec![2]],
        // The second place is a return address. It is the first address of the next function.
        frames: vec![(0, offset), (0, offset + 1), (1, offset)],
        objects: vec![
            (CodeKind::File, path.display().to_string(), bytes(&id)),
            (CodeKind::File, path.display().to_string(), vec![1; 20]),
        ],
        ..ProfilePayload::default()
    };
    write_run(folder.path(), (1, "example"), &[(PROFILE_ID, 2 * SECOND, payload.bytes())]);
    let called = folded(&[], folder.path());
    let name = FUNCTION;
    let file = path.file_name().unwrap().to_str().unwrap();
    let expected = format!("app;{file}+{offset:#x} 1\napp;{name};{name} 1\n");
    assert_eq!((called.status, called.out), (Some(0), expected), "{}", called.err);
    assert!(called.err.contains("recorded is 0101010101"), "{}", called.err);

    let place = |fields: Value| {
        let mut place = json!({"kind": "file", "path": path, "build_id": id, "offset": offset});
        place.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        place.to_string() + "\n"
    };
    let places = [
        place(json!({})),
        place(json!({"build_id": "00"})),
        place(json!({"offset": offset + 1, "is_return": true})),
        place(json!({"kind": "unknown", "path": ""})),
    ];
    let called = symbolize(&[], &places.concat());
    let answers: Vec<Value> = called.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let known = json!({"names": [name], "is_known": true});
    let unknown = |text: &str| json!({"names": [text], "is_known": false});
    let expected = [known.clone(), unknown(&format!("{file}+{offset:#x}")), known, unknown("[unknown]")];
    assert_eq!((called.status, answers), (Some(0), expected.to_vec()), "{}", called.err);
    for wrong in ["nonsense\n", "{\"kind\":\"file\"}\n", &("x".repeat(1 << 20) + "\n")] {
        let called = symbolize(&[], &(places[0].clone() + wrong));
        assert_eq!((called.status, called.out.lines().count()), (Some(2), 1), "{called:?}");
        assert!(called.err.contains("line 2 of standard input"), "{called:?}");
    }
}

// Proves that a build id that was recorded late names the functions of earlier samples, in folded
// stacks and in traces. Also proves that it names no functions of samples of another run, or of a
// path that had two build ids.
#[test]
fn late_build_ids_name_functions() {
    let Some((path, id, offset)) = own_function() else { return };
    let id: Vec<u8> =
        (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap()).collect();
    let payload = |begin_ns: u64, build_id: &[u8]| {
        let payload = ProfilePayload {
            begin_ns,
            end_ns: begin_ns + SECOND,
            interval_ns: SECOND / 100,
            threads: vec![thread(10, 10, "app")],
            samples: vec![(begin_ns, 0, 0, 0)],
            stacks: vec![vec![0]],
            frames: vec![(0, offset)],
            objects: vec![(CodeKind::File, path.display().to_string(), build_id.to_vec())],
            ..ProfilePayload::default()
        };
        (PROFILE_ID, begin_ns + SECOND, payload.bytes())
    };
    let named = |payloads: &[Sample], other_run: &[Sample]| {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        write_run(&data, (1, "example"), payloads);
        if !other_run.is_empty() {
            write_run(&data, (2, "example"), other_run);
        }
        let trace = folder.path().join("trace");
        let called = export(&["--to=perfetto", &format!("--output={}", trace.display())], &data);
        assert_eq!(called.status, Some(0), "{called:?}");
        let trace = std::fs::read(&trace).unwrap();
        let has = |text: &str| trace.windows(text.len()).any(|found| found == text.as_bytes());
        let unnamed = format!("+{offset:#x}");
        (folded(&[], &data).out, has(FUNCTION), has(&unnamed))
    };
    let file = path.file_name().unwrap().to_str().unwrap();
    let name = format!("app;{FUNCTION}");
    let late = [payload(SECOND, &[]), payload(2 * SECOND, &id)];
    assert_eq!(named(&late, &[]), (format!("{name} 2\n"), true, false));
    let other_run = [payload(4 * SECOND, &[])];
    assert_eq!(named(&late, &other_run), (format!("app;{file}+{offset:#x} 1\n{name} 2\n"), true, true));
    let replaced = [payload(SECOND, &[1]), payload(2 * SECOND, &[]), payload(3 * SECOND, &id)];
    assert_eq!(named(&replaced, &[]), (format!("app;{file}+{offset:#x} 2\n{name} 1\n"), true, true));
}

/// Returns the scheduler and the stacks of a trace as read by Perfetto's library. If the library is
/// missing, prints one line and returns `None`. .ci/run installs it.
fn found_by_library(path: &Path) -> Option<Value> {
    read_by_library("kernel", path)
}

fn read_by_library(what: &str, path: &Path) -> Option<Value> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/judges/bin/python");
    let found = [installed, PathBuf::from("python3")].into_iter().find(|python| {
        let imports = Command::new(python).args(["-c", "import perfetto.protos"]).output();
        imports.is_ok_and(|output| output.status.success())
    });
    let Some(python) = found else {
        println!("skipped: no Python with perfetto");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats.py");
    let read = Called::from(Command::new(python).arg(script).arg(what).arg(path).output().unwrap());
    assert_eq!(read.status, Some(0), "{}", read.err);
    Some(serde_json::from_str(&read.out).unwrap())
}

/// Returns a payload of the scheduler. On CPU 0 runs `app`, and then `b`, which `app` wakes and
/// which preempts `app`.
fn scheduling(begin_ns: u64) -> SchedPayload {
    SchedPayload {
        begin_ns,
        end_ns: begin_ns + SECOND,
        threads: vec![thread(0, 0, ""), thread(10, 10, "app"), thread(11, 10, "b")],
        running: vec![(0, 1)],
        switches: vec![
            (begin_ns + 200, 0, 1, 2, true),
            (begin_ns + 300, 0, 2, 1, false),
            (begin_ns + 400, 0, 1, 0, false),
        ],
        wakeups: vec![(begin_ns + 100, 0, 2, 1)],
        events: vec![(begin_ns + 350, 1, TaskEventKind::Exit)],
        ..SchedPayload::default()
    }
}

// Proves that a trace has each switch and wakeup with its time, CPU, threads and state, the names
// of threads and processes, and stacks with their functions and files. Also proves that no thread
// seems to run in unrecorded times, and that the selected time cuts both. Perfetto's library checks
// the result.
#[test]
fn a_trace_has_the_scheduler_and_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let (first, later) = (scheduling(SECOND), scheduling(5 * SECOND));
    let samples = [
        (SCHED_ID, 2 * SECOND, first.bytes()),
        (PROFILE_ID, 2 * SECOND, stacks(SECOND, &[(3, 1, 1, 1), (4, 0, 0, 1), (5, 3, 0, 0)])),
        (SCHED_ID, 6 * SECOND, later.bytes()),
    ];
    write_run(&data, (1, "example"), &samples);
    let trace = folder.path().join("trace");
    let output = format!("--output={}", trace.display());
    let called = export(&["--to=perfetto", &output], &data);
    assert_eq!(called.status, Some(0), "{called:?}");
    let Some(found) = found_by_library(&trace) else { return };
    let hole = (1_u32 << 30, "(not recorded)");
    let switches = |begin: u64| {
        [
            json!([0, begin, hole.1, hole.0, 1, "app", 10]),
            json!([0, begin + 200, "app", 10, 0, "b", 11]),
            json!([0, begin + 300, "b", 11, 1, "app", 10]),
            // The thread has ended, so it does not sleep.
            json!([0, begin + 400, "app", 10, 16, "swapper", 0]),
            json!([0, begin + SECOND, "swapper", 0, 1, hole.1, hole.0]),
        ]
    };
    assert_eq!(found["switches"], json!([switches(SECOND), switches(5 * SECOND)].concat()));
    let wakings = [json!([0, SECOND + 100, 10, "b", 11]), json!([0, 5 * SECOND + 100, 10, "b", 11])];
    assert_eq!(found["wakings"], json!(wakings));
    let app = "nowhere/bin/app";
    let frames = json!([
        ["app+0x200", app, "010203", 0x200],
        ["app+0x100", app, "010203", 0x100],
        ["[kernel]+0x300", "[kernel]", null, 0x300]
    ]);
    let samples = [json!([SECOND + 3, 1, 10, 11, 1, frames]), json!([SECOND + 4, 0, 10, 10, 1, frames])];
    assert_eq!(found["samples"], json!(samples));
    assert_eq!(found["threads"], json!({"10": [10, "app"], "11": [10, "b"]}));
    assert_eq!(found["processes"], json!({"10": ["app"]}));

    let wall = |mono_ns: u64| OFFSET_NS.wrapping_add_unsigned(mono_ns).to_string();
    let since = format!("--since-ns={}", wall(SECOND + 250));
    let until = format!("--until-ns={}", wall(SECOND + 320));
    let called = export(&["--to=perfetto", &output, "--force", &since, &until], &data);
    assert_eq!(called.status, Some(0), "{called:?}");
    let found = found_by_library(&trace).unwrap();
    let cut = json!([
        [0, SECOND + 250, hole.1, hole.0, 1, "b", 11],
        [0, SECOND + 300, "b", 11, 1, "app", 10],
        [0, SECOND + 320, "app", 10, 1, hole.1, hole.0]
    ]);
    assert_eq!((&found["switches"], &found["samples"]), (&cut, &json!([])));
    let since = format!("--since-ns={}", wall(2 * SECOND - 100));
    let until = format!("--until-ns={}", wall(2 * SECOND + 100));
    let called = export(&["--to=perfetto", &output, "--force", &since, &until], &data);
    assert_eq!(called.status, Some(0), "{called:?}");
    let found = found_by_library(&trace).unwrap();
    let cut = json!([
        [0, 2 * SECOND - 100, hole.1, hole.0, 1, "swapper", 0],
        [0, 2 * SECOND, "swapper", 0, 1, hole.1, hole.0]
    ]);
    assert_eq!((&found["switches"], &found["samples"]), (&cut, &json!([])));
}

// Proves that each line of the kernel log is an instant in the selected time, and that control
// characters are kept. Also proves that a line whose clock deviates is between the samples around
// it. Perfetto's library checks the result.
#[test]
fn a_trace_has_the_kernel_log() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let log = |lines: &[(u64, &str)]| {
        let line = |(time_ns, text): &(u64, &str)| (*time_ns, 0, 4, (*text).to_owned());
        KmsgPayload { lines: lines.iter().map(line).collect(), ..KmsgPayload::default() }.bytes()
    };
    let samples = [
        (KMSG_ID, 2 * SECOND, log(&[(SECOND + 5, "usb 1-1: reset"), (3 * SECOND, "early")])),
        (KMSG_ID, 4 * SECOND, log(&[(SECOND, "late\n2nd"), (3 * SECOND + 7, "oom")])),
    ];
    write_run(&data, (1, "example"), &samples);
    let trace = folder.path().join("trace");
    let output = format!("--output={}", trace.display());
    let instants = |args: &[&str]| {
        let called = export(&[&["--to=perfetto", "--force", &output], args].concat(), &data);
        assert_eq!(called.status, Some(0), "{called:?}");
        read_by_library("perfetto", &trace).map(|found| found["tracks"]["kernel log"]["events"].clone())
    };
    let instant = |time_ns: u64, text: &str| json!(["TYPE_INSTANT", time_ns, text]);
    let all = [
        instant(SECOND + 5, "usb 1-1: reset"),
        instant(2 * SECOND, "early"),
        instant(2 * SECOND, "late\n2nd"),
        instant(3 * SECOND + 7, "oom"),
    ];
    let Some(found) = instants(&[]) else { return };
    assert_eq!(found, json!(all));
    let since = format!("--since-ns={}", OFFSET_NS.wrapping_add_unsigned(2 * SECOND + 1));
    assert_eq!(instants(&[&since]), Some(json!(all[3..])));
}

// Proves that the program writes a profile of pprof with the functions of the stacks. A unit test
// checks the contents of a profile.
#[test]
fn stacks_are_a_profile_of_pprof() {
    let folder = tempfile::tempdir().unwrap();
    recorded_stacks(folder.path());
    let file = folder.path().join("cpu.pprof");
    let output = format!("--output={}", file.display());
    let called = export(&["--to=pprof", "--json", &output], folder.path());
    assert_eq!(called.status, Some(0), "{called:?}");
    let report: Value = serde_json::from_str(&called.out).unwrap();
    assert_eq!(report["files"][0]["rows"], 6, "{report}");
    let bytes = std::fs::read(&file).unwrap();
    for text in ["app+0x200", "nanoseconds", "a:b c"] {
        assert!(bytes.windows(text.len()).any(|part| part == text.as_bytes()), "{text}");
    }
}

// Proves that values of a process are on the track of the process, even if the id of the process is
// used again. With several hosts, the values are below their host. Perfetto's library checks the
// result.
#[test]
fn a_trace_has_the_values_of_processes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let samples = [
        (TABLE_ID, 2 * SECOND, process_table(&[[7, 1, 100], [8, 1, 5]])),
        (TABLE_ID, 3 * SECOND, process_table(&[[7, 1, 200], [8, 2, 6]])),
    ];
    write_run(&data, (1, "example"), &samples);
    let trace = folder.path().join("trace");
    let output = format!("--output={}", trace.display());
    let tracks = || {
        let called = export(&["--to=perfetto", "--force", &output], &data);
        assert_eq!(called.status, Some(0), "{called:?}");
        read_by_library("perfetto", &trace).map(|found| found["tracks"].clone())
    };
    let Some(found) = tracks() else { return };
    let value = |time_ns: u64, value: u64| json!(["TYPE_COUNTER", time_ns, value]);
    let events = &found["process 7/size"]["events"];
    assert_eq!(*events, json!([value(2 * SECOND, 100), value(3 * SECOND, 200)]), "{found}");
    assert!(found["process 8/size"]["events"].is_array(), "{found}");
    write_run(&data, (2, "other"), &samples);
    let found = tracks().unwrap();
    let names: Vec<&String> = found.as_object().unwrap().keys().collect();
    let is_below =
        |host: &str| names.iter().any(|name| name.starts_with(&format!("{host}/table/processes/")));
    assert!(is_below("example") && is_below("other"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("process ")), "{names:?}");
}
