//! Checks the constraints between settings, and sets the defaults that depend on other settings.

use flatcap_sampling::{BatchMode, SyntheticLayout};
use flatcap_text::quantity::format_size;
use flatcap_trigger::RuleProblem;

use super::diagnostics::{At, Diagnostics, label};
use super::error::{ConfigError, ConfigErrors, ConfigLocation};
use super::setting::quoted;
use super::settings::Config;
use super::tables::{TRIGGER_TABLE, joined};

/// Size of one value in the layout `wide`, in bytes.
const FIELD_BYTES: u64 = 8;
/// Size of a synthetic frame without values and padding, in bytes. It covers the envelope, offsets
/// and alignment, rounded up.
const SYNTHETIC_EXTRA_BYTES: u64 = 4 << 10;
/// Minimum number of segments that `retain_bytes` must hold. One segment grows while the previous
/// segment is synced to disk.
const RETAIN_SEGMENTS_MIN: u64 = 2;
/// The default of `retain_bytes` is raised to hold at least this many segments.
const RETAIN_SEGMENTS: u64 = 4;
/// The default of `retain_min` is at most `retain_bytes` divided by this number. The recorder keeps
/// `retain_min` even if other programs fill the file system.
const RETAIN_MIN_SHARE: u64 = 10;

/// A function that checks whether the buffers of a configuration fit into `recorder.memory_max`.
/// The function is defined outside this module, because only the modules that own the buffers know
/// the sizes of the buffers.
///
/// # Errors
/// The error states the total size and the smallest sufficient limit.
pub type MemoryRule = fn(&Config) -> Result<(), String>;

/// Selects which constraints between settings are checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckScope {
    /// The function that checks whether all buffers fit into `recorder.memory_max`; `None` to skip
    /// this check.
    pub(super) memory_rule: Option<MemoryRule>,
    /// Whether the set of enabled sources is final, because no argument will select other sources.
    /// If the set is not final, the constraints that depend on the enabled sources are checked
    /// after the selection.
    pub(super) has_final_sources: bool,
}

impl Default for CheckScope {
    fn default() -> Self {
        Self { memory_rule: None, has_final_sources: true }
    }
}

/// A conflict between settings. Keys have their full names, `table.key`.
struct Conflict {
    /// The conflicting keys. The operator must change one of them. The error is reported at the key
    /// that was set last.
    keys: Vec<String>,
    /// The other keys on which the constraint depends.
    others: Vec<String>,
    problem: String,
}

impl Config {
    /// Checks the constraints between settings. Each setting must be valid by itself. `file` is
    /// used in messages only.
    ///
    /// # Errors
    /// The error lists all conflicts.
    pub fn check(&self, file: &str, memory_rule: MemoryRule) -> Result<(), ConfigErrors> {
        check_at(self, &ConfigLocation::File(file.to_owned()), memory_rule)
    }
}

/// Checks the same constraints as [`Config::check`], but reports all conflicts at the given
/// location.
pub(super) fn check_at(
    config: &Config,
    location: &ConfigLocation,
    memory_rule: MemoryRule,
) -> Result<(), ConfigErrors> {
    let scope = CheckScope { memory_rule: Some(memory_rule), has_final_sources: true };
    let errors = conflicts(config, scope).into_iter().map(|conflict| ConfigError {
        location: location.clone(),
        key: conflict.keys.first().map(|key| label(key)),
        value: None,
        problem: conflict.problem,
    });
    let errors: Vec<ConfigError> = errors.collect();
    if errors.is_empty() { Ok(()) } else { Err(ConfigErrors::new(errors, 0)) }
}

/// Sets the defaults that depend on other settings. Otherwise a small or large `segment_size` would
/// make these defaults invalid, although no input sets them.
pub(super) fn derive_defaults(config: &mut Config, walk: &Diagnostics<'_>) {
    let is_default = |key: &str| !walk.is_set(key) || !walk.is_sound(key);
    let storage = &mut config.storage;
    if is_default("storage.preallocate") {
        storage.preallocate = storage.preallocate.min(storage.segment_size);
    }
    if is_default("storage.retain_bytes") {
        let least = storage.segment_size.saturating_mul(RETAIN_SEGMENTS);
        storage.retain_bytes = storage.retain_bytes.max(least);
    }
    if is_default("storage.retain_min") {
        storage.retain_min = storage.retain_min.min(storage.retain_bytes / RETAIN_MIN_SHARE);
    }
}

/// Reports missing keys, keys without effect and conflicts between keys. A value that was rejected
/// before does not cause a second error.
pub(super) fn check(config: &mut Config, walk: &mut Diagnostics<'_>, scope: CheckScope) {
    check_conditions(config, walk);
    for Conflict { keys, others, problem } in conflicts(config, scope) {
        let last = keys.iter().max_by_key(|key| walk.offset(key));
        if let Some(key) = last
            && keys.iter().chain(&others).all(|key| walk.is_sound(key))
        {
            walk.conflict(At::Key(key), problem);
        }
    }
}

/// Reports keys that are set and have no effect, and required keys that are not set.
fn check_conditions(config: &mut Config, walk: &mut Diagnostics<'_>) {
    for (name, table) in config.tables() {
        for spec in table.specs() {
            let key = joined(&name, spec.name);
            let unmet = spec.condition.and_then(|condition| {
                let found = table.write(condition.key)?;
                (found != quoted(condition.value)).then_some((condition, found))
            });
            if let Some((condition, found)) = unmet {
                let by = joined(&name, condition.key);
                // A rejected value was replaced by its default. This default must not cause further
                // errors.
                if walk.is_set(&key) && walk.is_sound(&by) && !walk.is_overridden(&key, &by) {
                    let (by, needed) = (condition.key, condition.value);
                    let advice = format!("remove it or write {by} = \"{needed}\"");
                    walk.conflict(At::Key(&key), format!("has no effect with {by} = {found}; {advice}"));
                }
            } else if spec.is_required && !walk.is_set(&key) {
                // A missing key has no location, so the location of the table's name is used
                // instead.
                let at = At::Label(walk.table_offset(&name), &label(&key));
                walk.conflict(at, format!("missing; {}", (spec.expected)()));
            }
        }
    }
}

/// Returns all conflicts between settings.
fn conflicts(config: &Config, scope: CheckScope) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    let mut add = |keys: Vec<String>, others: &[&str], problem| {
        let others = others.iter().map(|key| (*key).to_owned()).collect();
        conflicts.push(Conflict { keys, others, problem });
    };
    let storage = &config.storage;
    if storage.preallocate > storage.segment_size {
        let segment_size = format_size(storage.segment_size);
        let problem =
            format!("larger than a segment; write at most segment_size, which is \"{segment_size}\"");
        add(vec!["storage.preallocate".to_owned()], &["storage.segment_size"], problem);
    }
    let least = storage.segment_size.saturating_mul(RETAIN_SEGMENTS_MIN);
    if storage.retain_bytes < least {
        let least = format_size(least);
        let problem = format!("less than two segments; write at least \"{least}\", or lower segment_size");
        add(vec!["storage.retain_bytes".to_owned()], &["storage.segment_size"], problem);
    }
    if storage.retain_min > storage.retain_bytes {
        let most = format_size(storage.retain_bytes);
        let problem = format!("more than retain_bytes; write at most \"{most}\", or raise retain_bytes");
        add(vec!["storage.retain_min".to_owned()], &["storage.retain_bytes"], problem);
    }
    if !scope.has_final_sources {
        return conflicts;
    }
    for RuleProblem { rule, key, error } in config.compile_rules().err().unwrap_or_default() {
        add(vec![joined(&joined(TRIGGER_TABLE, &rule), key)], &[], error.to_string());
    }
    let of_sources = |key: &str| -> Vec<String> {
        config.sources.iter().map(|source| format!("source.{}.{key}", source.full_name())).collect()
    };
    if let Err(problem) = synthetic_frame(config) {
        add(vec!["source.synthetic.payload".to_owned()], &["storage.frame_max"], problem);
    }
    for source in config.enabled_sources().filter(|source| source.mode == Some(BatchMode::Armed)) {
        if !config.blackbox.is_on() {
            let key = format!("source.{}.mode", source.full_name());
            let problem =
                "needs the ring; set [blackbox] window, such as \"5min\", or write mode = \"always\"";
            add(vec![key], &["blackbox.window"], problem.to_owned());
        }
    }
    if config.enabled_sources().next().is_none() {
        // Most sources are on by default, so the operator turned sources off. The error is reported
        // at the last of these settings.
        let problem = "no source is enabled; enable at least one";
        add(of_sources("enabled"), &[], problem.to_owned());
    } else if let Some(Err(problem)) = scope.memory_rule.map(|rule| rule(config)) {
        let mut others = [of_sources("enabled"), of_sources("period")].concat();
        others.extend(["buffering.slab_size", "storage.frame_max"].map(str::to_owned));
        conflicts.push(Conflict { keys: vec!["recorder.memory_max".to_owned()], others, problem });
    }
    conflicts
}

/// Checks that a frame of the synthetic source, if it is enabled, fits into `storage.frame_max`.
fn synthetic_frame(config: &Config) -> Result<(), String> {
    let synthetic = config.enabled_sources().find_map(|source| source.synthetic);
    let Some(SyntheticLayout::Wide { fields, payload_bytes }) = synthetic.map(|synthetic| synthetic.shape)
    else {
        return Ok(());
    };
    // Both numbers have 32 bits, so the product and the sum fit into 64 bits.
    let frame = u64::from(fields) * FIELD_BYTES + u64::from(payload_bytes) + SYNTHETIC_EXTRA_BYTES;
    let frame_max = u64::from(config.storage.frame_max);
    if frame <= frame_max {
        return Ok(());
    }
    Err(format!(
        "a frame of {} exceeds frame_max, which is \"{}\"; lower payload or raise [storage] frame_max",
        format_size(frame),
        format_size(frame_max)
    ))
}
