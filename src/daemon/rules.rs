//! The rules of a run, compiled for the sources that it reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::SourceInfo;
use flatcap_trigger::limits::RULES_MAX;
use flatcap_trigger::{ComparedQuantity, RuleSource, TriggerEngine, TriggerEvent};

use crate::config::Config;
use crate::recorder::{FiringListener, RecorderCommand, RecorderHandle};
use crate::snapshot::{OrderId, SnapshotHandle, SnapshotOrder};

/// Compiles the rules for these sources, in the order of their ids. A rule about a source that this
/// host lacks is left out, with a warning: the configuration as such was checked before.
pub(super) fn compile_rules(
    config: &Config,
    sources: &[SourceInfo],
    is_read: impl Fn(u16) -> bool,
) -> TriggerEngine {
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

/// Returns what a firing leads to in the recorder of the ring: a marker in the data directory, too,
/// and a snapshot.
pub(super) fn firing_listener(recorder: RecorderHandle, snapshots: Option<SnapshotHandle>) -> FiringListener {
    // The latest order of each rule, with its episode.
    let mut orders: BTreeMap<Arc<str>, (u64, OrderId)> = BTreeMap::new();
    FiringListener::new(move |event, marker| {
        // A recorder whose disk has stalled for long refuses it; the ring and the log have it.
        recorder.send(RecorderCommand::CopyMarker(Box::new(marker.clone())), drop);
        let Some(snapshots) = &snapshots else { return };
        let open = orders.get(&event.rule).filter(|(episode, _)| *episode == event.episode);
        let ordered = match open {
            Some((_, order)) => snapshots.extend(*order, event.until_mono_ns),
            None => snapshots.order(snapshot_order(event, &marker.text)).map(|order| {
                if orders.len() >= RULES_MAX {
                    // Of a rule that a reload has removed, or its next firing orders anew.
                    orders.pop_first();
                }
                orders.insert(Arc::clone(&event.rule), (event.episode, order));
            }),
        };
        if let Err(error) = ordered {
            tracing::error!(rule = &*event.rule, %error, "cannot order the snapshot of a rule");
        }
    })
}

/// Returns the order of a snapshot of an episode.
fn snapshot_order(event: &TriggerEvent, reason: &str) -> SnapshotOrder {
    let value = |compared: &ComparedQuantity| {
        let element = compared.element.as_deref().map(str::to_owned);
        let value = compared.value.as_ref().map(ToString::to_string);
        let parts: Vec<String> = element.into_iter().chain(value).collect();
        (compared.text.to_string(), parts.join(": "))
    };
    SnapshotOrder {
        name: event.rule.to_string(),
        rule: Some(event.rule.to_string()),
        reason: reason.to_owned(),
        values: event.values.iter().map(value).collect(),
        fired_mono_ns: event.fired_mono_ns,
        first_mono_ns: event.from_mono_ns,
        last_mono_ns: event.until_mono_ns,
    }
}
