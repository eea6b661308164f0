//! Measures the competitor LTTng-UST with a C program that has one tracepoint, in a separate
//! session.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A program that traces events on request, and the daemon that receives the events.
pub(crate) struct Rival {
    program: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    daemon: Child,
}

impl Rival {
    /// Compiles and starts the program. Returns `None` if a part of LTTng-UST is missing.
    pub(crate) fn start(folder: &Path) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/push");
        let program = folder.join("lttng");
        let compiled = Command::new("cc")
            .arg("-O2")
            .arg(format!("-I{}", source.display()))
            .arg(source.join("lttng.c"))
            .arg("-o")
            .arg(&program)
            .args(["-llttng-ust", "-ldl"])
            .stderr(Stdio::null())
            .status();
        if !compiled.ok()?.success() {
            return None;
        }
        let places: Vec<(&str, PathBuf)> = ["LTTNG_HOME", "LTTNG_RUNDIR", "LTTNG_UST_APP_PATH"]
            .into_iter()
            .map(|name| (name, folder.join(if name == "LTTNG_HOME" { "home" } else { "run" })))
            .collect();
        places.iter().for_each(|(_, place)| std::fs::create_dir_all(place).unwrap());
        let command = |program: &Path| {
            let mut command = Command::new(program);
            // The application finds the daemon in the run directory.
            command.envs(
                places
                    .iter()
                    .filter(|(name, _)| *name != "LTTNG_UST_APP_PATH")
                    .map(|(name, place)| (*name, place.clone())),
            );
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let daemon = command(Path::new("lttng-sessiond")).arg("--no-kernel").spawn().ok()?;
        let lttng = |arguments: &[&str]| {
            let status = command(Path::new("lttng")).args(arguments).status();
            status.is_ok_and(|status| status.success())
        };
        while !lttng(&["list"]) {
            std::thread::yield_now();
        }
        let output = format!("--output={}", folder.join("trace").display());
        let is_ready = lttng(&["create", "bench", "--snapshot", &output])
            && lttng(&[
                "enable-channel",
                "-u",
                "ring",
                "--overwrite",
                "--subbuf-size=128K",
                "--num-subbuf=4",
            ])
            && lttng(&["enable-event", "-u", "flatcap_bench:sample", "-c", "ring"])
            && lttng(&["start"]);
        assert!(is_ready, "the session of LTTng cannot be set up");
        let mut program = command(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program was compiled");
        let requests = program.stdin.take().expect("it is piped");
        let answers = BufReader::new(program.stdout.take().expect("it is piped"));
        Some(Self { program, requests, answers, daemon })
    }

    /// Traces this number of events. Returns the time of one event, in nanoseconds.
    pub(crate) fn round(&mut self, events: u64) -> f64 {
        writeln!(self.requests, "{events}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let passed_ns: f64 = answer.trim().parse().expect("the program answers with nanoseconds");
        #[allow(clippy::cast_precision_loss, reason = "thousands")]
        let events = events as f64;
        passed_ns / events
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        for process in [&mut self.program, &mut self.daemon] {
            let pid = rustix::process::Pid::from_child(process);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
            process.wait().ok();
        }
    }
}
