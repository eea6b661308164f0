//! Judges recordings and prints the result as a table.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use crate::judge::{DATA_FOLDER, IncidentScore, judge_incident, judge_quiet, percent, read_truth};
use crate::program::Program;
use crate::workload::line_about;

/// What must be reached, in percent.
#[derive(Debug, Clone, Copy)]
pub struct Thresholds {
    /// Incidents whose culprit is the first suspect.
    pub first: f64,
    /// Incidents whose culprit is among the first three suspects.
    pub first_three: f64,
    /// Quiet stretches without a spike.
    pub quiet: f64,
}

/// The judgement of some recordings.
#[derive(Debug, Default)]
pub struct IncidentReport {
    kinds: BTreeMap<String, IncidentScore>,
    quiet_stretches: usize,
    quiet_empty: usize,
    skipped: Vec<String>,
    busy_percents: Vec<f64>,
}

impl IncidentReport {
    /// Judges these recordings. Prints a line for each wrong answer, or for each answer.
    pub fn judge(program: &Program, folders: &[PathBuf], shows_all: bool) -> Result<Self, Box<dyn Error>> {
        let mut report = Self::default();
        for folder in folders {
            let truth = read_truth(folder)?;
            let data = folder.join(DATA_FOLDER);
            let ask = &mut |arguments: &[&str]| program.ask(arguments);
            for incident in &truth.incidents {
                let verdict = judge_incident(incident, &data, ask);
                if shows_all || verdict.rank != Some(1) {
                    let rank = verdict.rank.map_or("-".to_owned(), |rank| rank.to_string());
                    println!("{}: rank {rank}, {}", line_about(incident), verdict.answer);
                }
                report.kinds.entry(incident.kind.clone()).or_default().add(&verdict);
            }
            for stretch in &truth.quiet {
                let found = judge_quiet(stretch, &data, ask);
                report.quiet_stretches += 1;
                report.quiet_empty += usize::from(found.is_none());
                if let Some(found) = found {
                    println!(
                        "quiet at {}, {:.1} % busy: {found}",
                        stretch.begin_wall_ns, stretch.busy_percent
                    );
                }
            }
            report.busy_percents.extend(truth.incidents.iter().map(|incident| incident.busy_before_percent));
            report.busy_percents.extend(truth.quiet.iter().map(|stretch| stretch.busy_percent));
            report.skipped.extend(truth.skipped);
        }
        report.skipped.sort();
        report.skipped.dedup();
        report.busy_percents.sort_by(f64::total_cmp);
        Ok(report)
    }

    fn overall(&self) -> IncidentScore {
        let mut all = IncidentScore::default();
        for score in self.kinds.values() {
            all.runs += score.runs;
            all.spikes_found += score.spikes_found;
            all.first += score.first;
            all.first_three += score.first_three;
        }
        all
    }

    /// Prints the table.
    pub fn print(&self) {
        for reason in &self.skipped {
            println!("skipped {reason}");
        }
        if !self.kinds.is_empty() {
            println!(
                "{:<16} {:>5} {:>12} {:>12} {:>12}",
                "kind", "runs", "first", "first three", "spike found"
            );
            for (kind, score) in &self.kinds {
                print_score(kind, score);
            }
            print_score("all", &self.overall());
        }
        if self.quiet_stretches > 0 {
            let share = percent(self.quiet_empty, self.quiet_stretches);
            println!(
                "quiet without a spike: {} of {} ({share:.1} %)",
                self.quiet_empty, self.quiet_stretches
            );
        }
        // Work of others makes true spikes, so it makes the answers look worse than they are.
        let median = self.busy_percents.get(self.busy_percents.len() / 2);
        if let (Some(median), Some(most)) = (median, self.busy_percents.last()) {
            println!("processors busy beside the incidents: {median:.1} % (median), at most {most:.1} %");
        }
    }

    /// Whether everything that was judged reaches its threshold.
    pub fn reaches(&self, thresholds: Thresholds) -> bool {
        let overall = self.overall();
        let is_quiet = percent(self.quiet_empty, self.quiet_stretches) >= thresholds.quiet;
        overall.runs + self.quiet_stretches > 0
            && (overall.runs == 0 || overall.reaches(thresholds.first, thresholds.first_three))
            && (self.quiet_stretches == 0 || is_quiet)
    }
}

fn print_score(name: &str, score: &IncidentScore) {
    let share = |part| format!("{part} ({:.0} %)", percent(part, score.runs));
    println!(
        "{name:<16} {:>5} {:>12} {:>12} {:>12}",
        score.runs,
        share(score.first),
        share(score.first_three),
        share(score.spikes_found)
    );
}
