//! Limits on the resources that applications use: CPU time, sources of a run, snapshots and names.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flatcap::import::{ImportLimits, ImportSource, RunWriter};
use flatcap::os::storage::DataDirectory;
use flatcap_format::host::HostName;
use flatcap_format::schema::{is_plain_field_name, is_plain_source_name};
use flatcap_format::testing::effort;
use flatcap_push::{ClientOptions, OnFullLane, PushClient, SourceOptions};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;

use crate::pushing::{client, count, orders, payload, record, rows, socket, verified_lost};
use crate::rig::{Rig, eventually, number};

/// Variable that makes a test of this file the application of another one: its push socket.
const APPLICATION: &str = "FLATCAP_TEST_PUSH_STARTS";
/// Threads of that application.
const THREADS: usize = 16;
/// A source of the host with this schema.
const SCHEMA: &[u8] = include_bytes!("../../generated/host/load.bfbs");
const ROOT: &str = "flatcap.host.Load";

/// Ends the storm, also if the test fails.
struct StormEnd<'a>(&'a AtomicBool);

impl Drop for StormEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects to the recorder and closes the connection.
fn connect_once(address: &SocketAddrUnix) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    if connect(&stream, address).is_err() {
        std::thread::yield_now();
    }
}

// Proves that the source of the host is read at each tick while applications connect, register,
// fire triggers and push as fast as they can. These are delayed, their frames are recorded, and
// another application is served.
#[test]
fn storms_do_not_slow_the_hosts_sources() {
    const TICKS: u64 = 400;
    let rig = Rig::new();
    let process = record(&rig, "cpu_budget = \"5%\"\nlane_size = \"256KiB\"", "");
    let path = socket(&rig);
    let host = || rig.source("synthetic").unwrap();
    let (is_over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    let storm = |work: &dyn Fn()| {
        while !is_over.load(Ordering::Relaxed) {
            work();
        }
    };
    let busy = client(&path);
    let busy_orders = orders(&busy, OnFullLane::DropNewest);
    let bytes = payload(1);
    let address = SocketAddrUnix::new(&path).unwrap();
    std::thread::scope(|scope| {
        let _end = StormEnd(&is_over);
        scope.spawn(|| storm(&|| connect_once(&address)));
        scope.spawn(|| {
            storm(&|| {
                let pushed = busy_orders.push(&bytes);
                taken.fetch_add(u64::from(pushed.is_ok()), Ordering::Relaxed);
            });
        });
        scope.spawn(|| {
            storm(&|| {
                let options = ClientOptions { socket: Some(path.clone()), ..ClientOptions::default() };
                let other = PushClient::open("storm", options).unwrap();
                let source =
                    SourceOptions { name: "load", root: ROOT, schema: SCHEMA, ..SourceOptions::default() };
                drop((other.source(source), other.trigger("again")));
            });
        });
        let begun = || number(&host()["begun"]);
        // The governor of the host's sources decides after two seconds.
        let start = begun();
        eventually("ticks during the storm", || begun() >= start + TICKS);
        eventually("pushes are put off", || count(&rig, "cpu_waits") > 0);
        assert_eq!(number(&host()["stride"]), 1, "{}", host());
    });
    let beside = client(&path);
    let quiet = beside.source(SourceOptions {
        name: "quiet",
        on_full: OnFullLane::Block,
        ..SourceOptions::default()
    });
    eventually("another application", || quiet.as_ref().unwrap().push(b"x").is_ok());
    drop((busy_orders, busy, quiet, beside));
    eventually("lanes are closed", || count(&rig, "lanes") == 0);
    process.end("TERM");
    // Checks that each sample begun is recorded or lost.
    verified_lost(&rig);
    assert_eq!(rows(&rig, "orders").len() as u64, taken.load(Ordering::Relaxed));
    assert_eq!(rows(&rig, "quiet").len(), 1);
}

// The application of the test below: each of its threads pushes one sample.
#[test]
#[ignore = "started by other tests"]
fn application() {
    let path = std::env::var_os(APPLICATION).expect("from the test that starts this one");
    let client = client(Path::new(&path));
    let source = orders(&client, OnFullLane::Block);
    let all = std::sync::Barrier::new(THREADS);
    let push = |thread: usize| {
        let pushed = source.push(&payload(thread as u64));
        assert_eq!(pushed, Ok(()), "{}", client.last_error());
        // All lanes at once.
        all.wait();
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || push(thread))));
    });
}

// Proves that an application with many threads can be started more often than the descriptions of
// its processes would fit into a segment of the ring, and that each of its samples is recorded.
#[test]
fn an_application_is_started_again_and_again() {
    let starts = effort::of(12, 1000);
    let rig = Rig::new();
    let more = "[blackbox]\nwindow = \"5s\"\nmemory_max = \"64MiB\"";
    let process = record(&rig, "lane_size = \"256KiB\"", more);
    for start in 0..starts {
        let mut application = Command::new(std::env::current_exe().unwrap());
        application.args(["--exact", "push_limits::application", "--ignored", "--nocapture"]);
        let ended = application.env(APPLICATION, socket(&rig)).stdout(Stdio::null()).output().unwrap();
        assert!(ended.status.success(), "start {start}: {}", String::from_utf8_lossy(&ended.stderr));
        eventually("lanes are closed", || count(&rig, "lanes") == 0);
    }
    let all = (starts * THREADS) as u64;
    eventually("all samples", || count(&rig, "recorded") == all);
    assert_eq!(count(&rig, "refused"), 0);
    process.end("TERM");
    assert_eq!(verified_lost(&rig), 0);
}

// Proves that the recorder refuses names that the path of a field cannot have and states the rule,
// that it logs the refusal, that the client keeps that text, and that other sources go on.
#[test]
fn names_without_a_path_are_refused() {
    let rig = Rig::new();
    let process = record(&rig, "", "");
    let client = client(&socket(&rig));
    let push = |name: &str| {
        let options = SourceOptions { name, on_full: OnFullLane::Block, ..SourceOptions::default() };
        client.source(options).unwrap().push(b"x").is_ok()
    };
    for name in ["../x", "orders[1]", "a,b", "a\"b", " cpu", "7", "a\u{202e}b"] {
        assert!(!push(name), "{name:?}");
        let error = client.last_error();
        assert!(error.contains("the name of source \"../x\": expected parts separated by dots"), "{error}");
    }
    assert!(push("my orders") && push("orders.of.mine"));
    let called = process.end("TERM");
    assert!(called.err.contains("a request of an application is refused"), "{}", called.err);
}

/// Returns a text of random characters, most of which have a meaning somewhere.
fn any_name(random: &mut impl FnMut() -> u64) -> String {
    const CHARACTERS: &[&str] = &[
        "a", "b", "1", ".", "..", "/", "[", "]", "\"", "\\", "=", ",", "!", "~", " ", "*", "(", ")", "{",
        "}", "<", ">", ";", "'", "`", ":", "@", "-", "%", "#", "$", "\u{202e}", "\u{9b}", "\n", "\u{e4}",
        "|", "+", "cpu",
    ];
    let length = 1 + random() % 6;
    (0..length).map(|_| CHARACTERS[(random() % CHARACTERS.len() as u64) as usize]).collect()
}

/// Returns the schema with a field whose name has six bytes, and this name: the given name, cut or
/// padded.
fn schema_with_field(name: &str) -> (Vec<u8>, String) {
    const REPLACED: &[u8; 6] = b"load15";
    let end = (0..=REPLACED.len()).rev().find(|end| name.is_char_boundary(*end)).unwrap();
    let mut name = name[..end.min(name.len())].to_owned();
    while name.len() < REPLACED.len() {
        name.push('x');
    }
    let mut schema = SCHEMA.to_vec();
    let starts = (0..schema.len() - 6).filter(|at| &schema[*at..*at + 6] == REPLACED && schema[*at + 6] == 0);
    let starts: Vec<usize> = starts.collect();
    assert_eq!(starts.len(), 1);
    schema[starts[0]..starts[0] + 6].copy_from_slice(name.as_bytes());
    (schema, name)
}

// Proves that no name of a source, field, label or host makes a verb fail for a recording. A source
// with an ordinary name keeps its values, and the other source has a path that the verbs accept.
// `info` and `verify` report names that are left out or quoted. JSON stays valid and contains no
// control characters.
#[test]
fn no_name_ends_a_verb() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..effort::of(6, 1000) {
        let rig = Rig::new();
        let storage = DataDirectory::open(&rig.path("data")).unwrap();
        let plan = ImportLimits { segment_bytes: 1 << 20, frame_max: 1 << 16 };
        let mut recording = RunWriter::begin(&storage, plan).unwrap();
        recording.set_host(HostName {
            name: any_name(&mut random),
            machine_id: None,
            boot_id: None,
            labels: vec![],
        });
        let odd = any_name(&mut random);
        // A name that is not an identifier makes the schema malformed. Digits alone cannot be a
        // part of a path.
        let field = match random() % 3 {
            0 => "load15".to_owned(),
            1 => "123456".to_owned(),
            _ => any_name(&mut random),
        };
        let (odd_schema, odd_field) = schema_with_field(&field);
        let is_malformed = !odd_field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        for (name, schema) in [(odd.as_str(), odd_schema.as_slice()), ("orders", SCHEMA)] {
            let source = ImportSource {
                name: name.to_owned(),
                labels: vec![(any_name(&mut random), any_name(&mut random))],
                root: ROOT.to_owned(),
                schema: schema.to_vec(),
            };
            let source = recording.add_source(source).unwrap();
            for sample in 0..300_u32 {
                let mut builder = flatbuffers::FlatBufferBuilder::new();
                let table = builder.start_table();
                let value = if sample == 280 { 90.0 } else { f64::from(sample % 5) };
                builder.push_slot_always(4, value);
                let table = builder.end_table(table);
                builder.finish(table, None);
                let bytes = builder.finished_data();
                let wall_ns = 1_700_000_000_000_000_000 + i64::from(sample) * 100_000_000;
                recording.append(source, wall_ns, bytes.len(), |place| place.copy_from_slice(bytes)).unwrap();
            }
        }
        recording.finish().unwrap();
        drop(storage);
        let fields = rig.call(&["fields", "data", "--json"]);
        let listed = fields.json();
        let paths: Vec<String> = listed
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|field| field["field"].as_str())
            .filter(|path| path.rsplit('.').next() == Some("load1"))
            .map(str::to_owned)
            .collect();
        assert_eq!(paths.len(), if is_malformed { 1 } else { 2 }, "{odd:?} {odd_field:?}: {fields:?}");
        let mut reported = Vec::new();
        for verb in ["info", "verify"] {
            let called = rig.call(&[verb, "data", "--json"]);
            let names = called.json()["names"].clone();
            let names = names.as_array().cloned().unwrap_or_default();
            let of = |name: &Value| (name["source"].clone(), name["field"].clone());
            reported.push(names.iter().map(of).collect::<Vec<_>>());
        }
        let source = (!is_plain_source_name(&odd)).then(|| (odd.clone().into(), Value::Null));
        let malformed = is_malformed.then(|| (odd.clone().into(), Value::Null));
        let is_left_out = !is_malformed && !is_plain_field_name(&odd_field);
        let field = is_left_out.then(|| (odd.clone().into(), odd_field.clone().into()));
        let expected: Vec<(Value, Value)> = source.into_iter().chain(malformed).chain(field).collect();
        assert_eq!(reported, [expected.clone(), expected], "{odd:?} {odd_field:?}");
        for args in [&["info", "data", "--json"][..], &["dump", "data", "--format", "jsonl"]] {
            let text = rig.call(args).text();
            let is_visible = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
            assert!(text.chars().all(is_visible), "{odd:?} {odd_field:?}: {text:?}");
            for line in text.lines() {
                assert!(serde_json::from_str::<Value>(line).is_ok(), "{odd_field:?}: {line}");
            }
        }
        let mut calls: Vec<Vec<&str>> = vec![
            vec!["info", "data"],
            vec!["verify", "data"],
            vec!["spikes", "data"],
            vec!["explain", "data"],
            vec!["dump", "data"],
            vec!["dump", "data", "--limit", "1"],
            vec!["export", "data", "--to", "csv", "--source", "orders", "-o", "csv"],
            vec!["export", "data", "--to", "jsonl", "--source", "orders", "-o", "jsonl"],
            vec!["check-trigger", "orders.load1 > 1000", "data"],
        ];
        // The option takes a list, whose names are separated by commas.
        if !odd.contains(',') {
            calls.push(vec!["dump", "data", "--source", &odd]);
        }
        if Path::new(env!("CARGO_BIN_EXE_flatcap")).with_file_name("flatcap-export").exists() {
            for format in ["openmetrics", "parquet", "perfetto", "mcap"] {
                calls.push(vec!["export", "data", "--to", format, "-o", format]);
            }
        }
        for path in &paths {
            calls.push(vec!["dump", "data", "--fields", path]);
        }
        for args in calls {
            let called = rig.call(&args);
            // `explain` without a time needs a spike.
            let has_none = called.status == Some(1) && called.text().starts_with("no spikes");
            assert!(matches!(called.status, Some(0 | 3)) || has_none, "{odd:?} {args:?}: {called:?}");
        }
    }
}
