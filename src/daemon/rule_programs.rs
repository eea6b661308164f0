//! Starts the programs of rules that fired. Nothing waits for these programs. Each has its own
//! thread, which reaps it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatcap_os::program::{self, start_with_input};
use flatcap_os::program_guard::ProgramGuard;
use flatcap_os::thread;
use flatcap_recorder::snapshot::SNAPSHOTS_NAME;
use jiff::Timestamp;
use serde::Serialize;

/// Maximum number of programs of rules that run at a time. A further program is not started,
/// because a rule that fires often must not fill the host with hanging programs.
const PROGRAMS_MAX: usize = 8;

/// A program that a rule runs.
#[derive(Debug, Clone)]
pub(super) struct RuleProgram {
    /// The program's absolute path, and its arguments; never empty.
    pub(super) words: Vec<String>,
    pub(super) guard: ProgramGuard,
}

/// The data that a program gets on its standard input, as one JSON object in one line.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FiringReport {
    pub(super) rule: String,
    /// The condition with the values that made it true, as in the marker.
    pub(super) reason: String,
    pub(super) values: Vec<ReportedValue>,
    pub(super) fired_wall_ns: i64,
    /// The end of the window, as planned at the time of the firing. A further firing extends the
    /// window.
    pub(super) until_wall_ns: i64,
}

/// A part of a condition and its value.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ReportedValue {
    pub(super) expression: String,
    pub(super) value: String,
}

/// The report, with the fields that are the same for the whole run.
#[derive(Debug, Serialize)]
struct HostFiring<'a> {
    host: &'a str,
    #[serde(flatten)]
    report: &'a FiringReport,
    /// Time of the firing, as RFC 3339 in UTC.
    time: Option<String>,
    data_dir: &'a Path,
    /// The directory in which the snapshot will appear about a second after the end of the window.
    /// It is `None` without a ring.
    snapshot: Option<&'a Path>,
}

/// Starts the programs of rules.
#[derive(Debug, Clone)]
pub(super) struct ProgramStarter {
    host: Arc<str>,
    data_dir: Arc<Path>,
    running: Arc<AtomicUsize>,
}

impl ProgramStarter {
    pub(super) fn new(host: &str, data_dir: &Path) -> Self {
        Self { host: host.into(), data_dir: data_dir.into(), running: Arc::default() }
    }

    /// Starts a program on its own thread, and returns at once. Errors are logged. `snapshot` is
    /// the name that the snapshot will have.
    pub(super) fn start(&self, program: RuleProgram, report: FiringReport, snapshot: Option<&str>) {
        let snapshot = snapshot.map(|name| self.data_dir.join(SNAPSHOTS_NAME).join(name));
        let rule = report.rule.clone();
        if self.running.fetch_add(1, Ordering::Relaxed) >= PROGRAMS_MAX {
            self.running.fetch_sub(1, Ordering::Relaxed);
            tracing::error!(
                rule,
                running = PROGRAMS_MAX,
                "the program of a rule is not run: too many are running, they may hang"
            );
            return;
        }
        let own = self.clone();
        let started = thread::spawn("rule-program", move || {
            if let Err(error) = own.run(&program, &report, snapshot.as_deref()) {
                tracing::error!(rule = report.rule, %error, "cannot run the program of a rule");
            }
            own.running.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = started {
            self.running.fetch_sub(1, Ordering::Relaxed);
            tracing::error!(rule, %error, "cannot run the program of a rule");
        }
    }

    fn run(&self, program: &RuleProgram, report: &FiringReport, snapshot: Option<&Path>) -> io::Result<()> {
        program.guard.check().map_err(io::Error::other)?;
        // If the kernel refuses, the program keeps the recorder's priority, which is harmless for a
        // short program.
        let _refused = thread::reset_negative_nice();
        let time = Timestamp::from_nanosecond(report.fired_wall_ns.into()).ok();
        let input = HostFiring {
            host: &self.host,
            report,
            time: time.map(|time| time.to_string()),
            data_dir: &self.data_dir,
            snapshot,
        };
        let mut line = serde_json::to_vec(&input)?;
        line.push(b'\n');
        let status = start_with_input(&program.words, &line)?.wait()?;
        let end = program::program_end(status);
        tracing::info!(rule = report.rule, ?end, "the program of a rule has ended");
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "waits for other processes")]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Maximum wait. It only keeps a failing test from hanging.
    const WATCHDOG: Duration = Duration::from_secs(120);

    fn report() -> FiringReport {
        FiringReport {
            rule: "io-stall".to_owned(),
            reason: "pressure.io_some.total:rate > 20%".to_owned(),
            values: vec![ReportedValue {
                expression: "pressure.io_some.total:rate".to_owned(),
                value: "31 %".to_owned(),
            }],
            fired_wall_ns: 1_700_000_000_250_000_000,
            until_wall_ns: 1_700_000_005_250_000_000,
        }
    }

    fn shell(script: &str) -> RuleProgram {
        let words = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        RuleProgram { guard: ProgramGuard::new(words[0].clone().into(), None), words }
    }

    fn eventually(what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < WATCHDOG, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    // Proves that the program receives rule, values, times, host and snapshot as one line of JSON.
    #[test]
    fn a_program_gets_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        let starter = ProgramStarter::new("db-1", Path::new("/data"));
        let script = format!("cat > {0}.part; mv {0}.part {0}", output.display());
        starter.start(shell(&script), report(), Some("x"));
        eventually("its output", || output.exists());
        assert_eq!(
            std::fs::read_to_string(output).unwrap(),
            concat!(
                r#"{"host":"db-1","rule":"io-stall","reason":"pressure.io_some.total:rate > 20%","#,
                r#""values":[{"expression":"pressure.io_some.total:rate","value":"31 %"}],"#,
                r#""fired_wall_ns":1700000000250000000,"until_wall_ns":1700000005250000000,"#,
                r#""time":"2023-11-14T22:13:20.25Z","data_dir":"/data","snapshot":"/data/snapshots/x"}"#,
                "\n"
            )
        );
        eventually("it is reaped", || starter.running.load(Ordering::Relaxed) == 0);
    }

    // Proves that the number of hanging programs is bounded, and that further programs run again
    // once these have ended.
    #[test]
    fn programs_that_hang_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (go, count) = (folder.path().join("go"), folder.path().join("count"));
        let starter = ProgramStarter::new("db-1", Path::new("/data"));
        let script =
            format!("echo x >> {}; while [ ! -e {} ]; do sleep 0.05; done", count.display(), go.display());
        for _ in 0..PROGRAMS_MAX + 3 {
            starter.start(shell(&script), report(), None);
        }
        let lines = || std::fs::read_to_string(&count).map_or(0, |text| text.lines().count());
        eventually("all that may run", || lines() == PROGRAMS_MAX);
        std::fs::write(&go, "").unwrap();
        eventually("they end", || starter.running.load(Ordering::Relaxed) == 0);
        assert_eq!(lines(), PROGRAMS_MAX, "the others were not started");
        starter.start(shell(&script), report(), None);
        eventually("one more", || lines() == PROGRAMS_MAX + 1);
    }
}
