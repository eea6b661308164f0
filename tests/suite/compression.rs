//! Compression of sealed segments, by the verb and by a running recorder: files get smaller and
//! read the same.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::rig::{CallResult, Rig, eventually, finish, has_segment, number, signal};

/// A few thousand frames per second of counters, of noise, and of growing lists. Slabs are queued
/// when they are full, or after 50 ms, so that the queue bridges a stall of the storage of a
/// minute.
const LOAD: &str = "\
[recorder]
cpu_budget = \"1000%\"
[buffering]
flush_interval = \"50ms\"
[storage]
segment_age = \"1s\"
[source.synthetic]
enabled = true
period = \"1ms\"
shape = \"wide\"
fields = 16
budget = \"100%\"
";
/// Compression at full speed.
const COMPRESS: &str = "[compress]\nenabled = true\ncpu_budget = \"100%\"\nio_budget = \"1GiB\"\n";

/// Makes a recording of at least so many segments, each with hundreds of samples of `synthetic`.
fn recorded(rig: &Rig, least: usize) -> Vec<PathBuf> {
    let path = rig.write("load.toml", LOAD);
    let samples = || rig.source("synthetic").map_or(0, |source| number(&source["recorded"]));
    let mut before = None; // samples when the last segment began
    rig.record_until(&["--quiet", "--config", path.to_str().unwrap()], "segments", || {
        if sealed_segments(rig).len() + 1 < least {
            return false;
        }
        let now = samples();
        now >= *before.get_or_insert(now) + 200
    });
    let segments = rig.segments("bin");
    assert!(segments.len() >= least, "{segments:?}");
    segments
}

/// A running process, killed if the test fails.
struct Recording<'a> {
    rig: &'a Rig,
    child: Option<Child>,
}

/// Starts a recorder with this configuration alone.
fn start<'a>(rig: &'a Rig, config: &str) -> Recording<'a> {
    let path = rig.write("own.toml", config);
    let log = std::fs::File::create(rig.path("log")).unwrap();
    let mut command = rig.command(&["record", "--quiet", "--config", path.to_str().unwrap()]);
    command.env_remove("FLATCAP_COMPRESS__ENABLED").stdout(Stdio::null()).stderr(log);
    Recording { rig, child: Some(command.spawn().unwrap()) }
}

impl Recording<'_> {
    fn signal(&self, name: &str) {
        signal(self.child.as_ref().unwrap(), name);
    }

    /// Waits until `condition` holds. Gives threads at `SCHED_IDLE` the policy of other threads
    /// meanwhile, since they would get almost no CPU time on a busy machine. Needs root; otherwise
    /// this only waits.
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

    /// Ends the process cleanly and returns its log.
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

/// Returns the contents of a directory as read by the tools: the frames, and their reports.
fn contents(rig: &Rig, folder: &Path) -> [Vec<u8>; 3] {
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

fn compress(rig: &Rig, args: &[&str], folder: &Path) -> CallResult {
    rig.call(&[&["compress", "--json"], args, &[folder.to_str().unwrap()]].concat())
}

fn is_compressed(rig: &Rig, path: &Path) -> bool {
    let info = rig.call(&["info", "--json", path.to_str().unwrap()]).json();
    info["segments"][0]["compressed"].as_bool().unwrap()
}

/// Returns the sealed segments; none before the directory exists.
fn sealed_segments(rig: &Rig) -> Vec<PathBuf> {
    if rig.data().is_dir() { rig.segments("bin") } else { Vec::new() }
}

fn compressing_files(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(".compressing")).count()
}

// Proves that with every codec and layout the contents are unchanged to the byte and the files
// smaller, and that a second run does nothing. Method: frames, reports and values before and after.
#[test]
fn every_codec_and_layout_reads_as_before() {
    let rig = Rig::new();
    let segments = recorded(&rig, 2);
    let before = contents(&rig, &rig.data());
    let raw_bytes: u64 = segments.iter().map(|path| path.metadata().unwrap().len()).sum();
    for codec in ["none", "lz4", "snappy", "zstd:1", "zstd:7", "brotli:1"] {
        for layout in ["row", "columnar"] {
            let folder = rig.path(&format!("{codec}-{layout}"));
            copy(&segments, &folder);
            let called = compress(&rig, &["--codec", codec, "--layout", layout], &folder);
            assert_eq!((called.status, called.err.as_str()), (Some(0), ""), "{codec} {layout}");
            let report = called.json();
            // Rows without a codec save schemas alone, which is enough in short segments.
            let is_small = (codec, layout) != ("none", "row");
            for segment in report["segments"].as_array().unwrap() {
                let reason = segment["reason"].as_str().unwrap_or_default();
                let is_left = !is_small && reason.starts_with("compression saves too little");
                assert_eq!(segment["outcome"] == "compressed", !is_left, "{codec} {layout}: {report}");
                let path = Path::new(segment["path"].as_str().unwrap());
                assert_eq!(is_compressed(&rig, path), !is_left, "{codec} {layout}: {report}");
            }
            assert!(!is_small || number(&report["stored_bytes"]) < raw_bytes * 3 / 4, "{report}");
            assert_eq!(contents(&rig, &folder), before, "{codec} {layout}");
            assert_eq!(report["segments"].as_array().unwrap().len(), segments.len());
            let again = compress(&rig, &[], &folder).json();
            let is_left = |segment: &Value| segment["reason"] == "it is already compressed";
            assert!(!is_small || again["segments"].as_array().unwrap().iter().all(is_left), "{again}");
        }
    }
}

// Proves that a source can have its own compression, that `info` reports sizes by segment and
// source, and that a compressed file keeps mode and times.
#[test]
fn sizes_are_reported() {
    let rig = Rig::new();
    let segments = recorded(&rig, 2);
    let before: Vec<_> = segments.iter().map(|path| path.metadata().unwrap()).collect();
    let called = compress(&rig, &["--source", "synthetic=none/row"], &rig.data());
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
        (number(&source["compressed_raw_bytes"]), number(&source["compressed_stored_bytes"]))
    };
    let ((raw, stored), (_, cpu_stored)) = (of("synthetic"), of("cpu"));
    assert!(stored > raw / 5 && stored < raw && cpu_stored > 0, "{info}");
    let page = rig.call(&["info", "flatcap-data"]).text();
    assert!(page.contains("compressed: synthetic: ") && page.contains(" as recorded ("), "{page}");
}

// Proves that paths that are not its own are refused by name and left unchanged: each kind.
#[test]
fn compress_touches_only_its_own_files() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path("other")).unwrap();
    rig.write("notes.bin", "not a segment");
    let open = rig.write("0000000001-20260101T000000Z-00000000000000ab.bin.active", "");
    for (args, status, words) in [
        (&["compress"][..], 2, "no PATH is given"),
        (&["compress", "missing"], 1, "missing: No such file"),
        (&["compress", "other"], 1, "no segments in other"),
        (&["compress", "notes.bin"], 2, "not the name of a sealed segment"),
        (&["compress", open.to_str().unwrap()], 2, "this segment is still open"),
        (&["compress", "--codec", "gzip", "other"], 2, "is not a codec"),
        (&["compress", "--layout", "rows", "other"], 2, "is not a layout"),
        (&["compress", "--source", "cpu", "other"], 2, "is not NAME=CODEC/LAYOUT"),
        (&["compress", "--block-size", "1KiB", "other"], 2, "from 64KiB to 16MiB"),
    ] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(status), "{called:?}");
        assert!(called.err.contains(words), "{called:?}");
    }
    assert_eq!(std::fs::read_dir(rig.path("other")).unwrap().count(), 0, "not even a lock file");
    let segments = recorded(&rig, 2);
    let called = rig.call(&["compress", "--source", "cpus=lz4", "flatcap-data"]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("the nearest name is cpu; they have cgroup, cpu, "), "{called:?}");
    let recording = start(&rig, LOAD);
    eventually("a running recorder", || rig.segments("active").len() == 1);
    let called = rig.call(&["compress", segments[0].to_str().unwrap()]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("which compresses its sealed segments itself"), "{called:?}");
    recording.stop();
}

// Proves that a directory that is named several times, in several spellings, is compressed once.
#[test]
fn a_directory_named_twice_is_compressed_once() {
    let rig = Rig::new();
    let segments = recorded(&rig, 2);
    let one = segments[0].to_str().unwrap();
    let called = rig.call(&["compress", "--json", "flatcap-data", one, "./flatcap-data/"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let rows = called.json()["segments"].as_array().unwrap().len();
    assert_eq!(rows, segments.len(), "{called:?}");
    assert!(segments.iter().all(|path| is_compressed(&rig, path)));
}

// Proves that a damaged segment is left unchanged, reported with its offset, and sets status 3,
// while the others are compressed.
#[test]
fn damaged_segments_are_left_unchanged() {
    let rig = Rig::new();
    let segments = recorded(&rig, 3);
    let mut bytes = std::fs::read(&segments[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    std::fs::write(&segments[0], &bytes).unwrap();
    let called = rig.call(&["compress", "flatcap-data"]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(
        called.text().contains("it is damaged at offset") && called.text().contains("compressed: "),
        "{called:?}"
    );
    assert_eq!(std::fs::read(&segments[0]).unwrap(), bytes);
    assert!(segments[1..].iter().all(|path| is_compressed(&rig, path)));
}

// Proves that a damaged block costs its own frames and no others, for each tool. Method: one
// damaged byte in a file of small blocks; the frames that verify and dump still find.
#[test]
fn a_damaged_block_costs_its_own_frames() {
    let rig = Rig::new();
    let segments = recorded(&rig, 3);
    assert_eq!(compress(&rig, &["--block-size", "64KiB"], &rig.data()).status, Some(0));
    let intact = rig.verify();
    let lines = |called: &CallResult| called.lines().len();
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
    // Recovery seals it without them, like a segment that was never compressed.
    let called = rig.call(&["recover", segments[0].to_str().unwrap()]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert_eq!(rig.call(&["verify", "flatcap-data"]).status, Some(0), "lost frames are explained");
    assert_eq!(lines(&rig.call(&dump)), all - missing);
}

// Proves that a kill during compression costs nothing and that the next call completes it. Method:
// a slow codec, killed once it has begun; the contents before and after.
#[test]
fn a_kill_during_compression_costs_nothing() {
    let rig = Rig::new();
    recorded(&rig, 3);
    let before = contents(&rig, &rig.data());
    for name in ["INT", "KILL"] {
        let mut child = rig.start(&["compress", "--codec", "brotli:11", "flatcap-data"]);
        eventually("compression has begun", || {
            compressing_files(&rig.data()) == 1 || child.try_wait().unwrap().is_some()
        });
        if name == "KILL" {
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            signal(&child, name);
            let called = finish(child);
            assert_eq!(called.status, Some(1), "{called:?}");
            assert!(called.err.contains("stopped by a signal"), "{called:?}");
            assert_eq!(compressing_files(&rig.data()), 0, "no temporary file is left");
        }
        assert_eq!(contents(&rig, &rig.data()), before);
    }
    assert_eq!(compress(&rig, &[], &rig.data()).status, Some(0));
    assert_eq!(compressing_files(&rig.data()), 0);
    assert_eq!(contents(&rig, &rig.data()), before);
}

// Proves that no tool reads a left-over temporary file as a segment, and that the next start
// removes it.
#[test]
fn leftovers_are_not_segments() {
    let rig = Rig::new();
    let segments = recorded(&rig, 2);
    let beside = format!("{}.compressing", segments[0].display());
    std::fs::copy(&segments[0], &beside).unwrap();
    let count = |called: &CallResult| called.json()["segments"].as_array().unwrap().len();
    assert_eq!(count(&rig.call(&["info", "--json", "flatcap-data"])), segments.len());
    assert_eq!(rig.call(&["recover", "flatcap-data"]).status, Some(0));
    assert!(Path::new(&beside).exists(), "recovery does not remove it");
    assert_eq!(rig.verify()["intact"], true);
    let recording = start(&rig, &(LOAD.to_owned() + COMPRESS));
    recording.eventually("it is removed", || !Path::new(&beside).exists());
    recording.stop();
}

// Proves that a running recorder compresses its sealed segments and those of earlier runs, reports
// it, and loses nothing. Method: two runs; status, log, files and verification report.
#[test]
fn a_recorder_compresses_its_segments() {
    let rig = Rig::new();
    let former = recorded(&rig, 2);
    let recording = start(&rig, &(LOAD.to_owned() + COMPRESS));
    recording.eventually("earlier segments are compressed", || {
        former.iter().all(|path| is_compressed(&rig, path))
    });
    let own = || {
        sealed_segments(&rig).len() > former.len()
            && is_compressed(&rig, &sealed_segments(&rig)[former.len()])
    };
    recording.eventually("one of its own is compressed", own);
    // A file is replaced a moment before it is counted.
    let mut status = Value::Null;
    recording.eventually("all of them are counted", || {
        status = rig.call(&["status", "--json", "--socket", rig.socket().to_str().unwrap()]).json();
        number(&status["compression"]["segments"]) > former.len() as u64
    });
    let sealer = &status["compression"];
    assert!(
        number(&sealer["stored_bytes"]) < number(&sealer["raw_bytes"]) && number(&sealer["cpu_ns"]) > 0,
        "{status}"
    );
    assert_eq!((&sealer["enabled"], number(&sealer["failures"])), (&Value::from(true), 0), "{status}");
    let log = recording.stop();
    assert!(log.contains("a segment is compressed"), "{log}");
    let verify = rig.verify();
    assert_eq!((&verify["intact"], number(&verify["unexplained"])), (&Value::from(true), 0), "{verify}");
    assert_eq!(compressing_files(&rig.data()), 0);
}

// Proves that a reload turns compression on. Method: segments stay uncompressed while it is off.
#[test]
fn a_reload_enables_compression() {
    let rig = Rig::new();
    let recording = start(&rig, &(LOAD.to_owned() + "[compress]\nenabled = false\n"));
    eventually("segments are closed", || sealed_segments(&rig).len() > 1);
    assert!(!sealed_segments(&rig).iter().any(|path| is_compressed(&rig, path)));
    rig.write("own.toml", LOAD.to_owned() + COMPRESS);
    recording.signal("HUP");
    recording.eventually("they are compressed", || is_compressed(&rig, &sealed_segments(&rig)[1]));
    let log = recording.stop();
    assert!(log.contains("compress.enabled: false -> true"), "{log}");
}

// Proves that a reader of segments that are being compressed misses nothing and gets nothing twice.
// Method: `dump --follow` while a recorder compresses; the sequence numbers of its rows.
#[test]
fn a_follower_misses_nothing() {
    let rig = Rig::new();
    let recording = start(&rig, &(LOAD.to_owned() + COMPRESS));
    eventually("a segment", || has_segment(&rig.data(), 1));
    let rows = rig.path("rows");
    let output = std::fs::File::create(&rows).unwrap();
    let args = ["dump", "--follow", "--format", "jsonl", "--source", "synthetic", "flatcap-data"];
    let child = rig.command(&args).stdout(output).spawn().unwrap();
    let mut follower = Recording { rig: &rig, child: Some(child) };
    recording.eventually("three segments are compressed", || {
        let closed = sealed_segments(&rig);
        closed.len() >= 3 && closed[..3].iter().all(|path| is_compressed(&rig, path))
    });
    recording.stop();
    let all = rig.call(&["dump", "--format", "jsonl", "--source", "synthetic", "flatcap-data"]).text();
    let seen = || std::fs::read_to_string(&rows).unwrap();
    // Losses of a busy host are lines, too.
    eventually("all lines are shown", || seen().len() >= all.len());
    follower.signal("INT");
    finish(follower.child.take().unwrap());
    assert!(seen() == all, "the same lines in the same order, none twice");
}

// Proves that retention and compression together keep the quota and that no removed segment
// reappears. Method: a directory that is always full; counts of segments, report, and bytes used at
// the end.
#[test]
fn retention_works_beside_compression() {
    let rig = Rig::new();
    let limits = "segment_size = \"256KiB\"\nretain_bytes = \"4MiB\"";
    // Only this source, so that the descriptors are a small part of such short segments.
    let others = ["cpu", "memory", "vmstat", "load", "disk", "network", "pressure", "self"];
    let off: String = others.map(|name| format!("[source.{name}]\nenabled = false\n")).concat();
    let config = LOAD.replace("segment_age = \"1s\"", limits) + COMPRESS + &off;
    // It counts toward the quota and is never removed: little space is left for segments.
    std::fs::create_dir(rig.data()).unwrap();
    std::fs::write(rig.data().join("foreign"), vec![0; 3 << 20]).unwrap();
    let recording = start(&rig, &config);
    let log = || std::fs::read_to_string(rig.path("log")).unwrap();
    let count = |what: &str| log().matches(what).count();
    recording.eventually("segments are compressed", || count("a segment is compressed") > 3);
    recording.eventually("segments are removed", || count("removed the oldest file") > 3);
    recording.eventually("further segments are compressed", || count("a segment is compressed") > 6);
    let log = recording.stop();
    assert!(!log.contains(" ERROR "), "{log}");
    let verify = rig.verify();
    assert_eq!((&verify["intact"], number(&verify["unexplained"])), (&Value::from(true), 0), "{verify}");
    assert_eq!(compressing_files(&rig.data()), 0);
    let held: u64 = std::fs::read_dir(rig.data())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512)
        .sum();
    assert!(held <= 4 << 20, "{held}");
}

/// Compressed while recording, and not again afterwards.
const WHILE_RECORDING: &str = "[compress]\nenabled = false\nwhile_recording = \"zstd:1\"\n";

/// Returns the sequence numbers of a source's samples as dumped.
fn numbers(rig: &Rig) -> Vec<u64> {
    let called = rig.call(&["dump", "--format", "jsonl", "--source", "synthetic", "flatcap-data"]);
    assert_eq!(called.status, Some(0), "{}", called.err);
    called.lines().iter().map(|row| number(&row["seq"])).collect()
}

fn recorded_synthetic(rig: &Rig) -> u64 {
    let info = rig.info();
    let sources = info["sources"].as_array().unwrap();
    number(&sources.iter().find(|source| source["name"] == "synthetic").unwrap()["recorded"])
}

// Proves that a segment compressed while recording is complete at any time: while it grows, after
// kill -9 and after recovery in place. Method: numbers, totals and report at each stage, and sizes
// by source.
#[test]
fn a_kill_while_recording_compressed_costs_nothing() {
    let rig = Rig::new();
    let mut recording = start(&rig, &(LOAD.to_owned() + WHILE_RECORDING));
    eventually("a closed segment", || !sealed_segments(&rig).is_empty());
    eventually("samples", || numbers(&rig).len() > 500);
    let growing = numbers(&rig);
    assert!(growing.iter().copied().eq(0..growing.len() as u64) && growing.len() > 500, "{}", growing.len());
    let mut child = recording.child.take().unwrap();
    child.kill().unwrap();
    finish(child);
    let open = rig.segments("active");
    // One that was created just before the kill has no header yet.
    let has_header = |path: &&PathBuf| path.metadata().unwrap().len() > 0;
    assert!(open.iter().filter(has_header).all(|path| is_compressed(&rig, path)) && !open.is_empty());
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
    assert_eq!(recorded_synthetic(&rig), whole.len() as u64);
    assert!(rig.segments("active").is_empty());
    assert!(
        rig.segments("bin").iter().all(|path| is_compressed(&rig, path)),
        "recovered as compressed segments"
    );
    let info = rig.info();
    let of_sources: u64 = info["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| number(&source["compressed_raw_bytes"]))
        .sum();
    let raw_bytes = number(&info["raw_bytes"]);
    assert!(of_sources < raw_bytes && of_sources > raw_bytes / 2, "{of_sources} of {raw_bytes}: {info}");
    assert!(!rig.call(&["info", "flatcap-data"]).text().contains(missing));
}

// Proves that segments compressed while recording are smaller than raw ones, are compressed again
// in large blocks, once, and read the same. Method: each codec; contents and sizes before and
// after.
#[test]
fn segments_compressed_while_recording_are_compressed_again() {
    for active in ["none", "lz4", "zstd:1"] {
        let rig = Rig::new();
        let path = rig.write("load.toml", LOAD.to_owned() + &WHILE_RECORDING.replace("zstd:1", active));
        let is_enough = || sealed_segments(&rig).len() >= 2 && rig.has_samples(2);
        rig.record_until(&["--quiet", "--config", path.to_str().unwrap()], "two segments", is_enough);
        let sizes = |info: &Value| (number(&info["raw_bytes"]), number(&info["stored_bytes"]));
        let (before, first) = (contents(&rig, &rig.data()), sizes(&rig.info()));
        // Columns without a codec save nothing in blocks of some milliseconds.
        let most = if active == "none" { first.0 / 50 * 51 } else { first.0 / 2 };
        assert!(first.1 < most, "{active}: {first:?}");
        let segments = rig.segments("bin").len();
        let called = compress(&rig, &[], &rig.data());
        assert_eq!(called.status, Some(0), "{called:?}");
        let second = sizes(&rig.info());
        println!(
            "{active}: {segments} segments, {} bytes raw, {} while recording, {} compressed again",
            first.0, first.1, second.1
        );
        assert!(second.0 == first.0 && second.1 < first.1 / 10 * 9, "{active}: {first:?} {second:?}");
        assert!(contents(&rig, &rig.data()) == before, "{active}");
        compress(&rig, &[], &rig.data());
        assert_eq!(sizes(&rig.info()), second, "a second run does nothing");
    }
}

// Proves that a reload turns compression while recording on and off from the next segment on,
// without a missing sample.
#[test]
fn a_reload_compresses_the_next_segment() {
    let rig = Rig::new();
    let off = WHILE_RECORDING.replace("zstd:1", "off");
    let recording = start(&rig, &(LOAD.to_owned() + &off));
    for (config, packed) in [(WHILE_RECORDING, true), (&off, false)] {
        eventually("another segment", || has_segment(&rig.data(), 1));
        rig.write("own.toml", LOAD.to_owned() + config);
        recording.signal("HUP");
        eventually("a segment of the wanted form", || {
            let info = rig.info();
            let segments = info["segments"].as_array().unwrap();
            segments.iter().any(|segment| segment["state"] == "active" && segment["compressed"] == packed)
        });
    }
    recording.stop();
    let all = numbers(&rig);
    assert!(all.iter().copied().eq(0..all.len() as u64));
}
