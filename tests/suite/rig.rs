//! Runs the real binary in a temporary directory.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use flatcap_format::block::{BlockDecoder, BlockEncoder, ColumnSelection, SourceCompression};
use flatcap_format::segment::{Advance, SegmentReader};
use serde_json::Value;

/// A temporary data directory and run directory, removed after the test.
pub struct Rig {
    folder: tempfile::TempDir,
    memory: tempfile::TempDir, // for the memory of killed runs, so that none stays on tmpfs
}

/// Longest wait for a condition. This watchdog ends a test that hangs; it is not a limit on speed.
pub const WATCHDOG: Duration = Duration::from_secs(180);

/// Returns a variable by which the rings of all CPUs of this host fit into memory.
pub fn memory_for_rings() -> (&'static str, String) {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let cpus = cpus.lines().filter(|line| line.starts_with("processor")).count();
    ("FLATCAP_RECORDER__MEMORY_MAX", format!("{}MiB", 64 + 3 * cpus))
}

/// Exit status and output of one call of the program.
#[derive(Debug)]
pub struct CallResult {
    pub status: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
}

impl Rig {
    pub fn new() -> Self {
        let memory = tempfile::Builder::new().prefix("flatcap-test-").tempdir_in("/dev/shm").unwrap();
        Self { folder: tempfile::tempdir().unwrap(), memory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the directories that must belong to the account that runs the program.
    pub fn folders(&self) -> [&Path; 2] {
        [self.folder.path(), self.memory.path()]
    }

    /// The data directory that `record` uses by default.
    pub fn data(&self) -> PathBuf {
        self.path("flatcap-data")
    }

    /// Returns the control socket of this rig's recording.
    pub fn socket(&self) -> PathBuf {
        self.memory.path().join("control.sock")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let converter = Path::new(env!("CARGO_BIN_EXE_flatcap")).with_file_name("flatcap-convert");
        assert!(
            args.first() != Some(&"import") || converter.exists(),
            "run cargo build -p flatcap-convert, or the tests of the whole workspace"
        );
        self.command_of(env!("CARGO_BIN_EXE_flatcap").as_ref(), args)
    }

    /// Returns a command that runs the program as another account, from a copy, since that account
    /// may not reach the build directory. The rig belongs to that account afterwards.
    pub fn command_as(&self, account: u32, args: &[&str]) -> Command {
        let program = self.path("flatcap");
        if !program.exists() {
            // Copied by another process: a file open for writing here, and so inherited by programs
            // that other tests start at the same time, cannot be executed.
            let built = Path::new(env!("CARGO_BIN_EXE_flatcap"));
            let converter = built.with_file_name("flatcap-convert");
            let programs = [built, converter.as_path()].into_iter().filter(|program| program.exists());
            let copied = Command::new("cp").args(programs).arg(program.parent().unwrap()).status().unwrap();
            assert!(copied.success());
            for folder in self.folders() {
                chown(folder, Some(account), Some(account)).unwrap();
            }
        }
        let mut command = self.command_of(&program, args);
        command.uid(account).gid(account);
        command
    }

    fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null());
        without_settings(&mut command);
        command.env("RUNTIME_DIRECTORY", self.memory.path());
        if args.first() == Some(&"record") {
            // Tests expect uncompressed segments; tests of compression enable it.
            command.env("FLATCAP_COMPRESS__ENABLED", "false");
            // Tests pass however full this machine's disk is; tests of a full disk bring their own.
            command.env("FLATCAP_STORAGE__MIN_FREE", "0");
        }
        command
    }

    pub fn call(&self, args: &[&str]) -> CallResult {
        CallResult::from(self.command(args).output().unwrap())
    }

    /// Calls the program, and fails if it does not end in time.
    pub fn call_within(&self, args: &[&str], limit: Duration) -> CallResult {
        finish_within(self.start(args), limit)
    }

    /// Starts the program and leaves it running.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Records into the default directory, which must succeed.
    pub fn record(&self, args: &[&str]) -> CallResult {
        let called = self.call(&[&["record"], args].concat());
        assert_eq!(called.status, Some(0), "{called:?}");
        called
    }

    /// Records until `is_enough`, then ends the recording, which must succeed. Standard error goes
    /// to the file `record.log`.
    pub fn record_until(&self, args: &[&str], what: &str, is_enough: impl FnMut() -> bool) -> CallResult {
        self.run_until(self.command(&[&["record"], args].concat()), what, is_enough)
    }

    /// Runs a `record` of this rig until `is_enough`, as [`record_until`](Self::record_until) does.
    pub fn run_until(
        &self,
        mut command: Command,
        what: &str,
        mut is_enough: impl FnMut() -> bool,
    ) -> CallResult {
        let path = self.path("record.log");
        let log = std::fs::File::create(&path).unwrap();
        let mut process = Process(Some(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap()));
        eventually(what, || {
            let ended = process.0.as_mut().unwrap().try_wait().unwrap();
            assert_eq!(ended, None, "{}", std::fs::read_to_string(&path).unwrap());
            is_enough()
        });
        let mut called = process.end("TERM");
        called.err = std::fs::read_to_string(path).unwrap();
        called.assert_no_panic();
        assert_eq!(called.status, Some(0), "{called:?}");
        called
    }

    /// Records until the files contain at least this many samples of each source.
    pub fn record_samples(&self, args: &[&str], samples: u64) -> CallResult {
        self.record_until(args, "samples of each source", || self.has_samples(samples))
    }

    /// Returns whether the files of the running recording have at least this many samples of each
    /// source.
    pub fn has_samples(&self, samples: u64) -> bool {
        self.status().is_some_and(|status| {
            let sources = status["sources"].as_array().unwrap();
            !sources.is_empty() && sources.iter().all(|source| number(&source["recorded"]) >= samples)
        })
    }

    /// Returns the status of this source; none before the recorder answers.
    pub fn source(&self, name: &str) -> Option<Value> {
        let status = self.status()?;
        status["sources"].as_array().unwrap().iter().find(|source| source["name"] == name).cloned()
    }

    /// Returns the status of the running recording; none before it answers.
    pub fn status(&self) -> Option<Value> {
        UnixStream::connect(self.socket()).ok()?;
        let answer = crate::control::http_request(&self.socket(), "GET /status", "", "");
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    pub fn verify(&self) -> Value {
        self.call(&["verify", "--json", "flatcap-data"]).json()
    }

    pub fn info(&self) -> Value {
        self.call(&["info", "--json", "flatcap-data"]).json()
    }

    /// Returns the segments of the default directory with this extension, in the order of their
    /// names.
    pub fn segments(&self, ending: &str) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(self.data())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension() == Some(OsStr::new(ending)))
            .collect();
        paths.sort();
        paths
    }
}

/// A child that is killed at the end of the test.
pub struct Process(pub Option<Child>);

impl Process {
    /// Ends it with a signal, and waits for its exit.
    pub fn end(mut self, with: &str) -> CallResult {
        let child = self.0.take().unwrap();
        signal(&child, with);
        finish(child)
    }

    pub fn kill(&mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

impl Drop for Rig {
    /// Checks that every recorded segment survives compression to blocks byte for byte.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let Ok(entries) = std::fs::read_dir(self.data()) else { return };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.extension() == Some(OsStr::new("bin")) {
                assert_block_round_trip(&path);
            }
        }
    }
}

/// Maximum bytes of a block that a test compresses.
const BLOCK_BYTES: usize = 1 << 20;

/// Compresses the frames of a segment, decompresses them and compares.
fn assert_block_round_trip(path: &Path) {
    let Ok(mut reader) = SegmentReader::open(path) else { return };
    let checksum = reader.header().checksum;
    let (mut encoder, mut decoder) =
        (BlockEncoder::new(SourceCompression::default()), BlockDecoder::default());
    for source in reader.footer().map_or(&reader.header().sources, |footer| &footer.header.sources) {
        encoder.set_schema(source.id, &source.root, &source.schema);
    }
    let mut frames = Vec::new();
    loop {
        let advance = reader.advance().unwrap();
        if let Some(Advance::Frame(at)) = advance {
            reader.copy_frame(at, &mut frames);
        }
        if frames.len() >= BLOCK_BYTES || (advance.is_none() && !frames.is_empty()) {
            let payload = encoder.encode(&frames, 0, checksum).unwrap();
            let block = decoder.open(payload, &ColumnSelection::ALL).unwrap();
            let mut back = vec![0; block.raw_bytes()];
            assert_eq!(block.copy(0, &mut back), frames.len());
            assert!(back == frames, "{}: other bytes before offset {}", path.display(), reader.offset());
            frames.clear();
        }
        if advance.is_none() {
            return;
        }
    }
}

impl CallResult {
    pub fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the rows of JSON lines, without markers and gaps, which a busy machine adds.
    pub fn lines(&self) -> Vec<Value> {
        let rows = self.text();
        let rows = rows.lines().map(|line| serde_json::from_str(line).unwrap());
        rows.filter(|row: &Value| row.get("marker").or(row.get("gap")).is_none()).collect()
    }

    /// Checks that there is neither a panic nor a backtrace, whatever the status.
    pub fn assert_no_panic(&self) {
        for word in ["panicked", "RUST_BACKTRACE", "stack backtrace"] {
            assert!(!self.err.contains(word), "{self:?}");
        }
    }
}

impl From<Output> for CallResult {
    fn from(output: Output) -> Self {
        let called = Self {
            status: output.status.code(),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        called.assert_no_panic();
        called
    }
}

/// Removes variables of the tests' environment that the program would read: settings, including the
/// tests' own variables, which would be unknown settings, and a service's directories.
pub fn without_settings(command: &mut Command) {
    let ours = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with("FLATCAP_"));
    let others = ["CONFIGURATION_DIRECTORY", "STATE_DIRECTORY", "COLUMNS", "NO_COLOR"];
    for name in ours.chain(others.map(Into::into)) {
        command.env_remove(name);
    }
}

/// Waits for a program, and fails if it does not end in time.
pub fn finish_within(child: Child, limit: Duration) -> CallResult {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = Pid::from_child(&child);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(finish(child)));
    is_done.recv_timeout(limit).unwrap_or_else(|_| {
        let _gone = kill_process(pid, Signal::KILL);
        panic!("it has not ended after {limit:?}")
    })
}

pub fn finish(child: Child) -> CallResult {
    CallResult::from(child.wait_with_output().unwrap())
}

/// Sends a signal. After STOP, waits until the process is stopped.
pub fn signal(child: &Child, name: &str) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = match name {
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "HUP" => Signal::HUP,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        other => panic!("unknown signal {other}"),
    };
    kill_process(Pid::from_child(child), signal).unwrap();
    if signal == Signal::STOP {
        // Threads on other processors still run for a moment.
        eventually("stopped threads", || has_stopped(child.id()));
    }
}

/// Returns whether all threads of a process are stopped.
fn has_stopped(process: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // The state follows the name, which is in parentheses.
    let state = |stat: String| stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('T'));
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat"));
        stat.is_ok_and(|stat| state(stat) == Some(true))
    })
}

/// Waits until `condition` holds, up to [`WATCHDOG`].
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + WATCHDOG;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {WATCHDOG:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether a directory has a segment of at least `bytes`.
pub fn has_segment(directory: &Path, bytes: u64) -> bool {
    std::fs::read_dir(directory).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let is_segment = entry.file_name().to_string_lossy().contains(".bin");
            is_segment && entry.metadata().is_ok_and(|metadata| metadata.len() >= bytes)
        })
    })
}

/// Checks that a source of `info` has as many ticks, begun or missed, as its period implies for a
/// run of `least` to `most`. Holds on a machine of any speed: a late tick is counted as missed.
pub fn assert_ticks(source: &Value, least: Duration, most: Duration) {
    let ticks: u64 = ["recorded", "lost", "missed"].iter().map(|key| number(&source[*key])).sum();
    let period_ns = u128::from(number(&source["period_ns"]));
    let covered_ns = u128::from(ticks) * period_ns;
    let is_covered = covered_ns + period_ns >= least.as_nanos() && covered_ns <= most.as_nanos() + period_ns;
    assert!(is_covered, "{ticks} ticks in {least:?} to {most:?}: {source}");
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}
