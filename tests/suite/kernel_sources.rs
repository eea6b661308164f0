//! Tests of the kernel's sources: the code that runs, and the log.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::rig::{CallResult, Process, Rig, memory_for_rings, number};

/// Records a source for two seconds. None if this host does not allow it.
fn record(rig: &Rig, source: &str) -> Option<()> {
    let mut command = rig.command(&["record", "--source", source, "--for", "2s"]);
    let called = CallResult::from(command.envs([memory_for_rings()]).output().unwrap());
    if called.status != Some(0) {
        assert!(called.err.contains("CAP_") || called.err.contains("perf_event_open"), "{called:?}");
        println!("skipped: {}", called.err.trim());
        return None;
    }
    Some(())
}

fn rows(rig: &Rig, source: &str) -> Vec<Value> {
    rig.call(&["dump", "--source", source, "--format", "jsonl"]).lines()
}

fn indexed<'v>(list: &'v Value, index: &Value) -> &'v Value {
    &list[usize::try_from(number(index)).unwrap()]
}

// Proves that a recording says which code of a busy process ran: its executable is in a call chain
// of its thread, and nothing was lost.
#[test]
fn the_code_of_a_busy_process_is_recorded() {
    let rig = Rig::new();
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", "echo; while :; do :; done"]).stdout(Stdio::piped());
    let mut busy = Process(Some(shell.spawn().unwrap()));
    let child = busy.0.as_mut().unwrap();
    // When it has written, it runs its own program.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let pid = u64::from(child.id());
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let recorded = record(&rig, "profile");
    busy.kill();
    if recorded.is_none() {
        return;
    }
    let mut chains = 0;
    for row in rows(&rig, "profile") {
        let data = &row["data"];
        for sample in data["samples"].as_array().unwrap() {
            let stack = indexed(&data["stacks"], &sample["stack"]);
            let runs_program = stack["frames"].as_array().unwrap().iter().any(|frame| {
                let frame = indexed(&data["frames"], frame);
                indexed(&data["objects"], &frame["object"])["path"] == program.to_str().unwrap()
            });
            let thread = indexed(&data["threads"], &sample["thread"]);
            chains += u64::from(runs_program && thread["process"] == pid);
        }
        assert_eq!(data["lost"], 0);
    }
    assert!(chains > 0);
}

// Proves that a recording has a line of the kernel log that was written during it, once, and no
// earlier lines.
#[test]
fn lines_of_the_kernel_log_are_recorded() {
    let rig = Rig::new();
    let Ok(mut log) = std::fs::OpenOptions::new().write(true).open("/dev/kmsg") else {
        return println!("skipped: /dev/kmsg cannot be written");
    };
    let mark = |when: &str| format!("flatcap: a test of process {} writes {when}", std::process::id());
    let mut write = |when: &str| log.write_all(format!("<5>{}\n", mark(when)).as_bytes()).unwrap();
    write("before");
    let mut has_written = false;
    let called = rig.record_until(&["--source", "kmsg@10ms"], "samples after the line", || {
        if !rig.has_samples(1) {
            return false;
        }
        if !has_written {
            write("meanwhile");
            has_written = true;
        }
        // Later ones than at the time of writing.
        rig.has_samples(200)
    });
    assert_eq!(called.status, Some(0), "{called:?}");
    let rows = rows(&rig, "kmsg");
    let lines: Vec<&Value> = rows.iter().flat_map(|row| row["data"]["lines"].as_array().unwrap()).collect();
    let count = |when: &str| lines.iter().filter(|line| line["text"] == mark(when)).count();
    assert_eq!((count("before"), count("meanwhile")), (0, 1), "{lines:?}");
    let line = lines.iter().find(|line| line["text"] == mark("meanwhile")).unwrap();
    assert_eq!((number(&line["priority"]), number(&line["facility"])), (5, 1));
}
