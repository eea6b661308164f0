//! Decides which sources of a run a rule sees, for the recorder and for replays.

use std::collections::BTreeMap;

use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::SourceInfo;

use crate::engine::{TriggerEngine, TriggerRule};
use crate::error::RuleProblem;
use crate::event::TriggerEvent;
use crate::rule_source::RuleSource;

/// The sources of a run that a rule sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleScope {
    /// The sources that the recorder reads. The recorder's own sources have no labels.
    Own,
    /// The sources that the recorder reads, and the one with this id. Threads of applications push
    /// sources of one name at the same time, so a rule sees one of them.
    With(u16),
    /// All that no application pushes: those that the recorder reads, and imported ones.
    Imported,
}

impl RuleScope {
    /// Returns whether a rule sees the source.
    pub fn has(self, source: &SourceInfo) -> bool {
        let is_own = source.labels.is_empty();
        match self {
            Self::Own => is_own,
            Self::With(id) => is_own || source.id == id,
            Self::Imported => source.sender().is_none(),
        }
    }
}

/// Rules, compiled for the sources that they see. They observe samples by the ids of their sources.
#[derive(Debug, Default)]
pub struct ScopedEngine {
    engine: TriggerEngine,
    positions: BTreeMap<u16, usize>,
}

impl ScopedEngine {
    /// Compiles rules for the sources that they see, each with its schema.
    ///
    /// The recorder has one source of a name at a time: after a reload the one with the highest id.
    /// Conditions refer to this source, and an earlier source of the name is the same one if it has
    /// the same schema.
    ///
    /// # Errors
    /// All conditions that do not fit these sources.
    pub fn new(
        rules: &[TriggerRule],
        seen: &[(&SourceInfo, Option<&CompiledSchema>)],
    ) -> Result<Self, Vec<RuleProblem>> {
        // In the order of ids, so the last one of a name remains.
        let own = seen.iter().map(|(source, _)| *source).filter(|source| source.labels.is_empty());
        let mut own: Vec<&SourceInfo> = own.collect();
        own.sort_by_key(|source| source.id);
        let current: BTreeMap<&str, &SourceInfo> =
            own.iter().map(|source| (source.name.as_str(), *source)).collect();
        let (mut known, mut positions) = (Vec::new(), BTreeMap::new());
        for (source, schema) in seen {
            let is_replaced = source.labels.is_empty()
                && current.get(source.name.as_str()).is_some_and(|current| current.id != source.id);
            if !is_replaced {
                positions.insert(source.id, known.len());
                let (name, period_ns) = (source.name.as_str(), source.period_ns);
                known.push(RuleSource { name, period_ns, schema: *schema });
            }
        }
        for earlier in own {
            let same = current.get(earlier.name.as_str()).filter(|current| {
                current.id != earlier.id
                    && (&current.root, &current.schema) == (&earlier.root, &earlier.schema)
            });
            if let Some(position) = same.and_then(|current| positions.get(&current.id)).copied() {
                positions.insert(earlier.id, position);
            }
        }
        Ok(Self { engine: TriggerEngine::new(rules, &known)?, positions })
    }

    /// Returns the rules.
    pub fn engine(&self) -> &TriggerEngine {
        &self.engine
    }

    /// Returns the rules, to let time pass, observe marks or continue earlier ones.
    pub fn engine_mut(&mut self) -> &mut TriggerEngine {
        &mut self.engine
    }

    /// Returns the ids of the sources whose samples matter to a rule.
    pub fn observed(&self) -> impl Iterator<Item = u16> {
        let observed = self.positions.iter().filter(|(_, position)| self.engine.observes(**position));
        observed.map(|(id, _)| *id)
    }

    /// Observes a sample of the source with this id, as [`TriggerEngine::observe`] does.
    #[inline]
    pub fn observe(&mut self, id: u16, stamp: (u64, u16), payload: &[u8], events: &mut Vec<TriggerEvent>) {
        if let Some(position) = self.positions.get(&id) {
            self.engine.observe(*position, stamp, payload, events);
        }
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::SourceKind;

    use super::*;
    use crate::fixtures::rule;

    const SCHEMA: &[u8] = include_bytes!("../../../generated/host/load.bfbs");

    fn source(id: u16, name: &str, root: &str, labels: &[&str]) -> SourceInfo {
        SourceInfo {
            id,
            name: name.to_owned(),
            labels: labels.iter().map(|label| ((*label).to_owned(), "x".to_owned())).collect(),
            kind: SourceKind::Host,
            period_ns: 0,
            root: root.to_owned(),
            schema: SCHEMA.to_vec(),
            next_seq: 0,
        }
    }

    fn observed(condition: &str, sources: &[SourceInfo], scope: RuleScope) -> Option<Vec<u16>> {
        let schema = CompiledSchema::compile(SCHEMA, "flatcap.host.Load").unwrap();
        let seen: Vec<_> =
            sources.iter().filter(|own| scope.has(own)).map(|own| (own, Some(&schema))).collect();
        Some(ScopedEngine::new(&[rule(condition)], &seen).ok()?.observed().collect())
    }

    #[test]
    fn a_rule_sees_own_sources_and_one_pushed() {
        // Proves that a rule sees all sources of the recorder, and of the others only the one that
        // is meant, or all imported ones.
        let root = "flatcap.host.Load";
        let sources = [
            source(0, "load", root, &[]),
            source(1, "orders", root, &["client", "uid"]),
            source(2, "orders", root, &["client", "uid"]),
            source(3, "trades", root, &["symbol"]),
        ];
        let see = |condition: &str, scope| observed(condition, &sources, scope);
        assert_eq!(see("load.load1 > 1", RuleScope::Own), Some(vec![0]));
        assert_eq!(see("orders.load1 > 1", RuleScope::Own), None);
        assert_eq!(see("orders.load1 > 1", RuleScope::With(2)), Some(vec![2]));
        assert_eq!(see("orders.load1 > 1 and load.load1 > 1", RuleScope::With(1)), Some(vec![0, 1]));
        assert_eq!(see("trades.load1 > 1 and load.load1 > 1", RuleScope::Imported), Some(vec![0, 3]));
        assert_eq!(see("orders.load1 > 1", RuleScope::Imported), None);
    }

    #[test]
    fn a_source_continues_after_a_reload() {
        // Proves that a rule means the source with the highest id, with a pushed one too, and that
        // an earlier one continues in it if it has the same schema.
        let root = "flatcap.host.Load";
        let sources = [
            source(0, "load", root, &[]),
            source(1, "orders", root, &["client"]),
            source(2, "load", root, &[]),
        ];
        let both = "orders.load1 > 1 and load.load1 > 1";
        assert_eq!(observed(both, &sources, RuleScope::With(1)), Some(vec![0, 1, 2]));
        let mut sources = sources;
        sources[0].root = "flatcap.host.Other".to_owned();
        assert_eq!(observed(both, &sources, RuleScope::With(1)), Some(vec![1, 2]));
    }
}
