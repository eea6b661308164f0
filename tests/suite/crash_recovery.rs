//! Recovery after kill -9 at any moment: no finished sample is missing, and every sample that was
//! begun is recorded or explained.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_format::schema::frame::TelemetryFrame;
use flatcap_os::clock::monotonic_ns;
use flatcap_sampling::sources::synthetic::{point, value};
use flatcap_schemas::synthetic::Point;
use flatcap_slab::CrashedRun;
use serde_json::Value;

use crate::independent_reader;
use crate::rig::{Rig, eventually, finish, has_segment, number};

/// Number of kills, unless `FLATCAP_KILLS` sets another.
const KILLS: u64 = 5;
/// Few slabs per second, so that most samples are still in memory at the kill; and several
/// segments.
const SLOW: &str = "[buffering]\nflush_interval = \"300ms\"\npoll_interval = \"400ms\"\n[storage]\nsegment_size = \"256KiB\"\n";

/// Returns the settings for a kill, in turns: slabs are queued late or at once, into raw and into
/// compressed segments.
fn settings(kill: u64) -> String {
    let buffering = if kill.is_multiple_of(2) { SLOW } else { "" };
    let compression = if kill % 4 < 2 { "" } else { "[compress]\nwhile_recording = \"zstd:1\"\n" };
    format!("{buffering}{compression}")
}

/// A killed run.
struct KilledRun {
    run_id: String,
    /// Samples that it had begun according to its status, just before the kill.
    begun: u64,
}

/// The moment of a kill: some time after the first segment, once a count of the status is high
/// enough.
struct KillTime {
    after: Duration,
    count: &'static str,
    least: u64,
}

/// Starts a recorder with its own run directory, and kills it.
fn record_and_kill(rig: &Rig, run_dir: &Path, settings: &str, when: &KillTime) -> KilledRun {
    let text = format!("[recorder]\nrun_dir = \"{}\"\n{settings}", run_dir.display());
    let config = rig.write("flatcap.toml", text);
    let config = config.to_str().unwrap();
    let mut child = rig.start(&["record", "--config", config, "--source", "synthetic@100us", "--quiet"]);
    eventually("the first segment", || has_segment(&rig.data(), 1) && files(run_dir).len() == 1);
    let count = |key: &str| rig.source("synthetic").map_or(0, |source| number(&source[key]));
    std::thread::sleep(when.after);
    eventually("samples", || count(when.count) >= when.least);
    let begun = count("begun");
    child.kill().unwrap();
    let called = finish(child);
    assert_eq!(called.status, None, "{called:?}");
    let left = files(run_dir);
    assert_eq!(left.len(), 1, "the memory of the killed run: {left:?}");
    KilledRun { run_id: left[0].file_stem().unwrap().to_str().unwrap().to_owned(), begun }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

/// Checks every value of a run and the order of its numbers, over all of its segments. Returns the
/// number of samples and the next sequence number.
fn check_run(rig: &Rig, run_id: &str) -> (u64, u64) {
    let (mut count, mut next_seq) = (0, 0);
    for path in rig.segments("bin") {
        if !path.to_str().unwrap().contains(run_id) {
            continue;
        }
        // A compressed segment replays as its original frames.
        let replayed = rig.call(&["replay", path.to_str().unwrap(), "--speed", "max"]);
        assert_eq!(replayed.status, Some(0), "{}", replayed.err);
        for payload in independent_reader::payloads(&replayed.out) {
            if &payload[4..8] == b"FCTF" {
                assert!(checked_seq(payload) >= next_seq, "once, and in order");
                next_seq = checked_seq(payload) + 1;
                count += 1;
            }
        }
    }
    (count, next_seq)
}

// Proves that kill -9 at any moment loses at most the sample in progress, and that all values are
// right. Method: a recorder at 10 kHz, random moments, slabs queued late or at once, raw and
// compressed segments; recovery by the next `record` and by `recover` in turns.
#[test]
fn a_kill_takes_nothing_that_was_finished() {
    let kills = std::env::var("FLATCAP_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let seed = monotonic_ns();
    let (mut rescued, mut compressed) = (0, 0);
    for kill in 0..kills {
        let rig = Rig::new();
        let memory = tempfile::Builder::new().prefix("flatcap-test-").tempdir_in("/dev/shm").unwrap();
        let (run_dir, settings) = (memory.path(), settings(kill));
        let after = Duration::from_micros(1 + value(seed, kill, 0) % 700_000);
        let when = KillTime { after, count: "begun", least: 0 };
        let killed = record_and_kill(&rig, run_dir, &settings, &when);
        let what = format!("kill {kill} of seed {seed}, after {after:?}");
        let open = rig.segments("active").pop().map(|path| std::fs::read(path).unwrap());
        compressed += u64::from(open.is_some_and(|bytes| bytes.windows(4).any(|at| at == b"FCBK")));

        let run_dir_text = run_dir.to_str().unwrap();
        let would = rig.call(&["recover", "--dry-run", "--json", "--run-dir", run_dir_text, "flatcap-data"]);
        assert_eq!(files(run_dir).len(), 1, "{what}: read, not changed: {would:?}");
        if kill % 3 == 0 {
            let args = ["record", "--config", "flatcap.toml", "--source", "load@10ms", "--for", "300ms"];
            let called = rig.call(&args);
            assert_eq!(called.status, Some(0), "{what}: {called:?}");
        } else {
            let called = rig.call(&["recover", "--json", "--run-dir", run_dir_text, "flatcap-data"]);
            assert_eq!(called.status, Some(0), "{what}: {called:?}");
            let found = called.json();
            assert!(number(&found["lost"]) <= 1, "{what}: {found}");
            rescued += number(&found["from_memory"]);
        }
        assert_eq!(files(run_dir), Vec::<PathBuf>::new(), "{what}: recovered memory is removed");
        assert_eq!(rig.segments("active"), Vec::<PathBuf>::new(), "{what}");

        let verified = rig.verify();
        assert_eq!(
            (&verified["intact"], &verified["unexplained"]),
            (&true.into(), &0.into()),
            "{what}: {verified}"
        );
        let lost = number(&verified["lost"]);
        assert!(lost <= 1, "{what}: all but the sample in progress: {verified}");
        let (count, next_seq) = check_run(&rig, &killed.run_id);
        assert!(next_seq.abs_diff(count) <= lost, "{what}: {count} samples up to {next_seq}");
        assert!(count + lost >= killed.begun, "{what}: {count} samples and {lost} lost of {}", killed.begun);
    }
    assert!(rescued > 0 || kills < 3, "some samples were only in memory");
    assert!(compressed > 0 || kills < 50, "an open segment contained blocks");
}

// Proves that recovery of a segment by name includes the memory of its run, and that memory that an
// earlier recovery did not find is kept and recovered later. Method: two run directories.
#[test]
fn recovery_by_name_includes_the_memory() {
    let rig = Rig::new();
    let memory = tempfile::Builder::new().prefix("flatcap-test-").tempdir_in("/dev/shm").unwrap();
    let (run_dir, elsewhere) = (memory.path().join("own"), memory.path().join("elsewhere"));
    std::fs::create_dir(&run_dir).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    let recover = |place: &Path, path: &Path| {
        let args = ["recover", "--json", "--run-dir", place.to_str().unwrap(), path.to_str().unwrap()];
        let called = rig.call(&args);
        assert_eq!(called.status, Some(0), "{called:?}");
        (number(&called.json()["from_memory"]), number(&called.json()["lost"]))
    };
    let when = KillTime { after: Duration::from_millis(350), count: "begun", least: 1 };
    for place in [&run_dir, &elsewhere] {
        record_and_kill(&rig, &run_dir, SLOW, &when);
        let active = rig.segments("active").pop().unwrap();
        let (mut rescued, mut lost) = recover(place, &active);
        if place == &elsewhere {
            assert_eq!((rescued, files(&run_dir).len()), (0, 1), "kept: it was not found");
            (rescued, lost) = recover(&run_dir, &rig.data());
        }
        assert!(rescued > 0 && lost <= 1, "{rescued} rescued, {lost} lost");
        assert_eq!(files(&run_dir), Vec::<PathBuf>::new(), "recovered memory is removed");
        let verified = rig.verify();
        assert_eq!((&verified["intact"], &verified["unexplained"]), (&true.into(), &0.into()), "{verified}");
    }
}

// Proves that recorders can share a run directory, and that recovery removes only the memory of its
// own run. Method: two recorders are killed, a third continues; each is recovered.
#[test]
fn a_run_directory_is_shared() {
    let memory = tempfile::Builder::new().prefix("flatcap-test-").tempdir_in("/dev/shm").unwrap();
    let run_dir = memory.path();
    let own = |name: &str| {
        let path = run_dir.join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let (first, second, third) = (Rig::new(), Rig::new(), Rig::new());
    let when = KillTime { after: Duration::from_millis(100), count: "begun", least: 1 };
    let (a, b) = (own("a"), own("b"));
    for (rig, place) in [(&first, &a), (&second, &b)] {
        let killed = record_and_kill(rig, place, SLOW, &when);
        let name = format!("{}.slabs", killed.run_id);
        std::fs::rename(place.join(&name), run_dir.join(&name)).unwrap();
        std::fs::remove_dir(place).unwrap();
    }
    let text = format!("[recorder]\nrun_dir = \"{}\"\n", run_dir.display());
    let config = third.write("flatcap.toml", text);
    let live = third.start(&["record", "--config", config.to_str().unwrap(), "--source", "load@10ms"]);
    eventually("the third run", || files(run_dir).len() == 3);
    let args = ["recover", "--json", "--run-dir", run_dir.to_str().unwrap(), "flatcap-data"];
    let called = first.call(&args);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(number(&called.json()["from_memory"]) > 0, "{called:?}");
    assert_eq!(files(run_dir).len(), 2, "the second run's and the third's stay");
    let called = second.call(&args);
    assert!(number(&called.json()["from_memory"]) > 0, "{called:?}");
    crate::rig::signal(&live, "TERM");
    let called = finish(live);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(files(run_dir).len(), 0, "a run that ends cleanly leaves nothing");
    assert_eq!(third.verify()["intact"], Value::from(true));
}

// Proves that a run without a usable run directory still records and warns once, and that `recover`
// fails on a missing run directory before it seals anything.
#[test]
fn a_missing_run_directory_is_reported() {
    let rig = Rig::new();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    rig.write("flatcap.toml", format!("[recorder]\nrun_dir = \"{}\"\n", disk.path().display()));
    let called = rig.record(&["--config", "flatcap.toml", "--for", "100ms", "--source", "load@10ms"]);
    assert_eq!(called.err.matches("if this process is killed").count(), 1, "{called:?}");
    assert_eq!(rig.verify()["intact"], Value::from(true));
    let called = rig.call(&["recover", "--run-dir", "/nonexistent/flatcap", "flatcap-data"]);
    assert_ne!(called.status, Some(0), "{called:?}");
    assert!(called.err.contains("/nonexistent/flatcap"), "{called:?}");
}

fn identity(folder: &Path) -> (u64, u64) {
    let metadata = std::fs::metadata(folder).unwrap();
    (metadata.dev(), metadata.ino())
}

/// Returns the number of a synthetic sample after checking its values.
fn checked_seq(payload: &[u8]) -> u64 {
    let frame = flatbuffers::root::<TelemetryFrame<'_>>(payload).unwrap();
    let seq = frame.header().seq();
    let found = flatbuffers::root::<Point<'_>>(frame.payload().bytes()).unwrap();
    let expected = point(0, seq);
    assert_eq!((found.counter(), found.noise()), (expected.counter, expected.noise));
    assert_eq!(found.wave().to_bits(), expected.wave.to_bits());
    seq
}

/// Returns the numbers of the samples in unsealed segments, up to the last whole frame of each.
fn seqs_in_segments(paths: &[PathBuf]) -> BTreeSet<u64> {
    let mut seqs = BTreeSet::new();
    for bytes in paths.iter().map(|path| std::fs::read(path).unwrap()) {
        let mut rest = bytes.as_slice();
        while let Some((head, after_head)) = rest.split_at_checked(12) {
            let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
            let Some((payload, after_frame)) = after_head.split_at_checked(length) else { break };
            if &payload[4..8] == b"FCTF" {
                seqs.insert(checked_seq(payload));
            }
            rest = after_frame;
        }
    }
    seqs
}

// Proves that, before any recovery, each finished frame is in a segment or in the memory, and that
// the begun count is exact up to the sample in progress. Method: the library, every number and
// value.
#[test]
fn segments_and_memory_contain_every_finished_frame() {
    let rig = Rig::new();
    let memory = tempfile::Builder::new().prefix("flatcap-test-").tempdir_in("/dev/shm").unwrap();
    let when = KillTime { after: Duration::from_millis(500), count: "recorded", least: 1 };
    let killed = record_and_kill(&rig, memory.path(), SLOW, &when);
    let mut crashed = CrashedRun::find(memory.path(), identity(&rig.data()), None).unwrap();
    let rescue = crashed.pop().unwrap();
    let kept: Vec<u64> = rescue.frames().unwrap().iter().map(|frame| checked_seq(&frame[12..])).collect();
    assert!(kept.is_sorted() && !kept.is_empty());
    let mut all = seqs_in_segments(&[rig.segments("active"), rig.segments("bin")].concat());
    assert!(!all.is_empty());
    all.extend(kept);
    let finished = all.len() as u64;
    assert_eq!(all.last(), Some(&(finished - 1)), "no hole");
    let begun = rescue.begun().unwrap()[&0];
    assert!((finished..=finished + 1).contains(&begun), "{begun} begun, {finished} finished");
    assert!(begun >= killed.begun, "{begun} begun, {} of them before the kill", killed.begun);
}

// Proves that a run that cannot begin leaves no memory behind, since restarts in a loop would fill
// tmpfs. Method: a data directory whose segment numbers are used up.
#[test]
fn a_failed_start_leaves_nothing() {
    let rig = Rig::new();
    let memory = tempfile::Builder::new().prefix("flatcap-test-").tempdir_in("/dev/shm").unwrap();
    std::fs::create_dir(rig.data()).unwrap();
    rig.write("flatcap-data/9999999999-20260101T000000Z-0000000000000001.bin", "");
    rig.write("flatcap.toml", format!("[recorder]\nrun_dir = \"{}\"\n", memory.path().display()));
    let called = rig.call(&["record", "--config", "flatcap.toml", "--for", "50ms"]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert_eq!(files(memory.path()).len(), 0, "{called:?}");
}

// Proves that a segment that was created just before a kill, and is empty, is no damage to a
// reader: nothing was in it.
#[test]
fn a_segment_created_just_before_a_kill_costs_nothing() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "synthetic"], 20);
    let dump = || rig.call(&["dump", "--format", "jsonl", "flatcap-data"]);
    let before = dump();
    let [sealed] = &rig.segments("bin")[..] else { panic!("one segment") };
    let name = sealed.file_name().unwrap().to_str().unwrap();
    let next = name.replacen("0000000001-", "0000000002-", 1) + ".active";
    std::fs::write(rig.data().join(next), "").unwrap();
    assert_eq!((rig.segments("active").len(), before.status), (1, Some(0)));
    let after = dump();
    assert_eq!((after.status, &after.err), (Some(0), &before.err));
    assert_eq!(after.text(), before.text());
}
