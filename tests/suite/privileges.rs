//! Scheduling and memory locking: requests take effect, and refusals are reported.

use std::process::{Child, Stdio};

use crate::rig::{CallResult, Rig, eventually, finish, signal};

const CONFIG: &str = "[recorder]\nlock_memory = true\n\
    [group.fast]\ntiming = \"spin\"\npriority = 3\ncpus = [CPU]\n\
    [group.blocking]\npriority = 2\ncpus = [CPU]\n\
    [source.synthetic]\nenabled = true\nperiod = \"10ms\"\n\
    [source.file.load]\npath = \"/proc/loadavg\"\nformat = \"regex\"\npattern = '^(\\S+)'\nperiod = \"10ms\"\n";

/// An account without privileges.
const NOBODY: u32 = 65_534;

/// Returns the first CPU that this test may run on.
fn first_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split([',', '-']).next().unwrap().to_owned()
}

/// Starts a recording with all requests, and waits until it records.
fn start(rig: &Rig, uid: u32) -> Child {
    let config = rig.write("asks.toml", CONFIG.replace("CPU", &first_cpu()));
    let mut command = rig.command_as(uid, &["record", "--config", config.to_str().unwrap(), "--for", "60s"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Each thread makes its requests before its first tick.
    eventually("samples of each source", || rig.has_samples(2));
    child
}

/// Returns for each thread: name, real-time priority, policy, and the CPUs it may run on.
fn threads(child: &Child) -> Vec<(String, String, String, String)> {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).ok();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    // Threads that end in the meantime are skipped.
    let mut threads: Vec<_> = tasks
        .filter_map(|task| {
            let task = task.unwrap().path();
            let stat = read(task.join("stat"))?;
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            let field = |number: usize| fields.split(' ').nth(number - 3).unwrap().to_owned();
            let status = read(task.join("status"))?;
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
            Some((read(task.join("comm"))?.trim().to_owned(), field(40), field(41), cpus.trim().to_owned()))
        })
        .collect();
    threads.sort();
    threads
}

/// Returns the locked memory in KiB.
fn locked(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns whether a recorder has ended as it should. On a busy machine, a read of the blocking
/// source may time out, and the recorder then reports the lost sample by its status.
fn is_recorded(called: &CallResult) -> bool {
    matches!(called.status, Some(0 | 3))
}

// Proves that each request takes effect for its threads only. Method: policy, priority, CPUs and
// locked memory in /proc while root records; a reader of a blocking source has its group's CPUs
// alone.
#[test]
fn requests_of_root_take_effect() {
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
    // A container may lack only this privilege; the warning is tested below.
    let may_run_first = seen("sampler-fast").1 == "1";
    if may_run_first {
        assert_eq!(seen("sampler-fast"), ("3", "1", cpu.clone()), "SCHED_FIFO is 1");
        assert_eq!(seen("sampler-blockin"), ("2", "1", cpu.clone()));
    }
    assert_eq!(seen("read-file.load"), ("0", "0", cpu));
    let everywhere = seen("recorder").2;
    assert_eq!(seen("recorder"), ("0", "0", everywhere.clone()));
    let by_default = if may_run_first { ("1", "1", everywhere) } else { ("0", "0", everywhere) };
    assert_eq!(seen("sampler-slow"), by_default);
    signal(&child, "TERM");
    let called = finish(child);
    assert!(is_recorded(&called), "{called:?}");
    assert_eq!(called.err.contains("priority = "), !may_run_first, "{called:?}");
    assert!(!called.err.contains("lock_memory") && !called.err.contains("cpus = "), "{called:?}");
}

// Proves that everything is recorded without privileges, and that each key without effect is named
// once with a remedy. Method: the same configuration as an unprivileged account.
#[test]
fn missing_privileges_are_reported() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let rig = Rig::new();
    let child = start(&rig, NOBODY);
    assert_eq!(locked(&child), 0);
    // SCHED_FIFO is 1 and SCHED_RR 2; lower policies (SCHED_BATCH, SCHED_IDLE) need no privilege.
    let threads = threads(&child);
    let is_real_time = |policy: &str| ["1", "2"].contains(&policy);
    assert!(threads.iter().all(|thread| thread.1 == "0" && !is_real_time(&thread.2)), "{threads:?}");
    signal(&child, "TERM");
    let called = finish(child);
    assert!(is_recorded(&called), "{called:?}");
    for (words, advice) in [
        ("[recorder] lock_memory = true: the kernel refuses", "LimitMEMLOCK=infinity"),
        ("[group.fast] priority = 3: the kernel refuses", "LimitRTPRIO=3"),
        ("[group.blocking] priority = 2: the kernel refuses", "LimitRTPRIO=2"),
    ] {
        let lines: Vec<&str> = called.err.lines().filter(|line| line.contains(words)).collect();
        assert!(lines.len() == 1 && lines[0].contains(advice), "{words}: {called:?}");
        assert!(lines[0].contains("error="), "the error of the kernel: {lines:?}");
    }
    assert!(!called.err.contains("cpus = "), "this needs no privilege: {called:?}");
}

// Proves that absent CPUs do not stop a recording. Method: one of two is absent, and the only one.
#[test]
fn absent_cpus_are_named() {
    let cpu = first_cpu();
    for (cpus, said) in [
        (format!("[{cpu}, 1023]"), format!("cpus = [{cpu}, 1023]: the kernel skips [1023]")),
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
