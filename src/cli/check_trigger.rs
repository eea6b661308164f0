//! `check-trigger`: replays a rule over recordings and lists the times at which the rule would have
//! fired.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use flatcap_format::replay::{MergedReader, ReplayItem, ReplaySample};
use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::{Marker, SourceInfo};
use flatcap_text::quantity::duration_argument;
use flatcap_trigger::{
    FIRINGS_PER_DAY_MAX, RuleError, RuleProblem, RuleScope, ScopedEngine, TriggerChange, TriggerCounts,
    TriggerEvent, TriggerRule,
};
use serde::Serialize;

use super::configuration::layers;
use super::error::CliError;
use super::selection::RecordingSelection;
use super::status::UNTRACKED;
use super::tables::left_aligned;
use super::{ExitStatus, human, print_json, report_notice};
use crate::config::TriggerConfig;
use flatcap_text::time_printer::TimePrinter;

/// Maximum number of listed firings. A rule that fires more often needs tuning.
const LISTED_MAX: usize = 10_000;

/// Replay a rule over recordings and list its firings.
///
/// The rule is evaluated as in the recorder, with the same engine and the same samples. A rule can
/// therefore be tuned on yesterday's data before it is configured. RULE is the name of a rule in
/// the configuration, or a condition such as `pressure.io_some.total:rate(100ms) > 20%`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name of a rule in the configuration, or a condition.
    #[arg(value_name = "RULE")]
    rule: String,
    #[command(flatten)]
    selection: RecordingSelection,
    /// Configuration file that has the rule; its drop-ins are read too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How long the condition must hold [default: as configured, else 0s].
    #[arg(long = "for", value_name = "DURATION", value_parser = duration_argument)]
    for_time: Option<Duration>,
    /// Condition on which the rule may fire again [default: as configured, else when the condition
    /// of the rule no longer holds].
    #[arg(long, value_name = "CONDITION")]
    clear: Option<String>,
    /// How long after a firing the rule does not fire again [default: as configured, else 60s].
    #[arg(long, value_name = "DURATION", value_parser = duration_argument)]
    hold_off: Option<Duration>,
    /// List all firings, without the daily limit (`max_per_day`).
    #[arg(long)]
    all: bool,
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
}

/// A firing, as JSON.
#[derive(Debug, Serialize)]
struct FiringRow {
    rule: String,
    /// The pushed source for which the rule fired. If another source has the same name, the id
    /// follows, as in `orders[3]`.
    source: Option<String>,
    /// Time at which the condition began to hold.
    condition_wall_ns: i64,
    /// Time at which the rule fired first.
    fired_wall_ns: i64,
    /// The start and the end of the time range whose samples the rule would preserve.
    first_wall_ns: i64,
    last_wall_ns: i64,
    /// Number of times that the rule fired again in that time.
    extended: u64,
    values: Vec<FiringValue>,
}

/// One comparison in the condition, with its values at a firing, as JSON.
#[derive(Debug, Serialize)]
struct FiringValue {
    text: String,
    element: Option<Box<str>>,
    value: Option<f64>,
    unit: Option<Box<str>>,
    #[serde(skip)]
    shown: String,
}

/// Interval at which time advances for engines whose sources have no samples, in nanoseconds.
const ADVANCE_NS: u64 = 1_000_000_000;

/// The replay of a rule over the runs of a recording.
struct RuleReplay {
    rule: TriggerRule,
    run_id: Option<u64>,
    /// The sources of the run, ordered by id.
    sources: Vec<SourceInfo>,
    /// The schema of each source.
    schemas: Vec<Option<CompiledSchema>>,
    engines: Vec<SourceEngine>,
    /// The engines that observe a source, by the id of the source.
    observers: BTreeMap<u16, Vec<usize>>,
    /// The time to which all engines have advanced, in monotonic nanoseconds.
    advanced_ns: u64,
    /// The time of the latest sample by the monotonic and by the wall clock, in nanoseconds.
    newest: (u64, i64),
    counts: TriggerCounts,
    samples: u64,
    found: Vec<FiringRow>,
    left_out: u64,
    /// The reasons why the rule did not fit a run.
    misfits: Vec<RuleProblem>,
    has_fitted: bool,
    events: Vec<TriggerEvent>,
}

/// The rule, compiled for one of several sources with the same name, as in the recorder.
struct SourceEngine {
    /// The id and the name of the pushed source. If another source has the same name, the name
    /// contains the id. `None` if the rule uses no pushed source, or several.
    source: Option<(u16, String)>,
    engine: ScopedEngine,
    /// The position of the engine's last firing in the list of all firings.
    last: Option<usize>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.selection.zone.zone()?;
    let rule = rule(args)?;
    let filter = args.selection.filter(&zone)?;
    let mut reader = MergedReader::open(&args.selection.paths, filter)?;
    let mut replay = RuleReplay {
        rule,
        run_id: None,
        sources: Vec::new(),
        schemas: Vec::new(),
        engines: Vec::new(),
        observers: BTreeMap::new(),
        advanced_ns: 0,
        newest: (0, 0),
        counts: TriggerCounts::default(),
        samples: 0,
        found: Vec::new(),
        left_out: 0,
        misfits: Vec::new(),
        has_fitted: false,
        events: Vec::new(),
    };
    let mut outcome = ExitStatus::Done;
    while let Some(item) = reader.next()? {
        match item {
            ReplayItem::Header(header, _) => replay.begin(header.run_id, &header.sources),
            ReplayItem::Source(source, _) => {
                let sources = replay.sources.iter().filter(|own| own.id != source.id);
                let sources: Vec<SourceInfo> = sources.chain([source]).cloned().collect();
                replay.begin(replay.run_id.unwrap_or_default(), &sources);
            }
            ReplayItem::Sample(sample) => replay.observe(&sample),
            ReplayItem::Marker(marker, _)
                if marker.origin == flatcap_format::segment::MarkerOrigin::Person =>
            {
                replay.observe_mark(&marker);
            }
            ReplayItem::Notice(notice) => outcome = report_notice(&notice)?,
            ReplayItem::Gap(..) | ReplayItem::Marker(..) | ReplayItem::Other(..) => {}
        }
    }
    replay.end_run();
    if let (Some(problem), false) = (replay.misfits.first(), replay.has_fitted) {
        return Err(CliError::Usage(format!("{}: {}", problem.key, problem.error)));
    }
    if replay.samples == 0 {
        return Err(args.selection.no_samples(zone)?);
    }
    // The engines of different sources advance at different times, so the firings are not yet
    // sorted by time.
    replay.found.sort_by_key(|firing| firing.fired_wall_ns);
    if args.json {
        print_json(&replay.found, out)?;
    } else {
        print(&replay.found, TimePrinter::new(zone), out)?;
    }
    out.flush()?;
    writeln!(io::stderr(), "flatcap: {}", replay.summary())?;
    Ok(outcome)
}

/// Returns the rule that the arguments specify.
fn rule(args: &Args) -> Result<TriggerRule, CliError> {
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let is_name = args.rule.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let mut rule = if is_name {
        let config = layers(args.config.as_deref()).read()?.config;
        let found = config.triggers.iter().find(|trigger| trigger.name == args.rule);
        found.and_then(TriggerConfig::rule).ok_or_else(|| no_rule(&args.rule, &config.triggers))?
    } else {
        let when = args.rule.parse().map_err(|error| usage(&error as &dyn std::fmt::Display))?;
        TriggerConfig::of_condition("rule".to_owned(), when)
    };
    if let Some(clear) = &args.clear {
        let parsed = clear.parse();
        rule.clear = Some(parsed.map_err(|error| CliError::Usage(format!("--clear: {error}")))?);
    }
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    rule.times.for_ns = args.for_time.map_or(rule.times.for_ns, ns);
    rule.times.hold_off_ns = args.hold_off.map_or(rule.times.hold_off_ns, ns);
    if args.all {
        rule.times.max_per_day = FIRINGS_PER_DAY_MAX;
    }
    Ok(rule)
}

fn no_rule(name: &str, known: &[TriggerConfig]) -> CliError {
    let known: BTreeSet<String> = known.iter().map(|trigger| trigger.name.clone()).collect();
    CliError::Usage(if known.is_empty() {
        format!(
            "no rule {name} in the configuration, which has none; name its file with --config, or write a condition"
        )
    } else {
        format!("no rule {name} in the configuration; it has {}", human::escaped_list(&known))
    })
}

impl RuleReplay {
    /// Begins a run, or continues the run with other sources.
    fn begin(&mut self, run_id: u64, sources: &[SourceInfo]) {
        if self.run_id == Some(run_id) && self.sources.iter().map(identity).eq(sources.iter().map(identity)) {
            return;
        }
        if self.run_id != Some(run_id) {
            self.end_run();
            self.sources.clear();
            self.schemas.clear();
            self.advanced_ns = 0;
        }
        self.run_id = Some(run_id);
        let mut sorted = sources.to_vec();
        sorted.sort_by_key(|source| source.id);
        let before = std::mem::replace(&mut self.sources, sorted);
        let mut known: BTreeMap<u16, (&SourceInfo, Option<CompiledSchema>)> =
            before.iter().zip(self.schemas.drain(..)).map(|(own, schema)| (own.id, (own, schema))).collect();
        let schemas = self.sources.iter().map(|source| match known.remove(&source.id) {
            Some((before, schema)) if identity(before) == identity(source) => schema,
            _ => CompiledSchema::compile(&source.schema, &source.root).ok(),
        });
        self.schemas = schemas.collect();
        self.compile();
    }

    /// Compiles the rule as the recorder does. A rule that names only sources of the recorder is
    /// compiled once. Otherwise, the rule is compiled separately for each pushed or imported source
    /// that it names. A rule about several imported sources is compiled once for all of them.
    fn compile(&mut self) {
        let mut earlier = std::mem::take(&mut self.engines);
        let id_of = |own: &SourceEngine| own.source.as_ref().map(|(id, _)| *id);
        let mut compiled = Vec::new();
        if let Ok(engine) = self.engine(|source| RuleScope::Own.has(source)) {
            compiled.push((None, engine));
        } else {
            let others = self.sources.iter().filter(|source| !RuleScope::Own.has(source));
            for source in others {
                let is_alone =
                    self.sources.iter().all(|other| other.id == source.id || other.name != source.name);
                let name =
                    if is_alone { source.name.clone() } else { format!("{}[{}]", source.name, source.id) };
                let scope = RuleScope::With(source.id);
                let own = self.engine(|source| scope.has(source)).ok();
                compiled.extend(own.map(|own| (Some((source.id, name)), own)));
            }
        }
        if compiled.is_empty() {
            match self.engine(|source| RuleScope::Imported.has(source)) {
                Ok(engine) => compiled.push((None, engine)),
                Err(_) if self.engine(|_| true).is_ok() => self.misfits.push(self.names_several()),
                Err(problems) => self.misfits.extend(problems),
            }
        }
        self.has_fitted |= !compiled.is_empty();
        for (source, engine) in compiled {
            let mut own = SourceEngine { source, engine, last: None };
            if let Some(at) = earlier.iter().position(|before| id_of(before) == id_of(&own)) {
                let before = earlier.swap_remove(at);
                own.engine.engine_mut().adopt(before.engine.engine());
                own.last = before.last;
            }
            self.engines.push(own);
        }
        self.observers.clear();
        for (number, own) in self.engines.iter().enumerate() {
            for id in own.engine.observed() {
                self.observers.entry(id).or_default().push(number);
            }
        }
    }

    /// Compiles the rule for the sources that `is_seen` selects.
    fn engine(&self, is_seen: impl Fn(&SourceInfo) -> bool) -> Result<ScopedEngine, Vec<RuleProblem>> {
        let known = self.sources.iter().zip(&self.schemas).filter(|(source, _)| is_seen(source));
        let seen: Vec<_> = known.map(|(source, schema)| (source, schema.as_ref())).collect();
        ScopedEngine::new(std::slice::from_ref(&self.rule), &seen)
    }

    /// Returns the problem of a rule that names several pushed sources. The recorder does not
    /// evaluate such a rule.
    fn names_several(&self) -> RuleProblem {
        let what = "it names several sources that applications push; write a rule for each of them";
        let error = RuleError::Field(what.to_owned());
        RuleProblem { rule: self.rule.name.to_string(), key: "when", error }
    }

    fn end_run(&mut self) {
        self.advance(self.newest);
        for own in std::mem::take(&mut self.engines) {
            self.counts = own.engine.engine().counts().fold(self.counts, |sum, (_, own)| sum.plus(own));
        }
    }

    /// Advances the time of all engines.
    fn advance(&mut self, (mono_ns, wall_ns): (u64, i64)) {
        self.advanced_ns = mono_ns;
        for number in 0..self.engines.len() {
            if let Some(own) = self.engines.get_mut(number) {
                own.engine.engine_mut().advance(mono_ns, &mut self.events);
                self.collect(number, (mono_ns, wall_ns));
            }
        }
    }

    fn observe(&mut self, sample: &ReplaySample<'_>) {
        let sample = &sample.telemetry;
        let now = (sample.mono_ns, sample.wall_ns);
        (self.samples, self.newest) = (self.samples + 1, now);
        if self.engines.len() == 1 || sample.mono_ns.saturating_sub(self.advanced_ns) >= ADVANCE_NS {
            self.advance(now);
        }
        for number in self.observers.get(&sample.source).cloned().unwrap_or_default() {
            let Some(own) = self.engines.get_mut(number) else { continue };
            own.engine.engine_mut().advance(sample.mono_ns, &mut self.events);
            let stamp = (sample.mono_ns, sample.flags);
            own.engine.observe(sample.source, stamp, sample.payload, &mut self.events);
            self.collect(number, now);
        }
    }

    fn observe_mark(&mut self, marker: &Marker) {
        for number in 0..self.engines.len() {
            let Some(own) = self.engines.get_mut(number) else { continue };
            own.engine.engine_mut().observe_mark(marker.mono_ns, &marker.text, &mut self.events);
            self.collect(number, (marker.mono_ns, marker.wall_ns));
        }
    }

    /// Collects the events of an engine. The two times belong to the latest sample.
    fn collect(&mut self, number: usize, (mono_ns, wall_ns): (u64, i64)) {
        let Some(own) = self.engines.get_mut(number) else { return };
        let offset_ns = wall_ns.wrapping_sub_unsigned(mono_ns);
        let wall = |mono_ns: u64| offset_ns.wrapping_add_unsigned(mono_ns);
        for event in self.events.drain(..) {
            if event.change == TriggerChange::Extended
                && let Some(last) = own.last.and_then(|last| self.found.get_mut(last))
            {
                last.extended += 1;
                last.last_wall_ns = wall(event.until_mono_ns);
            }
            if event.change != TriggerChange::Fired {
                continue;
            }
            if self.found.len() == LISTED_MAX {
                self.left_out += 1;
                continue;
            }
            let values = event.values.iter().map(|compared| FiringValue {
                text: compared.text.to_string(),
                element: compared.element.clone(),
                value: compared.value.as_ref().map(|value| value.value),
                unit: compared.value.as_ref().map(|value| value.unit.clone()),
                shown: compared.to_string(),
            });
            own.last = Some(self.found.len());
            self.found.push(FiringRow {
                source: own.source.as_ref().map(|(_, name)| name.clone()),
                rule: event.rule.to_string(),
                condition_wall_ns: wall(event.condition_mono_ns),
                fired_wall_ns: wall(event.fired_mono_ns),
                first_wall_ns: wall(event.from_mono_ns),
                last_wall_ns: wall(event.until_mono_ns),
                extended: 0,
                values: values.collect(),
            });
        }
    }

    /// Returns a summary of how often the rule fired, and how often each reason kept it from
    /// firing.
    fn summary(&self) -> String {
        let counts = self.counts;
        let mut parts = vec![format!("fired {} times in {} samples", counts.fired, self.samples)];
        let reasons = [
            (counts.suppressed_hold_off, "suppressed by hold_off"),
            (counts.suppressed_per_day, "by max_per_day"),
            (counts.suppressed_length, "for the episode would be too long"),
        ];
        let named = reasons.iter().filter(|(count, _)| *count > 0);
        parts.extend(named.map(|(count, what)| format!("{count} {what}")));
        if counts.unknown > 0 {
            parts.push(format!("unknown in {} of {} evaluations", counts.unknown, counts.evaluated));
        }
        if counts.untracked > 0 {
            parts.push(format!("{} values of list elements not tracked, {UNTRACKED}", counts.untracked));
        }
        if self.left_out > 0 {
            parts.push(format!("only the first {LISTED_MAX} are listed"));
        }
        parts.join("; ")
    }
}

/// Returns the properties that identify a source.
fn identity(source: &SourceInfo) -> (u16, &str, &[u8]) {
    (source.id, &source.name, &source.schema)
}

fn print(found: &[FiringRow], mut times: TimePrinter, out: &mut dyn Write) -> io::Result<()> {
    if found.is_empty() {
        return writeln!(out, "the rule would not have fired");
    }
    let mut shown = left_aligned(["fired", "held", "again", "values"]);
    for firing in found {
        let held_ns = firing.fired_wall_ns.saturating_sub(firing.condition_wall_ns);
        let source = firing.source.iter().map(String::as_str);
        let values: Vec<&str> =
            source.chain(firing.values.iter().map(|value| value.shown.as_str())).collect();
        shown.add_row([
            times.microseconds(firing.fired_wall_ns),
            human::latency(u64::try_from(held_ns).unwrap_or(0)),
            firing.extended.to_string(),
            human::escaped(&values.join("; ")).into_owned(),
        ]);
    }
    writeln!(out, "{}", shown.trim_fmt())
}
