//! Judges `flatcap spikes` and `flatcap explain` by incidents with a known culprit.
//!
//! Records this host with `flatcap record` while eight decoys and a background load do a little of
//! everything. At random moments one decoy becomes the culprit of an incident. Afterwards `spikes`
//! is asked for the time around each incident, and `explain` at the time that `spikes` names first:
//! the culprit must be first among the suspects. In quiet minutes `spikes` must name nothing.
//!
//! `cargo bench --bench incidents -- --help` lists the options. Seeds below 1000 are for tuning;
//! those from 1000 on are for judging, and nothing may be tuned with them.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    unnameable_types,
    reason = "a bench sleeps, prints and computes in floating point"
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
        return judged(&program, &kept_recordings(folder)?, options);
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
    let mut folders = Vec::new();
    for plan in plans(options, &parent, program.default_sources()?) {
        if plan.folder.exists() {
            return Err(
                format!("{} exists: remove it or choose another --seed", plan.folder.display()).into()
            );
        }
        recorder.record(&plan)?;
        folders.push(plan.folder);
    }
    let is_reached = options.record_only || judged(&program, &folders, options)?;
    if options.keep || options.record_only {
        // Nothing to do below --data-dir.
        if options.data_dir.is_none() {
            println!("kept: {}", scratch.keep().display());
        }
    } else {
        for folder in folders {
            std::fs::remove_dir_all(folder)?;
        }
    }
    Ok(is_reached)
}

fn judged(program: &Program, folders: &[PathBuf], options: &Options) -> Result<bool, Box<dyn Error>> {
    let report = IncidentReport::judge(program, folders, options.verbose)?;
    report.print();
    Ok(report.reaches(Thresholds {
        first: options.min_first,
        first_three: options.min_first_three,
        quiet: options.min_quiet,
    }))
}

/// Returns what is recorded. Names of folders say what it may be used for.
fn plans(options: &Options, parent: &Path, config: &str) -> Vec<RecordingPlan> {
    let kinds = if options.kinds.is_empty() { IncidentKind::value_variants() } else { &options.kinds };
    let plan = |seed: u64, name: &str, incidents, quiet| RecordingPlan {
        folder: parent.join(format!("{name}-{seed}")),
        seed,
        incidents,
        kinds: kinds.to_vec(),
        quiet,
        pace: Pace::USUAL,
        config: config.to_owned(),
    };
    if let Some(minutes) = options.quiet {
        return vec![plan(options.seed, "quiet", 0, minutes)];
    }
    let mut plans = Vec::new();
    let (mut left, mut seed) = (options.runs, options.seed);
    while left > 0 {
        let incidents = left.min(options.per_recording.max(1));
        plans.push(plan(seed, if seed < JUDGING_SEED { "tune" } else { "judge" }, incidents, 0));
        left -= incidents;
        seed += 1;
    }
    plans
}

/// The wall clock, in nanoseconds since 1970.
fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
