//! Starts the real program, observes it from outside, stops it and queries its files. Budget: none.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use flatcap_format::segment::{Advance, FrameKind, SegmentReader, list};
use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::wake_event::WakeEvent;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::machine;
use crate::numbers::ensure_equal;

/// The host sources of the rows at 1 kHz.
pub const SOURCES: [&str; 6] = ["cpu", "memory", "vmstat", "disk", "network", "pressure"];
/// Timeout for everything that is not measured.
pub const TIMEOUT_NS: u64 = 30 * NS_PER_S;

/// The program with a data directory and a runtime directory of its own.
pub struct Program {
    folder: tempfile::TempDir,  // on the disk
    run_dir: tempfile::TempDir, // on tmpfs
}

/// A running recorder.
pub struct RunningRecorder {
    child: Child,
    /// Monotonic time just before the process was created, in nanoseconds.
    pub started_ns: u64,
}

/// Counts and lateness of one source, as reported by `info`.
#[derive(Debug)]
pub struct SourceResult {
    pub recorded: u64,
    pub lost: u64,
    pub missed: u64,
    pub last_seq: u64,
    pub lateness_p50_ns: f64,
    pub lateness_p99_ns: f64,
}

impl Program {
    pub fn new() -> Result<Self, Box<dyn Error>> {
        Ok(Self { folder: machine::disk_folder()?, run_dir: machine::memory_folder()? })
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The socket for applications that push.
    pub fn push_socket(&self) -> PathBuf {
        self.run_dir.path().join("push.sock")
    }

    /// The status of the running recorder.
    pub fn status(&self) -> Result<Value, Box<dyn Error>> {
        let socket = self.run_dir.path().join("control.sock");
        let output = self.call(&["status", "--json", "--socket", &socket.to_string_lossy()])?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatcap"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .env_remove("FLATCAP_CAPTURE_REPORT") // set for this bench, unknown to the program
            .env("FLATCAP_LOG", "warn");
        command.env("RUNTIME_DIRECTORY", self.run_dir.path());
        if arguments.first() == Some(&"record") {
            // Runs however full this machine's disk is.
            command.env("FLATCAP_STORAGE__MIN_FREE", "0");
        }
        command
    }

    fn call(&self, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
        Ok(self.command(arguments).output()?)
    }

    /// Whether `check-config` accepts this configuration.
    pub fn accepts(&self, config: &str) -> Result<bool, Box<dyn Error>> {
        std::fs::write(self.folder.path().join("flatcap.toml"), config)?;
        Ok(self.call(&["check-config", "flatcap.toml"])?.status.success())
    }

    /// Starts a recorder of these sources, each `NAME@PERIOD`.
    pub fn record(&self, config: &str, sources: &[String]) -> Result<RunningRecorder, Box<dyn Error>> {
        std::fs::write(self.folder.path().join("flatcap.toml"), config)?;
        let mut arguments = vec!["record", "--quiet", "--config", "flatcap.toml", "--data-dir", "data"];
        arguments.extend(sources.iter().flat_map(|source| ["--source", source]));
        let mut command = self.command(&arguments);
        let started_ns = monotonic_ns();
        Ok(RunningRecorder { child: command.stdout(Stdio::null()).spawn()?, started_ns })
    }

    /// Returns the `info` of each source, in the order of their ids.
    pub fn info(&self) -> Result<Vec<SourceResult>, Box<dyn Error>> {
        let output = self.call(&["info", "--json", "data"])?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let sources = report["sources"].as_array().ok_or("info has no sources")?;
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let source = |source: &Value| SourceResult {
            recorded: number(&source["recorded"]),
            lost: number(&source["lost"]),
            missed: number(&source["missed"]),
            last_seq: number(&source["last_seq"]),
            lateness_p50_ns: number(&source["lateness_ns"]["p50"]) as f64,
            lateness_p99_ns: number(&source["lateness_ns"]["p99"]) as f64,
        };
        Ok(sources.iter().map(source).collect())
    }

    /// Returns `info` and checks that recorded + lost equals the last sequence number plus one. The
    /// last sample of each source must be in the files. Unless `may_lose`, fails if samples were
    /// lost.
    pub fn checked_info(&self, may_lose: bool) -> Result<Vec<SourceResult>, Box<dyn Error>> {
        let sources = self.info()?;
        for source in &sources {
            ensure_equal("recorded + lost", source.recorded + source.lost, source.last_seq + 1)?;
            if !may_lose {
                ensure_equal("lost", source.lost, 0)?;
            }
        }
        let verified = self.call(&["verify", "data"])?;
        if verified.status.success() || may_lose && verified.status.code() == Some(3) {
            return Ok(sources);
        }
        Err(format!("verify: {}{}", verified.status, String::from_utf8_lossy(&verified.stdout)).into())
    }

    /// Returns readers of the segments, in the order of their numbers.
    pub fn segments(&self) -> Result<Vec<SegmentReader>, Box<dyn Error>> {
        let mut readers = Vec::new();
        for listing in list(&[self.data()])? {
            readers.extend(listing.open()?);
        }
        Ok(readers)
    }
}

/// Calls `seen` with the monotonic time and the length of each sample's frame, until it returns
/// false.
pub fn each_sample(
    reader: &mut SegmentReader,
    mut visit: impl FnMut(u64, usize) -> bool,
) -> Result<(), Box<dyn Error>> {
    while let Some(advance) = reader.advance()? {
        let Advance::Frame(at) = advance else { continue };
        if at.kind == FrameKind::Telemetry
            && let Some(sample) = reader.sample(at)
            && !visit(sample.mono_ns, at.bytes)
        {
            break;
        }
    }
    Ok(())
}

/// The six host sources at 1 kHz.
pub fn host_sources() -> Vec<String> {
    SOURCES.iter().map(|name| format!("{name}@1ms")).collect()
}

/// Sleeps for `ns` nanoseconds.
pub fn sleep_ns(ns: u64) {
    WakeEvent::new().wait_until(monotonic_ns() + ns);
}

/// Waits until `find` returns something.
pub fn wait_for<T>(
    what: &str,
    mut find: impl FnMut() -> Result<Option<T>, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let deadline = monotonic_ns() + TIMEOUT_NS;
    loop {
        if let Some(found) = find()? {
            return Ok(found);
        }
        if monotonic_ns() > deadline {
            return Err(format!("not within {} s: {what}", TIMEOUT_NS / NS_PER_S).into());
        }
        sleep_ns(1_000_000);
    }
}

impl Drop for RunningRecorder {
    /// Leaves no recorder behind where a measurement failed.
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl RunningRecorder {
    fn process(&self) -> String {
        format!("/proc/{}", self.child.id())
    }

    /// Ids and names of its threads.
    fn threads(&self) -> Result<Vec<(i32, String)>, Box<dyn Error>> {
        let mut threads = Vec::new();
        for task in std::fs::read_dir(format!("{}/task", self.process()))? {
            let task = task?;
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let id = task.file_name().to_string_lossy().parse()?;
            threads.push((id, name.trim().to_owned()));
        }
        Ok(threads)
    }

    /// Waits for the thread of this name and returns its id.
    pub fn thread(&self, name: &str) -> Result<i32, Box<dyn Error>> {
        wait_for(&format!("thread {name}"), || {
            Ok(self.threads()?.into_iter().find(|(_, found)| found == name).map(|(id, _)| id))
        })
    }

    /// CPU time of a thread by the scheduler, in nanoseconds.
    pub fn cpu_ns(&self, thread: i32) -> Result<u64, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("{}/task/{thread}/schedstat", self.process()))?;
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    }

    /// CPU time of its threads by the scheduler, without those that have ended, in nanoseconds.
    pub fn process_cpu_ns(&self) -> Result<u64, Box<dyn Error>> {
        self.threads()?.into_iter().map(|(thread, _)| self.cpu_ns(thread)).sum()
    }

    /// CPU time of the process, its ended threads included, in nanoseconds. It grows in steps of
    /// 10 ms.
    pub fn coarse_cpu_ns(&self) -> Result<u64, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("{}/stat", self.process()))?;
        // The name may have spaces. After it come the state (field 3 of proc_pid_stat(5)), and user
        // and system time (14 and 15) in hundredths of a second.
        let fields = text.rsplit_once(')').ok_or("stat has no name")?.1;
        let ticks: Vec<u64> =
            fields.split_ascii_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        Ok(ticks.iter().sum::<u64>() * 10_000_000)
    }

    /// Resident set size, in bytes.
    pub fn resident_bytes(&self) -> Result<u64, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("{}/status", self.process()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(mut self) -> Result<(), Box<dyn Error>> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM, waits for the end and returns how long that took, in nanoseconds. Fails
    /// unless the exit status is 0, or 3 if `may_lose`.
    pub fn terminate(mut self, may_lose: bool) -> Result<u64, Box<dyn Error>> {
        let begin = monotonic_ns();
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        let elapsed_ns = monotonic_ns() - begin;
        if status.success() || may_lose && status.code() == Some(3) {
            return Ok(elapsed_ns);
        }
        Err(format!("the recorder ended with {status}").into())
    }
}
