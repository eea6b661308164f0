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
    /// The sources that the recorder reads, and in addition the pushed source with this id. Several
    /// threads of applications may push sources with the same name at the same time, so a rule sees
    /// only one of these sources.
    With(u16),
    /// All sources that no application pushes. These are the sources that the recorder reads, and
    /// imported sources.
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

/// Rules that are compiled for the sources that the rules see. Samples are passed with the ids of
/// their sources.
#[derive(Debug, Default)]
pub struct ScopedEngine {
    engine: TriggerEngine,
    positions: BTreeMap<u16, usize>,
}

impl ScopedEngine {
    /// Compiles rules for the sources that the rules see. `seen` contains each source with its
    /// schema.
    ///
    /// The recorder has only one source with a given name at a time. Every sample is passed with
    /// the id of its source. An earlier source with the same name is treated as the same source if
    /// it has the same schema.
    ///
    /// # Errors
    /// Returns a problem for every condition that does not fit these sources.
    pub fn new(
        rules: &[TriggerRule],
        seen: &[(&SourceInfo, Option<&CompiledSchema>)],
    ) -> Result<Self, Vec<RuleProblem>> {
        // The sources are sorted by id, so the last source with a name remains.
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

    /// Returns the engine with the rules.
    pub fn engine(&self) -> &TriggerEngine {
        &self.engine
    }

    /// Returns the engine with the rules, so that the caller can advance the time, observe marks,
    /// or take over the state of earlier rules.
    pub fn engine_mut(&mut self) -> &mut TriggerEngine {
        &mut self.engine
    }

    /// Returns the ids of the sources whose samples a rule uses.
    pub fn observed(&self) -> impl Iterator<Item = u16> {
        let observed = self.positions.iter().filter(|(_, position)| self.engine.observes(**position));
        observed.map(|(id, _)| *id)
    }

    /// Observes a sample of the source that has this id, like [`TriggerEngine::observe`].
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
        // Proves that a rule sees all sources of the recorder. Of the other sources, it sees only
        // the source with the given id, or all imported sources.
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
        // Proves that a rule refers to the source with the highest id, even if there is a pushed
        // source. Also proves that this source continues an earlier source that has the same
        // schema.
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
