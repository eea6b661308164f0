//! The rules of a run, compiled for the sources that it reads, and what their firings lead to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::SourceInfo;
use flatcap_trigger::{ComparedQuantity, RuleSource, TriggerChange, TriggerEngine, TriggerEvent};

use super::rule_programs::{FiringReport, ProgramStarter, ReportedValue, RuleProgram};
use crate::config::{Config, TriggerConfig};
use crate::os::host_log::HostLog;
use crate::os::program_guard::ProgramGuard;
use crate::recorder::{FiringListener, RecorderCommand, RecorderHandle, RecorderRules};
use crate::snapshot::{OrderId, SnapshotHandle, SnapshotOrder};

/// Who learns of firings.
#[derive(Clone)]
pub(super) struct FiringTargets {
    /// The recorder of the data directory, if that of the ring evaluates the rules: it gets the
    /// marker, too.
    pub(super) disk: Option<RecorderHandle>,
    /// Orders snapshots; none without a ring.
    pub(super) snapshots: Option<SnapshotHandle>,
    /// Starts the programs of rules.
    pub(super) programs: ProgramStarter,
}

/// What a rule does besides its marker.
#[derive(Debug, Clone)]
struct RuleAction {
    capture: Vec<HostLog>,
    program: Option<RuleProgram>,
}

/// Returns the rules for these sources, in the order of their ids. A rule about a source that this
/// host lacks is left out, with a warning: the configuration as such was checked before.
pub(super) fn compile_rules(
    config: &Config,
    sources: &[SourceInfo],
    is_read: impl Fn(u16) -> bool,
    targets: FiringTargets,
) -> RecorderRules {
    let engine = compile_engine(config, sources, is_read);
    if engine.is_empty() {
        return RecorderRules::default();
    }
    RecorderRules { engine, on_firing: Some(firing_listener(rule_actions(config), targets)) }
}

fn compile_engine(config: &Config, sources: &[SourceInfo], is_read: impl Fn(u16) -> bool) -> TriggerEngine {
    let mut rules = config.rules();
    if rules.is_empty() {
        return TriggerEngine::default();
    }
    // Sources that were removed keep their ids, and have no fields.
    let compiled: Vec<(&str, u64, Option<CompiledSchema>)> = sources
        .iter()
        .map(|source| {
            if !is_read(source.id) {
                return ("", 0, None);
            }
            let schema = CompiledSchema::compile(&source.schema, &source.root).ok();
            (source.name.as_str(), source.period_ns, schema)
        })
        .collect();
    let known: Vec<RuleSource<'_>> = compiled
        .iter()
        .map(|(name, period_ns, schema)| RuleSource { name, period_ns: *period_ns, schema: schema.as_ref() })
        .collect();
    rules.retain(|rule| match TriggerEngine::new(std::slice::from_ref(rule), &known) {
        Ok(_) => true,
        Err(problems) => {
            for problem in problems {
                tracing::warn!(rule = &*rule.name, "rule is not evaluated on this host: {problem}");
            }
            false
        }
    });
    TriggerEngine::new(&rules, &known).unwrap_or_default()
}

/// Returns what each enabled rule does. A program that may not be run is reported now, and again
/// when it would be run.
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

/// Returns what a firing leads to: a marker in the data directory, too, a snapshot, and a program.
fn firing_listener(actions: BTreeMap<Arc<str>, RuleAction>, targets: FiringTargets) -> FiringListener {
    // The latest order of each rule, with its episode.
    let mut orders: BTreeMap<Arc<str>, (u64, OrderId)> = BTreeMap::new();
    FiringListener::new(move |event, marker| {
        if let Some(disk) = &targets.disk {
            // A recorder whose disk has stalled for long refuses it; the ring and the log have it.
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
            // Refused, too: a program says that a rule fired, whether or not a snapshot is kept.
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

/// Returns the order of a snapshot of an episode.
fn snapshot_order(event: &TriggerEvent, reason: &str, capture: Vec<HostLog>) -> SnapshotOrder {
    SnapshotOrder {
        name: event.rule.to_string(),
        rule: Some(event.rule.to_string()),
        reason: reason.to_owned(),
        values: compared_values(event),
        capture,
        fired_mono_ns: event.fired_mono_ns,
        first_mono_ns: event.from_mono_ns,
        last_mono_ns: event.until_mono_ns,
    }
}

/// Returns the quantities of the condition and their values, as text.
fn compared_values(event: &TriggerEvent) -> Vec<(String, String)> {
    let value = |compared: &ComparedQuantity| {
        let element = compared.element.as_deref().map(str::to_owned);
        let value = compared.value.as_ref().map(ToString::to_string);
        let parts: Vec<String> = element.into_iter().chain(value).collect();
        (compared.text.to_string(), parts.join(": "))
    };
    event.values.iter().map(value).collect()
}
