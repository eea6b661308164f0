//! Parses the table of one source.

use super::default;
use super::diagnostics::ParsedValue;
use super::error::Problem;
use super::source::{ShapeKeyword, SourceConfig};
use super::table_reader::TableReader;
use crate::sampling::{
    CgroupConfig, PerfConfig, ProcessConfig, SourceSpec, SyntheticConfig, SyntheticLayout,
};

/// The parsed keys of one source that checks across tables need.
#[derive(Debug)]
pub(super) struct ParsedSourceKeys {
    pub(super) enabled: ParsedValue<bool>,
    /// Whether the period was valid.
    pub(super) is_period_valid: bool,
    /// Set for the synthetic source only.
    pub(super) payload: Option<ParsedValue<u64>>,
}

/// Parses a source without instances.
pub(super) fn source(
    table: &mut TableReader<'_, '_>,
    spec: &'static SourceSpec,
) -> (SourceConfig, ParsedSourceKeys) {
    let (mut source, mut written) = common(table, SourceConfig::by_default(spec));
    if source.synthetic.is_some() {
        let (synthetic, payload) = synthetic(table);
        source.synthetic = Some(synthetic);
        written.payload = Some(payload);
    }
    // Only the keys of this source are looked for; those of others are unknown here and reported.
    source.process = source.process.map(|_| process(table));
    source.cgroup = source.cgroup.map(|cgroup| {
        let depth = table.number("depth", cgroup.depth.into(), &default::CGROUP_DEPTH_RANGE).value;
        CgroupConfig { depth: u32::try_from(depth).unwrap_or(u32::MAX) }
    });
    if let Some(perf) = source.perf {
        let events = table.keywords("events", perf.events).value;
        let processes = table.processes("processes").value;
        source.perf = Some(PerfConfig { events, processes });
    }
    (source, written)
}

/// Parses the keys that all sources have; the other settings are taken from `source`.
pub(super) fn common(
    table: &mut TableReader<'_, '_>,
    source: SourceConfig,
) -> (SourceConfig, ParsedSourceKeys) {
    let enabled = table.flag("enabled", source.enabled);
    let period = table.duration("period", source.period, &default::PERIOD_RANGE);
    let required = table.flag("required", source.required).value;
    let budget = table.cpu_share("budget", source.budget, &default::BUDGET_RANGE).value;
    let [include, exclude] = ["include", "exclude"].map(|key| {
        let given = table.patterns(key);
        // Empty lists are accepted: config/flatcap.toml has them for every source.
        if !given.value.is_empty() && !source.spec.has_filters() {
            table.reject(&given, Problem::NoChoice);
            return Vec::new();
        }
        given.value
    });
    let source = SourceConfig {
        enabled: enabled.value,
        period: period.value,
        required,
        budget,
        include,
        exclude,
        ..source
    };
    (source, ParsedSourceKeys { enabled, is_period_valid: period.is_valid, payload: None })
}

fn synthetic(table: &mut TableReader<'_, '_>) -> (SyntheticConfig, ParsedValue<u64>) {
    let shape = table.keyword("shape", default::SYNTHETIC_SHAPE);
    let fields = table.number("fields", default::SYNTHETIC_FIELDS, &default::SYNTHETIC_FIELDS_RANGE);
    let payload = table.size("payload", default::SYNTHETIC_PAYLOAD, &default::SYNTHETIC_PAYLOAD_RANGE);
    let seed = table.number("seed", default::SYNTHETIC_SEED, &default::SYNTHETIC_SEED_RANGE).value;
    if shape.is_valid && shape.value == ShapeKeyword::Point {
        for given in [&fields, &payload] {
            if given.is_set() && !table.is_overridden(given, &shape) {
                table.reject(given, Problem::WideOnly);
            }
        }
    }
    (
        SyntheticConfig {
            shape: SyntheticLayout::from_keyword(shape.value, fields.value, payload.value),
            seed,
        },
        payload,
    )
}

fn process(table: &mut TableReader<'_, '_>) -> ProcessConfig {
    let users = table.patterns("users").value;
    let cgroups = table.patterns("cgroups").value;
    let top = table.number("top", default::PROCESS_TOP.into(), &default::PROCESS_TOP_RANGE).value;
    let by = table.keyword("by", default::PROCESS_BY).value;
    // Off by default, because a command line may hold a password.
    let command_lines = table.flag("command_lines", false).value;
    let cgroup_paths = table.flag("cgroup_paths", false).value;
    let top = u32::try_from(top).unwrap_or(u32::MAX);
    ProcessConfig { users, cgroups, top, by, command_lines, cgroup_paths }
}
