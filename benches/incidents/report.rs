//! Judges recordings and prints the result as a table.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use crate::judge::{
    DATA_FOLDER, IncidentScore, disturbers, foreign_programs, judge_incident, judge_quiet, percent,
    read_truth,
};
use crate::program::Program;
use crate::workload::line_about;

/// The required shares, in percent.
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
    disturbed: usize,
    skipped: Vec<String>,
    busy_percents: Vec<f64>,
}

impl IncidentReport {
    /// Judges these recordings too. Prints a line for each wrong answer, or for each answer.
    ///
    /// Incidents and quiet minutes during which a foreign program began are counted, but not
    /// judged: that program may cause real spikes.
    pub fn judge(
        &mut self,
        program: &Program,
        folders: &[PathBuf],
        shows_all: bool,
    ) -> Result<(), Box<dyn Error>> {
        let report = self;
        for folder in folders {
            let truth = read_truth(folder)?;
            let data = folder.join(DATA_FOLDER);
            let ask = &mut |arguments: &[&str]| program.ask(arguments);
            for incident in &truth.incidents {
                if report.is_disturbed(&line_about(incident), &disturbers(incident, &data, ask)?) {
                    continue;
                }
                let verdict = judge_incident(incident, &data, ask);
                if shows_all || verdict.rank != Some(1) {
                    let rank = verdict.rank.map_or("-".to_owned(), |rank| rank.to_string());
                    println!("{}: rank {rank}, {}", line_about(incident), verdict.answer);
                }
                report.kinds.entry(incident.kind.clone()).or_default().add(&verdict);
            }
            for stretch in &truth.quiet {
                let programs = foreign_programs(stretch.begin_wall_ns, stretch.end_wall_ns, &data, ask)?;
                if report.is_disturbed(&format!("quiet at {}", stretch.begin_wall_ns), &programs) {
                    continue;
                }
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
        Ok(())
    }

    /// Counts and prints what foreign programs disturbed. Returns whether they did.
    fn is_disturbed(&mut self, what: &str, programs: &[String]) -> bool {
        if programs.is_empty() {
            return false;
        }
        self.disturbed += 1;
        println!("{what}: not judged, since foreign programs began: {}", programs.join(", "));
        true
    }

    /// Number of incidents and quiet minutes that were judged.
    pub fn judged(&self) -> usize {
        self.overall().runs + self.quiet_stretches
    }

    fn overall(&self) -> IncidentScore {
        let mut all = IncidentScore::default();
        for score in self.kinds.values() {
            all.runs += score.runs;
            all.spikes_found += score.spikes_found;
            all.first += score.first;
            all.first_three += score.first_three;
            all.with_stacks += score.with_stacks;
            all.code_named += score.code_named;
        }
        all
    }

    /// Prints the table.
    pub fn print(&self) {
        for reason in &self.skipped {
            println!("skipped {reason}");
        }
        if !self.kinds.is_empty() {
            let code = if self.overall().with_stacks > 0 { "code named" } else { "" };
            println!(
                "{:<16} {:>5} {:>12} {:>12} {:>12} {code:>12}",
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
        if self.disturbed > 0 {
            println!("not judged, since foreign programs began meanwhile: {}", self.disturbed);
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
        self.judged() > 0
            && (overall.runs == 0 || overall.reaches(thresholds.first, thresholds.first_three))
            && (self.quiet_stretches == 0 || is_quiet)
    }
}

fn print_score(name: &str, score: &IncidentScore) {
    let share = |part, whole| format!("{part} ({:.0} %)", percent(part, whole));
    let code = if score.with_stacks > 0 { share(score.code_named, score.with_stacks) } else { String::new() };
    println!(
        "{name:<16} {:>5} {:>12} {:>12} {:>12} {code:>12}",
        score.runs,
        share(score.first, score.runs),
        share(score.first_three, score.runs),
        share(score.spikes_found, score.runs)
    );
}
