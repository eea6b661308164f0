//! Runs the program under test.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The sources that say who did it, for programs that do not record them by default.
const PROCESS_SOURCES: &str = "\
[source.process]
enabled = true
period = \"100ms\"

[source.cgroup]
enabled = true
period = \"1s\"
";

/// The program under test, with a runtime directory of its own.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    run_dir: tempfile::TempDir, // on tmpfs
}

/// A running recorder. Killed when dropped.
#[derive(Debug)]
pub struct RunningRecorder {
    child: Child,
}

impl Program {
    /// The program at this path.
    pub fn new(path: &Path) -> Result<Self, Box<dyn Error>> {
        let path = std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let run_dir = tempfile::Builder::new().prefix("flatcap-incidents-").tempdir_in("/dev/shm")?;
        Ok(Self { path, run_dir })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).stdin(Stdio::null()).env("RUNTIME_DIRECTORY", self.run_dir.path());
        let settings = std::env::vars_os().map(|(name, _)| name);
        for name in settings.filter(|name| name.to_string_lossy().starts_with("FLATCAP_")) {
            command.env_remove(name);
        }
        // Runs however full this machine's disk is.
        command.env("FLATCAP_LOG", "warn").env("FLATCAP_STORAGE__MIN_FREE", "0");
        command
    }

    /// Runs it and returns its standard output. Whatever a reading verb finds, it answers; an error
    /// is one of usage or of the program.
    pub fn ask(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let output = self.command(arguments).output().map_err(|error| error.to_string())?;
        if matches!(output.status.code(), Some(0 | 1 | 3)) && !output.stdout.is_empty() {
            return Ok(output.stdout);
        }
        Err(failure(arguments, &output))
    }

    /// Whether it has this verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.ask(&[verb, "--help"]).is_ok()
    }

    /// Returns the configuration to record with: its own default if that says who did it.
    pub fn default_sources(&self) -> Result<&'static str, String> {
        let printed = self.ask(&["check-config"])?;
        let printed = String::from_utf8_lossy(&printed);
        let process = printed.split("[source.process]").nth(1).unwrap_or_default();
        let is_on = process
            .lines()
            .find(|line| line.starts_with("enabled"))
            .is_some_and(|line| line.contains("true"));
        Ok(if is_on { "" } else { PROCESS_SOURCES })
    }

    /// Starts a recorder that writes to `folder/data`, as `folder/flatcap.toml` says.
    pub fn record(&self, folder: &Path) -> Result<RunningRecorder, Box<dyn Error>> {
        let mut command =
            self.command(&["record", "--quiet", "--config", "flatcap.toml", "--data-dir", "data"]);
        let log = std::fs::File::create(folder.join("record.log"))?;
        Ok(RunningRecorder { child: command.current_dir(folder).stdout(Stdio::null()).stderr(log).spawn()? })
    }

    /// Runs it and fails unless its exit status is 0.
    pub fn call(&self, arguments: &[&str]) -> Result<(), String> {
        let output = self.command(arguments).output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(failure(arguments, &output)) }
    }
}

fn failure(arguments: &[&str], output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    format!("flatcap {} ended with {}: {line}", arguments.join(" "), output.status)
}

impl RunningRecorder {
    /// Fails if it has ended by itself.
    pub fn check(&mut self) -> Result<(), Box<dyn Error>> {
        match self.child.try_wait()? {
            Some(status) => Err(format!("the recorder ended with {status}; see record.log").into()),
            None => Ok(()),
        }
    }

    /// Sends SIGTERM and waits for the end. Lost samples are no failure: the host is busy.
    pub fn terminate(mut self) -> Result<(), Box<dyn Error>> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        match status.code() {
            Some(0 | 3) => Ok(()),
            _ => Err(format!("the recorder ended with {status}; see record.log").into()),
        }
    }
}

impl Drop for RunningRecorder {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
