//! Closed segments become small, by hand and beside a recording, and read as before.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::rig::{Called, Rig, eventually, finish, has_segment, number, signal};

/// A few thousand frames a second of counters, of noise, and of lists that grow.
const LOAD: &str = "[source.synthetic]\nenabled = true\nperiod = \"1ms\"\nshape = \"wide\"\nfields = 16\nbudget = \"100%\"\n\
     [agent]\ncpu_budget = \"1000%\"\n[storage]\nsegment_age = \"1s\"\n";
/// Sealing as fast as it goes.
const SEAL: &str = "[seal]\nenabled = true\ncpu_budget = \"100%\"\nio_budget = \"1GiB\"\n";

/// A recording of at least so many segments, each with hundreds of samples of `synthetic`.
fn recorded(rig: &Rig, least: usize) -> Vec<PathBuf> {
    let path = rig.write("load.toml", LOAD);
    let samples = || rig.source("synthetic").map_or(0, |source| number(&source["recorded"]));
    let mut before = None; // samples when the last segment was begun
    rig.record_until(&["--quiet", "--config", path.to_str().unwrap()], "segments", || {
        if closed(rig).len() + 1 < least {
            return false;
        }
        let now = samples();
        now >= *before.get_or_insert(now) + 200
    });
    let segments = rig.segments("bin");
    assert!(segments.len() >= least, "{segments:?}");
    segments
}

/// A process at work, ended if the test fails.
struct Recording<'a> {
    rig: &'a Rig,
    child: Option<Child>,
}

/// Starts a recorder that follows this configuration alone.
fn start<'a>(rig: &'a Rig, config: &str) -> Recording<'a> {
    let path = rig.write("own.toml", config);
    let log = std::fs::File::create(rig.path("log")).unwrap();
    let mut command = rig.command(&["record", "--quiet", "--config", path.to_str().unwrap()]);
    command.env_remove("FLATCAP_SEAL__ENABLED").stdout(Stdio::null()).stderr(log);
    Recording { rig, child: Some(command.spawn().unwrap()) }
}

impl Recording<'_> {
    fn signal(&self, name: &str) {
        signal(self.child.as_ref().unwrap(), name);
    }

    /// Waits until `condition` holds. What runs only when nothing else wants to (`SCHED_IDLE`) runs as others do meanwhile: on a machine
    /// that is busy all the time it would get next to nothing. That takes root's rights; without them this only waits.
    fn eventually(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let tasks = format!("/proc/{}/task", self.child.as_ref().unwrap().id());
        eventually(what, || {
            for task in std::fs::read_dir(&tasks).into_iter().flatten().flatten() {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                let policy = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(38));
                if policy == Some("5") {
                    let thread = task.file_name();
                    let mut command = Command::new("chrt");
                    let _refused = command.args(["--other", "--pid", "0"]).arg(thread).output();
                }
            }
            condition()
        });
    }

    /// Ends it in order; what it has logged.
    fn stop(mut self) -> String {
        self.signal("TERM");
        let called = finish(self.child.take().unwrap());
        let log = std::fs::read_to_string(self.rig.path("log")).unwrap();
        assert_eq!(called.status, Some(0), "{log}");
        log
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

fn copy(from: &[PathBuf], to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for path in from {
        std::fs::copy(path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Everything that a directory reads as: the frames, and what the tools say.
fn read(rig: &Rig, folder: &Path) -> [Vec<u8>; 3] {
    let folder = folder.to_str().unwrap();
    let calls = [
        &["replay", "--to", "stdout", folder][..],
        &["verify", "--json", folder],
        &["dump", "--format", "jsonl", "--source", "synthetic", folder],
    ];
    calls.map(|args| {
        let called = rig.call(args);
        assert_eq!(called.status, Some(0), "{args:?}: {}", called.err);
        let text = String::from_utf8_lossy(&called.out).into_owned();
        if args[0] == "verify" { text.replace(folder, "DIR").into_bytes() } else { called.out }
    })
}

fn seal(rig: &Rig, args: &[&str], folder: &Path) -> Called {
    rig.call(&[&["seal", "--json"], args, &[folder.to_str().unwrap()]].concat())
}

fn is_packed(rig: &Rig, path: &Path) -> bool {
    let info = rig.call(&["info", "--json", path.to_str().unwrap()]).json();
    info["segments"][0]["packed"].as_bool().unwrap()
}

/// Closed segments, also before there is a directory.
fn closed(rig: &Rig) -> Vec<PathBuf> {
    if rig.data().is_dir() { rig.segments("bin") } else { Vec::new() }
}

fn packing_files(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(".packing")).count()
}

// Goal: whichever codec and layout, what is read is the same to the byte, and the files are smaller; a second time nothing is done. Method: a recording,
// sealed in each way; frames, verdict and values before and after.
#[test]
fn every_codec_and_layout_reads_as_before() {
    let rig = Rig::new();
    let segments = recorded(&rig, 2);
    let before = read(&rig, &rig.data());
    let raw_bytes: u64 = segments.iter().map(|path| path.metadata().unwrap().len()).sum();
    for codec in ["none", "lz4", "snappy", "zstd:1", "zstd:7", "brotli:1"] {
        for layout in ["row", "columnar"] {
            let folder = rig.path(&format!("{codec}-{layout}"));
            copy(&segments, &folder);
            let called = seal(&rig, &["--codec", codec, "--layout", layout], &folder);
            assert_eq!((called.status, called.err.as_str()), (Some(0), ""), "{codec} {layout}");
            let report = called.json();
            let is_small = (codec, layout) != ("none", "row");
            for segment in report["segments"].as_array().unwrap() {
                assert_eq!(segment["outcome"] == "packed", is_small, "{codec} {layout}: {report}");
            }
            assert!(!is_small || number(&report["stored_bytes"]) < raw_bytes * 3 / 4, "{report}");
            assert_eq!(read(&rig, &folder), before, "{codec} {layout}");
            assert!(
                segments
                    .iter()
                    .all(|path| is_small == is_packed(&rig, &folder.join(path.file_name().unwrap())))
            );
            let again = seal(&rig, &[], &folder).json();
            let is_left = |segment: &Value| segment["reason"] == "it is packed already";
            assert!(!is_small || again["segments"].as_array().unwrap().iter().all(is_left), "{again}");
        }
    }
}

// Goal: a source can be packed in its own way, `info` tells sizes by segment and source, and a packed file keeps mode and times. Method: one source in
// another way than all; numbers against each other and against the files.
#[test]
fn sizes_are_told() {
    let rig = Rig::new();
    let segments = recorded(&rig, 2);
    let before: Vec<_> = segments.iter().map(|path| path.metadata().unwrap()).collect();
    let called = seal(&rig, &["--source", "synthetic=none/row"], &rig.data());
    assert_eq!(called.status, Some(0), "{called:?}");
    for (path, before) in segments.iter().zip(&before) {
        let after = path.metadata().unwrap();
        assert_eq!(
            (after.mode(), after.mtime(), after.mtime_nsec()),
            (before.mode(), before.mtime(), before.mtime_nsec())
        );
    }
    let info = rig.info();
    let sum = |key: &str| {
        info["segments"].as_array().unwrap().iter().map(|segment| number(&segment[key])).sum::<u64>()
    };
    assert_eq!(sum("raw_bytes"), before.iter().map(std::fs::Metadata::len).sum::<u64>());
    assert_eq!(
        (sum("raw_bytes"), sum("stored_bytes")),
        (number(&info["raw_bytes"]), number(&info["stored_bytes"]))
    );
    let lengths = segments.iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
    assert_eq!(sum("stored_bytes"), lengths);
    let of = |name: &str| {
        let source =
            info["sources"].as_array().unwrap().iter().find(|source| source["name"] == name).unwrap();
        (number(&source["packed_raw_bytes"]), number(&source["packed_stored_bytes"]))
    };
    let ((raw, stored), (_, cpu_stored)) = (of("synthetic"), of("cpu"));
    assert!(stored > raw / 5 && stored < raw && cpu_stored > 0, "{info}");
    let page = rig.call(&["info", "flatcap-data"]).text();
    assert!(page.contains("packed: synthetic: ") && page.contains(" as recorded ("), "{page}");
}

// Goal: what is none of its business is refused by name, and nothing is left there. Method: each kind.
#[test]
fn seal_touches_only_what_is_its_own() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path("other")).unwrap();
    rig.write("notes.bin", "not a segment");
    let open = rig.write("0000000001-20260101T000000Z-00000000000000ab.bin.active", "");
    for (args, status, words) in [
        (&["seal"][..], 2, "<PATH>"),
        (&["seal", "missing"], 1, "missing: No such file"),
        (&["seal", "other"], 1, "no segments in other"),
        (&["seal", "notes.bin"], 2, "not the name of a closed segment"),
        (&["seal", open.to_str().unwrap()], 2, "this segment is still open"),
        (&["seal", "--codec", "gzip", "other"], 2, "is no codec"),
        (&["seal", "--layout", "rows", "other"], 2, "is no layout"),
        (&["seal", "--source", "cpu", "other"], 2, "is not NAME=CODEC/LAYOUT"),
        (&["seal", "--block-size", "1KiB", "other"], 2, "from 64KiB to 16MiB"),
    ] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(status), "{called:?}");
        assert!(called.err.contains(words), "{called:?}");
    }
    assert_eq!(std::fs::read_dir(rig.path("other")).unwrap().count(), 0, "not even a lock file");
    let segments = recorded(&rig, 2);
    let called = rig.call(&["seal", "--source", "cpus=lz4", "flatcap-data"]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("no segment has a source cpus; they have cpu, "), "{called:?}");
    let recording = start(&rig, LOAD);
    eventually("a recorder at work", || rig.segments("active").len() == 1);
    let called = rig.call(&["seal", segments[0].to_str().unwrap()]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("it seals closed segments by itself"), "{called:?}");
    recording.stop();
}

// Goal: a directory is sealed once, however often and in whatever spelling it was named. Method: the directory twice, and one of its segments.
#[test]
fn a_directory_named_twice_is_sealed_once() {
    let rig = Rig::new();
    let segments = recorded(&rig, 2);
    let one = segments[0].to_str().unwrap();
    let called = rig.call(&["seal", "--json", "flatcap-data", one, "./flatcap-data/"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let rows = called.json()["segments"].as_array().unwrap().len();
    assert_eq!(rows, segments.len(), "{called:?}");
    assert!(segments.iter().all(|path| is_packed(&rig, path)));
}

// Goal: damage in a segment leaves it as it is, is told with its offset, and makes the status 3; the others are packed. Method: a byte inverted.
#[test]
fn damaged_segments_are_left() {
    let rig = Rig::new();
    let segments = recorded(&rig, 3);
    let mut bytes = std::fs::read(&segments[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    std::fs::write(&segments[0], &bytes).unwrap();
    let called = rig.call(&["seal", "flatcap-data"]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(
        called.text().contains("it is damaged at offset") && called.text().contains("sealed: "),
        "{called:?}"
    );
    assert_eq!(std::fs::read(&segments[0]).unwrap(), bytes);
    assert!(segments[1..].iter().all(|path| is_packed(&rig, path)));
}

// Goal: a damaged block costs its own frames and no others, for each tool. Method: a byte in the middle of a file of small blocks inverted; frames that
// verify and dump still find.
#[test]
fn a_damaged_block_costs_its_own_frames() {
    let rig = Rig::new();
    let segments = recorded(&rig, 3);
    assert_eq!(seal(&rig, &["--block-size", "64KiB"], &rig.data()).status, Some(0));
    let intact = rig.verify();
    let lines = |called: &Called| called.text().lines().count();
    let dump = ["dump", "--format", "jsonl", "--source", "synthetic", "flatcap-data"];
    let all = lines(&rig.call(&dump));
    let mut bytes = std::fs::read(&segments[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    std::fs::write(&segments[0], bytes).unwrap();
    let called = rig.call(&["verify", "--json", "flatcap-data"]);
    assert_eq!(called.status, Some(3), "{called:?}");
    let lost = number(&intact["frames"]) - number(&called.json()["frames"]);
    let called = rig.call(&dump);
    assert_eq!(called.status, Some(3), "{}", called.err);
    let missing = all - lines(&called);
    // A frame of synthetic is longer than 128 bytes.
    assert!(lost > 0 && lost < 2000 && missing > 0 && missing < 512, "{lost} {missing} of {all}");
    // Recovery makes it whole without them, as of a segment that was never packed.
    let called = rig.call(&["recover", segments[0].to_str().unwrap()]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert_eq!(rig.call(&["verify", "flatcap-data"]).status, Some(0), "what was lost is explained");
    assert_eq!(lines(&rig.call(&dump)), all - missing);
}

// Goal: a kill in the middle costs nothing, and the next call finishes. Method: a slow codec, killed once it has begun; what is read before and after.
#[test]
fn a_kill_in_the_middle_costs_nothing() {
    let rig = Rig::new();
    recorded(&rig, 3);
    let before = read(&rig, &rig.data());
    for name in ["INT", "KILL"] {
        let mut child = rig.start(&["seal", "--codec", "brotli:11", "flatcap-data"]);
        eventually("packing has begun", || {
            packing_files(&rig.data()) == 1 || child.try_wait().unwrap().is_some()
        });
        if name == "KILL" {
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            signal(&child, name);
            let called = finish(child);
            assert_eq!(called.status, Some(1), "{called:?}");
            assert!(called.err.contains("stopped by a signal"), "{called:?}");
            assert_eq!(packing_files(&rig.data()), 0, "nothing lies beside them");
        }
        assert_eq!(read(&rig, &rig.data()), before);
    }
    assert_eq!(seal(&rig, &[], &rig.data()).status, Some(0));
    assert_eq!(packing_files(&rig.data()), 0);
    assert_eq!(read(&rig, &rig.data()), before);
}

// Goal: what lies beside a segment is no segment to anybody, and goes with the next start. Method: a file of that name beside a recording; recover, info,
// and another recording.
#[test]
fn left_overs_are_nobodys_segments() {
    let rig = Rig::new();
    let segments = recorded(&rig, 2);
    let beside = format!("{}.packing", segments[0].display());
    std::fs::copy(&segments[0], &beside).unwrap();
    let count = |called: &Called| called.json()["segments"].as_array().unwrap().len();
    assert_eq!(count(&rig.call(&["info", "--json", "flatcap-data"])), segments.len());
    assert_eq!(rig.call(&["recover", "flatcap-data"]).status, Some(0));
    assert!(Path::new(&beside).exists(), "it is not a recovery's");
    assert_eq!(rig.verify()["intact"], true);
    let recording = start(&rig, &(LOAD.to_owned() + SEAL));
    recording.eventually("it is removed", || !Path::new(&beside).exists());
    recording.stop();
}

// Goal: an agent seals what it has closed, and what others have left, beside the recording; says so; and loses nothing. Method: two runs; status, metrics,
// files and verdict.
#[test]
fn an_agent_seals_by_itself() {
    let rig = Rig::new();
    let former = recorded(&rig, 2);
    let recording = start(&rig, &(LOAD.to_owned() + SEAL));
    recording.eventually("former segments are packed", || former.iter().all(|path| is_packed(&rig, path)));
    let own = || closed(&rig).len() > former.len() && is_packed(&rig, &closed(&rig)[former.len()]);
    recording.eventually("one of its own is packed", own);
    // A file is in its place a moment before it is counted.
    let mut status = Value::Null;
    recording.eventually("all of them are counted", || {
        status = rig.call(&["status", "--json", "--socket", rig.socket().to_str().unwrap()]).json();
        number(&status["sealer"]["segments"]) > former.len() as u64
    });
    let sealer = &status["sealer"];
    assert!(
        number(&sealer["stored_bytes"]) < number(&sealer["raw_bytes"]) && number(&sealer["cpu_ns"]) > 0,
        "{status}"
    );
    assert_eq!((&sealer["enabled"], number(&sealer["failures"])), (&Value::from(true), 0), "{status}");
    let log = recording.stop();
    assert!(log.contains("a segment is compressed"), "{log}");
    let verify = rig.verify();
    assert_eq!((&verify["intact"], number(&verify["unexplained"])), (&Value::from(true), 0), "{verify}");
    assert_eq!(packing_files(&rig.data()), 0);
}

// Goal: sealing is turned on and off while the run goes on. Method: reloads; segments that stay raw while it is off.
#[test]
fn a_reload_turns_it_on() {
    let rig = Rig::new();
    let recording = start(&rig, &(LOAD.to_owned() + "[seal]\nenabled = false\n"));
    eventually("segments are closed", || closed(&rig).len() > 1);
    assert!(!closed(&rig).iter().any(|path| is_packed(&rig, path)));
    rig.write("own.toml", LOAD.to_owned() + SEAL);
    recording.signal("HUP");
    recording.eventually("they are packed", || is_packed(&rig, &closed(&rig)[1]));
    let log = recording.stop();
    assert!(log.contains("seal.enabled: false -> true"), "{log}");
}

// Goal: who reads while segments are packed under his hands misses nothing and gets nothing twice. Method: `dump --follow` beside a recorder that seals;
// the sequence numbers it shows.
#[test]
fn a_follower_misses_nothing() {
    let rig = Rig::new();
    let recording = start(&rig, &(LOAD.to_owned() + SEAL));
    eventually("a segment", || has_segment(&rig.data(), 1));
    let rows = rig.path("rows");
    let output = std::fs::File::create(&rows).unwrap();
    let args = ["dump", "--follow", "--format", "jsonl", "--source", "synthetic", "flatcap-data"];
    let child = rig.command(&args).stdout(output).spawn().unwrap();
    let mut follower = Recording { rig: &rig, child: Some(child) };
    recording.eventually("three segments are packed", || {
        let closed = closed(&rig);
        closed.len() >= 3 && closed[..3].iter().all(|path| is_packed(&rig, path))
    });
    recording.stop();
    let recorded = rig.info()["sources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|source| source["name"] == "synthetic")
        .cloned();
    let recorded = number(&recorded.unwrap()["recorded"]);
    let seen = || std::fs::read_to_string(&rows).unwrap();
    eventually("all of it is shown", || seen().lines().count() as u64 >= recorded);
    follower.signal("INT");
    finish(follower.child.take().unwrap());
    let all = rig.call(&["dump", "--format", "jsonl", "--source", "synthetic", "flatcap-data"]).text();
    assert!(seen() == all, "the same lines in the same order, none twice");
}

// Goal: retention and sealing beside each other keep the limit and bring nothing back. Method: a directory that is full all the time; numbers of segments,
// verdict, and room at the end.
#[test]
fn retention_goes_on_beside_it() {
    let rig = Rig::new();
    let limits = "segment_size = \"256KiB\"\nretain_bytes = \"4MiB\"";
    // Alone, so that what describes the sources is a small part of such short segments.
    let others = ["cpu", "memory", "vmstat", "load", "disk", "network", "pressure", "self"];
    let off: String = others.map(|name| format!("[source.{name}]\nenabled = false\n")).concat();
    let config = LOAD.replace("segment_age = \"1s\"", limits) + SEAL + &off;
    // It counts, and is never removed: little room is left for segments.
    std::fs::create_dir(rig.data()).unwrap();
    std::fs::write(rig.data().join("foreign"), vec![0; 3 << 20]).unwrap();
    let recording = start(&rig, &config);
    let log = || std::fs::read_to_string(rig.path("log")).unwrap();
    let count = |what: &str| log().matches(what).count();
    recording.eventually("segments are compressed", || count("a segment is compressed") > 3);
    recording.eventually("segments are removed", || count("removed: the oldest") > 3);
    recording.eventually("others are compressed then", || count("a segment is compressed") > 6);
    let log = recording.stop();
    assert!(!log.contains(" ERROR "), "{log}");
    let verify = rig.verify();
    assert_eq!((&verify["intact"], number(&verify["unexplained"])), (&Value::from(true), 0), "{verify}");
    assert_eq!(packing_files(&rig.data()), 0);
    let held: u64 = std::fs::read_dir(rig.data())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512)
        .sum();
    assert!(held <= 4 << 20, "{held}");
}

/// Packed while it is recorded, and left so.
const ACTIVE: &str = "[seal]\nenabled = false\nactive = \"zstd:1\"\n";

/// Numbers of the samples of a source, as they are shown.
fn numbers(rig: &Rig) -> Vec<u64> {
    let called = rig.call(&["dump", "--format", "jsonl", "--source", "synthetic", "flatcap-data"]);
    assert_eq!(called.status, Some(0), "{}", called.err);
    called.lines().iter().map(|row| number(&row["seq"])).collect()
}

fn recorded_of(rig: &Rig) -> u64 {
    let info = rig.info();
    let sources = info["sources"].as_array().unwrap();
    number(&sources.iter().find(|source| source["name"] == "synthetic").unwrap()["recorded"])
}

// Goal: what is packed while it is recorded is whole at any time: while it grows, after kill -9, and once it is recovered, in place. Method: looked at, killed
// in the middle, looked at, recovered; numbers, books and verdict, and sizes by source, of which `info` says where they are missing.
#[test]
fn a_kill_while_packing_costs_nothing() {
    let rig = Rig::new();
    let mut recording = start(&rig, &(LOAD.to_owned() + ACTIVE));
    eventually("a closed segment", || !closed(&rig).is_empty());
    eventually("samples", || numbers(&rig).len() > 500);
    let growing = numbers(&rig);
    assert!(growing.iter().copied().eq(0..growing.len() as u64) && growing.len() > 500, "{}", growing.len());
    let mut child = recording.child.take().unwrap();
    child.kill().unwrap();
    finish(child);
    let open = rig.segments("active");
    assert!(open.iter().all(|path| is_packed(&rig, path)) && !open.is_empty());
    let torn = numbers(&rig).len();
    assert!(torn >= growing.len());
    let missing = "not counted by source";
    let info = rig.info();
    let has_samples = |segment: &Value| segment["state"] == "torn" && number(&segment["frames"]) > 0;
    let is_missing = info["segments"].as_array().unwrap().iter().any(has_samples);
    let page = rig.call(&["info", "flatcap-data"]).text();
    assert_eq!(page.contains(missing), is_missing, "{page}");
    let called = rig.call(&["recover", "--json", "flatcap-data"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(number(&called.json()["lost"]) <= 1, "{called:?}");
    let verify = rig.verify();
    assert_eq!(
        (&verify["intact"], &verify["unexplained"]),
        (&Value::from(true), &Value::from(0)),
        "{verify}"
    );
    let whole = numbers(&rig);
    assert!(whole.iter().copied().eq(0..whole.len() as u64) && whole.len() >= torn, "{} {torn}", whole.len());
    assert_eq!(recorded_of(&rig), whole.len() as u64);
    assert!(rig.segments("active").is_empty());
    assert!(rig.segments("bin").iter().all(|path| is_packed(&rig, path)), "completed as they were");
    let info = rig.info();
    let of_sources: u64 =
        info["sources"].as_array().unwrap().iter().map(|source| number(&source["packed_raw_bytes"])).sum();
    let raw_bytes = number(&info["raw_bytes"]);
    assert!(of_sources < raw_bytes && of_sources > raw_bytes / 2, "{of_sources} of {raw_bytes}: {info}");
    assert!(!rig.call(&["info", "flatcap-data"]).text().contains(missing));
}

// Goal: segments that were packed while they were recorded are smaller than raw ones, are packed again in large blocks, once, and read as before. Method: a
// recording with each codec; sealed by hand; frames, verdict, values and sizes before and after.
#[test]
fn what_was_packed_at_once_is_packed_again() {
    for active in ["none", "lz4", "zstd:1"] {
        let rig = Rig::new();
        let path = rig.write("load.toml", LOAD.to_owned() + &ACTIVE.replace("zstd:1", active));
        let is_enough = || closed(&rig).len() >= 2 && rig.has_samples(2);
        rig.record_until(&["--quiet", "--config", path.to_str().unwrap()], "two segments", is_enough);
        let sizes = |info: &Value| (number(&info["raw_bytes"]), number(&info["stored_bytes"]));
        let (before, first) = (read(&rig, &rig.data()), sizes(&rig.info()));
        // Lanes alone save nothing in blocks of some milliseconds.
        let most = if active == "none" { first.0 / 50 * 51 } else { first.0 / 2 };
        assert!(first.1 < most, "{active}: {first:?}");
        let segments = rig.segments("bin").len();
        let called = seal(&rig, &[], &rig.data());
        assert_eq!(called.status, Some(0), "{called:?}");
        let second = sizes(&rig.info());
        println!(
            "{active}: {segments} segments, {} bytes as recorded, {} at once, {} sealed",
            first.0, first.1, second.1
        );
        assert!(second.0 == first.0 && second.1 < first.1 / 10 * 9, "{active}: {first:?} {second:?}");
        assert!(read(&rig, &rig.data()) == before, "{active}");
        seal(&rig, &[], &rig.data());
        assert_eq!(sizes(&rig.info()), second, "a second time nothing is done");
    }
}

// Goal: a reload turns it on and off from the next segment on, and no sample is missing in between. Method: segments before and after, numbers.
#[test]
fn a_reload_packs_the_next_segment() {
    let rig = Rig::new();
    let off = ACTIVE.replace("zstd:1", "off");
    let recording = start(&rig, &(LOAD.to_owned() + &off));
    for (config, packed) in [(ACTIVE, true), (&off, false)] {
        eventually("another segment", || has_segment(&rig.data(), 1));
        rig.write("own.toml", LOAD.to_owned() + config);
        recording.signal("HUP");
        eventually("one of the wanted form", || {
            let info = rig.info();
            let segments = info["segments"].as_array().unwrap();
            segments.iter().any(|segment| segment["state"] == "active" && segment["packed"] == packed)
        });
    }
    recording.stop();
    let all = numbers(&rig);
    assert!(all.iter().copied().eq(0..all.len() as u64));
}
