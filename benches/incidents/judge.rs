//! Judges what `flatcap spikes` and `flatcap explain` say of a recording, by the truth about it.
//!
//! Uses nothing but their command lines and JSON, and no other file of this bench, so that tests
//! include it with `#[path]`. The caller runs the program.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The file with the true events, next to the data directory.
pub const TRUTH_FILE: &str = "truth.json";
/// The data directory of a recording.
pub const DATA_FOLDER: &str = "data";

/// The programs that the bench starts: fork storms the first, frozen stalls the other.
const BENCH_PROGRAMS: [&str; 2] = ["true", "fsfreeze"];
/// Columns of `dump --long --format csv`: readable time, `wall_ns`, element, value.
const LONG_COLUMNS: usize = 4;

/// Maximum distance of a found spike from an incident.
pub const SPIKE_TOLERANCE_NS: i64 = 500_000_000;
/// What is searched for spikes: from so long before an incident ...
pub const SEARCHED_BEFORE_NS: i64 = 10_000_000_000;
/// ... until so long after it.
pub const SEARCHED_AFTER_NS: i64 = 5_000_000_000;

/// The true events of a recording. The program never sees it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RecordingTruth {
    pub seed: u64,
    /// Kinds that this machine does not permit, with the reason.
    pub skipped: Vec<String>,
    pub incidents: Vec<Incident>,
    /// Stretches without any incident.
    pub quiet: Vec<QuietStretch>,
}

/// One incident.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Incident {
    pub kind: String,
    pub culprit: String,
    pub pid: u32,
    /// The control groups of the culprit, in all hierarchies.
    pub control_groups: Vec<String>,
    pub begin_wall_ns: i64,
    pub end_wall_ns: i64,
    /// The amount of work of the culprit.
    pub amount: u64,
    /// The variant of its kind; empty if there is only one.
    pub variant: String,
    /// Utilization of the processors since the previous incident, in percent.
    #[serde(default)]
    pub busy_before_percent: f64,
}

/// A stretch of time without any incident.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuietStretch {
    pub begin_wall_ns: i64,
    pub end_wall_ns: i64,
    /// Utilization of the processors, in percent. More than decoys and background load take is the
    /// work of others, whose spikes are true ones.
    #[serde(default)]
    pub busy_percent: f64,
}

/// Reads the truth about a kept recording.
pub fn read_truth(folder: &Path) -> Result<RecordingTruth, String> {
    let path = folder.join(TRUTH_FILE);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the recordings at a path: the folder itself, or those in it, in the order of names.
pub fn kept_recordings(folder: &Path) -> Result<Vec<PathBuf>, String> {
    if folder.join(TRUTH_FILE).exists() {
        return Ok(vec![folder.to_owned()]);
    }
    let unreadable = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.join(TRUTH_FILE).exists() {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(format!("{}: no recording with a {TRUTH_FILE}", folder.display()));
    }
    Ok(found)
}

/// An element of the output of `spikes --json`, as far as it is judged or shown.
#[derive(Debug, Deserialize)]
struct NamedSpike {
    wall_ns: i64,
    source: String,
    field: String,
    #[serde(default)]
    element: Option<String>,
    score: f64,
}

/// The output of `explain --json`, as far as it is judged.
#[derive(Debug, Deserialize)]
struct Explanation {
    suspects: Vec<Suspect>,
    /// None if the recording has no stacks.
    #[serde(default)]
    stacks: Option<ExplainedStacks>,
}

#[derive(Debug, Deserialize)]
struct ExplainedStacks {
    functions: Vec<ExplainedFunction>,
}

#[derive(Debug, Deserialize)]
struct ExplainedFunction {
    pid: u32,
    /// None if it has no name.
    function: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Suspect {
    kind: String,
    name: String,
    #[serde(default)]
    pid: Option<u32>,
}

/// Runs the program with these arguments and returns its standard output.
pub type Ask<'a> = &'a mut dyn FnMut(&[&str]) -> Result<Vec<u8>, String>;

/// Returns the names of the programs that began in this time and are none of the bench's, sorted.
/// The bench itself starts nothing but [`BENCH_PROGRAMS`] while it records; a program that ended
/// before its name was read has none, as most children of a fork storm.
///
/// Depends on the recording, and not on what `spikes` and `explain` make of it.
pub fn foreign_programs(
    begin_wall_ns: i64,
    end_wall_ns: i64,
    data: &Path,
    ask: Ask<'_>,
) -> Result<Vec<String>, String> {
    let (since, until) = (instant(begin_wall_ns), instant(end_wall_ns));
    let data = data.to_string_lossy();
    let mut arguments = vec!["dump", &data, "--fields", "process.execs[*].name", "--long", "--format", "csv"];
    arguments.extend(["--since", &since, "--until", &until]);
    let output = ask(&arguments)?;
    let mut names: Vec<String> = String::from_utf8_lossy(&output)
        .lines()
        .skip(1)
        .filter_map(|line| line.splitn(LONG_COLUMNS, ',').last().map(str::to_owned))
        .filter(|name| !name.is_empty() && !BENCH_PROGRAMS.contains(&name.as_str()))
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns the names of foreign programs of all that is searched for the spikes of an incident.
pub fn disturbers(incident: &Incident, data: &Path, ask: Ask<'_>) -> Result<Vec<String>, String> {
    let begin_wall_ns = incident.begin_wall_ns - SEARCHED_BEFORE_NS;
    foreign_programs(begin_wall_ns, incident.end_wall_ns + SEARCHED_AFTER_NS, data, ask)
}

/// The judgement of one incident.
#[derive(Debug)]
pub struct IncidentVerdict {
    /// Whether any of the spikes lies within the incident.
    pub spike_found: bool,
    /// The culprit's position among the suspects, from 1. `None` if it is not a suspect, or if the
    /// first spike is outside of the incident, so that another time was explained.
    pub rank: Option<usize>,
    /// Whether the code that the program lists includes a named function of the culprit; `None` if
    /// the recording has no stacks.
    pub code_named: Option<bool>,
    /// The program's answer, in one line.
    pub answer: String,
}

/// Asks for the spikes around an incident, then for an explanation of the first one, and judges
/// both.
pub fn judge_incident(incident: &Incident, data: &Path, ask: Ask<'_>) -> IncidentVerdict {
    let mut verdict =
        IncidentVerdict { spike_found: false, rank: None, code_named: None, answer: String::new() };
    if let Err(error) = judge_answers(incident, data, ask, &mut verdict) {
        verdict.answer = format!("{} {error}", verdict.answer);
    }
    verdict
}

fn judge_answers(
    incident: &Incident,
    data: &Path,
    ask: Ask<'_>,
    verdict: &mut IncidentVerdict,
) -> Result<(), String> {
    let data = data.to_string_lossy();
    let since = instant(incident.begin_wall_ns - SEARCHED_BEFORE_NS);
    let until = instant(incident.end_wall_ns + SEARCHED_AFTER_NS);
    let output = ask(&["spikes", &data, "--since", &since, "--until", &until, "--limit", "10", "--json"])?;
    let spikes: Vec<NamedSpike> = parsed("spikes", &output)?;
    let tolerated = incident.begin_wall_ns - SPIKE_TOLERANCE_NS..=incident.end_wall_ns + SPIKE_TOLERANCE_NS;
    verdict.spike_found = spikes.iter().any(|spike| tolerated.contains(&spike.wall_ns));
    let Some(first) = spikes.first() else { return Err("no spike".to_owned()) };
    verdict.answer = format!("spike {},", described(first, incident.begin_wall_ns));

    let at = first.wall_ns.to_string();
    let output = ask(&["explain", &data, "--at", &at, "--json"])?;
    let explanation: Explanation = parsed("explain", &output)?;
    let place = place_of_culprit(incident, &explanation.suspects);
    let function = function_of_culprit(incident, &explanation);
    verdict.code_named = explanation.stacks.as_ref().map(|_| function.is_some());
    if tolerated.contains(&first.wall_ns) {
        verdict.rank = place;
    }
    verdict.answer.push_str(" suspects");
    for suspect in explanation.suspects.iter().take(3) {
        // Writing to a string cannot fail.
        let _written = write!(verdict.answer, " {} {}", suspect.kind, suspect.name);
        if let Some(pid) = suspect.pid {
            let _written = write!(verdict.answer, "[{pid}]");
        }
    }
    if explanation.suspects.is_empty() {
        verdict.answer.push_str(" none");
    }
    if explanation.stacks.is_some() {
        let _written = write!(verdict.answer, ", code {}", function.unwrap_or("none"));
    }
    Ok(())
}

/// Returns the culprit's place among the suspects, from 1. Its own control groups take no place;
/// everything else does, also disks and interfaces.
fn place_of_culprit(incident: &Incident, suspects: &[Suspect]) -> Option<usize> {
    let is_own_group =
        |suspect: &&Suspect| suspect.kind != "process" && incident.control_groups.contains(&suspect.name);
    let is_culprit = |suspect: &Suspect| {
        suspect.kind == "process"
            && suspect.pid.map_or(suspect.name == incident.culprit, |pid| pid == incident.pid)
    };
    suspects.iter().filter(|suspect| !is_own_group(suspect)).position(is_culprit).map(|place| place + 1)
}

/// Returns the first listed function of the culprit that has a name.
fn function_of_culprit<'e>(incident: &Incident, explanation: &'e Explanation) -> Option<&'e str> {
    let functions = &explanation.stacks.as_ref()?.functions;
    functions.iter().filter(|function| function.pid == incident.pid).find_map(|own| own.function.as_deref())
}

/// Asks for the spikes of a quiet stretch. Returns the findings in one line, or `None` if there are
/// none, as expected.
pub fn judge_quiet(stretch: &QuietStretch, data: &Path, ask: Ask<'_>) -> Option<String> {
    let (since, until) = (instant(stretch.begin_wall_ns), instant(stretch.end_wall_ns));
    let answer = ask(&["spikes", &data.to_string_lossy(), "--since", &since, "--until", &until, "--json"])
        .and_then(|output| parsed::<Vec<NamedSpike>>("spikes", &output));
    match answer {
        Ok(spikes) if spikes.is_empty() => None,
        Ok(spikes) => {
            let named = spikes.iter().take(3).map(|spike| described(spike, stretch.begin_wall_ns));
            Some(format!("{} spikes: {}", spikes.len(), named.collect::<Vec<_>>().join("; ")))
        }
        Err(error) => Some(error),
    }
}

fn parsed<'o, T: Deserialize<'o>>(verb: &str, output: &'o [u8]) -> Result<T, String> {
    serde_json::from_slice(output).map_err(|error| format!("{verb} --json: {error}"))
}

/// Describes a spike, with its time after `begin_wall_ns`.
fn described(spike: &NamedSpike, begin_wall_ns: i64) -> String {
    let element = spike.element.as_ref().map_or(String::new(), |element| format!("[{element}]"));
    let after_s = (spike.wall_ns - begin_wall_ns) as f64 / 1e9;
    format!("{}.{}{element} at {after_s:+.2} s, score {:.2}", spike.source, spike.field, spike.score)
}

/// Formats a wall time as the program's options take it.
fn instant(wall_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(wall_ns)).unwrap_or_default().to_string()
}

/// Counts of judged incidents.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct IncidentScore {
    pub runs: usize,
    pub spikes_found: usize,
    pub first: usize,
    pub first_three: usize,
    /// Incidents whose recording has stacks, and the number of them whose code was named.
    pub with_stacks: usize,
    pub code_named: usize,
}

impl IncidentScore {
    /// Counts one more incident.
    pub fn add(&mut self, verdict: &IncidentVerdict) {
        self.runs += 1;
        self.spikes_found += usize::from(verdict.spike_found);
        self.first += usize::from(verdict.rank == Some(1));
        self.first_three += usize::from(verdict.rank.is_some_and(|rank| rank <= 3));
        self.with_stacks += usize::from(verdict.code_named.is_some());
        self.code_named += usize::from(verdict.code_named == Some(true));
    }

    /// Returns whether these percentages name the culprit first, and among the first three. Nothing
    /// judged reaches nothing.
    pub fn reaches(&self, first_percent: f64, first_three_percent: f64) -> bool {
        self.runs > 0
            && percent(self.first, self.runs) >= first_percent
            && percent(self.first_three, self.runs) >= first_three_percent
    }
}

/// Returns the share of `part` in `whole`, in percent; 0 of nothing.
pub fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
