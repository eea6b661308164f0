//! The recorder under a service manager: its notifications, its watchdog, and a log that is never
//! read.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::rig::{Process, Rig, WATCHDOG, eventually, finish, has_segment, signal};
use crate::test_disk::TestDisk;
use crate::tracer::StoppedThread;

/// The interval in which each log statement may write a limited number of lines.
const WINDOW: Duration = Duration::from_secs(10);

/// A service manager that only listens.
struct FakeServiceManager {
    socket: UnixDatagram,
    child: Option<Child>,
}

impl FakeServiceManager {
    /// Starts `record` as a service with a watchdog of three seconds, which is fed every second.
    fn start(rig: &Rig, args: &[&str]) -> Self {
        let path = rig.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut command = rig.command(&[&["record", "--quiet"], args].concat());
        command.env("NOTIFY_SOCKET", path).env("WATCHDOG_USEC", "3000000");
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Self { socket, child: Some(child) }
    }

    fn child(&self) -> &Child {
        self.child.as_ref().unwrap()
    }

    /// Returns the next message, if one arrives within 100 ms.
    fn next(&self) -> Option<String> {
        let mut buffer = [0; 1024];
        match self.socket.recv(&mut buffer) {
            Ok(length) => Some(String::from_utf8(buffer[..length].to_vec()).unwrap()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for a message that contains `what`.
    fn wait_for(&self, what: &str) -> String {
        let deadline = Instant::now() + WATCHDOG;
        let mut seen = Vec::new();
        while Instant::now() < deadline {
            match self.next() {
                Some(message) if message.contains(what) => return message,
                Some(message) => seen.push(message),
                None => {}
            }
        }
        panic!("no {what} in {WATCHDOG:?}, but {seen:?}")
    }

    fn stop(mut self) -> crate::rig::CallResult {
        let child = self.child.take().unwrap();
        signal(&child, "TERM");
        self.wait_for("STOPPING=1");
        finish(child)
    }
}

impl Drop for FakeServiceManager {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

/// Returns the id of a thread by its name.
fn thread(child: &Child, name: &str) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    tasks
        .flatten()
        .find(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .map_or_else(
            || panic!("no thread {name}"),
            |task| task.file_name().to_str().unwrap().parse().unwrap(),
        )
}

// Proves that the notifications follow the protocol in order: ready with the first segment, fed,
// reloading with its time and ready again, stopping. Method: the test's own socket.
#[test]
fn notifications_follow_the_protocol() {
    let rig = Rig::new();
    let manager = FakeServiceManager::start(&rig, &["--source", "synthetic@100ms"]);
    assert_eq!(manager.wait_for("READY=1"), "READY=1\nSTATUS=recording 1 source\n");
    assert!(has_segment(&rig.data(), 1), "ready without a segment");
    for _ in 0..2 {
        assert_eq!(manager.wait_for("WATCHDOG"), "WATCHDOG=1\n");
    }
    assert!(manager.wait_for("samples/s").starts_with("STATUS=recording 1 source, "));
    signal(manager.child(), "HUP");
    let reloading = manager.wait_for("RELOADING=1");
    let mono_us = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
    assert!(mono_us.parse::<u64>().unwrap() <= flatcap_os::clock::monotonic_ns() / 1000, "{reloading}");
    manager.wait_for("READY=1");
    let called = manager.stop();
    assert_eq!(called.status, Some(0), "{called:?}");
}

// Proves that a recorder thread stuck outside storage calls is not fed, although the main loop
// continues and reports it, and that it is fed again afterwards. Method: the thread is stopped by
// ptrace.
#[test]
fn a_stuck_recorder_is_not_fed() {
    let rig = Rig::new();
    let manager = FakeServiceManager::start(&rig, &["--source", "synthetic@100ms"]);
    manager.wait_for("WATCHDOG=1");
    let recorder = thread(manager.child(), "recorder");
    let held = loop {
        let held = match StoppedThread::stop(recorder) {
            Ok(held) => held,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                println!("skipped: ptrace is not allowed here");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        // It may have been in a storage call just then, which is a different case.
        if manager.wait_for("STATUS=the ").contains("stuck") {
            break held;
        }
        held.release();
    };
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        let message = manager.next().unwrap_or_default();
        assert!(!message.contains("WATCHDOG"), "{message}");
    }
    assert!(manager.wait_for("STATUS").contains("stuck"), "the main loop continues");
    held.release();
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("STATUS=recording");
    let called = manager.stop();
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(called.err.contains("the recorder is stuck outside of storage calls"), "{called:?}");
}

// Proves that a recorder that waits for its storage is fed as long as it waits, that the status
// reports it, and that start and end are logged. Method: a frozen ext4.
#[test]
fn a_recorder_with_stalled_storage_is_fed() {
    let rig = Rig::new();
    let Some(disk) = TestDisk::ext4(&rig) else { return };
    let data = disk.path().join("data/records");
    let manager = FakeServiceManager::start(
        &rig,
        &["--source", "synthetic@10ms", "--data-dir", data.to_str().unwrap()],
    );
    manager.wait_for("READY=1");
    let frozen = disk.freeze();
    manager.wait_for("STATUS=the storage has not responded for ");
    for _ in 0..4 {
        manager.wait_for("WATCHDOG=1");
    }
    drop(frozen);
    manager.wait_for("STATUS=recording");
    let called = manager.stop();
    assert_eq!(called.status, Some(0), "{called:?}");
    // On a busy machine there may be a second stall.
    let said = ["the storage does not respond; sampling continues", "the storage responds again"]
        .map(|line| called.err.matches(line).count());
    assert!(said[0] > 0 && said[0] == said[1], "{called:?}");
}

// Proves that a standard error that is never read blocks neither the recording nor its end. Method:
// a pipe that is full from the start, a log line at the start and one at a failed reload.
#[test]
fn an_unread_log_blocks_nothing() {
    let rig = Rig::new();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(writer.as_fd()).unwrap();
    fcntl_setfl(writer.as_fd(), flags | OFlags::NONBLOCK).unwrap();
    while writer.write_all(&[b'x'; 512]).is_ok() {}
    while writer.write_all(b"x").is_ok() {}
    fcntl_setfl(writer.as_fd(), flags).unwrap();
    let config = rig.write("flatcap.toml", "");
    let args = ["record", "--quiet", "--source", "synthetic@10ms", "--config", config.to_str().unwrap()];
    let mut command = rig.command(&args);
    command.env("FLATCAP_LOG", "loud");
    let mut child = command.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    eventually("a segment with samples", || has_segment(&rig.data(), 16 << 10));
    rig.write("flatcap.toml", "nonsense = 1");
    signal(&child, "HUP");
    eventually("more samples", || {
        let called = rig.call(&["verify", "--json", "flatcap-data"]);
        called.status.is_some() && called.json()["frames"].as_u64().is_some_and(|frames| frames > 100)
    });
    signal(&child, "TERM");
    eventually("the end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(rig.verify()["intact"], true);
}

// Proves that a log statement is limited to 50 lines per window, and that one line reports the
// number of suppressed lines. Method: segments that are removed all the time, with a line each.
#[test]
fn a_flood_of_lines_is_cut_off() {
    let rig = Rig::new();
    let config = rig.write(
        "flood.toml",
        "[recorder]\ncpu_budget = \"400%\"\n[storage]\nsegment_size = \"256KiB\"\nretain_bytes = \"4MiB\"\nmin_free = \"0%\"\n\
         [source.synthetic]\nperiod = \"200us\"\nshape = \"wide\"\nfields = 200\nbudget = \"100%\"\n",
    );
    let args = ["record", "--quiet", "--config", config.to_str().unwrap(), "--source", "synthetic"];
    let mut child = rig.start(&args);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (mut removed, begin) = (0, Instant::now());
    let summary = lines
        .by_ref()
        .inspect(|line| removed += usize::from(line.contains("removed the oldest file")))
        .find(|line| line.contains("log lines suppressed"))
        .unwrap();
    signal(&child, "TERM");
    drop(lines);
    // A busy machine may lose some samples.
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 3)));
    let left_out = summary.split("lines=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(
        left_out.parse::<u64>().unwrap() > 0
            && summary.contains("at=crates/flatcap-recorder/src/quota_core.rs:"),
        "{summary}"
    );
    // If lines come slowly, earlier windows had fewer each.
    assert!(removed == 50 || (removed > 50 && begin.elapsed() > WINDOW), "{removed} before {summary}");
}

// Proves that a standard error without a reader ends nothing and changes no exit status. Method: a
// pipe without a reader, with a line to log; then with an error.
#[test]
fn a_log_without_a_reader_changes_nothing() {
    let rig = Rig::new();
    let command = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = rig.command(&[&["record", "--quiet"], args].concat());
        command.env("FLATCAP_LOG", "loud").stdout(Stdio::null()).stderr(writer);
        command
    };
    let recording = Process(Some(command(&["--source", "load@10ms"]).spawn().unwrap()));
    eventually("samples", || rig.has_samples(1));
    assert_eq!(recording.end("TERM").status, Some(0));
    let status = command(&["--config", "absent.toml", "--for", "1s"]).status().unwrap();
    assert_eq!(status.code(), Some(2));
    assert!(rig.verify()["frames"].as_u64().unwrap() > 0);
}

// Proves that an invalid log filter is named and ignored with a warning, not accepted silently.
#[test]
fn an_invalid_log_filter_is_named() {
    let rig = Rig::new();
    let output = rig
        .command(&["record", "--for", "50ms", "--source", "load@10ms"])
        .env("FLATCAP_LOG", "verbose")
        .output();
    let called = crate::rig::CallResult::from(output.unwrap());
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(
        called.err.contains("FLATCAP_LOG is ignored") && called.err.contains("\"verbose\" is not a filter"),
        "{called:?}"
    );
}
