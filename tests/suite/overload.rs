//! A recorder whose storage stands still: what each policy of a full queue keeps, gives up, and says of it.

use std::path::Path;
use std::time::Duration;

use crate::control::has_thread;
use crate::medium::Medium;
use crate::rig::{Called, Rig, eventually, finish, has_segment, number, signal};

/// How long a disk stays frozen after a stop: longer than a group waits for room then.
const WAITED: Duration = Duration::from_millis(1500);

/// What a run under a frozen disk has come to.
struct Outcome {
    called: Called,
    recorded: u64,
    lost: u64,
    causes: String,
}

/// Records at 50 us into a small memory by this policy, and freezes the disk for a while. None where no disk can be frozen.
fn overload(rig: &Rig, on_full: &str, stops_frozen: bool) -> Option<Outcome> {
    let medium = Medium::ext4(rig)?;
    let data = medium.path().join("data/records");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let config = rig.write(
        "overload.toml",
        format!(
            "[agent]\nmemory_max = \"10MiB\"\n[storage]\nframe_max = \"64KiB\"\nsegment_size = \"32MiB\"\n\
             [group.fast]\non_full = \"{on_full}\"\n\
             [source.synthetic]\nperiod = \"50us\"\nshape = \"wide\"\nfields = 200\nbudget = \"100%\"\n"
        ),
    );
    let child = rig.start(&[
        "record",
        "--config",
        &text(&config),
        "--source",
        "synthetic",
        "--data-dir",
        &text(&data),
    ]);
    eventually("some data", || has_segment(&data, 1 << 20));
    let frozen = medium.freeze();
    // The queue is full when its group gives slabs up, or waits.
    eventually("a full queue", || {
        rig.status().is_some_and(|status| {
            let group = &status["queues"]["groups"][0];
            number(&group["slabs_dropped"]) > 100 || number(&group["waited_ns"]) > 0
        })
    });
    if stops_frozen {
        signal(&child, "TERM");
        // It waits for a second after that.
        std::thread::sleep(WAITED);
    }
    let recorded = || number(&rig.source("synthetic").unwrap()["recorded"]);
    let before = if stops_frozen { 0 } else { recorded() };
    drop(frozen);
    if !stops_frozen {
        eventually("recording goes on", || recorded() > before + 1000);
        signal(&child, "TERM");
    }
    let called = finish(child);
    let verify = rig.call(&["verify", "--json", &text(&data)]).json();
    assert_eq!((verify["intact"].as_bool(), number(&verify["unexplained"])), (Some(true), 0), "{verify}");
    let (recorded, lost) = (number(&verify["frames"]), number(&verify["lost"]));
    // The run's own account: begun minus recorded is lost.
    let row = called.err.lines().find(|line| line.trim_start().starts_with("synthetic ")).unwrap();
    let account: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(account[4..6], [recorded.to_string(), lost.to_string()], "{row}");
    let causes = verify["losses"].to_string();
    Some(Outcome { called, recorded, lost, causes })
}

// Goal: a stalled disk costs what the policy gives up, counted to the last reading and named by its cause; then recording goes on.
// Method: a frozen ext4 and a queue of a few MiB, by both policies that drop.
#[test]
fn a_stalled_disk_costs_what_the_policy_drops() {
    for on_full in ["drop-newest", "drop-oldest"] {
        let rig = Rig::new();
        let Some(outcome) = overload(&rig, on_full, false) else { return };
        assert_eq!(outcome.called.status, Some(3), "{:?}", outcome.called);
        assert!(outcome.recorded > 1000 && outcome.lost > 1000, "{} {}", outcome.recorded, outcome.lost);
        assert!(outcome.causes.contains("queue_full"), "{}", outcome.causes);
        assert!(!outcome.causes.contains("pool_empty"), "{}", outcome.causes);
        assert!(!outcome.called.err.contains("waited"), "{:?}", outcome.called);
    }
}

// Goal: a group that waits loses nothing and says how long it waited; a stop is not held up by it, and then what found no room is
// lost and counted. Method: the same disk, thawed before the stop, and behind it.
#[test]
fn a_stalled_disk_is_waited_for() {
    let rig = Rig::new();
    let Some(outcome) = overload(&rig, "block", false) else { return };
    assert_eq!((outcome.called.status, outcome.lost), (Some(0), 0), "{:?}", outcome.called);
    assert!(outcome.called.err.contains("group fast: waited "), "{:?}", outcome.called);
    let rig = Rig::new();
    let Some(outcome) = overload(&rig, "block", true) else { return };
    assert_eq!(outcome.called.status, Some(3), "{:?}", outcome.called);
    assert!(outcome.lost > 0 && outcome.causes.contains("queue_full"), "{} {}", outcome.lost, outcome.causes);
}

/// What the kernel says of a process's resident memory, in KiB: of this kind (`proc_pid_status(5)`).
fn resident(child: &std::process::Child, kind: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(kind)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

// Goal: all slabs are taken into memory after the start, touched or not, and nothing grows after that. Method: a source that fills a few
// of them; the kernel's counts against the sum that `record` states, and again after some thousand samples.
#[test]
fn memory_is_taken_at_the_start() {
    let rig = Rig::new();
    let child = rig.start(&["record", "--source", "synthetic@1ms"]);
    eventually("a segment", || has_segment(&rig.data(), 1));
    // 64 MiB, of which 6 are lists and histograms.
    let is_taken = || resident(&child, "RssShmem") > 50 << 10 && !has_thread(&child, "map-slabs");
    eventually("all slabs in memory", is_taken);
    eventually("a status and samples", || rig.has_samples(500));
    let before = resident(&child, "VmRSS");
    eventually("more samples", || rig.has_samples(3000));
    let grown = resident(&child, "VmRSS").saturating_sub(before);
    signal(&child, "TERM");
    let called = finish(child);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(called.err.contains("buffers take 63.9 MiB of memory"), "{called:?}");
    assert!(grown < 512, "{grown} KiB more than at the start");
}
