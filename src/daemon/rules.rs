//! The rules of a run, compiled for the sources that the run reads, and the actions that follow
//! when a rule fires.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::SourceInfo;
use flatcap_os::host_log::HostLog;
use flatcap_os::program_guard::ProgramGuard;
use flatcap_recorder::snapshot::{OrderId, SnapshotHandle, SnapshotOrder};
use flatcap_recorder::{FiringListener, PushedRules, RecorderCommand, RecorderHandle, RecorderRules};
use flatcap_trigger::{
    ComparedQuantity, RuleProblem, RuleScope, ScopedEngine, TriggerChange, TriggerEvent, TriggerRule,
};

use super::rule_programs::{FiringReport, ProgramStarter, ReportedValue, RuleProgram};
use crate::config::{Config, TriggerConfig, missing_source};

/// The receivers of firings.
#[derive(Clone)]
pub(super) struct FiringTargets {
    /// The recorder of the data directory, if the recorder of the ring evaluates the rules. The
    /// recorder of the data directory needs the markers of these rules too.
    pub(super) disk: Option<RecorderHandle>,
    /// Requests snapshots; `None` without a ring.
    pub(super) snapshots: Option<SnapshotHandle>,
    /// Starts the programs of rules.
    pub(super) programs: ProgramStarter,
}

/// The actions of a rule in addition to its marker.
#[derive(Debug, Clone)]
struct RuleAction {
    capture: Vec<HostLog>,
    program: Option<RuleProgram>,
}

/// Compiles the rules for these sources, which are ordered by id. A rule about a source that this
/// host lacks is skipped with a warning. It is not an error, because the configuration itself was
/// checked before. A rule about a source that an application has not pushed yet waits until the
/// application pushes it.
pub(super) fn compile_rules(
    config: &Config,
    sources: &[SourceInfo],
    is_read: impl Fn(u16) -> bool,
    targets: FiringTargets,
) -> RecorderRules {
    let rules = config.rules();
    if rules.is_empty() {
        return RecorderRules::default();
    }
    // Sources that a reload removed keep their ids, so their ids are collected here. Pushed sources
    // are left out, because they are never read.
    let own = sources.iter().filter(|source| RuleScope::Own.has(source));
    let removed = own.map(|source| source.id).filter(|id| !is_read(*id)).collect();
    let names = config.push.rule_sources.clone();
    let mut compilation = RuleCompilation { rules, names: names.clone(), removed };
    let engine = compilation.compile_own(sources);
    if engine.engine().is_empty() && compilation.rules.is_empty() {
        return RecorderRules::default();
    }
    let on_firing = Some(firing_listener(rule_actions(config), targets));
    let pushed = (!compilation.rules.is_empty())
        .then(|| PushedRules::new(names, move |sources, id| compilation.compile_pushed(sources, id)));
    RecorderRules { engine, on_firing, pushed }
}

/// The rules of a configuration that remain to be compiled.
struct RuleCompilation {
    rules: Vec<TriggerRule>,
    /// Names of sources that applications push.
    names: Vec<String>,
    /// The ids of sources that are no longer read.
    removed: BTreeSet<u16>,
}

impl RuleCompilation {
    /// Compiles the rules that name only sources of the host. Rules that name pushed sources are
    /// compiled later.
    fn compile_own(&mut self, sources: &[SourceInfo]) -> ScopedEngine {
        let seen = self.seen(sources, RuleScope::Own);
        let (mut fitting, mut waiting) = (Vec::new(), Vec::new());
        for rule in std::mem::take(&mut self.rules) {
            let Err(problems) = seen.compile(std::slice::from_ref(&rule)) else {
                fitting.push(rule);
                continue;
            };
            if problems.iter().all(|problem| missing_source(problem, &self.names).is_some()) {
                waiting.push(rule);
            } else {
                report(&problems);
            }
        }
        self.rules = waiting;
        seen.compile(&fitting).unwrap_or_default()
    }

    /// Compiles the rules that name a pushed source.
    fn compile_pushed(&self, sources: &[SourceInfo], id: u16) -> ScopedEngine {
        let Some(pushed) = sources.iter().find(|source| source.id == id) else {
            return ScopedEngine::default();
        };
        let own = std::slice::from_ref(&pushed.name);
        let (without, seen) = (self.seen(sources, RuleScope::Own), self.seen(sources, RuleScope::With(id)));
        let names_own = |rule: &&TriggerRule| {
            // A rule names this source if it compiles with the source and reports a missing source
            // without it.
            let problems = without.compile(std::slice::from_ref(*rule)).err().unwrap_or_default();
            problems.iter().any(|problem| missing_source(problem, own).is_some())
        };
        let is_fit = |rule: &&TriggerRule| match seen.compile(std::slice::from_ref(*rule)) {
            Ok(_) => true,
            Err(problems) => {
                report(&problems);
                false
            }
        };
        let fitting: Vec<TriggerRule> = self.rules.iter().filter(names_own).filter(is_fit).cloned().collect();
        seen.compile(&fitting).unwrap_or_default()
    }

    fn seen<'s>(&self, sources: &'s [SourceInfo], scope: RuleScope) -> SeenSources<'s> {
        let seen = sources.iter().filter(|own| scope.has(own) && !self.removed.contains(&own.id));
        let compiled =
            |source: &'s SourceInfo| (source, CompiledSchema::compile(&source.schema, &source.root).ok());
        SeenSources(seen.map(compiled).collect())
    }
}

/// The sources that rules can use, with their schemas.
struct SeenSources<'s>(Vec<(&'s SourceInfo, Option<CompiledSchema>)>);

impl SeenSources<'_> {
    fn compile(&self, rules: &[TriggerRule]) -> Result<ScopedEngine, Vec<RuleProblem>> {
        let seen: Vec<_> = self.0.iter().map(|(source, schema)| (*source, schema.as_ref())).collect();
        ScopedEngine::new(rules, &seen)
    }
}

fn report(problems: &[RuleProblem]) {
    for problem in problems {
        tracing::warn!(rule = problem.rule, "rule is not evaluated on this host: {problem}");
    }
}

/// Returns the actions of each enabled rule. A program that must not be run is reported now, and
/// again each time it would be run.
fn rule_actions(config: &Config) -> BTreeMap<Arc<str>, RuleAction> {
    let enabled = config.triggers.iter().filter(|trigger| trigger.enabled);
    let action = |trigger: &TriggerConfig| {
        let program = trigger.run.first().map(|program| RuleProgram {
            words: trigger.run.clone(),
            guard: ProgramGuard::new(PathBuf::from(program), trigger.run_defined_in.clone()),
        });
        if let Some(Err(error)) = program.as_ref().map(|program| program.guard.check()) {
            tracing::warn!(rule = trigger.name.as_str(), %error, "the program of a rule would not be run");
        }
        RuleAction { capture: trigger.capture.clone(), program }
    };
    enabled.map(|trigger| (Arc::from(trigger.name.as_str()), action(trigger))).collect()
}

/// Returns the listener that performs the actions when a rule fires. The actions are a marker in
/// the data directory, a snapshot, and a program.
fn firing_listener(actions: BTreeMap<Arc<str>, RuleAction>, targets: FiringTargets) -> FiringListener {
    // The latest snapshot request of each rule, with the number of the episode.
    let mut orders: BTreeMap<Arc<str>, (u64, OrderId)> = BTreeMap::new();
    FiringListener::new(move |event, marker| {
        if let Some(disk) = &targets.disk {
            // If the disk has stalled for long, its recorder refuses the marker. The ring and the
            // log still have the marker.
            disk.send(RecorderCommand::CopyMarker(Box::new(marker.clone())), drop);
        }
        let action = actions.get(&event.rule);
        let is_first = event.change == TriggerChange::Fired;
        let start = action.and_then(|action| action.program.clone()).filter(|_| is_first).map(|program| {
            let programs = targets.programs.clone();
            let report = firing_report(event, &marker.text, marker.wall_ns);
            move |snapshot: Option<&str>| programs.start(program, report, snapshot)
        });
        let Some(snapshots) = &targets.snapshots else {
            if let Some(start) = start {
                start(None);
            }
            return;
        };
        let open = orders.get(&event.rule).filter(|(episode, _)| *episode == event.episode);
        let ordered = if let Some((_, order)) = open {
            snapshots.extend(*order, event.until_mono_ns)
        } else {
            let capture = action.map(|action| action.capture.clone()).unwrap_or_default();
            let order = snapshot_order(event, &marker.text, capture);
            // The program is started even if the snapshot is refused, because it must report the
            // firing in any case.
            let reply = move |begun: Result<String, _>| {
                if let Some(start) = start {
                    start(begun.as_deref().ok());
                }
            };
            snapshots.order(order, reply).map(|order| {
                orders.insert(Arc::clone(&event.rule), (event.episode, order));
            })
        };
        if let Err(error) = ordered {
            tracing::error!(rule = &*event.rule, %error, "cannot order the snapshot of a rule");
        }
    })
}

fn firing_report(event: &TriggerEvent, reason: &str, fired_wall_ns: i64) -> FiringReport {
    let values = compared_values(event).into_iter();
    FiringReport {
        rule: event.rule.to_string(),
        reason: reason.to_owned(),
        values: values.map(|(expression, value)| ReportedValue { expression, value }).collect(),
        fired_wall_ns,
        until_wall_ns: fired_wall_ns
            .saturating_add_unsigned(event.until_mono_ns.saturating_sub(event.last_fired_mono_ns)),
    }
}

/// Returns the request for a snapshot of an episode.
fn snapshot_order(event: &TriggerEvent, reason: &str, capture: Vec<HostLog>) -> SnapshotOrder {
    SnapshotOrder {
        name: event.rule.to_string(),
        rule: Some(event.rule.to_string()),
        user: None,
        reason: reason.to_owned(),
        values: compared_values(event),
        capture,
        fired_mono_ns: event.fired_mono_ns,
        first_mono_ns: event.from_mono_ns,
        last_mono_ns: event.until_mono_ns,
    }
}

/// Returns the expressions that the condition compares, each with its value as a string.
fn compared_values(event: &TriggerEvent) -> Vec<(String, String)> {
    let value = |compared: &ComparedQuantity| {
        let element = compared.element.as_deref().map(str::to_owned);
        let value = compared.value.as_ref().map(ToString::to_string);
        let parts: Vec<String> = element.into_iter().chain(value).collect();
        (compared.text.to_string(), parts.join(": "))
    };
    event.values.iter().map(value).collect()
}
