//! Limits on the resources that applications use: CPU time, sources of a run, snapshots and names.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flatcap::cli::{self, ExitStatus};
use flatcap_format::host::HostName;
use flatcap_format::schema::{is_plain_field_name, is_plain_source_name};
use flatcap_format::testing::effort;
use flatcap_import::{ImportLimits, ImportSource, RunWriter};
use flatcap_os::storage::DataDirectory;
use flatcap_push::{ClientOptions, OnFullLane, PushClient, SourceOptions};
use flatcap_sampling::sources::is_reserved;
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

/// Starts an application with many threads again and again. All are accepted, and each sample is
/// recorded.
fn start_again_and_again(more: &str) {
    let starts = effort::by_hand(effort::of(12, 1000), 10_000);
    let rig = Rig::new();
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

// Proves that an application with many threads can be started more often than the descriptions of
// its processes would fit into a segment of the ring, and that each of its samples is recorded.
#[test]
fn an_application_is_started_again_and_again() {
    start_again_and_again("[blackbox]\nwindow = \"5s\"\nmemory_max = \"64MiB\"");
}

// Proves the same without a ring.
#[test]
fn an_application_is_started_again_and_again_without_a_ring() {
    start_again_and_again("");
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

/// Returns a generator of numbers (xorshift64).
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Returns the payload of a sample with one value.
fn load(value: f64) -> Vec<u8> {
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let table = builder.start_table();
    builder.push_slot_always(4, value);
    let table = builder.end_table(table);
    builder.finish(table, None);
    builder.finished_data().to_vec()
}

/// Calls the program in this process. Returns the exit status and the output.
fn call(args: &[&str]) -> (ExitStatus, String) {
    let mut out = Vec::new();
    let status = cli::run(["flatcap"].iter().chain(args).map(OsString::from), &mut out);
    (status, String::from_utf8(out).unwrap())
}

fn json(args: &[&str]) -> Value {
    let (status, text) = call(args);
    assert!(matches!(status, ExitStatus::Done | ExitStatus::DataLoss), "{args:?}: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

/// Runs the verbs that read a recording, and the exports, which must not fail. The sources `names`
/// are also named. JSON must be valid, without control characters. Returns the paths of `load1`.
fn run_every_verb(rig: &Rig, names: &[&str]) -> Vec<String> {
    let (data, work) = (rig.data(), rig.path("out"));
    let data = data.to_str().unwrap();
    std::fs::create_dir(&work).unwrap();
    for args in [&["info", data, "--json"][..], &["dump", data, "--format", "jsonl"]] {
        let (_, text) = call(args);
        let is_visible = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
        assert!(text.chars().all(is_visible), "{names:?}: {text:?}");
        for line in text.lines() {
            assert!(serde_json::from_str::<Value>(line).is_ok(), "{names:?}: {line}");
        }
    }
    let fields = json(&["fields", data, "--json"]);
    let fields = fields.as_array().unwrap().iter().filter_map(|field| field["field"].as_str());
    let is_load = |path: &&str| path.rsplit('.').next() == Some("load1");
    let paths: Vec<String> = fields.filter(is_load).map(str::to_owned).collect();
    let (csv, jsonl) = (work.join("csv"), work.join("jsonl"));
    let mut calls: Vec<Vec<&str>> = vec![
        vec!["info", data],
        vec!["verify", data],
        vec!["fields", data],
        vec!["marks", data],
        vec!["spikes", data],
        vec!["explain", data],
        vec!["explain", data, "--json"],
        vec!["dump", data],
        vec!["dump", data, "--limit", "1"],
        vec!["export", data, "--to", "csv", "--source", "orders", "-o", csv.to_str().unwrap()],
        vec!["export", data, "--to", "jsonl", "--source", "orders", "-o", jsonl.to_str().unwrap()],
        vec!["check-trigger", "orders.load1 > 1000", data],
    ];
    // The option takes a list, whose names are separated by commas.
    let single = names.iter().filter(|name| !name.contains(','));
    let options: Vec<String> = single.map(|name| format!("--source={name}")).collect();
    calls.extend(options.iter().map(|source| vec!["dump", data, source.as_str()]));
    calls.extend(paths.iter().map(|path| vec!["dump", data, "--fields", path.as_str(), "--limit", "3"]));
    for args in calls {
        let (status, text) = call(&args);
        assert!(matches!(status, ExitStatus::Done | ExitStatus::DataLoss), "{names:?} {args:?}: {text}");
    }
    if Path::new(env!("CARGO_BIN_EXE_flatcap")).with_file_name("flatcap-convert").exists() {
        for format in ["openmetrics", "parquet", "perfetto", "mcap"] {
            let output = work.join(format);
            let called = rig.call(&["export", data, "--to", format, "-o", output.to_str().unwrap()]);
            assert!(matches!(called.status, Some(0 | 3)), "{names:?} {format}: {called:?}");
        }
    }
    paths
}

/// Returns the names that a verb reports as left out or quoted, in a form that can be sorted.
fn reported_names(verb: &str, rig: &Rig) -> Vec<String> {
    let names = json(&[verb, rig.data().to_str().unwrap(), "--json"])["names"].clone();
    let names = names.as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> = names.iter().map(|name| reported(&name["source"], &name["field"])).collect();
    names.sort();
    names
}

fn reported(source: &Value, field: &Value) -> String {
    format!("{source} {field}")
}

// Proves that no name of a source, field, label or host makes a verb fail for a recording. A source
// with an ordinary name keeps its values, and other sources have paths that the verbs accept.
// `info` and `verify` report names that are left out or quoted. JSON stays valid and contains no
// control characters. Method: recordings of eight sources with random names.
#[test]
fn no_name_ends_a_verb() {
    const SOURCES: usize = 8;
    const SAMPLES: u32 = 160;
    for seed in 0..effort::of(1, 125) {
        let mut random = random(seed + 1);
        let rig = Rig::new();
        let storage = DataDirectory::open(&rig.data()).unwrap();
        let plan = ImportLimits { segment_bytes: 1 << 20, frame_max: 1 << 16 };
        let mut recording = RunWriter::begin(&storage, plan).unwrap();
        let name = any_name(&mut random);
        recording.set_host(HostName { name, machine_id: None, boot_id: None, labels: vec![] });
        let mut names = vec!["orders".to_owned()];
        let mut sources = Vec::new();
        let mut expected = Vec::new();
        let mut readable = 1;
        for at in 0..=SOURCES {
            let (mut schema, mut name) = (SCHEMA.to_vec(), "orders".to_owned());
            if at > 0 {
                while names.contains(&name) {
                    name = any_name(&mut random);
                }
                // A name that is not an identifier makes the schema malformed. Digits alone cannot
                // be a part of a path.
                let field = match random() % 3 {
                    0 => "load15".to_owned(),
                    1 => "123456".to_owned(),
                    _ => any_name(&mut random),
                };
                let (odd_schema, field) = schema_with_field(&field);
                let is_malformed = !field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                schema = odd_schema;
                readable += usize::from(!is_malformed);
                let source = Value::from(name.as_str());
                let whole = reported(&source, &Value::Null);
                expected.extend((!is_plain_source_name(&name)).then(|| whole.clone()));
                expected.extend(is_malformed.then_some(whole));
                let is_left_out = !is_malformed && !is_plain_field_name(&field);
                expected.extend(is_left_out.then(|| reported(&source, &field.into())));
                names.push(name.clone());
            }
            let labels = vec![(any_name(&mut random), any_name(&mut random))];
            let source = ImportSource { name, labels, root: ROOT.to_owned(), schema };
            sources.push(recording.add_source(source).unwrap());
        }
        for sample in 0..SAMPLES {
            let bytes = load(if sample == SAMPLES - 10 { 90.0 } else { f64::from(sample % 5) });
            let wall_ns = 1_700_000_000_000_000_000 + i64::from(sample) * 100_000_000;
            for source in &sources {
                recording
                    .append(*source, wall_ns, bytes.len(), |place| place.copy_from_slice(&bytes))
                    .unwrap();
            }
        }
        recording.finish().unwrap();
        drop(storage);
        expected.sort();
        for verb in ["info", "verify"] {
            assert_eq!(reported_names(verb, &rig), expected, "seed {seed}: {names:?}");
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let paths = run_every_verb(&rig, &names);
        assert_eq!(paths.len(), readable, "seed {seed}: {names:?}: {paths:?}");
    }
}

// Proves that a name of a source, label or field is refused at the registration, with the rule, or
// is usable in every verb and export, without quotes. Method: one recorder, and random names.
#[test]
fn random_names_are_refused_or_usable() {
    const SOURCES_OF_CLIENT: usize = 50;
    let mut random = random(4711);
    let rig = Rig::new();
    let process = record(&rig, "lane_size = \"256KiB\"", "");
    let mut names = BTreeSet::from(["orders".to_owned()]);
    while names.len() < effort::of(60, 1000) {
        names.insert(any_name(&mut random));
    }
    let names: Vec<String> = names.into_iter().collect();
    let mut accepted = Vec::new();
    for names in names.chunks(SOURCES_OF_CLIENT) {
        let client = client(&socket(&rig));
        for name in names {
            let label = any_name(&mut random);
            let label = if name == "orders" { "team".to_owned() } else { label };
            let is_odd = random().is_multiple_of(8) && name != "orders";
            let field = if is_odd { any_name(&mut random) } else { "load15".to_owned() };
            let (schema, field) = schema_with_field(&field);
            let labels = [(label.as_str(), label.as_str())];
            let options = SourceOptions {
                name,
                root: ROOT,
                schema: &schema,
                labels: &labels,
                period: Duration::from_millis(100),
                on_full: OnFullLane::Block,
            };
            let is_name = |name: &str| !name.chars().any(char::is_control);
            let Ok(source) = client.source(options) else {
                assert!(!is_name(name) || !is_name(&label), "{name:?} {label:?}");
                continue;
            };
            let is_field = field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && is_plain_field_name(&field);
            let is_pushed = source.push(&load(1.0)).is_ok();
            let error = client.last_error();
            if is_reserved(name) {
                assert!(!is_pushed && error.contains(&format!("source {name:?} is reserved")), "{error}");
            } else if !is_plain_source_name(name) {
                let rule = format!("the name of source {name:?}: expected parts separated by dots");
                assert!(!is_pushed && error.contains(&rule), "{name:?}: {error}");
            } else if !is_field {
                assert!(!is_pushed && !error.is_empty(), "{name:?} {field:?}: {error}");
            } else {
                assert!(is_pushed, "{name:?} {label:?} {field:?}: {error}");
                accepted.push(name.as_str());
            }
        }
        drop(client);
        eventually("lanes are closed", || count(&rig, "lanes") == 0);
    }
    process.end("TERM");
    assert_eq!(verified_lost(&rig), 0);
    assert!(accepted.contains(&"orders") && accepted.len() * 2 < names.len(), "{accepted:?}");
    for verb in ["info", "verify"] {
        assert_eq!(reported_names(verb, &rig), Vec::<String>::new());
    }
    let paths: BTreeSet<String> = run_every_verb(&rig, &accepted).into_iter().collect();
    let expected = accepted.iter().map(|name| format!("{name}.load1"));
    assert!(paths.is_superset(&expected.collect::<BTreeSet<String>>()), "{paths:?}");
}

// Proves that a client learns the CPU budget and the limits of its user with its first lane, and
// that `status` prints them.
#[test]
fn the_budget_is_stated() {
    let rig = Rig::new();
    let process = record(&rig, "cpu_budget = \"30%\"\nuser_frames_per_second = 1000", "");
    let client = client(&socket(&rig));
    let orders = orders(&client, OnFullLane::Block);
    assert_eq!(client.budget(), None);
    orders.push(&payload(1)).unwrap();
    let budget = client.budget().unwrap();
    let limits = (budget.user_frames_per_second, budget.user_bytes_per_second);
    assert_eq!((budget.cpu_ns_per_second, limits), (300_000_000, (Some(1000), None)));
    let push = rig.status().unwrap()["push"].clone();
    assert_eq!(push["cpu_ns_max"], 300_000_000);
    assert_eq!(
        (&push["user_frames_per_second_max"], &push["user_bytes_per_second_max"]),
        (&1000.into(), &Value::Null)
    );
    let text = rig.call(&["status", "--socket", rig.socket().to_str().unwrap()]).text();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("at most 30%") && words.contains("each user at most 1000 frames/s"), "{text}");
    drop((orders, client));
    process.end("TERM");
}

// Proves that `status`, while the application runs, and `info`, afterwards, show who has pushed a
// source: the application's name, its user and its program.
#[test]
fn the_sender_is_shown() {
    let rig = Rig::new();
    let process = record(&rig, "", "");
    let client = client(&socket(&rig));
    let orders = orders(&client, OnFullLane::Block);
    orders.push(&payload(1)).unwrap();
    eventually("the frame", || count(&rig, "recorded") == 1);
    let user = rustix::process::geteuid().as_raw().to_string();
    let program = std::fs::read_link("/proc/self/exe").unwrap().to_str().unwrap().to_owned();
    let sender = &rig.status().unwrap()["push"]["senders"][0];
    let named = [&sender["client"], &sender["user"], &sender["program"]];
    assert_eq!(named, ["test", user.as_str(), program.as_str()]);
    assert_eq!((&sender["sources"], &sender["recorded"]), (&1.into(), &1.into()));
    let says = |args: &[&str], name: &str| {
        let text = rig.call(args).text();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = format!("pushed by test (user {user}, {program}): {name}");
        assert!(words.contains(&expected), "{expected}: {text}");
    };
    says(&["status", "--socket", rig.socket().to_str().unwrap()], "1 sources, 1 frames");
    drop((orders, client));
    process.end("TERM");
    says(&["info", "flatcap-data"], "orders");
    let info: Value = serde_json::from_str(&rig.call(&["info", "--json", "flatcap-data"]).text()).unwrap();
    let source = info["sources"].as_array().unwrap().iter().find(|source| source["name"] == "orders");
    let labels = &source.unwrap()["labels"];
    let named = [&labels["client"], &labels["uid"], &labels["executable"]];
    assert_eq!(named, ["test", user.as_str(), program.as_str()]);
}
