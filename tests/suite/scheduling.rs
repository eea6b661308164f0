//! The source `sched`: what the kernel says of context switches is in the files, whole and in
//! order, and in the ring alone if it is armed.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;

use flatcap_format::schema::frame::TelemetryFrame;
use flatcap_os::thread::pin_to_cpus;
use flatcap_tasks::schema::{Sched, Switch, TaskEvent, Wakeup};

use crate::independent_reader;
use crate::rig::{Process, Rig, eventually, memory_for_rings, number};

/// Variables of budgets that never stop the source, so that counts grow on a busy machine.
const BUDGETS: [(&str, &str); 2] =
    [("FLATCAP_RECORDER__CPU_BUDGET", "1000%"), ("FLATCAP_SOURCE__SCHED__BUDGET", "100%")];
/// Exchanges of two threads.
const EXCHANGES: u64 = 2_000;

/// Tests of recordings of context switches.
#[derive(Debug, Default)]
struct RecordedSwitches {
    samples: u64,
    /// Switches from a thread that waits, by thread id.
    waits: HashMap<u32, u64>,
    names: HashMap<u32, String>,
    wakeups: HashMap<u32, u64>,
    has_wakeups: bool,
    lost: u64,
}

/// Starts a recorder of this source. `None` if this host refuses context switches.
fn start(rig: &Rig, config: &str) -> Option<Process> {
    let config = rig.write("flatcap.toml", config);
    let log = std::fs::File::create(rig.path("record.log")).unwrap();
    let args = ["record", "--config", config.to_str().unwrap(), "--source", "sched@10ms", "--quiet"];
    let mut command = rig.command(&args);
    command.envs(BUDGETS).envs([memory_for_rings()]).stdout(log.try_clone().unwrap()).stderr(log);
    let mut process = Process(Some(command.spawn().unwrap()));
    let mut has_ended = false;
    eventually("samples", || {
        has_ended = process.0.as_mut().unwrap().try_wait().unwrap().is_some();
        has_ended || begun(rig) >= 5
    });
    if has_ended {
        let log = std::fs::read_to_string(rig.path("record.log")).unwrap();
        assert!(log.contains("sched"), "{log}");
        println!("skipped: no context switches here: {}", log.trim());
        return None;
    }
    Some(process)
}

fn begun(rig: &Rig) -> u64 {
    rig.source("sched").map_or(0, |source| number(&source["begun"]))
}

/// Returns how often the calling thread has waited, as the kernel counts it.
fn waits() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// Exchanges bytes between two threads on one CPU. Returns id and number of waits of each.
fn exchange_bytes() -> [(u32, u64); 2] {
    let (from_one, to_two) = std::io::pipe().unwrap();
    let (from_two, to_one) = std::io::pipe().unwrap();
    let run = |name: &str, mut from: std::io::PipeReader, mut to: std::io::PipeWriter, is_first: bool| {
        let body = move || {
            assert!(pin_to_cpus(&[0]).unwrap().is_empty());
            let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let before = waits();
            for _ in 0..EXCHANGES {
                if is_first {
                    to.write_all(b"x").unwrap();
                }
                from.read_exact(&mut [0]).unwrap();
                if !is_first {
                    to.write_all(b"x").unwrap();
                }
            }
            (thread, waits() - before)
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(body).unwrap()
    };
    let one = run("exchange-one", from_two, to_two, true);
    let two = run("exchange-two", from_one, to_one, false);
    [one.join().unwrap(), two.join().unwrap()]
}

/// Reads all samples of a directory. Asserts that they follow each other, that times rise within
/// them, and that each index is valid.
fn read(rig: &Rig, path: &Path) -> RecordedSwitches {
    let replayed = rig.call(&["replay", path.to_str().unwrap(), "--source", "sched", "--speed", "max"]);
    assert!(matches!(replayed.status, Some(0 | 3)), "{replayed:?}");
    let mut all = RecordedSwitches::default();
    let mut last: Option<(u64, u64, u64)> = None; // number, end and lost of the last sample
    let payloads = independent_reader::payloads(&replayed.out).into_iter();
    for frame in payloads.filter(|payload| &payload[4..8] == b"FCTF") {
        let frame = flatbuffers::root::<TelemetryFrame<'_>>(frame).unwrap();
        let sched = flatbuffers::root::<Sched<'_>>(frame.payload().bytes()).unwrap();
        let (begin, end, seq) = (sched.begin(), sched.end(), frame.header().seq());
        assert!(begin <= end);
        let mut lost_before = 0;
        if let Some((last_seq, last_end, lost)) = last {
            assert!(seq != last_seq + 1 || begin == last_end, "sample {seq}");
            assert!(sched.lost() >= lost);
            lost_before = lost;
        }
        // The kernel of a sandbox hides threads, and so switches between them.
        let mut missing = sched.lost() - lost_before;
        last = Some((seq, end, sched.lost()));
        all.samples += 1;
        (all.lost, all.has_wakeups) = (sched.lost(), sched.has_wakeups());
        assert!(!sched.is_stopped() && sched.stopped() == 0);
        let threads = sched.threads();
        let thread = |index: u16| {
            assert!(usize::from(index) < threads.len(), "thread {index} of {}", threads.len());
            threads.get(usize::from(index)).thread()
        };
        assert_eq!(thread(0), 0);
        for thread in threads {
            let name = thread.name().into_iter().take_while(|byte| *byte != 0).map(char::from).collect();
            all.names.insert(thread.thread(), name);
        }
        let times = |times: &mut dyn Iterator<Item = u64>| {
            let times: Vec<u64> = times.collect();
            assert!(times.is_sorted() && times.iter().all(|time| (begin..end).contains(time)));
        };
        times(&mut sched.switches().iter().map(Switch::time));
        times(&mut sched.wakeups().iter().map(Wakeup::time));
        times(&mut sched.events().iter().map(TaskEvent::time));
        let mut running: HashMap<u16, u32> =
            sched.running().iter().map(|running| (running.cpu(), thread(running.thread()))).collect();
        for switch in sched.switches() {
            let (previous, next) = (thread(switch.previous()), thread(switch.next()));
            let before = running.insert(switch.cpu(), next);
            if before.is_some_and(|before| before != previous) {
                let name = &all.names[&previous];
                assert!(missing > 0, "sample {seq}: {before:?} runs, {previous} stops: {switch:?} {name}");
                missing -= 1;
            }
            *all.waits.entry(previous).or_default() += u64::from(!switch.preempted());
        }
        for wakeup in sched.wakeups() {
            thread(wakeup.waker());
            *all.wakeups.entry(thread(wakeup.thread())).or_default() += 1;
        }
        for event in sched.events() {
            thread(event.thread());
        }
    }
    all
}

/// Asserts that a recording has each wait of these threads, with their names.
fn assert_has(switches: &RecordedSwitches, threads: &[(u32, u64); 2]) {
    for ((thread, waits), name) in threads.iter().zip(["exchange-one", "exchange-two"]) {
        let recorded = switches.waits.get(thread).copied().unwrap_or_default();
        // On a busy machine a thread often finds its byte there already.
        assert!(*waits > EXCHANGES / 20, "{threads:?}");
        assert!(recorded + switches.lost >= *waits, "{recorded} of {waits}, lost {}", switches.lost);
        assert_eq!(switches.names[thread], name);
        if switches.has_wakeups {
            let woken = switches.wakeups.get(thread).copied().unwrap_or_default();
            assert!(woken + switches.lost >= *waits, "{woken} of {waits}, lost {}", switches.lost);
        }
    }
}

// Proves that a recording has each switch that two threads count of themselves, that samples follow
// each other without a gap, and that each sample begun is recorded. Two threads exchange bytes on
// one CPU at the same time.
#[test]
fn each_switch_is_recorded() {
    let rig = Rig::new();
    let Some(process) = start(&rig, "") else { return };
    let threads = exchange_bytes();
    let begun_then = begun(&rig);
    eventually("more samples", || begun(&rig) >= begun_then + 20);
    let ended = process.end("TERM");
    assert_eq!(ended.status, Some(0), "{}", std::fs::read_to_string(rig.path("record.log")).unwrap());
    let report = rig.verify();
    assert_eq!((number(&report["lost"]), number(&report["unexplained"])), (0, 0), "{report}");
    let switches = read(&rig, &rig.data());
    assert_eq!(switches.samples, number(&report["frames"]));
    assert_has(&switches, &threads);
}

// Proves that an armed source is in the ring and not in the data directory, which counts its
// samples as thinned, and that without a ring it is refused with what to do.
#[test]
fn an_armed_source_is_in_the_ring() {
    let rig = Rig::new();
    let armed = "[source.sched]\nmode = \"armed\"\n";
    let config = rig.write("armed.toml", armed);
    let refused = rig.call(&["record", "--config", config.to_str().unwrap(), "--source", "sched"]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(
        refused.err.contains("[source.sched] mode: needs the ring; set [blackbox] window"),
        "{refused:?}"
    );
    let Some(process) = start(&rig, &format!("{armed}[blackbox]\nwindow = \"60s\"\n")) else { return };
    let threads = exchange_bytes();
    let begun_then = begun(&rig);
    eventually("more samples", || begun(&rig) >= begun_then + 20);
    assert_eq!(process.end("TERM").status, Some(0));
    let report = rig.verify();
    let (recorded, lost) = (number(&report["frames"]), number(&report["lost"]));
    assert_eq!((recorded, lost), (0, 0), "{report}");
    let switches = read(&rig, &rig.data().join("ring"));
    assert_eq!(switches.samples, number(&report["thinned"]), "{report}");
    assert_has(&switches, &threads);
}

// Proves that with a ring a source of batches is in the data directory whole, not one sample of
// each `disk_period`.
#[test]
fn batches_are_not_thinned() {
    let rig = Rig::new();
    let Some(process) = start(&rig, "[blackbox]\nwindow = \"60s\"\ndisk_period = \"1s\"\n") else { return };
    let begun_then = begun(&rig);
    eventually("more samples", || begun(&rig) >= begun_then + 50);
    assert_eq!(process.end("TERM").status, Some(0));
    let report = rig.verify();
    let counts = ["thinned", "lost"].map(|key| number(&report[key]));
    assert_eq!(counts, [0, 0], "{report}");
    assert_eq!(read(&rig, &rig.data()).samples, number(&report["frames"]));
}
