//! What the scheduler and the memory manager are asked for: that it is really so, and what is said where it is refused.

use std::process::{Child, Stdio};
use std::time::Duration;

use crate::rig::{Rig, eventually, finish, has_segment, signal};

const CONFIG: &str = "[agent]\nlock_memory = true\n\
    [group.fast]\ntiming = \"spin\"\npriority = 3\ncpus = [CPU]\n\
    [group.blocking]\npriority = 2\ncpus = [CPU]\n\
    [source.synthetic]\nenabled = true\nperiod = \"10ms\"\n\
    [source.file.load]\npath = \"/proc/loadavg\"\nformat = \"regex\"\npattern = '^(\\S+)'\nperiod = \"10ms\"\n";

/// An account without rights.
const NOBODY: u32 = 65_534;

/// The first processor that this test may run on.
fn first_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split([',', '-']).next().unwrap().to_owned()
}

/// Starts a recording that asks for all of it, and waits until it records.
fn start(rig: &Rig, uid: u32) -> Child {
    let config = rig.write("asks.toml", CONFIG.replace("CPU", &first_cpu()));
    let mut command = rig.command_as(uid, &["record", "--config", config.to_str().unwrap(), "--for", "60s"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("frames on disk", || has_segment(&rig.data(), 300 << 10));
    child
}

/// Of each thread: its name, its real-time priority and policy, the processors that it may run on.
fn threads(child: &Child) -> Vec<(String, String, String, String)> {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let mut threads: Vec<_> = tasks
        .map(|task| {
            let task = task.unwrap().path();
            let stat = read(task.join("stat"));
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            let field = |number: usize| fields.split(' ').nth(number - 3).unwrap().to_owned();
            let status = read(task.join("status"));
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
            (read(task.join("comm")).trim().to_owned(), field(40), field(41), cpus.trim().to_owned())
        })
        .collect();
    threads.sort();
    threads
}

/// Locked memory, in KiB.
fn locked(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

// Goal: what is asked for is so, and only for those it is asked for. Method: policy, priority, processors and locked memory as /proc
// shows them while root records: the groups' threads have their priority, the reader of a blocking source their processors alone.
#[test]
fn root_gets_what_it_asks_for() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let rig = Rig::new();
    let child = start(&rig, 0);
    eventually("locked memory", || locked(&child) > 0);
    let (cpu, all) = (first_cpu(), threads(&child));
    let seen = |name: &str| {
        let (_, priority, policy, cpus) = all.iter().find(|thread| thread.0 == name).unwrap();
        (priority.as_str(), policy.as_str(), cpus.clone())
    };
    // A container may have every right but this one: then there is a warning, which the other test is about.
    let may_run_first = seen("sampler-fast").1 == "1";
    if may_run_first {
        assert_eq!(seen("sampler-fast"), ("3", "1", cpu.clone()), "SCHED_FIFO is 1");
        assert_eq!(seen("sampler-blockin"), ("2", "1", cpu.clone()));
    }
    assert_eq!(seen("read-file.load"), ("0", "0", cpu));
    let everywhere = seen("recorder").2;
    assert_eq!(
        (seen("recorder"), seen("sampler-slow")),
        (("0", "0", everywhere.clone()), ("0", "0", everywhere))
    );
    signal(&child, "TERM");
    let called = finish(child);
    assert_eq!((called.status, called.err.contains("priority = ")), (Some(0), !may_run_first), "{called:?}");
    assert!(!called.err.contains("lock_memory") && !called.err.contains("cpus = "), "{called:?}");
}

// Goal: without the rights everything is recorded, and each key that had no effect is named once, with what to do. Method: the same
// configuration as nobody, whose limits are those of any account; and as root with a processor that no host has.
#[test]
fn an_account_without_rights_is_told() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let rig = Rig::new();
    let child = start(&rig, NOBODY);
    assert_eq!(locked(&child), 0);
    // SCHED_BATCH is 3 and SCHED_IDLE 5: neither takes a right.
    let policy = |name: &str| match name {
        "sealer" | "compress" => "3",
        "compress-idle" => "5",
        _ => "0",
    };
    let threads = threads(&child);
    assert!(threads.iter().all(|thread| thread.1 == "0" && thread.2 == policy(&thread.0)), "{threads:?}");
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "TERM");
    let called = finish(child);
    assert_eq!(called.status, Some(0), "{called:?}");
    for (words, advice) in [
        ("[agent] lock_memory = true: the kernel refuses", "LimitMEMLOCK=infinity"),
        ("[group.fast] priority = 3: the kernel refuses", "LimitRTPRIO=3"),
        ("[group.blocking] priority = 2: the kernel refuses", "LimitRTPRIO=2"),
    ] {
        let lines: Vec<&str> = called.err.lines().filter(|line| line.contains(words)).collect();
        assert!(lines.len() == 1 && lines[0].contains(advice), "{words}: {called:?}");
        assert!(lines[0].contains("error="), "what the kernel said: {lines:?}");
    }
    assert!(!called.err.contains("cpus = "), "this takes no right: {called:?}");
}

// Goal: processors that are not there do not stop a recording. Method: one of two is not there, and the only one.
#[test]
fn absent_processors_are_named() {
    let cpu = first_cpu();
    for (cpus, said) in [
        (format!("[{cpu}, 1023]"), format!("cpus = [{cpu}, 1023]: the kernel leaves out [1023]")),
        ("[1023]".to_owned(), "cpus = [1023]: the kernel refuses".to_owned()),
    ] {
        let rig = Rig::new();
        let text =
            format!("[group.fast]\ncpus = {cpus}\n[source.synthetic]\nenabled = true\nperiod = \"1ms\"\n");
        let config = rig.write("cpus.toml", text);
        let called = rig.record(&["--config", config.to_str().unwrap(), "--for", "100ms"]);
        assert_eq!(called.err.matches("[group.fast] cpus = ").count(), 1, "{called:?}");
        assert!(called.err.contains(&said), "{called:?}");
    }
}
