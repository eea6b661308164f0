//! How does the real program do? Started, watched from outside as an administrator would, ended, and its files asked. Budget: none.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use flatcap::os::clock::{NS_PER_S, monotonic_ns};
use flatcap::os::event::Event;
use flatcap::segment::{Advance, FrameKind, SegmentReader, list};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::machine;
use crate::numbers::must_be_equal;

/// The host sources of the rows at 1 kHz.
pub const SOURCES: [&str; 6] = ["cpu", "memory", "vmstat", "disk", "network", "pressure"];
/// Longest that anything but a measurement may take.
const PATIENCE_NS: u64 = 30 * NS_PER_S;

/// The program with a place of its own to record to.
pub struct Program {
    folder: tempfile::TempDir,  // on the disk
    run_dir: tempfile::TempDir, // on tmpfs
}

/// A recorder at work.
pub struct Running {
    child: Child,
    /// Just before the process was made, in monotonic nanoseconds.
    pub started_ns: u64,
}

/// What `info` says of a source.
#[derive(Debug)]
pub struct SourceInfo {
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

    /// Where it records to.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatcap"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .env_remove("FLATCAP_CAPTURE_REPORT") // the bench's own, no setting
            .env("FLATCAP_LOG", "warn");
        command.env("RUNTIME_DIRECTORY", self.run_dir.path());
        command
    }

    fn call(&self, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
        Ok(self.command(arguments).output()?)
    }

    /// Whether the program knows what stands in this configuration.
    pub fn knows(&self, config: &str) -> Result<bool, Box<dyn Error>> {
        std::fs::write(self.folder.path().join("flatcap.toml"), config)?;
        Ok(self.call(&["check-config", "flatcap.toml"])?.status.success())
    }

    /// Starts a recorder of these sources, `NAME@PERIOD` each.
    pub fn record(&self, config: &str, sources: &[String]) -> Result<Running, Box<dyn Error>> {
        std::fs::write(self.folder.path().join("flatcap.toml"), config)?;
        let mut arguments = vec!["record", "--quiet", "--config", "flatcap.toml", "--data-dir", "data"];
        arguments.extend(sources.iter().flat_map(|source| ["--source", source]));
        let mut command = self.command(&arguments);
        let started_ns = monotonic_ns();
        Ok(Running { child: command.stdout(Stdio::null()).spawn()?, started_ns })
    }

    /// What `info` says of each source, in the order of their ids.
    pub fn info(&self) -> Result<Vec<SourceInfo>, Box<dyn Error>> {
        let output = self.call(&["info", "--json", "data"])?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let sources = report["sources"].as_array().ok_or("info has no sources")?;
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let source = |source: &Value| SourceInfo {
            recorded: number(&source["recorded"]),
            lost: number(&source["lost"]),
            missed: number(&source["missed"]),
            last_seq: number(&source["last_seq"]),
            lateness_p50_ns: number(&source["lateness_ns"]["p50"]) as f64,
            lateness_p99_ns: number(&source["lateness_ns"]["p99"]) as f64,
        };
        Ok(sources.iter().map(source).collect())
    }

    /// The same, where everything must be whole and each source's last reading is in the file: then recorded + lost is what its
    /// last number says. Readings that are lost are allowed only where `may_lose`.
    pub fn balanced_info(&self, may_lose: bool) -> Result<Vec<SourceInfo>, Box<dyn Error>> {
        let sources = self.info()?;
        for source in &sources {
            must_be_equal("recorded + lost", source.recorded + source.lost, source.last_seq + 1)?;
            if !may_lose {
                must_be_equal("lost", source.lost, 0)?;
            }
        }
        let verified = self.call(&["verify", "data"])?;
        if verified.status.success() || may_lose && verified.status.code() == Some(3) {
            return Ok(sources);
        }
        Err(format!("verify: {}{}", verified.status, String::from_utf8_lossy(&verified.stdout)).into())
    }

    /// The segments' readers, in the order of their numbers.
    pub fn segments(&self) -> Result<Vec<SegmentReader>, Box<dyn Error>> {
        let mut readers = Vec::new();
        for listing in list(&[self.data()])? {
            readers.extend(listing.open()?);
        }
        Ok(readers)
    }
}

/// Calls `seen` with begin and length of each telemetry frame, until it says that it has seen enough.
pub fn each_sample(
    reader: &mut SegmentReader,
    mut seen: impl FnMut(u64, usize) -> bool,
) -> Result<(), Box<dyn Error>> {
    while let Some(advance) = reader.advance()? {
        let Advance::Frame(at) = advance else { continue };
        if at.kind == FrameKind::Telemetry
            && let Some(sample) = reader.telemetry(at)
            && !seen(sample.mono_ns, at.bytes)
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

/// Sleeps.
pub fn pause(ns: u64) {
    Event::new().wait_until(monotonic_ns() + ns);
}

impl Running {
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

    /// The thread of this name, once it is there.
    pub fn thread(&self, name: &str) -> Result<i32, Box<dyn Error>> {
        let deadline = monotonic_ns() + PATIENCE_NS;
        while monotonic_ns() < deadline {
            if let Some((id, _)) = self.threads()?.into_iter().find(|(_, found)| found == name) {
                return Ok(id);
            }
            pause(1_000_000);
        }
        Err(format!("no thread {name}").into())
    }

    /// Processor time of a thread, as the scheduler counts it, in nanoseconds.
    pub fn cpu_ns(&self, thread: i32) -> Result<u64, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("{}/task/{thread}/schedstat", self.process()))?;
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    }

    /// The resident set, in bytes.
    pub fn resident_bytes(&self) -> Result<u64, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("{}/status", self.process()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    /// As `kill -9` ends it.
    pub fn kill(mut self) -> Result<(), Box<dyn Error>> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it by SIGTERM, waits for it; how long that took, in nanoseconds. It must end well: status 0, or 3 where it `may_lose`.
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
