//! `check-trigger`: replays a rule over recordings and lists when it would have fired.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use flatcap_format::replay::{MergedReader, ReplayItem, ReplaySample};
use flatcap_format::schema::{CompiledSchema, to_visible_json};
use flatcap_format::segment::SourceInfo;
use flatcap_trigger::{
    FIRINGS_PER_DAY_MAX, RuleProblem, RuleSource, TriggerChange, TriggerCounts, TriggerEngine, TriggerEvent,
    TriggerRule,
};
use serde::Serialize;

use super::configuration::layers;
use super::error::CliError;
use super::selection::RecordingSelection;
use super::tables::left_aligned;
use super::time_printer::TimePrinter;
use super::{ExitStatus, human, report_notice};
use crate::config::{self, TriggerConfig};

/// Most firings that are listed: a rule that fires more often is to be tuned, not read.
const LISTED_MAX: usize = 10_000;

/// Replay a rule over recordings and list its firings.
///
/// The rule is evaluated as the recorder does: same engine, same samples. So a rule is tuned on
/// yesterday's data before it is configured. RULE is the name of a rule in the configuration, or a
/// condition such as `pressure.io_some.total:rate(100ms) > 20%`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A rule of the configuration, by its name, or a condition.
    #[arg(value_name = "RULE")]
    rule: String,
    #[command(flatten)]
    selection: RecordingSelection,
    /// Configuration file that has the rule; its drop-ins are read too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How long the condition must hold [default: as configured, else 0s].
    #[arg(long = "for", value_name = "DURATION", value_parser = config::duration_argument)]
    for_time: Option<Duration>,
    /// Condition on which the rule may fire again [default: as configured, else that it does not
    /// hold].
    #[arg(long, value_name = "CONDITION")]
    clear: Option<String>,
    /// How long the rule does not fire after a firing [default: as configured, else 60s].
    #[arg(long, value_name = "DURATION", value_parser = config::duration_argument)]
    hold_off: Option<Duration>,
    /// List all firings, without the limit of a day (`max_per_day`).
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
    /// When the condition began to hold.
    condition_wall_ns: i64,
    /// When the rule fired first.
    fired_wall_ns: i64,
    /// The time to keep.
    first_wall_ns: i64,
    last_wall_ns: i64,
    /// How often it fired again in that time.
    extended: u64,
    values: Vec<FiringValue>,
}

/// A comparison at a firing, as JSON.
#[derive(Debug, Serialize)]
struct FiringValue {
    text: String,
    element: Option<Box<str>>,
    value: Option<f64>,
    unit: Option<Box<str>>,
    #[serde(skip)]
    shown: String,
}

/// The rule over the runs of a recording.
struct RuleReplay {
    rule: TriggerRule,
    run_id: Option<u64>,
    sources: Vec<SourceInfo>,
    /// The position of each source for the rule.
    positions: Vec<usize>,
    engine: TriggerEngine,
    counts: TriggerCounts,
    samples: u64,
    found: Vec<FiringRow>,
    left_out: u64,
    /// Why the rule did not fit a run.
    misfits: Vec<RuleProblem>,
    has_fitted: bool,
    events: Vec<TriggerEvent>,
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
        positions: Vec::new(),
        engine: TriggerEngine::default(),
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
                replay.engine.observe_mark(marker.mono_ns, &marker.text, &mut replay.events);
                replay.collect(marker.mono_ns, marker.wall_ns);
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
    if args.json {
        write!(out, "{}", to_visible_json(&replay.found).map_err(io::Error::from)?)?;
        writeln!(out)?;
    } else {
        print(&replay.found, TimePrinter::new(zone), out)?;
    }
    out.flush()?;
    writeln!(io::stderr(), "flatcap: {}", replay.summary())?;
    Ok(outcome)
}

/// Returns the rule that the arguments mean.
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
    /// Begins a run, or continues it with other sources.
    fn begin(&mut self, run_id: u64, sources: &[SourceInfo]) {
        if self.run_id == Some(run_id) && self.sources.iter().map(identity).eq(sources.iter().map(identity)) {
            return;
        }
        if self.run_id != Some(run_id) {
            self.end_run();
            self.engine = TriggerEngine::default();
        }
        self.run_id = Some(run_id);
        self.sources = sources.to_vec();
        self.sources.sort_by_key(|source| source.id);
        // The recorder reads its own sources, which have no labels, once: one that has the name of
        // another one continues it after a reload.
        let first = |(at, own): (usize, &SourceInfo)| {
            let is_before = |before: &SourceInfo| {
                let is_same =
                    before.name == own.name && before.root == own.root && before.schema == own.schema;
                is_same && before.labels.is_empty() && own.labels.is_empty()
            };
            self.sources.iter().position(is_before).unwrap_or(at)
        };
        self.positions = self.sources.iter().enumerate().map(first).collect();
        let schemas: Vec<Option<CompiledSchema>> = self
            .sources
            .iter()
            .map(|source| CompiledSchema::compile(&source.schema, &source.root).ok())
            .collect();
        let known: Vec<RuleSource<'_>> = self
            .sources
            .iter()
            .zip(&schemas)
            .map(|(source, schema)| RuleSource {
                name: &source.name,
                period_ns: source.period_ns,
                schema: schema.as_ref(),
            })
            .collect();
        match TriggerEngine::new(std::slice::from_ref(&self.rule), &known) {
            Ok(mut engine) => {
                engine.adopt(&self.engine);
                self.engine = engine;
                self.has_fitted = true;
            }
            Err(problems) => self.misfits.extend(problems),
        }
    }

    fn end_run(&mut self) {
        self.counts = self.engine.counts().fold(self.counts, |sum, (_, own)| sum.plus(own));
    }

    fn observe(&mut self, sample: &ReplaySample<'_>) {
        let sample = &sample.telemetry;
        self.samples += 1;
        let Ok(source) = self.sources.binary_search_by_key(&sample.source, |source| source.id) else {
            return;
        };
        let source = self.positions.get(source).copied().unwrap_or(source);
        self.engine.advance(sample.mono_ns, &mut self.events);
        self.engine.observe(source, sample.mono_ns, sample.payload, &mut self.events);
        self.collect(sample.mono_ns, sample.wall_ns);
    }

    /// Takes the events. The clocks are those of the latest sample.
    fn collect(&mut self, mono_ns: u64, wall_ns: i64) {
        let offset_ns = wall_ns.wrapping_sub_unsigned(mono_ns);
        let wall = |mono_ns: u64| offset_ns.wrapping_add_unsigned(mono_ns);
        for event in self.events.drain(..) {
            if event.change == TriggerChange::Extended
                && let Some(last) = self.found.last_mut()
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
            self.found.push(FiringRow {
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

    /// Says how often the rule fired, and why it did not.
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
        if self.left_out > 0 {
            parts.push(format!("only the first {LISTED_MAX} are listed"));
        }
        parts.join("; ")
    }
}

/// Returns what makes a source the same one.
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
        let values: Vec<&str> = firing.values.iter().map(|value| value.shown.as_str()).collect();
        shown.add_row([
            times.microseconds(firing.fired_wall_ns),
            human::latency(u64::try_from(held_ns).unwrap_or(0)),
            firing.extended.to_string(),
            human::escaped(&values.join("; ")).into_owned(),
        ]);
    }
    writeln!(out, "{}", shown.trim_fmt())
}
