//! Frames that applications push: by the client library in Rust, C and Python, by applications and
//! recorders that are killed, and by clients that do not keep to the protocol.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use flatbuffers::FlatBufferBuilder;
use flatcap_lane::{PushErrorCode, PushReply, PushRequest, SourceRegistration, VERSION};
use flatcap_push::{ClientOptions, OnFullLane, PushClient, PushError, PushSource, SourceOptions};
use flatcap_sampling::sources::synthetic::point;
use flatcap_schemas::synthetic::{Point, PointArgs};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, recvmsg,
    sendmsg, socket_with,
};
use serde_json::Value;

use crate::control::start;
use crate::rig::{CallResult, Process, Rig, WATCHDOG, eventually, number, signal};

/// A schema that an application might have.
const SCHEMA: &[u8] = include_bytes!("../../generated/synthetic.bfbs");
const ROOT: &str = "flatcap.synthetic.Point";
/// Variable that makes a test of this file the application of another test: its push socket.
const APPLICATION: &str = "FLATCAP_TEST_PUSH_SOCKET";
pub const SEED: u64 = 7;

/// Starts a recorder that takes frames, with these settings of `[push]` and other tables.
pub fn record(rig: &Rig, push: &str, more: &str) -> Process {
    let config = rig.write("flatcap.toml", format!("[push]\nenabled = true\n{push}\n{more}"));
    let args = ["--config", config.to_str().unwrap(), "--source", "synthetic@10ms"];
    let process = Process(Some(start(rig, &args)));
    eventually("the push socket", || is_open(rig));
    process
}

/// Returns whether the recorder has recorded frames of this client.
pub fn has_recorded(rig: &Rig, client: &str) -> bool {
    let status = status(rig);
    let senders = status["senders"].as_array().into_iter().flatten();
    senders.filter(|sender| sender["client"] == client).any(|sender| number(&sender["recorded"]) > 0)
}

/// Returns whether the recorder accepts applications.
pub fn is_open(rig: &Rig) -> bool {
    status(rig)["open"] == true
}

pub fn socket(rig: &Rig) -> PathBuf {
    rig.socket().with_file_name("push.sock")
}

fn status(rig: &Rig) -> Value {
    rig.status().map_or(Value::Null, |status| status["push"].clone())
}

pub fn count(rig: &Rig, key: &str) -> u64 {
    status(rig)[key].as_u64().unwrap_or_default()
}

pub fn client(socket: &Path) -> PushClient {
    client_with(socket, ClientOptions::default().ring_bytes)
}

/// Returns a client whose lanes have this number of bytes.
pub fn client_with(socket: &Path, ring_bytes: u64) -> PushClient {
    client_named("test", socket, ring_bytes)
}

/// Returns a client with this name, whose lanes have this number of bytes.
pub fn client_named(name: &str, socket: &Path, ring_bytes: u64) -> PushClient {
    // Limits that a busy machine does not reach.
    let options = ClientOptions {
        socket: Some(socket.to_owned()),
        ring_bytes,
        block_limit: WATCHDOG,
        reply_limit: WATCHDOG,
        ..ClientOptions::default()
    };
    let client = PushClient::open(name, options).unwrap();
    eventually("a connection", || client.is_connected());
    client
}

pub fn orders(client: &PushClient, on_full: OnFullLane) -> PushSource {
    let labels = &[("team", "payments")];
    let options = SourceOptions {
        name: "orders",
        root: ROOT,
        schema: SCHEMA,
        labels,
        on_full,
        ..SourceOptions::default()
    };
    client.source(options).unwrap()
}

/// Returns the payload of the sample with this number.
pub fn payload(number: u64) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let values = point(SEED, number);
    let fields = PointArgs { counter: values.counter, wave: values.wave, noise: values.noise };
    let root = Point::create(&mut builder, &fields);
    builder.finish(root, None);
    builder.finished_data().to_vec()
}

/// Returns the rows of a source.
pub fn rows(rig: &Rig, source: &str) -> Vec<Value> {
    let called = rig.call(&["dump", "--format", "jsonl", "--source", source, "flatcap-data"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    called.lines()
}

/// Returns the lost samples of pushed sources by the gaps of the recording, with their causes.
pub fn gaps(rig: &Rig) -> Vec<(u64, String)> {
    let called = rig.call(&["dump", "--format", "jsonl", "flatcap-data"]);
    let text = called.text();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let gap = |row: Value| {
        let gap = row.get("gap")?;
        let is_pushed = gap["source"] != "synthetic";
        is_pushed.then(|| (number(&gap["count"]), gap["causes"].as_str().unwrap().to_owned()))
    };
    rows.filter_map(gap).collect()
}

/// Ends the recorder and checks that its files are intact and account for every sample. Returns how
/// many are lost.
fn end(rig: &Rig, process: Process) -> (CallResult, u64) {
    let called = process.end("TERM");
    (called, verified_lost(rig))
}

pub fn verified_lost(rig: &Rig) -> u64 {
    let verify = rig.verify();
    assert_eq!((&verify["intact"], number(&verify["unexplained"])), (&Value::Bool(true), 0), "{verify}");
    number(&verify["lost"])
}

// Proves that a rule may name a source before an application pushes it, if the configuration says
// so; that it is evaluated for each thread's source by itself, from the first sample on, also with
// sources of the host and after a reload; and that other names are refused.
#[test]
fn rules_are_about_pushed_sources() {
    let rules = "[trigger.many]\nwhen = \"orders.counter > 110\"\n\
                 [trigger.step]\nwhen = \"orders.counter:delta > 3 and synthetic.counter >= 0\"\n";
    let rig = Rig::new();
    let undeclared = rig.write("undeclared.toml", rules);
    let refused = rig.call(&["check-config", undeclared.to_str().unwrap()]);
    assert_eq!(refused.status, Some(2));
    assert!(refused.err.contains("no field \"orders.counter\""), "{}", refused.err);
    let process = record(&rig, "rule_sources = [\"orders\"]", rules);
    let client = client(&socket(&rig));
    let source = orders(&client, OnFullLane::Block);
    let fired = |rule: &str| {
        let metrics = crate::control::http_request(&rig.socket(), "GET /metrics", "", "");
        let line = format!("flatcap_trigger_fired_total{{rule=\"{rule}\"}} ");
        let count = metrics.lines().find_map(|text| text.strip_prefix(&line)?.parse::<u64>().ok());
        count.unwrap_or_default()
    };
    source.push(&payload(0)).unwrap();
    // Each thread's source makes steps of 1; together they make steps of 100. Both live until the
    // end: the source of a thread that ends is given to the next one.
    let both = std::sync::Barrier::new(2);
    let push = |from: u64| {
        both.wait();
        (from..from + 20).for_each(|k| source.push(&payload(k)).unwrap());
        both.wait();
    };
    std::thread::scope(|scope| {
        [0, 100].map(|from| scope.spawn(move || push(from))).map(|thread| thread.join().unwrap())
    });
    eventually("frames", || count(&rig, "recorded") == 41);
    eventually("a firing", || fired("many") == 1);
    assert_eq!(fired("step"), 0);
    let path = rig.path("flatcap.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("> 3", "> 2")).unwrap();
    let reload = rig.call(&["reload"]);
    assert_eq!(reload.status, Some(0), "{}", reload.err);
    for k in [1, 2, 8] {
        source.push(&payload(k)).unwrap();
    }
    eventually("a step", || fired("step") == 1);
    drop((source, client));
    let (called, lost) = end(&rig, process);
    assert_eq!((called.status, lost), (Some(0), 0), "{called:?}");
    assert!(!called.err.contains("not evaluated"), "{}", called.err);
    let marks = rig.call(&["marks", "--json"]).text();
    assert!(marks.contains("many: orders.counter > 110 ("), "{marks}");
}

// Proves that frames of an application's schema, of two threads and of an opaque source are in the
// recording as they were pushed, with the labels that the kernel vouches for, across segments; that
// the source is described in the segment that was open, and in the next one's header; and that all
// of it is in the status and in the metrics.
#[test]
fn an_applications_frames_are_recorded() {
    const EACH: u64 = 500;
    let rig = Rig::new();
    let process = record(&rig, "", "");
    let client = client(&socket(&rig));
    let typed = orders(&client, OnFullLane::Block);
    let opaque = SourceOptions { name: "raw", on_full: OnFullLane::Block, ..SourceOptions::default() };
    let opaque = client.source(opaque).unwrap();
    let push = |from: u64| {
        for k in from..from + EACH {
            typed.push(&payload(k)).unwrap();
        }
    };
    push(0);
    opaque.push(b"any bytes").unwrap();
    std::thread::scope(|scope| scope.spawn(|| push(EACH)).join().unwrap());
    eventually("frames", || count(&rig, "recorded") == 2 * EACH + 1);
    assert_eq!(rig.call(&["rotate"]).status, Some(0));
    push(2 * EACH);
    eventually("more frames", || count(&rig, "recorded") == 3 * EACH + 1);
    let state = status(&rig);
    let counts =
        ["clients", "lanes", "sources", "begun", "lost", "lanes_refused"].map(|key| number(&state[key]));
    assert_eq!(counts, [1, 2, 3, 3 * EACH + 1, 0, 0], "{state}");
    let shown = rig.call(&["status"]).text();
    assert!(shown.contains("push     1 clients, 2 lanes in "), "{shown}");
    let metrics = crate::control::http_request(&rig.socket(), "GET /metrics", "", "");
    assert!(metrics.contains(&format!("flatcap_push_recorded_total {}", 3 * EACH + 1)), "{metrics}");
    drop((typed, opaque, client));
    eventually("the client has gone", || count(&rig, "clients") == 0 && count(&rig, "lanes") == 0);
    let (called, lost) = end(&rig, process);
    assert_eq!((called.status, lost), (Some(0), 0), "{called:?}");

    let rows_of = rows(&rig, "orders");
    let mut found: Vec<u64> = Vec::new();
    for row in &rows_of {
        let k = number(&row["data"]["counter"]);
        assert_eq!(number(&row["data"]["noise"]), point(SEED, k).noise, "{row}");
        found.push(k);
    }
    found.sort_unstable();
    assert!(found.into_iter().eq(0..3 * EACH));
    let raw = rows(&rig, "raw");
    assert_eq!((raw.len(), &raw[0]["data"]["payload"]), (1, &Value::from("any bytes")));
    let info = rig.info();
    let sources = info.to_string();
    let program = std::env::current_exe().unwrap();
    for label in ["payments", &std::process::id().to_string(), program.to_str().unwrap()] {
        assert!(sources.contains(label), "{label}: {sources}");
    }
    let segments = rig.segments("bin");
    let described = |path: &Path| {
        let reader = flatcap_format::segment::SegmentReader::open(path).unwrap();
        let footer = reader.footer().unwrap();
        let next: Vec<u64> = reader.header().sources.iter().skip(1).map(|source| source.next_seq).collect();
        (next, footer.header.sources.len())
    };
    assert_eq!(described(&segments[0]), (vec![], 4), "described by frames");
    let (next, sources) = described(&segments[1]);
    assert_eq!((next.iter().sum::<u64>(), sources), (2 * EACH + 1, 4), "described by the header");
}

// Proves that an application that is faster than the recorder loses exactly the samples that the
// library reports as lost, that each loss is a gap with its cause, and that recorded and lost add
// up to the samples begun.
#[test]
fn losses_are_counted_once() {
    const SAMPLES: u64 = 200_000;
    let rig = Rig::new();
    let process = record(&rig, "lane_size = \"256KiB\"\ndrain_interval = \"100ms\"", "");
    let client = client(&socket(&rig));
    let orders = orders(&client, OnFullLane::DropNewest);
    let bytes = payload(1);
    let results = (0..SAMPLES).map(|_| orders.push(&bytes));
    let taken = results.filter(|pushed| {
        assert!(matches!(pushed, Ok(()) | Err(PushError::Full)), "{pushed:?}");
        pushed.is_ok()
    });
    let taken = taken.count() as u64;
    drop((orders, client));
    eventually("the lane is closed", || count(&rig, "lanes") == 0 && count(&rig, "begun") == SAMPLES);
    let (_, lost) = end(&rig, process);
    assert_eq!((rows(&rig, "orders").len() as u64, lost), (taken, SAMPLES - taken));
    let gaps = gaps(&rig);
    assert_eq!(gaps.iter().map(|(count, _)| count).sum::<u64>(), lost);
    assert!(gaps.iter().all(|(_, causes)| causes == "queue_full"), "{gaps:?}");
}

// Proves that the lanes of a user that pushes more than it may are left for a time, that what then
// finds no space is lost with its cause, and that recorded and lost are what was begun.
#[test]
fn a_rate_is_kept() {
    let rig = Rig::new();
    let process = record(&rig, "lane_size = \"256KiB\"\nuser_frames_per_second = 1000", "");
    let client = client(&socket(&rig));
    let orders = orders(&client, OnFullLane::DropNewest);
    let bytes = payload(1);
    let (mut begun, mut taken) = (0_u64, 0_u64);
    eventually("a lane waits, and samples are lost", || {
        for _ in 0..1000 {
            begun += 1;
            taken += u64::from(orders.push(&bytes).is_ok());
        }
        let metrics = crate::control::http_request(&rig.socket(), "GET /metrics", "", "");
        taken < begun && !metrics.contains("\nflatcap_push_waits_total 0\n")
    });
    drop((orders, client));
    let (_, lost) = end(&rig, process);
    assert_eq!((rows(&rig, "orders").len() as u64, lost), (taken, begun - taken));
    assert!(gaps(&rig).iter().all(|(_, causes)| causes == "queue_full"), "{:?}", gaps(&rig));
}

// Proves that a stop of the recorder loses nothing that was pushed, while threads push all the
// time.
#[test]
fn a_stop_loses_nothing() {
    let rig = Rig::new();
    let process = record(&rig, "", "");
    let client = client(&socket(&rig));
    let stop = AtomicBool::new(false);
    let orders = orders(&client, OnFullLane::DropOldest);
    let (pushed, called) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let bytes = payload(1);
                    let mut pushed = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        pushed += u64::from(orders.push(&bytes).is_ok());
                        std::thread::yield_now();
                    }
                    pushed
                })
            })
            .collect();
        eventually("frames", || count(&rig, "recorded") > 1000);
        let called = process.end("TERM");
        stop.store(true, Ordering::Relaxed);
        (threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), called)
    });
    let found = rows(&rig, "orders").len() as u64 + verified_lost(&rig);
    // But for one sample of a thread that was kept from running while it wrote it.
    assert!(pushed - found <= 2, "{pushed} {found} {called:?}");
    // Samples for which a lane of a megabyte had no space were overwritten, as the policy requires.
    assert!(gaps(&rig).iter().all(|(_, causes)| causes == "queue_full"), "{:?}", gaps(&rig));
}

// The application of the tests that kill one.
#[test]
#[ignore = "started by other tests"]
fn application() {
    let socket = std::env::var_os(APPLICATION).expect("the socket, from the test that starts this one");
    let client = client(Path::new(&socket));
    let orders = orders(&client, OnFullLane::Block);
    for k in 0.. {
        // Without a recorder it goes on.
        if orders.push(&payload(k)).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

fn start_application(rig: &Rig) -> Process {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pushing::application", "--ignored", "--nocapture"])
        .env(APPLICATION, socket(rig))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Process(Some(child))
}

/// Checks that the numbers of each run of samples are the numbers in the payloads. Returns how many
/// samples there are.
fn check_numbers(rows: &[Value]) -> u64 {
    for row in rows {
        let k = number(&row["data"]["counter"]);
        assert_eq!((number(&row["seq"]), number(&row["data"]["noise"])), (k, point(SEED, k).noise), "{row}");
    }
    rows.len() as u64
}

// Proves that an application that is killed while it pushes loses at most the sample that it was
// writing, which is in a gap, and that its lane and its memory are free again.
#[test]
fn a_killed_application_loses_one_sample() {
    let rig = Rig::new();
    let process = record(&rig, "", "");
    for kill in 1..=3 {
        let before = count(&rig, "recorded");
        let mut application = start_application(&rig);
        eventually("frames", || count(&rig, "recorded") > before + 1000 * kill);
        application.kill();
        eventually("its lane is closed", || count(&rig, "lanes") == 0 && count(&rig, "clients") == 0);
    }
    // The memory for three sources, without a lane.
    assert!(count(&rig, "memory_bytes") < 1 << 20);
    let (_, lost) = end(&rig, process);
    let recorded = check_numbers(&rows(&rig, "orders"));
    assert!(recorded > 6000 && lost <= 3, "{recorded} {lost}");
    assert!(gaps(&rig).iter().all(|(count, causes)| *count == 1 && causes == "crash"), "{:?}", gaps(&rig));
}

// Proves that a recorder that is killed leaves files that account for every sample that it had
// taken, that the next one describes the same source again, and that the application continues.
#[test]
fn a_killed_recorder_accounts_for_what_it_took() {
    let rig = Rig::new();
    let mut process = record(&rig, "", "");
    let _application = start_application(&rig);
    eventually("frames", || count(&rig, "recorded") > 1000);
    process.kill();
    let process = record(&rig, "", "");
    eventually("frames of the next run", || count(&rig, "recorded") > 1000);
    eventually("the recovery", || {
        rig.status().is_some_and(|status| status["recorder"]["recovering"] == false)
    });
    let called = process.end("TERM");
    called.assert_no_panic();
    let verify = rig.verify();
    assert_eq!((&verify["intact"], number(&verify["unexplained"])), (&Value::Bool(true), 0), "{verify}");
    for path in rig.segments("bin") {
        let path = path.to_str().unwrap();
        let called = rig.call(&["dump", "--format", "jsonl", "--source", "orders", path]);
        for row in called.lines() {
            let k = number(&row["data"]["counter"]);
            assert_eq!(number(&row["data"]["noise"]), point(SEED, k).noise, "{row}");
        }
    }
}

// Proves that each frame that a client has committed is in the files once, although the recorder
// was killed and another one started while it pushed: the next one takes over the lanes, also if
// there are files of an earlier run.
#[test]
fn a_killed_recorder_loses_nothing_committed() {
    let rig = Rig::new();
    assert_eq!(record(&rig, "", "").end("TERM").status, Some(0));
    let mut process = record(&rig, "", "");
    let client = client(&socket(&rig));
    let orders = orders(&client, OnFullLane::DropNewest);
    let stop = AtomicBool::new(false);
    let (pushed, process) = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut k = 0;
            while !stop.load(Ordering::Relaxed) {
                k += u64::from(orders.push(&payload(k)).is_ok());
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            k
        });
        eventually("frames", || count(&rig, "recorded") > 500);
        process.kill();
        // More than the killed recorder has seen.
        std::thread::sleep(std::time::Duration::from_millis(200));
        let process = record(&rig, "", "");
        eventually("frames of the next run", || count(&rig, "recorded") > 500);
        stop.store(true, Ordering::Relaxed);
        (thread.join().unwrap(), process)
    });
    drop((orders, client));
    eventually("no lane", || count(&rig, "lanes") == 0);
    let called = process.end("TERM");
    called.assert_no_panic();
    let lost = verified_lost(&rig);
    let mut found: Vec<u64> =
        rows(&rig, "orders").iter().map(|row| number(&row["data"]["counter"])).collect();
    let recorded = found.len() as u64;
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len() as u64, recorded, "none is there twice");
    // That of the host which the recorder was taking when it was killed.
    assert!(pushed == recorded && lost <= 1, "{pushed} {recorded} {lost} {called:?}");
}

/// A service manager that keeps descriptors: what it was sent, by name.
struct ManagerStore {
    socket: OwnedFd,
    path: PathBuf,
    stored: BTreeMap<String, OwnedFd>,
    forgotten: Vec<String>,
}

impl ManagerStore {
    fn new(rig: &Rig) -> Self {
        let path = rig.path("notify");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        Self { socket, path, stored: BTreeMap::new(), forgotten: Vec::new() }
    }

    /// Reads what was sent so far.
    fn read(&mut self) {
        let mut bytes = [0; 512];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let Ok(received) = recvmsg(&self.socket, &mut slices, &mut control, flags) else { return };
            let descriptors = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            });
            let descriptor = descriptors.flatten().next();
            let text = std::str::from_utf8(&bytes[..received.bytes]).unwrap();
            let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).map(str::to_owned);
            match (name, descriptor) {
                (Some(name), Some(descriptor)) => drop(self.stored.insert(name, descriptor)),
                (Some(name), None) => self.forgotten.push(name),
                _ => {}
            }
        }
    }

    /// Starts a recorder as a service, with what is stored.
    fn start(&self, rig: &Rig, args: &[&str], log: &str) -> Process {
        let recorder = rig.command(args);
        let mut script = "LISTEN_PID=$$ exec \"$0\" \"$@\"".to_owned();
        for (number, descriptor) in (3..).zip(self.stored.values()) {
            fcntl_setfd(descriptor, FdFlags::empty()).unwrap();
            write!(script, " {number}<>/proc/self/fd/{}", descriptor.as_raw_fd()).unwrap();
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).arg(recorder.get_program()).args(recorder.get_args());
        shell.current_dir(recorder.get_current_dir().unwrap());
        for (name, value) in recorder.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let names: Vec<&str> = self.stored.keys().map(String::as_str).collect();
        shell.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        shell.env("NOTIFY_SOCKET", &self.path).stdin(Stdio::null());
        let log = File::create(rig.path(log)).unwrap();
        let child = shell.stderr(log).stdout(Stdio::null()).spawn().unwrap();
        for descriptor in self.stored.values() {
            fcntl_setfd(descriptor, FdFlags::CLOEXEC).unwrap();
        }
        Process(Some(child))
    }
}

// Proves that what an application has pushed is in the recording although it was killed together
// with the recorder that had not read it: the service manager keeps the memory of lanes. Lanes that
// have ended, and those that were rescued, are removed from its store.
#[test]
fn lanes_outlive_recorder_and_application() {
    let rig = Rig::new();
    let mut manager = ManagerStore::new(&rig);
    let config = rig.write("flatcap.toml", "[push]\nenabled = true\n");
    let args = ["record", "--quiet", "--config", config.to_str().unwrap(), "--source", "synthetic@10ms"];
    let mut recorder = manager.start(&rig, &args, "first.log");
    eventually("the push socket", || status(&rig)["open"] == true);
    let other = client(&socket(&rig));
    orders(&other, OnFullLane::Block).push(&payload(0)).unwrap();
    drop(other);
    eventually("a removed lane", || {
        manager.read();
        manager.forgotten.len() == 1
    });
    manager.stored.retain(|name, _| !manager.forgotten.contains(name));
    let mut application = start_application(&rig);
    eventually("frames", || count(&rig, "recorded") > 1000);
    manager.read();
    assert_eq!((manager.stored.len(), manager.forgotten.len()), (1, 1));
    signal(recorder.0.as_ref().unwrap(), "STOP");
    let (name, lane) = manager.stored.first_key_value().unwrap();
    let name = name.clone();
    let memory = File::from(lane.try_clone().unwrap());
    let frames = || {
        let mut bytes = vec![0; usize::try_from(memory.metadata().unwrap().len()).unwrap()];
        memory.read_exact_at(&mut bytes, 0).unwrap();
        bytes.split_off(flatcap_lane::CONTROL_BYTES)
    };
    let mut before = Vec::new();
    eventually("a full lane", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = frames();
        std::mem::replace(&mut before, now) == before
    });
    application.kill();
    recorder.kill();
    let recorder = manager.start(&rig, &args, "second.log");
    eventually("a rescued lane", || {
        manager.read();
        manager.forgotten.contains(&name)
    });
    // The log is written by a thread of its own.
    eventually("the rescue in the log", || {
        let log = std::fs::read_to_string(rig.path("second.log")).unwrap();
        log.contains("frames of applications that a killed run had not taken are rescued")
    });
    let (_, lost) = end(&rig, recorder);
    let mut numbers: Vec<u64> =
        rows(&rig, "orders").iter().map(|row| number(&row["data"]["counter"])).collect();
    // That of the first client.
    numbers.retain({
        let mut is_first = true;
        move |counter| *counter > 0 || !std::mem::take(&mut is_first)
    });
    let jumps: Vec<&[u64]> = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).collect();
    assert_eq!((numbers.first(), jumps), (Some(&0), Vec::new()), "each once");
    // That of the host which the recorder was taking when it was stopped.
    assert!(lost <= 1, "{lost}");
}

// Proves that a run takes more sources than the 256 of earlier versions, in the open segment and
// over the next ones, and that a reload adds its own at the same time.
#[test]
fn a_run_takes_hundreds_of_sources() {
    const THREADS: usize = 5;
    const SOURCES: usize = 64;
    let rig = Rig::new();
    let process = record(&rig, "", "");
    let client = client(&socket(&rig));
    let sources: Vec<PushSource> = (0..SOURCES)
        .map(|k| {
            let name = format!("app.n{k}");
            let options =
                SourceOptions { name: &name, on_full: OnFullLane::Block, ..SourceOptions::default() };
            client.source(options).unwrap()
        })
        .collect();
    let barrier = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for source in &sources {
                    source.push(b"once").unwrap();
                }
                // A lane of its own for each thread.
                barrier.wait();
            });
        }
    });
    let all = (THREADS * SOURCES) as u64;
    eventually("frames", || count(&rig, "recorded") == all);
    rig.write("flatcap.toml", "[push]\nenabled = true\n[source.load]\nenabled = true\n");
    let reloaded = rig.call(&["reload"]);
    assert_eq!(reloaded.status, Some(0), "{reloaded:?}");
    let late = SourceOptions { name: "late", on_full: OnFullLane::Block, ..SourceOptions::default() };
    // A client has no place for more.
    assert!(client.source(late).is_err());
    let second = self::client(&socket(&rig));
    second.source(late).unwrap().push(b"late").unwrap();
    eventually("the last frame", || count(&rig, "recorded") == all + 1 && count(&rig, "sources") == all + 1);
    let (_, lost) = end(&rig, process);
    assert_eq!(lost, 0);
    assert_eq!((rows(&rig, "app.n63").len(), rows(&rig, "late").len()), (THREADS, 1));
}

// Proves that a trigger of an application marks the moment and, with a ring, keeps its window with
// the application's frames, and that the recording has the events of an application unthinned.
#[test]
fn a_trigger_keeps_the_window() {
    let rig = Rig::new();
    let process = record(&rig, "", "[blackbox]\nwindow = \"20s\"\ndisk_period = \"1s\"\n");
    let client = client(&socket(&rig));
    let orders = orders(&client, OnFullLane::Block);
    for k in 0..300 {
        orders.push(&payload(k)).unwrap();
    }
    eventually("frames", || count(&rig, "recorded") == 300);
    client.trigger("slow order 4711").unwrap();
    let again = client.trigger("at once").unwrap_err().to_string();
    assert!(again.contains("one trigger a second"), "{again}");
    let snapshots = || rig.call(&["snapshots", "--json"]).json().as_array().unwrap().clone();
    eventually("a snapshot", || snapshots().len() == 1);
    let path = rig.path(snapshots()[0]["path"].as_str().unwrap());
    let kept = rig.call(&["dump", "--format", "jsonl", "--source", "orders", path.to_str().unwrap()]);
    assert_eq!(check_numbers(&kept.lines()), 300, "{kept:?}");
    drop((orders, client));
    eventually("the client has gone", || count(&rig, "lanes") == 0);
    let called = process.end("TERM");
    called.assert_no_panic();
    assert_eq!(check_numbers(&rows(&rig, "orders")), 300);
    let dump = rig.call(&["dump", "--format", "jsonl", "flatcap-data"]).text();
    assert!(dump.contains("\"origin\":\"trigger\",\"text\":\"test: slow order 4711\""), "{dump}");
}

/// A client that speaks on the socket itself.
pub struct RawClient(OwnedFd);

impl RawClient {
    pub fn connect(socket: &Path) -> Self {
        let connection =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&connection, &SocketAddrUnix::new(socket).unwrap()).unwrap();
        Self(connection)
    }

    /// Connects and says hello.
    pub fn welcome(socket: &Path) -> Self {
        let client = Self::connect(socket);
        let hello = PushRequest::Hello { version: VERSION, client: "raw".into() };
        let (reply, _) = client.ask(&hello.encode(), &[]).unwrap();
        assert!(matches!(reply, PushReply::Hello { .. }), "{reply:?}");
        client
    }

    pub fn send(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        // The recorder may have closed the connection.
        let _sent = sendmsg(&self.0, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL);
    }

    /// Returns the next message, or `None` if the connection is closed.
    pub fn receive(&self) -> Option<(PushReply, Option<OwnedFd>)> {
        let mut packet = [0; 8192];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut packet)];
        let received = recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        (received.bytes > 0)
            .then(|| (PushReply::decode(&packet[..received.bytes]).unwrap(), descriptors.pop()))
    }

    pub fn ask(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> Option<(PushReply, Option<OwnedFd>)> {
        self.send(packet, descriptors);
        self.receive()
    }

    /// Sends a request that must be refused, and returns how.
    fn refused(&self, request: &PushRequest, descriptors: &[BorrowedFd<'_>]) -> PushErrorCode {
        match self.ask(&request.encode(), descriptors) {
            Some((PushReply::Error { code, .. }, _)) => code,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// Asks for a lane with a source in its first place. Returns its number and its memory.
    fn lane(&self) -> (u32, File) {
        let source = registration("raw", "");
        assert!(matches!(self.ask(&source.encode(), &[]), Some((PushReply::Source { number: 0 }, _))));
        let lane = PushRequest::Lane { bytes: 1 << 18, thread: 1, thread_name: String::new() };
        let Some((PushReply::Lane { lane, .. }, Some(memory))) = self.ask(&lane.encode(), &[]) else {
            panic!("a lane")
        };
        let bound = self.ask(&PushRequest::Bind { lane, source: 0 }.encode(), &[]);
        assert!(matches!(bound, Some((PushReply::Bind { .. }, _))), "{bound:?}");
        (lane, memory.into())
    }
}

fn registration(name: &str, root: &str) -> PushRequest {
    PushRequest::Source(SourceRegistration {
        number: 0,
        period_ns: 0,
        name: name.to_owned(),
        root: root.to_owned(),
        labels: Vec::new(),
    })
}

/// Memory with this content and these seals.
pub fn memory(content: &[u8], seals: SealFlags) -> File {
    let memory = memfd_create("schema", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let mut file = File::from(memory);
    file.write_all(content).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

pub const SEALED: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

// Proves that requests that are malformed, out of turn, with wrong descriptors or beyond a limit
// are refused with their code, that none of it disturbs another application, and that the recorder
// neither fails nor grows.
#[test]
fn hostile_requests_are_refused() {
    let rig = Rig::new();
    // One user may have half of it.
    let limits = "clients = 6\nlanes = 8\nmemory_max = \"6MiB\"\nschema_max = \"4KiB\"";
    let process = record(&rig, limits, "");
    let path = socket(&rig);
    let honest = client(&path);
    let orders = orders(&honest, OnFullLane::Block);
    orders.push(&payload(0)).unwrap();

    let first = RawClient::connect(&path);
    let bind = PushRequest::Bind { lane: 0, source: 0 };
    assert_eq!(first.refused(&bind, &[]), PushErrorCode::Malformed, "before hello");
    assert!(first.receive().is_none(), "closed");
    let version = PushRequest::Hello { version: 9, client: "raw".into() };
    assert_eq!(RawClient::connect(&path).refused(&version, &[]), PushErrorCode::Version);
    for packet in [&[][..], &[7], &[1, 0, 0, 0, 9], &[0xFF; 64], &[0; 5000]] {
        let client = RawClient::welcome(&path);
        client.send(packet, &[]);
        let answer = client.receive();
        let is_refused =
            matches!(&answer, None | Some((PushReply::Error { code: PushErrorCode::Malformed, .. }, _)));
        assert!(is_refused, "{packet:?}: {answer:?}");
    }
    let null = File::open("/dev/null").unwrap();
    let client = RawClient::welcome(&path);
    assert_eq!(client.refused(&bind, &[null.as_fd()]), PushErrorCode::Malformed, "a descriptor too many");
    let client = RawClient::welcome(&path);
    assert_eq!(client.refused(&registration("raw", ROOT), &[]), PushErrorCode::Malformed, "none");
    let client = RawClient::welcome(&path);
    let three = [null.as_fd(), null.as_fd(), null.as_fd()];
    assert_eq!(client.refused(&registration("raw", ROOT), &three), PushErrorCode::Malformed, "three");

    let client = RawClient::welcome(&path);
    let typed = registration("raw", ROOT);
    let unsealed = memory(SCHEMA, SealFlags::SHRINK);
    assert_eq!(client.refused(&typed, &[unsealed.as_fd()]), PushErrorCode::Schema, "not sealed");
    assert_eq!(client.refused(&typed, &[null.as_fd()]), PushErrorCode::Schema, "no memory");
    let program = File::open("/proc/self/exe").unwrap();
    assert_eq!(client.refused(&typed, &[program.as_fd()]), PushErrorCode::Schema, "a file");
    for content in [&b"no schema"[..], &[0; 100], &SCHEMA[..SCHEMA.len() / 2]] {
        assert_eq!(client.refused(&typed, &[memory(content, SEALED).as_fd()]), PushErrorCode::Schema);
    }
    let other = registration("raw", "flatcap.synthetic.None");
    assert_eq!(
        client.refused(&other, &[memory(SCHEMA, SEALED).as_fd()]),
        PushErrorCode::Schema,
        "no such root"
    );
    assert_eq!(
        client.refused(&typed, &[memory(&[1; 5000], SEALED).as_fd()]),
        PushErrorCode::Limit,
        "too long"
    );
    assert_eq!(client.refused(&registration("cpu", ""), &[]), PushErrorCode::Schema, "a name of the host");
    for name in ["tasks", "tasks.processes", "cpu.total", "kmsg"] {
        let reserved = client.ask(&registration(name, "").encode(), &[]);
        let Some((PushReply::Error { text, .. }, _)) = reserved else { panic!("{name}: {reserved:?}") };
        assert!(text.contains("is reserved: the recorder's own sources"), "{text}");
    }
    assert_eq!(client.refused(&bind, &[]), PushErrorCode::Unknown);
    let resumption = flatcap_lane::LaneResumption { run_id: 1, lane: 0, is_final: true };
    let resume = PushRequest::Resume(resumption);
    assert_eq!(client.refused(&resume, &[null.as_fd()]), PushErrorCode::Stale);

    let (lane, _memory) = client.lane();
    assert_eq!(client.refused(&PushRequest::Bind { lane, source: 0 }, &[]), PushErrorCode::Unknown, "twice");
    let more = PushRequest::Lane { bytes: 16 << 20, thread: 1, thread_name: String::new() };
    assert_eq!(client.refused(&more, &[]), PushErrorCode::Limit, "memory");
    let small = PushRequest::Lane { bytes: 1, thread: 1, thread_name: String::new() };
    for _ in 0..2 {
        assert!(matches!(client.ask(&small.encode(), &[]), Some((PushReply::Lane { .. }, Some(_)))));
    }
    assert_eq!(client.refused(&small, &[]), PushErrorCode::Limit, "lanes");
    let _third = RawClient::welcome(&path);
    let hello = PushRequest::Hello { version: VERSION, client: "fourth".into() };
    assert_eq!(RawClient::connect(&path).refused(&hello, &[]), PushErrorCode::Limit, "clients");
    // Connections that say nothing do not keep others out.
    let _silent: Vec<RawClient> = (0..200).map(|_| RawClient::connect(&path)).collect();

    orders.push(&payload(1)).unwrap();
    eventually("the honest frames", || count(&rig, "recorded") == 2);
    assert!(count(&rig, "refused") > 20);
    let (_, lost) = end(&rig, process);
    assert_eq!((lost, check_numbers(&rows(&rig, "orders"))), (0, 2));
}

// Proves that a lane with bytes that are no frames, an impossible state or a number out of nowhere
// ends with a message, that what was begun in it is accounted for within what is possible, and that
// other lanes go on.
#[test]
fn bad_lanes_end_alone() {
    /// Offsets of docs/PUSH.md, section 1.
    const FLAGS: u64 = 160;
    const BEGUN: u64 = 512;
    const STATES: u64 = 2048;
    const SLABS: u64 = 4096;
    let rig = Rig::new();
    let process = record(&rig, "", "");
    let path = socket(&rig);
    let honest = client(&path);
    let orders = orders(&honest, OnFullLane::Block);
    let attacks: [&[(u64, u64)]; 4] = [
        &[(STATES, 100)],
        &[(STATES, 1 << 22)],
        &[(STATES, 12345 << 24)],
        &[(BEGUN, u64::MAX), (SLABS, 0x0000_0008_0000_0008), (STATES, 24)],
    ];
    for (k, attack) in (0..).zip(attacks) {
        orders.push(&payload(k)).unwrap();
        let client = RawClient::welcome(&path);
        let (lane, memory) = client.lane();
        for (at, value) in attack {
            memory.write_all_at(&value.to_le_bytes(), *at).unwrap();
        }
        client.send(&PushRequest::Wake { lane }.encode(), &[]);
        let Some((PushReply::Ended { lane: ended, reason }, _)) = client.receive() else {
            panic!("{attack:?}")
        };
        assert!(ended == lane && !reason.is_empty(), "{attack:?}");
        let mut flags = [0; 8];
        memory.read_exact_at(&mut flags, FLAGS).unwrap();
        assert_eq!(u64::from_le_bytes(flags), 2, "the lane says so, too");
        assert_eq!(client.refused(&PushRequest::Bind { lane, source: 0 }, &[]), PushErrorCode::Unknown);
    }
    orders.push(&payload(4)).unwrap();
    eventually("the honest frames", || count(&rig, "recorded") == 5);
    assert_eq!(count(&rig, "lanes_refused"), 4);
    let (called, lost) = end(&rig, process);
    assert!(called.status == Some(0) || called.status == Some(3), "{called:?}");
    assert_eq!((lost, check_numbers(&rows(&rig, "orders"))), (0, 5), "a made-up count is no loss");
}

/// Returns the memories of lanes that this process has open.
fn lanes_of_this_process() -> Vec<File> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_lane = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:flatcap-lane"))
    };
    let lanes = entries.map(|entry| entry.path()).filter(is_lane);
    lanes.filter_map(|path| File::options().read(true).write(true).open(path).ok()).collect()
}

// Proves that a lane whose bytes another thread changes all the time while it is read and written
// brings nothing into the recording that does not verify, and ends or goes on without a panic.
#[test]
fn a_lane_that_changes_while_it_is_read() {
    let rig = Rig::new();
    let process = record(&rig, "verify = \"first\"\ndrain_interval = \"1ms\"", "");
    let path = socket(&rig);
    let client = client(&path);
    let orders = orders(&client, OnFullLane::DropNewest);
    orders.push(&payload(0)).unwrap();
    // Later ones may all be changed before they are read.
    eventually("a frame", || count(&rig, "recorded") == 1);
    // Of this test alone: others in this process have recorders of their own, and these lanes have
    // the run id of theirs.
    let run_id = rig.status().unwrap()["recorder"]["run_id"].as_str().unwrap().to_owned();
    let is_ours = |lane: &File| {
        let mut number = [0; 8];
        lane.read_exact_at(&mut number, 48).is_ok()
            && format!("{:016x}", u64::from_le_bytes(number)) == run_id
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1_u64;
            while !stop.load(Ordering::Relaxed) {
                for lane in lanes_of_this_process().iter().filter(|lane| is_ours(lane)) {
                    for _ in 0..1000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let at = 2048 + (random >> 33) % (1 << 18);
                        // The lane may have been sealed by the client's own end.
                        let _gone = lane.write_at(&[random.to_le_bytes()[7]], at);
                    }
                }
            }
        });
        let mut k = 0;
        eventually("lanes that are refused", || {
            for _ in 0..1000 {
                k += 1;
                let _dropped = orders.push(&payload(k));
            }
            count(&rig, "lanes_refused") >= 2
        });
        stop.store(true, Ordering::Relaxed);
    });
    drop((orders, client));
    eventually("no lane", || count(&rig, "lanes") == 0);
    let called = process.end("TERM");
    called.assert_no_panic();
    verified_lost(&rig);
    // Each row is read by the schema, or reported.
    let dump = rig.call(&["dump", "--format", "jsonl", "--source", "orders", "flatcap-data"]);
    assert!(!dump.lines().is_empty(), "{dump:?}");
}

// Proves that a user who may not push gets an error that states this.
#[test]
fn strangers_are_denied() {
    if rustix::process::geteuid().as_raw() != 0 {
        println!("skipped: only root can be another user");
        return;
    }
    let rig = Rig::new();
    for folder in rig.folders() {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let process = record(&rig, "allow = [\"user:4000000001\"]", "");
    let say = |user: u32| {
        use std::os::unix::process::CommandExt;
        let script = "import socket, sys\n\
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
            s.connect(sys.argv[1])\n\
            s.send(bytes([1, 0, 0, 0, 1, 0, 0, 0, 1, 0]) + b'x')\n\
            print(s.recv(4096)[:8].hex())";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(socket(&rig)).uid(user).gid(user);
        command.output().ok().map(|output| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let Some(stranger) = say(4_000_000_002) else {
        println!("skipped: python3 is not here");
        return;
    };
    assert_eq!(stranger, "ffff000003000000", "an error of code 3");
    assert!(say(4_000_000_001).unwrap().starts_with("01800000"), "a reply to hello");
    assert_eq!(end(&rig, process).1, 0);
}

// Proves that a user who takes all clients, lanes and memory of its share leaves the same amount to
// others, and that each refusal names the share and the key.
#[test]
fn a_user_leaves_others_their_share() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if rustix::process::geteuid().as_raw() != 0 {
        println!("skipped: only root can be another user");
        return;
    }
    let rig = Rig::new();
    for folder in rig.folders() {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let limits = "clients = 8\nlanes = 16\nmemory_max = \"64MiB\"\nallow = [\"user:4000000001\"]";
    let process = record(&rig, limits, "");
    let script = "import socket, struct, sys\n\
        kept = []\n\
        text = lambda t: struct.pack('<H', len(t)) + t\n\
        def refusal(b):\n  return b[10:].decode() if b[:4] == b'\\xff\\xff\\0\\0' else None\n\
        while True:\n\
        \x20 s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
        \x20 s.connect(sys.argv[1])\n\
        \x20 kept.append(s)\n\
        \x20 s.send(struct.pack('<II', 1, 1) + text(b'greedy'))\n\
        \x20 refused = refusal(s.recv(4096))\n\
        \x20 if refused: break\n\
        print(refused)\n\
        for size in (16 << 20, 1 << 18):\n\
        \x20 refused = None\n\
        \x20 while not refused:\n\
        \x20   kept[0].send(struct.pack('<IQI', 3, size, 1) + text(b''))\n\
        \x20   answer, lanes, _, _ = socket.recv_fds(kept[0], 4096, 4)\n\
        \x20   kept.append(lanes)\n\
        \x20   refused = refusal(answer)\n\
        \x20 print(refused)\n\
        sys.stdout.flush()\n\
        sys.stdin.read()";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(socket(&rig)).uid(4_000_000_001).gid(4_000_000_001);
    let Ok(mut greedy) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        println!("skipped: python3 is not here");
        return;
    };
    let mut said = std::io::BufReader::new(greedy.stdout.take().unwrap()).lines();
    let mut refusal = || said.next().unwrap().unwrap();
    let clients = refusal();
    assert_eq!(clients, "this user already has 4 clients, the limit is 4: raise [push] clients");
    let memory = refusal();
    assert!(
        memory.contains("that the applications of this user use exceed the limit of 33554432"),
        "{memory}"
    );
    assert!(memory.contains("[push] memory_max"), "{memory}");
    assert_eq!(refusal(), "this user already has 8 lanes, the limit is 8: raise [push] lanes");
    let clients: Vec<RawClient> = (0..4).map(|_| RawClient::welcome(&socket(&rig))).collect();
    let ask = |bytes| {
        let lane = PushRequest::Lane { bytes, thread: 1, thread_name: String::new() };
        clients[0].ask(&lane.encode(), &[])
    };
    for bytes in std::iter::once(16 << 20).chain([1 << 18; 7]) {
        let lane = ask(bytes);
        assert!(matches!(lane, Some((PushReply::Lane { .. }, Some(_)))), "{lane:?}");
    }
    drop(greedy.stdin.take());
    greedy.wait().unwrap();
    drop(clients);
    let called = process.end("TERM");
    called.assert_no_panic();
    assert!(called.err.contains("a request of an application is refused"), "{}", called.err);
}

/// The shared library of the client, which cargo has built with these tests.
fn library() -> Option<PathBuf> {
    let beside = std::env::current_exe().unwrap();
    let folder = beside.parent().unwrap();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let entries =
        [folder, folder.parent().unwrap()].into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| name(path).starts_with("libflatcap_push"))
        .filter(|path| path.extension() == Some("so".as_ref()))
        .collect();
    found.sort_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    found.pop()
}

fn push_home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/flatcap-push")
}

// Proves that the C program and the Python module of the client library push to the real recorder:
// parent and child, one by one and many at once, and log records.
#[test]
fn programs_in_c_and_python_push() {
    let rig = Rig::new();
    let process = record(&rig, "", "");
    let Some(library) = library() else {
        println!("skipped: the shared library of flatcap-push is not built");
        return;
    };
    let program = rig.path("program");
    let compiled = Command::new("cc")
        .args(["-std=c99", "-o"])
        .arg(&program)
        .arg(push_home().join("tests/c/program.c"))
        .arg(format!("-I{}", push_home().join("include").display()))
        .arg(&library)
        .output();
    let mut expected = 0;
    if compiled.as_ref().is_ok_and(|output| output.status.success()) {
        let folder = library.parent().unwrap();
        let ran = Command::new(&program).arg(socket(&rig)).env("LD_LIBRARY_PATH", folder).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        expected += 6;
        eventually("frames of C", || count(&rig, "recorded") == expected);
    } else {
        println!("skipped: no C compiler: {compiled:?}");
    }
    let ran = Command::new("python3")
        .arg(push_home().join("tests/python/program.py"))
        .arg(socket(&rig))
        .env("PYTHONPATH", push_home().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("FLATCAP_PUSH_LIBRARY", &library)
        .output();
    match ran {
        Ok(ran) => {
            assert!(ran.status.success(), "{ran:?}");
            expected += 6;
            eventually("frames of Python", || count(&rig, "recorded") == expected);
        }
        Err(error) => println!("skipped: no python3: {error}"),
    }
    eventually("they have gone", || count(&rig, "lanes") == 0);
    let (_, lost) = end(&rig, process);
    assert_eq!(lost, 0);
}
