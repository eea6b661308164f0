//! Makes one recording with incidents, or a quiet one, and writes the truth about it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::activity::IncidentKind;
use crate::judge::{Incident, QuietStretch, RecordingTruth, TRUTH_FILE};
use crate::program::Program;
use crate::random::SeededRandom;
use crate::wall_ns;
use crate::workload::{Workload, line_about};

/// Time for which the processors must be calm.
const CALM_MS: u64 = 3_000;

/// The length of a recording, in milliseconds.
#[derive(Debug, Clone)]
pub struct Pace {
    /// From the start to the first incident, or to the first quiet minute.
    pub warm_up_ms: u64,
    /// Between incidents, and before the first one: not less than what is searched for spikes.
    pub gap_ms: std::ops::RangeInclusive<u64>,
    /// After the last incident.
    pub tail_ms: u64,
    /// The longest incident.
    pub length_ms_max: u64,
    /// Length of a quiet stretch.
    pub quiet_ms: u64,
}

impl Pace {
    /// For tuning and judging.
    pub const USUAL: Self = Self {
        warm_up_ms: 5_000,
        gap_ms: 12_000..=25_000,
        tail_ms: 6_000,
        length_ms_max: 2_000,
        quiet_ms: 60_000,
    };
}

/// What is recorded.
#[derive(Debug, Clone)]
pub struct RecordingPlan {
    /// Created; holds the data directory, the configuration and the truth.
    pub folder: PathBuf,
    pub seed: u64,
    /// How many incidents.
    pub incidents: usize,
    /// Their kinds, in turns and in random order.
    pub kinds: Vec<IncidentKind>,
    /// Number of quiet minutes.
    pub quiet: u64,
    pub pace: Pace,
    /// The configuration of the recorder.
    pub config: String,
}

/// Makes recordings with a program.
#[derive(Debug)]
pub struct IncidentRecorder<'p> {
    pub program: &'p Program,
    /// Set by a signal: ends a recording early, with an error.
    pub is_stopped: &'p AtomicBool,
}

impl IncidentRecorder<'_> {
    /// Makes the recording and writes the truth about it.
    pub fn record(&self, plan: &RecordingPlan) -> Result<RecordingTruth, Box<dyn Error>> {
        let work = plan.folder.join("work");
        std::fs::create_dir_all(&work)?;
        std::fs::write(plan.folder.join("flatcap.toml"), &plan.config)?;
        let mut random = SeededRandom::new(plan.seed);
        let mut truth = RecordingTruth { seed: plan.seed, ..RecordingTruth::default() };
        let recorded = {
            let mut workload = Workload::start(&mut random, &work)?;
            self.record_beside(&mut workload, plan, &mut random, &mut truth)
        };
        write_truth(&plan.folder, &truth)?;
        // Only what the workload wrote.
        let _removed = std::fs::remove_dir_all(&work);
        recorded.map(|()| truth)
    }

    fn record_beside(
        &self,
        workload: &mut Workload,
        plan: &RecordingPlan,
        random: &mut SeededRandom,
        truth: &mut RecordingTruth,
    ) -> Result<(), Box<dyn Error>> {
        let mut recorder = self.program.record(&plan.folder)?;
        self.sleep_ms(plan.pace.warm_up_ms)?;
        for kind in deck(workload, plan, random, truth) {
            let before = ProcessorTimes::read()?;
            self.sleep_ms(random.within(plan.pace.gap_ms.clone()))?;
            recorder.check()?;
            workload.check()?;
            let busy_before_percent = ProcessorTimes::read()?.busy_percent_since(&before);
            let incident = workload.cause(kind, plan.pace.length_ms_max, random)?;
            let incident = Incident { busy_before_percent, ..incident };
            let (seed, number) = (plan.seed, truth.incidents.len() + 1);
            eprintln!("incidents: seed {seed}, {number} of {}: {}", plan.incidents, line_about(&incident));
            truth.incidents.push(incident);
        }
        for number in 1..=plan.quiet {
            let (begin_wall_ns, before) = (wall_ns(), ProcessorTimes::read()?);
            self.sleep_ms(plan.pace.quiet_ms)?;
            recorder.check()?;
            workload.check()?;
            let busy_percent = ProcessorTimes::read()?.busy_percent_since(&before);
            truth.quiet.push(QuietStretch { begin_wall_ns, end_wall_ns: wall_ns(), busy_percent });
            eprintln!(
                "incidents: seed {}, quiet stretch {number} of {}, {busy_percent:.1} % busy",
                plan.seed, plan.quiet
            );
        }
        self.sleep_ms(plan.pace.tail_ms)?;
        recorder.terminate()
    }

    /// Waits until the processors were no busier than this for some seconds.
    pub fn wait_until_calm(&self, busy_percent_max: f64) -> Result<(), Box<dyn Error>> {
        loop {
            let before = ProcessorTimes::read()?;
            self.sleep_ms(CALM_MS)?;
            if ProcessorTimes::read()?.busy_percent_since(&before) <= busy_percent_max {
                return Ok(());
            }
        }
    }

    fn sleep_ms(&self, ms: u64) -> Result<(), Box<dyn Error>> {
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until {
            if self.is_stopped.load(Ordering::Relaxed) {
                return Err("stopped by a signal".into());
            }
            thread::sleep(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
        }
        Ok(())
    }
}

/// The times of all processors together, in jiffies.
#[derive(Debug)]
struct ProcessorTimes {
    idle: u64,
    all: u64,
}

impl ProcessorTimes {
    fn read() -> Result<Self, Box<dyn Error>> {
        let text = std::fs::read_to_string("/proc/stat")?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guest times are part of user.
        let times: Vec<u64> =
            text.split_whitespace().skip(1).take(8).map(str::parse).collect::<Result<_, _>>()?;
        let [_, _, _, idle, iowait, ..] = times[..] else { return Err("/proc/stat: too short".into()) };
        Ok(Self { idle: idle + iowait, all: times.iter().sum() })
    }

    fn busy_percent_since(&self, before: &Self) -> f64 {
        let (idle, all) = (self.idle - before.idle, self.all - before.all);
        if all == 0 { 0.0 } else { all.saturating_sub(idle) as f64 * 100.0 / all as f64 }
    }
}

/// Returns the kinds of the incidents: all in turns, so that each occurs as often, in random order.
fn deck(
    workload: &Workload,
    plan: &RecordingPlan,
    random: &mut SeededRandom,
    truth: &mut RecordingTruth,
) -> Vec<IncidentKind> {
    let mut kinds = plan.kinds.clone();
    kinds.retain(|kind| match workload.refusal(*kind) {
        Some(reason) => {
            eprintln!("incidents: skipped {reason}");
            truth.skipped.push(reason);
            false
        }
        None => true,
    });
    random.shuffle(&mut kinds);
    let mut deck: Vec<IncidentKind> = kinds.iter().copied().cycle().take(plan.incidents).collect();
    random.shuffle(&mut deck);
    deck
}

fn write_truth(folder: &Path, truth: &RecordingTruth) -> Result<(), Box<dyn Error>> {
    let mut text = serde_json::to_string_pretty(truth)?;
    text.push('\n');
    Ok(std::fs::write(folder.join(TRUTH_FILE), text)?)
}
