//! Judges `flatcap spikes` and `flatcap explain` by incidents with a known culprit.
//!
//! Records this host with `flatcap record` while eight decoys and a background load do a little of
//! everything. At random moments one decoy becomes the culprit of an incident. Afterwards `spikes`
//! is asked for the time around each incident, and `explain` at the time that `spikes` names first:
//! the culprit must be first among the suspects. In quiet minutes `spikes` must name nothing.
//! Incidents and minutes that a foreign program may have disturbed are not judged, but recorded
//! again.
//!
//! `cargo bench --bench incidents -- --help` lists the options. Seeds below 1000 are for tuning;
//! those from 1000 on are for judging, and nothing may be tuned with them.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::struct_excessive_bools,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    unnameable_types,
    reason = "a bench sleeps, prints, computes in floating point and has switches"
)]

mod activity;
mod background;
mod corpus;
mod decoy;
mod judge;
mod program;
mod random;
mod recording;
mod report;
mod stall;
mod workload;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};

use activity::IncidentKind;
use judge::kept_recordings;
use program::Program;
use recording::{IncidentRecorder, Pace, RecordingPlan};
use report::{IncidentReport, Thresholds};

/// Maximum ratio of recorded to requested incidents or minutes, however many of them foreign
/// programs disturb.
const TRIES_MAX: usize = 3;
/// The sources with the threads and the code that ran.
const CAUSE_SOURCES: &str = "\
[source.sched]
enabled = true

[source.profile]
enabled = true
";
/// The first seed of those for judging.
const JUDGING_SEED: u64 = 1000;

/// Judges `flatcap spikes` and `flatcap explain` by incidents with a known culprit.
///
/// Takes 20 s an incident. Ends with 1 if a threshold is missed. Seeds from 1 to 999 are for
/// tuning; those from 1000 on are for judging: nothing may be tuned with them.
#[derive(Debug, Parser)]
#[command(name = "incidents")]
struct Options {
    /// How many incidents.
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// The seed of the first recording; the others have the following ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these kinds.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND,...")]
    kinds: Vec<IncidentKind>,
    /// How many incidents share a recording.
    #[arg(long, default_value_t = 20, value_name = "N")]
    per_recording: usize,
    /// Record so many quiet minutes instead of incidents.
    #[arg(long, value_name = "MINUTES")]
    quiet: Option<u64>,
    /// Judge kept recordings instead: one, or all in a directory.
    #[arg(long, value_name = "DIR")]
    judge: Option<PathBuf>,
    /// Make the small recordings for tests in this directory instead, on a calm machine;
    /// existing ones stay.
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Where to record [default: a temporary directory].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Keep the recordings, with their truth.
    #[arg(long)]
    keep: bool,
    /// Record and keep, but do not judge.
    #[arg(long)]
    record_only: bool,
    /// Record context switches and stacks, too, and count the incidents of which `explain` names
    /// code of the culprit. Needs flatcap-convert in the same directory.
    #[arg(long)]
    causes: bool,
    /// Print every answer, not only the wrong ones.
    #[arg(long)]
    verbose: bool,
    /// The program under test [default: the one built with this bench].
    #[arg(long, value_name = "PATH")]
    flatcap: Option<PathBuf>,
    /// Least share of incidents whose culprit is the first suspect.
    #[arg(long, default_value_t = 90.0, value_name = "PERCENT")]
    min_first: f64,
    /// Least share of incidents whose culprit is among the first three suspects.
    #[arg(long, default_value_t = 97.0, value_name = "PERCENT")]
    min_first_three: f64,
    /// Least share of quiet minutes without a spike.
    #[arg(long, default_value_t = 95.0, value_name = "PERCENT")]
    min_quiet: f64,
    /// Run as the decoy of this name.
    #[arg(long, hide = true)]
    decoy: Option<String>,
    /// Run as the background process of this name.
    #[arg(long, hide = true)]
    background: Option<String>,
}

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let options = Options::parse_from(std::env::args_os().filter(|argument| argument != "--bench"));
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("incidents: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether everything was reached.
fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let work = options.data_dir.as_deref().unwrap_or(Path::new("."));
    if let Some(name) = &options.decoy {
        decoy::run(name, options.seed, work)?;
        return Ok(true);
    }
    if let Some(name) = &options.background {
        background::run(name, options.seed, work)?;
        return Ok(true);
    }
    let path = options.flatcap.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_flatcap")));
    let program = Program::new(&path)?;
    let can_judge = program.has_verb("spikes") && program.has_verb("explain");
    if !(options.record_only || options.corpus.is_some() || can_judge) {
        return Err("this program has no verbs spikes and explain; --record-only records for later".into());
    }
    if let Some(folder) = &options.judge {
        let mut report = IncidentReport::default();
        report.judge(&program, &kept_recordings(folder)?, options.verbose)?;
        return Ok(printed(&report, options));
    }
    let is_stopped = Arc::new(AtomicBool::new(false));
    let recorder = IncidentRecorder { program: &program, is_stopped: &is_stopped };
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))?;
    }
    let scratch = tempfile::Builder::new().prefix("incidents-").tempdir()?;
    if let Some(folder) = &options.corpus {
        corpus::make(&recorder, folder, scratch.path(), options.seed)?;
        return Ok(true);
    }
    let parent = options.data_dir.clone().unwrap_or_else(|| scratch.path().to_owned());
    let is_reached = record_and_judge(&recorder, options, &parent)?;
    // With --data-dir, there is nothing to do.
    if (options.keep || options.record_only) && options.data_dir.is_none() {
        println!("kept: {}", scratch.keep().display());
    }
    Ok(is_reached)
}

/// Records until enough incidents or quiet minutes are judged: those that foreign programs
/// disturbed are recorded again, with the next seeds.
fn record_and_judge(
    recorder: &IncidentRecorder<'_>,
    options: &Options,
    parent: &Path,
) -> Result<bool, Box<dyn Error>> {
    let causes = if options.causes { CAUSE_SOURCES } else { "" };
    let config = format!("{}{causes}", recorder.program.default_sources()?);
    let minutes = options.quiet.map(|minutes| minutes as usize);
    let wanted = minutes.unwrap_or(options.runs);
    let at_once = minutes.unwrap_or(options.per_recording).max(1);
    let mut report = IncidentReport::default();
    let (mut tried, mut seed) = (0, options.seed);
    loop {
        let done = if options.record_only { tried } else { report.judged() };
        let left = wanted.saturating_sub(done).min(wanted * TRIES_MAX - tried);
        if left == 0 {
            break;
        }
        let plan = plan(options, parent, &config, seed, left.min(at_once));
        if plan.folder.exists() {
            let folder = plan.folder.display();
            return Err(format!("{folder} exists: remove it or choose another --seed").into());
        }
        let truth = recorder.record(&plan)?;
        if !options.record_only {
            report.judge(recorder.program, std::slice::from_ref(&plan.folder), options.verbose)?;
        }
        if !(options.keep || options.record_only) {
            std::fs::remove_dir_all(&plan.folder)?;
        }
        // This machine permits none of the kinds.
        if truth.incidents.is_empty() && truth.quiet.is_empty() {
            break;
        }
        tried += left.min(at_once);
        seed += 1;
    }
    if options.record_only {
        return Ok(true);
    }
    Ok(printed(&report, options))
}

/// Prints the report and returns whether everything was reached.
fn printed(report: &IncidentReport, options: &Options) -> bool {
    report.print();
    report.reaches(Thresholds {
        first: options.min_first,
        first_three: options.min_first_three,
        quiet: options.min_quiet,
    })
}

/// Returns what is recorded next. Names of folders say what it may be used for.
fn plan(options: &Options, parent: &Path, config: &str, seed: u64, number: usize) -> RecordingPlan {
    let kinds = if options.kinds.is_empty() { IncidentKind::value_variants() } else { &options.kinds };
    let name = match (options.quiet, seed < JUDGING_SEED) {
        (Some(_), _) => "quiet",
        (None, true) => "tune",
        (None, false) => "judge",
    };
    let (incidents, quiet) = if options.quiet.is_some() { (0, number as u64) } else { (number, 0) };
    RecordingPlan {
        folder: parent.join(format!("{name}-{seed}")),
        seed,
        incidents,
        kinds: kinds.to_vec(),
        quiet,
        pace: Pace::USUAL,
        config: config.to_owned(),
    }
}

/// The wall clock, in nanoseconds since 1970.
fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
