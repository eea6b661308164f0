//! The black box: the ring has every sample, the data directory one per `disk_period`, and
//! snapshots are exact at both ends, whole or absent with a reason, whatever kills the recorder.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::independent_reader;
use crate::rig::{Process, Rig, eventually, number, signal};
use crate::test_disk::TestDisk;

/// Number of kills, unless `FLATCAP_KILLS` sets another.
const KILLS: u64 = 3;
/// Variable of a budget that never slows a source down, so that counts grow on a busy machine.
const BUDGET: &str = "FLATCAP_RECORDER__CPU_BUDGET";
const BLACKBOX: &str = "[blackbox]\nwindow = \"20s\"\ndisk_period = \"50ms\"\n";

fn start(rig: &Rig, more: &str) -> Process {
    let config = rig.write("flatcap.toml", format!("{BLACKBOX}{more}"));
    let log = std::fs::File::options().create(true).append(true).open(rig.path("record.log")).unwrap();
    let args = ["record", "--config", config.to_str().unwrap(), "--source", "synthetic@1ms", "--quiet"];
    let mut command = rig.command(&args);
    command.env(BUDGET, "1000%").stdout(log.try_clone().unwrap()).stderr(log);
    let child = command.spawn().unwrap();
    Process(Some(child))
}

fn log(rig: &Rig) -> String {
    std::fs::read_to_string(rig.path("record.log")).unwrap_or_default()
}

/// Returns what `verify` counts of a directory, which must be intact, as recorded, lost and thinned
/// samples of all sources.
fn verified(rig: &Rig, path: &Path) -> (u64, u64, u64) {
    let report = rig.call(&["verify", "--json", path.to_str().unwrap()]);
    let json = report.json();
    assert_eq!((&json["intact"], &json["unexplained"]), (&Value::Bool(true), &Value::from(0)), "{report:?}");
    (number(&json["frames"]), number(&json["lost"]), number(&json["thinned"]))
}

fn snapshots(rig: &Rig) -> Vec<Value> {
    let called = rig.call(&["snapshots", "--json"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    called.json().as_array().unwrap().clone()
}

/// Checks that each snapshot is intact and has the samples that the ring has of its window.
fn check_snapshots(rig: &Rig) {
    let all = samples(rig, &rig.data().join("ring"));
    // Numbers begin at 0 in the run after a kill, which may have begun within the window.
    let all = all.chunk_by(|one, next| one.0 < next.0).next().unwrap_or_default();
    for snapshot in snapshots(rig) {
        let path = rig.path(snapshot["path"].as_str().unwrap());
        let (recorded, _, _) = verified(rig, &path);
        assert!(recorded > 0, "{snapshot}");
        let record: Value =
            serde_json::from_slice(&std::fs::read(path.join("snapshot.json")).unwrap()).unwrap();
        let window = number(&record["window_mono_ns"][0])..=number(&record["window_mono_ns"][1]);
        let expected: Vec<_> = all.iter().copied().filter(|(_, at)| window.contains(at)).collect();
        assert_eq!(samples(rig, &path), expected, "{snapshot}");
    }
}

/// Returns the number and the monotonic time of each sample in a directory.
fn samples(rig: &Rig, path: &Path) -> Vec<(u64, u64)> {
    let replayed = rig.call(&["replay", path.to_str().unwrap(), "--source", "synthetic", "--speed", "max"]);
    assert!(matches!(replayed.status, Some(0 | 3)), "{replayed:?}");
    let payloads = independent_reader::payloads(&replayed.out).into_iter();
    let stamps = payloads.filter(|payload| &payload[4..8] == b"FCTF").map(|payload| {
        let frame = flatbuffers::root::<flatcap_format::schema::frame::TelemetryFrame<'_>>(payload).unwrap();
        (frame.header().seq(), frame.header().mono_ns())
    });
    stamps.collect()
}

fn begun(rig: &Rig) -> u64 {
    rig.source("synthetic").map_or(0, |source| number(&source["begun"]))
}

// Proves that the data directory has one sample per `disk_period` and the number of samples left
// out, that the ring has all samples, and that thinning alone does not count as a loss in any exit
// status.
#[test]
fn thinned_samples_are_counted_and_in_the_ring() {
    let rig = Rig::new();
    let process = start(&rig, "");
    eventually("samples", || begun(&rig) >= 2000);
    let status = rig.status().unwrap();
    assert_eq!(status["ring"]["window_s"].as_f64(), Some(20.0), "{status}");
    let ended = process.end("TERM");
    assert_eq!(ended.status, Some(0), "{}", log(&rig));
    let (recorded, lost, thinned) = verified(&rig, &rig.data());
    let (in_ring, lost_in_ring, thinned_in_ring) = verified(&rig, &rig.data().join("ring"));
    assert_eq!((lost, thinned_in_ring), (0, 0), "{}", log(&rig));
    assert_eq!(recorded + thinned, in_ring + lost_in_ring, "sampled");
    assert!(recorded >= 20 && thinned >= 10 * recorded, "{recorded} {thinned}");
    assert_eq!(rig.call(&["verify", "--strict", rig.data().to_str().unwrap()]).status, Some(0));
    let in_data = samples(&rig, &rig.data());
    assert!(in_data.windows(2).all(|two| two[0].1 / 50_000_000 != two[1].1 / 50_000_000), "one per interval");
}

// Proves that a snapshot has exactly the samples of its window, that overlapping orders become one,
// that SIGUSR2 keeps what the ring holds, and that they can be marked, shown and removed.
#[test]
fn snapshots_are_exact() {
    let rig = Rig::new();
    let process = start(&rig, "");
    eventually("samples", || begun(&rig) >= 3000);
    let late = rig.call(&["snapshot", "--last", "1s", "--after", "11m"]);
    assert!(late.status != Some(0) && late.err.contains("after may be 600 s at most"), "{late:?}");
    for reason in ["first of two", "second"] {
        let args = ["snapshot", "--last", "1s", "--after", "1s", "--reason", reason];
        let ordered = rig.call(&args);
        assert_eq!(ordered.status, Some(0), "{ordered:?}");
    }
    eventually("a snapshot", || snapshots(&rig).len() == 1);
    signal(process.0.as_ref().unwrap(), "USR2");
    eventually("another snapshot", || snapshots(&rig).len() == 2);
    assert_eq!(process.end("TERM").status, Some(0), "{}", log(&rig));
    check_snapshots(&rig);
    let [joined, by_signal] = &snapshots(&rig)[..] else { panic!("two") };
    let name = joined["name"].as_str().unwrap();
    assert!(name.ends_with("Z-first-of-two") && joined["complete"] == true, "{joined}");
    assert_eq!(by_signal["reason"], "signal");
    let shown = rig.call(&["snapshots", "show", name, "--dir", "flatcap-data"]);
    assert_eq!(shown.json()["orders"].as_array().unwrap().len(), 2, "{shown:?}");
    assert_eq!(rig.call(&["snapshots", "keep", name]).status, Some(0));
    assert_eq!(snapshots(&rig)[0]["kept"], true);
    assert_eq!(rig.call(&["snapshots", "remove", name]).status, Some(0));
    assert_eq!(snapshots(&rig).len(), 1);
    assert_eq!(rig.call(&["snapshots", "show", name]).status, Some(2));
    let path = by_signal["path"].as_str().unwrap();
    // The logs of this host, or why they are not there.
    let record = rig.call(&["snapshots", "show", by_signal["name"].as_str().unwrap()]).json();
    for log in record["logs"].as_array().unwrap() {
        let attached = log["attachment"].as_str();
        assert_eq!(attached.is_some(), log["error"].is_null(), "{log}");
        if let Some(name) = attached {
            assert_eq!(rig.call(&["info", "--attachment", name, path]).status, Some(0), "{log}");
        }
    }
    assert_eq!(record["logs"].as_array().unwrap().len(), 2, "{record}");
    let marks = rig.call(&["marks", path]);
    assert!(marks.text().contains("snapshot: signal"), "{marks:?}");
}

// Proves that a data directory that is none is an error, and one without snapshots is not.
#[test]
fn a_list_without_snapshots_says_so() {
    let rig = Rig::new();
    rig.write("file", "");
    for (place, form) in [("missing", &[][..]), ("missing", &["--json"]), ("file", &[])] {
        let called = rig.call(&[&["snapshots", "--dir", place], form].concat());
        assert_eq!((called.status, called.out.as_slice()), (Some(2), &b""[..]), "{called:?}");
        assert!(called.err.contains(&format!("{place} is no directory: ")), "{called:?}");
    }
    std::fs::create_dir(rig.data()).unwrap();
    let called = rig.call(&["snapshots"]);
    assert_eq!((called.status, called.out.as_slice()), (Some(0), &b""[..]), "{called:?}");
    assert!(called.err.contains("no snapshots in ./flatcap-data; flatcap snapshot"), "{called:?}");
    assert_eq!(rig.call(&["snapshots", "--json"]).out, b"[]\n");
}

// Proves that each firing of a rule keeps exactly the time around it, at full rate although the
// disk gets one sample in fifty, and is marked in the recording and in the snapshot.
#[test]
fn a_firing_keeps_the_time_around_it() {
    let rig = Rig::new();
    let rule = "[trigger.peak]\nwhen = \"synthetic.wave > 0.98\"\nfor = \"2ms\"\nbefore = \"20ms\"\nafter = \"10ms\"\n\
                hold_off = \"0s\"\nmax_per_day = 1000\nrun = [\"/bin/sh\", \"-c\", \"cat >> OUTPUT\"]\n\
                [source.synthetic]\nenabled = true\n";
    let output = rig.path("firings.jsonl");
    let process = start(&rig, &rule.replace("OUTPUT", output.to_str().unwrap()));
    eventually("samples", || begun(&rig) >= 10);
    eventually("two snapshots", || snapshots(&rig).len() >= 2);
    assert_eq!(process.end("TERM").status, Some(0), "{}", log(&rig));
    check_snapshots(&rig);
    let all = samples(&rig, &rig.data().join("ring"));
    let kept = snapshots(&rig);
    for snapshot in &kept {
        assert_eq!(snapshot["rule"], "peak", "{snapshot}");
        let path = rig.path(snapshot["path"].as_str().unwrap());
        let record: Value =
            serde_json::from_slice(&std::fs::read(path.join("snapshot.json")).unwrap()).unwrap();
        let window = [&record["window_mono_ns"][0], &record["window_mono_ns"][1]].map(number);
        let fired = number(&record["orders"][0]["fired_mono_ns"]);
        assert_eq!(window[0], fired - 20_000_000, "{record}");
        // Longer if it fired again within 10 ms, and shorter if the run ended before.
        assert!(window[1] >= fired + 10_000_000 || snapshot["complete"] == false, "{record}");
        assert!(all.iter().any(|(_, at)| *at == fired), "fired at a sample: {record}");
        let marks = rig.call(&["marks", path.to_str().unwrap()]);
        let text = marks.text();
        let fired = text.lines().filter(|line| line.contains("peak: synthetic.wave > 0.98 (0.9"));
        let mut times: Vec<_> = fired.map(|line| line.split_whitespace().next()).collect();
        let count = times.len();
        times.dedup();
        assert!(count > 0 && times.len() == count, "one mark for each firing: {text}");
    }
    // The program of the rule got each of them, with the path of the snapshot.
    let reported = || std::fs::read_to_string(&output).unwrap_or_default();
    eventually("reports of all snapshots", || reported().lines().count() >= kept.len());
    for line in reported().lines() {
        let report: Value = serde_json::from_str(line).unwrap();
        assert!(report["reason"].as_str().unwrap().contains("synthetic.wave > 0.98"), "{report}");
        let path = Path::new(report["snapshot"].as_str().unwrap());
        assert!(path.join("snapshot.json").exists(), "{report}");
    }
    let Value::Array(marks) = rig.call(&["marks", "--json"]).json() else { panic!("marks") };
    let fired = marks.iter().filter(|mark| mark["origin"] == "trigger").count();
    assert!(fired >= kept.len(), "{marks:?}");
}

// Proves that an order without a ring is refused, and says what to do.
#[test]
fn without_a_ring_there_is_no_snapshot() {
    let rig = Rig::new();
    let config = rig.write("flatcap.toml", "");
    let child: Child =
        rig.start(&["record", "--config", config.to_str().unwrap(), "--source", "synthetic@1ms", "--quiet"]);
    let process = Process(Some(child));
    eventually("samples", || begun(&rig) >= 10);
    let refused = rig.call(&["snapshot", "--last", "1s"]);
    assert!(refused.status == Some(1) && refused.err.contains("[blackbox] window"), "{refused:?}");
    assert!(rig.status().unwrap().get("ring").is_none());
    assert_eq!(process.end("TERM").status, Some(0));
    assert!(!rig.data().join("ring").exists() && !rig.data().join("snapshots").exists());
}

// Proves that a snapshot that was ordered before a kill at any moment is there after the next
// start, or the log says why not; that no number is twice or unexplained in it, in the ring or in
// the data directory; and that thinning leaves no number there that counts as lost.
#[test]
fn a_kill_loses_no_snapshot() {
    let kills = std::env::var("FLATCAP_KILLS").ok().map_or(KILLS, |kills| kills.parse().unwrap());
    for kill in 0..kills {
        let rig = Rig::new();
        let mut process = start(&rig, "");
        eventually("samples", || begun(&rig) >= 1500);
        let ordered = rig.call(&["snapshot", "--last", "1s", "--after", "300ms", "--reason", "kill"]);
        assert_eq!(ordered.status, Some(0), "{ordered:?}");
        // From the begin of the directory, over the end of the window, to after its publication.
        std::thread::sleep(Duration::from_millis(kill * 170 % 600));
        process.kill();
        let process = start(&rig, "");
        eventually("the snapshot, or why there is none", || {
            let reasons = ["snapshot of a killed run is lost", "it had no order yet"];
            snapshots(&rig).len() == 1 || reasons.iter().any(|reason| log(&rig).contains(reason))
        });
        eventually("the end of the recovery", || {
            rig.status().is_some_and(|status| status["recorder"]["recovering"] == false)
        });
        assert_eq!(process.end("TERM").status, Some(0), "{}", log(&rig));
        check_snapshots(&rig);
        let (_, lost, thinned) = verified(&rig, &rig.data());
        verified(&rig, &rig.data().join("ring"));
        // The sample that was being read at the kill.
        assert!(lost <= 1 && thinned > 0, "kill {kill}: {lost} {thinned}\n{}", log(&rig));
        let leftovers = std::fs::read_dir(rig.data().join("snapshots")).unwrap();
        let names: Vec<String> =
            leftovers.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(names.iter().all(|name| !name.ends_with(".partial")), "{names:?}");
    }
}

// Proves that `recover` uses the ring of a killed run as `record` does: no sample counts as lost
// that the ring has, and the ring itself is complete. Method: some kills at different times of the
// interval of the data directory.
#[test]
fn recover_uses_the_ring() {
    for kill in 0..KILLS {
        let rig = Rig::new();
        let mut process = start(&rig, "");
        eventually("samples", || begun(&rig) >= 1000);
        std::thread::sleep(Duration::from_millis(kill * 17));
        process.kill();
        let called = rig.call(&["recover", "--json", "flatcap-data"]);
        assert_eq!(called.status, Some(0), "{called:?}");
        let (_, lost, thinned) = verified(&rig, &rig.data());
        verified(&rig, &rig.data().join("ring"));
        // The sample that was being read at the kill.
        assert!(lost <= 1 && thinned > 0, "kill {kill}: {lost} {thinned}");
    }
}

// Proves that `info` omits unknown numbers, such as the missed ticks of a snapshot. The rate of a
// thinned recording is the rate of its samples. `status` counts the samples of the ring.
#[test]
fn unknown_numbers_are_absent() {
    let rig = Rig::new();
    let process = start(&rig, "");
    eventually("samples", || begun(&rig) >= 2000);
    let ordered = rig.call(&["snapshot", "--last", "1s"]);
    assert_eq!(ordered.status, Some(0), "{ordered:?}");
    eventually("a snapshot", || snapshots(&rig).len() == 1);
    let source = rig.source("synthetic").unwrap();
    let share = source["achieved_hz_run"].as_f64().unwrap() / source["requested_hz"].as_f64().unwrap();
    let sampled = ["recorded", "thinned"].iter().map(|key| number(&source[*key])).sum::<u64>();
    let ticks = number(&source["begun"]) + number(&source["missed"]);
    #[allow(clippy::cast_precision_loss, reason = "thousands")]
    let expected = sampled as f64 / ticks as f64;
    // The counters move while they are read.
    assert!((share - expected).abs() < 0.05 && share > 0.1, "{source}");
    assert_eq!(process.end("TERM").status, Some(0), "{}", log(&rig));
    let info = |path: &Path| {
        let called = rig.call(&["info", "--json", path.to_str().unwrap()]);
        called.json()["sources"][0].clone()
    };
    let thinned = info(&rig.data());
    assert!(thinned["missed"].is_u64() && thinned["lateness_ns"]["p50"].is_u64(), "{thinned}");
    let span = |source: &Value| number(&source["last_seq"]) - number(&source["first_seq"]);
    let least_hz = 1000.0 * 0.5 * f64::from(u32::try_from(number(&thinned["recorded"]) - 1).unwrap());
    let seqs = f64::from(u32::try_from(span(&thinned)).unwrap());
    let missed = f64::from(u32::try_from(number(&thinned["missed"])).unwrap());
    let achieved = thinned["achieved_hz"].as_f64().unwrap();
    assert!(achieved > least_hz / (seqs + missed), "{thinned}");
    let kept = info(&rig.path(snapshots(&rig)[0]["path"].as_str().unwrap()));
    assert!(kept["missed"].is_null() && kept["incomplete"].is_null(), "{kept}");
    assert!(kept["lateness_ns"]["max"].is_null() && kept["achieved_hz"].is_f64(), "{kept}");
}

// Proves that a ring on the disk is a directory of the data directory in place of a link, and that
// the next start after a kill keeps all that it has as a snapshot.
#[test]
fn a_ring_on_disk_is_kept_after_a_crash() {
    let rig = Rig::new();
    let process = start(&rig, "");
    eventually("samples", || begun(&rig) >= 10);
    assert_eq!(process.end("TERM").status, Some(0), "{}", log(&rig));
    assert!(std::fs::symlink_metadata(rig.data().join("ring")).unwrap().is_symlink());
    let mut process = start(&rig, "window_on_disk = true\n");
    eventually("samples", || begun(&rig) >= 1500);
    assert!(std::fs::symlink_metadata(rig.data().join("ring")).unwrap().is_dir());
    process.kill();
    let process = start(&rig, "window_on_disk = true\n");
    eventually("a snapshot", || snapshots(&rig).len() == 1);
    assert_eq!(process.end("TERM").status, Some(0), "{}", log(&rig));
    let all = snapshots(&rig);
    assert!(all[0]["name"].as_str().unwrap().ends_with("-crash") && all[0]["complete"] == true, "{all:?}");
    check_snapshots(&rig);
    let (recorded, lost, _) = verified(&rig, Path::new(&rig.path(all[0]["path"].as_str().unwrap())));
    assert!(recorded >= 1400 && lost <= 1, "{recorded} {lost}");
}

// Proves that a ring on the disk holds its window where less is free than the default of
// `min_free`: that is for the data directory to keep.
#[test]
fn a_ring_on_disk_needs_no_free_space() {
    let rig = Rig::new();
    let Some(disk) = TestDisk::tmpfs(&rig, 128 << 20) else { return };
    // 5 % would be 6.4 MiB.
    let filler = std::fs::File::create(disk.path().join("filler")).unwrap();
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, 123 << 20).unwrap();
    let config = format!("{BLACKBOX}window_on_disk = true\n[storage]\npreallocate = \"0\"\n");
    let process = start_in(&rig, &config, &disk.path().join("data"));
    // A segment is sealed after 5 s, and only then can it be removed.
    eventually("a ring of two segments", || {
        rig.status().is_some_and(|status| number(&status["ring"]["held_s"]) >= 7)
    });
    assert_eq!(process.end("TERM").status, Some(0), "{}", log(&rig));
}

// Proves that a ring with too little memory is shorter and says so, and harms no recording.
#[test]
fn a_small_ring_is_short() {
    let rig = Rig::new();
    let small = "memory_max = \"4MiB\"\n[source.synthetic]\nshape = \"wide\"\npayload = \"2KiB\"\n";
    let process = start(&rig, small);
    eventually("a full ring", || {
        let status = rig.status();
        status.is_some_and(|status| number(&status["ring"]["recorded"]) > 4000)
    });
    let status = rig.status().unwrap();
    let held = &status["ring"];
    // While a segment is compressed, it is there twice: a sixteenth of the ring.
    assert!(number(&held["bytes"]) <= number(&held["bytes_max"]) / 16 * 17, "{held}");
    assert_eq!(process.end("TERM").status, Some(0), "{}", log(&rig));
    let (_, lost, _) = verified(&rig, &rig.data());
    assert_eq!(lost, 0, "{}", log(&rig));
}

fn start_in(rig: &Rig, config: &str, data: &Path) -> Process {
    let config = rig.write("flatcap.toml", config);
    let log = std::fs::File::options().create(true).append(true).open(rig.path("record.log")).unwrap();
    let args = ["record", "--config", config.to_str().unwrap(), "--source", "synthetic", "--quiet"];
    let data = ["--data-dir", data.to_str().unwrap()];
    let mut command = rig.command(&[&args[..], &data].concat());
    command.env(BUDGET, "1000%").stdout(log.try_clone().unwrap()).stderr(log);
    let child = command.spawn().unwrap();
    Process(Some(child))
}

fn in_ring(rig: &Rig) -> u64 {
    rig.status().map_or(0, |status| number(&status["ring"]["recorded"]))
}

// Proves that a disk that stalls costs the ring nothing: its recorder does not wait for the other.
#[test]
fn a_stalled_disk_does_not_reach_the_ring() {
    let rig = Rig::new();
    let Some(disk) = TestDisk::ext4(&rig) else { return };
    let data = disk.path().join("data");
    let process = start_in(&rig, BLACKBOX, &data);
    eventually("samples", || in_ring(&rig) >= 1000);
    let frozen = disk.freeze();
    let before = in_ring(&rig);
    eventually("samples while the disk is frozen", || in_ring(&rig) >= before + 3000);
    drop(frozen);
    let of_ring = std::fs::read_link(data.join("ring")).unwrap();
    let ended = process.end("TERM");
    assert!(matches!(ended.status, Some(0 | 3)), "{}", log(&rig));
    let (recorded, lost, _) = verified(&rig, &of_ring);
    assert!(recorded >= 4000 && lost == 0, "{recorded} {lost}\n{}", log(&rig));
    verified(&rig, &data);
}

// Proves that a full tmpfs shortens the ring, is reported, and costs the data directory nothing.
#[test]
fn a_full_tmpfs_does_not_reach_the_disk() {
    let rig = Rig::new();
    let Some(disk) = TestDisk::tmpfs(&rig, 12 << 20) else { return };
    let run_dir = disk.path().join("run");
    let wide = "[source.synthetic]\nperiod = \"1ms\"\nshape = \"wide\"\nfields = 200\n";
    let config = format!("[recorder]\nrun_dir = \"{}\"\n{BLACKBOX}{wide}", run_dir.display());
    let process = start_in(&rig, &config, &rig.data());
    eventually("samples", || in_ring(&rig) >= 1000);
    // Another program takes what is left.
    let mut filler = std::fs::File::create(disk.path().join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    eventually("a shorter ring, or one that reports losses", || {
        let status = rig.status();
        status.is_some_and(|status| {
            let in_memory = &status["ring"];
            let run_s = number(&status["recorder"]["uptime_ns"]) / 1_000_000_000;
            // The last part allows for whole seconds.
            number(&in_memory["lost"]) + number(&in_memory["storage_errors"]) > 0
                || number(&in_memory["held_s"]) + 3 < run_s.min(20)
        })
    });
    let before = begun(&rig);
    eventually("more samples", || begun(&rig) >= before + 2000);
    assert_eq!(process.end("TERM").status, Some(0), "{}", log(&rig));
    let (recorded, lost, thinned) = verified(&rig, &rig.data());
    assert!(lost == 0 && recorded > 0 && thinned > 0, "{recorded} {lost} {thinned}\n{}", log(&rig));
}

// Proves that with the tmpfs and the disk both full the samplers go on, that the ring and the
// directory report what they lack, and that the snapshot of before stays whole.
#[test]
fn both_full_keep_what_was_kept() {
    let rig = Rig::new();
    let Some(disk) = TestDisk::tmpfs(&rig, 24 << 20) else { return };
    let (run_dir, data) = (disk.path().join("run"), disk.path().join("data"));
    let wide = "[source.synthetic]\nperiod = \"1ms\"\nshape = \"wide\"\nfields = 200\n";
    let config = format!("[recorder]\nrun_dir = \"{}\"\n{BLACKBOX}{wide}", run_dir.display());
    let process = start_in(&rig, &config, &data);
    eventually("samples", || in_ring(&rig) >= 1000);
    let ordered = rig.call(&["snapshot", "--last", "500ms"]);
    assert_eq!(ordered.status, Some(0), "{ordered:?}");
    let listed = || rig.call(&["snapshots", "--json", "--dir", data.to_str().unwrap()]).json();
    eventually("the snapshot", || listed().as_array().is_some_and(|all| all.len() == 1));
    // The ring and the directory are on it, both.
    let mut filler = std::fs::File::create(disk.path().join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    let before = begun(&rig);
    eventually("more samples", || begun(&rig) >= before + 5000);
    let ended = process.end("TERM");
    assert!(matches!(ended.status, Some(0 | 1 | 3)), "{}", log(&rig));
    let all = listed();
    let path = all[0]["path"].as_str().unwrap();
    let (recorded, _, _) = verified(&rig, &rig.path(path));
    assert!(recorded > 0 && all[0]["complete"] == true, "{all}");
    verified(&rig, &data);
    verified(&rig, &std::fs::read_link(data.join("ring")).unwrap());
}
