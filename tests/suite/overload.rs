//! A recorder with a frozen disk: the samples that each policy of a full queue keeps and drops, and
//! the reports about them.

use std::path::Path;
use std::time::Duration;

use crate::control::has_thread;
use crate::rig::{CallResult, Rig, eventually, finish, has_segment, number, signal};
use crate::test_disk::TestDisk;

/// Time for which a disk stays frozen after a stop: longer than a group then waits for space.
const FREEZE_AFTER_STOP: Duration = Duration::from_millis(1500);

/// The result of a run with a frozen disk.
struct OverloadResult {
    called: CallResult,
    recorded: u64,
    lost: u64,
    causes: String,
}

/// Records at 50 us with a small memory and this policy, and freezes the disk for a while. Returns
/// none if no disk can be frozen.
fn overload(rig: &Rig, on_full: &str, stops_frozen: bool) -> Option<OverloadResult> {
    let disk = TestDisk::ext4(rig)?;
    let data = disk.path().join("data/records");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let config = rig.write(
        "overload.toml",
        format!(
            "[recorder]\nmemory_max = \"10MiB\"\n[storage]\nframe_max = \"64KiB\"\nsegment_size = \"32MiB\"\n\
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
    let frozen = disk.freeze();
    // The queue is full when its group drops slabs or waits.
    eventually("a full queue", || {
        rig.status().is_some_and(|status| {
            let group = &status["queues"]["groups"][0];
            number(&group["slabs_dropped"]) > 100 || number(&group["waited_ns"]) > 0
        })
    });
    if stops_frozen {
        signal(&child, "TERM");
        // The recorder waits for a second after the signal.
        std::thread::sleep(FREEZE_AFTER_STOP);
    }
    let recorded = || number(&rig.source("synthetic").unwrap()["recorded"]);
    let before = if stops_frozen { 0 } else { recorded() };
    drop(frozen);
    if !stops_frozen {
        eventually("recording continues", || recorded() > before + 1000);
        signal(&child, "TERM");
    }
    let called = finish(child);
    let verify = rig.call(&["verify", "--json", &text(&data)]).json();
    assert_eq!((verify["intact"].as_bool(), number(&verify["unexplained"])), (Some(true), 0), "{verify}");
    let (recorded, lost) = (number(&verify["frames"]), number(&verify["lost"]));
    // The counts of the run itself: begun minus recorded is lost.
    let row = called.err.lines().find(|line| line.trim_start().starts_with("synthetic ")).unwrap();
    let account: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(account[4..6], [recorded.to_string(), lost.to_string()], "{row}");
    let causes = verify["losses"].to_string();
    Some(OverloadResult { called, recorded, lost, causes })
}

// Proves that a stalled disk costs only the samples that the policy drops, all counted under their
// cause, and that recording continues. Method: a frozen ext4, a queue of a few MiB, both dropping
// policies.
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

// Proves that a group that waits loses nothing and reports how long it waited; it does not delay a
// stop, after which samples without space are counted as lost. Method: the disk thaws before or
// after the stop.
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

/// Returns one kind of a process's resident memory in KiB (`proc_pid_status(5)`).
fn resident(child: &std::process::Child, kind: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(kind)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

// Proves that all slabs are mapped after the start, used or not, and that memory does not grow
// after that. Method: the kernel's counts against the sum that `record` logs, and after thousands
// of samples.
#[test]
fn memory_is_mapped_at_the_start() {
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
    assert!(called.err.contains("buffers use 64.0 MiB of memory"), "{called:?}");
    assert!(grown < 512, "{grown} KiB more than at the start");
}
