//! The rules of a run, compiled for the sources that it reads.

use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::SourceInfo;
use flatcap_trigger::{RuleSource, TriggerEngine};

use crate::config::Config;

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
        .map(|source| match is_read(source.id) {
            true => (
                source.name.as_str(),
                source.period_ns,
                CompiledSchema::compile(&source.schema, &source.root).ok(),
            ),
            false => ("", 0, None),
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
