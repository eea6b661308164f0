//! Reads the times of threads from perf(1).

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::workload::ThreadAccount;

/// A recording of `perf sched`.
#[derive(Debug)]
pub struct PerfRecording {
    child: Child,
    file: PathBuf,
}

impl PerfRecording {
    /// Begins.
    pub fn start(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let file = folder.join("perf.data");
        let child = Command::new("perf")
            .args(["sched", "record", "-k", "CLOCK_MONOTONIC", "-m", "16M", "-o"])
            .arg(&file)
            .args(["sleep", "600"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("perf: {error}"))?;
        Ok(Self { child, file })
    }

    /// Ends, and waits until the file is written.
    pub fn end(mut self) -> Result<PerfTimes, Box<dyn Error>> {
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        self.child.wait()?;
        Ok(PerfTimes { file: self.file })
    }
}

/// A file of `perf sched`.
#[derive(Debug)]
pub struct PerfTimes {
    file: PathBuf,
}

impl PerfTimes {
    /// Returns how long a thread ran in its stretch.
    pub fn running_ns(&self, account: &ThreadAccount) -> Result<u64, Box<dyn Error>> {
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let output = Command::new("perf")
            .args(["sched", "timehist", "--summary", "-i"])
            .arg(&self.file)
            .args(["--tid", &account.thread.to_string(), "--time"])
            .arg(format!("{},{}", seconds(account.span_ns.0), seconds(account.span_ns.1)))
            .output()?;
        // Columns: name[thread/process], parent, how often it ran, and how long in milliseconds.
        let text = String::from_utf8_lossy(&output.stdout);
        let own = format!("[{}", account.thread);
        let line =
            text.lines().find(|line| line.split_whitespace().next().is_some_and(|name| name.contains(&own)));
        let run_ms = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<f64>().ok());
        let run_ms =
            run_ms.ok_or_else(|| format!("perf sched timehist has no times of {}: {text}", account.name))?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some seconds")]
        Ok((run_ms * 1e6).round() as u64)
    }
}
