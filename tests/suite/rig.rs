//! The real binary in a fresh directory.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use flatcap::block::{Decoder, Encoder, Wanted, Ways};
use flatcap::segment::{Advance, SegmentReader};
use serde_json::Value;

/// A directory of its own, gone with the test.
pub struct Rig {
    folder: tempfile::TempDir,
    memory: tempfile::TempDir, // of killed runs: none stays on tmpfs behind the test
}

/// What one call of the program came to.
#[derive(Debug)]
pub struct Called {
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

    /// What must belong to whoever runs the program.
    pub fn folders(&self) -> [&Path; 2] {
        [self.folder.path(), self.memory.path()]
    }

    /// The data directory that `record` uses by default.
    pub fn data(&self) -> PathBuf {
        self.path("flatcap-data")
    }

    /// Where a recording of this rig is asked.
    pub fn socket(&self) -> PathBuf {
        self.memory.path().join("control.sock")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_flatcap").as_ref(), args)
    }

    /// The program as another account runs it: a copy of it, since that account may not come to where it was built. All of the rig is
    /// that account's from now on.
    pub fn command_as(&self, account: u32, args: &[&str]) -> Command {
        let program = self.path("flatcap");
        if !program.exists() {
            // By another process: a program that is open for writing here, and so in what other tests start meanwhile, cannot be run.
            let copied =
                Command::new("cp").arg(env!("CARGO_BIN_EXE_flatcap")).arg(&program).status().unwrap();
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
            // Tests look into segments as they were recorded; those of sealing turn it on.
            command.env("FLATCAP_SEAL__ENABLED", "false");
        }
        command
    }

    pub fn call(&self, args: &[&str]) -> Called {
        Called::from(self.command(args).output().unwrap())
    }

    /// Calls the program, and fails where it does not end in time.
    pub fn call_within(&self, args: &[&str], limit: Duration) -> Called {
        self.finish_within(self.start(args), limit)
    }

    /// Waits for a program, and fails where it does not end in time.
    pub fn finish_within(&self, child: Child, limit: Duration) -> Called {
        use rustix::process::{Pid, Signal, kill_process};
        let pid = Pid::from_child(&child);
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(finish(child)));
        is_done.recv_timeout(limit).unwrap_or_else(|_| {
            let _gone = kill_process(pid, Signal::KILL);
            panic!("it has not ended after {limit:?}")
        })
    }

    /// Starts the program and leaves it running.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Records into the default directory, which must succeed.
    pub fn record(&self, args: &[&str]) -> Called {
        let called = self.call(&[&["record"], args].concat());
        assert_eq!(called.status, Some(0), "{called:?}");
        called
    }

    pub fn verify(&self) -> Value {
        self.call(&["verify", "--json", "flatcap-data"]).json()
    }

    pub fn info(&self) -> Value {
        self.call(&["info", "--json", "flatcap-data"]).json()
    }

    /// The segments of the default directory in the order of their names, with the given ending.
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

impl Drop for Rig {
    /// Whatever a test has recorded comes back from blocks byte for byte.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let Ok(entries) = std::fs::read_dir(self.data()) else { return };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.extension() == Some(OsStr::new("bin")) {
                comes_back(&path);
            }
        }
    }
}

/// Most bytes of a block that a test packs.
const BLOCK_BYTES: usize = 1 << 20;

/// Packs the frames of a segment, unpacks them, compares.
fn comes_back(path: &Path) {
    let Ok(mut reader) = SegmentReader::open(path) else { return };
    let checksum = reader.header().checksum;
    let (mut encoder, mut decoder) = (Encoder::new(Ways::default()), Decoder::default());
    for source in reader.footer().map_or(&reader.header().sources, |footer| &footer.header.sources) {
        encoder.describe(source.id, &source.root, &source.schema);
    }
    let mut frames = Vec::new();
    loop {
        let advance = reader.advance().unwrap();
        if let Some(Advance::Frame(at)) = advance {
            reader.copy_frame(at, &mut frames);
        }
        if frames.len() >= BLOCK_BYTES || (advance.is_none() && !frames.is_empty()) {
            let payload = encoder.encode(&frames, 0, checksum).unwrap();
            let block = decoder.open(payload, &Wanted::ALL).unwrap();
            let mut back = vec![0; block.raw_bytes()];
            assert_eq!(block.copy(0, &mut back), frames.len());
            assert!(back == frames, "{}: other bytes in front of {}", path.display(), reader.offset());
            frames.clear();
        }
        if advance.is_none() {
            return;
        }
    }
}

impl Called {
    pub fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Neither panic nor backtrace, whatever the status.
    pub fn assert_composed(&self) {
        for word in ["panicked", "RUST_BACKTRACE", "stack backtrace"] {
            assert!(!self.err.contains(word), "{self:?}");
        }
    }
}

impl From<Output> for Called {
    fn from(output: Output) -> Self {
        let called = Self {
            status: output.status.code(),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        called.assert_composed();
        called
    }
}

/// Takes away what the environment of the tests would tell the program: settings, of which the tests' own variables would be
/// misspelt ones, and a service's directories.
pub fn without_settings(command: &mut Command) {
    let ours = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with("FLATCAP_"));
    for name in ours.chain(["CONFIGURATION_DIRECTORY", "STATE_DIRECTORY"].map(Into::into)) {
        command.env_remove(name);
    }
}

pub fn finish(child: Child) -> Called {
    Called::from(child.wait_with_output().unwrap())
}

pub fn signal(child: &Child, name: &str) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = match name {
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "HUP" => Signal::HUP,
        "USR1" => Signal::USR1,
        other => panic!("no signal {other} here"),
    };
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until `condition` holds; fails after ten seconds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a directory holds a segment with at least `bytes`.
pub fn has_segment(directory: &Path, bytes: u64) -> bool {
    std::fs::read_dir(directory).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let is_segment = entry.file_name().to_string_lossy().contains(".bin");
            is_segment && entry.metadata().is_ok_and(|metadata| metadata.len() >= bytes)
        })
    })
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}
