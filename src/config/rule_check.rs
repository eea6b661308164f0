//! Compiles the configured rules against the schemas of the configured sources.

use flatcap_format::schema::CompiledSchema;
use flatcap_sampling::sources::synthetic;
use flatcap_trigger::{RuleError, RuleProblem, RuleSource, TriggerEngine, TriggerRule};

use super::settings::Config;
use super::source::SourceConfig;

impl Config {
    /// Returns the rules that are enabled.
    pub fn rules(&self) -> Vec<TriggerRule> {
        let enabled = self.triggers.iter().filter(|trigger| trigger.enabled);
        enabled.filter_map(super::trigger::TriggerConfig::rule).collect()
    }

    /// Compiles the enabled rules for the enabled sources, including sources that this host lacks.
    /// Rules about sources that applications will push are left out.
    ///
    /// # Errors
    /// The error lists all conditions that do not fit the schemas.
    pub fn compile_rules(&self) -> Result<TriggerEngine, Vec<RuleProblem>> {
        let mut rules = self.rules();
        if rules.is_empty() {
            return TriggerEngine::new(&[], &[]);
        }
        let problems = match compile(&rules, self.enabled_sources()) {
            Ok(engine) => return Ok(engine),
            Err(problems) => problems,
        };
        let is_pushed = |problem: &RuleProblem| missing_source(problem, &self.push.rule_sources).is_some();
        let (pushed, mut problems): (Vec<_>, Vec<_>) = problems.into_iter().partition(is_pushed);
        if problems.is_empty() {
            rules.retain(|rule| !pushed.iter().any(|problem| *problem.rule == *rule.name));
            return compile(&rules, self.enabled_sources());
        }
        let off: Vec<String> = self
            .sources
            .iter()
            .filter(|source| !source.enabled)
            .map(|source| source.full_name().into_owned())
            .collect();
        for problem in &mut problems {
            name_disabled_source(problem, &off);
        }
        Err(problems)
    }
}

/// Returns the missing source that a rule refers to, if `names` contains this source.
pub fn missing_source<'n>(problem: &RuleProblem, names: &'n [String]) -> Option<&'n str> {
    let path = match &problem.error {
        RuleError::NoField { path, .. } => path,
        RuleError::NoSource { name, .. } => name,
        _ => return None,
    };
    let is_named = |name: &&String| {
        path.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    names.iter().find(is_named).map(String::as_str)
}

fn compile<'c>(
    rules: &[TriggerRule],
    sources: impl Iterator<Item = &'c SourceConfig>,
) -> Result<TriggerEngine, Vec<RuleProblem>> {
    let compiled: Vec<(String, u64, Option<CompiledSchema>)> = sources
        .map(|source| {
            let root = source.synthetic.map_or(source.spec.root, |settings| synthetic::root(settings.shape));
            let period_ns = u64::try_from(source.period.as_nanos()).unwrap_or(u64::MAX);
            let schema = CompiledSchema::compile(source.spec.schema, root).ok();
            (source.full_name().into_owned(), period_ns, schema)
        })
        .collect();
    let sources: Vec<RuleSource<'_>> = compiled
        .iter()
        .map(|(name, period_ns, schema)| RuleSource { name, period_ns: *period_ns, schema: schema.as_ref() })
        .collect();
    TriggerEngine::new(rules, &sources)
}

/// If the rule names a disabled source, adds a remark about that to the problem.
fn name_disabled_source(problem: &mut RuleProblem, off: &[String]) {
    let (Some(name), RuleError::NoField { path, .. } | RuleError::NoSource { name: path, .. }) =
        (missing_source(problem, off), &problem.error)
    else {
        return;
    };
    let message = format!("{path:?}: the source {name} is off; set enabled = true in [source.{name}]");
    problem.error = RuleError::Field(message);
}
