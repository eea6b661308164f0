//! Following a recording in progress: every sample appears promptly, once, and without a false
//! alarm.

use std::io::{BufRead, BufReader};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use crate::rig::{Process, Rig, eventually, has_segment, number};

const CONFIG: &str = "[source.synthetic]\nenabled = true\n\
                      period = \"1ms\"\nshape = \"wide\"\nfields = 40\n";

/// A row of the output.
struct Row {
    seq: u64,
    first_of_run: bool,
}

/// Both ways of recording: uncompressed, and compressed while recording.
const COMPRESSION_MODES: [&str; 2] = ["off", "zstd:1"];

fn record(rig: &Rig, active: &str) -> Process {
    record_into(rig, active, "256KiB")
}

fn record_into(rig: &Rig, active: &str, segment_size: &str) -> Process {
    let storage =
        format!("[storage]\nsegment_size = \"{segment_size}\"\n[compress]\nwhile_recording = \"{active}\"\n");
    let config = rig.write("follow.toml", storage + CONFIG);
    let args = ["record", "--quiet", "--config", config.to_str().unwrap(), "--source", "synthetic"];
    Process(Some(rig.start(&args)))
}

/// Follows the default directory.
fn follow(rig: &Rig) -> (Process, Receiver<Row>) {
    let mut child = rig.start(&["dump", "--follow", "--format", "jsonl", "flatcap-data"]);
    let (sender, rows) = channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    std::thread::spawn(move || {
        for line in lines {
            let row: Value = serde_json::from_str(&line.unwrap()).unwrap();
            // A busy machine adds markers and gaps.
            let Some(seq) = row["seq"].as_u64() else { continue };
            if sender.send(Row { seq, first_of_run: seq == 0 }).is_err() {
                return;
            }
        }
    });
    (Process(Some(child)), rows)
}

// Proves that a sample is shown while its segment is still open. Method: one long segment; all
// samples begun at three moments are shown before it is closed.
#[test]
fn a_follower_sees_an_open_segment() {
    for active in COMPRESSION_MODES {
        let rig = Rig::new();
        let recorder = record_into(&rig, active, "64MiB");
        eventually("samples", || rig.has_samples(1));
        let (follower, rows) = follow(&rig);
        let mut last = None;
        for _ in 0..3 {
            let begun = number(&rig.source("synthetic").unwrap()["begun"]);
            eventually("all begun samples", || {
                last = rows.try_iter().map(|row| row.seq).last().or(last);
                last.is_some_and(|last| last + 1 >= begun)
            });
        }
        assert_eq!((rig.segments("bin").len(), rig.segments("active").len()), (0, 1));
        assert_eq!(recorder.end("TERM").status, Some(0));
        assert_eq!(follower.end("TERM").status, Some(0));
    }
}

// Proves that a follower ends by itself once the wanted time has passed, with every sample of that
// time. Method: compares the rows with a later dump without --follow.
#[test]
fn a_follower_ends_after_the_wanted_time() {
    let rig = Rig::new();
    let recorder = record(&rig, "off");
    eventually("samples", || rig.has_samples(100));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let until = format!("@{}.{:09}", now.as_secs(), now.subsec_nanos());
    let dump = ["dump", "--format", "jsonl", "flatcap-data", "--until", &until];
    let followed = rig.call_within(&[&dump[..], &["--follow"]].concat(), crate::rig::WATCHDOG);
    assert_eq!((followed.status, followed.err.as_str()), (Some(0), ""));
    assert_eq!(recorder.end("TERM").status, Some(0));
    let all = rig.call(&dump).text();
    assert!(all.lines().count() >= 100 && followed.text() == all);
}

// Proves that a follower sees every sample once, in order, across rotations, with nothing on
// standard error. Method: a run of many small segments; sequence numbers.
#[test]
fn a_follower_sees_everything_once() {
    for active in COMPRESSION_MODES {
        follower_sees_everything_once(active);
    }
}

fn follower_sees_everything_once(active: &str) {
    let rig = Rig::new();
    let recorder = record(&rig, active);
    eventually("frames on disk", || has_segment(&rig.data(), 1));
    let (follower, rows) = follow(&rig);
    eventually("six segments", || rig.segments("bin").len() >= 6);
    // A whole replay of the files, while they grow.
    let replayed = rig.call(&["replay", "--speed", "max", "flatcap-data"]);
    assert_eq!((replayed.status, replayed.err.as_str()), (Some(0), ""));
    let called = recorder.end("TERM");
    assert_eq!((called.status, called.err.as_str()), (Some(0), ""));
    let count = number(&rig.info()["sources"][0]["recorded"]);
    let mut seen: Vec<Row> = Vec::new();
    eventually("every sample", || {
        seen.extend(rows.try_iter());
        seen.len() as u64 >= count
    });
    let called = follower.end("TERM");
    assert_eq!((called.status, called.err.as_str()), (Some(0), ""), "no notice");
    seen.extend(rows.iter());
    assert!(seen.iter().map(|row| row.seq).eq(0..count), "each once, in order");
}

// Proves the same when the recorder is killed and restarted: samples that the next run recovers
// from memory are seen too. Method: kill -9 twice; sequence numbers against the final files.
#[test]
fn a_follower_outlives_its_recorder() {
    for active in COMPRESSION_MODES {
        follower_outlives_recorder(active);
    }
}

fn follower_outlives_recorder(active: &str) {
    let rig = Rig::new();
    let mut recorder = record(&rig, active);
    eventually("frames on disk", || has_segment(&rig.data(), 1));
    let (follower, rows) = follow(&rig);
    for run in 1..=2 {
        eventually("samples of the run", || rig.has_samples(700));
        recorder.kill();
        std::thread::sleep(Duration::from_millis(200 * (run - 1)));
        recorder = record(&rig, active);
    }
    eventually("samples of the last run", || rig.has_samples(700));
    let called = recorder.end("TERM");
    assert_eq!(called.status, Some(0), "{called:?}");
    let verify = rig.verify();
    assert_eq!(
        (&verify["intact"], &verify["unexplained"]),
        (&Value::from(true), &Value::from(0)),
        "{verify}"
    );
    let sources = rig.info()["sources"].clone();
    let count: u64 = sources.as_array().unwrap().iter().map(|source| number(&source["recorded"])).sum();
    let expected: Vec<u64> = rig
        .call(&["dump", "--format", "jsonl", "flatcap-data"])
        .lines()
        .iter()
        .map(|row| number(&row["seq"]))
        .collect();
    assert_eq!(expected.len() as u64, count);
    let mut seen: Vec<Row> = Vec::new();
    eventually("as many samples", || {
        seen.extend(rows.try_iter());
        seen.len() >= expected.len()
    });
    let called = follower.end("TERM");
    seen.extend(rows.iter());
    let differ = seen.iter().zip(&expected).position(|(row, seq)| row.seq != *seq);
    if let Some(at) = differ {
        let around = at.saturating_sub(3)..at + 5;
        let rows = seen.get(around.clone()).unwrap().iter().map(|row| row.seq).collect::<Vec<_>>();
        println!("{} of {}, from {at} on: {rows:?} for {:?}", seen.len(), expected.len(), &expected[around]);
    }
    assert!(seen.iter().map(|row| row.seq).eq(expected.iter().copied()), "each once, in order");
    assert_eq!(seen.iter().filter(|row| row.first_of_run).count(), 3, "three runs");
    assert_eq!((called.status, called.err.as_str()), (Some(0), ""), "no notice");
}
